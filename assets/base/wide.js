/* Tables wider than their place are scrolled sideways: a line says so for as long as columns are out of sight. */
import { perFrame, whenReady } from "./core.js";

const places = document.getElementsByClassName("scrolls");
const judge = (place) => {
  const { scrollWidth, clientWidth, scrollLeft } = place, rest = scrollWidth - clientWidth;
  place.classList.toggle("is-wide", rest > 1);
  place.classList.toggle("has-more", rest - scrollLeft > 1);
  place.classList.toggle("is-moved", scrollLeft > 1);
  /* for what is a scroller of its own inside, to which nothing sticks that is scrolled by the outer one */
  place.style.setProperty("--moved", `${scrollLeft}px`);
};
/* told of after the page was laid out: to ask for widths at another time would lay it out once more */
const sizes = new ResizeObserver((entries) => new Set(entries.map(({ target }) => target.closest(".scrolls"))).forEach((place) => place && judge(place)));
const watched = new WeakSet();
const watch = (node) => {
  if (watched.has(node)) return;
  watched.add(node);
  sizes.observe(node);
};
const watchAll = perFrame(() => [...places].forEach((place) => [place, ...place.children, ...place.querySelectorAll("table")].forEach(watch)));

whenReady(() => {
  new MutationObserver(watchAll).observe(document.body, { childList: true, subtree: true });
  watchAll();
  document.addEventListener("scroll", ({ target }) => { if (target.classList?.contains("scrolls")) judge(target); }, true);
});
