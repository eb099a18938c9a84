/* The audit's pictures: when each is drawn, its numbers as a table, its file. What is folded is not drawn, and nothing often. */
import { colour, config, numberTable, onDrawn, plotly, saveImage, spoken, template } from "../base/charts.js";
import { draw, expose } from "../base/core.js";
import { menu } from "../base/menus.js";
import { onTheme } from "../base/theme.js";
import { FIGURES, reach } from "./audit_figures.js";
import { session } from "./audit_session.js";

const PAUSE = 250;
/* while someone steps along with a held key, pictures wait for it to rest */
const REST = 80;
const TABLE_PAUSE = 1000;
const NEAR = 400;
const IMAGE = { width: 960, head: 34, scale: 2 };
const pictures = new Map(Object.entries(FIGURES).map(([name, figure]) => [name, {
  needs: "chain", drawn: -1, empty: false, marked: -1, told: -1, toldAt: 0,
  node: () => document.querySelector(`[data-plot="${name}"]`),
  place: () => document.querySelector(`[data-figure="${name}"], [data-plot="${name}"]`), ...figure,
}]));
const open = new Set();
let now = { card: null, cards: [], selected: -1 }, last = 0, waiting = false, clock = null, first = null;
/* pictures of the chain are drawn again when the chain has changed, and only marked where another step is selected */
const version = { chain: 0, card: 0 };
let known = { cards: null, length: 0, end: null, card: null };
let section = null, files = null, chosen = null;

const running = () => session.state().running;
const seen = (node) => {
  if (!node || !node.isConnected || !node.checkVisibility()) return false;
  /* during a run, what would have to be scrolled to waits */
  if (!running()) return true;
  const { top, bottom } = node.getBoundingClientRect();
  return bottom > -NEAR && top < innerHeight + NEAR;
};

/* ---- drawing ---- */
const absence = (name, text) => {
  const box = document.querySelector(`[data-figure="${name}"]`);
  if (!box) return;
  box.querySelector(".none").hidden = !text;
  box.querySelector(".none").textContent = text;
  box.querySelector(".plot").hidden = Boolean(text);
};
const drawOne = (name, picture) => {
  const node = picture.node();
  if (!node) return false;
  const absent = picture.absent ? picture.absent(now) : "";
  absence(name, absent);
  picture.empty = Boolean(absent);
  if (absent) return true;
  if (!node.data) node.replaceChildren();
  const figure = picture.figure(now, node);
  const layout = { ...figure.layout, template: template(), autosize: true };
  if (picture.marks) layout.shapes = picture.marks(now);
  window.Plotly.react(node, figure.data, layout, config);
  picture.marked = now.selected;
  spoken(node, picture.label(now));
  return true;
};
const current = (picture) => picture.drawn === version[picture.needs];
const marked = (picture) => picture.empty || !picture.marks || picture.marked === now.selected;
const refresh = () => {
  last = performance.now();
  const chain = now.cards.length > 0;
  if (section && section.hidden === chain) section.hidden = !chain;
  if (!chain) return;
  /* what is in sight is asked before anything is drawn: drawing would make the browser lay out the page each time */
  const due = [...pictures].filter(([name, picture]) => (picture.needs === "chain" || now.card)
    && (!current(picture) || !marked(picture) || (open.has(name) && picture.told !== version[picture.needs])))
    .filter(([, picture]) => seen(picture.place()));
  if (due.length && !window.Plotly) {
    plotly().then(() => later(), (error) => due.forEach(([, picture]) => { picture.node().textContent = error.message; }));
    return;
  }
  for (const [name, picture] of due) {
    if (!current(picture)) {
      if (drawOne(name, picture)) picture.drawn = version[picture.needs];
    } else if (!marked(picture)) {
      picture.marked = now.selected;
      window.Plotly.relayout(picture.node(), { shapes: picture.marks(now) });
    }
    if (open.has(name)) table(name, picture);
  }
};
/* charts are drawn when the browser has nothing more urgent to do, a few times a second during a run */
const soon = (run) => (window.requestIdleCallback ? requestIdleCallback(run, { timeout: 250 }) : setTimeout(run, 60));
const later = (rest = 0) => {
  if (waiting) return;
  const at = performance.now();
  if (first === null) first = at;
  const wait = running() ? PAUSE - (at - last) : Math.min(rest, first + PAUSE - at);
  const begin = () => { waiting = true; soon(() => { waiting = false; first = null; refresh(); }); };
  clearTimeout(clock);
  if (wait > 0) clock = setTimeout(begin, wait); else begin();
};

/* ---- numbers ---- */
const holder = (name) => document.querySelector(`[data-table="${name}"]`);
const fill = (name, picture) => {
  const { caption: said, head, rows } = picture.numbers(now);
  draw(holder(name), numberTable(said, head, rows));
  Object.assign(picture, { told: version[picture.needs], toldAt: performance.now() });
};
const table = (name, picture) => {
  if (picture.told === version[picture.needs] || (running() && performance.now() - picture.toldAt < TABLE_PAUSE)) return;
  fill(name, picture);
};
const toggle = (button) => {
  const name = button.closest("[data-picture]").dataset.picture, box = holder(name);
  const wanted = !open.has(name);
  if (wanted) open.add(name); else open.delete(name);
  button.setAttribute("aria-expanded", String(wanted));
  Object.assign(box, { hidden: !wanted, tabIndex: 0 });
  box.setAttribute("role", "region");
  box.setAttribute("aria-label", `Numbers: ${pictures.get(name).title}`);
  if (wanted) fill(name, pictures.get(name));
};

/* ---- files ---- */
const say = (text) => { const line = document.querySelector("#pictures .said"); if (line) line.textContent = text; };
const save = (format) => {
  const picture = pictures.get(chosen);
  const node = picture.node();
  if (!node || !window.Plotly || !now.cards.length || (picture.absent && picture.absent(now))) { say("There is nothing to draw yet."); return; }
  const figure = picture.figure(now, node);
  const { session: audit, branch } = session.state();
  const { width, head, scale } = IMAGE;
  const height = (figure.layout.height || 200) + head;
  const step = picture.needs === "card" ? now.card.i + 1 : null;
  const layout = {
    ...figure.layout, ...(picture.marks ? { shapes: picture.marks(now) } : {}), width, height,
    margin: { ...figure.layout.margin, t: (figure.layout.margin?.t || 0) + head },
    title: {
      text: `${picture.title} · audit ${audit}, branch ${branch}${step === null ? "" : `, step ${step}`}`,
      x: 0, xref: "paper", xanchor: "left", y: 1, yref: "container", yanchor: "top", pad: { t: 12 }, font: { size: 13, color: colour("text") },
    },
  };
  const filename = `audit-${audit}-${branch}-${chosen}${step === null ? "" : `-step-${step}`}`;
  saveImage(figure.data, layout, { format, filename, width, height, scale: format === "png" ? scale : 1 })
    .then(() => say("The image is being downloaded."), () => say("The image could not be made; try the other format."));
};
document.addEventListener("click", ({ target }) => {
  const button = target.closest?.("[data-picture] [data-do]");
  if (button?.dataset.do === "picture-numbers") toggle(button);
  else if (button?.dataset.do === "picture-image" && files) {
    chosen = button.closest("[data-picture]").dataset.picture;
    files.open(button, () => {});
  }
});
/* pictures come into sight by scrolling and unfolding */
document.addEventListener("scroll", () => later(REST), { passive: true, capture: true });
document.addEventListener("toggle", () => later(), { capture: true });
window.addEventListener("resize", () => later());
onTheme(() => {
  version.chain += 1;
  version.card += 1;
  later();
});
onDrawn((node) => session.state().cards.length > 0 && [...pictures.values()].some((picture) => picture.node() === node));

export const showPictures = (cards, selected) => {
  const card = cards[selected] || null, end = cards[cards.length - 1] || null;
  const chain = known.cards !== cards || known.length !== cards.length || known.end !== end;
  if (chain) version.chain += 1;
  if (known.card !== card) version.card += 1;
  else if (!chain && now.selected === selected) return;
  known = { cards, length: cards.length, end, card };
  now = { card, cards, selected };
  later(chain ? 0 : REST);
};
expose({
  pictures: {
    reach,
    mount(element) {
      section = element.querySelector(".pictures");
      files = menu(element.querySelector("#menu-image"), (item) => save(item.dataset.format));
      later();
    },
  },
});
