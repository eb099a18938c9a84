/* The finding of an audit, and which part of the page is shown: the finding, or the text word by word. */
import { draw, expose, link, onFailure, readdress } from "../base/core.js";
import { html, nothing } from "../base/vendor/lit-html.js";
import { session } from "./audit_session.js";

const SHOWN_WORDS = 24;
const ENDED = "end of text";
let root, send, found = null, asked = null, shownFor = null, comparedFor = null;
const find = (selector) => root.querySelector(selector);
const percent = (share) => `${share < 0.005 ? "<1" : Math.round(share * 100)} %`;

/* ---- the two parts of the page ---- */
const query = new URLSearchParams(location.search);
let part = query.get("tab") ?? (query.has("step") ? "words" : "finding");
const tabs = () => document.querySelectorAll(".tabs a");
export const showPart = (name) => {
  part = name;
  document.body.dataset.part = name;
  tabs().forEach((tab, at) => {
    if (at < 2) tab.toggleAttribute("aria-current", (at === 1) === (name === "words"));
    if (tab.hasAttribute("aria-current")) tab.setAttribute("aria-current", "page");
  });
  readdress({ tab: name });
  window.dispatchEvent(new Event("resize"));
};
document.addEventListener("click", (event) => {
  const at = [...tabs()].indexOf(event.target.closest?.(".tabs a"));
  if (at !== 0 && at !== 1) return;
  event.preventDefault();
  showPart(at === 1 ? "words" : "finding");
});

/* ---- the finding ---- */
/* where comparable words in the marked word's place put the probability */
const band = (word) => (word.band ? html`<span class="band" style=${`left:${word.band[0] * 100}%;width:${(word.band[1] - word.band[0]) * 100}%`}></span>` : nothing);
/* of a word that did not come back only the most is known */
const told = (word, view) => `${word.most.includes(view) ? "≤ " : ""}${percent(word[view])}`;
const bar = (word, view) => html`<span class=${`track ${view}`}>${band(word)}<i class=${view === "masked" || found.sentence.some(([, strong]) => strong) ? "hot" : ""} style=${`width:${word[view] * 100}%`}></i></span><b class="tnum">${told(word, view)}</b>`;
const row = (word) => html`<span class="word mono">${word.t}</span><span class="pair">${bar(word, "shown")}<span class="hint">with ${found.marks}</span>${bar(word, "masked")}<span
  class="hint">with it masked</span></span>`;
/* the words of both texts from where they part */
const text = (words, other) => {
  const parting = words.findIndex((word, at) => word !== other[at]);
  const end = Math.max(SHOWN_WORDS, parting + 1);
  return html`${words.slice(0, end).map((word, at) => html`<span class=${at === parting ? "parts" : nothing}>${word}</span> `)}${words.length > end ? "…" : ""}`;
};
const render = (state) => {
  /* the token that ends the text is no word of it */
  const coft = state.cards.slice(0, state.finished === ENDED ? -1 : undefined).map((card) => card.w);
  draw(find(".sentence"), found.sentence.map(([words, strong]) => (strong ? html`<em>${words}</em>` : words)));
  find(".after").textContent = found.words.length ? `The next word after “… ${found.after}”, as the model alone would choose it.` : "";
  draw(find(".moved"), found.words.map(row));
  find(".moved").setAttribute("aria-label", found.words.map((word) => `${word.t}: ${told(word, "shown")} with ${found.marks}, ${told(word, "masked")} with it masked`).join("; "));
  draw(find(".texts"), html`<div><dt>The model alone</dt><dd>${text(found.alone, coft)}</dd></div><div><dt>With ${state.method || "COFT"}</dt><dd>${text(coft, found.alone)}</dd></div>`);
  find(".same").hidden = false;
  draw(find(".answers"), found.compared.map(([title, said]) => html`<div><h3>${title}</h3><p class="muted">${said}</p></div>`));
};
const compared = ({ steps, evidence, branch }) => {
  find(".evidence").hidden = !evidence;
  find(".evidence").textContent = evidence;
  session.controls = { branch, steps };
  session.tell(session.state());
};
/* how far the comparison with other words is; it can be ended */
const comparing = (share) => {
  const line = find(".comparing");
  line.hidden = share === null;
  if (share !== null) draw(line, html`Comparing with other words …<span class="progress" role="progressbar" aria-label="Comparison"
    aria-valuenow=${Math.round(share * 100)}><i style=${`width:${share * 100}%`}></i></span><button type="button" class="btn small quiet" data-do="skip">Skip</button>`);
};
const show = (state) => {
  document.body.classList.toggle("has-session", state.session !== null);
  document.body.classList.toggle("is-finished", Boolean(state.finished) && !state.touched);
  if (!root) return;
  root.hidden = state.cards.length === 0;
  const ready = state.session !== null && state.cards.length > 0 && state.busy === null;
  if (state.session !== asked) found = null;
  if (ready && state.session !== asked) {
    asked = state.session;
    draw(find(".working"), "The finding comes with a second text, which the model alone writes …");
    send("find", { session: state.session });
  }
  /* the chain is compared too once it has ended and the finding is there */
  const chain = [state.session, state.branch, state.cards.length].join();
  if (ready && found?.done && state.finished && chain !== comparedFor) {
    comparedFor = chain;
    send("compare", { session: state.session, branch: state.branch });
  }
  const key = found && [state.session, state.branch, state.cards.length, state.finished].join();
  if (key === shownFor) return;
  shownFor = key;
  root.classList.toggle("found", key !== null);
  if (key !== null) render(state);
};
/* the text of the model alone, as far as it is written */
const writing = ({ alone, total }) => {
  draw(find(".working"), html`The finding comes with the second text, which the model alone is writing now.<span class="progress" role="progressbar"
    aria-label="Second text" aria-valuemax=${total} aria-valuenow=${alone.length}><i style=${`width:${(alone.length / total) * 100}%`}></i></span><span
    class="draft" aria-hidden="true">${alone.join(" ")}</span>`);
};
const receive = (message) => {
  if (message.session !== undefined && message.session !== session.state().session) return;
  if (message.kind === "writing") { writing(message); return; }
  if (message.kind === "comparing") { comparing(message.share); return; }
  if (message.kind === "compared") { comparing(null); compared(message); return; }
  comparing(message.done ? null : 0);
  found = message;
  draw(find(".working"), nothing);
  shownFor = null;
  show(session.state());
  const { step } = message, { cards, selected } = session.state();
  /* what the verdict buttons are about: the step of the finding, where both texts still agree */
  const same = step !== null && step < cards.length && cards.slice(0, step).every((card, at) => card.w === message.alone[at]);
  if (part === "finding" && same && selected !== step) session.choose(step);
};
const finding = {
  mount(element, trigger, props, watch) {
    root = element.querySelector("section");
    send = link(trigger, props, watch, receive);
    root.addEventListener("click", ({ target }) => { if (target.closest("[data-do=skip]")) send("skip", { session: session.state().session }); });
    onFailure("find", () => { asked = null; draw(find(".working"), nothing); comparing(null); });
    onFailure("compare", () => comparing(null));
    showPart(part);
    session.watch(show);
    show(session.state());
  },
};
expose({ finding });
