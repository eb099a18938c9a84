/* What is compared: a prompt under the columns, a prompt set, or stored audits and branches; and the run itself. */
"use strict";
(() => {
  const coft = window.coft;
  const PAUSE = 250;
  const WORDS = ["", "", "both", "all three", "all four"];
  const state = {
    mode: "new", open: true, picked: [], chains: [], phase: "idle", set: 0,
    written: false, unfinished: false, wanted: 0, finding: 0, live: false,
  };
  let root, send, timer = null;

  const one = (selector) => document.querySelector(selector);
  const action = (name) => one(`#cmp-actions [data-cmp=${name}]`);
  const menu = () => coft.columns.state.menu;
  const busy = () => state.phase !== "idle";
  const notice = (...children) => coft.notice(root.querySelector(".notice"), ...children);

  /* ---- what can be done now ---- */
  const controls = () => {
    const shown = state.chains.length > 0 || coft.sets.shown();
    const chains = state.chains.length > 0;
    const going = state.phase === "running";
    const paused = chains && !state.open && state.written && state.unfinished && !busy();
    one(".compare").classList.toggle("closed", !state.open);
    ["stored", "set"].forEach((name) => one(".compare").classList.toggle(name, state.mode === name));
    document.body.classList.toggle("has-comparison", chains);
    document.body.classList.toggle("has-set", coft.sets.shown());
    one("#cmp-head .modes").hidden = !state.open;
    document.querySelectorAll("#cmp-head [data-mode]").forEach((node) => node.setAttribute("aria-pressed", String(node.dataset.mode === state.mode)));
    one("#cmp-setup .cmp-columns").hidden = !state.open || state.mode === "stored";
    one("#cmp-setup .cmp-picker").hidden = !state.open || state.mode !== "stored";
    const change = action("change");
    change.hidden = !shown;
    change.disabled = busy();
    change.textContent = state.open ? "Back to the comparison" : "Change";
    change.setAttribute("aria-expanded", String(state.open));
    action("csv").hidden = !chains || state.open;
    action("csv").disabled = busy();
    action("discard").hidden = !paused;
    action("pause").hidden = !going;
    action("pause").disabled = !state.live;
    const go = action("go");
    go.hidden = !state.open && !paused;
    const many = state.mode === "stored" ? state.picked.length : coft.columns.state.columns.length;
    go.disabled = busy() || !menu() || (state.open && many < 2);
    const verb = state.mode === "stored" ? "Compare" : "Run";
    const what = state.mode === "set" ? "on the set" : "";
    go.querySelector(".word").textContent = paused ? "Continue" : [verb, WORDS[many] || "", what].filter(Boolean).join(" ");
  };
  const phase = (name) => { state.phase = name; state.live = false; controls(); };

  /* ---- stored audits ---- */
  const picked = () => {
    const list = one(".cmp-picked");
    list.replaceChildren(...state.picked.map((own, at) => coft.el("li", {},
      coft.el("span", { class: "title" }, own.title, coft.el("span", { class: "hint", text: ` ${own.name}` })),
      coft.el("label", { class: "vh", for: `cmp-branch-${at}`, text: `Branch of ${own.title}` }),
      coft.el("select", { class: "select small", id: `cmp-branch-${at}`, "data-picked": at }, ...own.branches.map(([id, name]) => coft.el("option", { value: id, text: name, selected: String(id) === String(own.branch) }))),
      coft.el("button", { type: "button", class: "btn small quiet", "data-cmp": "drop", "data-picked": at, "aria-label": `Take out ${own.title}`, text: "Take out" }))));
    if (!state.picked.length) list.append(coft.el("li", { class: "hint", text: "None yet. The first one is what the others are compared with." }));
    document.querySelectorAll("[data-cmp=pick]").forEach((node) => { node.disabled = Boolean(menu()) && state.picked.length >= menu().most; });
    controls();
  };
  const search = () => { clearTimeout(timer); state.finding = send("find", { text: one("#cmp-search").value }); };
  const found = (message) => {
    one(".cmp-found").replaceChildren(...message.sessions.map((own) => coft.el("li", {},
      coft.el("span", { class: "title" }, own.name, coft.el("span", { class: "hint tnum", text: own.about })),
      coft.el("button", { type: "button", class: "btn small", "data-cmp": "pick", "data-session": own.id, "aria-label": `Choose ${own.name}`, text: "Choose" }))));
    if (!message.sessions.length) one(".cmp-found").append(coft.el("li", { class: "hint", text: "No audit matches." }));
    one("#cmp-setup .more").textContent = message.more;
    picked();
  };
  const pick = (message) => {
    if (state.picked.length >= menu().most) return;
    const taken = state.picked.map((own) => own.branch);
    const free = message.branches.map(([id]) => id).find((id) => !taken.includes(id));
    const branch = taken.includes(message.branch) ? free : message.branch;
    if (branch === undefined) notice(coft.el("span", { text: `All branches of “${message.title}” are chosen already.` }));
    else state.picked.push({ ...message, branch });
    picked();
  };

  /* ---- the address names what is shown, so that it can be kept as a link ---- */
  const numbers = (text) => (text ? text.split(",").map((part) => (/^\d+$/.test(part) ? Number(part) : null)) : []);
  const fromAddress = () => {
    const given = new URLSearchParams(location.search);
    const branches = numbers(given.get("branches"));
    const session = numbers(given.get("session"))[0];
    const sessions = given.has("sessions") ? numbers(given.get("sessions")) : branches.map(() => session);
    return sessions.filter(Number.isInteger).map((id, at) => [id, Number.isInteger(branches[at]) ? branches[at] : null]);
  };
  const toAddress = () => {
    const target = new URL(location.href);
    ["set", "session", "sessions", "branches"].forEach((name) => target.searchParams.delete(name));
    if (coft.sets.shown()) target.searchParams.set("set", coft.sets.shown());
    const ids = state.chains.map(([id]) => id);
    if (ids.length && new Set(ids).size === 1) target.searchParams.set("session", ids[0]);
    else if (ids.length) target.searchParams.set("sessions", ids.join(","));
    if (ids.length) target.searchParams.set("branches", state.chains.map(([, branch]) => branch).join(","));
    history.replaceState(history.state, "", target.href.replace(/%2C/g, ","));
  };

  /* ---- running and opening ---- */
  const ask = (name, data) => { phase({ begin: "beginning", run: "running", open: "opening" }[name] || "idle"); state.wanted = send(name, data); };
  const leave = () => { coft.sets.close(); state.set = 0; };
  const begin = async () => {
    if (busy()) return;
    notice();
    const wrong = coft.columns.refusal();
    if (wrong) { notice(coft.el("span", { text: wrong })); return; }
    if (state.mode === "set") { coft.sets.begin(); return; }
    phase("beginning");
    const { prompt, spans } = await coft.editor.ready();
    if (!prompt.trim()) {
      phase("idle");
      notice(coft.el("span", { text: "The prompt is empty: type the text that the model should continue." }));
      coft.editor.focus();
      return;
    }
    state.written = true;
    leave();
    ask("begin", { prompt, spans, ...coft.columns.asked() });
  };
  const open = (chains) => { notice(); state.written = false; ask("open", { chains }); };
  const go = () => {
    if (busy()) return;
    if (!state.open) ask("run", { chains: state.chains });
    else if (state.mode !== "stored") begin();
    else { leave(); open(state.picked.map((own) => [own.session, own.branch])); }
  };
  const show = (message) => {
    const started = state.phase === "beginning";
    state.chains = message.columns.map((own) => [own.session, own.branch]);
    state.unfinished = message.columns.some((own) => !own.finished);
    state.open = false;
    state.picked = message.columns.map((own) => ({ ...own, name: own.line }));
    notice();
    controls();
    coft.lanes.show(message, started);
    coft.comparedSide.show(message);
    toAddress();
    picked();
    /* the prompt of what is shown is a beginning for another run, unless something was typed meanwhile */
    if (!started && JSON.parse(coft.editor.print())[0] === "") coft.editor.load(message.prompt, message.spans, null);
    window.dispatchEvent(new Event("resize"));
    if (started) ask("run", { chains: state.chains });
    else phase("idle");
  };
  const mismatch = (message) => {
    phase("idle");
    notice(coft.el("span", { text: `Column ${message.column + 1}: ${message.text}` }),
      coft.el("button", { type: "button", class: "btn small", "data-cmp": "proceed", "data-column": message.column, text: "Proceed uncertified" }));
  };
  const discarded = () => {
    Object.assign(state, { chains: [], picked: [], open: true, written: false });
    coft.lanes.clear();
    toAddress();
    picked();
    phase("idle");
  };
  const receive = (message) => {
    if (message.kind === "menu") {
      coft.columns.offer(message);
    } else if (message.kind === "found") { if (message.nonce === state.finding) found(message); }
    else if (message.kind === "picked") pick(message);
    else if (message.nonce !== state.wanted) return;
    else if (message.kind === "comparison") show(message);
    else if (message.kind === "mismatch") mismatch(message);
    else if (message.kind === "discarded") discarded();
    else if (message.kind === "frame") {
      if (!state.live) { state.live = true; controls(); }
      coft.lanes.state.live = true;
      coft.lanes.extend(message);
    }
  };
  const mode = (name) => {
    state.mode = name;
    controls();
    if (name === "stored") search();
    if (name === "set") coft.sets.list();
  };

  const ACTIONS = {
    go,
    add: () => coft.columns.add(),
    mode: (node) => mode(node.dataset.mode),
    change: () => { state.open = !state.open; controls(); if (!state.open) window.dispatchEvent(new Event("resize")); },
    csv: () => send("csv", { chains: state.chains }),
    pause: () => { action("pause").disabled = true; send("pause", { chains: state.chains }); },
    discard: async () => {
      const yes = await coft.confirm("Discard this run?", `Its ${state.chains.length} audits are deleted for good.`, "Discard");
      if (yes && !busy()) state.wanted = send("discard", { chains: state.chains });
    },
    remove: (node) => coft.columns.remove(Number(node.dataset.column)),
    first: (node) => coft.columns.first(Number(node.dataset.column)),
    proceed: (node) => { coft.columns.proceed(Number(node.dataset.column)); begin(); },
    pick: (node) => send("pick", { session: Number(node.dataset.session) }),
    drop: (node) => { state.picked.splice(Number(node.dataset.picked), 1); picked(); one("#cmp-search").focus(); },
    numbers: (node) => coft.comparedSide.numbers(node),
    image: (node) => coft.comparedSide.image(node),
    only: () => coft.compare.filter(),
  };
  const changed = (node) => {
    if (node.dataset.shared || node.dataset.field) coft.columns.changed(node);
    else if (node.dataset.picked && node.matches("select")) state.picked[Number(node.dataset.picked)].branch = Number(node.value);
  };

  coft.compare = {
    families: {},
    filter() { coft.lanes.only(one("[data-cmp=only]").checked); },
    mount(element, trigger, props, watch) {
      root = element.querySelector("section");
      send = coft.link(trigger, props, watch, receive);
      coft.compare.families = JSON.parse(one("#editor section").dataset.families);
      coft.lanes.mount(root);
      document.addEventListener("click", (event) => {
        const hit = event.target.closest && event.target.closest("[data-cmp]");
        if (hit && ACTIONS[hit.dataset.cmp]) ACTIONS[hit.dataset.cmp](hit);
      });
      document.addEventListener("input", (event) => {
        if (event.target.id === "cmp-search") { clearTimeout(timer); timer = setTimeout(search, PAUSE); }
        else if (event.target.dataset) changed(event.target);
      });
      ["begin", "open"].forEach((name) => coft.onFailure(name, () => phase("idle")));
      /* what was written before a run broke off is stored */
      coft.onFailure("run", () => { state.wanted = send("open", { chains: state.chains }); phase("opening"); });
      coft.onFailure("menu", () => notice(coft.el("span", { text: "The policies could not be read; load the page again." })));
      coft.columns.mount(controls);
      send("menu", {});
      const wanted = fromAddress();
      const set = numbers(new URLSearchParams(location.search).get("set"))[0];
      if (Number.isInteger(set)) { Object.assign(state, { mode: "set", set }); coft.sets.list(); coft.sets.open(set); }
      else if (wanted.length) { state.mode = "stored"; search(); }
      if (wanted.length) open(wanted); else controls();
    },
    notice,
    mismatch,
    /* a comparison over a set opened or went; the chains of one of its prompts may have come before it */
    set(shown) {
      state.open = !shown;
      if (!shown || shown !== state.set) { Object.assign(state, { chains: [], written: false }); coft.lanes.clear(); }
      state.set = shown;
      toAddress();
      controls();
    },
    open,
  };
})();
