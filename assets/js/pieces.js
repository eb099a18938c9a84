/* What several modules write and draw in the same way. */
"use strict";
(() => {
  const coft = window.coft;

  /* ---- words ---- */
  coft.signed = (value) => {
    const text = Math.abs(value).toFixed(2);
    return Number(text) === 0 ? text : `${value > 0 ? "+" : "−"}${text}`;
  };
  coft.plural = (number, noun) => `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;
  /* a number that the address names, or null */
  coft.addressed = (name) => {
    const text = new URLSearchParams(location.search).get(name) || "";
    return /^\d+$/.test(text) ? Number(text) : null;
  };

  /* ---- nodes ---- */
  /* a text that stays as it is makes no change for a screen reader to tell */
  coft.put = (node, text) => { if (node.textContent !== text) node.textContent = text; };
  coft.cautions = (list, texts) => list.replaceChildren(
    ...texts.map((text) => coft.el("li", {}, coft.icon("tri"), coft.el("span", { text }))));
  /* a line that is there only while it says something */
  coft.notice = (line, ...children) => {
    line.hidden = children.length === 0;
    line.replaceChildren(...children);
  };
  /* a bar from the middle, to the right for more and to the left for less */
  coft.gauge = (value, most) => {
    const hot = Math.abs(value) >= window.coftShared.sensitive;
    const share = Math.min(1, Math.abs(value) / most) * 50;
    return coft.el("span", { class: "gauge", "aria-hidden": "true" }, coft.el("i", {
      class: `${value < 0 ? "less" : "more"}${hot ? " hot" : ""}`, style: `${value < 0 ? "right" : "left"}:50%;width:${share}%`,
    }));
  };
})();
