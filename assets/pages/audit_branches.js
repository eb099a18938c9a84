/* The tree of branches: where the shown one stands, what can be done with each, and two chains beside each other. */
import { act, confirm, draw, expose, gauge, icon, link, made, offers, onFailure, plural, redraw, signed } from "../base/core.js";
import { menu } from "../base/menus.js";
import { shared } from "../base/shared.js";
import { html, nothing, svg } from "../base/vendor/lit-html.js";
import { session } from "./audit_session.js";

const MOST_COMPARED = 8;
const MOST_CRUMBS = 3;
const PAUSE = 250;
const ROW = 28;
const AXIS = 18;
const LEAST = 8;
const INDENT = 12;
const DEEPEST = 6;
const shut = new Set();
let send, panel = null, files = null, opened = null, since = 0, newest = 0, asking = 0, renaming = null, target = null;
let drawn = { at: 0, key: "" }, timer = null;

const state = () => session.state();
const nodes = () => state().crumbs?.tree || [];
const byId = (id) => nodes().find((node) => node.id === id);
const find = (selector) => panel.querySelector(selector);
const tell = (text) => { find(".told").textContent = text; };
const say = (name, data) => send(name, { session: state().session, shown: state().branch, ...data });
/* of several answers with a tree, only the last one that was asked for counts */
const ask = (name, data = {}) => { newest = say(name, data); return newest; };
const label = (node) => node.name || node.token;

/* ---- crumbs: the path to the shown branch, its siblings, and the branches that leave it ---- */
const called = (item) => html`<span class=${item.name ? nothing : "mono"}>${label(item)}</span>`;
const placed = (item) => (item.step === null ? item.token : html`${icon("pin")}${item.step} ${called(item)}`);
const crumb = (item, inner = placed(item)) => (item.on ? html`<span class="node on" aria-current="true">${inner}</span>`
  : html`<button type="button" class="node" data-branch=${item.id}>${inner}</button>`);
const few = (items, pinned) => {
  const left = items.length - MOST_CRUMBS;
  return html`${items.slice(0, MOST_CRUMBS).map((item) => crumb({ ...item, on: false }, pinned ? placed(item) : called(item)))}${left > 0
    ? html`<button type="button" class="node" data-do="unfold-tree">${`${left} more`}</button>` : nothing}`;
};
const crumbsInto = (bar, { crumbs, cards }) => {
  const { path, parent, at, siblings, children: leaving } = crumbs;
  const card = at === null ? null : cards[at];
  const other = card && card.pt !== card.w;
  const beside = html`<span class="hint">${`siblings at ${at + 1}`}</span><button type="button" class="node" data-branch=${parent}>${other
    ? html`<span class="mono">${card.pt}</span><span class="hint"> COFT’s choice</span>` : html`<span class="hint">the chain before</span>`}</button>${few(siblings, false)}`;
  draw(bar, path.length > 1 || leaving.length ? html`${path.map((item, place) => html`${place
    ? html`<span class="sep" aria-hidden="true">/</span>` : nothing}${crumb(item)}`)}<span class="sib flow">${parent !== null && at !== null ? beside : nothing}${
    leaving.length ? html`<span class="hint">leads to</span>${few(leaving, true)}` : nothing}</span>` : nothing);
};

/* ---- the tree as rows and lanes: each branch is a line along its steps, departing where it was forked ---- */
let list, graph, more, shown = null, active = null, editing = null, held = false;
const children = (id) => nodes().filter((node) => node.parent === id);
const visible = () => {
  const hidden = new Set();
  return nodes().filter((node) => {
    if (node.parent !== null && (hidden.has(node.parent) || shut.has(node.parent))) hidden.add(node.id);
    return !hidden.has(node.id);
  });
};
const spoken = (node) => [
  label(node), node.name && node.step !== null && `token ${node.token}`, node.step !== null && `forced at step ${node.step}`,
  plural(node.length, "step"), node.end, node.id === shown && "shown",
].filter(Boolean).join(", ");
/* up to which step each line belongs to the shown chain */
const path = () => {
  const upto = new Map();
  let node = byId(shown), stop = node ? node.length : 0;
  while (node) {
    upto.set(node.id, stop);
    stop = node.step === null ? 0 : node.step - 1;
    node = node.owner === null ? null : byId(node.owner);
  }
  return upto;
};
const ticks = (longest) => {
  const by = [1, 2, 4, 8, 16, 32, 64, 128, 256].find((size) => longest / size <= 8) || 512;
  return [1, ...Array.from({ length: Math.floor(longest / by) }, (_, at) => (at + 1) * by).filter((at) => at > 1)];
};
const lane = (node, y, from, x, on) => {
  const start = node.step === null ? 0 : node.step - 1, end = x(node.length), here = node.id === shown ? " on" : "";
  const corner = Math.min(8, x(1) - x(0));
  const bend = from < 0 ? `M${x(start)} ${y}` : `M${x(start)} ${(from + 0.5) * ROW}V${y - 8}Q${x(start)} ${y} ${x(start) + corner} ${y}`;
  const line = (kind, d) => svg`<path class=${kind} d=${d}></path>`;
  const at = node.step === null ? x(0) : Math.max(x(node.step - 0.5), x(start) + corner);
  return svg`${line("lane", `${bend}H${end}`)}${on === undefined ? nothing : line("lane on", `${bend}H${x(Math.max(on, start))}`)}${
    line(`end${here}`, node.end ? `M${end} ${y - 6}V${y + 6}` : `M${end - 4} ${y - 4}L${end} ${y}L${end - 4} ${y + 4}`)}${
    here ? line("fork on", `M${at} ${y - 7}L${at + 7} ${y}L${at} ${y + 7}L${at - 7} ${y}Z`) : svg`<circle class="fork" cx=${at} cy=${y} r="4"></circle>`}`;
};
const lanes = () => {
  const rows = visible();
  const width = Math.max(80, graph.clientWidth), high = rows.length * ROW;
  const longest = Math.max(LEAST, ...nodes().map((node) => node.length));
  const x = (step) => 8 + (step / longest) * (width - 20);
  const on = path();
  /* the shown chain lies over the others */
  const upper = (node) => (on.has(node.id) ? 1 : 0) + (node.id === shown ? 1 : 0);
  const order = rows.map((node, at) => [node, at]).sort(([one], [other]) => upper(one) - upper(other));
  draw(graph, html`<svg class="chart" width=${width} height=${high + AXIS}>${ticks(longest).map((tick) => svg`<line class="grid" x1=${x(tick - 0.5)}
    x2=${x(tick - 0.5)} y1="4" y2=${high}></line><text class="tick" x=${x(tick - 0.5)} y=${high + 12} text-anchor="middle">${tick}</text>`)}${order
    .map(([node, at]) => lane(node, (at + 0.5) * ROW, node.owner === null ? -1 : rows.findIndex((row) => row.id === node.owner), x, on.get(node.id)))}</svg>`);
};
const nameOf = (node) => {
  const parent = children(node.id).length > 0, first = node.step === null;
  const title = node.name ? `${node.name}, token “${node.token}”` : node.token;
  return html`<span class="name" style=${`padding-left:${Math.min(node.depth, DEEPEST) * INDENT}px`}><span class=${`twist${parent ? "" : " leafy"}`} aria-hidden="true"
    data-twist=${node.id}>${parent ? icon("chev") : nothing}</span><span class=${`called cut${first || node.name ? "" : " mono"}`}
    aria-hidden="true" title=${first ? nothing : title}>${label(node)}</span>${first ? nothing : html`<span class="hint tnum" aria-hidden="true">${`at ${node.step}`}</span>`}</span>`;
};
const row = (node) => {
  const peers = children(node.parent), here = node.id === shown;
  return html`<li role="treeitem" class=${`row${here ? " on" : ""}`} data-id=${node.id} tabindex=${node.id === active ? 0 : -1} aria-level=${node.depth + 1}
    aria-setsize=${peers.length} aria-posinset=${peers.indexOf(node) + 1} aria-expanded=${children(node.id).length ? String(!shut.has(node.id)) : nothing}
    aria-selected=${String(here)} aria-current=${here ? "true" : nothing} aria-keyshortcuts="Enter F2 Delete"><span class="vh">${spoken(node)}</span>${
    nameOf(node)}<span class="room"></span><span class="leaf cut tnum" aria-hidden="true">${plural(node.length, "step") + (node.end ? ` · ${node.end}` : "")}</span></li>`;
};
const actionsOf = (node) => html`<button type="button" class="btn quiet" data-more=${node.id} tabindex=${node.id === active ? 0 : -1} aria-haspopup="menu"
  aria-expanded="false" aria-controls="menu-branch" aria-label=${`Actions on ${label(node)}`}><span aria-hidden="true">⋯</span></button>`;
const drawTree = (focus = false) => {
  if (editing !== null) { held = true; return; }
  const before = focus || list.contains(document.activeElement);
  const rows = visible();
  if (!rows.some((node) => node.id === active)) active = rows.some((node) => node.id === shown) ? shown : rows[0] ? rows[0].id : null;
  redraw(list, rows.map(row));
  redraw(more, rows.map(actionsOf));
  lanes();
  if (before) focusOn(active);
};
const item = (id) => list.querySelector(`[data-id="${id}"]`);
const focusOn = (id) => {
  active = id;
  list.querySelectorAll(".row").forEach((node) => node.setAttribute("tabindex", Number(node.dataset.id) === id ? "0" : "-1"));
  more.querySelectorAll("button").forEach((node) => node.setAttribute("tabindex", Number(node.dataset.more) === id ? "0" : "-1"));
  item(id)?.focus();
};
const fold = (id, closed) => {
  if (closed) shut.add(id); else shut.delete(id);
  active = id;
  drawTree(true);
};
/* a name in its place */
const rename = (id) => {
  const node = byId(id), place = item(id)?.querySelector(".name");
  if (!node || !place || editing !== null) return;
  const field = made(html`<input class="input small" value=${label(node)} maxlength="200" aria-label=${`Name of ${label(node)}`} autocomplete="off">`);
  let closed = false;
  const close = (focus) => {
    closed = true;
    field.remove();
    editing = null;
    if (held) { held = false; drawTree(); }
    if (focus) focusOn(id);
  };
  const commit = (focus) => {
    if (closed || field.disabled) return;
    const name = field.value.trim();
    if (!name || name === label(node)) { close(focus); return; }
    field.disabled = true;
    renaming = { done: () => close(focus), failed: () => { field.disabled = false; field.focus(); } };
    renaming.nonce = ask("rename", { branch: id, name });
  };
  editing = id;
  field.addEventListener("keydown", (event) => {
    event.stopPropagation();
    if (event.key !== "Enter" && event.key !== "Escape") return;
    event.preventDefault();
    if (event.key === "Enter") commit(true); else close(true);
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
  const id = Number(here.dataset.id), rows = visible(), own = children(id);
  const at = rows.findIndex((node) => node.id === id);
  const table = {
    ArrowDown: () => rows[at + 1] && focusOn(rows[at + 1].id),
    ArrowUp: () => rows[at - 1] && focusOn(rows[at - 1].id),
    Home: () => focusOn(rows[0].id),
    End: () => focusOn(rows[rows.length - 1].id),
    ArrowRight: () => { if (shut.has(id)) fold(id, false); else if (own.length) focusOn(own[0].id); },
    ArrowLeft: () => { if (own.length && !shut.has(id)) fold(id, true); else if (byId(id).parent !== null) focusOn(byId(id).parent); },
    Enter: () => open(id),
    " ": () => open(id),
    F2: () => rename(id),
    Delete: () => prune(id),
    ContextMenu: () => more.querySelector(`[data-more="${id}"]`)?.click(),
  };
  const run = event.shiftKey && event.key === "F10" ? table.ContextMenu : table[event.key];
  if (!run) return;
  event.preventDefault();
  run();
};
const mountTree = () => {
  list = find("[role=tree]");
  graph = find(".graph");
  more = find(".more");
  list.addEventListener("keydown", pressed);
  list.addEventListener("click", (event) => {
    const here = event.target.closest("[role=treeitem]");
    if (!here) return;
    const id = Number(here.dataset.id);
    if (event.target.closest("[data-twist]:not(.leafy)")) { fold(id, !shut.has(id)); return; }
    focusOn(id);
    open(id);
  });
  more.addEventListener("click", (event) => {
    const button = event.target.closest("[data-more]");
    if (button) openMenu(button, Number(button.dataset.more));
  });
  window.addEventListener("resize", () => { if (shown !== null && nodes().length && graph.clientWidth) lanes(); });
};
const showTree = (branch) => {
  if (branch !== shown) active = branch;
  shown = branch;
  if (editing !== null && !byId(editing)) editing = null;
  drawTree();
};

/* ---- two chains beside each other, from the token where they part ---- */
let beside, pair = null, pairAsked = 0, parted = null;
const compareTwo = (left, right) => {
  pair = [left, right];
  pairAsked = send("beside", { session: state().session, pair });
};
const closeBeside = () => {
  pair = null;
  parted = null;
  beside.hidden = true;
  redraw(beside, nothing);
};
const cells = (step, most) => {
  if (!step) return html`<td class="past" colspan="2"><span class="vh">ended</span></td>`;
  const [word, classes, marks, ratio, said] = step;
  return html`<td title=${said}><span class=${`tok ${classes}`}><span class="mk">${marks.map((name) => icon(name))}</span><span class="w">${word}</span><span
    class="vh">, ${said}</span></span></td><td class="n gauged">${gauge(ratio, most)}<span class="figure">${signed(ratio)}</span></td>`;
};
const drawBeside = ({ left, right, apart, lead }) => {
  const most = Math.max(shared.sensitive, ...[...left.steps, ...right.steps].map((step) => Math.abs(step[3])));
  const length = Math.max(left.steps.length, right.steps.length);
  const name = (side) => (byId(side.id) ? label(byId(side.id)) : "");
  const head = (side) => html`<th scope="colgroup" colspan="2">${name(side) + (side.id === state().branch ? " (shown)" : "")}</th>`;
  const table = html`<div class="scroll scrollbox scrolls" tabindex="0" role="region" aria-labelledby="h-beside"><table><caption class="vh">Tokens and sensitivity by step</caption><thead><tr><th
    scope="col">Step</th>${head(left)}${head(right)}</tr></thead><tbody>${Array.from({ length }, (_, at) => html`<tr><td class="tnum">${apart + at + 1}</td>${
    cells(left.steps[at], most)}${cells(right.steps[at], most)}</tr>`)}</tbody></table></div>`;
  redraw(beside, html`<div class="bar"><h3 id="h-beside">${length ? `Apart from step ${apart + 1} on` : "Not apart yet"}</h3><span
    class="hint">bars: sensitivity of each token</span><div class="end flow"><a href=${comparison([left.id, right.id])} ?hidden=${!offers("compare")}>Open in Compare</a><button type="button"
    class="btn small quiet" data-do="close-beside">Close</button></div></div><p class="parted hint cut">${`both: ${lead || "the prompt"}`}</p><div class="texts halves">${
    [left, right].map((side) => html`<p><span class="hint">${`${name(side)}: `}</span>${side.text || "nothing written yet"}</p>`)}</div>${
    length ? table : html`<p class="hint">Both chains are the same so far.</p>`}`);
  beside.hidden = false;
};
/* the shown chain may have grown, and a branch may have gone */
const followBeside = () => {
  if (!parted || !pair) return;
  const { branch, cards, running } = state();
  if (pair.some((id) => !byId(id))) { closeBeside(); return; }
  const own = [parted.left, parted.right].find((side) => side.id === branch);
  if (!own || running || own.length === cards.length) return;
  own.length = cards.length;
  compareTwo(...pair);
};

/* ---- the panel ---- */
const family = (id) => {
  const own = byId(id);
  if (!own) return [];
  const peers = nodes().filter((other) => (own.step === null ? other.owner === id : other.owner === own.owner && other.step === own.step));
  const first = own.step === null ? [id] : [own.owner, id];
  return [...new Set([...first, ...peers.map((other) => other.id)])].slice(0, MOST_COMPARED);
};
const comparison = (ids) => `./compare?session=${state().session}&branches=${ids.join(",")}`;
const render = () => {
  timer = null;
  if (!panel) return;
  const { branch, cards, crumbs, finished } = state();
  const own = crumbs ? byId(branch) : null;
  panel.hidden = !own;
  if (!own) return;
  Object.assign(own, { length: cards.length, end: finished || "" });
  const all = nodes(), ids = family(branch), alone = all.length < 2;
  find(".title").textContent = `Branches (${all.length})`;
  find(".alone").hidden = !alone;
  find(".tree").hidden = alone;
  Object.assign(find(".siblings"), { hidden: ids.length < 2 || !offers("compare"), href: comparison(ids) });
  if (!panel.open || alone) return;
  const key = JSON.stringify([all, branch]);
  if (key !== drawn.key) showTree(branch);
  drawn = { at: performance.now(), key };
  followBeside();
};
/* a run adds a token many times a second; its line grows a few times a second */
const later = () => {
  if (timer !== null) return;
  const wait = state().running ? Math.max(0, PAUSE - (performance.now() - drawn.at)) : 0;
  if (wait === 0) render(); else timer = setTimeout(render, wait);
};

/* ---- what can be done ---- */
const open = (id) => {
  if (id === state().branch) return;
  const busy = Boolean(state().busy);
  tell(busy ? "Something is under way; pause it or wait for its end, then open another branch." : "");
  if (!busy) session.reopen(id);
};
const prune = (id) => {
  tell("");
  asking = say("ponder", { branch: id });
};
const copy = async (id) => {
  const step = id === state().branch && state().selected >= 0 ? state().selected + 1 : byId(id)?.step;
  const url = new URL("./", location.href);
  url.search = new URLSearchParams({ session: state().session, branch: id, ...(step ? { step } : {}) });
  try {
    await navigator.clipboard.writeText(url.href);
    tell("The link is copied.");
  } catch {
    /* a browser may keep the clipboard from pages: the link is then shown, to be copied by hand */
    find(".told").replaceChildren("Copy this link: ", made(html`<a href=${url.href}>${url.href}</a>`));
  }
};
const partner = (id) => (id === state().branch ? (byId(id) || {}).owner : id);
const ACTIONS = { open, prune, rename, link: copy, beside: (id) => compareTwo(state().branch, partner(id)) };
const openMenu = (button, id) => {
  target = id;
  files.open(button, (box) => {
    const ids = family(id), here = id === state().branch;
    const entry = (name) => box.querySelector(`[data-action=${name}]`);
    entry("open").hidden = here;
    entry("prune").hidden = byId(id).step === null;
    entry("beside").hidden = partner(id) === null;
    entry("beside").querySelector(".title").textContent = here ? "Put beside the text that it left" : "Put beside the shown one";
    Object.assign(entry("compare"), { hidden: ids.length < 2 || !offers("compare"), href: comparison(ids) });
  });
};

/* ---- answers ---- */
const whenIdle = (run) => { if (state().busy) setTimeout(() => whenIdle(run), 60); else run(); };
const takeTree = (message) => {
  if (message.said) tell(message.said);
  if (renaming && renaming.nonce === message.nonce) { const { done } = renaming; renaming = null; done(); }
  const now = state(), { branch } = now;
  if (message.session !== now.session || message.nonce < newest) return;
  if (!message.crumbs.tree.some((node) => node.id === branch)) {
    whenIdle(() => { if (state().session === message.session && state().branch === branch) session.reopen(message.branch); });
    return;
  }
  /* an answer that was asked for before the chain was opened may lack what has happened since */
  if (message.branch !== branch || message.nonce <= since) { ask("tree"); return; }
  now.crumbs = message.crumbs;
  crumbsInto(document.querySelector("#transcript .crumbs"), now);
  render();
};
const question = async (message) => {
  if (message.nonce !== asking) return;
  const { session: asked } = state(), own = byId(message.branch);
  if (!message.allowed) { tell(message.text); focusOn(message.branch); return; }
  const yes = await confirm(`Prune “${own ? label(own) : ""}”?`, message.text, "Prune");
  if (state().session !== asked) return;
  focusOn(yes && byId(message.branch) ? byId(message.branch).parent : message.branch);
  if (!yes) return;
  tell("Pruning …");
  ask("prune", { branch: message.branch });
};
const receive = (message) => {
  if (message.kind === "tree") takeTree(message);
  else if (message.kind === "prune") question(message);
  else if (message.kind === "beside" && pair && message.nonce === pairAsked && message.session === state().session) {
    parted = message;
    drawBeside(message);
  }
};
const bind = () => {
  panel = document.querySelector("#transcript .branching");
  if (!panel) { requestAnimationFrame(bind); return; }
  files = menu(find("#menu-branch"), ({ dataset: { action } }) => { if (ACTIONS[action]) ACTIONS[action](target); });
  beside = find(".beside");
  mountTree();
  act(beside, { "close-beside": () => { closeBeside(); focusOn(state().branch); } });
  panel.addEventListener("toggle", (event) => { if (event.target === panel && panel.open) { drawn.key = ""; render(); } });
  act(document.querySelector("#transcript .crumbs"), {
    "unfold-tree": () => {
      panel.open = true;
      panel.querySelector("summary").focus();
    },
  });
  later();
};
export const branches = {
  /* another chain is shown */
  draw(bar, now) {
    crumbsInto(bar, now);
    since = newest;
    if (opened !== now.session && panel) { tell(""); closeBeside(); }
    opened = now.session;
  },
  mount(element, trigger, props, watch) {
    send = link(trigger, props, watch, receive);
    bind();
    session.watch(later);
    onFailure("rename", () => { if (renaming) { const { failed } = renaming; renaming = null; failed(); } ask("tree"); });
    onFailure("prune", () => { tell(""); ask("tree"); });
    onFailure("beside", closeBeside);
  },
};
expose({ branches });
