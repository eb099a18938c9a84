/* Tables wider than their place are scrolled sideways: a line says so for as long as columns are out of sight. */
import { perFrame, whenReady } from "./core.js";

const places = document.getElementsByClassName("scrolls");
const judge = (place) => {
  const rest = place.scrollWidth - place.clientWidth;
  place.classList.toggle("is-wide", rest > 1);
  place.classList.toggle("has-more", rest - place.scrollLeft > 1);
  place.classList.toggle("is-moved", place.scrollLeft > 1);
  /* for what is a scroller of its own inside, to which nothing sticks that is scrolled by the outer one */
  place.style.setProperty("--moved", `${place.scrollLeft}px`);
};
const judgeAll = perFrame(() => [...places].filter((place) => place.offsetParent).forEach(judge));

whenReady(() => {
  new MutationObserver(judgeAll).observe(document.body, { childList: true, subtree: true });
  new ResizeObserver(judgeAll).observe(document.body);
  document.addEventListener("toggle", judgeAll, true);
  document.addEventListener("scroll", ({ target }) => { if (target.classList?.contains("scrolls")) judge(target); }, true);
});
