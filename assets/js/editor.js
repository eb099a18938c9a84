/* The prompt: a text field over its marked copy. Spans follow the text as it is edited; edits of spans can be undone. */
"use strict";
(() => {
  const coft = window.coft;
  const PAUSE = 450;
  const state = {
    text: "", spans: [], removed: new Set(), history: [], ahead: [], detected: null, waiting: [], busy: false, nonce: 0, choice: null, look: null,
  };
  const { outward, inward, key, sorted, followed, own, merged } = coft.marking;
  let root, field, view, send, timer;
  const watchers = [];
  const tell = () => { coft.session.compare(); watchers.forEach((watcher) => watcher()); };

  /* ---- undo and redo of span edits; `whole` marks the change to another text, which comes back with its spans ---- */
  const copy = (whole) => ({ text: state.text, spans: state.spans.map((s) => ({ ...s })), removed: new Set(state.removed), whole });
  const stacks = () => {
    root.querySelector("[data-do=undo]").disabled = state.history.length === 0;
    root.querySelector("[data-do=redo]").disabled = state.ahead.length === 0;
  };
  const remember = (whole = false) => {
    state.history.push(copy(whole));
    if (state.history.length > 50) state.history.shift();
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
    if (state.detected === null) { clearTimeout(timer); timer = setTimeout(detect, PAUSE); }
    return true;
  };
  const undo = () => back(state.history, state.ahead);
  const redo = () => back(state.ahead, state.history);
  /* in the text, the browser's own undo goes first for letters that were typed since the last span edit */
  const spansFirst = (stack) => stack.length > 0 && stack[stack.length - 1].text === state.text;

  const offered = () => state.spans.filter((span) => span.suggested);
  const paint = () => view.paint(state.text, state.spans);
  const reading = (preview) => view.reading(preview, state.text, state.spans);
  const render = () => { paint(); view.list(state.text, state.spans); view.offers(offered().length); };

  const wire = (spans) => outward(spans.map(({ picked, whitelisted, ...span }) => span), state.text);
  const preview = () => {
    if (!state.text.trim()) { reading(null); return; }
    state.nonce = send("preview", { prompt: state.text, spans: wire(state.spans) });
  };
  const changed = () => { render(); preview(); tell(); };

  const detect = () => {
    clearTimeout(timer);
    if (!state.text.trim()) return;
    if (state.busy) { state.again = true; return; }
    state.busy = state.text;
    send("detect", { prompt: state.text });
  };

  const receive = (message) => {
    if (message.kind === "spans") {
      const text = state.busy;
      if (text === false) return;
      state.busy = false;
      if (text !== state.text || state.again) { state.again = false; detect(); return; }
      state.detected = text;
      root.querySelector(".bar [data-do=detect]").textContent = "Detect again";
      state.spans = merged(inward(message.spans, state.text), state);
      render();
      preview();
      tell();
      state.waiting.splice(0).forEach((resolve) => resolve());
    } else if (message.kind === "preview" && message.nonce === state.nonce) reading(message);
  };

  const selection = () => {
    const { selectionStart: start, selectionEnd: end } = field;
    const text = state.text.slice(start, end);
    const inner = text.trim();
    if (!inner) return null;
    const first = start + text.indexOf(inner);
    return { start: first, end: first + inner.length, text: inner };
  };
  const choose = () => {
    const range = document.activeElement === field ? selection() : null;
    const caret = document.activeElement === field && !range ? field.selectionStart : -1;
    let moved = false;
    for (const span of state.spans) {
      const picked = caret >= 0 && caret >= span.start && caret <= span.end;
      if (Boolean(span.picked) !== picked) { span.picked = picked; moved = true; }
    }
    if (moved) render();
    if (!range && root.querySelector(".marking").contains(document.activeElement)) return;
    state.range = range;
    root.querySelector(".marking .idle").hidden = Boolean(range);
    root.querySelector(".marking .chosen").hidden = !range;
    if (range) root.querySelector(".picked-text").textContent = range.text;
  };
  const mark = () => {
    const range = state.range || selection();
    if (!range) return;
    remember();
    const category = root.querySelector("#mark-family").value;
    const { start, end } = range;
    state.spans = sorted([
      ...state.spans.filter((span) => span.end <= start || span.start >= end),
      own({ start, end, category }),
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
    state.spans = state.spans.map((span) => (chosen.includes(span) ? own(span) : span));
    changed();
  };

  /* what an audit of a phantom's scenario should find; it holds for that text alone */
  const planted = (text) => {
    const line = root.querySelector(".planted");
    line.hidden = !text;
    line.textContent = text ? `Embedded model, ${text}.` : "";
  };

  const write = (text) => {
    if (text === state.text) return;
    planted("");
    state.spans = followed(state.spans, state.text, text);
    state.text = text;
    render();
    tell();
    clearTimeout(timer);
    if (!text.trim()) { reading(null); view.cautions([]); return; }
    timer = setTimeout(detect, PAUSE);
  };

  coft.editor = {
    mount(element, trigger, props, watch) {
      root = element.querySelector("section");
      field = root.querySelector("textarea");
      view = coft.editorView(root, JSON.parse(root.dataset.families));
      send = coft.link(trigger, props, watch, receive);
      field.addEventListener("input", () => write(field.value));
      document.addEventListener("selectionchange", choose);
      field.addEventListener("blur", () => setTimeout(choose, 0));
      root.querySelector("#examples").addEventListener("change", (event) => {
        if (event.target.value) coft.editor.take(event.target.value);
        event.target.value = "";
      });
      root.querySelector("#phantoms").addEventListener("change", (event) => {
        const chosen = event.target.selectedOptions[0];
        if (event.target.value) coft.editor.take(event.target.value);
        planted(chosen.dataset.planted || "");
        event.target.value = "";
      });
      root.addEventListener("change", (event) => {
        if (event.target.dataset.do === "relabel") {
          edit(event.target, (span) => Object.assign(span, own({ ...span, category: event.target.value })));
        }
      });
      coft.act(root, {
        detect: () => { remember(); state.removed.clear(); state.spans = state.spans.filter((s) => s.source === "user"); detect(); },
        undo, redo, mark,
        accept: (node) => accept([at(node)]),
        "accept-all": () => { accept(offered()); field.focus(); },
        /* a term that a list keeps is masked by the reviewer's own decision, which outlives the next detection */
        keep: (node) => edit(node, (span) => {
          if (span.kept && span.source === "list") Object.assign(span, own(span));
          else span.kept = !span.kept;
        }),
        remove: (node) => edit(node, (span) => {
          state.removed.add(key(span, state.text));
          state.spans = state.spans.filter((other) => other !== span);
        }),
      });
      coft.onFailure("detect", () => { state.busy = false; state.waiting.splice(0); });
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
      clearTimeout(timer);
      if (choice) Object.assign(state, { choice, look });
      field.value = text;
      Object.assign(state, { text, detected: text, history: [], ahead: [], busy: false });
      state.removed.clear();
      state.spans = inward(spans, text);
      stacks();
      root.querySelector(".bar [data-do=detect]").textContent = text ? "Detect again" : "Detect";
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
      coft.editor.load(kept.prompt, kept.spans, null, choice, look);
      state.removed = new Set(kept.removed);
      if (kept.settled) preview();
      else { state.detected = null; detect(); }
    },
    /* other parts of the page follow the prompt and its spans */
    watch: (watcher) => watchers.push(watcher),
    print: () => JSON.stringify([state.text, wire(sorted(state.spans))]),
    focus() { field.focus(); },
  };

  const inPrompt = { topic: "Prompt", page: "#prompt", within: "#prompt" };
  coft.keys.add("Alt+M", () => mark(), "mark the selected text as a span", inPrompt);
  coft.keys.add("Alt+A", () => accept(offered().filter((span) => span.start <= field.selectionEnd && span.end >= field.selectionStart)),
    "accept the suggestion at the cursor", inPrompt);
  const inEditor = { topic: "Prompt", page: "#prompt", within: "#editor" };
  coft.keys.add("Ctrl+Z", (event) => (event.target === field ? spansFirst(state.history) : true) && undo(), "undo the last span edit", inEditor);
  coft.keys.add(["Ctrl+Shift+Z", "Ctrl+Y"], (event) => (event.target === field ? spansFirst(state.ahead) : true) && redo(),
    "redo it", { ...inEditor, shown: ["Ctrl", "Y"] });
})();
