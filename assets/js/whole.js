/* The chain as a whole: the sequence certificate and the union bound side by side, and what each step costs. */
"use strict";
(() => {
  const coft = window.coft;
  let root, panel, costs, priced = null, drawn = null, parameters = [], told = "";

  /* a chain's weakest token is a link to its step */
  const value = (name, text, weakest, state) => {
    const card = name === "Weakest token" ? state.cards[weakest] : null;
    if (!card) return coft.el("dd", { class: "tnum", text });
    return coft.el("dd", { class: "tnum" }, coft.el("button", { type: "button", class: "link", "data-weakest": weakest },
      coft.el("span", { class: "mono", text: card.w }), `, ${text}`));
  };
  const answer = (part, weakest, state) => coft.el("div", { class: "answer" },
    coft.el("h4", { text: part.t }),
    coft.el("p", {}, coft.el("span", { class: `badge ${part.s}`, text: part.b })),
    coft.el("p", { class: "says", text: part.says }),
    coft.el("dl", {}, ...part.rows.map(([name, text]) => coft.el("div", {},
      coft.el("dt", { text: name }), value(name, text, weakest, state)))));

  coft.whole = {
    mount(element) {
      root = element;
      panel = root.querySelector(".whole");
      costs = root.querySelector(".cost");
      panel.addEventListener("click", (event) => {
        const hit = event.target.closest("[data-weakest]");
        if (hit) coft.session.select(Number(hit.dataset.weakest), true);
      });
    },
    /* `chain` is null where there is no certificate; the session says why, or nothing */
    show(chain, state) {
      const why = state.cards.length ? state.nochain : "";
      const now = [chain, why, chain ? state.cards[chain.weakest] : null];
      if (drawn && drawn.every((part, at) => part === now[at])) return;
      drawn = now;
      panel.hidden = !chain && !why;
      panel.querySelector(".sentence").textContent = chain ? "Two answers, which need not agree: one threshold for the whole chain, and the steps’ own thresholds added up." : why;
      panel.querySelector(".answers").replaceChildren(...(chain ? chain.parts.map((part) => answer(part, chain.weakest, state)) : []));
      panel.title = chain ? chain.text : "";
    },
    /* what the chain was written with: one line, and under it what the method does and all its parameters */
    method(made) {
      const box = root.querySelector(".madewith");
      box.querySelector("summary .hint").textContent = made.line;
      box.querySelector("p").textContent = made.about;
      /* only some methods fuse what they draw from */
      document.querySelectorAll("th.drawn-from").forEach((node) => { node.textContent = made.fuses ? "Fused" : "Drawn"; });
      document.querySelectorAll("span.drawn-from").forEach((node) => { node.textContent = made.fuses ? "fused" : "drawn from"; });
      parameters = made.parameters;
    },
    /* how its steps were computed, under the method's parameters; a run of many frames draws it once */
    computed(made) {
      const rows = [...parameters, ...made];
      if (JSON.stringify(rows) === told) return;
      told = JSON.stringify(rows);
      root.querySelector(".madewith dl").replaceChildren(...rows.map(([title, value]) => coft.el("div", {},
        coft.el("dt", { text: title }), coft.el("dd", { text: value }))));
    },
    cost(text, session) {
      costs.hidden = !text;
      costs.querySelector(".words").textContent = text ? `Each step reads ${text}` : "";
      if (priced !== session) coft.whole.measured("");
      priced = session;
    },
    measured(text) { costs.querySelector(".measured").textContent = text; },
  };
})();
