/* What the prompt's editor shows: the marked copy under the field, the list of spans, and the masked reading. */
"use strict";
(() => {
  const coft = window.coft;
  const { mark, sorted, toPoints } = coft.marking;

  /* who found a span and how sure that is; a plain lexicon term is always sure */
  const source = (span) => {
    if (span.source === "user") return span.kept ? "yours, kept" : "yours";
    if (span.source === "list") return `list: ${span.detail}${span.kept ? ", kept" : ""}`;
    const sure = typeof span.score === "number" && !(span.source === "lexicon" && span.score >= 1) ? ` ${span.score.toFixed(2)}` : "";
    const found = `${span.source}${sure}${span.detail ? `, ${span.detail}` : ""}`;
    if (!span.kept) return found;
    return `${found}, ${span.whitelisted ? "never masked" : "kept by you"}`;
  };
  const act = (name, at, word, label, spoken) => coft.el("button", {
    type: "button", class: "btn small quiet", "data-do": name, "data-at": at, "aria-label": `${spoken || label}: ${word}`, text: label,
  });
  const actions = (span, at, word) => (span.suggested
    ? [act("accept", at, word, "Accept"), act("remove", at, word, "Dismiss")]
    : [act("keep", at, word, span.kept ? "Mask it" : "Keep visible", span.kept ? "Mask" : "Keep visible"), act("remove", at, word, "Remove")]);

  /* draws into the editor's section; families are their names by key */
  coft.editorView = (root, families) => {
    const backdrop = root.querySelector(".backdrop");

    const paint = (text, spans) => {
      const pieces = [];
      let at = 0;
      for (const span of sorted(spans)) {
        if (span.start < at) continue;
        pieces.push(document.createTextNode(text.slice(at, span.start)), mark(span, text.slice(span.start, span.end), families));
        at = span.end;
      }
      pieces.push(document.createTextNode(`${text.slice(at)}\u200b`));
      backdrop.replaceChildren(...pieces);
      /* a label that would run into the next one gives way */
      let before = null;
      for (const label of backdrop.querySelectorAll(".fam")) {
        const box = label.getBoundingClientRect();
        const last = before && before.getBoundingClientRect();
        if (last && Math.abs(box.top - last.top) < 8 && box.left < last.right + 4) before.classList.add("short");
        before = label;
      }
    };

    const offers = (many) => {
      const box = root.querySelector(".offers");
      box.hidden = many === 0;
      box.querySelector("[role=status]").textContent = many
        ? `${many === 1 ? "1 suggestion" : `${many} suggestions`}: shown, and not masked until you accept ${many === 1 ? "it" : "them"}.` : "";
    };

    const list = (text, spans) => {
      const table = root.querySelector(".spanlist");
      table.hidden = spans.length === 0;
      const focus = table.contains(document.activeElement) ? [document.activeElement.dataset.do, document.activeElement.dataset.at] : null;
      table.tBodies[0].replaceChildren(...sorted(spans).map((span, at) => {
        const word = text.slice(span.start, span.end);
        const menu = coft.el("select", { class: "select small quiet", "data-do": "relabel", "data-at": at, "aria-label": `Family of ${word}` },
          ...Object.entries(families).map(([value, called]) => coft.el("option", { value, text: called, selected: value === span.category })));
        return coft.el("tr", { class: span.picked ? "picked" : null },
          coft.el("td", {}, coft.el("span", { class: `word${span.kept ? " white" : span.suggested ? ` offer f-${span.category}` : ""}`, text: word })),
          coft.el("td", {}, coft.el("span", { class: `sw f-${span.category}` }), menu),
          coft.el("td", { class: "sub" }, span.suggested ? coft.el("b", { class: "tag", text: "suggested" }) : null, source(span)),
          coft.el("td", { class: "hint tnum", text: `${toPoints(text, span.start)}–${toPoints(text, span.end)}` }),
          coft.el("td", { class: "num" }, ...actions(span, at, word)));
      }));
      if (focus) {
        const again = table.querySelector(`[data-do="${focus[0]}"][data-at="${focus[1]}"]`) || table.querySelector("button");
        if (again) again.focus();
      }
    };

    const cautions = (texts) => coft.cautions(root.querySelector(".cautions"), texts);

    const reading = (preview, text, spans) => {
      const box = root.querySelector(".reading");
      box.hidden = !preview || !text.trim();
      if (!preview) return;
      box.querySelector(".counts").textContent = preview.counts;
      const reads = box.querySelector(".masked");
      reads.replaceChildren(...preview.pieces.map(([words, masked]) =>
        (masked ? coft.el("b", { text: words }) : document.createTextNode(words))));
      /* a long one scrolls, and is then scrolled by keys as well */
      if (reads.scrollHeight > reads.clientHeight) reads.tabIndex = 0;
      else reads.removeAttribute("tabindex");
      const several = box.querySelector(".several");
      several.hidden = !preview.branches;
      several.textContent = preview.branches || "";
      cautions(spans.length || preview.warnings.length ? preview.warnings : []);
    };

    return { paint, offers, list, reading, cautions };
  };
})();
