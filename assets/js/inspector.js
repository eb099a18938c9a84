/* The selected token in words, table and figures, from its card. */
"use strict";
(() => {
  const coft = window.coft;
  let root, after, shown = null, meant = "";

  const MARK = {
    tick: (row) => [coft.icon("tick"), coft.el("span", { class: "vh", text: row.why })],
    borrowed: (row) => [coft.el("span", { class: "why borrowed", text: row.why })],
    open: (row) => [coft.el("span", { class: "why open", text: row.why })],
    out: (row) => [coft.el("span", { class: "why", text: row.why })],
  };
  const word = (token) => {
    const lead = /^ ./.test(token) ? [coft.el("span", { class: "sp", "aria-hidden": "true", text: "·" })] : [];
    return [...lead, coft.shown(token)];
  };
  const action = (row, at) => {
    if (row.act) return coft.el("span", { class: "hint nowrap", text: row.act });
    return coft.el("button", { type: "button", class: "btn small", "data-token": row.id, "aria-label": `Force ${coft.shown(row.t)} here` },
      "Force", at < 9 ? coft.el("kbd", { text: at + 1 }) : null);
  };
  const FIRST = 8;
  /* with one mask for each family, the joint column gives way to the names of those that refuse; where the factual
     reading alone certifies, nothing is compared with the joint support, so that its column goes too */
  const family = (row) => coft.el("tr", { class: row.mark === "out" ? "out" : null },
    coft.el("th", { scope: "row" }, coft.el("span", { class: `sw f-${row.f}` }), row.n),
    ...["m", "j", "tau"].map((name) => coft.el("td", { class: "n", text: row[name] })),
    coft.el("td", {}, ...MARK[row.mark](row)));
  const families = (rows, alone) => {
    const table = root.querySelector(".byfamily");
    table.hidden = rows.length === 0;
    table.tBodies[0].replaceChildren(...rows.map(family));
    root.querySelector(".cand").classList.toggle("factorized", rows.length > 0 || alone);
    const heading = root.querySelector(".cand thead th:nth-child(6)");
    heading.textContent = alone ? "Certified as typed" : "Certified";
    heading.title = alone ? "Certified when the probability as typed (factual) reaches the threshold" : "Certified when joint support reaches the threshold";
  };
  const line = (row, at) => coft.el("tr", { class: [row.act && "chosen", row.mark === "out" && "out", at >= FIRST && !row.act && "rest"].filter(Boolean).join(" ") },
    coft.el("td", { class: "t", title: row.t }, ...word(row.t)),
    ...["f", "m", "x", "j"].map((view) => coft.el("td", { class: "n", text: row[view] })),
    coft.el("td", {}, ...MARK[row.mark](row)), coft.el("td", {}, action(row, at)));

  const verdict = (card, bins) => {
    if (!card.b) return card.v;
    const bin = bins.find((item) => item.first <= card.i && (item.last === null || card.i <= item.last));
    return (bin && bin.v) || card.v;
  };

  /* the choice to see all candidates holds for the tokens that follow */
  let open = false;
  const unfold = (wanted) => {
    open = wanted;
    const hidden = root.querySelectorAll(".cand tr.rest").length;
    const button = root.querySelector("[data-do=rest]");
    button.hidden = hidden === 0;
    button.setAttribute("aria-expanded", String(open));
    button.textContent = open ? "Show fewer" : `Show ${hidden} more`;
    root.querySelector(".cand").classList.toggle("all", open);
  };

  coft.inspector = {
    mount(element) {
      root = element.querySelector("section");
      root.addEventListener("click", (event) => {
        if (event.target.closest("[data-do=rest]")) unfold(!open);
        const hit = event.target.closest("[data-token]");
        /* the row belongs to the shown step, which the selection may have left already */
        if (hit) coft.session.force(Number(hit.dataset.token), shown.i);
      });
      root.querySelector(".typed").addEventListener("submit", (event) => {
        event.preventDefault();
        const text = root.querySelector("#typed").value;
        if (text) coft.session.force(text);
      });
      root.querySelector("#typed").addEventListener("keydown", (event) => {
        const selected = document.querySelector(".strip .tok.sel");
        if (event.key === "Escape" && selected) selected.focus({ preventScroll: true });
      });
    },
    /* a token of one's own for the selected step */
    type() {
      const field = root.querySelector("#typed");
      if (!shown || field.closest("[hidden]")) return false;
      field.focus();
      field.select();
      return true;
    },
    facts(element) { after = element.querySelector(".after"); },
    forceRow(at) {
      const row = shown && shown.rows[at];
      if (row && !row.act) coft.session.force(row.id, shown.i);
    },
    /* what is typed is meant for one step: another one clears it, at once and never with a later frame */
    turn(card) {
      const to = card ? `${card.i}:${card.id}` : "";
      if (to === meant) return;
      meant = to;
      root.querySelector("#typed").value = "";
    },
    typing: () => document.activeElement === root.querySelector("#typed") && document.activeElement.value !== "",
    show(card, state) {
      root.querySelector(".unselected").hidden = Boolean(card);
      root.querySelector(".selected").hidden = !card;
      if (after) after.hidden = !card;
      document.body.classList.toggle("has-token", Boolean(card));
      if (!card) { shown = null; return; }
      const where = `step ${card.i + 1} of ${state.cards.length}${card.o ? ` · ${card.o}` : ""}`;
      root.querySelector(".where").textContent = where;
      if (card === shown) return;
      shown = card;
      root.querySelector(".bigtok").replaceChildren(...word(card.t));
      root.querySelector(".marks").replaceChildren(...card.k.map(coft.icon));
      const [strong, rest] = verdict(card, state.bins);
      root.querySelector(".verdict").replaceChildren(coft.el("strong", { text: strong }), ` ${rest}`);
      root.querySelector(".because").textContent = card.d;
      root.querySelector(".cand tbody").replaceChildren(...card.rows.map(line));
      families(card.fam, card.a);
      unfold(open);
      after.querySelector(".facts").replaceChildren(...card.facts.map(([name, value, note]) => coft.el("div", {},
        coft.el("dt", { text: name }), coft.el("dd", { text: value }), coft.el("dd", { text: note }))));
    },
  };
})();
