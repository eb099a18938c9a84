/* Verdicts on the audit page. What reviewers said of the session lives here; every change is written at once. */
"use strict";
(() => {
  const coft = window.coft;
  const marks = coft.verdictMarks;
  const KEYS = { C: "fair", U: "unfair", X: "unclear" };
  const view = {
    session: null, branch: null, reviewer: "", newest: -1, targets: [], scope: "steps", held: null, shown: "",
    queue: [], flight: null, undo: null, blind: "",
  };
  const drafts = new Map();
  let root, send, note, tag;

  const find = (selector) => root.querySelector(selector);
  const page = () => coft.session.state();
  const key = (target) => [target.session, target.scope, target.branch, target.first, target.last].join(":");

  /* ---- what a verdict is about ---- */
  /* the branch of the shown path that made a step: verdicts belong to it, from whichever branch they are given */
  const owner = (step) => {
    const path = (page().crumbs && page().crumbs.path) || [];
    const made = path.filter((node) => node.step === null || node.step - 1 <= step);
    return made.length ? made[made.length - 1].id : null;
  };
  const here = (item) => (item.f === null ? item.b === null || item.b === page().branch
    : item.l < page().cards.length && owner(item.l) === item.b);
  const found = (target) => view.targets.find((item) => here(item) && (target.scope === "session" ? item.b === null
    : target.scope === "branch" ? item.b !== null && item.f === null : item.f === target.first && item.l === target.last)) || null;
  const current = () => {
    if (view.held) return view.held;
    const { session, branch } = page();
    if (session === null) return null;
    if (view.scope === "session") return { session, scope: "session", branch: null, first: null, last: null };
    if (view.scope === "branch") return { session, scope: "branch", branch, first: null, last: null };
    const range = marks.range();
    return range && range[1] < page().cards.length ? { session, scope: "steps", branch, first: range[0], last: range[1] } : null;
  };
  const phrase = (target) => {
    if (target.scope === "session") return "the whole session";
    return target.scope === "branch" ? "this branch" : marks.steps(target.first, target.last);
  };

  /* ---- to the server, one request after the other, so that the log keeps the reviewer's order ---- */
  const pump = () => {
    if (view.flight || !view.queue.length) return;
    view.flight = view.queue.shift();
    const { kind, data } = view.flight;
    view.flight.nonce = send(kind, { ...data, reviewer: kind === "read" ? coft.reviewer.name() : data.reviewer });
  };
  const refresh = () => {
    if (page().session === null) return;
    view.queue = view.queue.filter((job) => job.kind !== "read");
    view.queue.push({ kind: "read", data: { session: page().session } });
    pump();
  };
  const say = (text, undo = null) => {
    find(".said").textContent = text;
    view.undo = undo;
    find("[data-do=undo]").hidden = !undo;
  };
  const settle = () => { view.flight = null; pump(); render(); };
  const receive = (message) => {
    const job = view.flight && view.flight.nonce === message.nonce ? view.flight : null;
    /* the log only grows: a reading of fewer entries is an older one */
    if (message.session === page().session && message.reviewer === coft.reviewer.name() && message.newest >= view.newest) {
      Object.assign(view, { targets: message.targets, newest: message.newest, blind: message.review, session: message.session });
    }
    if (job && job.kind === "give") {
      const draft = drafts.get(key(job.target));
      if (draft && draft.note === job.typed.note && draft.tag === job.typed.tag) drafts.delete(key(job.target));
      say(message.said, job.undoes ? null : { target: job.target, back: job.before });
    } else if (job && job.kind === "read" && job.data.told) say("Verdicts are up to date.");
    if (job) settle(); else render();
  };

  /* ---- giving ---- */
  const typedFor = (target) => {
    const own = (found(target) || {}).own;
    return drafts.get(key(target)) || { note: own ? own.note : "", tag: own ? own.tag : "" };
  };
  const pending = (target) => [view.flight, ...view.queue].filter((job) => job && job.kind === "give" && key(job.target) === key(target)).pop();
  const give = (target, verdict, typed, undoes = false) => {
    const own = (found(target) || {}).own || null;
    view.queue.push({
      kind: "give", target, typed, undoes, before: own, verdict,
      data: { session: target.session, branch: target.branch, first: target.first, last: target.last, verdict, note: typed.note,
        tag: typed.tag, reviewer: coft.reviewer.name() },
    });
    find(".said").textContent = "Saving …";
    find("[data-do=undo]").hidden = true;
    pump();
    render();
  };
  const judge = async (verdict, target = current()) => {
    if (!target) return;
    if (!(await coft.reviewer.needed())) { say("Nothing was saved: verdicts need a name."); return; }
    const own = settled(target);
    const typed = typedFor(target);
    if (own && own.v === verdict && own.note.trim() === typed.note.trim() && own.tag.trim() === typed.tag.trim()) {
      say(`You said ${verdict} on ${phrase(target)} before; nothing changed.`);
      return;
    }
    give(target, verdict, typed);
  };
  /* what the log will hold of the reviewer's on a target when all that was sent is written */
  const settled = (target) => {
    const waiting = pending(target);
    return waiting ? { v: waiting.verdict, ...waiting.typed } : (found(target) || {}).own;
  };
  const unsaved = (target) => {
    const own = settled(target);
    const draft = drafts.get(key(target));
    return Boolean(own && own.v && draft && (draft.note.trim() !== own.note.trim() || draft.tag.trim() !== own.tag.trim()));
  };
  const save = (target = current()) => { if (target && unsaved(target)) give(target, settled(target).v, typedFor(target)); };
  const undo = () => {
    const { target, back } = view.undo || {};
    if (!target) return;
    find("[role=radio][tabindex='0']").focus();
    const typed = back ? { note: back.note, tag: back.tag } : { note: "", tag: "" };
    if (back) drafts.delete(key(target));
    give(target, back ? back.v : null, typed, true);
  };
  const withdraw = () => {
    const target = current();
    if (!target) return;
    find("[role=radio][tabindex='0']").focus();
    give(target, null, { note: "", tag: "" });
  };

  /* ---- what is shown ---- */
  const opinion = (item) => coft.el("li", { class: item.decides ? "decision" : null },
    coft.icon(item.v), coft.el("span", {}, coft.el("strong", { text: item.who }), ` ${item.words}`,
      item.tag ? coft.el("span", { class: "judge-tag", text: item.tag }) : null,
      coft.el("span", { class: "hint", text: ` ${item.when}` }),
      item.note ? coft.el("span", { class: "judge-note", text: item.note }) : null));
  const around = (target) => view.targets.filter((item) => item.mark && here(item) && item !== found(target)
    && (item.f === null || (target.scope === "steps" && item.f <= target.last && target.first <= item.l)));
  const related = (item) => {
    const scope = item.b === null ? "session" : item.f === null ? "branch" : "steps";
    const words = `${phrase({ scope, first: item.f, last: item.l })}: ${item.words}`;
    return coft.el("button", { type: "button", class: "btn small quiet", "data-do": "go-to", "data-scope": scope, "data-first": item.f, "data-last": item.l },
      coft.icon(item.mark), words);
  };
  const setField = (field, value, fresh) => {
    if (field.value !== value && (fresh || document.activeElement !== field)) field.value = value;
  };
  const drawTarget = (target) => {
    const item = target && found(target);
    const own = item && item.own;
    const waiting = target && pending(target);
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
    find(".signed").textContent = own ? `${coft.reviewer.name()}, ${own.saved}` : coft.reviewer.name() || "No name yet";
    find(".status").hidden = !item || (item.says.length < 2 && Boolean(own));
    find(".status .how").textContent = item ? item.sentence : "";
    find(".status ul").replaceChildren(...(item ? item.says.map(opinion) : []));
    find(".status .next").hidden = !item || item.status !== "disputed";
    const others = target ? around(target) : [];
    find(".related").hidden = others.length === 0;
    find(".related").replaceChildren(coft.el("span", { class: "hint", text: "Also judged:" }), ...others.map(related));
  };
  const drawScope = (target) => {
    const menu = find("#judge-on");
    const steps = marks.range();
    const wide = steps && steps[1] > steps[0];
    menu.options[0].textContent = wide ? "this span" : "this token";
    menu.options[0].disabled = page().selected < 0;
    menu.value = view.held ? view.held.scope : view.scope;
    find(".on-what").textContent = target ? (target.scope === "steps" ? phrase(target) : "") : "select a token to judge it";
  };
  const drawWhole = () => {
    const item = view.targets.find((other) => other.b === null && other.mark);
    const place = document.getElementById("session-verdict");
    if (!place) return;
    place.hidden = !item;
    place.replaceChildren(...(item ? [coft.icon(item.mark), coft.el("span", { text: `Session: ${item.words}` })] : []));
    place.title = item ? item.sentence : "";
  };
  const render = () => {
    const state = page();
    root.hidden = state.session === null;
    const target = current();
    drawScope(target);
    drawTarget(target);
    drawWhole();
    find(".blindly").hidden = !view.blind;
    find(".blindly span").textContent = view.blind;
    find("[data-do=review]").href = `./review?session=${state.session}`;
    find(".blindly a").href = `./review?session=${state.session}`;
    marks.draw(view.targets.filter((item) => item.f !== null && here(item)));
  };

  /* ---- following the session ---- */
  let seen = -1, wish = null;
  /* the address may name a span, the branch or the session; once */
  const fulfil = (state) => {
    if (wish.on) view.scope = wish.on;
    else if (state.selected === wish.first) marks.extend(wish.last);
    wish = null;
    const target = new URL(location.href);
    ["on", "last"].forEach((name) => target.searchParams.delete(name));
    history.replaceState(history.state, "", target);
  };
  const follow = (state) => {
    if (state.session !== view.session || state.branch !== view.branch) {
      if (state.session !== view.session) { Object.assign(view, { targets: [], newest: -1, blind: "" }); say(""); }
      Object.assign(view, { session: state.session, branch: state.branch });
      refresh();
    }
    if (state.selected !== seen) { view.scope = state.selected < 0 ? "session" : "steps"; seen = state.selected; }
    marks.follow(state);
    if (wish && state.session !== null) fulfil(state);
    render();
  };
  const goTo = (button) => {
    const { scope, first, last } = button.dataset;
    view.held = null;
    if (scope === "steps") { coft.session.select(Number(first)); marks.follow(page()); seen = Number(first); marks.extend(Number(last)); }
    view.scope = scope;
    render();
    find("[role=radio][tabindex='0']").focus();
  };
  const renamed = () => { Object.assign(view, { targets: [], newest: -1, blind: "" }); refresh(); render(); };

  /* ---- keys ---- */
  const byKey = (verdict) => (event) => {
    if (!root || page().session === null || event.repeat) return false;
    judge(verdict);
    return true;
  };
  Object.entries(KEYS).forEach(([key, verdict]) => coft.keys.add(key, byKey(verdict), `${verdict}: the verdict on what is selected`, { topic: "Verdict" }));
  const among = (event) => {
    const by = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1 }[event.key];
    if (!by || event.shiftKey || !event.target.matches("[role=radio]")) return;
    event.preventDefault();
    const all = [...root.querySelectorAll("[role=radio]")];
    all[(all.indexOf(event.target) + by + all.length) % all.length].focus();
  };

  coft.verdicts = {
    refresh,
    mount(element, trigger, props, watch) {
      root = element.querySelector("section");
      note = find("#judge-note");
      tag = find("#judge-tag");
      send = coft.link(trigger, props, watch, receive);
      const asked = new URLSearchParams(location.search);
      const [step, last] = [coft.addressed("step"), coft.addressed("last")];
      if (["session", "branch"].includes(asked.get("on"))) wish = { on: asked.get("on") };
      else if (step !== null && last !== null) wish = { first: step - 1, last: last - 1 };
      coft.act(root, {
        judge: (button) => judge(button.dataset.verdict), undo, withdraw, save: () => save(), "go-to": goTo,
        refresh: () => { refresh(); view.queue.concat(view.flight || []).filter((job) => job.kind === "read").forEach((job) => { job.data.told = true; }); },
        rename: () => coft.reviewer.ask(),
      });
      find("#judge-on").addEventListener("change", (event) => { view.held = null; view.scope = event.target.value; render(); });
      /* while she types, the target stays, even if a run goes on to other tokens */
      [note, tag].forEach((field) => {
        field.addEventListener("focus", () => { view.held = view.held || current(); });
        field.addEventListener("input", () => {
          const target = current();
          if (target) drafts.set(key(target), { note: note.value, tag: tag.value });
          find("[data-do=save]").hidden = !target || !unsaved(target);
        });
        field.addEventListener("blur", (event) => {
          if (!root.contains(event.relatedTarget)) save();
        });
        field.addEventListener("keydown", (event) => {
          if (event.key === "Enter" && (event.ctrlKey || event.metaKey || field === tag)) { event.preventDefault(); save(); }
        });
      });
      root.addEventListener("focusout", (event) => {
        if (!root.contains(event.relatedTarget)) { view.held = null; render(); }
      });
      root.addEventListener("keydown", among);
      marks.mount();
      marks.onChange(() => { view.scope = "steps"; render(); });
      coft.onFailure("verdict", () => { say("Not saved; the message says why."); settle(); });
      coft.onFailure("verdicts", settle);
      coft.reviewer.onChange(renamed);
      coft.session.watch(follow);
      render();
    },
  };
})();
