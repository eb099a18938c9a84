/* Light and dark: the system's choice until the reviewer makes her own; `first.js` has set it before. */
import { whenReady } from "./core.js";

const THEME_KEY = "coft-theme";
const dark = matchMedia("(prefers-color-scheme: dark)");
const themed = [];

const wanted = () => {
  try { return localStorage.getItem(THEME_KEY); } catch { return null; }
};
export const theme = () => (document.body && document.body.classList.contains("dark") ? "dark" : "light");
const setTheme = (mode) => {
  document.documentElement.style.colorScheme = mode;
  document.body.classList.toggle("dark", mode === "dark");
};
const settle = () => {
  const mode = wanted() || (dark.matches ? "dark" : "light");
  if (theme() !== mode) setTheme(mode);
};
export const onTheme = (handler) => themed.push(handler);
export const toggleTheme = () => {
  const mode = theme() === "dark" ? "light" : "dark";
  try { localStorage.setItem(THEME_KEY, mode); } catch { /* private windows forget the choice */ }
  setTheme(mode);
};

dark.addEventListener("change", settle);
whenReady(() => {
  settle();
  let shown = theme();
  new MutationObserver(() => {
    if (wanted()) settle();
    if (theme() === shown) return;
    shown = theme();
    themed.forEach((handler) => handler(shown));
  }).observe(document.body, { attributes: true, attributeFilter: ["class"] });
});
