/* Two chains of a session beside each other, from the token where they part. */
"use strict";
(() => {
  const coft = window.coft;
  let root, pair = null, wanted = 0, shown = null;

  const name = (id) => {
    const own = coft.branches.byId(id);
    return own ? own.name || own.token : "";
  };
  const cells = (step, most) => {
    if (!step) return [coft.el("td", { class: "past", colspan: 2 }, coft.el("span", { class: "vh", text: "ended" }))];
    const [word, classes, marks, ratio, spoken] = step;
    return [coft.el("td", { title: spoken }, coft.el("span", { class: `tok ${classes}` },
      coft.el("span", { class: "mk" }, ...marks.map(coft.icon)), coft.el("span", { class: "w", text: word }),
      coft.el("span", { class: "vh", text: `, ${spoken}` }))),
    coft.el("td", { class: "n gauged" }, coft.gauge(ratio, most), coft.el("span", { class: "figure", text: coft.signed(ratio) }))];
  };
  const draw = (message) => {
    const { left, right, apart } = message;
    const all = [...left.steps, ...right.steps].map((step) => Math.abs(step[3]));
    const most = Math.max(window.coftShared.sensitive, ...all);
    const rows = Array.from({ length: Math.max(left.steps.length, right.steps.length) }, (_, row) => coft.el("tr", {},
      coft.el("td", { class: "tnum", text: apart + row + 1 }), ...cells(left.steps[row], most), ...cells(right.steps[row], most)));
    const head = (side) => coft.el("th", { scope: "colgroup", colspan: 2, text: `${name(side.id)}${side.id === coft.session.state().branch ? " (shown)" : ""}` });
    const body = rows.length
      ? coft.el("div", { class: "scroll", tabindex: "0", role: "region", "aria-labelledby": "h-beside" }, coft.el("table", {},
        coft.el("caption", { class: "vh", text: "Tokens and sensitivity by step" }),
        coft.el("thead", {}, coft.el("tr", {}, coft.el("th", { scope: "col", text: "Step" }), head(left), head(right))),
        coft.el("tbody", {}, ...rows)))
      : coft.el("p", { class: "hint", text: "Both chains are the same so far." });
    root.replaceChildren(
      coft.el("div", { class: "bar" }, coft.el("h3", { id: "h-beside", text: rows.length ? `Apart from step ${apart + 1} on` : "Not apart yet" }),
        coft.el("span", { class: "hint", text: "bars: sensitivity of each token" }),
        coft.el("div", { class: "end" }, coft.el("a", { href: coft.branches.comparison([left.id, right.id]), text: "Open in Compare" }),
          coft.el("button", { type: "button", class: "btn small quiet", "data-do": "close-beside", text: "Close" }))),
      coft.el("p", { class: "parted hint", text: message.lead ? `both: ${message.lead}` : "both: the prompt" }),
      coft.el("div", { class: "texts" }, ...[left, right].map((side) => coft.el("p", {},
        coft.el("span", { class: "hint", text: `${name(side.id)}: ` }), side.text || "nothing written yet"))),
      body);
    root.hidden = false;
  };

  coft.beside = {
    mount(element) {
      root = element;
      root.addEventListener("click", (event) => {
        if (!event.target.closest("[data-do=close-beside]")) return;
        coft.beside.close();
        coft.tree.focus(coft.session.state().branch);
      });
    },
    show(left, right) {
      pair = [left, right];
      wanted = coft.branches.ask(pair);
    },
    take(message) {
      if (!pair || message.nonce !== wanted || message.session !== coft.session.state().session) return;
      shown = message;
      draw(message);
    },
    /* the shown chain may have grown, and a branch may have gone */
    follow() {
      if (!shown || !pair) return;
      const { branch, cards, running } = coft.session.state();
      if (pair.some((id) => !coft.branches.byId(id))) { coft.beside.close(); return; }
      const own = [shown.left, shown.right].find((side) => side.id === branch);
      if (!own || running || own.length === cards.length) return;
      own.length = cards.length;
      wanted = coft.branches.ask(pair);
    },
    close() {
      pair = null;
      shown = null;
      root.hidden = true;
      root.replaceChildren();
    },
  };
})();
