/* How a reading at another lambda or alpha is drawn: the strip with its marks, and the table of what differs. */
"use strict";
(() => {
  const coft = window.coft;
  const SIGNS = { other: "≠", unknown: "?", forced: "≠" };
  const ICONS = { lost: "cross", gained: "tick" };

  /* a live region speaks only when its words change */
  const signs = (mark) => {
    if (!mark) return [];
    const found = mark.t ? [coft.el("b", { text: SIGNS[mark.t] })] : [];
    if (mark.c) found.push(ICONS[mark.c] ? coft.icon(ICONS[mark.c]) : mark.t === "unknown" ? "" : coft.el("b", { text: "?" }));
    return found;
  };
  /* what the last drawing went by, and its nodes by step: what is as it was then is not looked at again */
  let drawn = { key: "", cards: null, end: null, message: null, nodes: [], selected: null };
  const place = (card) => coft.el("span", { class: "rt", "data-i": card.i }, coft.el("span", { class: "mk" }), coft.el("span", { class: "w", text: card.w }));
  /* the cards are those of the transcript; new ones join at once and get their marks with the next answer */
  const strip = (root, state, message) => {
    const { cards } = state;
    const key = `${state.session}:${state.branch}`;
    const known = drawn.nodes.length;
    const grown = drawn.key === key && drawn.cards === cards && known > 0 && cards[known - 1] === drawn.end;
    const nodes = drawn.key === key ? drawn.nodes : [];
    if (!grown || known < cards.length) {
      const holder = root.querySelector(".restrip");
      if (drawn.key !== key) holder.replaceChildren();
      nodes.splice(cards.length).forEach((node) => node.remove());
      if (!grown) nodes.forEach((node, at) => { if (node.lastChild.textContent !== cards[at].w) node.lastChild.textContent = cards[at].w; });
      const fresh = cards.slice(nodes.length).map(place);
      holder.append(...fresh);
      nodes.push(...fresh);
    }
    if (message) marks(nodes, message, grown && message === drawn.message ? known : 0);
    drawn = { ...drawn, key, cards, end: cards[cards.length - 1], message, nodes };
    chosen(root, state);
  };
  const marks = (nodes, message, from) => {
    if (from >= nodes.length) return;
    const found = new Map(message.marks.map((mark) => [mark.i, mark]));
    const gaps = new Set(message.unread);
    nodes.slice(from).forEach((node, after) => {
      const at = from + after;
      const mark = found.get(at);
      const text = mark ? `${mark.t} ${mark.c}` : gaps.has(at) ? "gap" : "";
      node.classList.toggle("after", message.first !== null && at > message.first);
      node.classList.toggle("first", at === message.first);
      if (node.dataset.mark === text && (!mark || node.title === mark.sr)) return;
      node.dataset.mark = text;
      node.title = mark ? mark.sr : gaps.has(at) ? "stored without its logits" : "";
      node.firstChild.replaceChildren(...signs(mark));
    });
  };
  const chosen = (root, state) => {
    const before = drawn.selected;
    const node = drawn.nodes[state.selected] || null;
    if (before !== node) { if (before) before.classList.remove("sel"); if (node) node.classList.add("sel"); }
    drawn.selected = node;
    root.querySelectorAll(".differing tbody tr").forEach((row) => {
      const on = Number(row.dataset.i) === state.selected;
      row.classList.toggle("chosen", on);
      const link = row.querySelector(".goto");
      if (link.getAttribute("aria-current") !== String(on)) link.setAttribute("aria-current", String(on));
    });
  };
  const signed = (kind, text) => [kind ? coft.el("span", { class: "mk", "aria-hidden": "true" }, ...signs({ t: SIGNS[kind] ? kind : "", c: SIGNS[kind] ? "" : kind })) : null, text];
  const table = (root, message) => {
    const find = (selector) => root.querySelector(selector);
    find(".differing").hidden = message.rows.length === 0;
    find(".more").hidden = !message.more;
    coft.put(find(".more"), message.more);
    const body = find(".differing tbody");
    const held = body.contains(document.activeElement) ? [document.activeElement.closest("tr").dataset.i, document.activeElement.className] : null;
    body.replaceChildren(...message.rows.map((row) => coft.el("tr", { "data-i": row.i, class: row.i === message.first ? "first" : null },
      coft.el("td", { class: "n" }, coft.el("button", { type: "button", class: "link goto tnum", "data-go": row.i, "aria-label": `Select step ${row.step}`, text: row.step })),
      coft.el("td", { class: "mono", text: row.written }),
      coft.el("td", { class: row.t === "other" ? "mono would" : "sub" }, ...signed(row.t, row.would)),
      coft.el("td", { class: "sub", text: row.then }),
      coft.el("td", { class: row.c ? "" : "sub" }, ...signed(row.c, row.now)),
      coft.el("td", { class: "act" }, row.id === null ? null : coft.el("button", {
        type: "button", class: "btn small forkit", "data-fork": row.i, "aria-label": `Fork at step ${row.step} with ${row.would}`, text: "Fork",
      })))));
    const again = held && body.querySelector(`tr[data-i="${held[0]}"] .${held[1].split(" ").pop()}`);
    if (again) again.focus();
  };

  coft.rereadMarks = { strip, table };
})();
