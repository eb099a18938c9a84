/* Keys and what they do. All of them are registered here, so that the help sheet lists exactly those that work. */
import { draw, expose } from "./core.js";
import { html } from "./vendor/lit-html.js";

const NAMES = { ArrowLeft: "←", ArrowRight: "→", ArrowUp: "↑", ArrowDown: "↓", " ": "space" };
const TOPICS = ["Transcript", "Branches", "Verdict", "Prompt", "Page"];
const TYPING = "input, textarea, select, [contenteditable=true], [role=listbox], [role=slider], [role=tree], [role=menu], [popover], dialog[open]";
const entries = [];

/* whether a key means text, a choice or a control's own movement where it was pressed */
const typing = (node) => node instanceof Element && node.closest(TYPING) !== null;
const pressing = (node) => node instanceof Element && node.closest("a, button, summary, label") && !node.closest(".strip");

/* "Shift+" counts for letters and named keys; a sign such as "?" has it already */
const nameOf = (event) => {
  const letter = event.altKey ? event.code.replace(/^Key/, "") : event.key.length === 1 ? event.key.toUpperCase() : event.key;
  const shift = event.shiftKey && (letter.length > 1 || /[A-Z]/.test(letter));
  return `${event.ctrlKey || event.metaKey ? "Ctrl+" : ""}${event.altKey ? "Alt+" : ""}${shift ? "Shift+" : ""}${letter}`;
};
const present = (entry) => !entry.page || document.querySelector(entry.page) !== null;
const allowed = (entry, event) => {
  if (entry.within) return event.target instanceof Element && event.target.closest(entry.within) !== null;
  return !typing(event.target) && !(entry.keys.includes(" ") && pressing(event.target));
};

export const keys = {
  /* `key`: one key or several, as "ArrowLeft", "N", "Shift+N", "Alt+M", "Ctrl+Z". `action` gets the event; it returns
     false to leave the key to the browser, and is null where a control handles the key itself. Options: `topic` for
     the help sheet, `page`: selector of what must be there (null: every page), `within`: selector of the fields in
     which alone the key counts, `shown`: what the sheet prints instead. */
  add(key, action, description, { topic = "Page", page = ".audit", within = null, shown = null } = {}) {
    const names = [key].flat().map((name) => (name.length === 1 ? name.toUpperCase() : name));
    entries.push({ keys: names, action, description, topic, page, within, shown });
  },
  /* what works on this page, for the help sheet and for tests */
  list: () => entries.filter(present),
};
expose({ keys });

document.addEventListener("keydown", (event) => {
  if (event.defaultPrevented || event.isComposing || document.querySelector("dialog[open]")) return;
  const name = nameOf(event);
  for (const entry of entries) {
    if (!entry.action || !entry.keys.includes(name) || !present(entry) || !allowed(entry, event)) continue;
    if (entry.action(event) !== false) { event.preventDefault(); return; }
  }
});

/* ---- the help sheet ---- */
const caps = (entry) => {
  const parts = entry.shown || entry.keys.flatMap((key) => (key.length > 1 ? key.split("+") : [key]));
  return parts.map((part, at) => (part === "to" ? " to " : html`${at && parts[at - 1] !== "to" ? " " : ""}<kbd>${NAMES[part] || part}</kbd>`));
};
const group = (topic) => {
  const listed = keys.list().filter((entry) => entry.topic === topic);
  return listed.length ? html`<section><h3>${topic}</h3><dl class="keys pile close">${listed.map((entry) =>
    html`<div><dt>${caps(entry)}</dt><dd>${entry.description}</dd></div>`)}</dl></section>` : "";
};
export const help = () => {
  const sheet = document.getElementById("help");
  draw(sheet.querySelector(".topics"), [...new Set([...TOPICS, ...keys.list().map((entry) => entry.topic)])].map(group));
  sheet.showModal();
};
