/* A prompt set under the columns: begun, followed while it runs, its prompts sorted, and one of them opened. */
"use strict";
(() => {
  const coft = window.coft;
  const AGAIN = 2500;
  /* a long set takes its time to be read; looking again waits for several times as long */
  const REST = 5;
  const FRESH = { order: "line", column: 0, descending: false, page: 1 };
  const state = { set: 0, query: { ...FRESH }, wanted: 0, asked: 0, running: false, line: "", timer: null };
  const waiting = [];
  let root, send;

  const find = (selector) => root.querySelector(selector);
  const begun = () => document.querySelector(".set-begin");
  const look = (name = "view") => {
    clearTimeout(state.timer);
    state.asked = performance.now();
    state.wanted = send(name, { query: { set: state.set, ...state.query } });
  };

  /* ---- what is open ---- */
  const progress = (own) => coft.el("li", {},
    coft.el("span", { class: "who" }, own.name, own.line ? coft.el("span", { class: "hint tnum", text: ` ${own.line}` }) : null),
    coft.el("progress", { max: 1, value: own.share, "aria-label": `${own.name}: ${own.said}` }),
    coft.el("span", { class: "hint tnum", text: own.said }), coft.el("a", { class: "hint", href: `./batches?batch=${own.batch}`, text: "batch" }));
  const mark = () => root.querySelectorAll(".set-rows tbody tr").forEach((row) => {
    const button = row.querySelector("[data-sessions]");
    const opened = new URLSearchParams(location.search).get("sessions");
    const on = state.line ? row.dataset.line === state.line : Boolean(button) && button.dataset.sessions === opened;
    row.classList.toggle("on", on);
    if (on) row.setAttribute("aria-current", "true"); else row.removeAttribute("aria-current");
  });
  const show = (message) => {
    const first = root.hidden;
    const sorted = document.activeElement && document.activeElement.closest(".set-rows .sort");
    const focus = sorted && `.sort[data-order="${sorted.dataset.order}"][data-column="${sorted.dataset.column}"]`;
    Object.assign(state, { running: message.running });
    state.query.page = message.page;
    find("h2").textContent = message.name;
    find(".about").textContent = message.about;
    find(".set-progress").replaceChildren(...message.progress.map(progress));
    find("[role=status]").textContent = message.running ? "Running" : message.resumable ? "Stopped" : "Finished";
    find(".set-means").innerHTML = message.means;
    find(".set-rows").innerHTML = message.rows;
    find(".where").textContent = message.where;
    find(".pager").hidden = message.pages < 2;
    find("[data-set=previous]").disabled = message.page < 2;
    find("[data-set=next]").disabled = message.page >= message.pages;
    find("[data-set=cancel]").hidden = !message.running;
    find("[data-set=resume]").hidden = !message.resumable;
    find("[data-set=remove]").hidden = message.running;
    find(".set-notes").replaceChildren(...message.notes.map((text) => coft.el("li", { class: "hint", text })));
    root.hidden = false;
    mark();
    if (focus && find(focus)) find(focus).focus();
    if (first) coft.compare.set(state.set);
    clearTimeout(state.timer);
    if (message.running) state.timer = setTimeout(look, Math.max(AGAIN, REST * (performance.now() - state.asked)));
  };
  const close = (quietly) => {
    clearTimeout(state.timer);
    Object.assign(state, { set: 0, query: { ...FRESH }, running: false, line: "" });
    root.hidden = true;
    if (!quietly) coft.compare.set(0);
  };
  const open = (number) => {
    clearTimeout(state.timer);
    Object.assign(state, { set: number, query: { ...FRESH }, line: "" });
    root.hidden = true;
    look();
  };

  /* ---- what can be begun or gone on with ---- */
  const list = (message) => {
    const box = begun();
    box.querySelector(".set-list").replaceChildren(...message.sets.map((own) => coft.el("li", {},
      coft.el("span", { class: "title" }, own.name, coft.el("span", { class: "hint tnum", text: own.about + (own.running ? ", running" : "") })),
      coft.el("button", { type: "button", class: "btn small", "data-set": "show", "data-id": own.id, "aria-label": `Open ${own.name}`, text: "Open" }))));
    if (!message.sets.length) box.querySelector(".set-list").append(coft.el("li", { class: "hint", text: "None yet." }));
    const select = box.querySelector("#set-stored");
    select.replaceChildren(coft.el("option", { value: "", text: message.stored.length ? "Choose one, or upload a file" : "None stored yet" }),
      ...message.stored.map(([id, text]) => coft.el("option", { value: id, text })));
    select.disabled = !message.stored.length;
  };

  const receive = (message) => {
    if (message.kind === "listed") list(message);
    else if (message.kind === "removed") { close(); coft.sets.list(); }
    else if (message.nonce !== state.wanted) return;
    else if (message.kind === "set" && state.set) show(message);
    else if (message.kind === "started") { coft.compare.notice(); open(message.set); coft.sets.list(); }
    else if (message.kind === "mismatch") coft.compare.mismatch(message);
  };
  const sort = (node) => {
    const order = node.dataset.order, column = Number(node.dataset.column);
    const same = state.query.order === order && (state.query.column === column || order === "line" || order === "prompt");
    const descending = same ? !state.query.descending : !["line", "prompt", "parted_at"].includes(order);
    Object.assign(state.query, { order, column, descending, page: 1 });
    look();
  };
  const ACTIONS = {
    sort,
    cancel: () => look("cancel"),
    resume: () => look("resume"),
    rows: () => send("table", { id: state.set, which: "rows" }),
    means: () => send("table", { id: state.set, which: "means" }),
    previous: () => { state.query.page -= 1; look(); },
    next: () => { state.query.page += 1; look(); },
    show: (node) => open(Number(node.dataset.id)),
    open: (node) => {
      state.line = node.dataset.line;
      mark();
      coft.compare.open(node.dataset.sessions.split(",").map((id) => [Number(id), null]));
    },
    remove: async () => {
      const yes = await coft.confirm("Delete this comparison?", "Its batches go with it; the sessions stay in the library.", "Delete");
      if (yes) send("remove", { id: state.set });
    },
  };

  coft.sets = {
    mount(element, trigger, props, watch) {
      root = element.querySelector("section");
      send = coft.link(trigger, props, watch, receive);
      document.addEventListener("click", (event) => {
        const hit = event.target.closest && event.target.closest("[data-set]");
        if (hit && ACTIONS[hit.dataset.set]) ACTIONS[hit.dataset.set](hit);
      });
      document.addEventListener("change", (event) => {
        if (event.target.id === "set-stored" && event.target.value) send("take", { id: Number(event.target.value) });
      });
      coft.onFailure("set-view", () => { if (state.running) state.timer = setTimeout(look, AGAIN); else if (root.hidden) close(); });
      waiting.splice(0).forEach((call) => call());
    },
    /* the number of the comparison that is open; 0 for none */
    shown: () => (root && !root.hidden ? state.set : 0),
    /* the parts of the page may come in any order */
    list() { if (send) send("listed", {}); else waiting.push(coft.sets.list); },
    open(number) { if (send) open(number); else waiting.push(() => open(number)); },
    begin() { state.wanted = send("start", { name: document.querySelector("#set-name").value, ...coft.columns.asked() }); },
    close() { if (state.set) close(true); },
  };
})();
