/* Gradio's messages: the row that holds the button that closes one folds nothing here, so that it is no button itself. */
import { perFrame, whenReady } from "./core.js";

const rows = document.getElementsByClassName("toast-header");
const settle = perFrame(() => [...rows].forEach((row) => {
  row.removeAttribute("role");
  row.removeAttribute("tabindex");
}));

whenReady(() => new MutationObserver(settle).observe(document.body, { childList: true, subtree: true }));
