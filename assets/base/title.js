/* The window's title: what a page calls itself, and before it what is told of jobs. */
let own = "", lead = "", written = null;

const show = () => {
  if (document.title !== written) own = document.title;
  written = lead ? `${lead} · ${own}` : own;
  if (document.title !== written) document.title = written;
};
/* put a few words before the title, or none; a page may go on to change the rest */
export const led = (text) => {
  if (text === lead) return;
  lead = text;
  show();
};
new MutationObserver(() => { if (lead) show(); }).observe(document.head, { childList: true, subtree: true, characterData: true });
