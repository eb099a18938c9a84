/* The page Evaluate: a table whose columns sort its rows. */
import "../base/charts.js";
import { expose } from "../base/core.js";
import "../base/frame.js";
import "../base/lists.js";

const valueOf = (row, column) => {
  const cell = row.cells[column], told = cell.dataset.value;
  if (told === undefined) return cell.textContent.trim().toLowerCase();
  return told === "" ? null : Number(told);
};
/* what has no value comes last, whichever way the rows are sorted */
const compare = (down) => ([one], [other]) => {
  if (one === null || other === null) return (one === null) - (other === null);
  const order = typeof one === "string" ? one.localeCompare(other) : one - other;
  return down ? -order : order;
};
const sort = (head) => {
  const down = head.getAttribute("aria-sort") === "ascending";
  const body = head.closest("table").tBodies[0];
  head.parentElement.querySelectorAll("[aria-sort]").forEach((other) => other.removeAttribute("aria-sort"));
  head.setAttribute("aria-sort", down ? "descending" : "ascending");
  body.append(...[...body.rows].map((row) => [valueOf(row, head.cellIndex), row]).sort(compare(down)).map(([, row]) => row));
};
/* heads become buttons whenever the server has sent a table */
const makeSortable = (element) => element.querySelectorAll("table.figures thead th").forEach((head) => {
  if (head.querySelector(".sort")) return;
  const button = document.createElement("button");
  Object.assign(button, { type: "button", className: "sort" });
  button.append(...head.childNodes);
  head.append(button);
});
const evaluate = {
  mount(element) {
    element.addEventListener("click", ({ target }) => {
      const button = target.closest("table.figures thead .sort");
      if (button) sort(button.closest("th"));
    });
    new MutationObserver(() => makeSortable(element)).observe(element, { childList: true, subtree: true });
    makeSortable(element);
  },
};
expose({ evaluate });
