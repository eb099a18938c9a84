/* Light and dark: the system's choice until the reviewer makes her own. */
"use strict";
(() => {
  const coft = window.coft;
  const THEME_KEY = "coft-theme";

  const wanted = () => {
    try { return localStorage.getItem(THEME_KEY); } catch { return null; }
  };
  const system = () => (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  coft.theme = () => (document.body && document.body.classList.contains("dark") ? "dark" : "light");
  coft.setTheme = (mode) => {
    document.documentElement.style.colorScheme = mode;
    if (document.body) document.body.classList.toggle("dark", mode === "dark");
  };
  const settle = () => {
    const mode = wanted() || system();
    if (coft.theme() !== mode) coft.setTheme(mode);
  };
  document.documentElement.style.colorScheme = wanted() || system();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", settle);
  const themed = [];
  coft.onTheme = (handler) => themed.push(handler);
  coft.whenReady(() => {
    settle();
    let shown = coft.theme();
    new MutationObserver(() => {
      if (wanted()) settle();
      if (coft.theme() === shown) return;
      shown = coft.theme();
      themed.forEach((handler) => handler(shown));
    }).observe(document.body, { attributes: true, attributeFilter: ["class"] });
  });
  coft.toggleTheme = () => {
    const mode = coft.theme() === "dark" ? "light" : "dark";
    try { localStorage.setItem(THEME_KEY, mode); } catch { /* private windows forget the choice */ }
    coft.setTheme(mode);
  };
})();
