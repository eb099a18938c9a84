/* The top bar, the settings rail and its folds, and the line that sums the settings up. */
"use strict";
(() => {
  const coft = window.coft;

  const toggleRail = () => {
    const audit = document.querySelector(".audit");
    if (!audit) return;
    const narrow = matchMedia("(max-width: 1080px)").matches;
    audit.classList.toggle(narrow ? "rail-drawn" : "rail-folded");
    document.querySelectorAll("[data-do=rail]").forEach((button) => button.setAttribute("aria-expanded",
      String(narrow ? audit.classList.contains("rail-drawn") : !audit.classList.contains("rail-folded"))));
    window.dispatchEvent(new Event("resize"));
  };
  coft.frame = {
    mount(element) {
      element.querySelectorAll("dialog").forEach((dialog) => document.body.append(dialog));
      document.querySelectorAll("body > dialog").forEach((dialog) => dialog.classList.add("coft"));
      coft.act(element, { theme: () => coft.toggleTheme(), help: () => coft.help() });
      document.documentElement.lang = "en";
    },
    rail(element) {
      coft.act(element, { rail: toggleRail });
      new MutationObserver((records) => {
        if (records.some((r) => r.target.closest && r.target.closest(".note"))) coft.frame.summary(coft.frame.values);
      }).observe(element.closest(".rail"), { childList: true, subtree: true });
      /* folds may be drawn after the rail's head, or anew: what they need is set whenever something came or changed */
      const folds = () => {
        document.querySelectorAll(".fold .label-wrap").forEach((fold) => {
          const open = String(fold.classList.contains("open"));
          if (fold.getAttribute("aria-expanded") !== open) fold.setAttribute("aria-expanded", open);
        });
        if (document.querySelector(".rail .fold .label-wrap:not([data-summary])")) coft.frame.summary(coft.frame.values);
      };
      let queued = false;
      /* the parts that change with every token hold no fold */
      const BUSY = "#transcript, #inspector, .js-plotly-plot, #js-plotly-tester";
      new MutationObserver((records) => {
        if (queued || records.every((r) => r.target.closest(BUSY))) return;
        queued = true;
        requestAnimationFrame(() => { queued = false; folds(); });
      }).observe(document.body, { childList: true, subtree: true, attributes: true, attributeFilter: ["class"] });
      folds();
    },
    line(element) { coft.act(element, { rail: toggleRail }); },
    toggleRail,
    summary(values) {
      if (!values) return [];
      coft.frame.values = values;
      const [model, key, , lam, alpha, temperature, topP, topK, greedy, sentinel, steps, seed, userList, , mask, attribute, mode, , whitelist, , promptFormat, chatDate, parameters] = values;
      const rail = document.querySelector(".rail");
      const info = coft.parameters.info(key);
      if (rail) Object.assign(rail.dataset, { policy: key, mask, mode, fuses: info.fuses, certifies: info.certifies, layouts: info.layouts.length });
      const folded = [
        `${greedy ? "greedy" : `T ${Number(temperature).toFixed(1)}`}, top-p ${Number(topP)}${Number(topK) ? `, top-k ${topK}` : ""}`,
        `${mode}${sentinel ? `, ${sentinel}` : ""}${Number(userList) ? ", word list" : ""}${whitelist ? ", some kept" : ""}`,
        `${{ chat: "chat template", plain: "plain text" }[promptFormat] || "as the model has it"}${chatDate ? `, ${chatDate}` : ""}`,
        `${steps} steps, ${seed}`,
      ];
      document.querySelectorAll(".rail .fold .label-wrap").forEach((node, at) => { node.dataset.summary = folded[at] || ""; });
      const masks = { joint: "joint mask", single: `${attribute} alone`, factorized: "factorized masks" };
      const line = document.querySelector(".summaryline");
      if (!line) return [];
      const note = document.querySelector(".rail .note .badge");
      line.replaceChildren(
        coft.el("button", { type: "button", class: "btn small", "data-do": "rail" }, coft.icon("rail"), "Settings"),
        coft.el("span", { text: String(model) }),
        coft.el("span", { text: info.layouts.length > 1 ? `${info.name}, ${masks[mask]}` : info.name }),
        ...coft.parameters.words(key, parameters).map((text) => coft.el("span", { text })),
        ...(info.fuses ? [coft.el("span", { text: `λ ${Number(lam).toFixed(2)}` })] : []),
        ...(info.certifies ? [coft.el("span", { text: `α ${Number(alpha).toFixed(Number(alpha) < 0.01 ? 3 : 2)}` })] : []),
        ...(note ? [note.cloneNode(true)] : []));
      return [];
    },
    saved(text) {
      const line = document.getElementById("saved");
      if (line) line.textContent = text || "";
    },
  };
  coft.settings = (values) => {
    coft.frame.summary(values);
    coft.session.settings(values);
    return [];
  };
})();
