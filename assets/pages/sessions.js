/* The library of sessions: what is asked for stands in the address, so that a view of it can be kept as a link. */
import { act, confirm, expose, link, offers, onFailure, plural, refocus } from "../base/core.js";
import { downloads } from "../base/downloads.js";
import "../base/frame.js";
import { asked, listing } from "../base/lists.js";
import { ask, menu } from "../base/menus.js";

const USUAL = {
  text: "", policy: "", model: "", certificate: "", tag: "", archived: "no", judged: "any", since: "", until: "",
  batch: "", open: "", order: "updated", down: true, page: 1, size: 25,
};
const FILLED = ["policy", "model", "tag"];
const GONE = "with all branches, steps and verdicts. This cannot be undone.";
const state = { chosen: new Map(), folds: new Map(), ids: [], batches: [], total: 0, pages: 1, known: [], projects: [], wanted: 0, row: null };
let root, form, results, list, send, more;

const find = (selector) => root.querySelector(selector);
const say = (text) => { find(".told").textContent = text; };

/* ---- what is asked for ---- */
const toAddress = () => asked.keep(asked.write(new URL(location.href), list.query, USUAL));
const refresh = () => {
  list.settle();
  toAddress();
  results.setAttribute("aria-busy", "true");
  state.wanted = send("find", { query: list.query });
};
/* ---- what is shown ---- */
const show = (message) => {
  refocus(results, () => { results.innerHTML = message.html; },
    (at) => results.querySelector(`[data-do=menu][data-id="${at.dataset.id}"]`) || results);
  results.setAttribute("aria-busy", "false");
  Object.assign(state, { ids: message.ids, batches: message.batches, total: message.total, pages: message.pages });
  list.query.page = message.page;
  FILLED.forEach((name) => list.menu(name, [["", "Any"], ...message.choices[name]]));
  state.known = message.choices.tag.map(([name]) => name);
  state.projects = message.projects;
  list.show();
  toAddress();
  asked.pager(root, message);
  mark();
};
const mark = () => {
  const { chosen, ids, total } = state, { query } = list;
  results.querySelectorAll("[data-do=pick]").forEach((box) => {
    box.checked = chosen.has(Number(box.dataset.id));
    box.closest("tr").classList.toggle("picked", box.checked);
  });
  results.querySelectorAll("[data-do=pick-batch]").forEach((box) => {
    const of = state.folds.get(Number(box.dataset.id)) || [], some = of.filter((id) => chosen.has(id)).length;
    Object.assign(box, { checked: some > 0 && some === of.length, indeterminate: some > 0 && some < of.length });
  });
  const folded = new Set(state.batches.flatMap((batch) => state.folds.get(batch) || []));
  const here = new Set([...ids, ...folded].filter((id) => chosen.has(id))).size;
  const whole = here === new Set([...ids, ...folded]).size && state.batches.every((batch) => state.folds.has(batch));
  const all = results.querySelector("[data-do=pick-all]");
  if (all) Object.assign(all, { checked: here > 0 && whole, indeterminate: here > 0 && !whole });
  const hidden = {
    ".bulk": chosen.size === 0, ".bulk [data-action=compare]": chosen.size < 2 || chosen.size > 4 || !offers("compare"),
    ".bulk [data-action=archive]": query.archived === "yes", ".bulk [data-action=unarchive]": query.archived === "no",
    ".bulk [data-action=move]": state.projects.length === 0,
    "[data-do=pick-found]": state.pages < 2 || !whole || chosen.size >= total,
  };
  Object.entries(hidden).forEach(([selector, off]) => { find(selector).hidden = off; });
  const elsewhere = chosen.size - here;
  find(".chosen").textContent = chosen.size
    ? `${plural(chosen.size, "session")} chosen${elsewhere ? `, ${elsewhere.toLocaleString("en")} not on this page` : ""}` : "";
  find("[data-do=pick-found]").textContent = `Choose all ${total.toLocaleString("en")} that match`;
};
const receive = (message) => {
  (message.gone || []).forEach((id) => state.chosen.delete(id));
  if (message.kind === "said") say(message.said);
  else if (message.kind === "ids") {
    if (message.batch !== null) state.folds.set(message.batch, message.ids);
    message.ids.forEach((id) => { if (message.off) state.chosen.delete(id); else state.chosen.set(id, state.chosen.get(id) || ""); });
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
  say("Working …");
  state.wanted = send("act", { action, ids, text, query: list.query });
};
const named = (ids, name) => (name ? `“${name}”` : plural(ids.length, "session"));
const QUESTIONS = {
  rename: (ids, name) => ask(`Rename “${name}”`, "Name", "Rename", { value: name }),
  tag: (ids, name) => ask(`Add a tag to ${named(ids, name)}`, "Tag", "Add", { known: state.known, longest: 60 }),
  untag: (ids, name) => ask(`Remove a tag from ${named(ids, name)}`, "Tag", "Remove", { known: state.known, longest: 60 }),
  move: (ids, name) => ask(`Move ${named(ids, name)} to another project`, "Project", "Move",
    { known: state.projects, value: state.projects.length === 1 ? state.projects[0] : "" }),
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
/* a batch is chosen with all of its sessions that match, whether they are shown or not */
const pickBatch = (box) => send("pick", { query: list.query, batch: Number(box.dataset.id), off: !box.checked });
const unfold = ({ dataset: { id } }) => {
  const opened = new Set(list.query.open.split(",").filter(Boolean));
  if (!opened.delete(id)) opened.add(id);
  list.look({ open: [...opened].join(","), page: list.query.page });
};
const open = (button) => {
  state.row = row(button);
  if (button.dataset.menu === "download") { downloads.open(button, state.row.id, say); return; }
  more.open(button, (panel) => {
    const archived = button.dataset.archived === "true";
    panel.querySelectorAll("[data-action=archive]").forEach((node) => { node.hidden = archived; });
    panel.querySelectorAll("[data-action=unarchive]").forEach((node) => { node.hidden = !archived; });
    panel.querySelectorAll("[data-action=move]").forEach((node) => { node.hidden = !state.projects.length; });
    panel.querySelectorAll("[data-do=duplicate]").forEach((node) => { node.href = `./?duplicate=${state.row.id}`; });
  });
};
const clear = (archived) => { list.look({ ...USUAL, size: list.query.size, archived }); form.elements.text.focus(); };
const ACTIONS = {
  reset: () => clear("no"),
  everything: () => clear("any"),
  sort: (node) => list.sort(node),
  page: (node) => list.page(node),
  "by-tag": (node) => list.look({ tag: node.dataset.tag }),
  untag: (node) => carryOut("untag", [Number(node.dataset.id)], node.dataset.tag),
  tag: (node) => begin("tag", [row(node).id], row(node).name, node),
  menu: open, bulk,
  pick: (box) => pick([box], box.checked),
  "pick-all": (box) => {
    /* the box itself says what is chosen as soon as some is */
    const { checked } = box;
    pick([...results.querySelectorAll("[data-do=pick]")], checked);
    results.querySelectorAll("[data-do=pick-batch]").forEach((batch) => { batch.checked = checked; pickBatch(batch); });
  },
  "pick-batch": pickBatch, unfold,
  "pick-none": () => { state.chosen.clear(); mark(); results.focus({ preventScroll: true }); },
  "pick-found": () => send("pick", { query: list.query, batch: null, off: false }),
};

const library = {
  mount(element, trigger, props, watch) {
    root = element.querySelector("section");
    form = find(".filters");
    results = find(".results");
    send = link(trigger, props, watch, receive);
    document.body.append(find("#ask"));
    more = menu(find("#menu-more"), (item, from) => {
      if (item.dataset.do === "one") begin(item.dataset.action, [state.row.id], state.row.name, from);
    });
    list = listing(root, USUAL, { menus: FILLED, results, refresh: () => { say(""); refresh(); } });
    act(root, ACTIONS);
    onFailure("act", () => { say(""); refresh(); });
    onFailure("gather", () => say(""));
    Object.assign(list.query, asked.read(USUAL));
    list.show();
    refresh();
  },
};
expose({ library });
