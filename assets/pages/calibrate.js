/* The calibrate page: what its folded settings hold, what its pictures show, and links into the page. */
import { spoken } from "../base/charts.js";
import { expose } from "../base/core.js";
import { formatWords, mountForm, outdate, samplingWords } from "../base/forms.js";
import "../base/frame.js";
import "../base/lists.js";

const PICTURES = {
  "thresholds-plot": "Threshold, coverage and contexts by position; the table below has the numbers",
  "support-plot": "How many true tokens have which support, with the threshold",
  "drift-plot": "Place of each audit among the calibration’s texts",
  "compare-plot": "Thresholds of both runs by step; the table below has the numbers",
};
/* what each fold holds: the values may be known before the fold is there, and a fold may be drawn again */
let summaries = {}, anchored = false;
/* the settings as they are now, and as they were when the estimate was asked for, which may be answered late */
let chosen = null, asked = null;

const settle = () => {
  for (const [id, text] of Object.entries(PICTURES)) {
    const node = document.getElementById(id);
    if (node) spoken(node, text);
  }
  for (const [id, text] of Object.entries(summaries)) {
    const label = document.querySelector(`#${id} .label-wrap`);
    if (label && label.dataset.summary !== text) label.dataset.summary = text;
  }
  if (chosen !== asked) outdate();
};
const folded = (of) => {
  const many = (of.masked_families || []).length;
  const view = { joint: `one view, ${many} families`, single: `${of.family} only`, factorized: `one view each, ${many} families` }[of.layout];
  return {
    "fold-mask": `${view}, ${of.mask_mode}`,
    "fold-estimator": `${String(of.estimator).replaceAll("_", " ")}, ${{ finest: "each step", even: `even bins of ${of.bin_width}` }[of.bin_spacing] ?? `bins of ${of.bin_width}`}`,
    "fold-shift": { none: "like these", rho: `ρ ${of.rho}`, column: "weighted by column", estimated: "weights estimated" }[of.shift],
    "fold-sampling": samplingWords(of.temperature, of.top_p, of.top_k),
    "fold-format": formatWords(of.prompt_format, of.chat_date, of.system_prompt, of.thinking, of.prefill),
    "fold-check": `${Math.round(100 * Number(of.verification_share))} % kept apart${of.by_group ? ", by group" : ""}`,
  };
};

const calibrate = {
  mount() {
    mountForm(settle);
    document.addEventListener("click", (event) => { if (event.target.closest("#check")) asked = chosen; }, true);
  },
  summary(fields, values) {
    summaries = folded(Object.fromEntries(fields.map((name, at) => [name, values[at]])));
    chosen = JSON.stringify(values);
    settle();
    return [];
  },
  /* the embedded model is quick enough to be asked unasked */
  check(model) {
    if (model === "demo") document.getElementById("check").click();
    return [];
  },
  anchor() {
    if (location.hash !== "#drift" || anchored) return [];
    anchored = true;
    requestAnimationFrame(() => document.getElementById("drift").scrollIntoView({ block: "start" }));
    return [];
  },
};
expose({ calibrate });
