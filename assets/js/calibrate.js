/* The calibrate page: what a screen reader is told, what folded settings hold, and links into the page. */
"use strict";
(() => {
  const coft = window.coft;
  const LIVE = ["job-said", "read-note", "shares-sum", "estimate"];
  const PICTURES = {
    "thresholds-plot": "Threshold, coverage and contexts by position; the table below has the numbers",
    "support-plot": "How many true tokens have which support, with the threshold",
    "drift-plot": "Place of each audit among the calibration’s chains",
    "compare-plot": "Thresholds of both runs by step; the table below has the numbers",
  };
  const number = (value) => Number(value);

  /* what each fold holds: the values may be known before the fold is there, and a fold may be drawn anew */
  let summaries = {};
  /* the settings as they are now, and as they were when the estimate was asked for, which may be answered late */
  let chosen = null, asked = null;

  /* parts of the page come and go; what they need is set whenever something came */
  const settle = () => {
    LIVE.forEach((id) => {
      const node = document.getElementById(id);
      if (node) node.setAttribute("aria-live", "polite");
    });
    Object.entries(PICTURES).forEach(([id, text]) => {
      const node = document.getElementById(id);
      if (!node) return;
      node.setAttribute("role", "img");
      node.setAttribute("aria-label", text);
    });
    document.querySelectorAll(".calib .fold .label-wrap").forEach((fold) => {
      const open = String(fold.classList.contains("open"));
      if (fold.getAttribute("aria-expanded") !== open) fold.setAttribute("aria-expanded", open);
    });
    Object.entries(summaries).forEach(([id, text]) => {
      const label = document.querySelector(`#${id} .label-wrap`);
      if (label && label.dataset.summary !== text) label.dataset.summary = text;
    });
    const said = document.querySelector("#estimate .estimate:not(.stale)");
    if (said && chosen !== asked) {
      said.classList.add("stale");
      said.append(coft.el("p", { class: "caution stale-note", text: "The settings changed since: check again." }));
    }
  };

  const mask = (of) => {
    const many = (of.masked_families || []).length;
    const view = { joint: `one view, ${many} families`, single: `${of.family} only`, factorized: `one view each, ${many} families` }[of.layout];
    return `${view}, ${of.mask_mode}`;
  };
  const folded = (of) => ({
    "fold-mask": mask(of),
    "fold-estimator": `${String(of.estimator).replaceAll("_", " ")}, ${of.bin_spacing === "even" ? "even bins" : "bins"} of ${of.bin_width}`,
    "fold-shift": { none: "like these", rho: `ρ ${of.rho}`, column: "weighted by column", estimated: "weights estimated" }[of.shift],
    "fold-sampling": `T ${number(of.temperature).toFixed(1)}, top-p ${number(of.top_p)}${number(of.top_k) ? `, top-k ${of.top_k}` : ""}`,
    "fold-format": `${{ chat: "chat template", plain: "plain text" }[of.prompt_format] || "as the model has it"}${of.chat_date ? `, ${of.chat_date}` : ""}`,
    "fold-check": `${Math.round(100 * number(of.verification_share))} % kept apart${of.by_group ? ", by group" : ""}`,
  });

  coft.calibrate = {
    mount() {
      coft.whenReady(() => {
        settle();
        let queued = false;
        new MutationObserver(() => {
          if (queued) return;
          queued = true;
          requestAnimationFrame(() => { queued = false; settle(); });
        }).observe(document.body, { childList: true, subtree: true, attributes: true, attributeFilter: ["class"] });
        document.addEventListener("click", (event) => { if (event.target.closest("#check")) asked = chosen; }, true);
        document.addEventListener("click", async (event) => {
          const hit = event.target.closest("[data-do=copy]");
          if (!hit) return;
          if (!navigator.clipboard) {
            coft.frame.saved("This browser copies only on a secure address: select the digest by hand.");
            return;
          }
          await navigator.clipboard.writeText(hit.dataset.text);
          coft.frame.saved("Copied.");
        });
      });
    },
    summary(fields, values) {
      const of = Object.fromEntries(fields.map((name, at) => [name, values[at]]));
      summaries = folded(of);
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
      if (location.hash !== "#drift" || coft.calibrate.anchored) return [];
      coft.calibrate.anchored = true;
      requestAnimationFrame(() => document.getElementById("drift").scrollIntoView({ block: "start" }));
      return [];
    },
  };
})();
