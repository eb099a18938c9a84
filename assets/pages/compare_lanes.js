/* Chains beside each other: the columns' texts, the aligned tokens, the candidates of the selected row, and pictures. */
import { colour, numberTable, saveImage, spoken } from "../base/charts.js";
import { cautions, draw, icon, made, plural } from "../base/core.js";
import { editor, markedPoints } from "../base/editor.js";
import { shared } from "../base/shared.js";
import { html, nothing, svg } from "../base/vendor/lit-html.js";

const UNIT = 20;
const LEFT = 20, RIGHT = 44;
const PAGE = 10;
const FRESH = { columns: [], rows: [], say: [], row: -1, live: false, drawn: [] };
const state = { ...FRESH };
let root, body, scroller;

const find = (selector) => root.querySelector(selector);
const at = (id) => document.getElementById(id);
const differs = (row) => row[1].some(Boolean);

/* ---- heads: policy, settings, certificate, and the whole text with what differs marked ---- */
const prose = (column, place) => {
  const last = column.finished === "end of text" ? column.cells.length - 1 : column.cells.length;
  const runs = [];
  for (const [steps, apart] of state.rows) {
    const cell = steps[place] === null || steps[place] >= last ? null : column.cells[steps[place]];
    if (!cell) continue;
    const before = runs[runs.length - 1];
    if (before && before.apart === Boolean(apart[place]) && before.thought === cell.th) before.text += cell.t;
    else runs.push({ apart: Boolean(apart[place]), thought: cell.th, text: cell.t });
  }
  const caret = html`<span class="tok caret" aria-hidden="true"><span class="mk"></span><span class="w"> </span><span class="heat"></span></span>`;
  return html`<p class="lanetext" tabindex="0" role="group" aria-label=${`Text of ${column.name}; marked where it differs`}>${runs.map(({ apart, thought, text }) => {
    const lead = apart ? text.match(/^\s*/)[0] : text;
    const marked = apart ? html`${lead}<ins>${text.slice(lead.length)}</ins>` : text;
    return thought ? html`<i class="thought">${marked}</i>` : marked;
  })}${state.live && !column.finished ? caret : nothing}</p>`;
};
const head = (column, place) => {
  const count = `${column.cells.length} of ${plural(column.total, "step")}${column.finished ? `, ${column.finished}` : ""}`;
  return html`<div class="lanehead" role="group" aria-label=${column.name}><h3>${column.name}</h3><span
    class="hint tnum">${column.line}</span><span class=${`badge ${column.state}`} title=${column.why}>${column.claim}</span><span
    class="hint tnum">${`${count} · `}<a href=${`./?session=${column.session}&branch=${column.branch}`}
    title=${`${column.title}, ${column.where}`}>open as audit</a></span>${column.thinking ? html`<span
    class="hint tnum">${column.thinking}</span>` : nothing}${prose(column, place)}</div>`;
};
const heads = () => {
  const box = find(".laneheads");
  draw(box, state.columns.map(head));
  if (state.live) box.querySelectorAll(".lanetext").forEach((node) => { node.scrollTop = node.scrollHeight; });
};

/* ---- the table ---- */
const bar = (cell) => {
  const width = Math.min(cell.r < 0 ? LEFT : RIGHT, Math.round(Math.abs(cell.r) * UNIT));
  return html`<span class="sb" title=${`sensitivity ${cell.rt}`}><span class="vh">sensitivity ${cell.rt}</span><i
    class=${Math.abs(cell.r) >= shared.sensitive ? "hot" : nothing} style=${`left:${cell.r < 0 ? LEFT - width : LEFT}px;width:${width}px`}></i></span>`;
};
const gap = (inside) => html`<td class="c"><div class="cell gap"><span class="w">${inside}</span></div></td>`;
const entry = (place, step, apart) => {
  if (step === null) return gap(html`<span aria-hidden="true">–</span><span class="vh">no token here</span>`);
  const cell = state.columns[place].cells[step];
  if (!cell) return gap("…");
  return html`<td class="c"><div class=${`cell${apart ? " diff" : ""}${cell.th ? " thought" : ""}`}><span class="w cut" title=${cell.sr}>${/^\s./.test(cell.t)
    ? html`<span class="sp" aria-hidden="true">·</span>` : nothing}${cell.w}${cell.k.map((name) => icon(name))}</span><span
    class="num">${cell.p}</span>${bar(cell)}</div></td>`;
};
const line = (row, place) => made(html`<table><tbody><tr data-row=${place} tabindex="-1" class=${differs(row) ? nothing : "same"}><th scope="row"
  class="gut">${place + 1}${differs(row) ? html`<b><span aria-hidden="true">≠</span><span class="vh">differs</span></b>` : nothing}</th>${row[0]
  .map((step, column) => entry(column, step, row[1][column]))}</tr></tbody></table>`).rows[0];
const titles = () => draw(find(".cmp-rows thead"), html`<tr><th scope="col" class="gut">Step</th>${state.columns.map(({ name }) =>
  html`<th scope="col" class="c"><div class="cell"><span class="cut" title=${name}>${name}</span><span class="num">factual</span><span
  >sensitivity</span></div></th>`)}</tr>`);
/* rows that stay as they were are kept, so that a long run only draws its end */
const key = (row) => JSON.stringify([row, row[0].map((step, place) => step === null || Boolean(state.columns[place].cells[step]))]);
const table = () => {
  const keys = state.rows.map(key);
  let kept = 0;
  while (kept < keys.length && keys[kept] === state.drawn[kept]) kept += 1;
  const focused = body.contains(document.activeElement);
  while (body.rows.length > kept) body.lastChild.remove();
  body.append(...state.rows.slice(kept).map((row, place) => line(row, kept + place)));
  state.drawn = keys;
  if (state.row >= state.rows.length) state.row = state.rows.length - 1;
  mark(focused);
};
const count = () => {
  const apart = state.rows.filter(differs).length;
  find(".counted").textContent = state.rows.length ? `${apart.toLocaleString("en")} of ${plural(state.rows.length, "row")} differ` : "";
};

/* ---- selection ---- */
const mark = (focus) => {
  body.querySelectorAll("tr.on").forEach((node) => { node.classList.remove("on"); node.removeAttribute("aria-current"); });
  body.querySelectorAll("tr[tabindex='0']").forEach((node) => node.setAttribute("tabindex", "-1"));
  const node = body.rows[Math.max(0, state.row)];
  if (!node) return;
  node.setAttribute("tabindex", "0");
  if (state.row < 0) return;
  node.classList.add("on");
  node.setAttribute("aria-current", "true");
  if (focus) node.focus({ preventScroll: true });
};
const candidate = (column, most) => ([word, f, m, x, j, kind, why, written, part]) => {
  const verdict = kind === "tick" ? html`${icon("tick")}<span class="vh">certified</span>` : html`<span class=${`why ${kind}`}>${why}</span>`;
  return html`<tr class=${`${written ? "taken" : ""}${kind === "out" ? " out" : ""}`}><th scope="row" class="t cut">${word}${written
    ? html`<span class="hint"> written</span>` : nothing}</th><td class="n">${f}</td><td class="n">${m}</td><td class="n share"><i
    aria-hidden="true" style=${`width:${Math.round((70 * part) / most)}%`}></i><span>${x}</span></td>${column.certifies && column.joint
    ? html`<td class="n">${j}</td>` : nothing}${column.certifies ? html`<td class="n">${verdict}</td>` : nothing}</tr>`;
};
/* where the texts part, a column that has no token beside another one still has a next token after the same text */
const view = (column, beside, parts) => {
  const step = beside === null && parts ? state.row : beside;
  const cell = step === null ? null : column.cells[step];
  if (!cell) return html`<div class="view"><h3>${column.name}</h3><p class="hint">No token here.</p></div>`;
  const { certifies, joint } = column;
  const heading = ["Token", "Factual", "Masked", column.fuses ? "Fused" : "Policy", certifies && joint && "Lower",
    certifies && (joint ? "Certified" : "Certified as typed")].filter(Boolean);
  const threshold = certifies ? (cell.tt ? `, τ ${cell.tt}` : ", no threshold") : "";
  const apart = cell.v[0] === null ? "" : `; from vanilla TV ${cell.v[0].toFixed(3)}, KL ${nats(cell.v[1])}`;
  const said = `${beside === null ? "its next token, " : ""}its step ${step + 1}${threshold}${apart}`;
  const most = Math.max(...cell.rows.map((row) => row[8]));
  return html`<div class="view"><h3>${column.name}</h3><span class="hint tnum">${said}</span><div class="scrolls"
    tabindex="0" role="region" aria-label=${`Candidates of ${column.name}`}><table><thead><tr>${heading.map((text, place) =>
    html`<th scope="col" class=${place ? "n" : nothing}>${text}</th>`)}</tr></thead><tbody>${cell.rows.map(candidate(column, most))}</tbody></table></div></div>`;
};
const details = () => {
  const box = find(".cmp-chosen");
  const row = state.rows[state.row];
  box.hidden = !row;
  if (!row) return;
  const parts = state.row === state.rows.findIndex(differs);
  box.querySelector("h2").textContent = `Step ${state.row + 1}`;
  box.querySelector(".bar .hint").textContent = "the likeliest candidates of each column";
  box.querySelector(".verdict").textContent = state.say[state.row] || "";
  draw(box.querySelector(".views"), state.columns.map((column, place) => view(column, row[0][place], parts)));
};
const select = (place, focus) => {
  const node = body.rows[place];
  if (!node) return;
  state.row = place;
  mark(focus);
  node.scrollIntoView({ block: "nearest" });
  details();
};
const walk = (by) => {
  const visible = [...body.rows].filter((node) => node.offsetParent !== null).map((node) => Number(node.dataset.row));
  if (!visible.length) return;
  const place = visible.findIndex((row) => row >= state.row);
  const from = state.row < 0 ? (by > 0 ? -1 : visible.length) : place < 0 ? visible.length - 1 : place;
  select(visible[Math.max(0, Math.min(visible.length - 1, from + by))], true);
};
const MOVES = { ArrowDown: 1, ArrowUp: -1, PageDown: PAGE, PageUp: -PAGE, Home: -Infinity, End: Infinity };

/* ---- the pictures' keys, as in the figures that the server draws: by column a dash, a marker, and its colour ---- */
const LOOKS = [["5 3", "circle", "text-2"], ["none", "diamond", "accent"], ["2 3", "square", "text-2"], ["8 3 2 3", "triangle", "text"]];
const SHAPES = {
  circle: [(style) => svg`<circle cx="14" cy="5" r="3.2" style=${style}></circle>`, true],
  diamond: [(style) => svg`<path d="M14 1 18 5 14 9 10 5Z" style=${style}></path>`, true],
  square: [(style) => svg`<rect x="11" y="2" width="6" height="6" style=${style}></rect>`, false],
  triangle: [(style) => svg`<path d="M14 1.2 18 8.4H10Z" style=${style}></path>`, false],
};
const SIZE = { width: 900, height: 420 };
const sample = (place) => {
  const [dash, shape, name] = LOOKS[place];
  const [marker, full] = SHAPES[shape];
  const paint = `var(--${name})`;
  return html`<svg width="28" height="10"><line x1="0" x2="28" y1="5" y2="5"
    style=${`stroke:${paint};stroke-width:1.6;stroke-dasharray:${dash}`}></line>${
    marker(`stroke:${paint};fill:${full ? paint : "var(--surface)"};stroke-width:1.4`)}</svg>`;
};

/* ---- numbers of the pictures ---- */
const nats = (value) => (value < 0 ? "∞" : value.toPrecision(3));
const bySteps = (text) => {
  const longest = Math.max(0, ...state.columns.map((column) => column.cells.length));
  return Array.from({ length: longest }, (_, step) => [step + 1, ...state.columns.map(({ cells }) => (cells[step] && text(cells[step])) || "–")]);
};
const NUMBERS = {
  vanilla: () => ["Divergence from vanilla", "Step", state.columns.map(({ name }) => `${name}: TV, KL in nats`),
    bySteps((cell) => cell.v[0] !== null && `${cell.v[0].toFixed(3)}, ${nats(cell.v[1])}`)],
  sensitivity: () => ["Sensitivity", "Aligned step", state.columns.map(({ name }) => name), state.rows.map(([steps], row) => [row + 1,
    ...state.columns.map(({ cells }, place) => { const cell = cells[steps[place]]; return steps[place] !== null && cell ? `${cell.w} ${cell.rt}` : "–"; })])],
  divergence: () => ["KL divergence, nats", "Step", state.columns.map(({ name }) => name), bySteps((cell) => cell.d.toPrecision(3))],
  changed() {
    const totals = state.columns.map(() => 0);
    return ["Changed tokens so far", "Aligned step", state.columns.slice(1).map(({ name }) => name), state.rows.map(([, apart], row) => {
      apart.forEach((other, place) => { totals[place] += other; });
      return [row + 1, ...totals.slice(1)];
    })];
  },
};
const fillNumbers = (name) => {
  const box = at(`numbers-${name}`);
  if (box.hidden) return;
  const [caption, first, titled, rows] = NUMBERS[name]();
  draw(box, numberTable(caption, [[first, "tnum"], ...titled.map((text) => [text, "n"])], rows));
};
const beside = (message) => {
  document.querySelector("#cmp-summary .sum").innerHTML = message.summary;
  document.querySelector("#cmp-rest .settings").innerHTML = message.differences;
  const notes = document.querySelector("#cmp-rest .notes");
  notes.hidden = message.notes.length === 0;
  cautions(notes.querySelector(".cautions"), message.notes);
  document.querySelector("#after-sensitivity .peaks").textContent = message.peaks.join(" ");
  for (const name of Object.keys(NUMBERS)) {
    const keys = state.columns.map((column, place) => html`<span>${sample(place)}${column.name}</span>`);
    draw(at(`after-${name}`).querySelector(".key"), name === "changed" ? keys.slice(1) : keys);
    fillNumbers(name);
    const title = at(`cap-${name}`).querySelector("h2").textContent;
    spoken(at(`plot-${name}`), `${title} of ${state.columns.map((column) => column.name).join(", ")}; the numbers are in a table.`);
  }
};

const drawAll = () => {
  heads();
  titles();
  table();
  count();
  lanes.filter();
};

export const lanes = {
  mount(element) {
    root = element;
    body = find(".cmp-rows tbody");
    scroller = find(".cmp-rows");
    body.addEventListener("click", (event) => {
      const row = event.target.closest("tr");
      if (row && !String(getSelection()).trim()) select(Number(row.dataset.row), true);
    });
    body.addEventListener("keydown", (event) => {
      if (!(event.key in MOVES) || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      walk(MOVES[event.key]);
    });
  },
  /* a whole comparison takes the place of what was shown; the selected row stays while the same chains are shown */
  show(message, live) {
    const { columns, rows, say } = message;
    const same = columns.map(({ branch }) => branch).join() === state.columns.map(({ branch }) => branch).join();
    Object.assign(state, { columns, rows, say, live, drawn: same ? state.drawn : [] });
    if (!same) {
      state.row = -1;
      body.replaceChildren();
      scroller.scrollTop = 0;
    }
    find(".nothing").hidden = true;
    find(".compared").hidden = false;
    find(".cmp-lanes").style.setProperty("--columns", columns.length);
    draw(find(".cmp-prompt"), markedPoints(message.prompt, message.spans.filter((span) => !span.suggested), editor.families()));
    draw(find(".parting"), (live ? ["Writing …"].slice(0, message.parting.length) : message.parting).map((text) => html`<li>${text}</li>`));
    drawAll();
    if (!live && state.row < 0) state.row = rows.findIndex(differs);
    mark(false);
    details();
    beside(message);
  },
  extend(frame) {
    const atEnd = scroller.scrollTop + scroller.clientHeight >= scroller.scrollHeight - 40;
    frame.columns.forEach((cells, place) => {
      const known = state.columns[place].cells;
      for (const cell of cells) if (cell.i === known.length) known.push(cell);
    });
    Object.assign(state, { rows: frame.rows, say: [], live: true });
    drawAll();
    details();
    if (atEnd && state.row < 0) scroller.scrollTop = scroller.scrollHeight;
  },
  clear() {
    Object.assign(state, FRESH);
    body.replaceChildren();
    find(".compared").hidden = true;
    find(".nothing").hidden = false;
  },
  filter() { scroller.classList.toggle("only", document.querySelector("[data-cmp=only]").checked); },
  numbers(button) {
    const box = at(`numbers-${button.dataset.figure}`);
    box.hidden = !box.hidden;
    button.setAttribute("aria-expanded", String(!box.hidden));
    fillNumbers(button.dataset.figure);
  },
  /* a picture as a file: with its title, a legend and a ground, in the colours that are shown */
  image(button) {
    const { figure, format, title } = button.dataset;
    const plot = document.querySelector(`#plot-${figure} .js-plotly-plot`);
    if (!plot || !window.Plotly) return;
    const layout = { ...plot.layout, ...SIZE, plot_bgcolor: colour("surface"), title: { text: title, x: 0.02, font: { color: colour("text"), size: 14 } }, showlegend: true,
      legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom" }, margin: { l: 56, r: 20, t: 84, b: 52 } };
    const data = plot.data.map((trace) => ({ ...trace, showlegend: Boolean(trace.x && trace.x.length) }));
    saveImage(data, layout, { ...SIZE, format, filename: `compare-${figure}` });
  },
};
