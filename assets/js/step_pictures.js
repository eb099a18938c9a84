/* The pictures of the folded section: sensitivity strip, candidates as points, divergence and margin by step. */
"use strict";
(() => {
  const coft = window.coft;
  const shared = window.coftShared;
  const { colour, selection, reach, runs } = coft.pictures;
  const HOT = shared.sensitive;
  const NOTICEABLE = 0.1;
  const STRONGEST = 2;
  const LABELLED = 5;
  const SMALLEST = 1e-12;

  const layout = (name) => JSON.parse(JSON.stringify(shared.frames[name]));
  const figureOf = (name) => document.querySelector(`[data-figure="${name}"]`);
  const add = (name, spec) => coft.pictures.add(name, {
    ...spec, node: () => document.querySelector(`[data-plot="${name}"]`), place: () => figureOf(name),
  });
  const rounded = (value) => Number(value.toPrecision(3));
  const some = (steps) => (steps.length > 8 ? `${steps.length} steps` : `${steps.length === 1 ? "step" : "steps"} ${steps.join(", ")}`);
  const most = (cards, of) => cards.reduce((best, card) => (of(card) > of(best) ? card : best), cards[0]);
  /* names may look like markup, which Plotly would read as such */
  const plain = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

  /* ---- sensitivity strip ---- */
  const mix = (a, b, share) => `rgb(${[1, 3, 5].map((at) => Math.round(parseInt(a.slice(at, at + 2), 16) * (1 - share) + parseInt(b.slice(at, at + 2), 16) * share)).join(",")})`;
  const scale = () => {
    const from = colour("surface-2");
    const turn = HOT / STRONGEST;
    return [[0, from], [turn - 1e-6, mix(from, colour("data-2"), 0.7)], [turn, mix(colour("surface"), colour("signal"), 0.6)], [1, colour("signal")]];
  };
  add("strip", {
    title: "Sensitivity along the chain",
    marks: (now) => selection(now).map((shape) => ({ ...shape, layer: "above", fillcolor: "rgba(0,0,0,0)", line: { color: colour("accent"), width: 2 } })),
    figure: ({ cards }) => {
      const hot = cards.filter((card) => Math.abs(card.r) >= HOT);
      const frame = layout("strip");
      return {
        data: [
          {
            type: "heatmap", x: cards.map((c) => c.i + 1), y: [0], z: [cards.map((c) => Math.min(STRONGEST, Math.abs(c.r)))], zmin: 0, zmax: STRONGEST,
            colorscale: scale(), showscale: false, xgap: cards.length > 128 ? 0 : 1,
            customdata: [cards.map((c) => `${plain(c.w)}: ${coft.signed(c.r)}`)], hovertemplate: "step %{x}, %{customdata}<extra></extra>",
          },
          {
            type: "scatter", mode: "markers", x: hot.map((c) => c.i + 1), y: hot.map(() => 0.95), hoverinfo: "skip",
            marker: { symbol: hot.map((c) => (c.r < 0 ? "triangle-down" : "triangle-up")), size: 8, color: colour("text") },
          },
        ],
        layout: { ...frame, xaxis: { ...frame.xaxis, ...reach(cards) } },
      };
    },
    label: ({ cards }) => {
      const up = cards.filter((c) => c.r >= HOT).map((c) => c.i + 1);
      const down = cards.filter((c) => c.r <= -HOT).map((c) => c.i + 1);
      const top = most(cards, (c) => Math.abs(c.r));
      return `Sensitivity of ${cards.length} steps. Likelier with the attribute visible: ${up.length ? some(up) : "none"}; raised by masking: ${down.length ? some(down) : "none"}. `
        + `Strongest: ${coft.signed(top.r)} at step ${top.i + 1}, ${top.w}.`;
    },
    numbers: ({ cards }) => ({
      caption: "Sensitivity by step", head: [["Step", "tnum"], ["Token", "mono"], ["Log ratio", "n"], ["Reading"]],
      rows: cards.map((c) => [c.i + 1, c.w, c.r, Math.abs(c.r) < NOTICEABLE ? "hardly moves" : c.r > 0 ? "likelier with the attribute visible" : "raised by masking"]),
    }),
  });

  /* ---- candidates as points ---- */
  const points = (card) => [
    ...card.rows.map((row, at) => ({ word: coft.shown(row.t), f: card.p[0][at], m: card.p[1][at], x: card.p[2][at], mark: row.mark, why: row.why, written: Boolean(row.act) })),
    ...card.rest.map(([word, f, m, x, mark]) => ({ word, f, m, x, mark, why: "", written: false })),
  ];
  const GROUPS = [
    ["tick", "certified", "circle"], ["borrowed", "certified with a borrowed threshold", "circle-open-dot"],
    ["open", "no threshold that says something", "circle-open"], ["out", "not certified", "x-thin-open"],
  ];
  /* Fusion is a weighted mean of logits, so that log p fused is a straight line in both log-probabilities up to the step's
     normaliser; the weight is read off the points, and no line is drawn where they do not lie on one. */
  const fusedLine = (all, tau) => {
    const rows = all.filter((p) => p.f > SMALLEST && p.m > SMALLEST && p.x > SMALLEST)
      .map((p) => [Math.log(p.f) - Math.log(p.m), Math.log(p.x) - Math.log(p.m)]);
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
  /* away from the diagonal */
  const side = (point) => (point.m > point.f ? "middle left" : "middle right");
  const scatter = ({ card }) => {
    const all = points(card).filter((p) => p.f > 0 && p.m > 0);
    const values = all.flatMap((p) => [p.f, p.m]).concat(card.tau || []).map((value) => Math.max(SMALLEST, value));
    const low = Math.floor(Math.log10(values.reduce((a, b) => Math.min(a, b), 0.1)));
    const ends = [10 ** low, 1];
    const named = new Set([...all].sort((a, b) => Math.max(b.f, b.m) - Math.max(a.f, a.m)).slice(0, LABELLED).concat(all.filter((p) => p.written)));
    const data = [{ type: "scatter", mode: "lines", x: ends, y: ends, hoverinfo: "skip", name: "equal", line: { color: colour("control"), width: 1, dash: "dot" } }];
    for (const [mark, name, symbol] of GROUPS) {
      const group = all.filter((p) => p.mark === mark && !p.written);
      data.push({
        type: "scatter", mode: "markers+text", name, x: group.map((p) => p.f), y: group.map((p) => p.m),
        text: group.map((p) => (named.has(p) ? plain(p.word) : "")), textposition: group.map(side), textfont: { color: colour("text-2"), size: 11 },
        customdata: group.map((p) => `${plain(p.word)}, ${name}<br>factual ${p.f}, masked ${p.m}, fused ${p.x}`), hovertemplate: "%{customdata}<extra></extra>",
        marker: { symbol, size: 8, color: colour(mark === "out" ? "text-3" : "text"), line: { width: 1.5, color: colour(mark === "out" ? "text-3" : "text") } },
      });
    }
    const own = all.filter((p) => p.written);
    data.push({
      type: "scatter", mode: "markers+text", name: "written", x: own.map((p) => p.f), y: own.map((p) => p.m), text: own.map((p) => `<b>${plain(p.word)}</b>`),
      textposition: own.map(side), textfont: { color: colour("accent"), size: 11 },
      customdata: own.map((p) => `${plain(p.word)}, written, ${p.why}<br>factual ${p.f}, masked ${p.m}, fused ${p.x}`), hovertemplate: "%{customdata}<extra></extra>",
      marker: { symbol: own.map((p) => (p.mark === "out" ? "diamond-open" : "diamond")), size: 12, color: colour("accent"), line: { width: 2, color: colour("accent") } },
    });
    const annotations = [];
    const dashed = { color: colour("text"), width: 1.5, dash: "5px,3px" };
    if (card.tau !== null) {
      data.push({ type: "scatter", mode: "lines", name: "masked = τ", x: ends, y: [card.tau, card.tau], hoverinfo: "skip", line: dashed });
      annotations.push({ x: low, y: Math.log10(card.tau), xanchor: "left", yanchor: "bottom", showarrow: false, text: `<b>${card.fam.length > 1 ? "smallest " : ""}masked = τ ${card.tt}</b>`, font: { color: colour("text"), size: 11 } });
      const line = card.fam.length > 1 ? null : fusedLine(all, card.tau);
      if (line) {
        const x = Array.from({ length: 33 }, (_, at) => 10 ** (low * (1 - at / 32)));
        const right = Math.min(1, Math.max(ends[0], line(1)));
        annotations.push({ x: 0, y: Math.log10(right), xanchor: "right", yanchor: "bottom", showarrow: false, text: "<b>fused = τ</b>", font: { color: colour("text"), size: 11 } });
        data.push({ type: "scatter", mode: "lines", name: "fused = τ", x, y: x.map(line).map((y) => (y > 3 || y < ends[0] / 3 ? null : y)), hoverinfo: "skip", line: { ...dashed, dash: "2px,3px" } });
      }
    }
    const frame = layout("scatter");
    const powers = Array.from({ length: 1 - low }, (_, at) => -at);
    const marks = { tickvals: powers.map((power) => 10 ** power), ticktext: powers.map((power) => (power < -4 ? `1e−${-power}` : (10 ** power).toFixed(-power))), autorange: false, ticklabeloverflow: "allow" };
    return { data, layout: {
      ...frame, annotations, xaxis: { ...frame.xaxis, ...marks, range: [low - 0.1, 0.45] }, yaxis: { ...frame.yaxis, ...marks, range: [low - 0.1, 0.3] },
    } };
  };
  add("scatter", {
    title: "Candidates of the selected token", needs: "card", figure: scatter,
    label: ({ card }) => {
      const all = points(card);
      const own = all.find((p) => p.written);
      const passed = all.filter((p) => p.mark === "tick" || p.mark === "borrowed").length;
      return `${all.length} candidates of step ${card.i + 1} by factual and masked probability${card.tau === null ? ", without a threshold" : `, ${passed} of them over the threshold ${card.tt}`}. `
        + `${all.filter((p) => p.f > p.m).length} are likelier as typed, ${all.filter((p) => p.f < p.m).length} when masked.${own ? ` Written: ${own.word}, factual ${own.f}, masked ${own.m}.` : ""}`;
    },
    numbers: ({ card }) => ({
      caption: `All candidates of step ${card.i + 1}`, head: [["Token", "mono"], ["Factual", "n"], ["Masked", "n"], ["Fused", "n"], ["Status"]],
      rows: points(card).map((p) => [p.word, p.f, p.m, p.x, [GROUPS.find(([mark]) => mark === p.mark)[1], p.written ? "written" : ""].filter(Boolean).join(", ")]),
    }),
  });

  /* ---- divergence ---- */
  add("divergence", {
    title: "How far fusion stays from the masked reading",
    marks: selection,
    figure: ({ cards }) => {
      const frame = layout("divergence");
      const x = cards.map((c) => c.i + 1);
      const silent = cards.filter((c) => c.tb !== null && c.tb > 1);
      const highest = cards.reduce((top, c) => Math.max(top, c.kl), 0.01);
      return {
        data: [
          { type: "bar", name: "KL", x, y: cards.map((c) => c.kl), hovertemplate: "step %{x}: KL %{y} nats<extra></extra>", marker: { color: colour("data-2"), line: { width: 0 }, pattern: { shape: "" } } },
          { type: "scatter", name: "TV on the set", mode: "lines+markers", x, y: cards.map((c) => c.tv), yaxis: "y2", connectgaps: false, hovertemplate: "step %{x}: TV %{y}<extra></extra>", line: { color: colour("text"), width: 1.5 }, marker: { color: colour("text"), size: 4 } },
          { type: "scatter", name: "bound", mode: "lines+markers", x, y: cards.map((c) => (c.tb !== null && c.tb <= 1 ? c.tb : null)), yaxis: "y2", connectgaps: false, hovertemplate: "step %{x}: bound %{y}<extra></extra>", line: { color: colour("text-2"), width: 1.5, dash: "5px,3px" }, marker: { symbol: "line-ew-open", color: colour("text-2"), size: 6 } },
          { type: "scatter", name: "bound above 1", mode: "markers", x: silent.map((c) => c.i + 1), y: silent.map(() => 1.02), yaxis: "y2", customdata: silent.map((c) => c.tb), hovertemplate: "step %{x}: bound %{customdata}, above 1, says nothing<extra></extra>", marker: { symbol: "triangle-up-open", size: 6, color: colour("text-3") } },
        ],
        layout: {
          ...frame, xaxis: { ...frame.xaxis, ...reach(cards) },
          yaxis: { ...frame.yaxis, range: [0, highest * 1.1], autorange: false },
          annotations: silent.length ? [{ x: 1, xref: "paper", xanchor: "right", y: 0.42, yref: "paper", yanchor: "bottom", showarrow: false, text: "△ bound above 1: says nothing", font: { color: colour("text-3"), size: 11 } }] : [],
        },
      };
    },
    label: ({ cards }) => {
      const top = most(cards, (c) => c.kl);
      const far = cards.filter((c) => c.tv !== null);
      const widest = far.length ? most(far, (c) => c.tv) : null;
      const silent = cards.filter((c) => c.tb !== null && c.tb > 1).length;
      return `KL of fused from masked for ${cards.length} steps: on average ${rounded(cards.reduce((sum, c) => sum + c.kl, 0) / cards.length)} nats, at most ${top.kl} at step ${top.i + 1}. `
        + `${widest ? `Total variation on the set at most ${widest.tv}, at step ${widest.i + 1}` : "No step has a set to compare on"}; the bound is above 1 and says nothing at ${silent} steps.`;
    },
    numbers: ({ cards }) => ({
      caption: "Divergence of fused from masked by step", head: [["Step", "tnum"], ["Token", "mono"], ["KL, nats", "n"], ["TV on the set", "n"], ["Bound", "n"]],
      rows: cards.map((c) => [c.i + 1, c.w, c.kl, c.tv, c.tb]),
    }),
  });

  /* ---- margin ---- */
  add("margin", {
    title: "Distance to the threshold",
    marks: selection,
    absent: ({ cards }) => (cards.some((c) => c.mg !== null) ? "" : "No step has a threshold, so there is no distance to it."),
    figure: ({ cards }) => {
      const frame = layout("margin");
      const bar = (name, own, pattern, line) => ({
        type: "bar", name, x: own.map((c) => c.i + 1), y: own.map((c) => c.mg), hovertemplate: "step %{x}: %{y} nats<extra></extra>",
        marker: { color: colour("data-2"), line: { width: line, color: colour("data-2") }, pattern: { shape: pattern, size: 5, solidity: 0.35, fgcolor: colour("data-2"), bgcolor: colour("surface") } },
      });
      const values = cards.map((c) => c.mg).filter((value) => value !== null);
      const span = values.reduce(([a, b], value) => [Math.min(a, value), Math.max(b, value)], [0, 0.1]);
      const room = (span[1] - span[0]) * 0.08;
      return {
        data: [bar("above", cards.filter((c) => c.mg !== null && c.mg >= 0), "", 0), bar("under", cards.filter((c) => c.mg !== null && c.mg < 0), "/", 1)],
        layout: {
          ...frame, barmode: "overlay", xaxis: { ...frame.xaxis, ...reach(cards) },
          yaxis: { ...frame.yaxis, range: [span[0] - (span[0] < 0 ? room : 0), span[1] + room], autorange: false },
          annotations: runs(cards).filter((run) => run.state === "uninformative" || run.state === "none").map((run) => ({
            x: (run.start + run.end + 1) / 2, y: 0.5, yref: "paper", showarrow: false, font: { color: colour("text-3"), size: 11 },
            text: run.end - run.start < 6 ? "" : run.state === "none" ? "no threshold" : "says nothing",
          })),
        },
      };
    },
    label: ({ cards }) => {
      const own = cards.filter((c) => c.mg !== null);
      const least = own.length ? most(own, (c) => -c.mg) : null;
      const under = own.filter((c) => c.mg < 0).map((c) => c.i + 1);
      return `Distance of each token to its threshold for ${own.length} of ${cards.length} steps. ${under.length ? `Under it: ${some(under)}.` : "None is under it."}`
        + `${least ? ` Least: ${coft.signed(least.mg)} nats at step ${least.i + 1}, ${least.w}.` : ""}`;
    },
    numbers: ({ cards }) => ({
      caption: "Distance to the threshold by step", head: [["Step", "tnum"], ["Token", "mono"], ["Margin, nats", "n"], ["Threshold"]],
      rows: cards.map((c) => [c.i + 1, c.w, c.mg, { calibrated: "own", inherited: "borrowed", uninformative: c.mg === null ? "every token passes" : "too weak", none: "none", mismatch: "of another policy" }[c.st]]),
    }),
  });
})();
