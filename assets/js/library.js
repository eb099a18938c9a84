/* The library of sessions: what is asked for stands in the address, so that a view of it can be kept as a link. */
"use strict";
(() => {
  const coft = window.coft;
  const USUAL = {
    text: "", policy: "", model: "", certificate: "", tag: "", archived: "no", judged: "any", since: "", until: "",
    batch: "", order: "updated", down: true, page: 1, size: 25,
  };
  const FILLED = ["policy", "model", "tag"];
  const GONE = "with all branches, steps and verdicts. This cannot be undone.";
  const state = { query: { ...USUAL }, chosen: new Map(), ids: [], total: 0, pages: 1, known: [], wanted: 0, row: null };
  let root, form, results, send, download, more, typed;

  const find = (selector) => root.querySelector(selector);
  const say = (text) => { find(".told").textContent = text; };

  /* ---- what is asked for ---- */
  const toAddress = () => coft.asked.keep(coft.asked.write(new URL(location.href), state.query, USUAL));
  const fields = () => [...form.querySelectorAll("[name]"), find(".pager [name=size]")];
  const toFields = () => {
    for (const field of fields()) {
      field.value = String(state.query[field.name]);
      /* an address may hold what no menu offers */
      if (field.value !== String(state.query[field.name]) && !FILLED.includes(field.name)) {
        state.query[field.name] = USUAL[field.name];
        field.value = String(USUAL[field.name]);
      }
    }
    const filtered = Object.entries(USUAL).some(([name, usual]) => state.query[name] !== usual
      && !["order", "down", "page", "size"].includes(name));
    find("[data-do=reset]").disabled = !filtered;
  };
  const refresh = () => {
    typed.settle();
    toAddress();
    results.setAttribute("aria-busy", "true");
    state.wanted = send("find", { query: state.query });
  };
  const look = (changes) => {
    Object.assign(state.query, { page: 1 }, changes);
    say("");
    toFields();
    refresh();
  };
  const fill = (choices) => {
    for (const name of FILLED) {
      const menu = form.querySelector(`[name=${name}]`);
      const offered = choices[name];
      const value = state.query[name];
      /* a tag that was chosen and is gone stays in sight, since it is still asked for */
      if (value && !offered.some(([other]) => other === value)) offered.push([value, `${value} (0)`]);
      menu.replaceChildren(coft.el("option", { value: "", text: "Any" }),
        ...offered.map(([key, text]) => coft.el("option", { value: key, text })));
      menu.value = value;
    }
    state.known = choices.tag.map(([name]) => name);
  };

  /* ---- what is shown ---- */
  const trail = () => {
    const at = document.activeElement;
    if (!results.contains(at) || !at.dataset.do) return null;
    const { do: what, id, order, menu, tag } = at.dataset;
    const parts = Object.entries({ id, order, menu, tag }).filter(([, value]) => value !== undefined);
    return [`[data-do="${what}"]${parts.map(([name, value]) => `[data-${name}="${CSS.escape(value)}"]`).join("")}`, id];
  };
  const back = (way) => {
    if (!way) return;
    const again = results.querySelector(way[0]) || results.querySelector(`[data-do=menu][data-id="${way[1]}"]`);
    (again || results).focus();
  };
  const show = (message) => {
    const way = trail();
    results.innerHTML = message.html;
    results.setAttribute("aria-busy", "false");
    Object.assign(state, { ids: message.ids, total: message.total, pages: message.pages });
    state.query.page = message.page;
    fill(message.choices);
    toFields();
    toAddress();
    coft.asked.pager(root, message);
    mark();
    back(way);
  };
  const mark = () => {
    results.querySelectorAll("[data-do=pick]").forEach((box) => {
      box.checked = state.chosen.has(Number(box.dataset.id));
      box.closest("tr").classList.toggle("picked", box.checked);
    });
    const here = state.ids.filter((id) => state.chosen.has(id)).length;
    const all = results.querySelector("[data-do=pick-all]");
    if (all) Object.assign(all, { checked: here > 0 && here === state.ids.length, indeterminate: here > 0 && here < state.ids.length });
    find(".bulk").hidden = state.chosen.size === 0;
    find(".bulk [data-action=compare]").hidden = state.chosen.size < 2 || state.chosen.size > 4;
    find(".bulk [data-action=archive]").hidden = state.query.archived === "yes";
    find(".bulk [data-action=unarchive]").hidden = state.query.archived === "no";
    const elsewhere = state.chosen.size - here;
    find(".chosen").textContent = state.chosen.size
      ? `${coft.plural(state.chosen.size, "session")} chosen${elsewhere ? `, ${elsewhere.toLocaleString("en")} not on this page` : ""}` : "";
    const rest = find("[data-do=pick-found]");
    rest.hidden = state.pages < 2 || here < state.ids.length || state.chosen.size >= state.total;
    rest.textContent = `Choose all ${state.total.toLocaleString("en")} that match`;
  };
  const receive = (message) => {
    if (message.kind === "said") say(message.said);
    else if (message.kind === "ids") {
      message.ids.forEach((id) => state.chosen.set(id, state.chosen.get(id) || ""));
      mark();
    } else if (message.nonce === state.wanted) {
      show(message);
      if (message.said) say(message.said);
    } else if (message.said) {
      /* a list that was asked for after this action may have been made before it */
      say(message.said);
      refresh();
    }
  };

  /* ---- what is done ---- */
  const act = (action, ids, text = "") => {
    if (action === "delete") ids.forEach((id) => state.chosen.delete(id));
    say("Working …");
    state.wanted = send("act", { action, ids, text, query: state.query });
  };
  const named = (ids, name) => (name ? `“${name}”` : coft.plural(ids.length, "session"));
  const QUESTIONS = {
    rename: (ids, name) => coft.ask(`Rename “${name}”`, "Name", "Rename", { value: name }),
    tag: (ids, name) => coft.ask(`Add a tag to ${named(ids, name)}`, "Tag", "Add", { known: state.known, longest: 60 }),
    untag: (ids, name) => coft.ask(`Remove a tag from ${named(ids, name)}`, "Tag", "Remove", { known: state.known, longest: 60 }),
    delete: async (ids, name) => {
      const goes = name || ids.length === 1 ? "The session goes" : "The sessions go";
      return (await coft.confirm(`Delete ${named(ids, name)}?`, `${goes} for good, ${GONE}`, "Delete")) ? " " : null;
    },
  };
  const begin = async (action, ids, name, from) => {
    const text = QUESTIONS[action] ? await QUESTIONS[action](ids, name) : "";
    if (text === null) { if (from && from.isConnected) from.focus(); return; }
    if (from && from.isConnected) from.focus();
    act(action, ids, text.trim());
  };
  const chosen = () => [...state.chosen.keys()];
  const row = (node) => {
    const { id, name } = node.closest("tr").dataset;
    return { id: Number(id), name };
  };
  const bulk = (button) => {
    const ids = chosen();
    if (button.dataset.action === "gather") {
      say("Writing the reports …");
      send("gather", { ids });
    } else if (button.dataset.action === "compare") location.href = `./compare?sessions=${ids.join(",")}`;
    else begin(button.dataset.action, ids, ids.length === 1 ? state.chosen.get(ids[0]) : "", button);
  };
  const pick = (box) => {
    const { id, name } = row(box);
    if (box.checked) state.chosen.set(id, name); else state.chosen.delete(id);
    mark();
  };
  const pickAll = (box) => {
    results.querySelectorAll("[data-do=pick]").forEach((other) => {
      const { id, name } = row(other);
      if (box.checked) state.chosen.set(id, name); else state.chosen.delete(id);
    });
    mark();
  };
  const open = (button) => {
    state.row = row(button);
    (button.dataset.menu === "download" ? download : more).open(button, (panel) => {
      const archived = button.dataset.archived === "true";
      panel.querySelectorAll("[data-action=archive]").forEach((node) => { node.hidden = archived; });
      panel.querySelectorAll("[data-action=unarchive]").forEach((node) => { node.hidden = !archived; });
      panel.querySelectorAll("[data-do=duplicate]").forEach((node) => { node.href = `./?duplicate=${state.row.id}`; });
    });
  };

  coft.library = {
    written(name) { if (name === "export") say("The report is ready and is being downloaded."); },
    mount(element, trigger, props, watch) {
      root = element.querySelector("section");
      form = find(".filters");
      results = find(".results");
      send = coft.link(trigger, props, watch, receive);
      document.body.append(find("#ask"));
      download = coft.menu(find("#menu-download"), (item) => {
        say("Writing the report …");
        send("export", { id: state.row.id, kind: item.dataset.kind });
      });
      more = coft.menu(find("#menu-more"), (item, from) => {
        if (item.dataset.do === "one") begin(item.dataset.action, [state.row.id], state.row.name, from);
      });
      typed = coft.asked.search(form, look);
      root.addEventListener("change", (event) => {
        const field = event.target;
        if (field.name === "size") look({ size: Number(field.value) });
        else if (field.name && field.name !== "text" && field.checkValidity()) look({ [field.name]: field.value });
      });
      const clear = () => { look({ ...USUAL, size: state.query.size, archived: "no" }); form.elements.text.focus(); };
      coft.act(root, {
        reset: clear,
        everything: () => { look({ ...USUAL, size: state.query.size, archived: "any" }); form.elements.text.focus(); },
        sort: (node) => look({ order: node.dataset.order, down: node.dataset.down === "true" }),
        page: (node) => { look({ page: state.query.page + Number(node.dataset.by) }); results.focus({ preventScroll: true }); },
        "by-tag": (node) => look({ tag: node.dataset.tag }),
        untag: (node) => act("untag", [Number(node.dataset.id)], node.dataset.tag),
        tag: (node) => begin("tag", [row(node).id], row(node).name, node),
        menu: open, pick, "pick-all": pickAll, bulk,
        "pick-none": () => { state.chosen.clear(); mark(); results.focus({ preventScroll: true }); },
        "pick-found": () => send("pick", { query: state.query }),
      });
      coft.onFailure("act", () => { say(""); refresh(); });
      coft.onFailure("export", () => say(""));
      state.query = coft.asked.read(USUAL);
      toFields();
      refresh();
    },
  };
})();
