/* The charts that the server places, candidates and set size: Gradio draws them once, and they are updated in place. */
"use strict";
(() => {
  const coft = window.coft;
  const { colour, template } = coft.pictures;
  const plot = (id) => document.querySelector(`#${id} .js-plotly-plot`);
  const SHOWN = 6;
  /* labels that always fit need not be measured, which would make the browser lay the page out at each */
  const FITTING = { ticklabeloverflow: "allow" };
  let caption = null;

  const tauLine = (tau, axis = "y") => ({
    type: "line", xref: "paper", x0: 0, x1: 1, yref: axis, y0: tau, y1: tau,
    line: { dash: "5px,3px", width: 1.5, color: colour("text") },
  });
  const smallest = (card) => (card.fam.length > 1 ? "smallest " : "");

  const candidates = ({ card }, node) => {
    const places = card.rows.slice(0, SHOWN).map((_, i) => i);
    const data = ["factual", "masked", "fused"].map((name, view) => ({
      type: "bar", name, x: places, y: places.map((i) => card.p[view][i]),
      hovertemplate: `${name} %{y:.4g}<extra></extra>`,
    }));
    const highest = Math.max(card.tau || 0, ...card.p.flatMap((values) => values.slice(0, SHOWN)));
    const shapes = card.tau === null ? [] : [tauLine(card.tau)];
    const annotations = card.tau === null ? [] : [{
      x: 1, xref: "paper", y: card.tau, text: `<b>${smallest(card)}τ ${card.tt}</b>`, showarrow: false, xanchor: "right", yanchor: "bottom",
      bgcolor: colour("surface"), borderpad: 1, font: { color: colour("text"), size: 11 },
    }];
    const names = places.map((i) => coft.shown(card.rows[i].t)).map((t) => (t.length > 10 ? `${t.slice(0, 9)}…` : t));
    return { data, layout: {
      ...node.layout, shapes, annotations,
      xaxis: { ...node.layout.xaxis, ...FITTING, tickmode: "array", tickvals: places, ticktext: names, range: [-0.5, SHOWN - 0.5] },
      yaxis: { ...node.layout.yaxis, ...FITTING, range: [0, highest * 1.12], autorange: false },
    } };
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
  coft.pictures.runs = runs;

  const steps = ({ cards }, node) => {
    const own = cards.filter((card) => card.st !== "uninformative" && card.st !== "none");
    const highest = own.reduce((most, card) => Math.max(most, card.s), 4);
    const data = [{
      type: "bar", name: "set size", x: own.map((c) => c.i + 1), y: own.map((c) => c.s),
      hovertemplate: "step %{x}: %{y} tokens<extra></extra>",
      marker: { color: colour("data-2"), line: { width: 0 }, pattern: { shape: "" } },
    }];
    const found = runs(cards);
    for (const state of ["calibrated", "inherited", "mismatch"]) {
      const part = found.filter((run) => run.state === state);
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
    const annotations = found.filter((run) => run.state === "uninformative" || run.state === "none").map((run) => ({
      x: (run.start + run.end + 1) / 2, y: 0.72, yref: "paper", showarrow: false, font: { color: colour("text-3"), size: 11 },
      text: run.end - run.start < 6 ? "" : run.state === "none" ? "no threshold" : "says nothing",
    }));
    return { data, layout: {
      ...node.layout, annotations,
      xaxis: { ...node.layout.xaxis, ...coft.pictures.reach(cards) },
      yaxis: { ...node.layout.yaxis, range: [0, highest * 1.1], autorange: false },
    } };
  };

  /* what all pictures by step share: the selected step's frame, and the steps that the axis reaches */
  coft.pictures.selection = ({ selected }) => (selected < 0 ? [] : [{
    type: "rect", xref: "x", yref: "paper", x0: selected + 0.5, x1: selected + 1.5, y0: 0, y1: 1, layer: "below",
    fillcolor: colour("accent-tint"), line: { color: colour("accent"), width: 1 },
  }]);
  const EVERY = 8;
  const MOST_TICKS = 16;
  coft.pictures.reach = ({ length }) => ({
    range: [0.4, Math.max(16, length) + 0.6], autorange: false,
    dtick: EVERY * 2 ** Math.max(0, Math.ceil(Math.log2(length / (EVERY * MOST_TICKS)))),
  });

  const TAU = { none: () => "none", uninformative: (c) => c.tt ? `${c.tt}, too weak` : "none, every token passes", calibrated: (c) => c.tt, inherited: (c) => `${c.tt}, borrowed`, mismatch: (c) => `${c.tt}, of another policy` };
  coft.pictures.add("candidates", {
    title: "Candidates", needs: "card", node: () => plot("candidates-plot"), place: () => document.getElementById("candidates-plot"),
    labelled: () => document.getElementById("candidates-plot"), figure: candidates,
    label: ({ card }) => `Factual, masked and fused probability of the ${Math.min(SHOWN, card.rows.length)} likeliest candidates${card.tau === null ? "" : `, ${smallest(card)}threshold ${card.tt}`}. `
      + `${card.rows.slice(0, 3).map((row) => `${coft.shown(row.t)}: ${row.f}, ${row.m}, ${row.x}`).join("; ")}.`,
    numbers: ({ card }) => ({
      caption: `Candidates of step ${card.i + 1}`,
      head: [["Token", "mono"], ["Factual", "n"], ["Masked", "n"], ["Fused", "n"], ["Certified"]],
      rows: card.rows.map((row, at) => [coft.shown(row.t), ...card.p.map((values) => values[at]), row.why]),
    }),
  });
  coft.pictures.add("steps", {
    title: "Certified-set size and threshold by step", node: () => plot("steps-plot"), place: () => document.getElementById("steps-plot"),
    labelled: () => document.getElementById("steps-plot"), figure: steps, marks: coft.pictures.selection,
    label: ({ cards }) => {
      const sized = cards.filter((card) => card.st !== "none" && card.st !== "uninformative").map((card) => card.s);
      const lost = cards.filter((card) => card.c.includes("fallback")).length;
      return `Certified-set size and threshold for steps 1 to ${cards.length}. ${sized.length
        ? `Sets of ${sized.reduce((a, b) => Math.min(a, b))} to ${sized.reduce((a, b) => Math.max(a, b))} tokens; ${lost} ${lost === 1 ? "step" : "steps"} without any.` : "No step has a threshold that says something."}`;
    },
    numbers: ({ cards }) => ({
      caption: "Certified-set size and threshold by step",
      head: [["Step", "tnum"], ["Token", "mono"], ["Set size", "n"], ["Threshold τ", "n"]],
      rows: cards.map((card) => [card.i + 1, card.w, card.st === "none" ? null : card.s, TAU[card.st](card)]),
    }),
  });

  coft.charts = {
    caption(element) { caption = element.querySelector(".figcaption"); },
    show(cards, selected) {
      document.body.classList.toggle("has-chain", cards.length > 0);
      if (caption) caption.hidden = cards.length === 0;
      coft.pictures.show(cards, selected);
    },
  };

  /* ---- other pages' charts: a theme swaps the template alone ---- */
  const recolour = (node) => window.Plotly.react(node, node.data, { ...node.layout, template: template() }, window.coftShared.config);
  coft.onTheme(() => document.querySelectorAll(".js-plotly-plot").forEach((node) => { if (!coft.pictures.owns(node) || !coft.session.state().cards.length) recolour(node); }));
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
