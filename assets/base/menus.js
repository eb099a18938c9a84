/* Menus that open at a button, and a question with one line of text. */
import { answered, draw, options } from "./core.js";

const GAP = 4;

/* a panel's place beside the button that opened it; `flush` aligns a menu's right edge with the button's */
const placeAt = (panel, opener, flush = false) => {
  const { left, right, top, bottom } = opener.getBoundingClientRect();
  const { offsetWidth: width, offsetHeight: height } = panel;
  const below = bottom + GAP + height <= innerHeight || top < height;
  panel.style.left = `${Math.max(GAP, Math.min(flush ? right - width : left, innerWidth - width - GAP, left))}px`;
  const wanted = below ? bottom + GAP : top - GAP - height;
  panel.style.top = `${Math.max(GAP, Math.min(wanted, innerHeight - height - GAP))}px`;
};
/* a panel that a button opens, and that moves with it while the page scrolls; gives whether a click on that button is the
   press that has just closed the panel */
export const popup = (panel, opener, flush = false) => {
  let closed = false;
  document.addEventListener("pointerdown", ({ target }) => {
    closed = panel.matches(":popover-open") && Boolean(opener()?.contains(target));
  }, true);
  window.addEventListener("scroll", () => {
    if (!panel.matches(":popover-open")) return;
    const { top, bottom } = opener().getBoundingClientRect();
    if (bottom < 0 || top > innerHeight) panel.hidePopover();
    else placeAt(panel, opener(), flush);
  }, { passive: true });
  panel.addEventListener("toggle", ({ newState }) => { if (newState === "open") placeAt(panel, opener(), flush); });
  panel.addEventListener("beforetoggle", ({ newState }) => opener()?.setAttribute("aria-expanded", String(newState === "open")));
  return () => {
    const before = closed;
    closed = false;
    return before;
  };
};

/* one menu serves the buttons of all rows; the browser closes it at Escape and at a click beside it */
export const menu = (panel, choose) => {
  let opener = null;
  const items = () => [...panel.querySelectorAll("[role=menuitem]")].filter((node) => !node.hidden);
  const closed = popup(panel, () => opener, true);
  panel.addEventListener("keydown", (event) => {
    const all = items();
    const at = all.indexOf(document.activeElement);
    const next = { ArrowDown: (at + 1) % all.length, ArrowUp: (at - 1 + all.length) % all.length, Home: 0, End: all.length - 1 }[event.key];
    if (event.key === "Tab") panel.hidePopover();
    if (next === undefined) return;
    event.preventDefault();
    all[next].focus();
  });
  panel.addEventListener("click", (event) => {
    const item = event.target.closest("[role=menuitem]");
    if (!item) return;
    const from = opener;
    panel.hidePopover();
    from.focus();
    choose(item, from);
  });
  return {
    open(button, prepare) {
      if (closed()) return;
      opener = button;
      prepare(panel, button);
      panel.showPopover();
      items()[0].focus();
    },
  };
};

/* one line of text, or null when nothing was decided */
export const ask = async (title, label, yes, { value = "", known = null, longest = 200 } = {}) => {
  const dialog = document.getElementById("ask");
  const field = dialog.querySelector("input");
  dialog.querySelector("h2").textContent = title;
  dialog.querySelector("label").textContent = label;
  dialog.querySelector("[value=yes]").textContent = yes;
  draw(dialog.querySelector("datalist"), options((known || []).map((text) => [text, text])));
  if (known) field.setAttribute("list", "known-tags");
  else field.removeAttribute("list");
  Object.assign(field, { value, maxLength: longest });
  const answer = answered(dialog);
  field.select();
  return await answer === "yes" && field.value.trim() ? field.value.trim() : null;
};
