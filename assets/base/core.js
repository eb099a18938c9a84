/* What every module builds on: drawing, words, clicks, questions, and the link between the page and its server. */
import { shared } from "./shared.js";
import { html, nothing, render } from "./vendor/lit-html.js";

/* what Gradio's own handlers call by name */
export const expose = (parts) => { window.coft = Object.assign(window.coft || {}, parts); };
export const whenReady = (run) => {
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", run, { once: true });
  else run();
};
/* run once in the next frame, however often it is asked for until then */
export const perFrame = (run) => {
  let queued = false;
  return () => {
    if (queued) return;
    queued = true;
    requestAnimationFrame(() => { queued = false; run(); });
  };
};

/* whether the program has a page: nothing leads to one of a feature that is left out */
export const offers = (page) => document.querySelector(".tabs")?.dataset.pages.split(" ").includes(page) ?? false;

/* ---- markup ---- */
/* draw a template into a place, whose first content gives way to it */
export const draw = (place, template) => {
  if (!place._$litPart$) place.replaceChildren();
  render(template, place);
};
/* draw a template into a place from nothing, so that fields hold what the template says and not what was typed */
export const redraw = (place, template) => {
  place.replaceChildren();
  delete place._$litPart$;
  render(template, place);
};
/* draw again, and give the focus back to what means the same, or else to what `other` finds */
const NAMING = ["do", "kind", "at", "id", "order", "column", "menu", "tag", "go", "fork"];
export const refocus = (holder, change, other = () => null) => {
  const at = document.activeElement, inside = at !== holder && holder.contains(at);
  const way = NAMING.filter((name) => inside && name in at.dataset).map((name) => `[data-${name}="${CSS.escape(at.dataset[name])}"]`).join("");
  change();
  if (inside) ((way && holder.querySelector(way)) || other(at))?.focus({ preventScroll: true });
};
/* the one element that a template makes */
export const made = (template) => {
  const holder = document.createElement("div");
  render(template, holder);
  return holder.firstElementChild;
};
export const icon = (name, kind = "") => html`<svg class=${`icon${kind && ` ${kind}`}`} aria-hidden="true"><use href=${`#i-${name}`}></use></svg>`;
/* options of a menu from values and texts */
export const options = (pairs, chosen) => pairs.map(([value, text]) =>
  html`<option value=${value} .selected=${chosen !== undefined && String(value) === String(chosen)}>${text}</option>`);
/* a text that stays as it is makes no change for a screen reader to tell */
export const put = (node, text) => { if (node.textContent !== text) node.textContent = text; };
export const cautions = (list, texts) => draw(list, texts.map((text) => html`<li>${icon("tri")}<span>${text}</span></li>`));
/* a line that is there only while it says something, with a button where something can be done about it */
export const notice = (line, text = "", action = nothing) => {
  line.hidden = !text;
  draw(line, text ? html`<span>${text}</span>${action}` : nothing);
};
/* a bar from the middle, to the right for more and to the left for less */
export const gauge = (value, most) => {
  const kind = `${value < 0 ? "less" : "more"}${Math.abs(value) >= shared.sensitive ? " hot" : ""}`;
  const share = Math.min(1, Math.abs(value) / most) * 50;
  return html`<span class="gauge" aria-hidden="true"><i class=${kind} style=${`${value < 0 ? "right" : "left"}:50%;width:${share}%`}></i></span>`;
};

/* ---- words ---- */
export const shown = (token) => {
  const text = token.length > 1 && token.startsWith(" ") ? token.slice(1) : token;
  const visible = text.replace(/\n/g, "↵").replace(/\t/g, "→");
  return visible.trim() ? visible : "␣".repeat(Math.max(1, text.length));
};
export const signed = (value) => {
  const text = Math.abs(value).toFixed(2);
  return Number(text) === 0 ? text : `${value > 0 ? "+" : "−"}${text}`;
};
export const plural = (number, noun) => `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;

/* ---- the address ---- */
/* a number that the address names, or null */
export const addressed = (name) => {
  const text = new URLSearchParams(location.search).get(name) || "";
  return /^\d+$/.test(text) ? Number(text) : null;
};
/* put values into the address and take out those that are null or undefined */
export const readdress = (values) => {
  const target = new URL(location.href);
  for (const [name, value] of Object.entries(values)) {
    if (value === null || value === undefined) target.searchParams.delete(name);
    else target.searchParams.set(name, value);
  }
  history.replaceState(history.state, "", target.href.replace(/%2C/g, ","));
};

/* ---- what this tab keeps over a reload: without storage, or with a full one, only the page itself keeps it ---- */
export const tab = {
  read(key) { try { return JSON.parse(sessionStorage.getItem(key)); } catch { return null; } },
  keep(key, value) { try { sessionStorage.setItem(key, JSON.stringify(value)); } catch { /* see above */ } },
  forget(key) { try { sessionStorage.removeItem(key); } catch { /* see above */ } },
};

/* ---- messages to and from the server ---- */
let nonce = 0;
export const link = (trigger, props, watch, receive) => {
  let last = null;
  watch("value", () => {
    /* a message of many parts comes as text, which Gradio neither compares nor copies part by part */
    const value = props.value;
    const message = typeof value === "string" && value.startsWith("{") ? JSON.parse(value) : value;
    if (!message || typeof message !== "object" || message.at === last) return;
    last = message.at;
    receive(message);
  });
  return (name, data) => {
    nonce += 1;
    if (name in refused) setTimeout(() => failed(name));
    else trigger(name, { ...data, nonce });
    return nonce;
  };
};
/* events that the account may not trigger: keys reach them too, where no switched-off control stands in the way */
const refused = {};
export const refuse = (names) => Object.assign(refused, names);
const failures = {};
export const onFailure = (names, handler) => [names].flat().forEach((name) => { failures[name] = handler; });
export const failed = (name) => failures[name] && failures[name]();
export const download = (id) => {
  const seek = (left) => {
    const holder = document.getElementById(id);
    const found = holder && (holder.matches("a[href]") ? holder : holder.closest("a[href]") || holder.querySelector("a[href]"));
    if (found) found.click();
    else if (holder && left === 0) holder.click();
    else if (left > 0) requestAnimationFrame(() => seek(left - 1));
  };
  seek(30);
};

/* ---- what is pressed ---- */
/* a table of actions by the name that a button carries, in `data-do` or another attribute */
export const act = (node, table, attribute = "do") => node.addEventListener("click", (event) => {
  const button = event.target.closest && event.target.closest(`[data-${attribute}]`);
  if (button && table[button.dataset[attribute]]) table[button.dataset[attribute]](button);
});
/* run a while after the last call; `cancel` forgets it, `waiting` tells whether it is to come */
export const pausing = (run, pause) => {
  let timer = null;
  const soon = (wait = pause) => { clearTimeout(timer); timer = setTimeout(() => { timer = null; run(); }, wait); };
  return Object.assign(soon, { cancel() { clearTimeout(timer); timer = null; }, waiting: () => timer !== null });
};
/* a dialog's answer: gives the value that closed it */
export const answered = (dialog) => new Promise((resolve) => {
  dialog.returnValue = "no";
  const cancel = dialog.querySelector("[data-do=cancel]");
  if (cancel) cancel.onclick = () => dialog.close("no");
  dialog.addEventListener("close", () => resolve(dialog.returnValue), { once: true });
  if (!dialog.open) dialog.showModal();
});
export const confirm = async (title, text, yes) => {
  const dialog = document.getElementById("confirm");
  dialog.querySelector("h2").textContent = title;
  dialog.querySelector("p").textContent = text;
  dialog.querySelector("[value=yes]").textContent = yes;
  return await answered(dialog) === "yes";
};
