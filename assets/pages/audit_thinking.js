/* What of a chain is thinking and what the answer: told apart in the strip, folded once there is an answer, each with its counts. */
import { act, put } from "../base/core.js";

let root, strip, tokens = [], view = null, chosen = null;
const find = (selector) => root.querySelector(selector);
const folded = () => Boolean(view?.answered) && !(chosen ?? false);
const draw = () => {
  find(".thinking").hidden = !view;
  if (!view) { strip.classList.remove("folded"); return; }
  put(find(".thinking .hint"), view.text);
  const button = find("[data-do=thinking]");
  button.hidden = !view.answered;
  button.setAttribute("aria-expanded", String(!folded()));
  put(button, folded() ? "Show the thinking" : "Hide the thinking");
  strip.classList.toggle("folded", folded());
};
const within = (index) => Boolean(view) && view.ranges.some(([first, last]) => index >= first && index <= last);

export const thinking = {
  mount(section) {
    root = section;
    strip = find(".strip");
    act(root, { thinking: () => { chosen = folded(); draw(); } });
  },
  /* another session begins folded again */
  reset() { chosen = null; view = null; },
  show(message, nodes) {
    view = message || null;
    tokens = nodes;
    tokens.forEach((node, index) => node.classList.toggle("thought", within(index)));
    draw();
  },
  within,
  answered: () => Boolean(view?.answered),
  /* a token that is selected is in sight */
  open(index) {
    if (!within(index) || !folded()) return;
    chosen = true;
    draw();
  },
};
