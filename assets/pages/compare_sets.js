/* A prompt set under the columns: begun, followed while it runs, its prompts sorted, and one of them opened. */
import { bell } from "../base/bell.js";
import { act, confirm, draw, expose, link, onFailure, options, pausing, refocus } from "../base/core.js";
import { html, nothing } from "../base/vendor/lit-html.js";

const AGAIN = 2500;
/* a long set takes its time to be read; looking again waits for several times as long */
const REST = 5;
const FRESH = { order: "line", column: 0, descending: false, page: 1 };
const ASCENDING = ["line", "prompt", "parted_at"];
const state = { set: 0, query: { ...FRESH }, wanted: 0, asked: 0, running: false, line: "" };
const waiting = [];
let root, send, page;

const find = (selector) => root.querySelector(selector);
const look = (name = "view") => {
  again.cancel();
  state.asked = performance.now();
  state.wanted = send(name, { query: { set: state.set, ...state.query } });
};
const again = pausing(() => look(), AGAIN);

/* ---- what is open ---- */
const progress = (column) => html`<li><span class="who">${column.name}${column.line ? html`<span class="hint tnum">${` ${column.line}`}</span>` : nothing}</span><span class="progress" role="progressbar"
  aria-valuemax="1" aria-valuenow=${column.share} aria-label=${`${column.name}: ${column.said}`}><i style=${`width:${100 * column.share}%`}></i></span><span class="hint tnum">${column.said}</span><a class="hint"
  href=${`./batches?batch=${column.batch}`}>batch</a></li>`;
const mark = () => root.querySelectorAll(".set-rows tbody tr").forEach((row) => {
  const button = row.querySelector("[data-sessions]");
  const opened = new URLSearchParams(location.search).get("sessions");
  const on = state.line ? row.dataset.line === state.line : button?.dataset.sessions === opened && button !== null;
  row.classList.toggle("on", on);
  if (on) row.setAttribute("aria-current", "true"); else row.removeAttribute("aria-current");
});
const show = (message) => {
  const first = root.hidden;
  state.running = message.running;
  state.query.page = message.page;
  const texts = { h2: message.name, ".about": message.about, ".where": message.where,
    "[role=status]": message.running ? "Running" : message.resumable ? "Stopped" : "Finished" };
  Object.entries(texts).forEach(([selector, text]) => { find(selector).textContent = text; });
  draw(find(".set-progress"), message.progress.map(progress));
  find(".set-means").innerHTML = message.means;
  const rows = find(".set-rows");
  refocus(rows, () => { rows.innerHTML = message.rows; });
  find(".pager").hidden = message.pages < 2;
  find("[data-set=previous]").disabled = message.page < 2;
  find("[data-set=next]").disabled = message.page >= message.pages;
  find("[data-set=cancel]").hidden = !message.cancellable;
  find("[data-set=resume]").hidden = !message.resumable;
  find("[data-set=remove]").hidden = message.running;
  draw(find(".set-notes"), message.notes.map((text) => html`<li class="hint">${text}</li>`));
  root.hidden = false;
  mark();
  if (first) page.opened(state.set);
  again.cancel();
  if (message.running) again(Math.max(AGAIN, REST * (performance.now() - state.asked)));
};
const close = (quietly) => {
  again.cancel();
  Object.assign(state, { set: 0, query: { ...FRESH }, running: false, line: "" });
  root.hidden = true;
  if (!quietly) page.opened(0);
};
const open = (number) => {
  Object.assign(state, { set: number, query: { ...FRESH }, line: "" });
  root.hidden = true;
  look();
};

/* ---- what can be begun or gone on with ---- */
const list = ({ sets: begun, stored }) => {
  const box = document.querySelector(".set-begin");
  const row = (set) => html`<li><span class="title">${set.name}<span class="hint tnum">${set.about + (set.running ? ", running" : "")}</span></span><button
    type="button" class="btn small" data-set="show" data-id=${set.id} aria-label=${`Open ${set.name}`}>Open</button></li>`;
  draw(box.querySelector(".set-list"), begun.length ? begun.map(row) : html`<li class="hint">None yet.</li>`);
  const select = box.querySelector("#set-stored");
  draw(select, options([["", stored.length ? "Choose one, or upload a file" : "None stored yet"], ...stored]));
  select.value = "";
  select.disabled = !stored.length;
};
const receive = (message) => {
  if (message.kind === "listed") list(message);
  else if (message.kind === "removed") { close(); sets.list(); }
  else if (message.nonce !== state.wanted) return;
  else if (message.kind === "set" && state.set) show(message);
  else if (message.kind === "started") { bell.look(); page.notice(); open(message.set); sets.list(); }
  else if (message.kind === "mismatch") page.mismatch(message);
};
const sort = (node) => {
  const order = node.dataset.order, column = Number(node.dataset.column);
  const same = state.query.order === order && (state.query.column === column || order === "line" || order === "prompt");
  const descending = same ? !state.query.descending : !ASCENDING.includes(order);
  Object.assign(state.query, { order, column, descending, page: 1 });
  look();
};
const ACTIONS = {
  sort,
  cancel: () => look("cancel"),
  resume: () => look("resume"),
  rows: () => send("table", { id: state.set, which: "rows" }),
  means: () => send("table", { id: state.set, which: "means" }),
  previous: () => { state.query.page -= 1; look(); },
  next: () => { state.query.page += 1; look(); },
  show: (node) => open(Number(node.dataset.id)),
  open: (node) => {
    state.line = node.dataset.line;
    mark();
    page.open(node.dataset.sessions.split(",").map((id) => [Number(id), null]));
  },
  remove: async () => {
    const yes = await confirm("Delete this comparison?", "Its batches go with it; the sessions stay in the library.", "Delete");
    if (yes) send("remove", { id: state.set });
  },
};

export const sets = {
  mount(element, trigger, props, watch) {
    root = element.querySelector("section");
    send = link(trigger, props, watch, receive);
    act(document, ACTIONS, "set");
    document.addEventListener("change", ({ target }) => {
      if (target.id === "set-stored" && target.value) send("take", { id: Number(target.value) });
    });
    onFailure("set-view", () => { if (state.running) again(); else if (root.hidden) close(); });
    waiting.splice(0).forEach((call) => call());
  },
  /* the page around: `opened(number)`, `open(chains)`, `notice()`, `mismatch(message)` */
  within(around) { page = around; },
  /* the number of the comparison that is open; 0 for none */
  shown: () => (root && !root.hidden ? state.set : 0),
  /* the parts of the page may come in any order */
  list() { if (send) send("listed", {}); else waiting.push(sets.list); },
  open(number) { if (send) open(number); else waiting.push(() => open(number)); },
  begin(asked) { state.wanted = send("start", { name: document.querySelector("#set-name").value, ...asked }); },
  close() { if (state.set) close(true); },
};
expose({ sets });
