/* The reviewer's name: asked once, kept in this browser, told to all parts of a page that sign or read with it. */
"use strict";
(() => {
  const coft = window.coft;
  const KEY = "coft-reviewer";
  const LONGEST = 200;
  const followers = [];
  let known = null, dialog = null;

  const clean = (text) => (text || "").split(/\s+/).filter(Boolean).join(" ").slice(0, LONGEST);
  const stored = () => {
    try { return clean(localStorage.getItem(KEY)); } catch { return ""; }
  };
  const name = () => {
    if (known === null) known = stored();
    return known;
  };
  const tell = () => followers.forEach((follower) => follower(name()));
  const keep = (text) => {
    const before = name();
    known = clean(text);
    try { localStorage.setItem(KEY, known); } catch { /* private windows forget the name */ }
    if (known !== before) tell();
  };

  const build = () => {
    const field = coft.el("input", { class: "input", id: "reviewer-name", autocomplete: "name", maxlength: LONGEST, required: true });
    const cancel = coft.el("button", { type: "button", class: "btn", text: "Cancel" });
    const form = coft.el("form", { method: "dialog" },
      coft.el("h2", { id: "reviewer-title", text: "Who is reviewing?" }),
      coft.el("p", { class: "sub", text: "Verdicts are signed with this name, in the log and in every report. This browser remembers it." }),
      coft.el("div", { class: "field" }, coft.el("label", { for: "reviewer-name", text: "Your name" }), field),
      coft.el("div", { class: "row" }, cancel, coft.el("button", { class: "btn primary", value: "yes", text: "Use this name" })));
    dialog = coft.el("dialog", { id: "reviewer", class: "sheet coft", "aria-labelledby": "reviewer-title" }, form);
    cancel.addEventListener("click", () => dialog.close("no"));
    document.body.append(dialog);
  };

  coft.reviewer = {
    name,
    onChange: (follower) => followers.push(follower),
    /* asks in any case; gives the name that now holds, or "" where there is still none or nothing was decided */
    ask: () => new Promise((resolve) => {
      if (!dialog) build();
      const field = dialog.querySelector("input");
      field.value = name();
      dialog.returnValue = "no";
      dialog.addEventListener("close", () => {
        const text = clean(field.value);
        if (dialog.returnValue !== "yes" || !text) { resolve(""); return; }
        keep(text);
        resolve(text);
      }, { once: true });
      if (!dialog.open) dialog.showModal();
      field.select();
    }),
    needed: async () => name() || coft.reviewer.ask(),
  };
  /* another tab of this browser may change the name */
  window.addEventListener("storage", (event) => {
    if (event.key !== KEY) return;
    known = null;
    tell();
  });
})();
