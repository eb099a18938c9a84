/* The prompt: a text field over its marked copy. Spans follow the text as it is edited. */
"use strict";
(() => {
  const coft = window.coft;
  const PAUSE = 450;
  const state = {
    text: "", spans: [], removed: new Set(), history: [], ahead: [], detected: null, waiting: [], busy: false, nonce: 0, choice: null, look: null,
  };
  let root, field, backdrop, send, families, timer;
  const watchers = [];
  const tell = () => { coft.session.compare(); watchers.forEach((watcher) => watcher()); };

  /* offsets: the server counts code points, the browser counts UTF-16 units */
  const astral = (text) => /[\ud800-\udfff]/.test(text);
  const toUnits = (text, offset) => (astral(text) ? [...text].slice(0, offset).join("").length : offset);
  const toPoints = (text, offset) => (astral(text) ? [...text.slice(0, offset)].length : offset);
  const outward = (spans, text) => spans.map((s) => ({ ...s, start: toPoints(text, s.start), end: toPoints(text, s.end) }));
  const inward = (spans, text) => spans.map((s) => ({ ...s, start: toUnits(text, s.start), end: toUnits(text, s.end) }));

  const key = (span, text) => `${span.category}:${text.slice(span.start, span.end).toLowerCase()}`;
  const sorted = (spans) => [...spans].sort((a, b) => a.start - b.start);

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
      if (span.start >= before.length - tail) return [{ ...span, start: span.start + shift, end: span.end + shift }];
      return [];
    });
  };

  /* the reviewer's decisions outlive a detection */
  const merge = (found) => {
    const own = state.spans.filter((span) => span.source === "user");
    const kept = new Set(state.spans.filter((span) => span.kept && !span.whitelisted).map((span) => key(span, state.text)));
    const fresh = found
      .filter((span) => !state.removed.has(key(span, state.text)))
      .filter((span) => own.every((mine) => mine.end <= span.start || mine.start >= span.end))
      .map((span) => {
        const keep = span.kept || kept.has(key(span, state.text));
        return { ...span, kept: keep, whitelisted: span.kept && span.source !== "list", suggested: span.suggested && !keep };
      });
    return sorted([...own, ...fresh]);
  };

  const name = (category) => families[category] || category;
  /* a span as the reviewer's own decision: masked, and sure */
  const own = (span) => ({ ...span, source: "user", detail: "", kept: false, score: null, suggested: false });

  const paint = () => {
    const pieces = [];
    let at = 0;
    for (const span of sorted(state.spans)) {
      if (span.start < at) continue;
      pieces.push(document.createTextNode(state.text.slice(at, span.start)));
      const drawn = span.kept ? " white" : span.suggested ? " offer" : "";
      const mark = coft.el("span", { class: `span f-${span.category}${drawn}${span.picked ? " picked" : ""}` });
      mark.append(state.text.slice(span.start, span.end));
      mark.append(coft.el("span", { class: "fam", text: name(span.category) + (span.kept ? ", kept" : span.suggested ? ", suggested" : "") }));
      pieces.push(mark);
      at = span.end;
    }
    pieces.push(document.createTextNode(`${state.text.slice(at)}\u200b`));
    backdrop.replaceChildren(...pieces);
    /* a label that would run into the next one gives way */
    let before = null;
    for (const label of backdrop.querySelectorAll(".fam")) {
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
  const act = (name, at, word, label, spoken) => coft.el("button", {
    type: "button", class: "btn small quiet", "data-do": name, "data-at": at, "aria-label": `${spoken || label}: ${word}`, text: label,
  });
  const actions = (span, at, word) => (span.suggested
    ? [act("accept", at, word, "Accept"), act("remove", at, word, "Dismiss")]
    : [act("keep", at, word, span.kept ? "Mask it" : "Keep visible", span.kept ? "Mask" : "Keep visible"), act("remove", at, word, "Remove")]);
  const offered = () => state.spans.filter((span) => span.suggested);
  const offers = () => {
    const box = root.querySelector(".offers");
    const many = offered().length;
    box.hidden = many === 0;
    box.querySelector("[role=status]").textContent = many
      ? `${many === 1 ? "1 suggestion" : `${many} suggestions`}: shown, and not masked until you accept ${many === 1 ? "it" : "them"}.` : "";
  };

  const list = () => {
    const table = root.querySelector(".spanlist");
    table.hidden = state.spans.length === 0;
    const focus = table.contains(document.activeElement) ? [document.activeElement.dataset.do, document.activeElement.dataset.at] : null;
    table.tBodies[0].replaceChildren(...sorted(state.spans).map((span, at) => {
      const word = state.text.slice(span.start, span.end);
      const menu = coft.el("select", { class: "select small quiet", "data-do": "relabel", "data-at": at, "aria-label": `Family of ${word}` },
        ...Object.entries(families).map(([value, text]) => coft.el("option", { value, text, selected: value === span.category })));
      return coft.el("tr", { class: span.picked ? "picked" : null },
        coft.el("td", {}, coft.el("span", { class: `word${span.kept ? " white" : span.suggested ? ` offer f-${span.category}` : ""}`, text: word })),
        coft.el("td", {}, coft.el("span", { class: `sw f-${span.category}` }), menu),
        coft.el("td", { class: "sub" }, span.suggested ? coft.el("b", { class: "tag", text: "suggested" }) : null, source(span)),
        coft.el("td", { class: "hint tnum", text: `${toPoints(state.text, span.start)}–${toPoints(state.text, span.end)}` }),
        coft.el("td", { class: "num" }, ...actions(span, at, word)));
    }));
    if (focus) {
      const again = table.querySelector(`[data-do="${focus[0]}"][data-at="${focus[1]}"]`) || table.querySelector("button");
      if (again) again.focus();
    }
  };

  const reading = (preview) => {
    const box = root.querySelector(".reading");
    box.hidden = !preview || !state.text.trim();
    if (!preview) return;
    box.querySelector(".counts").textContent = preview.counts;
    const reads = box.querySelector(".masked");
    reads.replaceChildren(...preview.pieces.map(([text, masked]) =>
      (masked ? coft.el("b", { text }) : document.createTextNode(text))));
    /* a long one scrolls, and is then scrolled by keys as well */
    if (reads.scrollHeight > reads.clientHeight) reads.tabIndex = 0;
    else reads.removeAttribute("tabindex");
    const several = box.querySelector(".several");
    several.hidden = !preview.branches;
    several.textContent = preview.branches || "";
    cautions(state.spans.length || preview.warnings.length ? preview.warnings : []);
  };
  const cautions = (texts) => root.querySelector(".cautions")
    .replaceChildren(...texts.map((text) => coft.el("li", {}, coft.icon("tri"), coft.el("span", { text }))));

  const render = () => { paint(); list(); offers(); };

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
      state.spans = merge(inward(message.spans, state.text));
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
    if (!text.trim()) { reading(null); cautions([]); return; }
    timer = setTimeout(detect, PAUSE);
  };

  coft.editor = {
    mount(element, trigger, props, watch) {
      root = element.querySelector("section");
      field = root.querySelector("textarea");
      backdrop = root.querySelector(".backdrop");
      families = JSON.parse(root.dataset.families);
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
