/* What each masked span contributes: squares by span and step for the chain, bars for the selected token. */
"use strict";
(() => {
  const coft = window.coft;
  const CELL = 18;
  const LEAST = 9;
  let root, send, found = null, working = false, drawn = null;

  const find = (selector) => root.querySelector(selector);
  const same = (state) => found && found.session === state.session && found.branch === state.branch;
  const lines = () => [...found.spans.map((span) => ({ ...span, kind: "span" })),
    ...(found.spans.length > 1 ? [{ t: "only together", r: found.x, z: null, kind: "rest" }] : []),
    { t: "total", r: found.r, z: found.z, kind: "total" }];
  const label = (line) => (line.f
    ? [coft.el("span", { class: `sw f-${line.f}`, title: line.n }), coft.el("span", { class: "word", text: line.t, title: `${line.t}, ${line.n}` })]
    : [coft.el("span", { class: "hint", text: line.t })]);

  /* size is strength, filled is likelier, hollow is less likely: the picture reads without colour */
  const square = (value, most, x, y, width) => {
    const side = Math.max(0, Math.sqrt(Math.abs(value) / most)) * (Math.min(width, CELL) - 2);
    if (side < 1) return null;
    const hot = Math.abs(value) >= window.coftShared.sensitive;
    return coft.svg("rect", {
      class: `${value < 0 ? "less" : "more"}${hot ? " hot" : ""}`, x: x + (width - side) / 2, y: y + (CELL - side) / 2, width: side, height: side,
    });
  };
  const matrix = () => {
    const box = find(".matrix");
    const rows = found.spans;
    const steps = found.r.length;
    const room = Math.max(200, box.clientWidth - 150);
    const width = Math.max(LEAST, Math.min(CELL, room / Math.max(1, steps)));
    const most = Math.max(window.coftShared.sensitive, ...rows.flatMap((line) => line.r.map(Math.abs)));
    const svg = coft.svg("svg", { width: width * steps, height: CELL * rows.length, class: "chart", "aria-hidden": "true" });
    svg.append(coft.svg("rect", { class: "s-now", y: 0.5, width, height: CELL * rows.length - 1, rx: 2, visibility: "hidden" }));
    rows.forEach((line, at) => {
      svg.append(coft.svg("line", { class: "grid", x1: 0, x2: width * steps, y1: (at + 0.5) * CELL, y2: (at + 0.5) * CELL }));
      line.r.forEach((value, step) => {
        const node = square(value, most, step * width, at * CELL, width);
        if (node) svg.append(node);
      });
    });
    const head = coft.el("div", { class: "lines", "aria-hidden": "true" }, ...rows.map((line) => coft.el("div", {}, ...label(line))));
    box.replaceChildren(head, coft.el("div", { class: "cells" }, svg), coft.el("p", { class: "vh", text: found.peak }));
    svg.dataset.width = width;
    drawn = { svg, width };
  };
  const numbers = (state) => {
    const all = lines();
    const head = coft.el("tr", {}, coft.el("th", { scope: "col", text: "Step" }), coft.el("th", { scope: "col", text: "Token" }),
      ...all.map((line) => coft.el("th", { scope: "col", class: "n", text: line.t })));
    const rows = found.r.map((_, step) => coft.el("tr", {}, coft.el("td", { class: "tnum", text: step + 1 }),
      coft.el("td", { class: "mono", text: state.cards[step] ? state.cards[step].w : "" }),
      ...all.map((line) => coft.el("td", { class: "n", text: coft.signed(line.r[step]) }))));
    find(".numbers .scroll").replaceChildren(coft.el("table", {}, coft.el("caption", { class: "vh", text: "Log ratio by step and span" }),
      coft.el("thead", {}, head), coft.el("tbody", {}, ...rows)));
  };
  const draw = (state) => {
    find(".found").hidden = false;
    matrix();
    find(".numbers .scroll").replaceChildren();
    if (find(".numbers").open) numbers(state);
  };

  /* ---- the selected token, in the inspector ---- */
  const shares = (state) => {
    const table = document.querySelector("#facts .shares");
    if (!table) return;
    const step = state.selected;
    const shown = same(state) && step >= 0 && step < found.r.length && found.spans.length > 0;
    table.hidden = !shown;
    if (!shown) return;
    const all = lines();
    const most = Math.max(window.coftShared.sensitive, ...all.map((line) => Math.abs(line.r[step])));
    table.querySelector("tbody").replaceChildren(...all.map((line) => coft.el("tr", { class: line.kind },
      coft.el("th", { scope: "row" }, ...label(line)), coft.el("td", {}, coft.gauge(line.r[step], most)),
      coft.el("td", { class: "n", text: coft.signed(line.r[step]) }),
      coft.el("td", { class: "n", text: line.z ? coft.signed(line.z[step]) : "" }))));
  };

  const words = (state) => {
    const lead = find(".lead");
    const button = find("[data-do=contribute]");
    const known = same(state) ? found.r.length : 0;
    button.disabled = working || state.busy !== null || state.touched || !state.cards.length || (known > 0 && known === state.cards.length);
    button.textContent = known ? "Compute again" : "What does each span contribute?";
    if (!known) lead.textContent = "Shows one masked span at a time to the masked branch and sees how far each token moves. Runs the model again over the whole chain.";
    else if (!found.spans.length) lead.textContent = "No span is masked, so there is nothing to contribute.";
    else lead.textContent = known < state.cards.length ? `Computed for the first ${known} of ${state.cards.length} steps.` : found.peak;
  };
  const receive = (message) => {
    working = false;
    find(".working").hidden = true;
    if (message.kind !== "contributions") return;
    const state = coft.session.state();
    found = { ...message, ...asked };
    if (same(state)) draw(state);
    coft.spans.show(state);
  };
  let asked = { session: null, branch: null };
  const contribute = () => {
    const state = coft.session.state();
    if (working || state.session === null || !state.cards.length) return;
    working = true;
    asked = { session: state.session, branch: state.branch };
    find(".working").hidden = false;
    words(state);
    send("contribute", { ...asked, prompt: state.prompt });
  };

  coft.spans = {
    mount(element, trigger, props, watch) {
      root = element.querySelector("section");
      send = coft.link(trigger, props, watch, receive);
      coft.act(root, { contribute });
      find(".numbers").addEventListener("toggle", () => {
        if (find(".numbers").open && found && !find(".numbers table")) numbers(coft.session.state());
      });
      find(".matrix").addEventListener("click", (event) => {
        const svg = event.target.closest("svg");
        if (!svg || !drawn) return;
        coft.session.select(Math.floor((event.clientX - svg.getBoundingClientRect().left) / drawn.width), true);
      });
      window.addEventListener("resize", () => { if (found && same(coft.session.state()) && !find(".found").hidden) matrix(); });
      coft.onFailure("contribute", () => { working = false; find(".working").hidden = true; words(coft.session.state()); });
    },
    show(state) {
      if (!root) return;
      root.hidden = state.cards.length === 0;
      const known = same(state) && found.spans.length > 0;
      if (!known) find(".found").hidden = true;
      else if (find(".found").hidden) draw(state);
      words(state);
      shares(state);
      if (!known || !drawn) return;
      const now = drawn.svg.querySelector(".s-now");
      const inside = state.selected >= 0 && state.selected < found.r.length;
      now.setAttribute("visibility", inside ? "visible" : "hidden");
      if (inside) now.setAttribute("x", state.selected * drawn.width);
    },
  };
})();
