/* Light or dark before anything is drawn: the reviewer's own choice, or else the system's. Written into each page. */
{
  let mode = null;
  try { mode = localStorage.getItem("coft-theme"); } catch { /* private windows forget the choice */ }
  mode ||= matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  document.documentElement.style.colorScheme = mode;
  new MutationObserver((_, watch) => {
    if (!document.body) return;
    document.body.classList.toggle("dark", mode === "dark");
    watch.disconnect();
  }).observe(document.documentElement, { childList: true });
}
/* Our style sheets overrule those that Gradio begins with, and not those of its parts that come later: they take their
   place behind its theme as soon as that is there, and are in force meanwhile. */
new MutationObserver((records, watch) => {
  if (!records.some(({ addedNodes }) => [...addedNodes].some((node) => node.href?.includes("/theme.css")))) return;
  watch.disconnect();
  for (const sheet of document.head.querySelectorAll("link[rel=stylesheet][href*='/own/']")) {
    const behind = sheet.cloneNode();
    behind.addEventListener("load", () => sheet.remove(), { once: true });
    document.head.append(behind);
  }
}).observe(document.head, { childList: true });
