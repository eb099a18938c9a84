/* Beside the aligned columns: their summary, the pictures' keys and numbers, and pictures as files. */
"use strict";
(() => {
  const coft = window.coft;
  const shared = window.coftShared;
  /* as in the figures that the server draws: by column a dash, a marker, and the colour of its line */
  const LOOKS = [["5 3", "circle", "text-2"], ["", "diamond", "accent"], ["2 3", "square", "text-2"], ["8 3 2 3", "triangle", "text"]];
  const SHAPES = {
    circle: ["circle", { cx: 14, cy: 5, r: 3.2 }, true],
    diamond: ["path", { d: "M14 1 18 5 14 9 10 5Z" }, true],
    square: ["rect", { x: 11, y: 2, width: 6, height: 6 }, false],
    triangle: ["path", { d: "M14 1.2 18 8.4H10Z" }, false],
  };
  const SIZE = { width: 900, height: 420 };

  const at = (id) => document.getElementById(id);
  const columns = () => coft.lanes.state.columns;
  const sample = (place) => {
    const [dash, shape, colour] = LOOKS[place];
    const [tag, attributes, full] = SHAPES[shape];
    const paint = `var(--${colour})`;
    const svg = coft.svg("svg", { width: 28, height: 10 });
    svg.append(coft.svg("line", { x1: 0, x2: 28, y1: 5, y2: 5, style: `stroke:${paint};stroke-width:1.6;stroke-dasharray:${dash || "none"}` }),
      coft.svg(tag, { ...attributes, style: `stroke:${paint};fill:${full ? paint : "var(--surface)"};stroke-width:1.4` }));
    return svg;
  };
  const PICTURES = ["vanilla", "sensitivity", "divergence", "changed"];
  const keys = () => PICTURES.forEach((name) => {
    at(`after-${name}`).querySelector(".key").replaceChildren(...columns()
      .map((own, place) => coft.el("span", {}, sample(place), own.name)).slice(name === "changed" ? 1 : 0));
  });

  /* ---- numbers ---- */
  const sheet = (titles, rows, name) => coft.el("table", {}, coft.el("caption", { class: "vh", text: name }),
    coft.el("thead", {}, coft.el("tr", {}, ...titles.map((text, place) => coft.el("th", { scope: "col", class: place ? "n" : null, text })))),
    coft.el("tbody", {}, ...rows.map(([first, ...rest]) => coft.el("tr", {}, coft.el("th", { scope: "row", class: "tnum", text: first }),
      ...rest.map((text) => coft.el("td", { class: "n", text }))))));
  /* total variation and KL of a step from vanilla, in words; empty where they are not known */
  const nats = (value) => (value < 0 ? "∞" : value.toPrecision(3));
  const apart = (cell, lead) => (cell.v[0] === null ? "" : `${lead}TV ${cell.v[0].toFixed(3)}, KL ${nats(cell.v[1])}`);
  const NUMBERS = {
    vanilla() {
      const longest = Math.max(0, ...columns().map((own) => own.cells.length));
      return sheet(["Step", ...columns().map((own) => `${own.name}: TV, KL in nats`)], Array.from({ length: longest }, (_, step) => [step + 1,
        ...columns().map((own) => { const cell = own.cells[step]; return cell && cell.v[0] !== null ? `${cell.v[0].toFixed(3)}, ${nats(cell.v[1])}` : "–"; })]), "Divergence from vanilla");
    },
    sensitivity() {
      const { rows } = coft.lanes.state;
      const cell = (steps, place) => (steps[place] === null ? null : columns()[place].cells[steps[place]]);
      return sheet(["Aligned step", ...columns().map((own) => own.name)], rows.map(([steps], row) => [row + 1,
        ...columns().map((own, place) => { const found = cell(steps, place); return found ? `${found.w} ${found.rt}` : "–"; })]), "Sensitivity");
    },
    divergence() {
      const longest = Math.max(0, ...columns().map((own) => own.cells.length));
      return sheet(["Step", ...columns().map((own) => own.name)], Array.from({ length: longest }, (_, step) => [step + 1,
        ...columns().map((own) => (own.cells[step] ? own.cells[step].d.toPrecision(3) : "–"))]), "KL divergence, nats");
    },
    changed() {
      const totals = columns().map(() => 0);
      return sheet(["Aligned step", ...columns().slice(1).map((own) => own.name)], coft.lanes.state.rows.map(([, apart], row) => {
        apart.forEach((differs, place) => { totals[place] += differs; });
        return [row + 1, ...totals.slice(1)];
      }), "Changed tokens so far");
    },
  };
  const fill = (name) => { const box = at(`numbers-${name}`); if (!box.hidden) box.replaceChildren(NUMBERS[name]()); };
  const numbers = (button) => {
    const box = at(`numbers-${button.dataset.figure}`);
    box.hidden = !box.hidden;
    button.setAttribute("aria-expanded", String(!box.hidden));
    fill(button.dataset.figure);
  };

  /* ---- a picture as a file: with its title, a legend and a ground, in the colours that are shown ---- */
  const image = (button) => {
    const { figure, format, title } = button.dataset;
    const plot = document.querySelector(`#plot-${figure} .js-plotly-plot`);
    if (!plot || !window.Plotly) return;
    const palette = shared.palettes[coft.theme()];
    const layout = { ...plot.layout, ...SIZE, autosize: false, template: shared.templates[coft.theme()], paper_bgcolor: palette.surface,
      plot_bgcolor: palette.surface, title: { text: title, x: 0.02, font: { color: palette.text, size: 14 } }, showlegend: true,
      legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom" }, margin: { l: 56, r: 20, t: 84, b: 52 } };
    const data = plot.data.map((trace) => ({ ...trace, showlegend: Boolean(trace.x && trace.x.length) }));
    window.Plotly.downloadImage({ data, layout }, { ...SIZE, format, filename: `compare-${figure}`, scale: 2 });
  };

  coft.comparedSide = {
    numbers, image, apart,
    show(message) {
      document.querySelector("#cmp-summary .sum").innerHTML = message.summary;
      document.querySelector("#cmp-rest .settings").innerHTML = message.differences;
      const notes = document.querySelector("#cmp-rest .notes");
      notes.hidden = message.notes.length === 0;
      coft.cautions(notes.querySelector(".cautions"), message.notes);
      document.querySelector("#after-sensitivity .peaks").textContent = message.peaks.join(" ");
      keys();
      Object.keys(NUMBERS).forEach(fill);
      PICTURES.forEach((name) => {
        const plot = at(`plot-${name}`);
        plot.setAttribute("role", "img");
        plot.setAttribute("aria-label", `${at(`cap-${name}`).querySelector("h2").textContent} of ${columns().map((own) => own.name).join(", ")}; the numbers are in a table.`);
      });
    },
  };
})();
