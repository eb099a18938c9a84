/* What the audit's pictures show: candidates, set size, sensitivity, candidates as points, divergence and margin by step. */
import { colour } from "../base/charts.js";
import { shared } from "../base/shared.js";
import { shown, signed } from "../base/core.js";

const SHOWN = 6;
const EVERY = 8;
const MOST_TICKS = 16;
const NOTICEABLE = 0.1;
const STRONGEST = 2;
const LABELLED = 5;
const SMALLEST = 1e-12;
const HOT = shared.sensitive;
/* labels that always fit need not be measured, which would make the browser lay the page out at each */
const FITTING = { ticklabeloverflow: "allow" };
const SILENT = { uninformative: "says nothing", none: "no threshold" };

/* ---- what several of them share ---- */
const frame = (name) => structuredClone(shared.frames[name]);
const rounded = (value) => Number(value.toPrecision(3));
const numbersOf = (cards) => cards.map((card) => card.i + 1);
const some = (steps) => (steps.length > 8 ? `${steps.length} steps` : `${steps.length === 1 ? "step" : "steps"} ${steps.join(", ")}`);
const most = (cards, of) => cards.reduce((best, card) => (of(card) > of(best) ? card : best), cards[0]);
/* names may look like markup, which Plotly would read as such */
const plain = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
const smallest = (card) => (card.fam.length > 1 ? "smallest " : "");
const dashed = () => ({ color: colour("text"), width: 1.5, dash: "5px,3px" });
const small = (name) => ({ color: colour(name), size: 11 });
const grey = (line = { width: 0 }) => ({ color: colour("data-2"), line, pattern: { shape: "" } });
/* the steps that an axis reaches */
export const reach = ({ length }) => ({
  range: [0.4, Math.max(16, length) + 0.6], autorange: false,
  dtick: EVERY * 2 ** Math.max(0, Math.ceil(Math.log2(length / (EVERY * MOST_TICKS)))),
});
/* the selected step's frame */
const selection = ({ selected }) => (selected < 0 ? [] : [{
  type: "rect", xref: "x", yref: "paper", x0: selected + 0.5, x1: selected + 1.5, y0: 0, y1: 1, layer: "below",
  fillcolor: colour("accent-tint"), line: { color: colour("accent"), width: 1 },
}]);
const runs = (cards) => {
  const found = [];
  cards.forEach((card) => {
    const last = found[found.length - 1];
    if (last && last.state === card.st && last.end === card.i) last.end = card.i + 1;
    else found.push({ state: card.st, start: card.i, end: card.i + 1 });
  });
  return found;
};
/* words over the steps without a threshold that says something */
const silences = (cards, y) => runs(cards).filter((run) => run.state in SILENT).map((run) => ({
  x: (run.start + run.end + 1) / 2, y, yref: "paper", showarrow: false, font: small("text-3"), text: run.end - run.start < 6 ? "" : SILENT[run.state],
}));

/* ---- candidates ---- */
const candidates = {
  title: "Candidates", needs: "card",
  figure({ card }) {
    const places = card.rows.slice(0, SHOWN).map((_, at) => at);
    const data = ["factual", "masked", "fused"].map((name, at) => ({
      type: "bar", name, x: places, y: places.map((place) => card.p[at][place]), hovertemplate: `${name} %{y:.4g}<extra></extra>`,
    }));
    const highest = Math.max(card.tau || 0, ...card.p.flatMap((values) => values.slice(0, SHOWN)));
    const line = { type: "line", xref: "paper", x0: 0, x1: 1, yref: "y", y0: card.tau, y1: card.tau, line: dashed() };
    const label = {
      x: 1, xref: "paper", y: card.tau, text: `<b>${smallest(card)}τ ${card.tt}</b>`, showarrow: false, xanchor: "right", yanchor: "bottom",
      bgcolor: colour("surface"), borderpad: 1, font: small("text"),
    };
    const names = places.map((place) => shown(card.rows[place].t)).map((text) => (text.length > 10 ? `${text.slice(0, 9)}…` : text));
    const { xaxis, yaxis, ...layout } = frame("candidates");
    return { data, layout: {
      ...layout, shapes: card.tau === null ? [] : [line], annotations: card.tau === null ? [] : [label],
      xaxis: { ...xaxis, ...FITTING, tickvals: places, ticktext: names, range: [-0.5, SHOWN - 0.5] },
      yaxis: { ...yaxis, ...FITTING, range: [0, highest * 1.12], autorange: false },
    } };
  },
  label: ({ card }) => `Factual, masked and fused probability of the ${Math.min(SHOWN, card.rows.length)} likeliest candidates${card.tau === null
    ? "" : `, ${smallest(card)}threshold ${card.tt}`}. ${card.rows.slice(0, 3).map((row) => `${shown(row.t)}: ${row.f}, ${row.m}, ${row.x}`).join("; ")}.`,
  numbers: ({ card }) => ({
    caption: `Candidates of step ${card.i + 1}`,
    head: [["Token", "mono"], ["Factual", "n"], ["Masked", "n"], ["Fused", "n"], ["Certified"]],
    rows: card.rows.map((row, at) => [shown(row.t), ...[row.f, row.m, row.x].map((text, view) => (/[≤–]/.test(text) ? text : card.p[view][at])), row.why]),
  }),
};

/* ---- set size and threshold ---- */
const TAU = {
  none: () => "none", uninformative: (card) => (card.tt ? `${card.tt}, too weak` : "none, every token passes"), calibrated: (card) => card.tt,
  inherited: (card) => `${card.tt}, borrowed`, mismatch: (card) => `${card.tt}, of another policy`,
};
const DASHES = { calibrated: "solid", inherited: "2px,3px", mismatch: "6px,4px" };
const sized = (cards) => cards.filter((card) => !(card.st in SILENT));
const empty = (cards) => cards.filter((card) => card.c.includes("fallback"));
const steps = {
  title: "Certified-set size and threshold by step", marks: selection,
  figure({ cards }) {
    const highest = sized(cards).reduce((top, card) => Math.max(top, card.s), 4);
    const thresholds = Object.entries(DASHES).map(([state, dash]) => {
      const parts = runs(cards).filter((run) => run.state === state).map((run) => cards.slice(run.start, run.end));
      return {
        type: "scatter", mode: "lines", name: `τ, ${state}`, x: parts.flatMap((part) => [...part.flatMap((card) => [card.i + 0.5, card.i + 1.5]), null]),
        y: parts.flatMap((part) => [...part.flatMap((card) => [card.tau, card.tau]), null]), yaxis: "y2", hoverinfo: "skip",
        line: { color: colour("text"), width: 2, dash },
      };
    });
    const data = [{
      type: "bar", name: "set size", x: numbersOf(sized(cards)), y: sized(cards).map((card) => card.s),
      hovertemplate: "step %{x}: %{y} tokens<extra></extra>", marker: grey(),
    }, ...thresholds, {
      type: "scatter", mode: "markers", x: numbersOf(empty(cards)), y: empty(cards).map(() => highest * 0.09),
      marker: { symbol: "triangle-up", size: 9, color: colour("caution") }, hovertemplate: "step %{x}: fallback<extra></extra>",
    }];
    const { xaxis, yaxis, ...layout } = frame("steps");
    return { data, layout: {
      ...layout, annotations: silences(cards, 0.72), xaxis: { ...xaxis, ...reach(cards) },
      yaxis: { ...yaxis, range: [0, highest * 1.1], autorange: false },
    } };
  },
  label({ cards }) {
    const sizes = sized(cards).map((card) => card.s), lost = empty(cards).length;
    return `Certified-set size and threshold for steps 1 to ${cards.length}. ${sizes.length
      ? `Sets of ${sizes.reduce((a, b) => Math.min(a, b))} to ${sizes.reduce((a, b) => Math.max(a, b))} tokens; ${lost} ${lost === 1 ? "step" : "steps"} without any.`
      : "No step has a threshold that says something."}`;
  },
  numbers: ({ cards }) => ({
    caption: "Certified-set size and threshold by step", head: [["Step", "tnum"], ["Token", "mono"], ["Set size", "n"], ["Threshold τ", "n"]],
    rows: cards.map((card) => [card.i + 1, card.w, card.st === "none" ? null : card.s, TAU[card.st](card)]),
  }),
};

/* ---- sensitivity strip ---- */
const mix = (from, to, share) => `rgb(${[1, 3, 5].map((at) =>
  Math.round(parseInt(from.slice(at, at + 2), 16) * (1 - share) + parseInt(to.slice(at, at + 2), 16) * share)).join(",")})`;
const scale = () => {
  const turn = HOT / STRONGEST, low = colour("surface-2");
  return [[0, low], [turn - 1e-6, mix(low, colour("data-2"), 0.7)], [turn, mix(colour("surface"), colour("signal"), 0.6)], [1, colour("signal")]];
};
const strip = {
  title: "Sensitivity along the text",
  marks: (now) => selection(now).map((shape) => ({ ...shape, layer: "above", fillcolor: "rgba(0,0,0,0)", line: { color: colour("accent"), width: 2 } })),
  figure({ cards }) {
    const hot = cards.filter((card) => Math.abs(card.r) >= HOT);
    const { xaxis, ...layout } = frame("strip");
    return { data: [{
      type: "heatmap", x: numbersOf(cards), y: [0], z: [cards.map((card) => Math.min(STRONGEST, Math.abs(card.r)))], zmin: 0, zmax: STRONGEST,
      colorscale: scale(), showscale: false, xgap: cards.length > 128 ? 0 : 1,
      customdata: [cards.map((card) => `${plain(card.w)}: ${signed(card.r)}`)], hovertemplate: "step %{x}, %{customdata}<extra></extra>",
    }, {
      type: "scatter", mode: "markers", x: numbersOf(hot), y: hot.map(() => 0.95), hoverinfo: "skip",
      marker: { symbol: hot.map((card) => (card.r < 0 ? "triangle-down" : "triangle-up")), size: 8, color: colour("text") },
    }], layout: { ...layout, xaxis: { ...xaxis, ...reach(cards) } } };
  },
  label({ cards }) {
    const up = numbersOf(cards.filter((card) => card.r >= HOT)), down = numbersOf(cards.filter((card) => card.r <= -HOT));
    const top = most(cards, (card) => Math.abs(card.r));
    return `Sensitivity of ${cards.length} steps. Likelier with the attribute visible: ${up.length ? some(up) : "none"}; raised by masking: ${down.length
      ? some(down) : "none"}. Strongest: ${signed(top.r)} at step ${top.i + 1}, ${top.w}.`;
  },
  numbers: ({ cards }) => ({
    caption: "Sensitivity by step", head: [["Step", "tnum"], ["Token", "mono"], ["Log ratio", "n"], ["Reading"]],
    rows: cards.map((card) => [card.i + 1, card.w, card.r,
      Math.abs(card.r) < NOTICEABLE ? "hardly moves" : card.r > 0 ? "likelier with the attribute visible" : "raised by masking"]),
  }),
};

/* ---- candidates as points ---- */
const points = (card) => [
  ...card.rows.map((row, at) => ({ word: shown(row.t), f: card.p[0][at], m: card.p[1][at], x: card.p[2][at], mark: row.mark, why: row.why, written: Boolean(row.act) })),
  ...card.rest.map(([word, f, m, x, mark]) => ({ word, f, m, x, mark, why: "", written: false })),
];
const GROUPS = [
  ["tick", "certified", "circle"], ["borrowed", "certified with a borrowed threshold", "circle-open-dot"],
  ["open", "no threshold that says something", "circle-open"], ["out", "not certified", "x-thin-open"],
];
/* Fusion is a weighted mean of logits, so that log p fused is a straight line in both log-probabilities up to the step's
   normaliser; the weight is read off the points, and no line is drawn where they do not lie on one. */
const fusedLine = (all, tau) => {
  const rows = all.filter((point) => point.f > SMALLEST && point.m > SMALLEST && point.x > SMALLEST)
    .map((point) => [Math.log(point.f) - Math.log(point.m), Math.log(point.x) - Math.log(point.m)]);
  if (rows.length < 3 || tau === null) return null;
  const mean = (at) => rows.reduce((sum, row) => sum + row[at], 0) / rows.length;
  const [d0, y0] = [mean(0), mean(1)];
  const spread = rows.reduce((sum, row) => sum + (row[0] - d0) ** 2, 0);
  if (spread < 1e-4) return null;
  const slope = rows.reduce((sum, row) => sum + (row[0] - d0) * (row[1] - y0), 0) / spread;
  const rest = y0 - slope * d0;
  if (rows.some((row) => Math.abs(row[1] - rest - slope * row[0]) > 0.02) || slope >= 1 - 1e-6) return null;
  return (f) => Math.exp((Math.log(tau) - rest - slope * Math.log(f)) / (1 - slope));
};
const marksOf = (group, name, text, said, font, marker) => ({
  type: "scatter", mode: "markers+text", name, x: group.map((point) => point.f), y: group.map((point) => point.m), text: group.map(text),
  /* away from the diagonal */
  textposition: group.map((point) => (point.m > point.f ? "middle left" : "middle right")), textfont: font,
  customdata: group.map((point) => `${plain(point.word)}, ${said(point)}<br>factual ${point.f}, masked ${point.m}, fused ${point.x}`),
  hovertemplate: "%{customdata}<extra></extra>", marker,
});
const scatter = {
  title: "Candidates of the selected token", needs: "card",
  figure({ card }) {
    const all = points(card).filter((point) => point.f > 0 && point.m > 0);
    const values = all.flatMap((point) => [point.f, point.m]).concat(card.tau || []).map((value) => Math.max(SMALLEST, value));
    const low = Math.floor(Math.log10(values.reduce((a, b) => Math.min(a, b), 0.1)));
    const ends = [10 ** low, 1];
    const written = all.filter((point) => point.written);
    const named = new Set([...all].sort((a, b) => Math.max(b.f, b.m) - Math.max(a.f, a.m)).slice(0, LABELLED).concat(written));
    const line = (name, y, style, x = ends) => ({ type: "scatter", mode: "lines", name, x, y, hoverinfo: "skip", line: style });
    const said = (x, y, xanchor, text) => ({ x, y, xanchor, yanchor: "bottom", showarrow: false, text: `<b>${text}</b>`, font: small("text") });
    const data = [line("equal", ends, { color: colour("control"), width: 1, dash: "dot" }), ...GROUPS.map(([mark, name, symbol]) => {
      const ink = colour(mark === "out" ? "text-3" : "text");
      return marksOf(all.filter((point) => point.mark === mark && !point.written), name, (point) => (named.has(point) ? plain(point.word) : ""),
        () => name, small("text-2"), { symbol, size: 8, color: ink, line: { width: 1.5, color: ink } });
    }), marksOf(written, "written", (point) => `<b>${plain(point.word)}</b>`, (point) => `written, ${point.why}`, small("accent"), {
      symbol: written.map((point) => (point.mark === "out" ? "diamond-open" : "diamond")), size: 12, color: colour("accent"),
      line: { width: 2, color: colour("accent") },
    })];
    const annotations = [];
    if (card.tau !== null) {
      data.push(line("masked = τ", [card.tau, card.tau], dashed()));
      annotations.push(said(low, Math.log10(card.tau), "left", `${smallest(card)}masked = τ ${card.tt}`));
      const fused = card.fam.length > 1 ? null : fusedLine(all, card.tau);
      if (fused) {
        const x = Array.from({ length: 33 }, (_, at) => 10 ** (low * (1 - at / 32)));
        annotations.push(said(0, Math.log10(Math.min(1, Math.max(ends[0], fused(1)))), "right", "fused = τ"));
        data.push(line("fused = τ", x.map(fused).map((y) => (y > 3 || y < ends[0] / 3 ? null : y)), { ...dashed(), dash: "2px,3px" }, x));
      }
    }
    const { xaxis, yaxis, ...layout } = frame("scatter");
    const powers = Array.from({ length: 1 - low }, (_, at) => -at);
    const ticks = {
      ...FITTING, autorange: false, tickvals: powers.map((power) => 10 ** power),
      ticktext: powers.map((power) => (power < -4 ? `1e−${-power}` : (10 ** power).toFixed(-power))),
    };
    return { data, layout: {
      ...layout, annotations, xaxis: { ...xaxis, ...ticks, range: [low - 0.1, 0.45] }, yaxis: { ...yaxis, ...ticks, range: [low - 0.1, 0.3] },
    } };
  },
  label({ card }) {
    const all = points(card);
    const written = all.find((point) => point.written);
    const passed = all.filter((point) => point.mark === "tick" || point.mark === "borrowed").length;
    return `${all.length} candidates of step ${card.i + 1} by factual and masked probability${card.tau === null
      ? ", without a threshold" : `, ${passed} of them over the threshold ${card.tt}`}. `
      + `${all.filter((point) => point.f > point.m).length} are likelier as typed, ${all.filter((point) => point.f < point.m).length} when masked.${written
        ? ` Written: ${written.word}, factual ${written.f}, masked ${written.m}.` : ""}`;
  },
  numbers: ({ card }) => ({
    caption: `All candidates of step ${card.i + 1}`, head: [["Token", "mono"], ["Factual", "n"], ["Masked", "n"], ["Fused", "n"], ["Status"]],
    rows: points(card).map((point) => [point.word, point.f, point.m, point.x,
      [GROUPS.find(([mark]) => mark === point.mark)[1], point.written ? "written" : ""].filter(Boolean).join(", ")]),
  }),
};

/* ---- divergence ---- */
const divergence = {
  title: "How far fusion stays from the masked reading", marks: selection,
  figure({ cards }) {
    const { xaxis, yaxis, ...layout } = frame("divergence");
    const x = numbersOf(cards);
    const highest = cards.reduce((top, card) => Math.max(top, card.kl), 0.01);
    const lines = { type: "scatter", mode: "lines+markers", x, yaxis: "y2", connectgaps: false };
    return {
      data: [
        { type: "bar", name: "KL", x, y: cards.map((card) => card.kl), hovertemplate: "step %{x}: KL %{y} nats<extra></extra>", marker: grey() },
        { ...lines, name: "shift of the choice", y: cards.map((card) => card.tv), hovertemplate: "step %{x}: total variation on the set %{y}<extra></extra>",
          line: { color: colour("text"), width: 1.5 }, marker: { color: colour("text"), size: 4 } },
        { ...lines, name: "bound", y: cards.map((card) => (card.tb !== null && card.tb <= 1 ? card.tb : null)), hovertemplate: "step %{x}: bound %{y}<extra></extra>",
          line: { ...dashed(), color: colour("text-2") }, marker: { symbol: "line-ew-open", color: colour("text-2"), size: 6 } },
      ],
      layout: {
        ...layout, xaxis: { ...xaxis, ...reach(cards) }, yaxis: { ...yaxis, range: [0, highest * 1.1], autorange: false },
      },
    };
  },
  label({ cards }) {
    const top = most(cards, (card) => card.kl), far = cards.filter((card) => card.tv !== null);
    const widest = far.length ? most(far, (card) => card.tv) : null;
    return `KL of fused from masked for ${cards.length} steps: on average ${rounded(cards.reduce((sum, card) => sum + card.kl, 0) / cards.length)} nats, at most ${top.kl} at step ${top.i + 1}. `
      + `${widest ? `Total variation on the set at most ${widest.tv}, at step ${widest.i + 1}` : "No step has a set to compare on"}.`;
  },
  numbers: ({ cards }) => ({
    caption: "Divergence of fused from masked by step", head: [["Step", "tnum"], ["Token", "mono"], ["KL, nats", "n"], ["Shift of the choice", "n"], ["Bound", "n"]],
    rows: cards.map((card) => [card.i + 1, card.w, card.kl, card.tv, card.tb]),
  }),
};

/* ---- margin ---- */
const STANDING = { calibrated: () => "own", inherited: () => "borrowed", uninformative: (card) => (card.mg === null ? "every token passes" : "too weak"),
  none: () => "none", mismatch: () => "of another policy" };
const judged = (cards) => cards.filter((card) => card.mg !== null);
const margin = {
  title: "Distance to the threshold", marks: selection,
  absent: ({ cards }) => (judged(cards).length ? "" : "No step has a threshold, so there is no distance to it."),
  figure({ cards }) {
    const { xaxis, yaxis, ...layout } = frame("margin");
    const bar = (name, some, shape, width) => ({
      type: "bar", name, x: numbersOf(some), y: some.map((card) => card.mg), hovertemplate: "step %{x}: %{y} nats<extra></extra>",
      marker: { ...grey({ width, color: colour("data-2") }), pattern: { shape, size: 5, solidity: 0.35, fgcolor: colour("data-2"), bgcolor: colour("surface") } },
    });
    const [least, top] = judged(cards).reduce(([a, b], { mg }) => [Math.min(a, mg), Math.max(b, mg)], [0, 0.1]);
    const room = (top - least) * 0.08;
    return {
      data: [bar("above", judged(cards).filter((card) => card.mg >= 0), "", 0), bar("under", judged(cards).filter((card) => card.mg < 0), "/", 1)],
      layout: {
        ...layout, barmode: "overlay", xaxis: { ...xaxis, ...reach(cards) }, annotations: silences(cards, 0.5),
        yaxis: { ...yaxis, range: [least - (least < 0 ? room : 0), top + room], autorange: false },
      },
    };
  },
  label({ cards }) {
    const known = judged(cards), under = numbersOf(known.filter((card) => card.mg < 0));
    const least = known.length ? most(known, (card) => -card.mg) : null;
    return `Distance of each token to its threshold for ${known.length} of ${cards.length} steps. ${under.length ? `Under it: ${some(under)}.` : "None is under it."}${least
      ? ` Least: ${signed(least.mg)} nats at step ${least.i + 1}, ${least.w}.` : ""}`;
  },
  numbers: ({ cards }) => ({
    caption: "Distance to the threshold by step", head: [["Step", "tnum"], ["Token", "mono"], ["Margin, nats", "n"], ["Threshold"]],
    rows: cards.map((card) => [card.i + 1, card.w, card.mg, STANDING[card.st](card)]),
  }),
};

export const FIGURES = { candidates, steps, strip, scatter, divergence, margin };
