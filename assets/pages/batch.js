/* The batches page: a new batch beside the past ones, or one batch whose rows are asked for page by page. What is
   asked for stands in the address, so that a view of it can be kept as a link. */
import { bell } from "../base/bell.js";
import { spoken } from "../base/charts.js";
import { act, addressed, expose, link, onFailure, pausing, refocus, whenReady } from "../base/core.js";
import { downloads } from "../base/downloads.js";
import { mountForm, outdate } from "../base/forms.js";
import { frame } from "../base/frame.js";
import { asked, listing, sureToDelete } from "../base/lists.js";
import { onSettings } from "../base/rail.js";

const EVERY = 1200;
const TOTALS_EVERY = 4000;
const AGAIN = 6000;
const PAUSE = 300;
const ROWS = { text: "", group: "", state: "", order: "line", down: false, page: 1, size: 25 };
const RULE = { selected: "", other: "", regex: false, case: false, small: false };
const state = { batch: null, rule: { ...RULE }, wanted: 0, running: false, finished: null, told: 0, shown: {} };
let root, past, send, list;

const find = (selector) => root.querySelector(selector);
const say = (text) => { find(".told").textContent = text; };

/* ---- what is asked for ---- */
const address = () => {
  const open = state.batch !== null;
  const target = asked.write(new URL(location.href), { batch: state.batch }, { batch: null });
  asked.write(target, open ? list.query : ROWS, ROWS);
  return asked.write(target, open ? state.rule : RULE, RULE);
};
const keepAddress = () => asked.keep(address());
const request = (name) => {
  again.cancel();
  state.wanted = send(name, { query: { ...list.query, batch: state.batch } });
};
const again = pausing(() => request("find"), EVERY);
const refresh = () => {
  list.settle();
  keepAddress();
  request("find");
};

/* ---- which of both parts is shown ---- */
const showPart = () => {
  document.body.dataset.batches = state.batch === null ? "new" : "open";
  window.dispatchEvent(new Event("resize"));
};
const opened = () => {
  blank();
  showPart();
  list.show();
  request("find");
};
const open = (number) => {
  Object.assign(state, { batch: number, rule: { ...RULE } });
  Object.assign(list.query, ROWS);
  history.pushState(history.state, "", address());
  opened();
};
const overview = (push = true) => {
  again.cancel();
  state.batch = null;
  if (push) history.pushState(history.state, "", address());
  document.title = "My file";
  showPart();
  past.setAttribute("aria-busy", "true");
  state.wanted = send("listed", {});
};
const blank = () => {
  list.settle();
  Object.assign(state, { shown: {}, finished: null, told: 0 });
  find(".filters [name=text]").value = list.query.text;
  find(".batchhead").innerHTML = '<p class="sub">Loading …</p>';
  for (const name of [".batchlead", ".batchcontrols", ".batchstatus", ".batchnotes", "#batch-rows"]) find(name).replaceChildren();
  find("section").setAttribute("aria-busy", "true");
  say("");
  blankGroups();
};
const arrive = () => {
  const number = addressed("batch");
  Object.assign(state, { batch: number > 0 ? number : null, rule: asked.read(RULE) });
  Object.assign(list.query, asked.read(ROWS));
  if (state.batch === null) overview(false); else opened();
};

/* ---- what is shown ---- */
const fillPart = (selector, markup) => {
  if (state.shown[selector] === markup) return;
  state.shown[selector] = markup;
  const holder = find(selector);
  refocus(holder, () => { holder.innerHTML = markup; },
    (at) => holder.querySelector(`tr[data-line="${at.closest("tr")?.dataset.line}"] a`) || holder.querySelector("h2") || find("#batch-rows"));
};
const fill = (name, first, choices) => {
  /* an open menu is left alone */
  if (!state.running || find(`.filters [name=${name}]`) !== document.activeElement) list.menu(name, [["", first], ...choices]);
};
const receive = (message) => {
  if (message.kind === "begun") { bell.look(); open(message.batch); return; }
  if (message.kind === "list") { showPast(message); return; }
  if (receiveGroups(message) || message.batch !== state.batch || message.nonce !== state.wanted) return;
  fillPart(".batchhead", message.head);
  groups.lead = message.finding;
  showLead();
  fillPart(".batchcontrols", message.controls);
  fillPart(".batchstatus", message.status);
  fillPart("#batch-rows", message.rows);
  find(".batchnotes").innerHTML = message.notes;
  find(".progresssaid").textContent = message.progress;
  find("section").setAttribute("aria-busy", "false");
  list.query.page = message.page;
  fill("group", "All groups", message.groups);
  fill("state", "All states", message.states);
  list.show();
  keepAddress();
  asked.pager(root, message);
  if (message.said || state.running !== message.running) say(message.said);
  state.running = message.running;
  document.title = `${message.name} · My file`;
  if (state.finished !== message.finished && (!message.running || Date.now() - state.told > TOTALS_EVERY)) {
    Object.assign(state, { finished: message.finished, told: Date.now() });
    showGroups(state.batch);
  }
  if (message.running) again();
};
const showPast = (message) => {
  past.innerHTML = message.html;
  past.setAttribute("aria-busy", "false");
  if (message.said) frame.saved(message.said);
  if (message.gone === state.batch) {
    state.batch = null;
    keepAddress();
    showPart();
  }
  if (message.gone) past.focus({ preventScroll: true });
};

/* ---- totals by group and impact ratios of the open batch ---- */
const TICKS = ["regex", "case", "small"];
const groups = { batch: null, totals: 0, outcome: 0, lead: "", impact: "" };
/* the impact ratio leads as soon as a rule gives one */
const showLead = () => fillPart(".batchlead", groups.impact || groups.lead);
const at = (selector) => document.querySelector(`#batch-open ${selector}`);
const askTotals = () => {
  if (groups.batch !== null) groups.totals = send("totals", { batch: groups.batch, measure: at("[name=measure]").value });
};
const askOutcome = () => {
  ruledSoon.cancel();
  groups.outcome = send("outcome", { batch: groups.batch, rule: state.rule });
};
const ruled = () => {
  state.rule = Object.fromEntries([...at(".rule").elements].map((field) => [field.name, TICKS.includes(field.name) ? field.checked : field.value]));
  keepAddress();
  if (groups.batch !== null) askOutcome();
};
const ruledSoon = pausing(ruled, PAUSE);
/* another batch is opened: nothing of the one before stays */
const blankGroups = () => {
  ruledSoon.cancel();
  at("#batch-totals").dataset.empty = "true";
  Object.assign(groups, { batch: null, totals: 0, outcome: 0, lead: "", impact: "" });
  for (const [name, value] of Object.entries(state.rule)) at(`.rule [name=${name}]`)[TICKS.includes(name) ? "checked" : "value"] = value;
  at(".impactreport").replaceChildren();
  at(".totalsnumbers").replaceChildren();
};
const showGroups = (number) => {
  groups.batch = number;
  askTotals();
  askOutcome();
};
/* whether a message is one of these */
const receiveGroups = (message) => {
  if (message.kind === "totals" && message.nonce === groups.totals) {
    const holder = at("#batch-totals");
    holder.dataset.empty = String(message.empty);
    holder.style.setProperty("--plot", `${message.height}px`);
    at(".totalsnumbers").innerHTML = message.html;
    spoken(document.getElementById("totals-plot"),
      `${at("[name=measure]").selectedOptions[0].textContent} by group with intervals; the numbers stand below`);
  } else if (message.kind === "impact" && message.nonce === groups.outcome) {
    at(".preview-rule").innerHTML = message.preview;
    at(".impactreport").innerHTML = message.report;
    groups.impact = message.finding;
    showLead();
    at(".impactpanel").querySelectorAll(".acts .btn").forEach((button) => { button.disabled = !message.exports; });
  }
  return message.kind === "totals" || message.kind === "impact";
};
const print = () => {
  document.body.classList.add("printing-impact");
  window.addEventListener("afterprint", () => document.body.classList.remove("printing-impact"), { once: true });
  window.print();
};
const mountGroups = () => {
  act(at(".impactpanel"), { export: exported, formal, print });
  act(at(".totalsfoot"), { export: exported });
  at("[name=measure]").addEventListener("change", askTotals);
  at(".rule").addEventListener("submit", (event) => { event.preventDefault(); ruled(); });
  at(".rule").addEventListener("input", (event) => {
    ruledSoon.cancel();
    if (TICKS.includes(event.target.name)) ruled(); else ruledSoon();
  });
};

/* ---- what is done ---- */
const remove = async (button) => { if (await sureToDelete(button)) send("delete", { id: Number(button.dataset.id) }); };
const exported = (button) => {
  say("Writing the table …");
  send("export", { batch: state.batch, kind: button.dataset.kind, rule: state.rule });
};
const formal = async (button) => {
  const told = await downloads.sign(button);
  if (!told) return;
  say("Writing the report …");
  send("formal", { batch: state.batch, kind: button.dataset.kind, rule: state.rule, ...told });
};
const ACTIONS = {
  export: exported, delete: remove,
  reset() {
    list.look({ text: "", group: "", state: "" });
    find(".filters [name=text]").focus();
  },
  "to-impact": () => {
    at("#h-impact").scrollIntoView({ block: "start" });
    at("#rule-selected").focus({ preventScroll: true });
  },
  sort: (node) => list.sort(node),
  page: (node) => list.page(node),
  cancel: (node) => { node.disabled = true; request("cancel"); },
  resume: (node) => { node.disabled = true; request("resume"); bell.look(); },
};
/* the other parts of the page may come after this one */
const begin = () => {
  past = document.getElementById("past");
  if (!past || !document.querySelector(".impactreport")) { requestAnimationFrame(begin); return; }
  act(past, { delete: remove });
  past.addEventListener("click", (event) => {
    const line = event.target.closest("[data-do=open]");
    if (!line || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
    event.preventDefault();
    open(Number(line.dataset.id));
  });
  mountGroups();
  window.addEventListener("popstate", arrive);
  arrive();
};

const batches = {
  /* what is open, for what the page's own fields ask of the server */
  shown: () => JSON.stringify({ batch: state.batch, rule: state.rule }),
  written() { say("The file is ready and is being downloaded."); },
  mount(element, trigger, props, watch) {
    root = element;
    send = link(trigger, props, watch, receive);
    list = listing(root, ROWS, { menus: ["group", "state"], refresh, results: find("#batch-rows") });
    act(root, ACTIONS);
    onFailure(["cancel", "resume", "delete"], () => {
      state.shown = {};
      if (state.batch === null) overview(false); else refresh();
    });
    onFailure(["export", "formal"], () => say(""));
    onFailure("find", () => {
      if (state.running) again(AGAIN);
      else if (find("section").getAttribute("aria-busy") === "true") {
        overview(false);
        keepAddress();
      }
    });
    whenReady(begin);
  },
};
onSettings(outdate);
expose({ batches, calibrate: { mount: () => mountForm() } });
