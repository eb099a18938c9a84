/* The prompt: a text field over its marked copy. Spans follow the text as it is edited; edits of spans can be undone. */
import { act, cautions, draw, expose, link, onFailure, options, pausing, refocus } from "./core.js";
import { keys } from "./keys.js";
import { html, nothing } from "./vendor/lit-html.js";

const PAUSE = 450;
const MOST_UNDONE = 50;

export const EMPTY = "The prompt is empty: type the text that the model should continue.";

/* ---- marked spans of a text ---- */
/* offsets: the server counts code points, the browser counts UTF-16 units */
const astral = (text) => /[\ud800-\udfff]/.test(text);
const toUnits = (text, offset) => (astral(text) ? [...text].slice(0, offset).join("").length : offset);
const toPoints = (text, offset) => (astral(text) ? [...text.slice(0, offset)].length : offset);
const outward = (spans, text) => spans.map((span) => ({ ...span, start: toPoints(text, span.start), end: toPoints(text, span.end) }));
const inward = (spans, text) => spans.map((span) => ({ ...span, start: toUnits(text, span.start), end: toUnits(text, span.end) }));
const term = (span, text) => `${span.category}:${text.slice(span.start, span.end).toLowerCase()}`;
const sorted = (spans) => [...spans].sort((one, other) => one.start - other.start);

/* keep spans beside an edit, drop those that it touches */
const followed = (spans, before, after) => {
  let head = 0;
  const most = Math.min(before.length, after.length);
  while (head < most && before[head] === after[head]) head += 1;
  let tail = 0;
  while (tail < most - head && before[before.length - 1 - tail] === after[after.length - 1 - tail]) tail += 1;
  const shift = after.length - before.length;
  return spans.flatMap((span) => {
    if (span.end <= head) return [span];
    return span.start >= before.length - tail ? [{ ...span, start: span.start + shift, end: span.end + shift }] : [];
  });
};
/* a span as the reviewer's own decision: masked, and sure */
const decided = (span) => ({ ...span, source: "user", detail: "", kept: false, score: null, suggested: false });
/* what a detection found beside the reviewer's decisions, which outlive it */
const merged = (found, { spans, text, removed }) => {
  const mine = spans.filter((span) => span.source === "user");
  const kept = new Set(spans.filter((span) => span.kept && !span.whitelisted).map((span) => term(span, text)));
  const fresh = found
    .filter((span) => !removed.has(term(span, text)))
    .filter((span) => mine.every((other) => other.end <= span.start || other.start >= span.end))
    .map((span) => {
      const keep = span.kept || kept.has(term(span, text));
      return { ...span, kept: keep, whitelisted: span.kept && span.source !== "list", suggested: span.suggested && !keep };
    });
  return sorted([...mine, ...fresh]);
};
/* a text cut at its spans, each drawn by `mark`; overlapping spans give way to the first */
const marked = (text, spans, families) => {
  const pieces = [];
  let at = 0;
  for (const span of sorted(spans)) {
    if (span.start < at) continue;
    const kind = `${span.kept ? " white" : span.suggested ? " offer" : ""}${span.picked ? " picked" : ""}`;
    const family = (families[span.category] || span.category) + (span.kept ? ", kept" : span.suggested ? ", suggested" : "");
    pieces.push(text.slice(at, span.start), html`<span class=${`span f-${span.category}${kind}`}>${text.slice(span.start, span.end)}<span
      class="fam">${family}</span></span>`);
    at = span.end;
  }
  return [...pieces, text.slice(at)];
};
export const markedPoints = (text, spans, families) => marked(text, inward(spans, text), families);

/* ---- what is shown ---- */
const state = {
  text: "", spans: [], removed: new Set(), history: [], ahead: [], detected: null, waiting: [], busy: false, nonce: 0, choice: null, look: null,
};
const watchers = [];
let root, field, families, send;
const find = (selector) => root.querySelector(selector);
const tell = () => watchers.forEach((watcher) => watcher());
const offered = () => state.spans.filter((span) => span.suggested);

const paint = () => {
  draw(find(".backdrop"), [marked(state.text, state.spans, families), "\u200b"]);
  /* a label that would run into the next one gives way */
  const labels = [...root.querySelectorAll(".backdrop .fam")];
  labels.forEach((label) => label.classList.remove("short"));
  let before = null;
  for (const label of labels) {
    const box = label.getBoundingClientRect();
    const last = before && before.getBoundingClientRect();
    if (last && Math.abs(box.top - last.top) < 8 && box.left < last.right + 4) before.classList.add("short");
    before = label;
  }
};
/* who found a span and how sure that is; a plain lexicon term is always sure */
const source = (span) => {
  if (span.source === "user") return span.kept ? "yours, kept" : "yours";
  if (span.source === "list") return `list: ${span.detail}${span.kept ? ", kept" : ""}`;
  const sure = typeof span.score === "number" && !(span.source === "lexicon" && span.score >= 1) ? ` ${span.score.toFixed(2)}` : "";
  const found = `${span.source}${sure}${span.detail ? `, ${span.detail}` : ""}`;
  if (!span.kept) return found;
  return `${found}, ${span.whitelisted ? "never masked" : "kept by you"}`;
};
const button = (name, at, word, label, spoken = label) =>
  html`<button type="button" class="btn small quiet" data-do=${name} data-at=${at} aria-label=${`${spoken}: ${word}`}>${label}</button>`;
const row = (span, at) => {
  const word = state.text.slice(span.start, span.end);
  const kind = span.kept ? " white" : span.suggested ? ` offer f-${span.category}` : "";
  const actions = span.suggested
    ? [button("accept", at, word, "Accept"), button("remove", at, word, "Dismiss")]
    : [span.kept ? button("keep", at, word, "Mask it", "Mask") : button("keep", at, word, "Keep visible"), button("remove", at, word, "Remove")];
  return html`<tr class=${span.picked ? "picked" : nothing}>
    <td class="cut"><span class=${`word${kind}`}>${word}</span></td>
    <td><span class=${`sw f-${span.category}`}></span><select class="select small quiet" data-do="relabel" data-at=${at}
      aria-label=${`Family of ${word}`}>${options(Object.entries(families), span.category)}</select></td>
    <td class="sub">${span.suggested ? html`<b class="tag">suggested</b>` : nothing}${source(span)}</td>
    <td class="hint tnum">${`${toPoints(state.text, span.start)}–${toPoints(state.text, span.end)}`}</td>
    <td class="num">${actions}</td></tr>`;
};
const list = () => {
  const table = find(".spanlist");
  table.hidden = state.spans.length === 0;
  refocus(table, () => draw(table.tBodies[0], sorted(state.spans).map(row)), () => table.querySelector("button"));
};
const render = () => {
  const many = offered().length;
  paint();
  list();
  find(".offers").hidden = many === 0;
  find(".offers [role=status]").textContent = many
    ? `${many === 1 ? "1 suggestion" : `${many} suggestions`}: shown, and not masked until you accept ${many === 1 ? "it" : "them"}.` : "";
};
const reading = (preview) => {
  const box = find(".reading");
  box.hidden = !preview || !state.text.trim();
  if (!preview) return;
  box.querySelector(".counts").textContent = preview.counts;
  const reads = box.querySelector(".masked");
  draw(reads, preview.pieces.map(([words, masked]) => (masked ? html`<b>${words}</b>` : words)));
  /* a long one scrolls, and is then scrolled by keys as well */
  if (reads.scrollHeight > reads.clientHeight) reads.tabIndex = 0;
  else reads.removeAttribute("tabindex");
  box.querySelector(".several").hidden = !preview.branches;
  box.querySelector(".several").textContent = preview.branches || "";
  cautions(find(".cautions"), state.spans.length || preview.warnings.length ? preview.warnings : []);
};
/* the seed under which an example shows what it is for; its fold opens, where the page has one, and shows it */
const SEED_TRIES = 20;
const setSeed = (seed, tries = SEED_TRIES) => {
  const number = document.querySelector("#seed input");
  const fold = [...document.querySelectorAll(".fold .label-wrap")].find((node) => node.textContent.includes("seed"));
  if (!fold || !tries || (number && number.value === seed && tries < SEED_TRIES)) return;
  if (number) {
    number.value = seed;
    ["input", "change"].forEach((kind) => number.dispatchEvent(new Event(kind, { bubbles: true })));
  } else if (!fold.classList.contains("open")) fold.click();
  /* Gradio makes what is folded when it opens, and then still sets the field to what it was */
  setTimeout(() => setSeed(seed, tries - 1), 50);
};
/* what an audit of a phantom's scenario should find; it holds for that text alone */
const planted = (text) => {
  find(".planted").hidden = !text;
  find(".planted").textContent = text ? `Embedded model, ${text}.` : "";
};

/* ---- what the server is asked ---- */
const wire = (spans) => outward(spans.map(({ picked, whitelisted, ...span }) => span), state.text);
const preview = () => {
  if (!state.text.trim()) reading(null);
  else state.nonce = send("preview", { prompt: state.text, spans: wire(state.spans) });
};
const changed = () => { render(); preview(); tell(); };
const detect = () => {
  detectSoon.cancel();
  if (!state.text.trim()) return;
  if (state.busy) { state.again = true; return; }
  state.busy = state.text;
  send("detect", { prompt: state.text });
};
const detectSoon = pausing(detect, PAUSE);
const receive = (message) => {
  if (message.kind === "preview" && message.nonce === state.nonce) reading(message);
  const text = state.busy;
  if (message.kind !== "spans" || text === false) return;
  state.busy = false;
  if (text !== state.text || state.again) { state.again = false; detect(); return; }
  state.detected = text;
  find(".bar [data-do=detect]").textContent = "Detect again";
  state.spans = merged(inward(message.spans, state.text), state);
  changed();
  state.waiting.splice(0).forEach((resolve) => resolve());
};

/* ---- undo and redo of span edits; `whole` marks the change to another text, which comes back with its spans ---- */
const copy = (whole) => ({ text: state.text, spans: state.spans.map((span) => ({ ...span })), removed: new Set(state.removed), whole });
const stacks = () => {
  find("[data-do=undo]").disabled = state.history.length === 0;
  find("[data-do=redo]").disabled = state.ahead.length === 0;
};
const remember = (whole = false) => {
  state.history.push(copy(whole));
  if (state.history.length > MOST_UNDONE) state.history.shift();
  state.ahead = [];
  stacks();
};
const back = (from, to) => {
  const before = from.pop();
  if (!before) return false;
  to.push(copy(before.whole));
  if (before.whole) {
    planted("");
    state.text = before.text;
    field.value = before.text;
    state.detected = null;
  }
  state.spans = before.text === state.text ? before.spans : followed(before.spans, before.text, state.text);
  state.removed = before.removed;
  stacks();
  changed();
  if (state.detected === null) detectSoon();
  return true;
};
const undo = () => back(state.history, state.ahead);
const redo = () => back(state.ahead, state.history);
/* in the text, the browser's own undo goes first for letters that were typed since the last span edit */
const spansFirst = (stack) => stack.length > 0 && stack[stack.length - 1].text === state.text;

/* ---- what the reviewer does ---- */
const selection = () => {
  const { selectionStart: start, selectionEnd: end } = field;
  const text = state.text.slice(start, end);
  const inner = text.trim();
  if (!inner) return null;
  const first = start + text.indexOf(inner);
  return { start: first, end: first + inner.length, text: inner };
};
const choose = () => {
  const focused = document.activeElement === field;
  const range = focused ? selection() : null;
  const caret = focused && !range ? field.selectionStart : -1;
  let moved = false;
  for (const span of state.spans) {
    const picked = caret >= 0 && caret >= span.start && caret <= span.end;
    if (Boolean(span.picked) !== picked) { span.picked = picked; moved = true; }
  }
  if (moved) render();
  if (!range && find(".marking").contains(document.activeElement)) return;
  state.range = range;
  find(".marking .idle").hidden = Boolean(range);
  find(".marking .chosen").hidden = !range;
  if (range) find(".picked-text").textContent = range.text;
};
const mark = () => {
  const range = state.range || selection();
  if (!range) return;
  remember();
  const { start, end } = range;
  state.spans = sorted([
    ...state.spans.filter((span) => span.end <= start || span.start >= end),
    decided({ start, end, category: find("#mark-family").value }),
  ]);
  field.focus();
  field.setSelectionRange(end, end);
  choose();
  changed();
};
const at = (node) => sorted(state.spans)[Number(node.dataset.at)];
const edit = (node, change) => {
  const span = at(node);
  remember();
  change(span);
  changed();
};
const accept = (chosen) => {
  if (!chosen.length) return;
  remember();
  state.spans = state.spans.map((span) => (chosen.includes(span) ? decided(span) : span));
  changed();
};
const write = (text) => {
  if (text === state.text) return;
  planted("");
  state.spans = followed(state.spans, state.text, text);
  state.text = text;
  render();
  tell();
  if (text.trim()) { detectSoon(); return; }
  detectSoon.cancel();
  reading(null);
  cautions(find(".cautions"), []);
};
const ACTIONS = {
  undo, redo, mark,
  detect: () => { remember(); state.removed.clear(); state.spans = state.spans.filter((span) => span.source === "user"); detect(); },
  accept: (node) => accept([at(node)]),
  "accept-all": () => { accept(offered()); field.focus(); },
  /* a term that a list keeps is masked by the reviewer's own decision, which outlives the next detection */
  keep: (node) => edit(node, (span) => {
    if (span.kept && span.source === "list") Object.assign(span, decided(span));
    else span.kept = !span.kept;
  }),
  remove: (node) => edit(node, (span) => {
    state.removed.add(term(span, state.text));
    state.spans = state.spans.filter((other) => other !== span);
  }),
};

export const editor = {
  families: () => families,
  mount(element, trigger, props, watch) {
    root = element.querySelector("section");
    field = find("textarea");
    families = JSON.parse(root.dataset.families);
    send = link(trigger, props, watch, receive);
    field.addEventListener("input", () => write(field.value));
    document.addEventListener("selectionchange", choose);
    field.addEventListener("blur", () => setTimeout(choose, 0));
    find("#examples").addEventListener("change", ({ target }) => {
      const { seed } = target.selectedOptions[0].dataset;
      if (target.value) editor.take(target.value);
      if (seed) setSeed(seed);
      target.value = "";
    });
    /* a scenario is taken when its name is whole: chosen from the list, or typed */
    find("#phantoms").addEventListener("input", ({ target }) => {
      const chosen = [...target.list.options].find((option) => option.value === target.value);
      if (!chosen) return;
      editor.take(chosen.dataset.prompt);
      planted(chosen.dataset.planted || "");
      target.value = "";
    });
    root.addEventListener("change", ({ target }) => {
      if (target.dataset.do !== "relabel") return;
      edit(target, (span) => Object.assign(span, decided({ ...span, category: target.value })));
    });
    act(root, ACTIONS);
    onFailure("detect", () => { state.busy = false; state.waiting.splice(0); });
    window.addEventListener("resize", paint);
    paint();
  },
  /* a new text: detection starts from nothing */
  take(text) {
    remember(true);
    planted("");
    state.spans = [];
    state.removed.clear();
    field.value = text;
    state.text = text;
    tell();
    render();
    detect();
    field.focus();
  },
  /* a stored session's prompt, spans and masked reading */
  load(text, spans, masked, choice, look) {
    detectSoon.cancel();
    if (choice) Object.assign(state, { choice, look });
    field.value = text;
    Object.assign(state, { text, detected: text, history: [], ahead: [], busy: false, spans: inward(spans, text) });
    state.removed.clear();
    stacks();
    find(".bar [data-do=detect]").textContent = text ? "Detect again" : "Detect";
    render();
    reading(masked);
  },
  /* another choice of what is masked finds other spans; another look of the mask only reads otherwise */
  chosen(choice, look) {
    const before = { choice: state.choice, look: state.look };
    Object.assign(state, { choice, look });
    if (before.choice === null || !state.text.trim()) return;
    if (before.choice !== choice) {
      state.detected = null;
      detect();
    } else if (before.look !== look && state.detected) preview();
  },
  /* what Start needs, once the shown spans belong to the shown text */
  ready() {
    const answer = () => ({ prompt: state.text, spans: wire(state.spans) });
    if (!state.text.trim()) return Promise.resolve({ prompt: state.text, spans: null });
    if (state.detected === state.text) return Promise.resolve(answer());
    return new Promise((resolve) => { state.waiting.push(() => resolve(answer())); detect(); });
  },
  /* what a reload would lose, and the way to have it again */
  kept: () => ({
    prompt: state.text, spans: wire(sorted(state.spans)), removed: [...state.removed], settled: state.detected === state.text,
  }),
  restore(kept, choice, look) {
    editor.load(kept.prompt, kept.spans, null, choice, look);
    state.removed = new Set(kept.removed);
    if (kept.settled) preview();
    else { state.detected = null; detect(); }
  },
  /* other parts of the page follow the prompt and its spans */
  watch: (watcher) => watchers.push(watcher),
  print: () => JSON.stringify([state.text, wire(sorted(state.spans))]),
  focus() { field.focus(); },
};
expose({ editor });

const inPrompt = { topic: "Prompt", page: "#prompt", within: "#prompt" };
keys.add("Alt+M", mark, "mark the selected text as a span", inPrompt);
keys.add("Alt+A", () => accept(offered().filter((span) => span.start <= field.selectionEnd && span.end >= field.selectionStart)),
  "accept the suggestion at the cursor", inPrompt);
const inEditor = { topic: "Prompt", page: "#prompt", within: "#editor" };
keys.add("Ctrl+Z", (event) => (event.target === field ? spansFirst(state.history) : true) && undo(), "undo the last span edit", inEditor);
keys.add(["Ctrl+Shift+Z", "Ctrl+Y"], (event) => (event.target === field ? spansFirst(state.ahead) : true) && redo(),
  "redo it", { ...inEditor, shown: ["Ctrl", "Y"] });
