/* What the signed-in account may not do on this page: its controls are switched off, and say why. The server has the one
   table; this asks it what the page's own events take. */
import { perFrame, refuse } from "./core.js";

const SAID = "limits-said";
let taken = [];

/* a control of its own name, or one that says which event it triggers */
const selectors = ({ within, name, native }) => (native ? [`#${within} button`, `button#${within}`, `#${within} input`]
  : [`#${within} [data-do="${name}"]`, `[data-takes~="${name}"]`]);

const off = (node, why) => {
  if (node.dataset.limited === undefined) {
    node.dataset.limited = "";
    node.setAttribute("aria-describedby", SAID);
    node.title = why;
  }
  if (!node.disabled) node.disabled = true;
};
const mark = perFrame(() => taken.forEach((event) => document.querySelectorAll(selectors(event).join()).forEach((node) => {
  off(node, event.why);
})));

export const limits = {
  async mount(bar, page) {
    const answer = await fetch(`./account/limits?page=${page}`, { cache: "no-store" });
    if (!answer.ok) return;
    const { said, events } = await answer.json();
    if (!events.length) return;
    taken = events;
    refuse(Object.fromEntries(events.filter(({ only }) => only).map(({ name, why }) => [name, why])));
    const line = Object.assign(document.createElement("p"), { id: SAID, className: "limits", textContent: said });
    bar.querySelector(".topbar").after(line);
    mark();
    new MutationObserver(mark).observe(document.body, { subtree: true, childList: true, attributes: true, attributeFilter: ["disabled"] });
  },
};
