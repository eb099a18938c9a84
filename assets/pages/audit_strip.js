/* Drawing a chain: tokens are appended one by one; only the overview, one element per step, is drawn again. */
import { draw, icon, made } from "../base/core.js";
import { shared } from "../base/shared.js";
import { html, nothing, svg } from "../base/vendor/lit-html.js";

const MOST_CELLS = 256;
const LINE = 54;
const TYPICAL = 60;
const MOST_LINES = 7;
/* about the width of a letter under the overview */
const LETTER = 7;
const HOT = shared.sensitive;

/* ---- tokens ---- */
const token = (card) => made(html`<button type="button" class=${`tok ${card.c}${card.g ? " glue" : ""}${card.k.length ? " signed" : ""}`} data-i=${card.i} tabindex="-1"
  title=${card.sr}><span class="mk">${card.k.map((name) => icon(name))}</span><span class="w">${card.w}</span><span class="heat">${card.h
  ? html`<i class=${card.n ? "neg" : nothing} style=${`height:${card.h}px`}></i>` : nothing}</span><span class="vh" dir="ltr">, ${card.sr}</span></button>`);
/* punctuation and word parts stay on the line of their word */
export const appendToken = (strip, caret, card) => {
  const node = token(card);
  const last = caret.previousElementSibling;
  if (!card.g || !last) strip.insertBefore(node, caret);
  else if (last.classList.contains("grp")) last.append(node);
  else {
    const group = Object.assign(document.createElement("span"), { className: "grp" }), focused = last === document.activeElement;
    last.replaceWith(group);
    group.append(last, node);
    if (focused) last.focus({ preventScroll: true });
  }
  return node;
};
export const caretNode = () => made(html`<span class="tok caret" aria-hidden="true"><span class="mk"></span><span class="w"> </span><span
  class="heat"></span></span>`);

/* ---- the strip's own region: it has its height before the tokens come, and scrolls when they are more ---- */
export const reserve = (reel, { cards, total, finished }) => {
  const wide = reel.clientWidth || 640;
  const expected = finished ? 0 : Math.ceil((Math.max(total, cards.length) * TYPICAL) / wide);
  reel.style.minHeight = `${Math.min(MOST_LINES, Math.max(1, expected)) * LINE + 8}px`;
  reel.style.maxHeight = `${MOST_LINES * LINE + 8}px`;
};
/* bring a token into its region, and leave the page where it is */
export const reveal = (reel, node) => {
  const box = node.getBoundingClientRect();
  const seen = reel.getBoundingClientRect();
  if (box.top < seen.top) reel.scrollTop -= seen.top - box.top + 4;
  else if (box.bottom > seen.bottom) reel.scrollTop += box.bottom - seen.bottom + 4;
};
/* a person's own scrolling, told from the page's */
export const onScrollAway = (reel, run) => {
  const check = () => requestAnimationFrame(() => { if (reel.scrollTop + reel.clientHeight < reel.scrollHeight - 8) run(); });
  ["wheel", "touchmove", "pointerdown"].forEach((name) => reel.addEventListener(name, check, { passive: true }));
};

/* ---- the overview ---- */
const DASH = { uninformative: "5 3", inherited: "1.5 3", none: "5 3" };
const totalOf = (state) => Math.max(state.total, state.cards.length, 1);
const perCell = (total) => Math.ceil(total / MOST_CELLS);
const strongest = (cards) => cards.reduce((one, other) => (Math.abs(other.r) > Math.abs(one.r) ? other : one));
/* the step that stands at a place of the overview: of a merged cell, the one that stands out most */
export const overviewStep = (holder, clientX, state) => {
  const { left, width } = holder.getBoundingClientRect();
  const total = totalOf(state), per = perCell(total);
  const cell = Math.floor(((clientX - left) / width) * Math.ceil(total / per));
  const group = state.cards.slice(cell * per, (cell + 1) * per);
  return group.length ? strongest(group).i : state.cards.length;
};
/* labels of the bins that have room: the place of one reaches to the next that is shown, so that none is cut */
const labelled = (bins, x) => {
  const roomy = ({ first, end, text }) => x(end) - x(first) >= (text.length + 1) * LETTER;
  const places = [];
  for (const bin of bins) {
    const last = places[places.length - 1];
    if (last && !roomy(last)) last.end = bin.end;
    else places.push({ ...bin, text: bin.label + bin.short });
  }
  if (places.length > 1 && !roomy(places[places.length - 1])) {
    const { end } = places.pop();
    places[places.length - 1].end = end;
  }
  return places;
};
/* what the last drawing showed, and its marker: another selection moves the marker alone */
let overview = { shown: [], now: null, per: 1, width: 1, at: null };
export const drawOverview = (holder, labels, state) => {
  const span = holder.clientWidth || 640;
  const shown = [state.cards, state.cards.length, state.cards[state.cards.length - 1], state.bins, state.total, span];
  if (shown.some((part, at) => part !== overview.shown[at])) overview = { shown, ...drawSteps(holder, labels, state, span) };
  const at = state.selected < 0 ? null : Math.floor(state.selected / overview.per) * overview.width;
  if (overview.at === at) return;
  overview.at = at;
  overview.now.setAttribute("visibility", at === null ? "hidden" : "visible");
  if (at !== null) overview.now.setAttribute("x", at);
};
const cellOf = (group, cell, width) => {
  const { r } = strongest(group);
  const high = Math.min(r < 0 ? 11 : 28, Math.abs(r) * 22.5);
  const bar = high >= 0.4 ? svg`<rect class=${Math.abs(r) >= HOT ? "s-hot" : "s-pos"} x=${(cell + 0.15) * width} y=${r < 0 ? 30 : 30 - high}
    width=${width * 0.7} height=${high}></rect>` : nothing;
  const lost = group.some((card) => card.c.includes("fallback"));
  return svg`${bar}${lost ? svg`<path d=${`M${(cell + 0.5) * width} 33.5l4 7h-8z`} class="s-fall"></path>` : nothing}`;
};
const drawSteps = (holder, labels, state, span) => {
  const { cards } = state;
  const total = totalOf(state), per = perCell(total);
  const width = span / Math.ceil(total / per);
  const bins = state.bins.filter((bin) => bin.first < total)
    .map((bin) => ({ ...bin, end: Math.min(total, bin.last === null ? total : bin.last + 1) }));
  const x = (step) => (step / total) * span;
  const places = labelled(bins, x);
  const cells = Array.from({ length: Math.ceil(cards.length / per) }, (_, cell) => cellOf(cards.slice(cell * per, (cell + 1) * per), cell, width));
  draw(holder, html`<svg viewBox=${`0 0 ${span} 44`} class="chart" aria-hidden="true"><rect class="s-now" x="0" y="0.5" width=${width} height="41"
    rx="2" visibility="hidden"></rect>${places.slice(1).map(({ first }) => svg`<line class="grid" x1=${x(first)} x2=${x(first)} y1="2" y2="42"></line>`)}${
    (bins.length ? bins : [{ first: 0, end: total, state: "none" }]).map((bin) => svg`<line class="axis" x1=${x(bin.first)} x2=${x(bin.end)}
    y1="30" y2="30" stroke-dasharray=${DASH[bin.state] || nothing}></line>`)}${cells}</svg>`);
  const now = holder.querySelector(".s-now");
  now.setAttribute("visibility", "hidden");
  const peaks = cards.filter((card) => Math.abs(card.r) >= HOT).map((card) => card.i + 1);
  holder.setAttribute("aria-label", `Sensitivity of ${cards.length} steps: above the line the token is likelier with the attribute visible, `
    + `below it is likelier when masked. ${peaks.length ? `Sensitive at ${peaks.length > 12 ? `${peaks.length} steps` : `steps ${peaks.join(", ")}`}.` : "No step is sensitive."}`);
  labels.style.gridTemplateColumns = places.map((place) => `minmax(0, ${place.end - place.first}fr)`).join(" ");
  draw(labels, places.map((place) => html`<span class="cut" title=${place.state}>${place.text}</span>`));
  return { now, per, width, at: null };
};
