/* Keys of the audit page. They do nothing while something is typed or a dialog is open. */
"use strict";
(() => {
  const coft = window.coft;
  const typing = (node) => node instanceof Element
    && node.closest("input, textarea, select, [contenteditable=true], [role=listbox], [role=slider], dialog[open]");
  const pressing = (node) => node instanceof Element && node.closest("a, button, summary, label") && !node.closest(".strip");

  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
    if (typing(event.target) || document.querySelector("dialog[open]")) return;
    if (event.key === "?") { event.preventDefault(); coft.help(); return; }
    if (!document.querySelector(".audit")) return;
    const inStrip = event.target instanceof Element && Boolean(event.target.closest(".strip"));
    const state = coft.session.state();
    const table = {
      ArrowLeft: () => coft.session.back(inStrip),
      ArrowRight: () => coft.session.step(inStrip),
      Home: () => inStrip && coft.session.select(0, true),
      End: () => inStrip && coft.session.select(state.cards.length - 1, true),
      " ": () => coft.session.toggle(),
      "[": () => coft.frame.toggleRail(),
    };
    if (event.key === " " && (pressing(event.target) || event.repeat)) return;
    if (/^[1-9]$/.test(event.key)) { event.preventDefault(); coft.inspector.forceRow(Number(event.key) - 1); return; }
    const run = table[event.key];
    if (!run || (["Home", "End"].includes(event.key) && !inStrip)) return;
    event.preventDefault();
    run();
  });
})();
