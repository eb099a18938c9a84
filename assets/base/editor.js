/* The prompt: a text field over its marked copy. Spans follow the text as it is edited; edits of spans can be undone. */
import { act, cautions, draw, expose, link, onFailure, options, pausing, perFrame, plural, put, refocus } from "./core.js";
import { keys } from "./keys.js";
import { addSystem, addTurn, lined, nextTurn, removeTurn, turnsIn } from "./turns.js";
import { html, nothing } from "./vendor/lit-html.js";

const PAUSE = 450;
const MOST_UNDONE = 50;
/* so many labels or rows follow each key at once; more of them follow when the writer pauses */
const LIGHT = 40;
const SETTLE = 150;
/* letters before and after those in sight whose marks are drawn as well, so that scrolling meets drawn ones */
const MARGIN = 1500;
/* rows of words that are shown until all are asked for, and letters around a word at one of its places */
const MOST_WORDS = 60;
const AROUND = 10;
/* places of a word from which on they share a row */
const SEVERAL = 3;
/* letters of a token, until the model has counted some */
const TYPICAL_TOKEN = 4;

export const EMPTY = "The prompt is empty: type the text that the model should continue.";

/* ---- marked spans of a text ---- */
/* offsets: the server counts code points, the browser counts UTF-16 units; both ways from one reading of the text */
const offsets = (text) => {
  if (!/[\ud800-\udfff]/.test(text)) return { points: (unit) => unit, units: (point) => point };
  const starts = [];
  const places = new Int32Array(text.length + 1);
  let at = 0;
  for (const letter of text) {
    places.fill(starts.length, at, at + letter.length);
    starts.push(at);
    at += letter.length;
  }
  starts.push(at);
  places[at] = starts.length - 1;
  return { points: (unit) => places[unit], units: (point) => starts[Math.min(point, starts.length - 1)] };
};
const outward = (spans, text) => {
  const { points } = offsets(text);
  return spans.map((span) => ({ ...span, start: points(span.start), end: points(span.end) }));
};
const inward = (spans, text) => {
  const { units } = offsets(text);
  return spans.map((span) => ({ ...span, start: units(span.start), end: units(span.end) }));
};
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
/* what a detection found beside the reviewer's decisions, which outlive it: a decision on one place holds there alone,
   and a word that she keeps everywhere is kept at new places too */
const merged = (found, { spans, text, removed, gone }) => {
  const mine = spans.filter((span) => span.source === "user");
  const place = (span) => `${span.start}-${span.end}-${span.category}`;
  const before = new Map(spans.map((span) => [place(span), span]));
  const apart = new Set(gone.map(place));
  const byTerm = Map.groupBy(spans.filter((span) => !span.whitelisted), (span) => term(span, text));
  const keptAll = new Set([...byTerm].filter(([, all]) => all.every((span) => span.kept)).map(([name]) => name));
  const fresh = found
    .filter((span) => !removed.has(term(span, text)) && !apart.has(place(span)))
    .filter((span) => mine.every((other) => other.end <= span.start || other.start >= span.end))
    .map((span) => {
      const old = before.get(place(span));
      const keep = span.kept || (old && !old.whitelisted ? old.kept : keptAll.has(term(span, text)));
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
    pieces.push(lined(text.slice(at, span.start)), html`<span class=${`span f-${span.category}${kind}`}>${text.slice(span.start, span.end)}<span
      class="fam" dir="ltr">${family}</span></span>`);
    at = span.end;
  }
  return [...pieces, lined(text.slice(at))];
};
export const markedPoints = (text, spans, families) => marked(text, inward(spans, text), families);

/* ---- what is shown ---- */
const state = {
  text: "", spans: [], removed: new Set(), gone: [], history: [], ahead: [], detected: null, waiting: [], busy: false, nonce: 0, choice: null, look: null,
  /* words whose places are shown one by one, whether all words are, which row's menu is open, and the last count of tokens */
  unfolded: new Set(), whole: false, menu: null, counted: null, foreign: "",
};
const watchers = [];
let root, field, families, send;
const find = (selector) => root.querySelector(selector);
const tell = () => watchers.forEach((watcher) => watcher());
const offered = () => state.spans.filter((span) => span.suggested);

/* the letters whose marks are drawn now */
let drawnTo = [0, Infinity];
/* a label that would run into the next one gives way; all are measured before any is changed */
const fitLabels = () => {
  const labels = [...root.querySelectorAll(".backdrop .fam")];
  labels.forEach((label) => label.classList.remove("short"));
  const boxes = labels.map((label) => label.getBoundingClientRect());
  boxes.forEach((box, at) => {
    const last = boxes[at - 1];
    if (last && Math.abs(box.top - last.top) < 8 && box.left < last.right + 4) labels[at - 1].classList.add("short");
  });
};
const scrolled = perFrame(() => {
  if (drawnTo[1] === Infinity) return;
  const sight = inSight();
  if (!sight || sight[0] - MARGIN / 2 < drawnTo[0] || sight[1] + MARGIN / 2 > drawnTo[1]) paint();
});
const fitSoon = pausing(fitLabels, SETTLE);
/* the letters in sight, by what lies under two corners of the field; null where the browser does not tell */
const inSight = () => {
  const box = find(".scroll").getBoundingClientRect();
  const left = Math.max(box.left, 0) + 2, right = Math.min(box.right, innerWidth) - 2;
  const top = Math.max(box.top, 0) + 2, bottom = Math.min(box.bottom, innerHeight) - 2;
  if (top >= bottom || !document.caretPositionFromPoint) return null;
  const ends = [[left, top], [right, bottom]].map(([x, y]) => document.caretPositionFromPoint(x, y));
  return ends.every((end) => end && end.offsetNode === field) ? ends.map((end) => end.offset) : null;
};
/* marks take no room, so that those of a long text are drawn about what is in sight, and the rest is its letters */
const nearby = () => {
  const sight = state.spans.length > LIGHT ? inSight() : null;
  return sight ? [sight[0] - MARGIN, sight[1] + MARGIN] : [0, Infinity];
};
/* letters that are typed change one piece of text between two spans, and leave the others as they are */
const paint = () => {
  const [from, to] = drawnTo = nearby();
  draw(find(".backdrop"), [marked(state.text, state.spans.filter((span) => span.end >= from && span.start <= to), families), "\u200b"]);
  if (state.spans.length > LIGHT) fitSoon(); else fitLabels();
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
const button = (name, at, word, label) =>
  html`<button type="button" class="btn small quiet" data-do=${name} data-at=${at} aria-label=${`${label}: ${word}`}>${label}</button>`;
/* a menu of families has its entries while it has the focus; before that it shows its own alone */
const menuOf = (name, at, category, spoken) => {
  const all = state.menu === `${name} ${at}`;
  const entries = Object.entries(families).filter(([key]) => all || key === category);
  return html`<select class="select small quiet" data-do=${name} data-at=${at} aria-label=${spoken}>${options(entries, category)}</select>`;
};
const around = ({ start, end }) => html`<span class="hint">${start > AROUND ? "…" : ""}${state.text.slice(Math.max(0, start - AROUND), start)}</span><bdi
  class="word">${state.text.slice(start, end)}</bdi><span class="hint">${state.text.slice(end, end + AROUND)}${end + AROUND < state.text.length ? "…" : ""}</span>`;
const row = (span, at, points, single) => {
  const word = state.text.slice(span.start, span.end);
  const kind = span.kept ? " white" : span.suggested ? ` offer f-${span.category}` : "";
  const actions = span.suggested
    ? [button("accept", at, word, "Accept"), button("remove", at, word, "Dismiss")]
    : [span.kept ? button("keep", at, word, "Mask it") : button("keep", at, word, "Keep visible"), button("remove", at, word, "Remove")];
  return html`<tr class=${[span.picked && "picked", !single && "place"].filter(Boolean).join(" ") || nothing}>
    <td class="cut" dir="auto">${single ? html`<bdi class=${`word${kind}`}>${word}</bdi>` : around(span)}</td>
    <td><span class=${`sw f-${span.category}`}></span>${menuOf("relabel", at, span.category, `Family of ${word}`)}</td>
    <td class="sub">${span.suggested ? html`<b class="tag">suggested</b>` : nothing}${source(span)}</td>
    <td class="hint tnum">${`${points(span.start)}–${points(span.end)}`}</td>
    <td class="num">${actions}</td></tr>`;
};
/* what has been decided of a word's places, in numbers where they differ */
const standing = (spans) => {
  const kept = spans.filter((span) => span.kept).length, waiting = spans.filter((span) => span.suggested).length;
  const parts = [[spans.length - kept - waiting, "masked"], [kept, "kept"], [waiting, "suggested"]].filter(([number]) => number);
  if (parts.length > 1) return parts.map(([number, what]) => `${number} ${what}`).join(", ");
  const sources = new Set(spans.map(source));
  return sources.size === 1 ? [...sources][0] : `found in ${sources.size} ways`;
};
/* a word that stands in several places is one row, with what is done to all of them */
const group = ({ name, at, spans }) => {
  const [{ category, start, end }] = spans, word = state.text.slice(start, end), times = spans.length;
  const offer = spans.some((span) => span.suggested), kept = spans.some((span) => span.kept), masked = spans.some((span) => !span.kept && !span.suggested);
  const kind = spans.every((span) => span.kept) ? " white" : spans.every((span) => span.suggested) ? ` offer f-${category}` : "";
  const all = (action, label) => button(action, at, `${word}, ${times} times`, label);
  const open = state.unfolded.has(name);
  return html`<tr class=${`several${spans.some((span) => span.picked) ? " picked" : ""}`}>
    <td class="cut" dir="auto"><bdi class=${`word${kind}`}>${word}</bdi> <span class="hint tnum">${`${times.toLocaleString("en")} times`}</span></td>
    <td><span class=${`sw f-${category}`}></span>${menuOf("all-relabel", at, category, `Family of ${word}, at all ${times} places`)}</td>
    <td class="sub">${standing(spans)}</td>
    <td><button type="button" class="link" data-do="places" data-at=${at} aria-expanded=${String(open)}
      aria-label=${`${open ? "Hide places" : "Places"} of ${word}`}>${open ? "Hide places" : "Places"}</button></td>
    <td class="num">${[offer && all("all-accept", "Accept all"), kept && all("all-mask", "Mask all"), masked && all("all-keep", "Keep all visible"),
      all("all-remove", offer && !kept && !masked ? "Dismiss all" : "Remove all")].filter(Boolean)}</td></tr>`;
};
/* the words in reading order, each with its places; `at` is the first one's place among all spans */
const grouped = () => {
  const spans = sorted(state.spans), words = Map.groupBy(spans, (span) => term(span, state.text));
  return spans.flatMap((span, at) => {
    const name = term(span, state.text), own = words.get(name);
    if (own.length < SEVERAL) return [{ name, at, spans: [span] }];
    return own[0] === span ? [{ name, at, spans: own }] : [];
  });
};
const list = () => {
  listSoon.cancel();
  const table = find(".spanlist"), all = grouped(), { points } = offsets(state.text);
  const shown = state.whole ? all : all.slice(0, MOST_WORDS), spans = sorted(state.spans);
  const places = new Map(spans.map((span, at) => [span, at]));
  table.hidden = spans.length === 0;
  const rows = shown.flatMap((one) => (one.spans.length === 1 ? [row(one.spans[0], one.at, points, true)]
    : [group(one), ...(state.unfolded.has(one.name) ? one.spans.map((span) => row(span, places.get(span), points, false)) : [])]));
  const rest = all.length - shown.length;
  const more = rest > 0 ? html`<tr class="more"><td colspan="5"><button type="button" class="link" data-do="words">${`Show ${plural(rest, "more word")}`}</button></td></tr>` : nothing;
  const again = (at) => table.querySelector(`[data-at="${at.dataset.at}"].btn`) || table.querySelector("button");
  refocus(table, () => draw(table.tBodies[0], [rows, more]), again);
};
const listSoon = pausing(list, SETTLE);
/* what can be done with the turns of a conversation; a plain prompt becomes the user's turn of one */
const turnActions = () => {
  const turns = turnsIn(state.text), next = nextTurn(state.text);
  find("[data-do=add-system]").hidden = turns.some(({ role }) => role === "system");
  const add = find("[data-do=add-turn]");
  put(add.querySelector(".word"), next === "assistant" ? "Add an assistant turn" : "Add a user turn");
  find("[data-do=remove-turn]").hidden = turns.length === 0;
  find(".turns .hint").hidden = turns[turns.length - 1]?.role !== "assistant";
};
const render = () => {
  turnActions();
  const many = offered().length;
  paint();
  list();
  find(".offers").hidden = many === 0;
  find(".offers [role=status]").textContent = many
    ? `${many === 1 ? "1 suggestion" : `${many} suggestions`}: shown, and not masked until you accept ${many === 1 ? "it" : "them"}.` : "";
};
/* the model's count of tokens beside what it takes; between two counts, as many as that count leads to expect */
const limit = (refusal = "") => {
  const line = find(".limit"), { counted, text } = state;
  line.hidden = !text.trim();
  if (line.hidden) { state.counted = null; return; }
  const known = counted !== null && counted.text === text;
  const perLetter = counted && counted.text.length ? counted.tokens / counted.text.length : 1 / TYPICAL_TOKEN;
  const tokens = known ? counted.tokens : Math.max(1, Math.round(text.length * perLetter)), most = counted ? counted.limit : 0;
  put(line, refusal || `${known ? "" : "about "}${tokens.toLocaleString("en")}${most ? ` of ${most.toLocaleString("en")}` : ""} tokens${known ? "" : ", estimated"}`);
  line.classList.toggle("over", refusal !== "" || (most > 0 && tokens >= most));
};
const cautious = (texts) => cautions(find(".cautions"), texts.filter((text) => text !== state.foreign));
/* a language that the detector does not read is told of with its answer, before any model has read the text */
const foreign = (text) => {
  const line = find(".foreign");
  state.foreign = text;
  line.hidden = !text;
  put(line, text);
};
const reading = (preview) => {
  const box = find(".reading");
  box.hidden = !preview || !state.text.trim();
  if (!preview) return;
  box.querySelector(".counts").textContent = preview.counts;
  const reads = box.querySelector(".masked");
  draw(reads, preview.pieces.map(([words, masked]) => (masked ? html`<b>${words}</b>` : lined(words))));
  /* a long one scrolls, and is then scrolled by keys as well */
  if (reads.scrollHeight > reads.clientHeight) reads.tabIndex = 0;
  else reads.removeAttribute("tabindex");
  box.querySelector(".several").hidden = !preview.branches;
  box.querySelector(".several").textContent = preview.branches || "";
  cautious(preview.warnings);
  if (preview.limit) state.counted = { text: state.text, tokens: preview.tokens, limit: preview.limit };
  limit();
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
  else state.nonce = send("preview", { prompt: state.text, spans: JSON.stringify(wire(state.spans)) });
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
  if (message.kind === "toolong" && message.nonce === state.nonce) {
    reading(null);
    limit(message.text);
  }
  const text = state.busy;
  if (message.kind !== "spans" || text === false) return;
  state.busy = false;
  if (text !== state.text || state.again) { state.again = false; detect(); return; }
  state.detected = text;
  find(".bar [data-do=detect]").textContent = "Detect again";
  state.spans = merged(inward(message.spans, state.text), state);
  foreign(message.language);
  changed();
  state.waiting.splice(0).forEach((resolve) => resolve());
};

/* ---- undo and redo of span edits; `whole` marks the change to another text, which comes back with its spans ---- */
const copy = (whole) => ({ text: state.text, spans: state.spans.map((span) => ({ ...span })), removed: new Set(state.removed), gone: state.gone, whole });
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
  state.gone = before.text === state.text ? before.gone : followed(before.gone, before.text, state.text);
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
  if (moved) { paint(); if (state.spans.length > LIGHT) listSoon(); else list(); }
  if (!range && find(".marking").contains(document.activeElement)) return;
  state.range = range;
  find(".marking .idle").hidden = Boolean(range);
  find(".marking .chosen").hidden = !range;
  if (range) find(".picked-text").textContent = range.text;
};
const mark = () => {
  /* a key comes sooner than the browser tells of the selection that it ends */
  const range = document.activeElement === field ? selection() : state.range || selection();
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
const alike = (node) => {
  const name = term(at(node), state.text);
  return state.spans.filter((span) => term(span, state.text) === name);
};
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
  const before = state.spans.length;
  state.spans = followed(state.spans, state.text, text);
  state.gone = followed(state.gone, state.text, text);
  state.text = text;
  /* the rows' order tells which span a button means: a span less is told at once, other positions when there are few */
  if (state.spans.length !== before || before <= LIGHT) render();
  else { paint(); listSoon(); }
  turnActions();
  limit();
  tell();
  if (text.trim()) { detectSoon(); return; }
  detectSoon.cancel();
  reading(null);
  foreign("");
  cautious([]);
};
/* a term that a list keeps is masked by the reviewer's own decision, which outlives the next detection */
const mask = (span) => (span.source === "list" ? Object.assign(span, decided(span)) : Object.assign(span, { kept: false }));
const remove = (spans) => {
  const [first] = spans, name = term(first, state.text);
  const others = state.spans.some((span) => term(span, state.text) === name && !spans.includes(span));
  if (others) state.gone = [...state.gone, ...spans.map(({ start, end, category }) => ({ start, end, category }))];
  else state.removed.add(name);
  state.spans = state.spans.filter((span) => !spans.includes(span));
};
const editAll = (node, change) => {
  const spans = alike(node);
  remember();
  change(spans);
  changed();
};
/* the turns changed; the field stands where the new turn is written */
const turned = ({ steps, caret }) => {
  remember(true);
  for (const text of steps) write(text);
  field.value = state.text;
  field.focus();
  field.setSelectionRange(caret, caret);
  turnActions();
};
const ACTIONS = {
  undo, redo, mark,
  take: (button) => { editor.take(button.dataset.prompt); field.focus(); },
  edit: (button) => {
    button.setAttribute("aria-expanded", String(document.body.classList.toggle("editing")));
    field.focus();
  },
  "add-system": () => turned(addSystem(state.text)),
  "add-turn": () => turned(addTurn(state.text)),
  "remove-turn": () => turned(removeTurn(state.text, field.selectionStart)),
  detect: () => { remember(); state.removed.clear(); state.gone = []; state.spans = state.spans.filter((span) => span.source === "user"); detect(); },
  accept: (node) => accept([at(node)]),
  "accept-all": () => { accept(offered()); field.focus(); },
  keep: (node) => edit(node, (span) => (span.kept ? mask(span) : Object.assign(span, { kept: true }))),
  remove: (node) => edit(node, (span) => remove([span])),
  "all-accept": (node) => accept(alike(node).filter((span) => span.suggested)),
  "all-mask": (node) => editAll(node, (spans) => spans.filter((span) => span.kept).forEach(mask)),
  "all-keep": (node) => editAll(node, (spans) => spans.filter((span) => !span.suggested).forEach((span) => { span.kept = true; })),
  "all-remove": (node) => editAll(node, remove),
  places: (node) => {
    const name = term(at(node), state.text);
    if (!state.unfolded.delete(name)) state.unfolded.add(name);
    list();
  },
  words: () => { state.whole = true; list(); },
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
      const change = (span) => Object.assign(span, decided({ ...span, category: target.value }));
      if (target.dataset.do === "relabel") edit(target, change);
      if (target.dataset.do === "all-relabel") editAll(target, (spans) => spans.forEach(change));
    });
    const menus = (node) => {
      const menu = node && node.matches(".spanlist select") ? `${node.dataset.do} ${node.dataset.at}` : null;
      if (menu !== state.menu) { state.menu = menu; list(); }
    };
    /* a press opens the browser's own menu before the focus has come */
    find(".spanlist").addEventListener("pointerdown", ({ target }) => { if (target.matches("select")) menus(target); });
    find(".spanlist").addEventListener("focusin", ({ target }) => menus(target));
    find(".spanlist").addEventListener("focusout", ({ relatedTarget }) => menus(relatedTarget));
    act(root, ACTIONS);
    onFailure("detect", () => { state.busy = false; state.waiting.splice(0); });
    window.addEventListener("resize", paint);
    find(".scroll").addEventListener("scroll", scrolled, { passive: true });
    paint();
  },
  /* a new text: detection starts from nothing */
  take(text) {
    remember(true);
    planted("");
    Object.assign(state, { spans: [], gone: [], counted: null, whole: false, text });
    state.removed.clear();
    state.unfolded.clear();
    field.value = text;
    foreign("");
    limit();
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
    Object.assign(state, { text, detected: text, history: [], ahead: [], busy: false, gone: [], counted: null, whole: false });
    state.spans = inward(spans, text);
    state.removed.clear();
    state.unfolded.clear();
    foreign("");
    stacks();
    find(".bar [data-do=detect]").textContent = text ? "Detect again" : "Detect";
    render();
    reading(masked);
    find(".limit").hidden = true;
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
  /* what a run needs, once the shown spans belong to the shown text */
  ready() {
    const answer = () => ({ prompt: state.text, spans: wire(state.spans) });
    if (!state.text.trim()) return Promise.resolve({ prompt: state.text, spans: null });
    if (state.detected === state.text) return Promise.resolve(answer());
    return new Promise((resolve) => { state.waiting.push(() => resolve(answer())); detect(); });
  },
  /* what a reload would lose, and the way to have it again */
  kept: () => ({
    prompt: state.text, spans: wire(sorted(state.spans)), removed: [...state.removed], gone: outward(state.gone, state.text), settled: state.detected === state.text,
  }),
  restore(kept, choice, look) {
    editor.load(kept.prompt, kept.spans, null, choice, look);
    state.removed = new Set(kept.removed);
    state.gone = inward(kept.gone || [], kept.prompt);
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
