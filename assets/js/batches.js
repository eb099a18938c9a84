/* The batches page: a new batch beside the past ones, or one batch whose rows are asked for page by page. What is
   asked for stands in the address, so that a view of it can be kept as a link. */
"use strict";
(() => {
  const coft = window.coft;
  const EVERY = 1200;
  const TOTALS_EVERY = 4000;
  const AGAIN = 6000;
  const ROWS = { text: "", group: "", state: "", order: "line", down: false, page: 1, size: 25 };
  const RULE = { selected: "", other: "", regex: false, case: false, small: false };
  const state = { batch: null, query: { ...ROWS }, rule: { ...RULE }, wanted: 0, running: false, finished: null, told: 0, shown: {} };
  let root, past, send, typed, polling = null;

  const find = (selector) => root.querySelector(selector);
  const say = (text) => { find(".told").textContent = text; };

  /* ---- what is asked for ---- */
  const fromAddress = () => {
    const number = coft.addressed("batch");
    Object.assign(state, { batch: number > 0 ? number : null, query: coft.asked.read(ROWS), rule: coft.asked.read(RULE) });
  };
  const address = () => {
    const target = coft.asked.write(new URL(location.href), { batch: state.batch }, { batch: null });
    const open = state.batch !== null;
    coft.asked.write(target, open ? state.query : ROWS, ROWS);
    return coft.asked.write(target, open ? state.rule : RULE, RULE);
  };
  const keepAddress = () => coft.asked.keep(address());
  const query = () => ({ ...state.query, batch: state.batch });
  const ask = (name, data = {}) => {
    clearTimeout(polling);
    state.wanted = send(name, { ...data, query: query() });
  };
  const refresh = () => {
    typed.settle();
    keepAddress();
    ask("find");
  };
  const look = (changes) => {
    Object.assign(state.query, { page: 1 }, changes);
    toFields();
    refresh();
  };
  const toFields = () => {
    for (const field of root.querySelectorAll(".filters [name], .pager [name]")) {
      /* what somebody is typing, or has just typed, is never written over */
      if (field.tagName === "SELECT" || (field !== document.activeElement && !typed.typing())) field.value = String(state.query[field.name]);
    }
    find(".filters [data-do=reset]").disabled = ["text", "group", "state"].every((name) => state.query[name] === ROWS[name]);
  };

  /* ---- which of both parts is shown ---- */
  const show = () => {
    document.body.dataset.batches = state.batch === null ? "new" : "open";
    window.dispatchEvent(new Event("resize"));
  };
  const open = (number, push = true) => {
    Object.assign(state, { batch: number, query: { ...ROWS }, rule: { ...RULE }, finished: null });
    if (push) history.pushState(history.state, "", address());
    blank();
    show();
    toFields();
    ask("find");
  };
  const overview = (push = true) => {
    clearTimeout(polling);
    state.batch = null;
    if (push) history.pushState(history.state, "", address());
    document.title = "Batches";
    show();
    past.setAttribute("aria-busy", "true");
    state.wanted = send("listed", {});
  };
  const blank = () => {
    typed.settle();
    Object.assign(state, { shown: {}, finished: null, told: 0 });
    find(".filters [name=text]").value = state.query.text;
    find(".batchhead").replaceChildren(coft.el("p", { class: "sub", text: "Loading …" }));
    for (const name of [".batchstatus", ".batchnotes", "#batch-rows"]) find(name).replaceChildren();
    find("section").setAttribute("aria-busy", "true");
    say("");
    coft.batchGroups.begin(state.rule);
  };
  const arrive = () => {
    fromAddress();
    if (state.batch === null) return overview(false);
    blank();
    show();
    toFields();
    return ask("find");
  };

  /* ---- what is shown ---- */
  const trail = (holder) => {
    const at = document.activeElement;
    if (!holder.contains(at) || at === holder) return null;
    if (at.dataset.do) return `[data-do="${at.dataset.do}"]${at.dataset.order ? `[data-order="${at.dataset.order}"]` : ""}`;
    const row = at.closest("tr[data-line]");
    return row ? `tr[data-line="${row.dataset.line}"] a` : null;
  };
  const put = (selector, html) => {
    const holder = find(selector);
    if (state.shown[selector] === html) return;
    state.shown[selector] = html;
    const way = trail(holder), inside = holder.contains(document.activeElement) && document.activeElement !== holder;
    holder.innerHTML = html;
    if (inside) (holder.querySelector(way || "") || holder.querySelector("h2") || find("#batch-rows")).focus({ preventScroll: true });
  };
  const fill = (name, first, choices) => {
    const menu = find(`.filters [name=${name}]`), value = state.query[name];
    /* an open menu is left alone */
    if (menu === document.activeElement && state.running) return;
    const offered = [["", first], ...choices];
    if (!offered.some(([other]) => other === value)) offered.push([value, `${value.replace(/^g:/, "")} (0)`]);
    const now = [...menu.options].map((option) => [option.value, option.textContent]);
    if (JSON.stringify(now) !== JSON.stringify(offered)) {
      menu.replaceChildren(...offered.map(([key, text]) => coft.el("option", { value: key, text })));
    }
    menu.value = value;
  };
  const receive = (message) => {
    if (message.kind === "begun") { open(message.batch); return; }
    if (message.kind === "list") { list(message); return; }
    if (coft.batchGroups.receive(message) || message.batch !== state.batch || message.nonce !== state.wanted) return;
    put(".batchhead", message.head);
    put(".batchstatus", message.status);
    put("#batch-rows", message.rows);
    find(".batchnotes").innerHTML = message.notes;
    find(".progresssaid").textContent = message.progress;
    find("section").setAttribute("aria-busy", "false");
    state.query.page = message.page;
    fill("group", "All groups", message.groups);
    fill("state", "All states", message.states);
    toFields();
    keepAddress();
    coft.asked.pager(root, message);
    if (message.said || state.running !== message.running) say(message.said);
    state.running = message.running;
    document.title = `${message.name} · Batches`;
    if (state.finished !== message.finished && (!message.running || Date.now() - state.told > TOTALS_EVERY)) {
      Object.assign(state, { finished: message.finished, told: Date.now() });
      coft.batchGroups.show(state.batch);
    }
    if (message.running) polling = setTimeout(() => ask("find"), EVERY);
  };
  const list = (message) => {
    past.innerHTML = message.html;
    past.setAttribute("aria-busy", "false");
    if (message.said) coft.frame.saved(message.said);
    if (message.gone === state.batch) {
      state.batch = null;
      history.replaceState(history.state, "", address());
      show();
    }
    if (message.gone) past.focus({ preventScroll: true });
  };

  /* ---- what is done ---- */
  const remove = async (button) => {
    const { id, name, what } = button.dataset;
    if (await coft.confirm(`Delete “${name}”?`, what, "Delete")) send("delete", { id: Number(id) });
    else if (button.isConnected) button.focus();
  };
  const exported = (button) => {
    say("Writing the table …");
    send("export", { batch: state.batch, kind: button.dataset.kind, rule: state.rule });
  };
  const clear = () => {
    find(".filters [name=text]").value = "";
    look({ text: "", group: "", state: "" });
    find(".filters [name=text]").focus();
  };

  coft.batches = {
    written() { say("The table is ready and is being downloaded."); },
    /* the settings of a new batch have changed */
    settings(values) {
      coft.frame.summary(values);
      const said = document.querySelector("#estimate .estimate");
      if (said && !said.classList.contains("stale")) {
        said.classList.add("stale");
        said.append(coft.el("p", { class: "caution stale-note", text: "The settings changed since: check again." }));
      }
      return [];
    },
    mount(element, trigger, props, watch) {
      root = element;
      send = coft.link(trigger, props, watch, receive);
      typed = coft.asked.search(find(".filters"), look);
      root.addEventListener("change", (event) => {
        const field = event.target;
        if (field.name === "size") look({ size: Number(field.value) });
        else if (field.name === "group" || field.name === "state") look({ [field.name]: field.value });
      });
      coft.act(root, {
        reset: clear,
        sort: (node) => look({ order: node.dataset.order, down: node.dataset.down === "true" }),
        page: (node) => { look({ page: state.query.page + Number(node.dataset.by) }); find("#batch-rows").focus({ preventScroll: true }); },
        cancel: (node) => { node.disabled = true; ask("cancel"); },
        resume: (node) => { node.disabled = true; ask("resume"); },
        export: exported, delete: remove,
      });
      for (const name of ["cancel", "resume", "delete"]) coft.onFailure(name, () => {
        state.shown = {};
        if (state.batch === null) overview(false); else refresh();
      });
      coft.onFailure("export", () => say(""));
      coft.onFailure("find", () => {
        if (state.running) { polling = setTimeout(() => ask("find"), AGAIN); return; }
        if (find("section").getAttribute("aria-busy") !== "true") return;
        overview(false);
        keepAddress();
      });
      coft.whenReady(() => begin());
    },
  };
  /* the other parts of the page may come after this one */
  const begin = () => {
    past = document.getElementById("past");
    if (!past || !document.querySelector(".impactreport")) { requestAnimationFrame(begin); return; }
    coft.act(past, { delete: remove });
    past.addEventListener("click", (event) => {
      const link = event.target.closest("[data-do=open]");
      if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
      event.preventDefault();
      open(Number(link.dataset.id));
    });
    coft.batchGroups.mount({
      send, exported,
      changed: (rule) => { state.rule = rule; keepAddress(); },
    });
    window.addEventListener("popstate", () => arrive());
    arrive();
  };
})();
