/* Drawing a chain: tokens are appended one by one; only the overview, one element per step, is drawn anew. */
"use strict";
(() => {
  const coft = window.coft;
  const MOST_CELLS = 256;

  const token = (card) => {
    const classes = `tok ${card.c}${card.g ? " glue" : ""}`;
    const heat = coft.el("span", { class: "heat" });
    if (card.h) heat.append(coft.el("i", { class: card.n ? "neg" : null, style: `height:${card.h}px` }));
    return coft.el("button", { type: "button", class: classes, "data-i": card.i, tabindex: "-1", title: card.sr },
      coft.el("span", { class: "mk" }, ...card.k.map(coft.icon)), coft.el("span", { class: "w", text: card.w }), heat,
      coft.el("span", { class: "vh", text: `, ${card.sr}` }));
  };

  /* punctuation and word parts stay on the line of their word */
  coft.appendToken = (strip, caret, card) => {
    const node = token(card);
    const last = caret.previousElementSibling;
    if (card.g && last) {
      if (last.classList.contains("grp")) last.append(node);
      else {
        const group = coft.el("span", { class: "grp" });
        last.replaceWith(group);
        group.append(last, node);
      }
    } else strip.insertBefore(node, caret);
    return node;
  };
  coft.caret = () => coft.el("span", { class: "tok caret", "aria-hidden": "true" },
    coft.el("span", { class: "mk" }), coft.el("span", { class: "w", text: " " }), coft.el("span", { class: "heat" }));

  /* ---- the strip's own region: it has its height before the tokens come, and scrolls when they are more ---- */
  const LINE = 54;
  const TYPICAL = 60;
  const MOST_LINES = 7;
  coft.reserve = (reel, strip, { cards, total, finished }) => {
    const wide = reel.clientWidth || 640;
    const expected = finished ? 0 : Math.ceil((Math.max(total, cards.length) * TYPICAL) / wide);
    reel.style.minHeight = `${Math.min(MOST_LINES, Math.max(1, expected)) * LINE + 8}px`;
    reel.style.maxHeight = `${MOST_LINES * LINE + 8}px`;
  };
  /* bring a token into its region, and leave the page where it is */
  coft.reveal = (reel, node) => {
    const box = node.getBoundingClientRect();
    const seen = reel.getBoundingClientRect();
    if (box.top < seen.top) reel.scrollTop -= seen.top - box.top + 4;
    else if (box.bottom > seen.bottom) reel.scrollTop += box.bottom - seen.bottom + 4;
  };
  /* a person's own scrolling, told from the page's */
  coft.onScrollAway = (reel, run) => {
    const check = () => requestAnimationFrame(() => { if (reel.scrollTop + reel.clientHeight < reel.scrollHeight - 8) run(); });
    ["wheel", "touchmove", "pointerdown"].forEach((name) => reel.addEventListener(name, check, { passive: true }));
  };

  const boundary = (bins, total) => bins.filter((bin) => bin.first < total)
    .map((bin) => ({ ...bin, end: Math.min(total, bin.last === null ? total : bin.last + 1) }));
  const DASH = { uninformative: "5 3", inherited: "1.5 3", none: "5 3" };

  const totalOf = (state) => Math.max(state.total, state.cards.length, 1);
  const perCell = (total) => Math.ceil(total / MOST_CELLS);
  /* the step that stands at a place of the overview: of a merged cell, the one that stands out most */
  coft.overviewStep = (holder, clientX, state) => {
    const { left, width } = holder.getBoundingClientRect();
    const total = totalOf(state);
    const per = perCell(total);
    const cell = Math.floor(((clientX - left) / width) * Math.ceil(total / per));
    const group = state.cards.slice(cell * per, (cell + 1) * per);
    return group.length ? group.reduce((a, b) => (Math.abs(b.r) > Math.abs(a.r) ? b : a)).i : state.cards.length;
  };
  /* what the last drawing showed, and its marker: another selection moves the marker alone */
  let overview = { shown: [], now: null, per: 1, width: 1 };
  coft.drawOverview = (holder, labels, state) => {
    const span = holder.clientWidth || 640;
    const shown = [holder.firstChild, state.cards, state.cards.length, state.cards[state.cards.length - 1], state.bins, state.total, span];
    if (shown.some((part, at) => part !== overview.shown[at])) {
      overview = drawSteps(holder, labels, state, span);
      overview.shown = [holder.firstChild, ...shown.slice(1)];
    }
    const at = state.selected < 0 ? null : Math.floor(state.selected / overview.per) * overview.width;
    if (overview.at === at) return;
    overview.at = at;
    overview.now.setAttribute("visibility", at === null ? "hidden" : "visible");
    if (at !== null) overview.now.setAttribute("x", at);
  };
  const drawSteps = (holder, labels, state, span) => {
    const total = totalOf(state);
    const per = perCell(total);
    const cells = Math.ceil(total / per);
    const width = span / cells;
    const hot = window.coftShared.sensitive;
    const svg = coft.svg("svg", { viewBox: `0 0 ${span} 44`, class: "chart", "aria-hidden": "true" });
    const bins = boundary(state.bins, total);
    const x = (step) => (step / total) * span;
    const now = coft.svg("rect", { class: "s-now", x: 0, y: 0.5, width, height: 41, rx: 2, visibility: "hidden" });
    svg.append(now);
    bins.slice(1).forEach((bin) => svg.append(coft.svg("line", { class: "grid", x1: x(bin.first), x2: x(bin.first), y1: 2, y2: 42 })));
    (bins.length ? bins : [{ first: 0, end: total, state: "none" }]).forEach((bin) => svg.append(coft.svg("line", {
      class: "axis", x1: x(bin.first), x2: x(bin.end), y1: 30, y2: 30, ...(DASH[bin.state] ? { "stroke-dasharray": DASH[bin.state] } : {}),
    })));
    for (let cell = 0; cell * per < state.cards.length; cell += 1) {
      const group = state.cards.slice(cell * per, (cell + 1) * per);
      const top = group.reduce((a, b) => (Math.abs(b.r) > Math.abs(a.r) ? b : a));
      const high = Math.min(top.r < 0 ? 11 : 28, Math.abs(top.r) * 22.5);
      const kind = Math.abs(top.r) >= hot ? "s-hot" : "s-pos";
      if (high >= 0.4) svg.append(coft.svg("rect", { class: kind, x: (cell + 0.15) * width, y: top.r < 0 ? 30 : 30 - high, width: width * 0.7, height: high }));
      if (group.some((card) => card.c.includes("fallback"))) {
        const mid = (cell + 0.5) * width;
        svg.append(coft.svg("path", { d: `M${mid} 33.5l4 7h-8z`, class: "s-fall" }));
      }
    }
    holder.replaceChildren(svg);
    const peaks = state.cards.filter((card) => Math.abs(card.r) >= hot).map((card) => card.i + 1);
    holder.setAttribute("aria-label", `Sensitivity of ${state.cards.length} steps: above the line the token is likelier with the attribute visible, `
      + `below it is likelier when masked. ${peaks.length ? `Sensitive at ${peaks.length > 12 ? `${peaks.length} steps` : `steps ${peaks.join(", ")}`}.` : "No step is sensitive."}`);
    labels.style.gridTemplateColumns = bins.map((bin) => `minmax(0, ${bin.end - bin.first}fr)`).join(" ");
    if (labels.dataset.total !== String(total)) {
      labels.dataset.total = String(total);
      labels.replaceChildren(...bins.map((bin) => coft.el("span", { text: bin.label + bin.short, title: bin.state })));
    }
    return { now, per, width, at: null };
  };
})();
