/* One session: the chain's cards, the controls, the branches. The cards live here; looking at a token asks nobody. */
"use strict";
(() => {
  const coft = window.coft;
  const state = {
    session: null, branch: null, cards: [], bins: [], total: 0, finished: null, selected: -1,
    running: false, busy: null, touched: false, based: null, values: null, printed: "", follow: true, crumbs: null,
    catching: false, prompt: "", nochain: "",
  };
  let root, strip, send, frame = null;
  const watchers = [];

  const caret = () => { const node = strip.querySelector(".caret"); if (node) node.hidden = Boolean(state.finished); };
  const find = (selector) => root.querySelector(selector);
  const button = (name) => find(`[data-do=${name}]`);
  const ids = () => ({ session: state.session, branch: state.branch });
  const ask = (name, data) => { state.busy = name; controls(); send(name, data); };
  const idle = () => { state.busy = null; state.running = false; controls(); };

  /* ---- controls ---- */
  const controls = () => {
    const open = state.session !== null;
    const fresh = !open || state.touched;
    const atEnd = state.selected >= state.cards.length - 1;
    button("back").disabled = state.selected <= 0;
    button("step").disabled = !open || state.touched || state.running || (atEnd && (Boolean(state.finished) || state.busy !== null));
    const go = button("go");
    find(".word").textContent = fresh ? "Start" : "Run";
    go.disabled = state.busy !== null || (!fresh && Boolean(state.finished));
    button("pause").disabled = !state.running;
    find("[data-do=overhead]").disabled = state.busy !== null || state.touched;
    button("report").disabled = !open || state.cards.length === 0;
    const count = open ? `${state.cards.length} of ${state.total} steps` : "";
    find(".count").textContent = state.finished && !state.touched ? `${count} · ${state.finished}` : count;
  };
  const notice = (...children) => {
    const box = find(".notice");
    box.hidden = children.length === 0;
    box.replaceChildren(...children);
  };
  const flat = (value) => (Array.isArray(value) ? [...value].sort().join() : String(value ?? ""));
  /* what decides which spans are found: word list, masked families and what is never masked; see the rail's fields */
  const choice = (values) => (values
    ? [values[12], values[14] === "single" ? [values[15]] : values[13], values[18]].map(flat).join(":") : null);
  /* what decides how the masked spans read: one mask or several, hard or soft, the hint */
  const look = (values) => (values ? [values[14], values[16], values[17]].map(flat).join(":") : null);
  /* the session is what it was started with: another prompt or another setting needs a new one */
  const compare = () => {
    if (state.session === null || !state.based) return;
    const settings = state.values || state.based;
    const differs = state.based.some((value, at) => flat(value) !== flat(settings[at]))
      || coft.editor.print() !== state.printed;
    if (differs === state.touched) return;
    state.touched = differs;
    if (differs) {
      notice(coft.el("span", { text: "The prompt or the settings changed. Start begins a new audit with them; this one stays under Sessions." }),
        coft.el("button", { type: "button", class: "btn small", "data-do": "revert", text: "Back to this audit" }));
    } else notice();
    controls();
  };

  /* ---- selection ---- */
  const nodes = () => strip.querySelectorAll(".tok[data-i]");
  const select = (index, focus = false) => {
    const wanted = Math.max(-1, Math.min(index, state.cards.length - 1));
    const before = strip.querySelector(".tok.sel");
    const node = wanted < 0 ? null : strip.querySelector(`.tok[data-i="${wanted}"]`);
    if (before && before !== node) {
      before.classList.remove("sel");
      before.setAttribute("tabindex", "-1");
      before.removeAttribute("aria-current");
    }
    if (node) {
      node.classList.add("sel");
      node.setAttribute("tabindex", "0");
      node.setAttribute("aria-current", "true");
      if (focus) node.focus();
    }
    state.selected = wanted;
    later();
  };
  /* many tokens may arrive within one frame; the inspector and the charts follow once */
  const later = () => {
    if (frame !== null) return;
    frame = requestAnimationFrame(() => {
      frame = null;
      coft.drawOverview(find(".overview"), find(".ovlab"), state);
      coft.inspector.show(state.cards[state.selected] || null, state);
      coft.spans.show(state);
      coft.charts.show(state.cards, state.selected);
      watchers.forEach((watcher) => watcher(state));
    });
    controls();
  };

  /* ---- the chain ---- */
  const append = (cards) => {
    const start = performance.now();
    for (const card of cards) {
      if (card.i < state.cards.length) continue;
      if (card.i > state.cards.length) return false;
      state.cards.push(card);
      coft.appendToken(strip, card);
    }
    coft.lastAppend = (performance.now() - start) / Math.max(1, cards.length);
    return true;
  };
  const cut = (length) => {
    state.cards.length = Math.min(length, state.cards.length);
    nodes().forEach((node) => { if (Number(node.dataset.i) >= length) node.remove(); });
    strip.querySelectorAll(".grp:empty").forEach((node) => node.remove());
  };
  const extend = (message) => {
    if (message.from > state.cards.length) { catchUp(message.done); return; }
    const grown = message.steps.length && message.steps[message.steps.length - 1].i >= state.cards.length;
    const follow = state.follow || state.selected < 0;
    append(message.steps);
    if (message.finished) state.finished = message.finished;
    coft.whole.show(message.chain, state);
    caret();
    if (message.done) idle();
    if (grown && follow) select(state.cards.length - 1, strip.contains(document.activeElement));
    else later();
  };

  /* ---- branches ---- */
  const node = (item) => {
    const inner = item.step === null ? [item.token]
      : [coft.icon("pin"), String(item.step), " ", coft.el("span", { class: "mono", text: item.token })];
    return item.on ? coft.el("span", { class: "node on", "aria-current": "true" }, ...inner)
      : coft.el("button", { type: "button", class: "node", "data-branch": item.id }, ...inner);
  };
  const drawCrumbs = (crumbs) => {
    const bar = find(".crumbs");
    const parts = [];
    crumbs.path.forEach((item, at) => {
      if (at) parts.push(coft.el("span", { class: "sep", "aria-hidden": "true", text: "/" }));
      parts.push(node(item));
    });
    const side = coft.el("span", { class: "sib" });
    if (crumbs.parent !== null && crumbs.at !== null) {
      const card = state.cards[crumbs.at];
      side.append(coft.el("span", { class: "hint", text: `siblings at ${crumbs.at + 1}` }),
        coft.el("button", { type: "button", class: "node", "data-branch": crumbs.parent },
          card && card.pt !== card.w ? coft.el("span", { class: "mono", text: card.pt }) : null,
          coft.el("span", { class: "hint", text: card && card.pt !== card.w ? " COFT’s choice" : "the chain before" })));
      crumbs.siblings.forEach((item) => side.append(coft.el("button", { type: "button", class: "node", "data-branch": item.id },
        coft.el("span", { class: "mono", text: item.token }))));
    }
    if (crumbs.children.length) {
      side.append(coft.el("span", { class: "hint", text: "leads to" }), ...crumbs.children.map((item) => node({ ...item, on: false })));
    }
    if (crumbs.path.length > 1 || crumbs.children.length) bar.replaceChildren(...parts, side);
    else bar.replaceChildren();
  };
  const reopen = (branch) => ask("open", { session: state.session, branch, calibration: null, duplicate: null });
  /* a slow browser may drop frames of a run; the chain is then fetched whole, and the run goes on meanwhile */
  const catchUp = (done) => {
    if (done) { state.running = false; reopen(state.branch); return; }
    if (state.catching) return;
    state.catching = true;
    send("open", { ...ids(), calibration: null, duplicate: null });
  };

  /* ---- messages ---- */
  const load = (message) => {
    const same = message.from > 0;
    Object.assign(state, {
      session: message.session, branch: message.branch, bins: message.bins, total: message.total,
      finished: message.finished, touched: false, crumbs: message.crumbs, follow: true, prompt: message.prompt,
      nochain: message.nochain,
    });
    notice();
    find(".empty").hidden = true;
    find(".chain").hidden = false;
    find(".legend .open .w").textContent = message.certified ? "uninformative" : "uncertified";
    find(".ovlab").dataset.total = "";
    if (same) cut(message.from);
    else { state.cards = []; strip.replaceChildren(coft.caret()); state.selected = -1; }
    append(message.steps);
    caret();
    coft.editor.load(message.prompt, message.spans, message.preview, choice(message.settings), look(message.settings));
    state.printed = coft.editor.print();
    if (message.settings) state.based = message.settings;
    find(".cautions").replaceChildren(...message.warnings.map((text) => coft.el("li", {}, coft.icon("tri"), coft.el("span", { text }))));
    drawCrumbs(message.crumbs);
    coft.whole.show(message.chain, state);
    coft.whole.cost(message.cost, state.session);
    coft.frame.saved(message.saved);
    const target = new URL(location.href);
    target.searchParams.set("session", message.session);
    target.searchParams.set("branch", message.branch);
    ["calibration", "duplicate"].forEach((name) => target.searchParams.delete(name));
    history.replaceState(history.state, "", target);
    state.catching = false;
    if (state.running && !message.finished) controls(); else idle();
    const at = message.crumbs.at;
    select(same || at === null ? (same ? message.from : state.cards.length - 1) : at, false);
    later();
  };
  /* another session's prompt, spans and settings, to be changed and started */
  const draft = (message) => {
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
    if (message.kind === "session") load(message);
    else if (message.kind === "steps") extend(message);
    else if (message.kind === "draft") draft(message);
    else if (message.kind === "mismatch") mismatch(message);
    else if (message.kind === "overhead") { coft.whole.measured(message.text); idle(); }
    else idle();
  };

  /* ---- what the reviewer does ---- */
  const start = async (proceed = false) => {
    if (state.busy) return;
    state.busy = "start";
    controls();
    notice();
    const { prompt, spans } = await coft.editor.ready();
    if (!prompt.trim()) {
      idle();
      notice(coft.el("span", { text: "The prompt is empty: type the text that the model should continue." }));
      coft.editor.focus();
      return;
    }
    ask("start", { prompt, spans, proceed });
  };
  const run = () => {
    if (state.busy || state.finished) return;
    state.running = true;
    state.follow = true;
    ask("run", ids());
  };
  const go = () => (state.session === null || state.touched ? start() : run());
  const step = (focus = false) => {
    if (state.session === null || state.touched) return;
    if (state.selected < state.cards.length - 1) { state.follow = state.selected + 1 === state.cards.length - 1; select(state.selected + 1, focus); return; }
    if (state.busy || state.finished) return;
    state.follow = true;
    ask("step", ids());
  };
  const back = (focus = false) => { state.follow = false; if (state.selected > 0) select(state.selected - 1, focus); };
  const pause = () => { if (state.running) send("pause", ids()); };
  const force = (token, index = state.selected) => {
    if (state.busy || state.touched || index < 0) return;
    ask("fork", { ...ids(), index, token });
  };

  coft.session = {
    compare, step, back, go, pause, force, select,
    settings(values) { state.values = values; coft.editor.chosen(choice(values), look(values)); compare(); },
    state: () => state,
    /* other parts of the page follow the session: called once a frame after anything of it changed */
    watch: (watcher) => watchers.push(watcher),
    reopen: (branch) => { if (!state.busy) reopen(branch); },
    load: (message) => load(message),
    toggle: () => (state.running ? pause() : go()),
    mount(element, trigger, props, watch) {
      root = element.querySelector("section");
      strip = find(".strip");
      coft.whole.mount(root);
      send = coft.link(trigger, props, watch, receive);
      strip.addEventListener("click", (event) => {
        const hit = event.target.closest(".tok[data-i]");
        if (!hit) return;
        state.follow = Number(hit.dataset.i) === state.cards.length - 1;
        select(Number(hit.dataset.i), true);
      });
      root.addEventListener("click", (event) => {
        const hit = event.target.closest("[data-branch]");
        if (hit && !state.busy) reopen(Number(hit.dataset.branch));
      });
      coft.act(root, {
        back: () => back(), step: () => step(), go, pause,
        report: () => send("report", ids()),
        overhead: () => { if (!state.busy) { coft.whole.measured("Measuring …"); ask("overhead", ids()); } },
        proceed: () => start(true),
        revert: () => reopen(state.branch),
      });
      ["start", "step", "run", "fork"].forEach((name) => coft.onFailure(name, idle));
      coft.onFailure("overhead", () => { coft.whole.measured(""); idle(); });
      coft.onFailure("open", () => {
        idle();
        const asked = new URLSearchParams(location.search);
      if (state.session !== null || !(asked.has("session") || asked.has("duplicate"))) return;
        history.replaceState(history.state, "", location.pathname);
        ask("open", { session: null, branch: null, calibration: null, duplicate: null });
      });
      window.addEventListener("resize", () => { if (state.cards.length) later(); });
      const query = new URLSearchParams(location.search);
      const number = (name) => (/^\d+$/.test(query.get(name) || "") ? Number(query.get(name)) : null);
      controls();
      ask("open", { session: number("session"), branch: number("branch"), calibration: number("calibration"), duplicate: number("duplicate") });
    },
  };
})();
