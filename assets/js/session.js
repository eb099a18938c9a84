/* One session: the chain's cards, and the messages that make it grow. Looking at a token asks nobody. */
"use strict";
(() => {
  const coft = window.coft;
  const state = {
    session: null, branch: null, cards: [], bins: [], total: 0, finished: null, selected: -1,
    running: false, pausing: false, busy: null, touched: false, based: null, values: null, printed: "", follow: true,
    crumbs: null, prompt: "", nochain: "", chain: null, why: "", restored: false,
  };
  /* while a run writes, everything but the tokens themselves is drawn at most this often */
  const PACE = 150;
  let root, strip, reel, overview, binLabels, caret, send, tokens = [], frame = null, drawn = 0;
  let missing = null;
  const watchers = [];

  const find = (selector) => root.querySelector(selector);
  const ids = () => ({ session: state.session, branch: state.branch });
  const ask = (name, data) => { state.busy = name; coft.controls.show(); send(name, data); };
  const idle = () => { state.busy = null; state.running = false; state.pausing = false; coft.controls.show(); };
  const notice = (...children) => coft.notice(find(".notice"), ...children);

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
    state.selected = wanted;
    coft.inspector.turn(state.cards[wanted] || null);
    later();
  };
  /* a token that someone chose, and not the run: the run no longer takes the selection along, unless it is the last */
  const choose = (index, focus = false) => {
    state.follow = index >= state.cards.length - 1;
    select(index, focus);
  };
  const inView = () => {
    if (state.follow && state.selected === state.cards.length - 1) reel.scrollTop = reel.scrollHeight;
    else if (tokens[state.selected]) coft.reveal(reel, tokens[state.selected]);
  };

  /* many tokens may arrive within one frame; what shows them follows once */
  const later = () => {
    if (frame === null) {
      const wait = state.running ? drawn + PACE - performance.now() : 0;
      if (wait > 0) frame = setTimeout(() => { frame = requestAnimationFrame(draw); }, wait);
      else frame = requestAnimationFrame(draw);
    }
    coft.controls.show();
  };
  const draw = () => {
    frame = null;
    drawn = performance.now();
    inView();
    coft.drawOverview(overview, binLabels, state);
    coft.inspector.show(state.cards[state.selected] || null, state);
    coft.whole.show(state.chain, state);
    coft.spans.show(state);
    coft.charts.show(state.cards, state.selected);
    watchers.forEach((watcher) => watcher(state));
  };

  /* ---- the chain ---- */
  const append = (cards) => {
    for (const card of cards) {
      if (card.i !== state.cards.length) continue;
      state.cards.push(card);
      tokens.push(coft.appendToken(strip, caret, card));
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
    const end = message.length ?? message.from + message.steps.length;
    if (message.from > state.cards.length || (message.done && end > state.cards.length + message.steps.length)) {
      fetchMissing(message);
      return;
    }
    const known = state.cards.length;
    append(message.steps);
    const grown = state.cards.length > known;
    if (message.finished) state.finished = message.finished;
    state.chain = message.chain;
    coft.whole.computed(message.computed);
    caret.hidden = Boolean(state.finished);
    if (message.done) {
      state.why = message.why || "";
      idle();
    } else if (state.pausing) send("pause", ids());
    const follow = (state.follow && !coft.inspector.typing()) || state.selected < 0;
    if (grown && follow) select(state.cards.length - 1, strip.contains(document.activeElement));
    else later();
  };

  /* ---- messages ---- */
  const open = (data) => ask("open", {
    session: null, branch: null, calibration: null, duplicate: null, policy: null, values: null, ...data,
  });
  const reopen = (branch) => open({ session: state.session, branch });
  const address = (message) => {
    const target = new URL(location.href);
    target.searchParams.set("session", message.session);
    target.searchParams.set("branch", message.branch);
    ["calibration", "duplicate", "policy", "step"].forEach((name) => target.searchParams.delete(name));
    history.replaceState(history.state, "", target);
  };
  const load = (message) => {
    const same = message.from > 0;
    Object.assign(state, {
      session: message.session, branch: message.branch, bins: message.bins, total: message.total,
      finished: message.finished, touched: false, restored: false, crumbs: message.crumbs, follow: true,
      prompt: message.prompt, nochain: message.nochain, chain: message.chain, why: "",
    });
    missing = null;
    notice();
    find(".empty").hidden = true;
    find(".chain").hidden = false;
    find(".legend .open .w").textContent = message.certified ? "uninformative" : "uncertified";
    binLabels.dataset.total = "";
    if (same) cut(message.from);
    else { state.cards = []; tokens = []; caret = coft.caret(); strip.replaceChildren(caret); state.selected = -1; }
    append(message.steps);
    caret.hidden = Boolean(state.finished);
    coft.reserve(reel, strip, state);
    const { choice, look } = coft.unsaved;
    coft.editor.load(message.prompt, message.spans, message.preview, choice(message.settings), look(message.settings));
    state.printed = coft.editor.print();
    if (message.settings) state.based = message.settings;
    coft.cautions(find(".cautions"), message.warnings);
    coft.whole.method(message.method);
    coft.whole.computed(message.computed);
    coft.branches.draw(find(".crumbs"), message.crumbs, state);
    coft.whole.cost(message.cost, state.session);
    coft.frame.saved(message.saved);
    address(message);
    idle();
    const at = coft.permalink.wanted(state) ?? (same ? message.from : message.crumbs.at ?? state.cards.length - 1);
    choose(at);
  };
  /* another session's prompt, spans and settings, to be changed and started */
  const draft = (message) => {
    const { choice, look } = coft.unsaved;
    coft.editor.load(message.prompt, message.spans, message.preview, choice(message.settings), look(message.settings));
    coft.frame.saved(message.saved);
    notice(coft.el("span", { text: ["A copy of a session: change what you like; Start begins a new one.", ...message.notes].join(" ") }));
    idle();
  };
  const mismatch = (message) => {
    idle();
    notice(coft.el("span", { text: message.text }),
      coft.el("button", { type: "button", class: "btn small", "data-do": "proceed", text: "Proceed uncertified" }));
  };
  const receive = (message) => {
    if (message.kind === "session") {
      if (state.busy === "start") coft.unsaved.forget();
      load(message);
      coft.unsaved.opened(message);
    }
    else if (message.kind === "steps") (message.filled ? fill : extend)(message);
    else if (message.kind === "draft") { draft(message); coft.unsaved.opened(message); }
    else if (message.kind === "blank") { idle(); coft.unsaved.opened(message); }
    else if (message.kind === "mismatch") mismatch(message);
    else if (message.kind === "overhead") { coft.whole.measured(message.text); idle(); }
    else idle();
  };

  const refused = () => {
    idle();
    const asked = new URLSearchParams(location.search);
    if (state.session !== null || !(asked.has("session") || asked.has("duplicate"))) return;
    history.replaceState(history.state, "", location.pathname);
    open({});
  };
  /* the transcript and the wire to the server are two components, and either may be there first */
  const begin = () => {
    if (!root || !send) return;
    coft.onFailure("open", refused);
    coft.lost.push(() => { missing = null; if (state.busy) idle(); });
    coft.onFailure("more", () => { missing = null; idle(); });
    ["start", "step", "run", "fork"].forEach((name) => coft.onFailure(name, idle));
    coft.onFailure("overhead", () => { coft.whole.measured(""); idle(); });
    const query = new URLSearchParams(location.search);
    open({
      session: coft.addressed("session"), branch: coft.addressed("branch"), calibration: coft.addressed("calibration"),
      duplicate: coft.addressed("duplicate"), policy: query.get("policy"), values: coft.unsaved.values(),
    });
  };

  coft.session = {
    select, choose, open, load, extend, ask, idle, ids, notice,
    state: () => state,
    /* the token's elements in the strip, by step */
    tokens: () => tokens,
    settings(values) {
      state.values = values;
      coft.editor.chosen(coft.unsaved.choice(values), coft.unsaved.look(values));
      coft.unsaved.compare();
    },
    compare: () => coft.unsaved.compare(),
    choice: (values) => coft.unsaved.choice(values),
    look: (values) => coft.unsaved.look(values),
    /* other parts of the page follow the session: called once a frame after anything of it changed */
    watch: (watcher) => watchers.push(watcher),
    reopen: (branch) => { if (!state.busy) reopen(branch); },
    send: (name, data) => send(name, data),
    place(element) {
      root = element.querySelector("section");
      strip = find(".strip");
      reel = find(".reel");
      overview = find(".overview");
      binLabels = find(".ovlab");
      caret = coft.caret();
      coft.whole.mount(root);
      coft.controls.mount(root);
      coft.stepping.mount(root);
      strip.addEventListener("click", (event) => {
        const hit = event.target.closest(".tok[data-i]");
        if (hit) choose(Number(hit.dataset.i), true);
      });
      overview.addEventListener("click", (event) => {
        const at = coft.overviewStep(overview, event.clientX, state);
        if (at < state.cards.length) choose(at);
      });
      coft.onScrollAway(reel, () => { if (state.running) state.follow = false; });
      root.addEventListener("click", (event) => {
        const hit = event.target.closest("[data-branch]");
        if (hit && !state.busy) reopen(Number(hit.dataset.branch));
      });
      window.addEventListener("resize", () => {
        if (state.session !== null) coft.reserve(reel, strip, state);
        if (state.cards.length) later();
      });
      begin();
    },
    mount(trigger, props, watch) {
      send = coft.link(trigger, props, watch, receive);
      begin();
    },
  };
})();
