/* Lists of stored things: what is asked for stands in the address, so that a view is kept as a link. */
import { confirm, expose, pausing } from "./core.js";

const PAUSE = 250;

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
  /* a form's text is looked for when it is sent, and when its writer pauses; gives the way to forget what was typed */
  search(form, look) {
    const { text } = form.elements;
    const soon = pausing(() => look({ text: text.value }), PAUSE);
    form.addEventListener("submit", (event) => { event.preventDefault(); look({ text: text.value }); });
    text.addEventListener("input", () => soon());
    return { settle: soon.cancel, typing: soon.waiting };
  },
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
