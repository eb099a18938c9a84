/* The swap page: what is exchanged is chosen here and sent whole, so that an answer always belongs to its question. */
import { colour, config, plotly, saveImage, spoken, template } from "../base/charts.js";
import {
  act, addressed, cautions, draw, expose, icon, link, notice as noticeIn, onFailure, options, pausing, readdress, tab,
} from "../base/core.js";
import { editor } from "../base/editor.js";
import { carried } from "../base/frame.js";
import { choice, look as lookOf, onSettings } from "../base/rail.js";
import { html, nothing } from "../base/vendor/lit-html.js";

const PAUSE = 200;
const PAIRS = [["", "pronouns as typed"], ["she", "with she"], ["he", "with he"], ["they", "with they"]];
const state = {
  /* what the reviewer chose; pronouns are null until they are touched */
  pronouns: null, groups: {}, category: "", left: new Set(), roles: {}, original: true, members: {}, paraphrases: [],
  look: null, asked: null, form: null, wanted: 0, turn: 0, run: null, values: null, opened: false,
};
let root, form, send;

const find = (selector) => root.querySelector(selector);
const pick = (selector) => form.querySelector(selector);
const say = (text) => { find(".told").textContent = text; };
const family = () => (state.look ? state.look.category : state.category);
const groups = () => state.groups[family()] || [];
const notice = (text, button) => noticeIn(find(".runbar + .notice"), text, button);

/* ---- what is sent ---- */
const numbers = () => ({ length: find("#swap-length").value, answer: find("#swap-answer").value });
const look = () => {
  Object.assign(state, { turn: state.turn + 1, form: null, wanted: 0 });
  find(".texts").setAttribute("aria-busy", "true");
  askSoon();
  controls();
};
const ask = async () => {
  const { turn } = state;
  const { prompt, spans } = await editor.ready();
  if (turn !== state.turn) return;
  if (!prompt.trim()) { nothingYet(); return; }
  const { pronouns, category, left, roles, original, members, paraphrases } = state;
  state.asked = {
    prompt, spans, pronouns: pronouns || [], groups: groups(), category, left: [...left], roles, original, members, paraphrases,
  };
  state.wanted = send("look", { form: state.asked, proceed: true });
  keep();
};
const askSoon = pausing(ask, PAUSE);
/* what was chosen and not compared yet is kept in this tab, so that a reload does not lose it */
const memory = () => `coft-swap ${location.search}`;
const forget = () => tab.forget(memory());
const keep = () => {
  if (!state.opened || !state.values) return;
  const { prompt, spans, removed, settled } = editor.kept();
  if (!prompt.trim() || (settled && result.shown && print() === result.printed)) { forget(); return; }
  const { pronouns, category, left, roles, original, members, paraphrases, values } = state;
  const form = {
    prompt, spans, pronouns, groups: groups(), category, left: [...left], roles, original, members, paraphrases, ...numbers(),
  };
  tab.keep(memory(), { form, removed, settled, values });
};
const recall = () => {
  const kept = tab.read(memory());
  return typeof kept?.form?.prompt === "string" && Array.isArray(kept.form.spans) && Array.isArray(kept.values) ? kept : null;
};
/* put a form back as it was sent */
const restore = ({ form: given, removed = [], settled = true }, values) => {
  const { prompt, spans, pronouns, groups: chosen, category, left, roles, original, members = {}, paraphrases = [], length, answer } = given;
  Object.assign(state, { pronouns, groups: { [category]: chosen }, category, left: new Set(left), roles, original, members, paraphrases });
  find("#swap-length").value = length;
  find("#swap-answer").value = answer;
  pick("#swap-original").checked = original;
  editor.restore({ prompt, spans, removed, settled }, choice(values), lookOf(values));
  look();
};
const print = () => JSON.stringify([state.form || state.asked, numbers(), state.values]);
const compare = () => { find(".stale").hidden = !result.shown || print() === result.printed; };

/* ---- what can be chosen ---- */
const controls = () => {
  const running = state.run !== null;
  find("[data-do=run]").disabled = !state.form || running;
  Object.assign(find("[data-do=cancel]"), { hidden: !running, disabled: running && state.run.cancelled });
  find(".doing").classList.toggle("on", running);
  compare();
};
const texts = (markup, refusal, many) => {
  find(".texts").innerHTML = markup;
  find(".texts").setAttribute("aria-busy", "false");
  find(".refusal").textContent = refusal;
  find(".many").textContent = many;
};
const nothingYet = () => {
  state.look = null;
  pick(".choices").hidden = true;
  pick(".nothing").hidden = false;
  texts("", "The variants of your prompt appear here.", "");
  controls();
};
const span = (item) => html`<label class="tickbox"><input type="checkbox" data-span=${item.name} .checked=${!state.left.has(item.name)}> <span
  class="word">${item.text}</span><span class=${`sw f-${item.key}`} aria-hidden="true"></span><span
  class="hint tnum">${` ${item.family}, character ${item.at}`}</span></label>`;
const role = (item) => html`<label class="role flow"><span class="word">${item.text}</span><span class="hint tnum">${` at character ${item.at} stands `}</span><select
  class="select small" data-role=${item.name}>${options(item.roles, state.roles[item.name] || item.role)}</select>${item.sure || state.roles[item.name]
  ? nothing : html`<span class="caution">uncertain: please check</span>`}</label>`;
const group = (item, at) => html`<li class="group-chip"><span class="word">${item.text}</span>${state.look && state.look.hasPronoun
  ? html`<select class="select small quiet" data-with=${at} aria-label=${`Pronouns that go with ${item.text}`}>${options(PAIRS, item.with)}</select>`
  : nothing}<button type="button" class="btn small quiet" data-do="drop" data-at=${at} aria-label=${`Remove ${item.text}`}>${icon("cross")}</button></li>`;
const drawGroups = () => {
  draw(pick(".groups .picked"), groups().map(group));
  pick(".offered").querySelectorAll("[data-term]").forEach((node) => {
    node.setAttribute("aria-pressed", String(groups().some((item) => item.text === node.dataset.term)));
  });
};
const wordsOf = ({ name, words }) => html`<div class="field"><label>${name}<textarea class="input" data-members=${name}
  .value=${state.members[name] ?? words.join(", ")}></textarea></label></div>`;
const drawLists = (lists) => {
  draw(pick(".words-of .each"), lists.map(wordsOf));
  pick("#swap-paraphrases").value = state.paraphrases.join("\n");
};
/* the words of a file; a group that no variant has yet is put in place by its first word */
const read = ({ members, paraphrases }) => {
  for (const [name, words] of Object.entries(members)) {
    state.members[name] = words.join(", ");
    if (![...(state.look?.targets || []), ...groups()].some(({ text }) => words.includes(text))) add(words[0]);
  }
  if (paraphrases.length) state.paraphrases = paraphrases;
  look();
};
const offer = (term) => html`<button type="button" class="btn small" data-do="offer" data-term=${term}>${term}</button>`;
const show = (message) => {
  /* which family the groups of a restored form belong to is known only now */
  const restored = state.look === null ? groups() : [];
  state.look = message;
  if (restored.length) state.groups[family()] ??= restored;
  /* a prompt whose only marked words are pronouns has an obvious exchange */
  const obvious = state.pronouns === null && message.hasPronoun && !message.families.length;
  if (obvious) state.pronouns = ["she", "he"];
  pick(".nothing").hidden = message.targets.length > 0;
  pick(".choices").hidden = message.targets.length === 0;
  draw(pick(".spans .boxes"), message.targets.map(span));
  const sets = pick(".sets");
  sets.disabled = !message.hasPronoun;
  sets.querySelectorAll("[data-pronoun]").forEach((box) => { box.checked = (state.pronouns || []).includes(box.dataset.pronoun); });
  sets.querySelector(".why").textContent = message.hasPronoun
    ? "Each makes a variant: pronouns of the same set change with them, and verbs beside them."
    : "No masked word of the prompt is a pronoun.";
  pick(".roles").hidden = message.pronouns.length === 0;
  draw(pick(".roles .list"), message.pronouns.map(role));
  pick(".groups").hidden = message.families.length === 0;
  pick(".family").hidden = message.families.length < 2;
  draw(pick("#swap-family"), options(message.families));
  pick("#swap-family").value = message.category;
  pick(".nohints").hidden = message.usual.length > 0;
  draw(pick(".offered"), message.usual.map(offer));
  draw(pick("#swap-further"), message.further.map((term) => html`<option value=${term}></option>`));
  drawGroups();
  drawLists(message.lists);
  texts(message.variants, message.refusal, message.count ? `${message.count} variants` : "");
  state.form = message.refusal ? null : state.asked;
  controls();
  if (obvious) look();
};
const add = (text) => {
  const word = text.trim().replace(/\s+/g, " ");
  if (!word || groups().some((item) => item.text === word)) return;
  state.groups[family()] = [...groups(), { text: word, with: "" }];
  drawGroups();
  look();
};
const drop = (at) => {
  state.groups[family()] = groups().filter((_, other) => other !== at);
  drawGroups();
  look();
};
const changed = ({ target: { dataset, checked, value, id, files } }) => {
  if (dataset.span !== undefined) state.left[checked ? "delete" : "add"](dataset.span);
  else if (dataset.pronoun) {
    state.pronouns = [...form.querySelectorAll("[data-pronoun]")].filter((box) => box.checked).map((box) => box.dataset.pronoun);
  } else if (dataset.role) {
    state.roles[dataset.role] = value;
    draw(pick(".roles .list"), state.look.pronouns.map(role));
  } else if (dataset.with !== undefined) {
    groups()[Number(dataset.with)].with = value;
    drawGroups();
  } else if (dataset.members) state.members[dataset.members] = value;
  else if (id === "swap-paraphrases") state.paraphrases = value.split("\n").filter((line) => line.trim());
  else if (id === "swap-file-of-words") { if (files[0]) files[0].text().then((text) => send("lists", { text })); return; }
  else if (id === "swap-family") state.category = value;
  else if (id === "swap-original") state.original = checked;
  else return;
  look();
};

/* ---- running ---- */
const start = (proceed) => {
  if (!state.form || state.run) return;
  notice();
  say("Waiting for the model …");
  find(".doing i").style.width = "0";
  const printed = print(), { values } = state;
  state.run = { number: null, cancelled: false, printed };
  state.run.nonce = send("run", { form: { ...state.form, ...numbers() }, proceed, values, printed });
  controls();
};
const ended = (text) => { state.run = null; say(text); controls(); };
const cancel = () => {
  if (!state.run) return;
  state.run.cancelled = true;
  say("Cancelling after the current token …");
  if (state.run.number !== null) send("cancel", { number: state.run.number });
  controls();
};
/* what a run answers, each if it is the run that is still waited for */
const RUNNING = {
  progress({ number, share, text }) {
    const fresh = state.run.number === null;
    state.run.number = number;
    if (state.run.cancelled) { if (fresh) cancel(); return; }
    find(".doing i").style.width = `${100 * share}%`;
    say(`${Math.round(100 * share)} %: ${text}`);
  },
  cancelled() { ended("Cancelled. Nothing of it is kept."); },
  mismatch({ text }) {
    ended("");
    notice(text, html`<button type="button" class="btn small" data-do="proceed">Proceed uncertified</button>`);
  },
  result(message) {
    const { printed } = state.run;
    ended("Done.");
    find(".teach").hidden = true;
    forget();
    readdress({ session: null, result: message.key, token: null });
    showResult(message, printed);
    compare();
    keep();
  },
};
const receive = (message) => {
  if (message.settings) {
    root.dataset.ready = "";
    state.opened = true;
  }
  const mine = state.run !== null && message.nonce === state.run.nonce;
  if (message.kind === "look") { if (message.nonce === state.wanted) show(message); }
  else if (message.kind === "lists") read(message);
  else if (message.kind === "draft") {
    editor.load(message.prompt, message.spans, message.preview, choice(message.settings), lookOf(message.settings));
    cautions(find("section > .cautions"), message.notes);
    carried();
    look();
  } else if (message.kind === "stored" || message.kind === "kept") reopened(message);
  else if (message.kind === "opened") location.href = `./?session=${message.session}`;
  else if (mine && RUNNING[message.kind]) RUNNING[message.kind](message);
  /* an answer of another token; a later question makes it void */
  else if (message.kind === "result" && message.nonce === result.wanted) {
    showResult(message);
    readdress({ token: message.answer });
  }
};
/* a stored comparison, or what was chosen before the page was reloaded and not compared */
const reopened = ({ kind, form: stored, result: found, settings }) => {
  const kept = waiting || stored;
  waiting = null;
  if (kind === "stored") {
    find(".teach").hidden = true;
    showResult(found, stored.printed);
  }
  restore(kept, settings);
};
let waiting = null;

/* ---- what an exchange changes: the chart, the tables, another compared token, pictures and files ---- */
const result = { shown: null, wanted: 0, printed: "" };
let rest;
const plot = () => document.getElementById("swap-plot");
const reading = (text) => { find(".rereads").textContent = text; };
const drawPlot = async () => {
  const message = result.shown, node = plot();
  try { await plotly(); } catch (error) { node.textContent = error.message; return; }
  /* a newer result draws itself */
  if (message !== result.shown) return;
  if (!node.data) node.replaceChildren();
  window.Plotly.react(node, message.figure.data, { ...message.figure.layout, template: template(), autosize: true }, config);
  spoken(node, message.spoken);
};
const showResult = (message, printed = null) => {
  const first = printed !== null, wasOpen = Boolean(rest.querySelector(".numbers")?.open), field = find("#swap-at");
  Object.assign(result, { shown: message, wanted: 0, printed: first ? printed : result.printed });
  find(".found").hidden = false;
  document.body.classList.add("has-swap");
  find(".summing").innerHTML = message.head;
  draw(find(".remarks"), message.notes.map((text) => html`<li>${text}</li>`));
  rest.innerHTML = message.body;
  rest.querySelector(".numbers").open = wasOpen;
  Object.assign(field, { max: message.most, value: message.answer });
  find(".captioned").textContent = message.caption;
  find(".of").textContent = `of ${message.most}`;
  reading("");
  drawPlot();
  /* whoever does something else meanwhile is not called away */
  const at = document.activeElement;
  if (first && (at === document.body || at.closest(".runbar .btn"))) find("#h-found").focus();
};
const ids = () => ({ number: result.shown.number, answer: result.shown.answer });
const atToken = () => {
  if (!result.shown) return;
  const wanted = Number(find("#swap-at").value), { most, answer, number } = result.shown;
  if (!Number.isInteger(wanted) || wanted < 1 || wanted > most) { reading(`Choose a token from 1 to ${most}.`); return; }
  if (wanted === answer && !result.wanted) { reading(""); return; }
  reading("Reading the model again at this token …");
  result.wanted = send("at", { number, answer: wanted });
};
const picture = ({ dataset: { format } }) => {
  const node = plot();
  if (!window.Plotly || !result.shown) return;
  const { width, height } = node.getBoundingClientRect();
  const { data, layout } = result.shown.figure, { number, answer } = ids();
  saveImage(data, { ...layout, plot_bgcolor: colour("surface") },
    { format, filename: `swap-${number}-token-${answer}`, width: Math.round(width), height: Math.round(height) });
};
const ACTIONS = {
  run: () => start(false), proceed: () => start(true), cancel, picture,
  table: (node) => send("table", { ...ids(), table: node.dataset.table }),
};

/* ---- the page's parts are placed in any order; it begins when all are there ---- */
const parts = {};
const begin = (name, part) => {
  parts[name] = part;
  if (Object.keys(parts).length < 4) return;
  form = parts.choices.querySelector("section");
  root = parts.stage;
  rest = parts.body.querySelector(".rest");
  send = link(...parts.wire, receive);
  form.addEventListener("change", changed);
  pick(".own").addEventListener("submit", (event) => {
    event.preventDefault();
    add(pick("#swap-own").value);
    pick("#swap-own").value = "";
  });
  act(form, {
    drop: (node) => { drop(Number(node.dataset.at)); pick("#swap-own").focus(); },
    offer: ({ dataset: { term } }) => {
      const at = groups().findIndex((item) => item.text === term);
      if (at < 0) add(term); else drop(at);
    },
  });
  act(root, ACTIONS);
  act(rest, {
    audit: (node) => {
      node.disabled = true;
      send("audit", { ...ids(), variant: Number(node.dataset.variant), decoding: node.dataset.decoding });
    },
  });
  find(".runbar").addEventListener("input", () => { compare(); keep(); });
  find("#swap-at").addEventListener("change", atToken);
  onFailure("open", () => {
    if (!state.opened && addressed("session") !== null) send("open", { session: null, result: null, token: null, values: null });
  });
  onFailure("run", () => ended(""));
  onFailure("look", () => { find(".texts").setAttribute("aria-busy", "false"); });
  onFailure("audit", () => rest.querySelectorAll("[data-do=audit]").forEach((node) => { node.disabled = false; }));
  onFailure("at", () => {
    result.wanted = 0;
    reading("");
    if (result.shown) find("#swap-at").value = result.shown.answer;
  });
  editor.watch(look);
  window.addEventListener("pagehide", keep);
  const given = new URLSearchParams(location.search);
  waiting = recall();
  send("open", { session: addressed("session"), result: given.get("result"), token: addressed("token"), values: waiting && waiting.values });
  controls();
};
onSettings((values) => {
  state.values = values;
  editor.chosen(choice(values), lookOf(values));
  if (root) { compare(); keep(); }
});
expose({
  swap: {
    choices: (element) => begin("choices", element),
    stage: (element) => begin("stage", element),
    body: (element) => begin("body", element),
    mount: (...wire) => begin("wire", wire.slice(0, 3)),
  },
});
