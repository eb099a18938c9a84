/* Plotly charts: Gradio draws them once, and they are updated in place; a theme swaps the template alone. */
"use strict";
(() => {
  const coft = window.coft;
  const shared = window.coftShared;
  const plot = (id) => document.querySelector(`#${id} .js-plotly-plot`);
  const template = () => shared.templates[coft.theme()];
  const colour = (name) => shared.palettes[coft.theme()][name];
  const SHOWN = 6;
  let caption = null;
  let pending = null;

  const draw = (id, data, layout) => {
    const node = plot(id);
    if (!node || !window.Plotly) return false;
    window.Plotly.react(node, data, { ...node.layout, ...layout, template: template(), autosize: true }, shared.config);
    return true;
  };

  const tauLine = (tau, axis = "y") => ({
    type: "line", xref: "paper", x0: 0, x1: 1, yref: axis, y0: tau, y1: tau,
    line: { dash: "5px,3px", width: 1.5, color: colour("text") },
  });

  const candidates = (card) => {
    const places = card.rows.slice(0, SHOWN).map((_, i) => i);
    const data = ["factual", "masked", "fused"].map((name, view) => ({
      type: "bar", name, x: places, y: places.map((i) => card.p[view][i]),
      hovertemplate: `${name} %{y:.4g}<extra></extra>`,
    }));
    const highest = Math.max(card.tau || 0, ...card.p.flatMap((values) => values.slice(0, SHOWN)));
    const shapes = card.tau === null ? [] : [tauLine(card.tau)];
    const annotations = card.tau === null ? [] : [{
      x: 1, xref: "paper", y: card.tau, text: `<b>${card.fam.length > 1 ? "smallest " : ""}τ ${card.tt}</b>`, showarrow: false, xanchor: "right", yanchor: "bottom",
      bgcolor: colour("surface"), borderpad: 1, font: { color: colour("text"), size: 11 },
    }];
    const node = plot("candidates-plot");
    const axis = node ? node.layout.xaxis : {};
    const names = places.map((i) => coft.shown(card.rows[i].t)).map((t) => (t.length > 10 ? `${t.slice(0, 9)}…` : t));
    return draw("candidates-plot", data, {
      shapes, annotations,
      xaxis: { ...axis, tickmode: "array", tickvals: places, ticktext: names, range: [-0.5, SHOWN - 0.5] },
      yaxis: { ...(node ? node.layout.yaxis : {}), range: [0, highest * 1.12], autorange: false },
    });
  };

  const runs = (cards) => {
    const found = [];
    cards.forEach((card) => {
      const last = found[found.length - 1];
      if (last && last.state === card.st && last.end === card.i) last.end = card.i + 1;
      else found.push({ state: card.st, start: card.i, end: card.i + 1 });
    });
    return found;
  };

  const steps = (cards, selected) => {
    const node = plot("steps-plot");
    const own = cards.filter((card) => card.st !== "uninformative" && card.st !== "none");
    const highest = Math.max(4, ...own.map((card) => card.s));
    const data = [{
      type: "bar", name: "set size", x: own.map((c) => c.i + 1), y: own.map((c) => c.s),
      hovertemplate: "step %{x}: %{y} tokens<extra></extra>",
      marker: { color: colour("data-2"), line: { width: 0 }, pattern: { shape: "" } },
    }];
    for (const state of ["calibrated", "inherited", "mismatch"]) {
      const part = runs(cards).filter((run) => run.state === state);
      const x = part.flatMap((run) => [...cards.slice(run.start, run.end).flatMap((c) => [c.i + 0.5, c.i + 1.5]), null]);
      const y = part.flatMap((run) => [...cards.slice(run.start, run.end).flatMap((c) => [c.tau, c.tau]), null]);
      data.push({
        type: "scatter", mode: "lines", name: `τ, ${state}`, x, y, yaxis: "y2", hoverinfo: "skip",
        line: { color: colour("text"), width: 2, dash: { calibrated: "solid", inherited: "2px,3px", mismatch: "6px,4px" }[state] },
      });
    }
    const empty = cards.filter((card) => card.c.includes("fallback"));
    data.push({
      type: "scatter", mode: "markers", x: empty.map((c) => c.i + 1), y: empty.map(() => highest * 0.09),
      marker: { symbol: "triangle-up", size: 9, color: colour("caution") }, hovertemplate: "step %{x}: fallback<extra></extra>",
    });
    const shapes = selected >= 0 ? [{
      type: "rect", xref: "x", yref: "paper", x0: selected + 0.5, x1: selected + 1.5, y0: 0, y1: 1, layer: "below",
      fillcolor: colour("accent-tint"), line: { color: colour("accent"), width: 1 },
    }] : [];
    const annotations = runs(cards).filter((run) => run.state === "uninformative" || run.state === "none").map((run) => ({
      x: (run.start + run.end + 1) / 2, y: 0.72, yref: "paper", showarrow: false, font: { color: colour("text-3"), size: 11 },
      text: run.end - run.start < 6 ? "" : run.state === "none" ? "no threshold" : "every token passes",
    }));
    const rightmost = Math.max(16, cards.length);
    return draw("steps-plot", data, {
      shapes, annotations,
      xaxis: { ...(node ? node.layout.xaxis : {}), range: [0.4, rightmost + 0.6], autorange: false },
      yaxis: { ...(node ? node.layout.yaxis : {}), range: [0, highest * 1.1], autorange: false },
    });
  };

  const label = (id, text) => {
    const node = document.getElementById(id);
    if (!node) return;
    node.setAttribute("role", "img");
    node.setAttribute("aria-label", text);
  };

  /* Plotly arrives after the page; until then the newest state waits here. */
  const later = () => {
    if (pending) return;
    const look = () => {
      pending = null;
      coft.charts.refresh();
    };
    pending = setTimeout(look, 120);
  };

  /* charts are drawn when the browser has nothing more urgent to do, and once for all that changed until then */
  let idle = null;
  const soon = (run) => (window.requestIdleCallback ? requestIdleCallback(run, { timeout: 250 }) : setTimeout(run, 60));
  let last = { card: null, cards: [], selected: -1 };
  coft.charts = {
    caption(element) { caption = element.querySelector(".figcaption"); },
    show(cards, selected) {
      last = { card: cards[selected] || null, cards, selected };
      if (idle === null) idle = soon(() => { idle = null; coft.charts.refresh(); });
    },
    refresh() {
      const { card, cards, selected } = last;
      document.body.classList.toggle("has-chain", cards.length > 0);
      if (caption) caption.hidden = cards.length === 0;
      if (!cards.length) return;
      if (card) {
        label("candidates-plot", `Factual, masked and fused probability of each candidate${card.tau === null ? "" : `, threshold ${card.tt}`}`);
        if (!candidates(card)) later();
      }
      label("steps-plot", `Certified-set size and threshold for steps 1 to ${cards.length}`);
      if (!steps(cards, selected)) later();
    },
  };
  const recolour = (node) => window.Plotly.react(node, node.data, { ...node.layout, template: template() }, shared.config);
  coft.onTheme(() => {
    coft.charts.refresh();
    document.querySelectorAll(".js-plotly-plot").forEach((node) => {
      if (!node.closest("#candidates-plot, #steps-plot")) recolour(node);
    });
  });
  /* Gradio draws with the template that came from the server, light, and with Plotly's own buttons */
  const stale = (node) => node.layout && node.layout.template && node.layout.template.layout
    && (node.layout.template.layout.font.color !== template().layout.font.color || node.querySelector(".modebar"));
  const adopt = (node) => {
    if (node.coftAdopted || !node.on) return;
    node.coftAdopted = true;
    const fresh = () => { if (stale(node)) requestAnimationFrame(() => stale(node) && recolour(node)); };
    node.on("plotly_afterplot", fresh);
    fresh();
  };
  coft.whenReady(() => {
    let queued = false;
    new MutationObserver((records) => {
      if (queued || !records.some((r) => r.target.closest && r.target.closest(".block.chart"))) return;
      queued = true;
      requestAnimationFrame(() => {
        queued = false;
        document.querySelectorAll(".js-plotly-plot").forEach(adopt);
      });
    }).observe(document.body, { childList: true, subtree: true });
  });
})();
