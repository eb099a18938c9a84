/* Verdicts on the audit page. What reviewers said of the session lives here; every change is written at once. */
import { act, addressed, draw, expose, icon, link, made, onFailure, pausing, readdress, tab } from "../base/core.js";
import { keys } from "../base/keys.js";
import { reviewer } from "../base/reviewer.js";
import { html, nothing } from "../base/vendor/lit-html.js";
import { session } from "./audit_session.js";

const KEYS = { C: "fair", U: "unfair", X: "unclear" };
const MARKS = ["fair", "unfair", "unclear", "disputed"];
const NOBODY = { targets: [], threads: [], newest: -1, blind: "" };
/* a note is written into the log when the keys have rested for so long */
const PAUSE = 700;
/* ---- what the log does not have yet, kept in this tab so that a reload does not lose it ---- */
const UNSENT = "coft-verdicts-unsent";
/* drafts by target, and verdicts on their way: `{ target, verdict, typed, reviewer }` */
const recalled = () => {
  const kept = tab.read(UNSENT);
  return { drafts: Array.isArray(kept?.drafts) ? kept.drafts : [], unsent: Array.isArray(kept?.unsent) ? kept.unsent : [] };
};
const keep = (drafts, unsent) => {
  if (drafts.size || unsent.length) tab.keep(UNSENT, { drafts: [...drafts], unsent });
  else tab.forget(UNSENT);
};

const view = { session: null, branch: null, scope: "steps", held: null, shown: "", queue: [], flight: null, undo: null, seen: null, wish: null, typed: null, kept: [], left: [], ...NOBODY };
const drafts = new Map();
let root, send, note, tag, reply;

const find = (selector) => root.querySelector(selector);
const page = () => session.state();
const key = (target) => [target.session, target.scope, target.branch, target.first, target.last].join(":");
const stepsOf = (first, last) => (first === last ? `step ${first + 1}` : `steps ${first + 1}–${last + 1}`);

/* ---- the span that is about to be judged, from the selected token to `head`; another selection forgets it ---- */
const span = { anchor: -1, head: -1 };
const range = () => (span.head < 0 ? null : [Math.min(span.anchor, span.head), Math.max(span.anchor, span.head)]);
const anchor = (state) => {
  if (span.anchor === state.selected && span.head < state.cards.length) return;
  Object.assign(span, { anchor: state.selected, head: state.selected });
};
const respan = (head) => {
  span.head = head;
  view.scope = "steps";
  render();
};
const extend = (to) => {
  const state = page();
  if (state.selected < 0) return;
  anchor(state);
  respan(Math.max(0, Math.min(to, state.cards.length - 1)));
};
/* the selection may be ahead of the drawing: what is judged is what is selected when the key goes down. What she types
   stays with its target, but a token that she chose herself takes its place once she has left the fields */
const attend = (state) => {
  if (state.selected !== view.seen) {
    if (!state.running && ![note, tag, reply].includes(document.activeElement)) view.held = null;
    Object.assign(view, { scope: state.selected < 0 ? "session" : "steps", seen: state.selected });
  }
  anchor(state);
};
const reach = (by) => () => { attend(page()); return page().selected >= 0 && (extend(span.head + by), true); };
const narrow = () => { attend(page()); return span.head !== span.anchor && (respan(span.anchor), true); };

/* ---- a mark on every judged token: its own verdict, or that of the shortest span around it ---- */
const mark = (node, item, step) => {
  const old = node.querySelector(".vd");
  const text = item ? `, verdict ${item.words}${item.f === item.l ? "" : ` on ${stepsOf(item.f, item.l)}`}` : "";
  const print = item ? `${item.mark}:${step === item.f}:${item.l > item.f}:${text}` : "";
  if ((old ? old.dataset.print : "") === print) return;
  old?.remove();
  node.classList.toggle("begins", Boolean(item) && step === item.f);
  if (item) {
    node.append(made(html`<span class=${`vd ${item.mark}${item.l > item.f ? " run" : ""}`} data-print=${print}>${step === item.f
      ? icon(item.mark, "solid") : nothing}<span class="vh">${text}</span></span>`));
  }
};
/* what the last drawing went by: only tokens whose marks may differ from then are looked at */
let drawn = { nodes: null, count: 0, end: null, items: [], range: null };
const drawMarks = (items) => {
  const nodes = session.tokens();
  const grown = nodes === drawn.nodes && drawn.count > 0 && nodes[drawn.count - 1] === drawn.end
    && items.length === drawn.items.length && items.every((item, at) => item === drawn.items[at]);
  const from = grown ? drawn.count : 0;
  if (from < nodes.length) {
    const found = new Map();
    for (const item of items.filter((judged) => MARKS.includes(judged.mark)).sort((one, other) => (other.l - other.f) - (one.l - one.f))) {
      for (let step = item.f; step <= item.l; step += 1) found.set(step, item);
    }
    for (let step = from; step < nodes.length; step += 1) mark(nodes[step], found.get(step) || null, step);
  }
  const wanted = range();
  const wide = wanted && wanted[1] > wanted[0] ? wanted : null;
  if (!grown || String(wide) !== String(drawn.range)) {
    const spanned = ([first, last], on) => nodes.slice(first, last + 1).forEach((node) => node.classList.toggle("spanned", on));
    if (drawn.range) spanned(drawn.range, false);
    if (wide) spanned(wide, true);
  }
  drawn = { nodes, count: nodes.length, end: nodes[nodes.length - 1], items, range: wide };
};

/* ---- what a verdict is about ---- */
/* the branch of the shown path that made a step: verdicts belong to it, from whichever branch they are given */
const owner = (step) => (page().crumbs?.path || []).filter((node) => node.step === null || node.step - 1 <= step).pop()?.id ?? null;
const here = (item) => (item.f === null ? item.b === null || item.b === page().branch
  : item.l < page().cards.length && owner(item.l) === item.b);
const scopeOf = (item) => (item.b === null ? "session" : item.f === null ? "branch" : "steps");
const found = (target) => view.targets.find((item) => here(item) && scopeOf(item) === target.scope
  && (target.scope !== "steps" || (item.f === target.first && item.l === target.last))) || null;
const current = () => {
  if (view.held) return view.held;
  const { session: number, branch, cards } = page(), { scope } = view;
  if (number === null) return null;
  if (scope !== "steps") return { session: number, scope, branch: scope === "branch" ? branch : null, first: null, last: null };
  const steps = range();
  return steps && steps[1] < cards.length ? { session: number, scope, branch, first: steps[0], last: steps[1] } : null;
};
const phrase = ({ scope, first, last }) => ({ session: "the whole session", branch: "this branch" }[scope] || stepsOf(first, last));

/* ---- to the server, one request after the other, so that the log keeps the reviewer's order ---- */
const pump = () => {
  if (view.flight || !view.queue.length) return;
  view.flight = view.queue.shift();
  const { kind, data } = view.flight;
  view.flight.nonce = send(kind, { ...data, reviewer: kind === "read" ? reviewer.name() : data.reviewer });
};
/* kept until the log has it, beside what was kept before a reload and waits for its session */
const remember = () => keep(drafts, [...view.kept, ...[view.flight, ...view.queue].filter((job) => job?.kind === "give")
  .map(({ target, verdict, typed, data }) => ({ target, verdict, typed, reviewer: data.reviewer }))]);
const refresh = () => {
  if (page().session === null) return;
  view.queue = view.queue.filter((job) => job.kind !== "read");
  view.queue.push({ kind: "read", data: { session: page().session } });
  pump();
};
const say = (text, undoing = null) => {
  find(".said").textContent = text;
  view.undo = undoing;
  find("[data-do=undo]").hidden = !undoing;
};
const settle = () => { view.flight = null; pump(); render(); };
const receive = (message) => {
  const job = view.flight && view.flight.nonce === message.nonce ? view.flight : null;
  /* the log only grows: a reading of fewer entries is an older one */
  if (message.session === page().session && message.reviewer === reviewer.name() && message.newest >= view.newest) {
    const { targets, threads, newest, review: blind, session: number } = message;
    Object.assign(view, { targets, threads, newest, blind, session: number });
  }
  if (job?.kind === "give") {
    const draft = drafts.get(key(job.target));
    if (draft && draft.note === job.typed.note && draft.tag === job.typed.tag) drafts.delete(key(job.target));
    say(message.said, job.undoes ? null : { target: job.target, back: job.before });
  } else if (job?.kind === "comment") {
    if (reply.value.trim() === job.data.note) reply.value = "";
    say(message.said);
  } else if (job?.data.told) say("Verdicts are up to date.");
  if (job) settle(); else render();
  if (job?.kind === "read") recover();
  remember();
};

/* ---- giving ---- */
const ownOf = (target) => found(target)?.own || null;
const typedFor = (target) => {
  const own = ownOf(target);
  return drafts.get(key(target)) || { note: own ? own.note : "", tag: own ? own.tag : "" };
};
const pending = (target) => [view.flight, ...view.queue].filter((job) => job?.kind === "give" && key(job.target) === key(target)).pop();
const give = (target, verdict, typed, undoes = false) => {
  const { session: number, branch, first, last } = target;
  view.queue.push({
    kind: "give", target, typed, undoes, before: settled(target), verdict,
    data: { session: number, branch, first, last, verdict, note: typed.note, tag: typed.tag, reviewer: reviewer.name() },
  });
  find(".said").textContent = "Saving …";
  find("[data-do=undo]").hidden = true;
  pump();
  remember();
  render();
};
const alike = (one, other) => one.note.trim() === other.note.trim() && one.tag.trim() === other.tag.trim();
/* what the log will hold of the reviewer's on a target when all that was sent is written */
const settled = (target) => {
  const waiting = pending(target);
  return waiting ? { v: waiting.verdict, ...waiting.typed } : ownOf(target);
};
const focusRadio = () => find("[role=radio][tabindex='0']").focus();
/* the reviewer's name; where it had to be asked for, the focus goes back to what needed it */
const named = async (back) => {
  if (reviewer.name()) return true;
  const given = await reviewer.ask();
  back();
  return Boolean(given);
};
const judge = async (verdict) => {
  attend(page());
  const target = current();
  if (!target) return;
  if (!(await named(focusRadio))) { say("Nothing was saved: verdicts need a name."); return; }
  const own = settled(target), typed = typedFor(target);
  if (own && own.v === verdict && alike(own, typed)) say(`You said ${verdict} on ${phrase(target)} before; nothing changed.`);
  else give(target, verdict, typed);
};
const unsaved = (target) => {
  const own = settled(target), draft = drafts.get(key(target));
  return Boolean(own && own.v && draft && !alike(draft, own));
};
const save = (target = current()) => { if (target && unsaved(target)) give(target, settled(target).v, typedFor(target)); };
const saveSoon = pausing(() => save(view.typed), PAUSE);
/* what was on its way before a reload, the newest on each target, unless the log has it by now */
const recover = () => {
  const mine = view.kept.filter((job) => job.target.session === page().session && job.reviewer === reviewer.name());
  if (mine.length) {
    view.kept = view.kept.filter((job) => !mine.includes(job));
    new Map(mine.map((job) => [key(job.target), job])).forEach(({ target, verdict, typed }) => {
      const own = settled(target);
      if (own ? own.v !== verdict || !alike(own, typed) : verdict) give(target, verdict, typed);
    });
  }
  const ours = view.left.filter((target) => target?.session === page().session);
  view.left = view.left.filter((target) => !ours.includes(target));
  ours.forEach((target) => save(target));
};
const comment = async () => {
  const target = current(), text = reply.value.trim();
  if (!target || !text) { reply.focus(); return; }
  if (!(await named(() => reply.focus()))) { say("Nothing was saved: comments need a name."); return; }
  const { session: number, branch, first, last } = target;
  view.queue.push({ kind: "comment", data: { session: number, branch, first, last, note: text, reviewer: reviewer.name() } });
  say("Saving …");
  pump();
};
const undo = () => {
  if (!view.undo) return;
  const { target, back } = view.undo;
  focusRadio();
  if (back) drafts.delete(key(target));
  give(target, back ? back.v : null, back ? { note: back.note, tag: back.tag } : { note: "", tag: "" }, true);
};
const withdraw = () => {
  const target = current();
  if (!target) return;
  focusRadio();
  give(target, null, { note: "", tag: "" });
};

/* ---- what is shown ---- */
const opinion = (item) => html`<li class=${item.decides ? "decision" : nothing}>${icon(item.v)}<span><strong>${item.who}</strong>${` ${item.words}`}${item.tag
  ? html`<span class="judge-tag">${item.tag}</span>` : nothing}<span class="hint">${` ${item.when}`}</span>${item.note
  ? html`<span class="judge-note">${item.note}</span>` : nothing}</span></li>`;
const around = (target) => view.targets.filter((item) => item.mark && here(item) && item !== found(target)
  && (item.f === null || (target.scope === "steps" && item.f <= target.last && target.first <= item.l)));
const related = (item) => html`<button type="button" class="btn small quiet" data-do="go-to" data-scope=${scopeOf(item)} data-first=${item.f ?? nothing}
  data-last=${item.l ?? nothing}>${icon(item.mark)}${`${phrase({ scope: scopeOf(item), first: item.f, last: item.l })}: ${item.words}`}</button>`;
/* comments of all who wrote on a target, in the order in which the log has them */
const remark = ({ who, when, text }) => html`<li><strong>${who}</strong> <span class="hint tnum">${when}</span><span class="judge-note">${text}</span></li>`;
const drawThread = (target) => {
  const thread = target && view.threads.find((item) => here(item) && scopeOf(item) === target.scope
    && (target.scope !== "steps" || (item.f === target.first && item.l === target.last)));
  draw(find(".thread"), thread ? thread.says.map(remark) : nothing);
  find(".thread").hidden = !thread;
  reply.disabled = !target;
};
const setField = (field, value, fresh) => {
  if (field.value !== value && (fresh || document.activeElement !== field)) field.value = value;
};
const drawTarget = (target) => {
  const item = target && found(target), own = item?.own, waiting = target && pending(target);
  const chosen = waiting ? waiting.verdict : own ? own.v : null;
  root.querySelectorAll("[role=radio]").forEach((node, at) => {
    node.setAttribute("aria-checked", String(node.dataset.verdict === chosen));
    node.setAttribute("tabindex", (chosen ? node.dataset.verdict === chosen : at === 0) ? "0" : "-1");
    node.disabled = !target;
  });
  note.disabled = tag.disabled = !target;
  const now = target ? key(target) : "";
  const typed = target ? typedFor(target) : { note: "", tag: "" };
  setField(note, typed.note, now !== view.shown);
  setField(tag, typed.tag, now !== view.shown);
  view.shown = now;
  find("[data-do=save]").hidden = !target || !unsaved(target);
  find("[data-do=withdraw]").hidden = !own || Boolean(waiting);
  const waits = target && !(settled(target)?.v) && typed.note.trim() ? ", the note is kept for your verdict" : "";
  find(".signed").textContent = own ? `${reviewer.name()}, ${own.saved}` : `${reviewer.name() || "No name yet"}${waits}`;
  drawThread(target);
  find(".status").hidden = !item || (item.says.length < 2 && Boolean(own));
  find(".status .how").textContent = item ? item.sentence : "";
  draw(find(".status ul"), item ? item.says.map(opinion) : nothing);
  find(".status .next").hidden = !item || item.status !== "disputed";
  const others = target ? around(target) : [];
  find(".related").hidden = others.length === 0;
  draw(find(".related"), html`<span class="hint">Also judged:</span>${others.map(related)}`);
};
const drawScope = (target) => {
  const menu = find("#judge-on"), steps = range();
  menu.options[0].textContent = steps && steps[1] > steps[0] ? "this span" : "this token";
  menu.options[0].disabled = page().selected < 0;
  menu.value = view.held ? view.held.scope : view.scope;
  find(".on-what").textContent = !target ? "select a token to judge it" : target.scope === "steps" ? phrase(target) : "";
};
const drawWhole = () => {
  const item = view.targets.find((other) => other.b === null && other.mark), place = document.getElementById("session-verdict");
  if (!place) return;
  place.hidden = !item;
  place.title = item ? item.sentence : "";
  draw(place, item ? html`${icon(item.mark)}<span>${`Session: ${item.words}`}</span>` : nothing);
};
const render = () => {
  const { session: number } = page(), target = current();
  root.hidden = number === null;
  drawScope(target);
  drawTarget(target);
  drawWhole();
  find(".blindly").hidden = !view.blind;
  find(".blindly span").textContent = view.blind;
  find("[data-do=review]").href = find(".blindly a").href = `./review?session=${number}`;
  drawMarks(view.targets.filter((item) => item.f !== null && here(item)));
};

/* ---- following the session ---- */
const follow = (state) => {
  if (state.session !== view.session || state.branch !== view.branch) {
    if (state.session !== view.session) { Object.assign(view, NOBODY); say(""); }
    Object.assign(view, { session: state.session, branch: state.branch });
    refresh();
  }
  attend(state);
  /* the address may name a span, the branch or the session; once */
  const { wish } = view;
  if (wish && state.session !== null) {
    view.wish = null;
    if (wish.on) view.scope = wish.on;
    else if (state.selected === wish.first) extend(wish.last);
    readdress({ on: null, last: null });
  }
  render();
};
const goTo = ({ dataset: { scope, first, last } }) => {
  view.held = null;
  if (scope === "steps") { session.select(Number(first)); anchor(page()); view.seen = Number(first); extend(Number(last)); }
  view.scope = scope;
  render();
  focusRadio();
};
const ACTIONS = {
  judge: (button) => judge(button.dataset.verdict), undo, withdraw, comment, save: () => save(), "go-to": goTo, rename: () => reviewer.ask(),
  refresh: () => { refresh(); [...view.queue, view.flight].filter((job) => job?.kind === "read").forEach((job) => { job.data.told = true; }); },
};

/* ---- keys ---- */
const topic = { topic: "Verdict" };
keys.add("Shift+ArrowRight", reach(1), "judge one token more", topic);
keys.add("Shift+ArrowLeft", reach(-1), "judge one token less, or one before", topic);
keys.add("Escape", narrow, "judge only the selected token again", topic);
Object.entries(KEYS).forEach(([name, verdict]) => keys.add(name, (event) => {
  if (!root || page().session === null || event.repeat) return false;
  judge(verdict);
  return true;
}, `${verdict}: the verdict on what is selected`, topic));
const among = (event) => {
  const by = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1 }[event.key];
  if (!by || event.shiftKey || !event.target.matches("[role=radio]")) return;
  event.preventDefault();
  const all = [...root.querySelectorAll("[role=radio]")];
  all[(all.indexOf(event.target) + by + all.length) % all.length].focus();
};
/* with Shift a press on a token reaches to it, before the strip's own handler, which would select it */
const mountSpans = () => {
  const strip = document.getElementById("transcript");
  const reached = (event) => event.shiftKey && event.target.closest?.(".strip .tok[data-i]");
  strip.addEventListener("click", (event) => {
    const hit = reached(event);
    if (!hit || page().selected < 0) return;
    event.preventDefault();
    event.stopPropagation();
    extend(Number(hit.dataset.i));
  }, true);
  strip.addEventListener("mousedown", (event) => { if (reached(event)) event.preventDefault(); }, true);
};

const verdicts = {
  mount(element, trigger, props, watch) {
    root = element.querySelector("section");
    note = find("#judge-note");
    tag = find("#judge-tag");
    reply = find("#judge-comment");
    const { drafts: typed, unsent } = recalled();
    typed.forEach(([target, draft]) => drafts.set(target, draft));
    Object.assign(view, { kept: unsent, left: typed.map(([, draft]) => draft.target) });
    send = link(trigger, props, watch, receive);
    const on = new URLSearchParams(location.search).get("on"), step = addressed("step"), last = addressed("last");
    if (["session", "branch"].includes(on)) view.wish = { on };
    else if (step !== null && last !== null) view.wish = { first: step - 1, last: last - 1 };
    act(root, ACTIONS);
    find("#judge-on").addEventListener("change", (event) => { view.held = null; view.scope = event.target.value; render(); });
    /* while she types, the target stays, even if a run goes on to other tokens */
    [note, tag].forEach((field) => {
      field.addEventListener("focus", () => { view.held = view.held || current(); });
      field.addEventListener("input", () => {
        const target = current();
        if (target) drafts.set(key(target), { note: note.value, tag: tag.value, target });
        if (view.typed && target && key(view.typed) !== key(target)) save(view.typed);
        view.typed = target;
        remember();
        saveSoon();
        find("[data-do=save]").hidden = !target || !unsaved(target);
      });
      field.addEventListener("blur", (event) => { if (!root.contains(event.relatedTarget)) save(); });
      field.addEventListener("keydown", (event) => {
        if (event.key === "Enter" && (event.ctrlKey || event.metaKey || field === tag)) { event.preventDefault(); save(); }
      });
    });
    reply.addEventListener("focus", () => { view.held = view.held || current(); });
    reply.addEventListener("keydown", (event) => { if (event.key === "Enter") { event.preventDefault(); comment(); } });
    root.addEventListener("focusout", (event) => {
      if (root.contains(event.relatedTarget)) return;
      view.held = null;
      /* the focus may leave because a drawing takes its button out, which is let end first */
      queueMicrotask(render);
    });
    root.addEventListener("keydown", among);
    mountSpans();
    onFailure(["verdict", "comment"], () => { say("Not saved; the message says why."); settle(); remember(); });
    onFailure("verdicts", settle);
    reviewer.onChange(() => { Object.assign(view, NOBODY); refresh(); render(); });
    session.watch(follow);
    render();
  },
};
expose({ verdicts });
