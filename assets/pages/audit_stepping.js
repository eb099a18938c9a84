/* The transcript's controls: what is possible now, where a run stops, the way to a step, and the step in the address. */
import { act, draw, options, pausing, put, readdress } from "../base/core.js";
import { keys } from "../base/keys.js";
import { popup } from "../base/menus.js";
import { session } from "./audit_session.js";
import { inspector } from "./audit_token.js";

const PAUSE = 300;
const KINDS = {
  any: ["Flagged", (card) => card.c.includes("sensitive") || card.c.includes("fallback") || card.u],
  sensitive: ["Sensitive", (card) => card.c.includes("sensitive")],
  fallback: ["Fallback", (card) => card.c.includes("fallback")],
  overruled: ["Overruled", (card) => card.u],
};
let root, panel, opener, jump, kinds, wanted = null;
const state = () => session.state();

/* ---- what is possible now: shown at every token and key, so that its parts are looked for once ---- */
const parts = new Map();
const part = (selector) => {
  if (!parts.has(selector)) parts.set(selector, root.querySelector(selector));
  return parts.get(selector);
};
export const controls = {
  show() {
    const now = state();
    const open = now.session !== null;
    const fresh = !open || now.touched;
    const atEnd = now.selected >= now.cards.length - 1;
    const stopped = now.busy !== null || (!fresh && Boolean(now.finished));
    const disabled = {
      back: now.selected <= 0, step: now.running || (fresh ? now.busy !== null : atEnd && (Boolean(now.finished) || now.busy !== null)), go: stopped,
      until: stopped || fresh, pause: !now.running || now.pausing, overhead: now.busy !== null || now.touched, report: !open || now.cards.length === 0,
    };
    for (const [name, off] of Object.entries(disabled)) part(`[data-do=${name}]`).disabled = off;
    const count = open ? `${now.cards.length} of ${now.total} steps` : "";
    put(part(".count"), now.finished && !now.touched ? `${count} · ${now.finished}` : count);
    put(part(".stopped"), now.why);
  },
  mount(element) {
    root = element;
    parts.clear();
    controls.show();
  },
};

/* ---- run until ---- */
const openPanel = () => {
  if (opener.disabled) return false;
  panel.showPopover();
  panel.querySelector("[data-until]").focus();
  return true;
};
const runUntil = (kind) => {
  const value = (name) => panel.querySelector(`[name=${name}]`);
  const field = { sensitive: value("threshold"), steps: value("steps") }[kind];
  if (field && !field.reportValidity()) return;
  if (field && field.value === "") { field.focus(); return; }
  panel.hidePopover();
  opener.focus();
  session.run({ kind, threshold: Number(value("threshold").value), steps: Number(value("steps").value) });
};

/* ---- to a step ---- */
const go = (index, focus) => session.choose(Math.max(0, Math.min(index, state().cards.length - 1)), focus);
const jumpTo = () => {
  const number = Number(jump.value);
  if (!jump.value || !Number.isFinite(number) || !state().cards.length) return;
  go(Math.round(number) - 1, true);
  jump.value = "";
};
const remarkable = () => KINDS[kinds.value || "any"][1];
const next = (by) => {
  const { cards, selected } = state();
  for (let away = 1; away <= cards.length; away += 1) {
    const at = (((selected + by * away) % cards.length) + cards.length) % cards.length;
    if (remarkable()(cards[at])) { go(at, root.querySelector(".strip").contains(document.activeElement)); return; }
  }
};
const able = () => {
  const none = !state().cards.some(remarkable());
  root.querySelectorAll("[data-do^=find-]").forEach((button) => { button.disabled = none; });
};
let seen = { cards: null, length: -1, end: null };
const count = ({ cards }) => {
  const { length, [length - 1]: end } = cards;
  if (seen.cards === cards && seen.length === length && seen.end === end) return;
  seen = { cards, length, end };
  const chosen = kinds.value || "any";
  root.querySelector("#jump-of").textContent = `of ${length}`;
  jump.max = Math.max(1, length);
  draw(kinds, options(Object.entries(KINDS).map(([kind, [name, meant]]) => [kind, `${name} (${cards.filter(meant).length})`])));
  kinds.value = chosen;
  able();
};

/* ---- the step in the address: browsers allow a page to write its address a limited number of times ---- */
const write = pausing(() => {
  const { selected, session: number } = state();
  const query = new URLSearchParams(location.search);
  const step = selected < 0 ? null : String(selected + 1);
  if (number !== null && query.get("session") === String(number) && query.get("step") !== step) readdress({ step });
}, PAUSE);
/* the 0-based step that the page was opened with, once; null if there was none */
export const permalink = ({ cards }) => {
  const asked = wanted;
  wanted = null;
  if (asked === null || !cards.length) return null;
  if (asked > cards.length) session.notice(`The address names step ${asked}; this text has ${cards.length} so far, so its last one is shown.`);
  return Math.min(asked, cards.length) - 1;
};

export const stepping = {
  mount(element) {
    panel = element.querySelector(".untilbox");
    opener = element.querySelector("[data-do=until]");
    jump = element.querySelector("#jump");
    kinds = element.querySelector("#seek-kind");
    const asked = new URLSearchParams(location.search).get("step");
    wanted = /^[1-9]\d{0,5}$/.test(asked || "") ? Number(asked) : null;
    const closed = popup(panel, () => opener);
    act(element, {
      until: () => { if (!closed()) openPanel(); },
      "find-next": () => next(1), "find-back": () => next(-1),
    });
    act(panel, Object.fromEntries([...panel.querySelectorAll("[data-until]")].map(({ dataset: { until } }) => [until, () => runUntil(until)])), "until");
    panel.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || !event.target.matches("input")) return;
      event.preventDefault();
      runUntil(event.target.closest("div").querySelector("[data-until]").dataset.until);
    });
    element.querySelector(".jump").addEventListener("submit", (event) => { event.preventDefault(); jumpTo(); });
    kinds.addEventListener("change", able);
    session.watch((now) => {
      count(now);
      if (!write.waiting() && now.session !== null) write();
    });
  },
};

/* ---- keys ---- */
const inStrip = (event) => event.target instanceof Element && Boolean(event.target.closest(".strip"));
const add = (key, action, description, topic = "Transcript", more = {}) => keys.add(key, action, description, { topic, ...more });
add("ArrowLeft", (event) => session.back(inStrip(event)), "back: look at the token before");
add("ArrowRight", (event) => session.step(inStrip(event)), "step: the next token, written if it does not exist yet");
add(" ", (event) => { if (!event.repeat) session.toggle(); }, "start, run or pause");
add("R", () => openPanel(), "run until …");
add("Home", () => { if (state().cards.length) go(0, true); }, "first token");
add("End", () => { if (state().cards.length) go(state().cards.length - 1, true); }, "last token");
add("G", () => { jump.focus(); jump.select(); }, "go to a step by its number");
add("N", () => next(1), "next flagged token: sensitive, fallback or overruled");
add("Shift+N", () => next(-1), "the one before");
add(["1", "2", "3", "4", "5", "6", "7", "8", "9"], (event) => inspector.forceRow(Number(event.key) - 1),
  "force this candidate at the selected token", "Branches", { shown: ["1", "to", "9"] });
add("B", () => inspector.type(), "force a typed token at the selected step", "Branches");
