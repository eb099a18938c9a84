/* The review page: a session is chosen, reviewed, and where reviewers differ decided by a third person. */
import { act, addressed, answered, draw, expose, link, onFailure, options, pausing, put, readdress } from "../base/core.js";
import { downloads } from "../base/downloads.js";
import "../base/frame.js";
import { reviewer } from "../base/reviewer.js";
import { html } from "../base/vendor/lit-html.js";

const PAUSE = 250;
const state = { session: null, revealed: null, wanted: 0, listed: 0, whole: false, status: "", matched: "", busy: false };
let picker, root, find, ask, dialog;

const at = (selector) => root.querySelector(selector);
const say = (text) => { at(".told").textContent = text; };
const me = () => reviewer.name();

/* ---- choosing a session ---- */
/* `whole`: also how far all agree, what is assigned and how far everybody is */
const list = (whole = false) => {
  listSoon.cancel();
  state.whole = state.whole || whole;
  state.listed = find("find", { text: picker.querySelector("#pick-text").value, reviewer: me(), whole: state.whole });
};
const listSoon = pausing(() => list(), PAUSE);
const named = () => {
  picker.querySelector(".named").textContent = me() ? `You are ${me()}.` : "You have not said who you are.";
  picker.querySelector("[data-do=rename]").textContent = me() ? "Change name" : "Enter your name";
};
const finding = (markup) => { picker.querySelector(".finding").innerHTML = markup || ""; };
const team = ({ queue, loads, said = "" }) => {
  picker.querySelector(".queue").innerHTML = queue;
  picker.querySelector(".loads-box").innerHTML = loads;
  put(picker.querySelector(".assigned"), said);
};
const differing = ({ html, said }) => {
  const box = picker.querySelector(".disputes-box");
  box.innerHTML = html;
  put(picker.querySelector(".settled"), said);
  box.focus({ preventScroll: true });
};
const listed = (message) => {
  if (message.nonce !== state.listed) return;
  picker.querySelector(".choices").innerHTML = message.html;
  if (!("queue" in message)) return;
  state.whole = false;
  team(message);
  if (state.session === null) finding(message.finding);
};
/* what an assignment would be about is shown before it is made */
const wording = () => picker.querySelector("#assign-text").value.trim();
const match = () => { if (wording()) find("match", { text: wording() }); else shown({ html: "", text: "" }); };
const matchSoon = pausing(match, PAUSE);
const shown = ({ html, text }) => {
  if (text !== wording()) return;
  state.matched = text;
  picker.querySelector(".matches").innerHTML = html;
};
const ANSWERS = { sessions: listed, team, differ: differing, match: shown };
/* what one reviewer was shown is not for the next one at the same browser */
const closeDisputes = () => {
  put(picker.querySelector(".settled"), "");
  draw(picker.querySelector(".disputes-box"), html`<button type="button" class="btn small" data-do="differ">Show what waits for a decision</button>`);
};
const assign = async (event) => {
  event.preventDefault();
  if (!(await reviewer.needed())) return;
  if (state.matched !== wording()) { match(); return; }
  const value = (name) => picker.querySelector(`#assign-${name}`).value;
  find("assign", { reviewer: me(), to: value("to"), text: value("text"), due: value("due") });
};
const choose = (session) => {
  Object.assign(state, { session, status: "", revealed: null });
  readdress({ session });
  picker.querySelector(".start").hidden = session !== null;
  finding("");
  at(".one-session").hidden = true;
  say("");
  agree(session, null);
  if (session === null) list(true); else read();
};

/* ---- one session ---- */
const data = (more = {}) => ({ session: state.session, reviewer: me(), reveal: state.revealed === me(), ...more });
const read = () => { if (state.session !== null) state.wanted = ask("read", data()); };
const work = (busy) => {
  state.busy = busy;
  root.querySelectorAll(".review button[data-do], button[data-do=decide]").forEach((button) => { button.disabled = busy; });
};
const filter = () => {
  root.querySelectorAll(".targets tbody tr").forEach((row) => { row.hidden = Boolean(state.status) && row.dataset.status !== state.status; });
};
const statuses = (choices) => {
  const menu = at("#review-status");
  if (!choices.some(([value]) => value === state.status)) state.status = "";
  menu.hidden = choices.length === 0;
  draw(menu, options(choices));
  menu.value = state.status;
};
const show = (message) => {
  const first = at(".one-session").hidden;
  const focused = root.contains(document.activeElement) && document.activeElement.closest(".review, .targets-box, .head");
  at(".one-session").hidden = false;
  const { head, review, targets, log, check } = message;
  Object.entries({ ".head": head, ".review": review, ".targets-box": targets, ".log-box": log, ".check": check })
    .forEach(([place, html]) => { at(place).innerHTML = html; });
  at(".log-part").hidden = message.closed;
  finding(message.finding);
  statuses(message.statuses);
  filter();
  work(false);
  agree(message.session, message.closed || message.blind ? [] : message.reviewers);
  if (first || (focused && !root.contains(document.activeElement))) at(".head h2").focus({ preventScroll: true });
};
const receive = (message) => {
  if (message.session !== state.session || message.reviewer !== me()) { read(); return; }
  if (message.said) say(message.said);
  if (message.nonce === state.wanted) show(message);
  /* a reading that was asked for after this action may have been made before it */
  else if (message.said) read();
};
const begin = async (action) => {
  if (state.busy || !(await reviewer.needed())) return;
  work(true);
  state.wanted = ask("act", data({ action }));
};

/* ---- deciding ---- */
const decide = async (button) => {
  const { session, branch, first, last, name } = button.dataset;
  const number = (text) => (text === undefined ? null : Number(text));
  const copied = (part) => button.closest("tr").querySelector(part).cloneNode(true);
  const sides = copied(".sides"), passage = copied(".passage");
  if (!(await reviewer.needed())) return;
  dialog.querySelector("h2").textContent = `Decide: ${name[0].toLowerCase()}${name.slice(1)}`;
  dialog.querySelector(".sides").replaceWith(sides);
  dialog.querySelector(".passage").replaceWith(passage);
  dialog.querySelector("form").reset();
  if (await answered(dialog) !== "yes") return;
  const given = data({
    branch: number(branch), first: number(first), last: number(last), ...(session ? { session: Number(session) } : {}),
    verdict: dialog.querySelector("[name=decision]:checked").value, note: dialog.querySelector("#decide-note").value,
  });
  if (state.session === null) { find("settle", given); return; }
  work(true);
  state.wanted = ask("decide", given);
};
const ACTIONS = {
  decide, refresh: () => read(), rename: () => reviewer.ask(),
  other: () => { choose(null); picker.querySelector("#pick-text").focus(); },
  blind: () => begin("blind"), open: () => begin("open"), finish: () => begin("finish"),
  reveal: () => { state.revealed = me(); read(); at(".targets-box").focus(); },
  whole: (button) => { at(".log").classList.add("all"); button.remove(); },
  file: () => ask("file", data()),
  report: (button) => downloads.open(button, state.session, say),
};
const whenBoth = () => { if (picker && root) choose(addressed("session")); };

const review = {
  picker(element, trigger, props, watch) {
    picker = element;
    find = link(trigger, props, watch, (message) => ANSWERS[message.kind](message));
    picker.querySelector("#pick-text").addEventListener("input", () => listSoon());
    picker.querySelector("form[role=search]").addEventListener("submit", (event) => { event.preventDefault(); list(); });
    picker.querySelector(".assign").addEventListener("submit", assign);
    picker.querySelector("#assign-text").addEventListener("input", () => matchSoon());
    act(picker, {
      choose: (button) => choose(Number(button.dataset.id)), rename: () => reviewer.ask(), decide,
      differ: async () => { if (await reviewer.needed()) find("differ", { reviewer: me() }); },
    });
    reviewer.onChange(() => {
      named();
      closeDisputes();
      state.revealed = null;
      if (state.session !== null) read(); else list(true);
    });
    named();
    whenBoth();
  },
  sheet(element, trigger, props, watch) {
    root = element;
    ask = link(trigger, props, watch, receive);
    dialog = at("#decide");
    document.body.append(dialog);
    act(root, ACTIONS);
    at("#review-status").addEventListener("change", (event) => { state.status = event.target.value; filter(); });
    onFailure(["review-act", "review-decide"], () => { work(false); read(); });
    onFailure("review-sheet", () => { work(false); if (at(".one-session").hidden) choose(null); });
    whenBoth();
  },
};

/* ---- how far two reviewers agree: two names, this session or all, and the newest answer ---- */
/* `here` are the shown session's reviewers, none while the reader must not know more, null before they are known */
const pair = { session: null, placed: undefined, wanted: 0, here: null, root: null, send: null };
const field = (name) => pair.root.querySelector(`#agree-${name}`);
const compare = () => {
  const session = field("over").value === "this" ? pair.session : null;
  pair.wanted = pair.send("agree", { first: field("first").value, second: field("second").value, session });
};
const fill = (names) => {
  /* those who judged most of the shown session stand first */
  const here = (pair.here || []).filter((name) => names.includes(name));
  const ordered = [...here, ...names.filter((name) => !here.includes(name))];
  return ["first", "second"].map((side, place) => {
    const menu = field(side), chosen = menu.value;
    draw(menu, options(ordered.map((name) => [name, name])));
    menu.value = names.includes(chosen) ? chosen : ordered[place] || "";
    menu.disabled = names.length < 2;
    return menu.value !== chosen;
  }).some(Boolean);
};
const agree = (session, here) => {
  const other = pair.placed !== session;
  Object.assign(pair, { session, here });
  if (!pair.root) return;
  pair.placed = session;
  field("over").options[1].disabled = session === null;
  if (other) {
    field("over").value = session === null ? "all" : "this";
    ["first", "second"].forEach((side) => draw(field(side), []));
  }
  pair.root.hidden = session !== null && !(here && here.length);
  if (!pair.root.hidden) compare();
};
const agreement = {
  mount(element, trigger, props, watch) {
    pair.root = element.querySelector("section");
    pair.send = link(trigger, props, watch, (message) => {
      if (message.nonce !== pair.wanted) return;
      if (fill(message.names) && message.names.length > 1) compare();
      else pair.root.querySelector(".agree-result").innerHTML = message.html;
    });
    ["first", "second", "over"].forEach((name) => field(name).addEventListener("change", compare));
    agree(pair.session, pair.here);
  },
};
expose({ review, agreement });
