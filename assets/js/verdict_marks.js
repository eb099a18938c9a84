/* What verdicts do to the strip: the span of tokens that is about to be judged, and a mark on every judged token. */
"use strict";
(() => {
  const coft = window.coft;
  const NAMES = { fair: "fair", unfair: "unfair", unclear: "unclear", disputed: "disputed" };
  /* the span goes from the selected token to `head`; it is forgotten as soon as another token is selected */
  const span = { anchor: -1, head: -1 };
  let changed = () => {};

  const steps = (first, last) => (first === last ? `step ${first + 1}` : `steps ${first + 1}–${last + 1}`);
  const range = () => (span.head < 0 ? null : [Math.min(span.anchor, span.head), Math.max(span.anchor, span.head)]);
  const follow = (state) => {
    if (span.anchor === state.selected && span.head < state.cards.length) return;
    span.anchor = state.selected;
    span.head = state.selected;
  };
  const extend = (to) => {
    const state = coft.session.state();
    if (state.selected < 0) return;
    follow(state);
    span.head = Math.max(0, Math.min(to, state.cards.length - 1));
    changed();
  };

  const reach = (by) => () => {
    if (coft.session.state().selected < 0) return false;
    extend(span.head + by);
    return true;
  };
  const narrow = () => {
    if (span.head === span.anchor) return false;
    span.head = span.anchor;
    changed();
    return true;
  };
  coft.keys.add("Shift+ArrowRight", reach(1), "judge one token more", { topic: "Verdict" });
  coft.keys.add("Shift+ArrowLeft", reach(-1), "judge one token less, or one before", { topic: "Verdict" });
  coft.keys.add("Escape", narrow, "judge the selected token alone again", { topic: "Verdict" });

  /* ---- marks ---- */
  const mark = (node, item, step) => {
    const old = node.querySelector(".vd");
    const text = item ? `, verdict ${item.words}${item.f === item.l ? "" : ` on ${steps(item.f, item.l)}`}` : "";
    const print = item ? `${item.mark}:${step === item.f}:${item.l > item.f}:${text}` : "";
    if ((old ? old.dataset.print : "") === print) return;
    if (old) old.remove();
    if (!item) return;
    const icon = coft.icon(item.mark);
    icon.classList.add("solid");
    node.append(coft.el("span", { class: `vd ${item.mark}${item.l > item.f ? " run" : ""}`, "data-print": print },
      step === item.f ? icon : null, coft.el("span", { class: "vh", text })));
  };
  /* a step shows its own verdict, or that of the shortest span around it */
  const shownAt = (items) => {
    const found = new Map();
    for (const item of [...items].sort((a, b) => (b.l - b.f) - (a.l - a.f))) {
      for (let step = item.f; step <= item.l; step += 1) found.set(step, item);
    }
    return found;
  };

  /* what the last drawing went by: only tokens whose marks may differ from then are looked at */
  let drawn = { nodes: null, count: 0, end: null, items: [], range: null };
  const alike = (a, b) => a.length === b.length && a.every((item, at) => item === b[at]);
  const spanned = (nodes, [first, last], on) => nodes.slice(first, last + 1).forEach((node) => node.classList.toggle("spanned", on));

  coft.verdictMarks = {
    span, range, steps, follow, extend,
    onChange: (handler) => { changed = handler; },
    draw(items) {
      const nodes = coft.session.tokens();
      const grown = nodes === drawn.nodes && drawn.count > 0 && nodes[drawn.count - 1] === drawn.end && alike(items, drawn.items);
      const from = grown ? drawn.count : 0;
      if (from < nodes.length) {
        const found = shownAt(items.filter((item) => NAMES[item.mark]));
        for (let step = from; step < nodes.length; step += 1) mark(nodes[step], found.get(step) || null, step);
      }
      const wanted = range();
      const wide = wanted && wanted[1] > wanted[0] ? wanted : null;
      if (!grown || String(wide) !== String(drawn.range)) {
        if (drawn.range) spanned(nodes, drawn.range, false);
        if (wide) spanned(nodes, wide, true);
      }
      drawn = { nodes, count: nodes.length, end: nodes[nodes.length - 1], items, range: wide };
    },
    mount() {
      const holder = document.getElementById("transcript");
      /* before the strip's own handler, which would select the token */
      holder.addEventListener("click", (event) => {
        const hit = event.shiftKey && event.target.closest && event.target.closest(".strip .tok[data-i]");
        if (!hit || coft.session.state().selected < 0) return;
        event.preventDefault();
        event.stopPropagation();
        extend(Number(hit.dataset.i));
      }, true);
      holder.addEventListener("mousedown", (event) => {
        if (event.shiftKey && event.target.closest && event.target.closest(".strip .tok[data-i]")) event.preventDefault();
      }, true);
    },
  };
})();
