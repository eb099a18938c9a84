/* Gradio's forms: what a screen reader is told of them, what their folds hold, and an estimate that is out of date. */
import { made, perFrame, whenReady } from "./core.js";
import { frame } from "./frame.js";
import { html } from "./vendor/lit-html.js";

/* ---- what several forms say of their folded settings ---- */
export const samplingWords = (temperature, topP, topK, greedy = false) =>
  `${greedy ? "greedy" : `T ${Number(temperature).toFixed(1)}`}, top-p ${Number(topP)}${Number(topK) ? `, top-k ${topK}` : ""}`;
export const formatWords = (format, date, system, thinking, prefill) => [
  { chat: "chat template", plain: "plain text" }[format] || "as the model has it", date, system && "system prompt",
  thinking && thinking !== "auto" && `thinking ${thinking}`, prefill && "answer begun",
].filter(Boolean).join(", ");

/* folds may be drawn late, or again */
export const tellFolds = (within = "") => document.querySelectorAll(`${within} .fold .label-wrap`).forEach((fold) => {
  const open = String(fold.classList.contains("open"));
  if (fold.getAttribute("aria-expanded") !== open) fold.setAttribute("aria-expanded", open);
});
/* what was estimated holds for the settings that it was asked with */
export const outdate = () => {
  const estimate = document.querySelector("#estimate .estimate:not(.stale)");
  if (!estimate) return;
  estimate.classList.add("stale");
  estimate.append(made(html`<p class="caution stale-note">The settings changed since: check again.</p>`));
};

const LIVE = ["job-said", "read-note", "shares-sum", "estimate", "figures-busy", "coefficients-busy"];
/* parts of the page come and go; what they need is set whenever something came, and so is what `settle` adds */
export const mountForm = (settle = () => {}) => whenReady(() => {
  const all = () => {
    LIVE.forEach((id) => document.getElementById(id)?.setAttribute("aria-live", "polite"));
    tellFolds("#main");
    settle();
  };
  all();
  new MutationObserver(perFrame(all))
    .observe(document.body, { childList: true, subtree: true, attributes: true, attributeFilter: ["class"] });
  document.addEventListener("click", async ({ target }) => {
    const button = target.closest("[data-do=copy]");
    if (!button) return;
    if (!navigator.clipboard) {
      frame.saved("This browser copies only on a secure address: select the digest by hand.");
      return;
    }
    await navigator.clipboard.writeText(button.dataset.text);
    frame.saved("Copied.");
  });
});
