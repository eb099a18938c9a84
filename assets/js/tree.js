/* The tree of branches as rows and lanes: each branch is a line along its steps, departing where it was forked. */
"use strict";
(() => {
  const coft = window.coft;
  const ROW = 28;
  const AXIS = 18;
  const LEAST = 8;
  const INDENT = 12;
  const DEEPEST = 6;
  const shut = new Set();
  let list, graph, more, acts, nodes = [], shown = null, active = null, editing = null, held = false;

  const byId = (id) => nodes.find((node) => node.id === id);
  const children = (id) => nodes.filter((node) => node.parent === id);
  const visible = () => {
    const hidden = new Set();
    return nodes.filter((node) => {
      if (node.parent !== null && (hidden.has(node.parent) || shut.has(node.parent))) hidden.add(node.id);
      return !hidden.has(node.id);
    });
  };
  const label = (node) => node.name || node.token;
  const steps = (number) => `${number} step${number === 1 ? "" : "s"}`;
  const spoken = (node) => [
    label(node), node.name && node.step !== null ? `token ${node.token}` : null,
    node.step === null ? null : `forced at step ${node.step}`, steps(node.length), node.end || null,
    node.id === shown ? "shown" : null,
  ].filter(Boolean).join(", ");

  /* ---- lanes ---- */
  const path = () => {
    /* up to which step each line belongs to the shown chain */
    const upto = new Map();
    let node = byId(shown);
    let stop = node ? node.length : 0;
    while (node) {
      upto.set(node.id, stop);
      stop = node.step === null ? 0 : node.step - 1;
      node = node.owner === null ? null : byId(node.owner);
    }
    return upto;
  };
  const line = (svg, kind, d) => svg.append(coft.svg("path", { class: kind, d }));
  const ticks = (longest) => {
    const by = [1, 2, 4, 8, 16, 32, 64, 128, 256].find((size) => longest / size <= 8) || 512;
    const found = [1];
    for (let at = by; at <= longest; at += by) if (at > 1) found.push(at);
    return found;
  };
  const drawLane = (svg, node, y, rows, x, on) => {
    const start = node.step === null ? 0 : node.step - 1;
    const from = node.owner === null ? -1 : rows.indexOf(node.owner);
    const corner = Math.min(8, x(1) - x(0));
    const bend = from < 0 ? `M${x(start)} ${y}` : `M${x(start)} ${(from + 0.5) * ROW}V${y - 8}Q${x(start)} ${y} ${x(start) + corner} ${y}`;
    line(svg, "lane", `${bend}H${x(node.length)}`);
    if (on !== undefined) line(svg, "lane on", `${bend}H${x(Math.max(on, start))}`);
    const end = x(node.length);
    if (node.end) line(svg, `end${node.id === shown ? " on" : ""}`, `M${end} ${y - 6}V${y + 6}`);
    else line(svg, `end${node.id === shown ? " on" : ""}`, `M${end - 4} ${y - 4}L${end} ${y}L${end - 4} ${y + 4}`);
    const at = node.step === null ? x(0) : Math.max(x(node.step - 0.5), x(start) + corner);
    svg.append(node.id === shown
      ? coft.svg("path", { class: "fork on", d: `M${at} ${y - 7}L${at + 7} ${y}L${at} ${y + 7}L${at - 7} ${y}Z` })
      : coft.svg("circle", { class: "fork", cx: at, cy: y, r: 4 }));
  };
  const draw = () => {
    const rows = visible();
    const width = Math.max(80, graph.clientWidth);
    const longest = Math.max(LEAST, ...nodes.map((node) => node.length));
    const x = (step) => 8 + (step / longest) * (width - 20);
    const svg = coft.svg("svg", { class: "chart", width, height: rows.length * ROW + AXIS });
    for (const tick of ticks(longest)) {
      svg.append(coft.svg("line", { class: "grid", x1: x(tick - 0.5), x2: x(tick - 0.5), y1: 4, y2: rows.length * ROW }));
      const text = coft.svg("text", { class: "tick", x: x(tick - 0.5), y: rows.length * ROW + 12, "text-anchor": "middle" });
      text.textContent = String(tick);
      svg.append(text);
    }
    const on = path();
    const order = rows.map((node) => node.id);
    /* the shown chain lies over the others */
    const upper = (node) => (on.has(node.id) ? 1 : 0) + (node.id === shown ? 1 : 0);
    rows.map((node, at) => [node, (at + 0.5) * ROW]).sort((a, b) => upper(a[0]) - upper(b[0]))
      .forEach(([node, y]) => drawLane(svg, node, y, order, x, on.get(node.id)));
    graph.replaceChildren(svg);
  };

  /* ---- rows ---- */
  const name = (node) => {
    const parent = children(node.id).length > 0;
    return coft.el("span", { class: "name", style: `padding-left:${Math.min(node.depth, DEEPEST) * INDENT}px` },
      coft.el("span", { class: `twist${parent ? "" : " leafy"}`, "data-twist": node.id }, parent ? coft.icon("chev") : null),
      node.step === null ? coft.el("span", { class: "called", text: label(node) })
        : coft.el("span", { class: `called${node.name ? "" : " mono"}`, text: label(node), title: node.name ? `${node.name}, token “${node.token}”` : node.token }),
      node.step === null ? null : coft.el("span", { class: "hint tnum", text: `at ${node.step}` }));
  };
  const row = (node) => {
    const own = children(node.id);
    const peers = children(node.parent);
    return coft.el("li", {
      role: "treeitem", class: `row${node.id === shown ? " on" : ""}`, "data-id": node.id, tabindex: node.id === active ? "0" : "-1",
      "aria-level": node.depth + 1, "aria-setsize": peers.length, "aria-posinset": peers.indexOf(node) + 1,
      "aria-expanded": own.length ? String(!shut.has(node.id)) : null, "aria-selected": String(node.id === shown),
      "aria-current": node.id === shown ? "true" : null, "aria-label": spoken(node), "aria-keyshortcuts": "Enter F2 Delete",
    }, name(node), coft.el("span", { class: "room" }),
    coft.el("span", { class: "leaf tnum", text: `${steps(node.length)}${node.end ? ` · ${node.end}` : ""}` }));
  };
  const render = (focus = false) => {
    if (editing !== null) { held = true; return; }
    const before = focus || list.contains(document.activeElement);
    const rows = visible();
    if (!rows.some((node) => node.id === active)) active = rows.some((node) => node.id === shown) ? shown : rows[0] ? rows[0].id : null;
    list.replaceChildren(...rows.map(row));
    more.replaceChildren(...rows.map((node) => coft.el("button", {
      type: "button", class: "btn quiet", "data-more": node.id, tabindex: node.id === active ? "0" : "-1", "aria-haspopup": "menu",
      "aria-expanded": "false", "aria-controls": "menu-branch", "aria-label": `Actions on ${label(node)}`,
    }, coft.el("span", { "aria-hidden": "true", text: "⋯" }))));
    draw();
    if (before) focusOn(active);
  };
  const item = (id) => list.querySelector(`[data-id="${id}"]`);
  const focusOn = (id) => {
    active = id;
    list.querySelectorAll(".row").forEach((node) => node.setAttribute("tabindex", Number(node.dataset.id) === id ? "0" : "-1"));
    more.querySelectorAll("button").forEach((node) => node.setAttribute("tabindex", Number(node.dataset.more) === id ? "0" : "-1"));
    const node = item(id);
    if (node) node.focus();
  };
  const fold = (id, closed) => {
    if (closed) shut.add(id); else shut.delete(id);
    active = id;
    render(true);
  };
  const openMenu = (id) => { const button = more.querySelector(`[data-more="${id}"]`); if (button) button.click(); };

  /* ---- a name in its place ---- */
  const settle = () => {
    editing = null;
    if (held) { held = false; render(); }
  };
  const rename = (id) => {
    const node = byId(id);
    const place = item(id) && item(id).querySelector(".name");
    if (!node || !place || editing !== null) return;
    const field = coft.el("input", { class: "input small", value: label(node), maxlength: 200, "aria-label": `Name of ${label(node)}`, autocomplete: "off" });
    let closed = false;
    const close = (focus) => { closed = true; field.remove(); settle(); if (focus) focusOn(id); };
    const commit = (focus) => {
      if (closed || field.disabled) return;
      const text = field.value.trim();
      if (!text || text === label(node)) { close(focus); return; }
      field.disabled = true;
      acts.rename(id, text, () => close(focus), () => { field.disabled = false; field.focus(); });
    };
    editing = id;
    field.addEventListener("keydown", (event) => {
      event.stopPropagation();
      if (event.key === "Enter") { event.preventDefault(); commit(true); }
      if (event.key === "Escape") { event.preventDefault(); close(true); }
    });
    field.addEventListener("blur", () => commit(false));
    field.addEventListener("click", (event) => event.stopPropagation());
    place.append(field);
    field.focus();
    field.select();
  };

  const pressed = (event) => {
    const here = event.target.closest("[role=treeitem]");
    if (!here || event.ctrlKey || event.metaKey || event.altKey) return;
    const id = Number(here.dataset.id);
    const rows = visible();
    const at = rows.findIndex((node) => node.id === id);
    const own = children(id);
    const table = {
      ArrowDown: () => rows[at + 1] && focusOn(rows[at + 1].id),
      ArrowUp: () => rows[at - 1] && focusOn(rows[at - 1].id),
      Home: () => focusOn(rows[0].id),
      End: () => focusOn(rows[rows.length - 1].id),
      ArrowRight: () => { if (shut.has(id)) fold(id, false); else if (own.length) focusOn(own[0].id); },
      ArrowLeft: () => { if (own.length && !shut.has(id)) fold(id, true); else if (byId(id).parent !== null) focusOn(byId(id).parent); },
      Enter: () => acts.open(id),
      " ": () => acts.open(id),
      F2: () => rename(id),
      Delete: () => acts.prune(id),
      ContextMenu: () => openMenu(id),
    };
    const run = event.shiftKey && event.key === "F10" ? table.ContextMenu : table[event.key];
    if (!run) return;
    event.preventDefault();
    run();
  };

  coft.tree = {
    mount(element, actions) {
      acts = actions;
      list = element.querySelector("[role=tree]");
      graph = element.querySelector(".graph");
      more = element.querySelector(".more");
      list.addEventListener("keydown", pressed);
      list.addEventListener("click", (event) => {
        const twist = event.target.closest("[data-twist]:not(.leafy)");
        const here = event.target.closest("[role=treeitem]");
        if (!here) return;
        const id = Number(here.dataset.id);
        if (twist) { fold(id, !shut.has(id)); return; }
        focusOn(id);
        acts.open(id);
      });
      more.addEventListener("click", (event) => {
        const button = event.target.closest("[data-more]");
        if (button) acts.menu(button, Number(button.dataset.more));
      });
      window.addEventListener("resize", () => { if (nodes.length && graph.clientWidth) draw(); });
    },
    show(tree, current) {
      nodes = tree;
      if (current !== shown) active = current;
      shown = current;
      if (editing !== null && !byId(editing)) editing = null;
      render();
    },
    rename, focus: (id) => focusOn(id), label: (id) => (byId(id) ? label(byId(id)) : ""),
  };
})();
