/* Chains beside each other: the columns' texts, the aligned tokens, and the candidates of the selected row. */
"use strict";
(() => {
  const coft = window.coft;
  const UNIT = 20;
  const LEFT = 20, RIGHT = 44;
  const PAGE = 10;
  const state = { columns: [], rows: [], say: [], row: -1, live: false, drawn: [] };
  let root, body, scroller;

  const find = (selector) => root.querySelector(selector);
  const differs = (row) => row[1].some(Boolean);

  /* ---- the prompt, with its spans; the server counts code points ---- */
  const prompt = (text, spans) => {
    const points = [...text];
    const pieces = [];
    let at = 0;
    for (const span of [...spans].sort((a, b) => a.start - b.start)) {
      if (span.start < at || span.suggested) continue;
      pieces.push(points.slice(at, span.start).join(""));
      pieces.push(coft.marking.mark(span, points.slice(span.start, span.end).join(""), coft.compare.families));
      at = span.end;
    }
    pieces.push(points.slice(at).join(""));
    find(".cmp-prompt").replaceChildren(...pieces);
  };

  /* ---- heads: policy, settings, certificate, and the whole text with what differs marked ---- */
  const prose = (place) => {
    const own = state.columns[place];
    const box = coft.el("p", { class: "lanetext", tabindex: "0", role: "group", "aria-label": `Text of ${own.name}; marked where it differs` });
    let mark = null, run = "";
    const flush = () => {
      if (!run) return;
      if (!mark) box.append(run);
      else {
        const lead = run.match(/^\s*/)[0];
        box.append(lead, coft.el("ins", { text: run.slice(lead.length) }));
      }
      run = "";
    };
    const last = own.finished === "end of text" ? own.cells.length - 1 : own.cells.length;
    for (const [steps, apart] of state.rows) {
      const cell = steps[place] === null || steps[place] >= last ? null : own.cells[steps[place]];
      if (!cell) continue;
      const now = Boolean(apart[place]);
      if (now !== mark) { flush(); mark = now; }
      run += cell.t;
    }
    flush();
    if (state.live && !own.finished) box.append(coft.caret());
    return box;
  };
  const head = (own, place) => {
    const href = `./?session=${own.session}&branch=${own.branch}`;
    const count = `${own.cells.length} of ${coft.plural(own.total, "step")}${own.finished ? `, ${own.finished}` : ""}`;
    return coft.el("div", { class: "lanehead", role: "group", "aria-label": own.name },
      coft.el("h3", {}, own.name),
      coft.el("span", { class: "hint tnum", text: own.line }),
      coft.el("span", { class: `badge ${own.state}`, title: own.why, text: own.claim }),
      coft.el("span", { class: "hint tnum" }, `${count} · `, coft.el("a", { href, title: `${own.title}, ${own.where}` }, "open as audit")),
      prose(place));
  };
  const heads = () => {
    const box = find(".laneheads");
    const kept = [...box.querySelectorAll(".lanetext")].map((node) => node.scrollTop);
    box.replaceChildren(...state.columns.map(head));
    box.querySelectorAll(".lanetext").forEach((node, place) => { node.scrollTop = state.live ? node.scrollHeight : kept[place] || 0; });
  };

  /* ---- the table ---- */
  const bar = (cell) => {
    const hot = Math.abs(cell.r) >= window.coftShared.sensitive;
    const most = cell.r < 0 ? LEFT : RIGHT;
    const width = Math.min(most, Math.round(Math.abs(cell.r) * UNIT));
    const style = cell.r < 0 ? `left:${LEFT - width}px;width:${width}px` : `left:${LEFT}px;width:${width}px`;
    return coft.el("span", { class: "sb", title: `sensitivity ${cell.rt}` },
      coft.el("span", { class: "vh", text: `sensitivity ${cell.rt}` }), coft.el("i", { class: hot ? "hot" : null, style }));
  };
  const token = (cell) => {
    const space = /^\s./.test(cell.t);
    return coft.el("span", { class: "w", title: cell.sr }, space ? coft.el("span", { class: "sp", "aria-hidden": "true", text: "·" }) : null, cell.w,
      ...cell.k.map(coft.icon));
  };
  const entry = (place, step, apart) => {
    if (step === null) return coft.el("td", { class: "c" }, coft.el("div", { class: "cell gap" }, coft.el("span", { class: "w" },
      coft.el("span", { "aria-hidden": "true", text: "–" }), coft.el("span", { class: "vh", text: "no token here" }))));
    const cell = state.columns[place].cells[step];
    if (!cell) return coft.el("td", { class: "c" }, coft.el("div", { class: "cell gap" }, coft.el("span", { class: "w", text: "…" })));
    return coft.el("td", { class: "c" }, coft.el("div", { class: `cell${apart ? " diff" : ""}` }, token(cell),
      coft.el("span", { class: "num", text: cell.p }), bar(cell)));
  };
  const line = (row, at) => coft.el("tr", { "data-row": at, tabindex: "-1", class: differs(row) ? null : "same" },
    coft.el("th", { scope: "row", class: "gut" }, String(at + 1), differs(row)
      ? coft.el("b", {}, coft.el("span", { "aria-hidden": "true", text: "≠" }), coft.el("span", { class: "vh", text: "differs" })) : null),
    ...row[0].map((step, place) => entry(place, step, row[1][place])));
  const titles = () => {
    const cells = state.columns.map((own) => coft.el("th", { scope: "col", class: "c" },
      coft.el("div", { class: "cell" }, coft.el("span", { title: own.name, text: own.name }), coft.el("span", { class: "num", text: "factual" }), coft.el("span", { text: "sensitivity" }))));
    find(".cmp-rows thead").replaceChildren(coft.el("tr", {}, coft.el("th", { scope: "col", class: "gut", text: "Step" }), ...cells));
  };
  /* rows that stay as they were are kept, so that a long run only draws its end */
  const key = (row) => JSON.stringify([row, row[0].map((step, place) => step === null || Boolean(state.columns[place].cells[step]))]);
  const table = () => {
    const keys = state.rows.map(key);
    let kept = 0;
    while (kept < keys.length && keys[kept] === state.drawn[kept]) kept += 1;
    const focused = body.contains(document.activeElement);
    while (body.rows.length > kept) body.lastChild.remove();
    body.append(...state.rows.slice(kept).map((row, at) => line(row, kept + at)));
    state.drawn = keys;
    if (state.row >= state.rows.length) state.row = state.rows.length - 1;
    mark(focused);
  };
  const count = () => {
    const apart = state.rows.filter(differs).length;
    find(".counted").textContent = state.rows.length ? `${apart.toLocaleString("en")} of ${coft.plural(state.rows.length, "row")} differ` : "";
  };

  /* ---- selection ---- */
  const mark = (focus) => {
    body.querySelectorAll("tr.on").forEach((node) => { node.classList.remove("on"); node.removeAttribute("aria-current"); });
    body.querySelectorAll("tr[tabindex='0']").forEach((node) => node.setAttribute("tabindex", "-1"));
    const node = body.rows[Math.max(0, state.row)];
    if (!node) return;
    node.setAttribute("tabindex", "0");
    if (state.row < 0) return;
    node.classList.add("on");
    node.setAttribute("aria-current", "true");
    if (focus) node.focus({ preventScroll: true });
  };
  const verdict = (mark_, why) => {
    if (mark_ === "tick") return coft.el("td", { class: "n" }, coft.icon("tick"), coft.el("span", { class: "vh", text: "certified" }));
    return coft.el("td", { class: "n" }, coft.el("span", { class: `why ${mark_}`, text: why }));
  };
  /* where the texts part, a column that has no token beside another one still has a next token after the same text */
  const view = (own, beside, parts) => {
    const step = beside === null && parts ? state.row : beside;
    const cell = step === null ? null : own.cells[step];
    const title = coft.el("h3", {}, own.name);
    if (!cell) return coft.el("div", { class: "view" }, title, coft.el("p", { class: "hint", text: "No token here." }));
    const certifies = own.certifies, joint = certifies && own.joint, most = Math.max(...cell.rows.map((row) => row[8]));
    const heading = ["Token", "Factual", "Masked", own.fuses ? "Fused" : "Policy", ...(joint ? ["Joint"] : []), ...(certifies ? [joint ? "Certified" : "Certified as typed"] : [])];
    const share = (text, part) => coft.el("td", { class: "n share" }, coft.el("i", { "aria-hidden": "true", style: `width:${Math.round((70 * part) / most)}%` }), coft.el("span", { text }));
    const rows = cell.rows.map(([word, f, m, x, j, kind, why, written, part]) => coft.el("tr", { class: `${written ? "taken" : ""}${kind === "out" ? " out" : ""}` },
      coft.el("th", { scope: "row", class: "t" }, word, written ? coft.el("span", { class: "hint", text: " written" }) : null),
      ...[f, m].map((text) => coft.el("td", { class: "n", text })), share(x, part), ...(joint ? [coft.el("td", { class: "n", text: j })] : []), ...(certifies ? [verdict(kind, why)] : [])));
    const threshold = certifies ? (cell.tt ? `, τ ${cell.tt}` : ", no threshold") : "";
    return coft.el("div", { class: "view" }, title,
      coft.el("span", { class: "hint tnum", text: `${beside === null ? "its next token, " : ""}its step ${step + 1}${threshold}${coft.comparedSide.apart(cell, "; from vanilla ")}` }),
      coft.el("div", { class: "scrolls", tabindex: "0", role: "region", "aria-label": `Candidates of ${own.name}` },
        coft.el("table", {}, coft.el("thead", {}, coft.el("tr", {}, ...heading.map((text, at) => coft.el("th", { scope: "col", class: at ? "n" : null, text })))),
          coft.el("tbody", {}, ...rows))));
  };
  const details = () => {
    const box = find(".cmp-chosen");
    const row = state.rows[state.row];
    box.hidden = !row;
    if (!row) return;
    box.querySelector("h2").textContent = `Step ${state.row + 1}`;
    box.querySelector(".bar .hint").textContent = "the likeliest candidates of each column";
    box.querySelector(".verdict").textContent = state.say[state.row] || "";
    box.querySelector(".views").replaceChildren(...state.columns.map((own, place) => view(own, row[0][place], state.row === state.rows.findIndex(differs))));
  };
  const select = (at, focus) => {
    const node = body.rows[at];
    if (!node) return;
    state.row = at;
    mark(focus);
    node.scrollIntoView({ block: "nearest" });
    details();
  };
  const walk = (by) => {
    const shown = [...body.rows].filter((node) => node.offsetParent !== null).map((node) => Number(node.dataset.row));
    if (!shown.length) return;
    const at = shown.findIndex((row) => row >= state.row);
    const from = state.row < 0 ? (by > 0 ? -1 : shown.length) : at < 0 ? shown.length - 1 : at;
    select(shown[Math.max(0, Math.min(shown.length - 1, from + by))], true);
  };
  const MOVES = { ArrowDown: 1, ArrowUp: -1, PageDown: PAGE, PageUp: -PAGE, Home: -Infinity, End: Infinity };

  const draw = () => {
    heads();
    titles();
    table();
    count();
    coft.compare.filter();
  };
  const widths = () => find(".cmp-lanes").style.setProperty("--columns", state.columns.length);

  coft.lanes = {
    state,
    mount(element) {
      root = element;
      body = find(".cmp-rows tbody");
      scroller = find(".cmp-rows");
      body.addEventListener("click", (event) => {
        const row = event.target.closest("tr");
        if (row && !String(getSelection()).trim()) select(Number(row.dataset.row), true);
      });
      body.addEventListener("keydown", (event) => {
        if (!(event.key in MOVES) || event.ctrlKey || event.metaKey || event.altKey) return;
        event.preventDefault();
        walk(MOVES[event.key]);
      });
    },
    /* a whole comparison takes the place of what was shown; the selected row stays while the same chains are shown */
    show(message, live) {
      const same = message.columns.map((own) => own.branch).join() === state.columns.map((own) => own.branch).join();
      Object.assign(state, { columns: message.columns, rows: message.rows, say: message.say, live, drawn: same ? state.drawn : [] });
      if (!same) {
        state.row = -1;
        body.replaceChildren();
        scroller.scrollTop = 0;
      }
      find(".nothing").hidden = true;
      find(".compared").hidden = false;
      widths();
      prompt(message.prompt, message.spans);
      find(".parting").replaceChildren(...message.parting.map((text) => coft.el("li", { text: live ? "Writing …" : text })).slice(0, live ? 1 : undefined));
      draw();
      if (!live && state.row < 0) state.row = state.rows.findIndex(differs);
      mark(false);
      details();
    },
    extend(frame) {
      const atEnd = scroller.scrollTop + scroller.clientHeight >= scroller.scrollHeight - 40;
      frame.columns.forEach((cells, place) => {
        const own = state.columns[place].cells;
        for (const cell of cells) if (cell.i === own.length) own.push(cell);
      });
      state.rows = frame.rows;
      state.say = [];
      draw();
      details();
      if (atEnd && state.row < 0) scroller.scrollTop = scroller.scrollHeight;
    },
    clear() {
      Object.assign(state, { columns: [], rows: [], say: [], row: -1, live: false, drawn: [] });
      body.replaceChildren();
      find(".compared").hidden = true;
      find(".nothing").hidden = false;
    },
    only(wanted) { scroller.classList.toggle("only", wanted); },
  };
})();
