/* The library of sessions: what is asked for stands in the address, so that a view of it can be kept as a link. */
import { act, confirm, draw, expose, link, onFailure, options, plural, refocus } from "../base/core.js";
import "../base/frame.js";
import { asked } from "../base/lists.js";
import { ask, menu } from "../base/menus.js";

const USUAL = {
  text: "", policy: "", model: "", certificate: "", tag: "", archived: "no", judged: "any", since: "", until: "",
  batch: "", order: "updated", down: true, page: 1, size: 25,
};
const FILLED = ["policy", "model", "tag"];
const ARRANGED = ["order", "down", "page", "size"];
const GONE = "with all branches, steps and verdicts. This cannot be undone.";
const state = { query: { ...USUAL }, chosen: new Map(), ids: [], total: 0, pages: 1, known: [], wanted: 0, row: null };
let root, form, results, send, download, more, typed;

const find = (selector) => root.querySelector(selector);
const say = (text) => { find(".told").textContent = text; };

/* ---- what is asked for ---- */
const toAddress = () => asked.keep(asked.write(new URL(location.href), state.query, USUAL));
const toFields = () => {
  for (const field of [...form.querySelectorAll("[name]"), find(".pager [name=size]")]) {
    const { name } = field;
    field.value = String(state.query[name]);
    /* an address may hold what no menu offers */
    if (field.value !== String(state.query[name]) && !FILLED.includes(name)) {
      state.query[name] = USUAL[name];
      field.value = String(USUAL[name]);
    }
  }
  find("[data-do=reset]").disabled = Object.keys(USUAL).every((name) => ARRANGED.includes(name) || state.query[name] === USUAL[name]);
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
    const field = form.querySelector(`[name=${name}]`), value = state.query[name];
    /* a tag that was chosen and is gone stays in sight, since it is still asked for */
    const gone = value && !choices[name].some(([other]) => other === value) ? [[value, `${value} (0)`]] : [];
    draw(field, options([["", "Any"], ...choices[name], ...gone]));
    field.value = value;
  }
  state.known = choices.tag.map(([name]) => name);
};

/* ---- what is shown ---- */
const show = (message) => {
  refocus(results, () => { results.innerHTML = message.html; },
    (at) => results.querySelector(`[data-do=menu][data-id="${at.dataset.id}"]`) || results);
  results.setAttribute("aria-busy", "false");
  Object.assign(state, { ids: message.ids, total: message.total, pages: message.pages });
  state.query.page = message.page;
  fill(message.choices);
  toFields();
  toAddress();
  asked.pager(root, message);
  mark();
};
const mark = () => {
  const { chosen, query, ids, total } = state;
  results.querySelectorAll("[data-do=pick]").forEach((box) => {
    box.checked = chosen.has(Number(box.dataset.id));
    box.closest("tr").classList.toggle("picked", box.checked);
  });
  const here = ids.filter((id) => chosen.has(id)).length;
  const whole = here === ids.length;
  const all = results.querySelector("[data-do=pick-all]");
  if (all) Object.assign(all, { checked: here > 0 && whole, indeterminate: here > 0 && !whole });
  const hidden = {
    ".bulk": chosen.size === 0, ".bulk [data-action=compare]": chosen.size < 2 || chosen.size > 4,
    ".bulk [data-action=archive]": query.archived === "yes", ".bulk [data-action=unarchive]": query.archived === "no",
    "[data-do=pick-found]": state.pages < 2 || !whole || chosen.size >= total,
  };
  Object.entries(hidden).forEach(([selector, off]) => { find(selector).hidden = off; });
  const elsewhere = chosen.size - here;
  find(".chosen").textContent = chosen.size
    ? `${plural(chosen.size, "session")} chosen${elsewhere ? `, ${elsewhere.toLocaleString("en")} not on this page` : ""}` : "";
  find("[data-do=pick-found]").textContent = `Choose all ${total.toLocaleString("en")} that match`;
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
const carryOut = (action, ids, text = "") => {
  if (action === "delete") ids.forEach((id) => state.chosen.delete(id));
  say("Working …");
  state.wanted = send("act", { action, ids, text, query: state.query });
};
const named = (ids, name) => (name ? `“${name}”` : plural(ids.length, "session"));
const QUESTIONS = {
  rename: (ids, name) => ask(`Rename “${name}”`, "Name", "Rename", { value: name }),
  tag: (ids, name) => ask(`Add a tag to ${named(ids, name)}`, "Tag", "Add", { known: state.known, longest: 60 }),
  untag: (ids, name) => ask(`Remove a tag from ${named(ids, name)}`, "Tag", "Remove", { known: state.known, longest: 60 }),
  delete: async (ids, name) => {
    const goes = name || ids.length === 1 ? "The session goes" : "The sessions go";
    return (await confirm(`Delete ${named(ids, name)}?`, `${goes} for good, ${GONE}`, "Delete")) ? " " : null;
  },
};
const begin = async (action, ids, name, from) => {
  const text = QUESTIONS[action] ? await QUESTIONS[action](ids, name) : "";
  if (from && from.isConnected) from.focus();
  if (text !== null) carryOut(action, ids, text.trim());
};
const row = (node) => {
  const { id, name } = node.closest("tr").dataset;
  return { id: Number(id), name };
};
const bulk = (button) => {
  const ids = [...state.chosen.keys()];
  const { action } = button.dataset;
  if (action === "gather") {
    say("Writing the reports …");
    send("gather", { ids });
  } else if (action === "compare") location.href = `./compare?sessions=${ids.join(",")}`;
  else begin(action, ids, ids.length === 1 ? state.chosen.get(ids[0]) : "", button);
};
const pick = (boxes, checked) => {
  boxes.map(row).forEach(({ id, name }) => { if (checked) state.chosen.set(id, name); else state.chosen.delete(id); });
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
const clear = (archived) => { look({ ...USUAL, size: state.query.size, archived }); form.elements.text.focus(); };
const ACTIONS = {
  reset: () => clear("no"),
  everything: () => clear("any"),
  sort: (node) => look({ order: node.dataset.order, down: node.dataset.down === "true" }),
  page: (node) => { look({ page: state.query.page + Number(node.dataset.by) }); results.focus({ preventScroll: true }); },
  "by-tag": (node) => look({ tag: node.dataset.tag }),
  untag: (node) => carryOut("untag", [Number(node.dataset.id)], node.dataset.tag),
  tag: (node) => begin("tag", [row(node).id], row(node).name, node),
  menu: open, bulk,
  pick: (box) => pick([box], box.checked),
  "pick-all": (box) => pick([...results.querySelectorAll("[data-do=pick]")], box.checked),
  "pick-none": () => { state.chosen.clear(); mark(); results.focus({ preventScroll: true }); },
  "pick-found": () => send("pick", { query: state.query }),
};

const library = {
  written(name) { if (name === "export") say("The report is ready and is being downloaded."); },
  mount(element, trigger, props, watch) {
    root = element.querySelector("section");
    form = find(".filters");
    results = find(".results");
    send = link(trigger, props, watch, receive);
    document.body.append(find("#ask"));
    download = menu(find("#menu-download"), (item) => {
      say("Writing the report …");
      send("export", { id: state.row.id, kind: item.dataset.kind });
    });
    more = menu(find("#menu-more"), (item, from) => {
      if (item.dataset.do === "one") begin(item.dataset.action, [state.row.id], state.row.name, from);
    });
    typed = asked.search(form, look);
    root.addEventListener("change", ({ target: field }) => {
      if (field.name === "size") look({ size: Number(field.value) });
      else if (field.name && field.name !== "text" && field.checkValidity()) look({ [field.name]: field.value });
    });
    act(root, ACTIONS);
    onFailure("act", () => { say(""); refresh(); });
    onFailure("export", () => say(""));
    state.query = asked.read(USUAL);
    toFields();
    refresh();
  },
};
expose({ library });
