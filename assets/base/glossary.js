/* The words of the pages: a label that the glossary has opens its explanation beside it; a sheet lists them all. */
import { act, made, perFrame } from "./core.js";
import { keys } from "./keys.js";
import { popup } from "./menus.js";
import { html } from "./vendor/lit-html.js";

/* Gradio's own labels, which become openers as they are */
const LABEL = "[data-testid=block-info]";
let sheet = null, beside = null, opener = null, byName = null, justClosed = () => false;

const entries = () => [...sheet.querySelectorAll("[data-entry]")];
const known = () => {
  if (!byName) byName = new Map(entries().flatMap((entry) => entry.dataset.names.split("|").map((name) => [name, entry])));
  return byName;
};
const keyOf = (text) => (sheet ? known().get(text.trim().toLowerCase())?.dataset.entry ?? null : null);

/* a label for a template: one that opens its explanation, or the text alone */
export const term = (text) => {
  const key = keyOf(text);
  return key ? html`<button type="button" class="term" data-explains=${key}>${text}</button>` : text;
};

/* ---- one explanation, beside the word ---- */
const build = () => {
  beside = made(html`<div class="coft"><div class="menu explains" id="explains" popover role="dialog" aria-labelledby="explains-title"
    ><h3 id="explains-title" tabindex="-1"></h3><p></p><button type="button" class="btn small quiet" data-do="all">All words</button></div></div>`);
  document.body.append(beside);
  beside = beside.firstElementChild;
  justClosed = popup(beside, () => opener);
  act(beside, { all: () => { beside.hidePopover(); list(); } });
  beside.addEventListener("toggle", ({ newState }) => {
    if (newState === "closed" && beside.contains(document.activeElement)) opener?.focus({ preventScroll: true });
  });
};
const open = (key, at) => {
  const entry = sheet.querySelector(`[data-entry="${CSS.escape(key)}"]`);
  if (!beside) build();
  if (justClosed()) return;
  opener = at;
  beside.querySelector("h3").textContent = entry.querySelector("dt").textContent;
  beside.querySelector("p").textContent = entry.querySelector("dd").textContent;
  beside.showPopover();
  beside.querySelector("h3").focus({ preventScroll: true });
};

/* ---- all of them ---- */
const narrow = () => {
  const wanted = sheet.querySelector("input").value.trim().toLowerCase();
  const found = entries().filter((entry) => {
    entry.hidden = !`${entry.dataset.names} ${entry.textContent.toLowerCase()}`.includes(wanted);
    return !entry.hidden;
  });
  sheet.querySelector(".none").hidden = found.length > 0;
};
export const list = () => {
  sheet.querySelector("input").value = "";
  narrow();
  sheet.showModal();
};

/* ---- openers ---- */
const mark = perFrame(() => document.querySelectorAll(`${LABEL}:not([data-explains], [data-plain])`).forEach((label) => {
  const key = keyOf(label.textContent);
  label.dataset[key ? "explains" : "plain"] = key || "";
}));
/* the word that belongs to where the focus is */
const focused = (node) => {
  if (!(node instanceof Element)) return null;
  return node.closest("[data-explains]") || node.closest(".block")?.querySelector(`${LABEL}[data-explains]`) || null;
};
export const glossary = {
  mount(dialog) {
    sheet = dialog;
    const field = sheet.querySelector("input");
    field.addEventListener("input", narrow);
    /* in a form, Enter would close the sheet */
    field.addEventListener("keydown", (event) => { if (event.key === "Enter") event.preventDefault(); });
    document.addEventListener("click", (event) => {
      const label = event.target.closest && event.target.closest("[data-explains]");
      if (!label) return;
      event.preventDefault();
      open(label.dataset.explains, label);
    });
    keys.add("F1", ({ target }) => {
      const label = focused(target);
      if (label) open(label.dataset.explains, label);
      else list();
    }, "explain the field that has the focus, or all words", { page: null, within: "body" });
    new MutationObserver(mark).observe(document.body, { childList: true, subtree: true });
    mark();
  },
};
