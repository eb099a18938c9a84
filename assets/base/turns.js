/* A conversation in the prompt's field: each turn stands below a line that says whose it is, and a plain prompt has none. */
import { html } from "./vendor/lit-html.js";

const LINE = /^⟦(system|user|assistant)⟧$/gm;
const line = (role) => `⟦${role}⟧\n`;

/* whose turns there are, and where each begins (its line) and ends; none where the text is a plain prompt */
export const turnsIn = (text) => {
  const lines = [...text.matchAll(LINE)];
  if (!lines.length || lines[0].index > 0) return [];
  return lines.map((found, at) => ({
    role: found[1], start: found.index, words: Math.min(found.index + found[0].length + 1, text.length), end: at + 1 < lines.length ? lines[at + 1].index : text.length,
  }));
};
/* whose turn comes next */
export const nextTurn = (text) => {
  const turns = turnsIn(text);
  return turns.length && turns[turns.length - 1].role !== "user" ? "user" : "assistant";
};
/* a text with its lines between turns drawn as labels of the same letters, so that the field over it stays in step */
export const lined = (text) => {
  if (!text.includes("⟦")) return text;
  return text.split(/^(⟦(?:system|user|assistant)⟧)$/m).map((part, at) => (at % 2
    ? html`<span class="turn"><i>⟦</i>${part.slice(1, -1)}<i>⟧</i></span>` : part));
};

/* edits, each as the texts to go through one after the other (spans follow one insertion at a time) and the caret at the end */
const conversed = (text) => (turnsIn(text).length ? [] : [line("user") + text]);
export const addSystem = (text) => {
  const steps = conversed(text), head = line("system");
  return { steps: [...steps, `${head}\n${steps[0] ?? text}`], caret: head.length };
};
export const addTurn = (text) => {
  const steps = conversed(text), whole = steps[0] ?? text;
  const role = nextTurn(whole);
  const added = `${whole}${whole.endsWith("\n") ? "" : "\n"}${line(role)}`;
  return { steps: [...steps, added], caret: added.length };
};
/* the turn at the caret goes; of a lone turn of the user's, its line does, so that a plain prompt is left */
export const removeTurn = (text, caret) => {
  const turns = turnsIn(text);
  if (turns.length === 1) return { steps: [text.slice(turns[0].words)], caret: 0 };
  const chosen = turns.findLast(({ start }) => start <= caret) ?? turns[turns.length - 1];
  const last = chosen === turns[turns.length - 1];
  const left = last ? text.slice(0, chosen.start - 1) : text.slice(0, chosen.start) + text.slice(chosen.end);
  return { steps: [left], caret: Math.min(chosen.start, left.length) };
};
