/* What the address names and is not there is said on the page, which shows what it has instead. */
import { html, render } from "./vendor/lit-html.js";

let asked = null;
const box = document.createElement("div");

const show = (missing) => {
  render(missing.map(({ said, page, address }) => html`<p>${said}${page ? html` The list is on <a href=${address}>${page}</a>.` : ""}</p>`), box);
  box.hidden = missing.length === 0;
};
/* asked once for each address, before the page's own parts may take it away */
const look = async () => {
  asked?.abort();
  show([]);
  if (location.search.length < 2) return;
  const request = asked = new AbortController();
  const page = location.pathname.split("/").pop();
  try {
    const answer = await fetch(`./address/${page}${location.search}`, { signal: request.signal });
    if (answer.ok && asked === request) show((await answer.json()).missing);
  } catch { /* a server that cannot be reached is said by the frame */ }
};
export const address = {
  mount(bar) {
    Object.assign(box, { className: "coft missing", hidden: true });
    box.setAttribute("role", "alert");
    bar.after(box);
  },
};
window.addEventListener("popstate", look);
window.addEventListener("pagehide", () => asked?.abort());
look();
