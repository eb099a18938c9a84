/* Lists of stored things: what is asked for stands in the address, so that a view is kept as a link. */
import { confirm, draw, expose, options, pausing, put } from "./core.js";

const PAUSE = 250;
/* what only arranges a list, and leaves nothing out of it */
const ARRANGED = ["order", "down", "page", "size", "open"];

export const asked = {
  /* what the address says, each value of the kind of its usual one; numbers are pages and sizes, at least 1 */
  read(usual) {
    const given = new URLSearchParams(location.search);
    return Object.fromEntries(Object.entries(usual).map(([name, value]) => {
      const text = given.get(name);
      if (text === null) return [name, value];
      if (typeof value === "boolean") return [name, text === "true"];
      return [name, typeof value === "number" ? Math.max(1, parseInt(text, 10) || value) : text];
    }));
  },
  /* put into an address what differs from the usual */
  write(target, values, usual) {
    for (const [name, value] of Object.entries(usual)) {
      if (values[name] === value) target.searchParams.delete(name);
      else target.searchParams.set(name, values[name]);
    }
    return target;
  },
  keep(target) { history.replaceState(history.state, "", target); },
  /* which page of how many is shown, and which others there are */
  pager(root, { where, page, pages }) {
    root.querySelector(".where").textContent = where;
    root.querySelector(".leaf").textContent = pages > 1 ? `${page} of ${pages}` : "";
    root.querySelectorAll("[data-do=page]").forEach((button) => {
      const other = page + Number(button.dataset.by);
      button.disabled = other < 1 || other > pages;
    });
  },
};

/* a list that a form asks for: what is asked for, its fields, its menus that the answer fills, sorting and leafing */
export const listing = (root, usual, { menus, refresh, results }) => {
  const form = root.querySelector(".filters"), { text } = form.elements;
  const fold = form.querySelector("details");
  let shown = 0;
  /* filters that leave something out are in sight, until their reader folds them */
  const unfold = (set) => {
    if (set > shown) fold.open = true;
    shown = set;
    put(fold.querySelector(".set"), set ? `${set} set` : "");
  };
  const list = {
    query: { ...usual },
    show() {
      for (const field of root.querySelectorAll(".filters [name], .pager [name]")) {
        const { name } = field, { query } = list;
        /* what somebody is typing, or has just typed, is never written over */
        if (field.tagName !== "SELECT" && (field === document.activeElement || soon.waiting())) continue;
        field.value = String(query[name]);
        /* an address may hold what no menu offers */
        if (field.value === String(query[name]) || menus.includes(name)) continue;
        query[name] = usual[name];
        field.value = String(usual[name]);
      }
      const set = Object.keys(usual).filter((name) => !ARRANGED.includes(name) && list.query[name] !== usual[name]);
      form.querySelector("[data-do=reset]").disabled = !set.length;
      if (fold) unfold(set.filter((name) => name !== "text").length);
    },
    look(changes) {
      list.settle();
      Object.assign(list.query, { page: 1 }, changes);
      list.show();
      refresh();
    },
    /* what was chosen and is gone stays in sight, since it is still asked for */
    menu(name, choices) {
      const field = form.elements[name], value = list.query[name];
      const gone = choices.some(([other]) => other === value) ? [] : [[value, `${value.replace(/^g:/, "")} (0)`]];
      draw(field, options([...choices, ...gone]));
      field.value = value;
    },
    sort: ({ dataset: { order, down } }) => list.look({ order, down: down === "true" }),
    page: ({ dataset: { by } }) => { list.look({ page: list.query.page + Number(by) }); results.focus({ preventScroll: true }); },
    /* what was typed is looked for when its writer pauses, unless something else is asked for before */
    settle: () => soon.cancel(),
  };
  const soon = pausing(() => list.look({ text: text.value }), PAUSE);
  form.addEventListener("submit", (event) => { event.preventDefault(); list.look({ text: text.value }); });
  text.addEventListener("input", () => soon());
  root.addEventListener("change", ({ target: field }) => {
    if (field === text || !field.matches(".filters [name], .pager [name]") || !field.checkValidity()) return;
    list.look({ [field.name]: typeof usual[field.name] === "number" ? Number(field.value) : field.value });
  });
  return list;
};

/* a question before something is deleted, in the words of the button that asks for it */
export const sureToDelete = async (button) => {
  const { name, what } = button.dataset;
  if (await confirm(`Delete “${name}”?`, what, "Delete")) return true;
  if (button.isConnected) button.focus();
  return false;
};
/* tables whose buttons trigger the event of their name */
const list = {
  mount(element, trigger) {
    element.addEventListener("click", async ({ target }) => {
      const button = target.closest("button[data-do][data-id]");
      if (!button || (button.dataset.do === "delete" && !(await sureToDelete(button)))) return;
      trigger(button.dataset.do, { id: Number(button.dataset.id) });
    });
  },
};
expose({ list });
