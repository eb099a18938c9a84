/* What is said of the selected token, of the masked spans that move it, and of the chain as a whole. */
import { act, draw, expose, gauge, icon, link, onFailure, redraw, shown, signed } from "../base/core.js";
import { numberTable } from "../base/charts.js";
import { term } from "../base/glossary.js";
import { shared } from "../base/shared.js";
import { html, nothing, svg } from "../base/vendor/lit-html.js";
import { session } from "./audit_session.js";

const KEYED = 9;
const FIRST = 8;
const CELL = 18;
const LEAST = 9;
const BESIDE = 150;

/* ---- the selected token in words, table and figures, from its card ---- */
let root, after, card = null, meant = "";
/* the choice to see all candidates holds for the tokens that follow */
let unfolded = false;
const at = (selector) => root.querySelector(selector);
const mark = ({ mark: kind, why }) => (kind === "tick" ? html`${icon("tick")}<span class="vh">${why}</span>`
  : html`<span class=${`why${kind === "out" ? "" : ` ${kind}`}`}>${why}</span>`);
const word = (token) => html`${/^ ./.test(token) ? html`<span class="sp" aria-hidden="true">·</span>` : nothing}${shown(token)}`;
const line = (row, place) => {
  const kind = [row.act && "chosen", row.mark === "out" && "out", place >= FIRST && !row.act && "rest"].filter(Boolean).join(" ");
  const force = html`<button type="button" class="btn small" data-token=${row.id}>Force<span class="vh">${` ${shown(row.t)} here`}</span>${place < KEYED
    ? html`<kbd aria-hidden="true">${place + 1}</kbd>` : nothing}</button>`;
  return html`<tr class=${kind}><td class="t cut" dir="auto" title=${row.t}>${word(row.t)}</td>${[row.f, row.m, row.x, row.j].map((text) =>
    html`<td class="n">${text}</td>`)}<td>${mark(row)}</td><td>${row.act ? html`<span class="hint nowrap">${row.act}</span>` : force}</td></tr>`;
};
const family = (row) => html`<tr class=${row.mark === "out" ? "out" : nothing}><th scope="row"><span class=${`sw f-${row.f}`}></span>${row.n}</th>${
  [row.m, row.j, row.tau].map((text) => html`<td class="n">${text}</td>`)}<td>${mark(row)}</td></tr>`;
/* with one mask for each family, the joint column gives way to the names of those that refuse; where the factual
   reading alone certifies, nothing is compared with the joint support, so that its column goes too */
const families = (rows, alone) => {
  const table = at(".byfamily"), heading = at(".cand thead th:nth-child(6)");
  table.hidden = rows.length === 0;
  draw(table.tBodies[0], rows.map(family));
  at(".cand").classList.toggle("factorized", rows.length > 0 || alone);
  draw(heading, term(alone ? "Certified as typed" : "Certified"));
};
const verdict = (bins) => {
  const bin = card.b && bins.find((item) => item.first <= card.i && (item.last === null || card.i <= item.last));
  return (bin && bin.v) || card.v;
};
const unfold = (wanted) => {
  unfolded = wanted;
  const hidden = root.querySelectorAll(".cand tr.rest").length, button = at("[data-do=rest]");
  button.hidden = hidden === 0;
  button.setAttribute("aria-expanded", String(wanted));
  button.textContent = wanted ? "Show fewer" : `Show ${hidden} more`;
  at(".cand").classList.toggle("all", wanted);
};
/* where the page is narrow, the token is a sheet that shows what it says first */
const fold = (button) => {
  const folded = document.body.classList.toggle("sheet-folded");
  button.setAttribute("aria-expanded", String(!folded));
  button.textContent = folded ? "More" : "Less";
};
export const inspector = {
  mount(element) {
    root = element.querySelector("section");
    act(root, { rest: () => unfold(!unfolded), fold });
    session.watch(({ branch }) => {
      const { controls } = session;
      at(".beside-others").textContent = (card && controls?.branch === branch && controls.steps[card.i]) || "";
    });
    document.body.classList.add("sheet-folded");
    root.addEventListener("click", ({ target }) => {
      const hit = target.closest("[data-token]");
      /* the row belongs to the shown step, which the selection may have left already */
      if (hit) session.force(Number(hit.dataset.token), card.i);
    });
    at(".typed").addEventListener("submit", (event) => {
      event.preventDefault();
      if (at("#typed").value) session.force(at("#typed").value);
    });
    at("#typed").addEventListener("keydown", (event) => {
      if (event.key === "Escape") document.querySelector(".strip .tok.sel")?.focus({ preventScroll: true });
    });
  },
  facts(element) { after = element.querySelector(".after"); },
  /* a token of one's own for the selected step */
  type() {
    const field = at("#typed");
    if (!card || field.closest("[hidden]")) return false;
    field.focus();
    field.select();
    return true;
  },
  forceRow(place) {
    const row = card && card.rows[place];
    if (row && !row.act) session.force(row.id, card.i);
  },
  /* what is typed is meant for one step: another one clears it, at once and never with a later frame */
  turn(next) {
    const to = next ? `${next.i}:${next.id}` : "";
    if (to === meant) return;
    meant = to;
    at("#typed").value = "";
  },
  typing: () => document.activeElement === at("#typed") && document.activeElement.value !== "",
  show(next, { cards, bins }) {
    at(".unselected").hidden = Boolean(next);
    at(".selected").hidden = !next;
    if (after) after.hidden = !next;
    document.body.classList.toggle("has-token", Boolean(next));
    if (next) at(".where").textContent = `step ${next.i + 1} of ${cards.length}${next.o ? ` · ${next.o}` : ""}`;
    if (next === card) return;
    card = next;
    if (!card) return;
    /* what is announced is drawn whole, so that it is read whole */
    redraw(at(".bigtok"), word(card.t));
    draw(at(".marks"), card.k.map((name) => icon(name)));
    const [strong, rest] = verdict(bins);
    redraw(at(".effect"), html`${card.e}`);
    at(".effect").classList.toggle("strong", card.c.includes("sensitive"));
    redraw(at(".verdict"), html`<strong>${strong}</strong>${` ${rest}`}`);
    at(".because").textContent = card.d;
    draw(at(".cand tbody"), card.rows.map(line));
    families(card.fam, card.a);
    unfold(unfolded);
    draw(after.querySelector(".facts"), card.facts.map(([name, value, note]) => html`<div><dt>${term(name)}</dt><dd>${value}</dd><dd>${note}</dd></div>`));
  },
};

/* ---- what each masked span contributes: squares by span and step for the chain, bars for the selected token ---- */
let panel, send, found = null, working = false, asked = { session: null, branch: null };
const find = (selector) => panel.querySelector(selector);
const same = (state) => found !== null && found.session === state.session && found.branch === state.branch;
const lines = () => [...found.spans.map((span) => ({ ...span, kind: "span" })),
  ...(found.spans.length > 1 ? [{ t: "only together", r: found.x, z: null, kind: "rest" }] : []),
  { t: "total", r: found.r, z: found.z, kind: "total" }];
const label = (span) => (span.f ? html`<span class=${`sw f-${span.f}`} title=${span.n}></span><span class="word cut" dir="auto" title=${`${span.t}, ${span.n}`}>${span.t}</span>`
  : html`<span class="hint">${span.t}</span>`);
/* size is strength, filled is likelier, hollow is less likely: the picture reads without colour */
const square = (value, most, x, y, width) => {
  const side = Math.max(0, Math.sqrt(Math.abs(value) / most)) * (Math.min(width, CELL) - 2);
  const kind = `${value < 0 ? "less" : "more"}${Math.abs(value) >= shared.sensitive ? " hot" : ""}`;
  return side < 1 ? nothing : svg`<rect class=${kind} x=${x + (width - side) / 2} y=${y + (CELL - side) / 2} width=${side} height=${side}></rect>`;
};
const cellWidth = () => Math.max(LEAST, Math.min(CELL, Math.max(200, find(".matrix").clientWidth - BESIDE) / Math.max(1, found.r.length)));
const matrix = () => {
  const { spans: rows, r: { length } } = found;
  const width = cellWidth(), wide = width * length;
  const most = Math.max(shared.sensitive, ...rows.flatMap((span) => span.r.map(Math.abs)));
  const row = (span, place) => svg`<line class="grid" x1="0" x2=${wide} y1=${(place + 0.5) * CELL} y2=${(place + 0.5) * CELL}></line>${span.r
    .map((value, step) => square(value, most, step * width, place * CELL, width))}`;
  draw(find(".matrix"), html`<div class="lines" aria-hidden="true">${rows.map((span) => html`<div class="abreast">${label(span)}</div>`)}</div><div class="cells"><svg
    width=${wide} height=${CELL * rows.length} class="chart" aria-hidden="true" data-width=${width}><rect class="s-now" y="0.5" width=${width}
    height=${CELL * rows.length - 1} rx="2" visibility="hidden"></rect>${rows.map(row)}</svg></div><p class="vh">${found.peak}</p>`);
};
const numbers = ({ cards }) => {
  const all = lines();
  draw(find(".pictable"), numberTable("Log ratio by step and span", [["Step", "tnum"], ["Token", "mono"], ...all.map((span) => [span.t, "n"])],
    found.r.map((_, step) => [step + 1, cards[step] ? cards[step].w : "", ...all.map((span) => signed(span.r[step]))])));
};
const drawSpans = (state) => {
  find(".found").hidden = false;
  matrix();
  if (find(".numbers").open) numbers(state); else draw(find(".pictable"), nothing);
};
/* the selected token's, in the inspector */
const shares = (state) => {
  const table = document.querySelector("#facts .shares"), step = state.selected;
  if (!table) return;
  table.hidden = !same(state) || step < 0 || step >= found.r.length || found.spans.length === 0;
  if (table.hidden) return;
  const all = lines();
  const most = Math.max(shared.sensitive, ...all.map((span) => Math.abs(span.r[step])));
  draw(table.querySelector("tbody"), all.map((span) => html`<tr class=${span.kind}><th scope="row">${label(span)}</th><td>${gauge(span.r[step], most)}</td><td
    class="n">${signed(span.r[step])}</td><td class="n">${span.z ? signed(span.z[step]) : ""}</td></tr>`));
};
const words = (state) => {
  const button = find("[data-do=contribute]"), { length } = state.cards;
  const known = same(state) ? found.r.length : 0;
  button.disabled = working || state.busy !== null || state.touched || !length || (known > 0 && known === length);
  button.textContent = known ? "Compute again" : "What does each span contribute?";
  find(".working").hidden = !working;
  find(".said").classList.toggle("lead", known > 0);
  find(".said").textContent = !known
    ? "Shows one masked span at a time to the masked branch and sees how far each token moves. Runs the model again over the whole text."
    : !found.spans.length ? "No span is masked, so there is nothing to contribute."
      : known < length ? `Computed for the first ${known} of ${length} steps.` : found.peak;
};
const contribute = () => {
  const state = session.state();
  if (working || state.session === null || !state.cards.length) return;
  working = true;
  asked = { session: state.session, branch: state.branch };
  words(state);
  send("contribute", { ...asked, prompt: state.prompt });
};
const receive = (message) => {
  working = false;
  const state = session.state();
  if (message.kind === "contributions") {
    found = { ...message, ...asked };
    if (same(state)) drawSpans(state);
  }
  spans.show(state);
};
export const spans = {
  mount(element, trigger, props, watch) {
    panel = element.querySelector("section");
    send = link(trigger, props, watch, receive);
    act(panel, { contribute });
    find(".numbers").addEventListener("toggle", () => {
      if (find(".numbers").open && found && !find(".numbers table")) numbers(session.state());
    });
    find(".matrix").addEventListener("click", (event) => {
      const chart = event.target.closest("svg");
      if (chart) session.select(Math.floor((event.clientX - chart.getBoundingClientRect().left) / Number(chart.dataset.width)), true);
    });
    window.addEventListener("resize", () => { if (same(session.state()) && !find(".found").hidden) matrix(); });
    onFailure("contribute", () => { working = false; words(session.state()); });
  },
  show(state) {
    if (!panel) return;
    panel.hidden = state.cards.length === 0;
    const known = same(state) && found.spans.length > 0;
    if (!known) find(".found").hidden = true;
    else if (find(".found").hidden) drawSpans(state);
    words(state);
    shares(state);
    const chart = known && find(".matrix svg");
    if (!chart) return;
    const now = chart.querySelector(".s-now"), inside = state.selected >= 0 && state.selected < found.r.length;
    now.setAttribute("visibility", inside ? "visible" : "hidden");
    if (inside) now.setAttribute("x", state.selected * Number(chart.dataset.width));
  },
};

/* ---- the chain as a whole: the sequence certificate and the union bound side by side, and what each step costs ---- */
let place, costs, priced = null, drawn = null, parameters = [];
const answer = (part, weakest, cards) => html`<div class="answer"><h4>${part.t}</h4><p><span class=${`badge ${part.s}`}>${part.b}</span></p><p
  class="says">${part.says}</p><dl>${part.rows.map(([name, text]) => html`<div><dt>${term(name)}</dt><dd class="tnum">${name === "Weakest token" && cards[weakest]
  /* a chain's weakest token is a link to its step */
  ? html`<button type="button" class="link" data-weakest=${weakest}><span class="mono">${cards[weakest].w}</span>${`, ${text}`}</button>` : text}</dd></div>`)}</dl></div>`;
export const whole = {
  mount(element) {
    place = element;
    costs = place.querySelector(".cost");
    place.querySelector(".whole").addEventListener("click", ({ target }) => {
      const hit = target.closest("[data-weakest]");
      if (hit) session.select(Number(hit.dataset.weakest), true);
    });
  },
  /* `chain` is null where there is no certificate; the session says why, or nothing */
  show(chain, { cards, nochain }) {
    const why = cards.length ? nochain : "", box = place.querySelector(".whole");
    const now = [chain, why, chain ? cards[chain.weakest] : null];
    if (drawn && drawn.every((part, index) => part === now[index])) return;
    drawn = now;
    box.hidden = !chain && !why;
    box.title = chain ? chain.text : "";
    box.querySelector(".sentence").textContent = chain
      ? "Does the guarantee cover the whole text? Two ways to ask: one threshold for the whole text, or the steps’ own added up." : why;
    draw(box.querySelector(".answers"), chain ? chain.parts.map((part) => answer(part, chain.weakest, cards)) : nothing);
  },
  /* what the chain was written with: one line, and under it what the method does and all its parameters */
  method(made) {
    place.querySelector(".madewith summary .hint").textContent = made.line;
    place.querySelector(".madewith p").textContent = made.about;
    /* only some methods fuse what they draw from */
    document.querySelectorAll("th.drawn-from").forEach((node) => { draw(node, term(made.fuses ? "Fused" : "Drawn")); });
    document.querySelectorAll("span.drawn-from").forEach((node) => { node.textContent = made.fuses ? "fused" : "drawn from"; });
    parameters = made.parameters;
  },
  /* how its steps were computed, under the method's parameters */
  computed(made = []) {
    draw(place.querySelector(".madewith dl"), [...parameters, ...made].map(([title, value]) => html`<div><dt>${term(title)}</dt><dd>${value}</dd></div>`));
  },
  cost(text, number) {
    costs.hidden = !text;
    costs.querySelector(".words").textContent = text ? `Each step reads ${text}` : "";
    if (priced !== number) whole.measured("");
    priced = number;
  },
  measured(text) { costs.querySelector(".measured").textContent = text; },
};
expose({ inspector, spans });
