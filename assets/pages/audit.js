/* The audit page and its session: the chain's cards, and the messages that make it grow. Looking at a token asks nobody. */
import { act, addressed, cautions, draw, expose, link, notice as noticeIn, onFailure, pausing, readdress, tab } from "../base/core.js";
import { downloads } from "../base/downloads.js";
import { editor, EMPTY } from "../base/editor.js";
import { frame, onLost } from "../base/frame.js";
import { term } from "../base/glossary.js";
import { choice, look, onNotes, onSettings, sameValue } from "../base/rail.js";
import { html } from "../base/vendor/lit-html.js";
import { branches } from "./audit_branches.js";
import { showPictures } from "./audit_pictures.js";
import "./audit_rereading.js";
import { session } from "./audit_session.js";
import { controls, permalink, stepping } from "./audit_stepping.js";
import { appendToken, caretNode, drawOverview, onScrollAway, overviewStep, reserve, reveal } from "./audit_strip.js";
import { thinking } from "./audit_thinking.js";
import { inspector, spans, whole } from "./audit_token.js";
import { showPart } from "./audit_finding.js";
import "./audit_verdicts.js";

/* while a run writes, everything but the tokens themselves is drawn at most this often */
const PACE = 150;
const state = {
  session: null, branch: null, cards: [], bins: [], total: 0, finished: null, selected: -1,
  running: false, pausing: false, busy: null, then: null, touched: false, based: null, values: null, printed: "", follow: true,
  crumbs: null, prompt: "", nochain: "", chain: null, why: "", restored: false, warnings: [],
};
let root, strip, reel, overview, binLabels, caret, send, tokens = [], frameAt = null, drawn = 0, missing = null;

const find = (selector) => root.querySelector(selector);
const ids = () => ({ session: state.session, branch: state.branch });
const ask = (name, data) => { state.busy = name; controls.show(); send(name, data); };
const idle = () => { Object.assign(state, { busy: null, running: false, pausing: false }); controls.show(); };
const notice = (text, button) => noticeIn(find(".notice"), text, button);

/* ---- selection ---- */
const select = (index, focus = false) => {
  const wanted = Math.max(-1, Math.min(index, state.cards.length - 1));
  const before = tokens[state.selected];
  const node = tokens[wanted];
  if (before && before !== node) {
    before.classList.remove("sel");
    before.setAttribute("tabindex", "-1");
    before.removeAttribute("aria-current");
  }
  if (node) {
    node.classList.add("sel");
    node.setAttribute("tabindex", "0");
    node.setAttribute("aria-current", "true");
    if (focus) node.focus({ preventScroll: true });
  }
  thinking.open(wanted);
  state.selected = wanted;
  inspector.turn(state.cards[wanted] || null);
  later();
};
/* a token that someone chose, and not the run: the run no longer takes the selection along, unless it is the last */
const choose = (index, focus = false) => {
  state.follow = index >= state.cards.length - 1;
  select(index, focus);
};
/* where a reader of a finished chain looks first: the token that differs most between shown and masked, of this branch's own */
const telling = () => {
  const cards = state.cards.slice(state.crumbs?.at ?? 0);
  const answer = thinking.answered() ? cards.filter(({ i }) => !thinking.within(i)) : [];
  const own = answer.length ? answer : cards;
  return own.length ? own.reduce((one, other) => (Math.abs(other.r) > Math.abs(one.r) ? other : one)).i : state.cards.length - 1;
};
/* many tokens may arrive within one frame; what shows them follows once */
const later = () => {
  if (frameAt === null) {
    const wait = state.running ? drawn + PACE - performance.now() : 0;
    if (wait > 0) frameAt = setTimeout(() => { frameAt = requestAnimationFrame(show); }, wait);
    else frameAt = requestAnimationFrame(show);
  }
  controls.show();
};
const show = () => {
  frameAt = null;
  drawn = performance.now();
  if (state.follow && state.selected === state.cards.length - 1) reel.scrollTop = reel.scrollHeight;
  else if (tokens[state.selected]) reveal(reel, tokens[state.selected]);
  drawOverview(overview, binLabels, state);
  inspector.show(state.cards[state.selected] || null, state);
  whole.show(state.chain, state);
  spans.show(state);
  showPictures(state.cards, state.selected);
  session.tell(state);
};

/* ---- the chain ---- */
const append = (cards) => {
  for (const card of cards) {
    if (card.i !== state.cards.length) continue;
    state.cards.push(card);
    tokens.push(appendToken(strip, caret, card));
  }
};
const cut = (length) => {
  state.cards.length = Math.min(length, state.cards.length);
  tokens.splice(length).forEach((node) => node.remove());
  strip.querySelectorAll(".grp:empty").forEach((node) => node.remove());
};
const current = (message) => message.session === undefined
  || (message.session === state.session && message.branch === state.branch);
/* a busy browser may never see some frames of a run; what is missing is asked for, and the run goes on meanwhile */
const fetchMissing = (message) => {
  if (missing) { missing.push(message); return; }
  missing = [message];
  send("more", { ...ids(), since: state.cards.length });
};
const fill = (message) => {
  const waiting = missing || [];
  missing = null;
  extend(message);
  waiting.filter(current).forEach(extend);
};
const extend = (message) => {
  if (!current(message)) return;
  const known = state.cards.length;
  const end = message.length ?? message.from + message.steps.length;
  if (message.from > known || (message.done && end > known + message.steps.length)) {
    fetchMissing(message);
    return;
  }
  append(message.steps);
  thinking.show(message.thinking, tokens);
  if (message.finished) state.finished = message.finished;
  state.chain = message.chain;
  find(".claim").textContent = message.claim;
  whole.computed(message.computed);
  caret.hidden = Boolean(state.finished);
  if (message.done) {
    state.why = message.why || "";
    idle();
  } else if (state.pausing) send("pause", ids());
  const follow = (state.follow && !inspector.typing()) || state.selected < 0;
  const ended = message.done && state.finished;
  if (ended) reserve(reel, state);
  if (follow && ended) select(telling(), strip.contains(document.activeElement));
  else if (state.cards.length > known && follow) select(state.cards.length - 1, strip.contains(document.activeElement));
  else later();
};

/* ---- messages ---- */
const open = (data) => ask("open", { session: null, branch: null, calibration: null, duplicate: null, policy: null, values: null, ...data });
const reopen = (branch) => { if (!state.busy) open({ session: state.session, branch }); };
const loadPrompt = (message) => {
  editor.load(message.prompt, message.spans, message.preview, choice(message.settings), look(message.settings));
  frame.saved(message.saved);
};
const load = (message) => {
  const same = message.from > 0;
  const { session, branch, bins, total, finished, crumbs, prompt, nochain, chain, settings, warnings } = message;
  Object.assign(state, { session, branch, bins, total, finished, crumbs, prompt, nochain, chain, warnings, touched: false, restored: false, follow: true, why: "" });
  missing = null;
  notice();
  find(".chain").hidden = false;
  draw(find(".legend .open .w"), term(message.certified ? "too weak" : "no threshold"));
  find(".claim").textContent = message.claim;
  if (same) cut(message.from);
  else { Object.assign(state, { cards: [], selected: -1 }); tokens = []; caret = caretNode(); strip.replaceChildren(caret); }
  append(message.steps);
  if (!same) thinking.reset();
  thinking.show(message.thinking, tokens);
  caret.hidden = Boolean(finished);
  reserve(reel, state);
  loadPrompt(message);
  state.printed = editor.print();
  if (settings) state.based = settings;
  cautions(find(".cautions"), warnings);
  whole.method(message.method);
  whole.computed(message.computed);
  branches.draw(find(".crumbs"), state);
  whole.cost(message.cost, session);
  readdress({ session, branch, calibration: null, duplicate: null, policy: null, step: null });
  idle();
  choose(permalink(state) ?? (same ? message.from : crumbs.at ?? (finished ? telling() : state.cards.length - 1)));
};
const ANSWERS = {
  session(message) {
    const { busy } = state, then = busy === "start" ? state.then : null;
    if (then) forget();
    load(message);
    opened(message);
    if (then) then();
    attend(busy);
  },
  steps(message) { (message.filled ? fill : extend)(message); },
  /* another session's prompt, spans and settings, to be changed and started */
  draft(message) {
    loadPrompt(message);
    notice(["A copy of a session: change what you like; Run begins a new one.", ...message.notes].join(" "));
    idle();
    opened(message);
  },
  blank(message) {
    idle();
    opened(message);
    if (document.activeElement === document.body) editor.focus();
  },
  mismatch({ text }) {
    idle();
    notice(text, html`<button type="button" class="btn small" data-do="proceed">Proceed uncertified</button>`);
  },
  overhead({ text }) { whole.measured(text); idle(); },
};
/* what was pressed is switched off or drawn again by now: the focus goes to what it brought, and not to the top of the page */
const attend = (busy) => {
  if (busy === "fork") {
    tokens[state.selected]?.focus({ preventScroll: true });
    if (!state.finished) notice("Forced.", html`<button type="button" class="btn small" data-do="on" data-takes="run">Run on</button>`);
  } else if (busy === "start" && (document.activeElement === document.body || root.contains(document.activeElement))) strip.focus({ preventScroll: true });
};
const receive = (message) => (ANSWERS[message.kind] || idle)(message);

/* ---- what is not started yet: told apart from the session, and kept in this tab so that a reload does not lose it ---- */
const KEY = "coft-unsaved";
const PATIENCE = 4000;
const PAUSE = 250;
let baseline = null, ready = false, waiting = null;
/* the values that the controls are on their way to; until they are there, these count and not the controls' own */
let expected = null;
const differs = (from, values) => Boolean(from && values) && from.some((value, at) => !sameValue(value, values[at]));
const memory = () => {
  const query = new URLSearchParams(location.search);
  const named = ["session", "duplicate", "calibration", "policy"].find((name) => query.has(name));
  return `${KEY} ${named ? `${named} ${query.get(named)}` : "new"}`;
};
const forget = () => tab.forget(memory());
const recall = () => {
  const kept = tab.read(memory());
  return typeof kept?.prompt === "string" && Array.isArray(kept.spans) && Array.isArray(kept.removed) ? kept : null;
};
const write = () => {
  if (!ready || state.busy === "start") return;
  const text = editor.kept();
  const values = expected || state.values;
  const unsaved = state.session === null ? text.prompt !== baseline.prompt || differs(baseline.values, values) : state.touched;
  if (!unsaved) { if (recall()) forget(); return; }
  tab.keep(memory(), { ...text, values });
};
const writeSoon = pausing(write, PAUSE);
const keep = () => { if (!writeSoon.waiting()) writeSoon(); };
const revert = (label) => html`<button type="button" class="btn small" data-do="revert">${label}</button>`;
/* the session is what it was started with: another prompt or another setting needs a new one */
const compare = () => {
  if (expected && state.values && !differs(expected, state.values)) expected = null;
  keep();
  if (state.session === null || !state.based) return;
  const touched = differs(state.based, expected || state.values || state.based) || editor.print() !== state.printed;
  if (touched === state.touched) return;
  state.touched = touched;
  const lead = state.restored ? "What you had changed before the page was reloaded is here again." : "The prompt or the settings changed.";
  if (!touched) notice();
  else notice(`${lead} Run begins a new audit with them; this one stays in the Library.`, revert(state.restored ? "Discard" : "Back to this audit"));
  controls.show();
};
/* the first answer of the server is the ground on which what was kept is laid; what was typed meanwhile stays */
const opened = (message) => {
  const kept = waiting, goal = message.shown || null;
  waiting = null;
  ready = true;
  expected = goal;
  setTimeout(() => { if (expected === goal) expected = null; }, PATIENCE);
  if (message.kind !== "session") baseline = { prompt: message.prompt || "", values: message.settings || null };
  if (!kept) { keep(); return; }
  if (message.kind === "blank" && editor.kept().prompt) return;
  state.restored = true;
  editor.restore(kept, choice(kept.values), look(kept.values));
  if (message.kind === "session") compare();
  else notice("What you had not started before the page was reloaded is here again.", revert("Discard"));
};
const discard = () => {
  if (state.busy) return;
  forget();
  if (state.session !== null) { reopen(state.branch); return; }
  notice();
  editor.load("", [], null);
  state.restored = false;
  const number = Number(new URLSearchParams(location.search).get("duplicate"));
  open(number ? { duplicate: number } : {});
};
window.addEventListener("pagehide", () => {
  if (!writeSoon.waiting()) return;
  writeSoon.cancel();
  write();
});
editor.watch(compare);
onSettings((values) => {
  state.values = values;
  editor.chosen(choice(values), look(values));
  compare();
});

/* ---- what the reviewer asks for ---- */
/* `then` writes: the whole chain, or one token */
const start = async (then, proceed = false) => {
  if (state.busy) return;
  Object.assign(state, { busy: "start", then });
  controls.show();
  notice();
  const { prompt, spans: chosen } = await editor.ready();
  if (!prompt.trim()) {
    idle();
    notice(EMPTY);
    editor.focus();
    return;
  }
  ask("start", { prompt, spans: chosen, proceed });
};
/* `until` is where to stop, null for the end of the chain */
const run = (until = null) => {
  if (state.session === null || state.touched || state.busy || state.finished) return;
  Object.assign(state, { running: true, pausing: false, follow: true, why: "" });
  notice();
  ask("run", { ...ids(), until });
};
const go = () => (state.session === null || state.touched ? start(() => run()) : run());
const step = (focus = false) => {
  if (state.selected < state.cards.length - 1) { choose(state.selected + 1, focus); return; }
  if (state.session === null || state.touched) { start(() => step(focus)); return; }
  if (state.busy || state.finished) return;
  Object.assign(state, { follow: true, why: "" });
  notice();
  ask("step", ids());
};
const back = (focus = false) => {
  state.follow = false;
  if (state.selected > 0) select(state.selected - 1, focus);
};
/* a pause may reach the server before the run that it ends; until the run has stopped, each frame asks again */
const pause = () => {
  if (!state.running) return;
  state.pausing = true;
  controls.show();
  send("pause", ids());
};
const force = (token, index = state.selected) => {
  if (!state.busy && !state.touched && index >= 0) ask("fork", { ...ids(), index, token });
};
const ACTIONS = {
  back: () => back(), step: () => { showPart("words"); step(); }, go, on: () => { run(); strip.focus({ preventScroll: true }); }, pause,
  report: (button) => downloads.open(button, state.session),
  overhead: () => {
    if (state.busy) return;
    whole.measured("Measuring …");
    ask("overhead", ids());
  },
  proceed: () => start(state.then, true),
  revert: discard,
};

/* ---- the first chain: asked for while Gradio still builds the page, and drawn as soon as there is a place for it ---- */
const asked = () => Object.fromEntries(["session", "branch", "calibration", "duplicate"].map((name) => [name, addressed(name)]));
const early = (({ session, branch, duplicate }) => {
  /* what was kept before a reload has settings of its own, which only the event knows how to lay on the session's */
  if (session === null || duplicate !== null || recall()) return null;
  return fetch(`./audit/chain?session=${session}${branch === null ? "" : `&branch=${branch}`}`)
    .then((answer) => (answer.ok ? answer.json() : null))
    .catch(() => null);
})(asked());
const beginWith = async (named) => {
  state.busy = "open";
  controls.show();
  const message = await early;
  if (!message) { open(named); return; }
  receive(message);
  send("settle", { session: message.session });
};

/* ---- the transcript and the wire to the server are two components, and either may be there first ---- */
const begin = () => {
  if (!root || !send) return;
  onFailure("open", () => {
    idle();
    const asked = new URLSearchParams(location.search);
    if (state.session !== null || !(asked.has("session") || asked.has("duplicate"))) return;
    history.replaceState(history.state, "", location.pathname);
    open({});
  });
  onLost(() => { missing = null; if (state.busy) idle(); });
  onFailure("more", () => { missing = null; idle(); });
  onFailure(["start", "step", "run", "fork"], idle);
  onFailure("overhead", () => { whole.measured(""); idle(); });
  waiting = recall();
  beginWith({
    ...asked(), policy: new URLSearchParams(location.search).get("policy"), values: (waiting && waiting.values) || null,
  });
};
Object.assign(session, {
  select, choose, open, reopen, notice, step, back, run, force,
  state: () => state,
  /* the token's elements in the strip, by step */
  tokens: () => tokens,
  toggle: () => (state.running ? pause() : go()),
  place(element) {
    root = element.querySelector("section");
    strip = find(".strip");
    reel = find(".reel");
    overview = find(".overview");
    binLabels = find(".ovlab");
    caret = caretNode();
    whole.mount(root);
    controls.mount(root);
    act(root, ACTIONS);
    stepping.mount(root);
    thinking.mount(root);
    strip.addEventListener("click", ({ target }) => {
      const hit = target.closest(".tok[data-i]");
      if (hit) choose(Number(hit.dataset.i), true);
    });
    overview.addEventListener("click", (event) => {
      const at = overviewStep(overview, event.clientX, state);
      if (at < state.cards.length) choose(at);
    });
    onScrollAway(reel, () => { if (state.running) state.follow = false; });
    root.addEventListener("click", ({ target }) => {
      const hit = target.closest("[data-branch]");
      if (hit) reopen(Number(hit.dataset.branch));
    });
    window.addEventListener("resize", () => {
      if (state.session !== null) reserve(reel, state);
      if (state.cards.length) later();
    });
    begin();
  },
  mount(trigger, props, watch) {
    send = link(trigger, props, watch, receive);
    begin();
  },
});
/* a warning of the chain that stands is said beside the chain; the settings say again what it lacks */
const sayOnce = () => document.querySelectorAll(".rail .cautions li").forEach((line) => {
  line.hidden = state.cards.length > 0 && state.warnings.includes(line.textContent.trim());
});
session.watch(sayOnce);
onNotes(sayOnce);
expose({ session });
