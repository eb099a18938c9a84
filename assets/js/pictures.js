/* Pictures: what they show, their numbers as a table, and their files. What is folded is not drawn, and nothing often. */
"use strict";
(() => {
  const coft = window.coft;
  const shared = window.coftShared;
  const PAUSE = 250;
  /* while someone steps along with a held key, pictures wait for it to rest */
  const REST = 80;
  const TABLE_PAUSE = 1000;
  const NEAR = 400;
  const IMAGE = { width: 960, head: 34, scale: 2 };
  const specs = new Map();
  const open = new Set();
  let now = { card: null, cards: [], selected: -1 }, last = 0, timer = null, waiting = false, clock = null, first = null;
  /* pictures of the chain are drawn anew when the chain has changed, and only marked where another step is selected */
  const version = { chain: 0, card: 0 };
  let known = { cards: null, length: 0, end: null, card: null };
  let section = null, menu = null, chosen = null;

  const template = () => shared.templates[coft.theme()];
  const colour = (name) => shared.palettes[coft.theme()][name];
  const running = () => coft.session && coft.session.state().running;
  const seen = (node) => {
    if (!node || !node.isConnected) return false;
    if (node.checkVisibility ? !node.checkVisibility() : node.offsetParent === null) return false;
    /* during a run, what would have to be scrolled to waits */
    if (!running()) return true;
    const { top, bottom } = node.getBoundingClientRect();
    return bottom > -NEAR && top < innerHeight + NEAR;
  };

  /* ---- drawing ---- */
  const label = (node, text) => {
    node.setAttribute("role", "img");
    node.setAttribute("aria-label", text);
  };
  const none = (name, text) => {
    const box = document.querySelector(`[data-figure="${name}"]`);
    if (!box) return;
    box.querySelector(".none").hidden = !text;
    box.querySelector(".none").textContent = text || "";
    box.querySelector(".plot").hidden = Boolean(text);
  };
  const drawOne = (name, spec) => {
    const node = spec.node();
    if (!node) return false;
    const absent = spec.absent ? spec.absent(now) : "";
    none(name, absent);
    spec.held = null;
    if (absent) return true;
    const figure = spec.figure(now, node);
    if (!figure) return true;
    const layout = { ...figure.layout, template: template(), autosize: true };
    if (spec.marks) layout.shapes = spec.marks(now);
    window.Plotly.react(node, figure.data, layout, shared.config);
    Object.assign(spec, { held: node.data, marked: now.selected });
    label(spec.labelled ? spec.labelled() : node, spec.label(now));
    return true;
  };
  /* Gradio may have drawn its own figure into the place, or replaced it */
  const current = (spec) => spec.drawn === version[spec.needs] && (!spec.held || (spec.node() && spec.node().data === spec.held));
  const marked = (spec) => !spec.held || !spec.marks || spec.marked === now.selected;
  const mark = (spec) => {
    spec.marked = now.selected;
    window.Plotly.relayout(spec.node(), { shapes: spec.marks(now) });
  };
  const refresh = () => {
    last = performance.now();
    const chain = now.cards.length > 0;
    if (section && section.hidden === chain) section.hidden = !chain;
    if (!chain) return;
    let missing = false;
    /* what is in sight is asked before anything is drawn: drawing would make the browser lay the page out anew each time */
    const due = [...specs].filter(([name, spec]) => (spec.needs === "chain" || now.card)
      && (!current(spec) || !marked(spec) || (open.has(name) && spec.told !== version[spec.needs])));
    for (const [name, spec] of due.filter(([, spec]) => seen(spec.place()))) {
      if (!current(spec)) {
        if (window.Plotly && drawOne(name, spec)) spec.drawn = version[spec.needs];
        else missing = true;
      } else if (!marked(spec)) mark(spec);
      if (open.has(name)) table(name, spec);
    }
    /* Plotly arrives after the page; until then the newest state waits */
    if (missing && timer === null) timer = setTimeout(() => { timer = null; refresh(); }, 120);
  };
  /* charts are drawn when the browser has nothing more urgent to do, a few times a second during a run */
  const soon = (run) => (window.requestIdleCallback ? requestIdleCallback(run, { timeout: 250 }) : setTimeout(run, 60));
  const later = (rest = 0) => {
    if (waiting) return;
    const at = performance.now();
    if (first === null) first = at;
    const wait = running() ? PAUSE - (at - last) : Math.min(rest, first + PAUSE - at);
    const draw = () => { waiting = true; soon(() => { waiting = false; first = null; refresh(); }); };
    clearTimeout(clock);
    if (wait > 0) clock = setTimeout(draw, wait); else draw();
  };

  /* ---- numbers ---- */
  const holder = (name) => document.querySelector(`[data-table="${name}"]`);
  const fill = (name, spec) => {
    const { caption, head, rows } = spec.numbers(now);
    const cell = (value, at) => coft.el(at === 0 ? "th" : "td", {
      scope: at === 0 ? "row" : null, class: head[at][1] || null, text: value === null || value === undefined ? "none" : String(value),
    });
    const box = holder(name);
    const place = box.scrollTop;
    box.replaceChildren(coft.el("table", {}, coft.el("caption", { class: "vh", text: caption }),
      coft.el("thead", {}, coft.el("tr", {}, ...head.map(([text, kind]) => coft.el("th", { scope: "col", class: kind === "n" ? kind : null, text })))),
      coft.el("tbody", {}, ...rows.map((row) => coft.el("tr", {}, ...row.map(cell))))));
    box.scrollTop = place;
    Object.assign(spec, { told: version[spec.needs], toldAt: performance.now() });
  };
  const table = (name, spec) => {
    if (spec.told === version[spec.needs]) return;
    if (running() && performance.now() - spec.toldAt < TABLE_PAUSE) return;
    fill(name, spec);
  };
  const toggle = (button) => {
    const { picture } = button.closest("[data-picture]").dataset;
    const wanted = !open.has(picture);
    if (wanted) open.add(picture); else open.delete(picture);
    button.setAttribute("aria-expanded", String(wanted));
    const box = holder(picture);
    box.hidden = !wanted;
    box.tabIndex = 0;
    box.setAttribute("role", "region");
    box.setAttribute("aria-label", `Numbers: ${specs.get(picture).title}`);
    if (wanted) fill(picture, specs.get(picture));
  };

  /* ---- files ---- */
  const say = (text) => { const line = document.querySelector("#pictures .said"); if (line) line.textContent = text; };
  const save = (format) => {
    const spec = specs.get(chosen);
    const node = spec.node();
    const figure = node && window.Plotly && !(spec.absent && spec.absent(now)) ? spec.figure(now, node) : null;
    if (!figure) { say("There is nothing to draw yet."); return; }
    if (spec.marks) figure.layout.shapes = spec.marks(now);
    const { session, branch } = coft.session.state();
    const height = (figure.layout.height || 200) + IMAGE.head;
    const margin = { ...figure.layout.margin };
    margin.t = (margin.t || 0) + IMAGE.head;
    const step = spec.needs === "card" ? `, step ${now.card.i + 1}` : "";
    const layout = {
      ...figure.layout, template: template(), width: IMAGE.width, height, margin, autosize: false, paper_bgcolor: colour("surface"),
      title: {
        text: `${spec.title} · audit ${session}, branch ${branch}${step}`, x: 0, xref: "paper", xanchor: "left", y: 1, yref: "container", yanchor: "top",
        pad: { t: 12 }, font: { size: 13, color: colour("text") },
      },
    };
    const filename = `audit-${session}-${branch}-${chosen}${spec.needs === "card" ? `-step-${now.card.i + 1}` : ""}`;
    window.Plotly.downloadImage({ data: figure.data, layout, config: shared.config }, {
      format, filename, width: IMAGE.width, height, scale: format === "png" ? IMAGE.scale : 1,
    }).then(() => say("The image is being downloaded."), () => say("The image could not be made; try the other format."));
  };
  document.addEventListener("click", (event) => {
    const button = event.target.closest && event.target.closest("[data-picture] [data-do]");
    if (!button) return;
    if (button.dataset.do === "picture-numbers") toggle(button);
    else if (button.dataset.do === "picture-image" && menu) {
      chosen = button.closest("[data-picture]").dataset.picture;
      menu.open(button, () => {});
    }
  });
  /* pictures come into sight by scrolling and unfolding */
  document.addEventListener("scroll", () => later(REST), { passive: true, capture: true });
  document.addEventListener("toggle", () => later(), { capture: true });
  window.addEventListener("resize", () => later());
  const outdate = (...kinds) => kinds.forEach((kind) => { version[kind] += 1; });
  coft.onTheme(() => { outdate("chain", "card"); later(); });

  coft.pictures = {
    /* spec: title, place() in the page, node() that Plotly draws into, figure(now, node), label(now), numbers(now);
       needs "card" where it shows the selected step; marks(now) are shapes for the selected step, which move without the
       picture being drawn anew; absent(now) says why there is nothing to draw */
    add(name, spec) { specs.set(name, { needs: "chain", drawn: -1, held: null, marked: -1, told: -1, toldAt: 0, place: spec.node, ...spec }); },
    show(cards, selected) {
      const card = cards[selected] || null;
      const end = cards[cards.length - 1] || null;
      const chain = known.cards !== cards || known.length !== cards.length || known.end !== end;
      if (chain) outdate("chain");
      if (known.card !== card) outdate("card");
      else if (!chain && now.selected === selected) return;
      known = { cards, length: cards.length, end, card };
      now = { card, cards, selected };
      later(chain ? 0 : REST);
    },
    mount(element) {
      section = element.querySelector(".pictures");
      menu = coft.menu(element.querySelector("#menu-image"), (item) => save(item.dataset.format));
      later();
    },
    owns: (node) => [...specs.values()].some((spec) => spec.node() === node),
    colour, template,
  };
})();
