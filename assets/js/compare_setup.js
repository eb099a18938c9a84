/* What is compared: the columns of a new run, or stored audits and branches; and the run itself. */
"use strict";
(() => {
  const coft = window.coft;
  const PAUSE = 250;
  const USUAL = { model: "demo", max_new_tokens: 64, seed: 0, temperature: 1, top_p: 0.9, top_k: 0, greedy: "" };
  const WORDS = ["", "", "both", "all three", "all four"];
  const state = {
    menu: null, mode: "new", open: true, columns: [], shared: { ...USUAL }, picked: [], chains: [], phase: "idle",
    written: false, unfinished: false, wanted: 0, finding: 0, live: false,
  };
  let root, send, timer = null;

  const one = (selector) => document.querySelector(selector);
  const action = (name) => one(`#cmp-actions [data-cmp=${name}]`);
  const busy = () => state.phase !== "idle";
  const notice = (...children) => {
    const box = root.querySelector(".notice");
    box.hidden = children.length === 0;
    box.replaceChildren(...children);
  };

  /* ---- what can be done now ---- */
  const controls = () => {
    const shown = state.chains.length > 0;
    const going = state.phase === "running";
    const paused = shown && !state.open && state.written && state.unfinished && !busy();
    one(".compare").classList.toggle("closed", !state.open);
    one(".compare").classList.toggle("stored", state.mode === "stored");
    document.body.classList.toggle("has-comparison", shown);
    one("#cmp-head .modes").hidden = !state.open;
    document.querySelectorAll("#cmp-head [data-mode]").forEach((node) => node.setAttribute("aria-pressed", String(node.dataset.mode === state.mode)));
    one("#cmp-setup .cmp-columns").hidden = !state.open || state.mode !== "new";
    one("#cmp-setup .cmp-picker").hidden = !state.open || state.mode !== "stored";
    const change = action("change");
    change.hidden = !shown;
    change.disabled = busy();
    change.textContent = state.open ? "Back to the comparison" : "Change";
    change.setAttribute("aria-expanded", String(state.open));
    action("csv").hidden = !shown || state.open;
    action("csv").disabled = busy();
    action("discard").hidden = !paused;
    action("pause").hidden = !going;
    action("pause").disabled = !state.live;
    const go = action("go");
    go.hidden = !state.open && !paused;
    const many = state.mode === "new" ? state.columns.length : state.picked.length;
    go.disabled = busy() || !state.menu || (state.open && many < 2);
    const verb = state.mode === "new" ? "Run" : "Compare";
    go.querySelector(".word").textContent = paused ? "Continue" : `${verb} ${WORDS[many] || ""}`.trim();
  };
  const phase = (name) => { state.phase = name; state.live = false; controls(); };

  /* ---- columns of a new run ---- */
  const policy = (key) => state.menu.policies.find((item) => item.key === key) || state.menu.policies[0];
  const column = (key) => {
    const own = state.menu.calibrations.find((item) => item.embedded && item.model === state.shared.model);
    return { policy: key, lam: 0.6, alpha: 0.1, calibration: own ? own.id : 0, layout: policy(key).layouts[0], proceed: false };
  };
  const option = (value, text, chosen) => coft.el("option", { value, text, selected: String(value) === String(chosen) });
  const LAYOUTS = { joint: "one for all families", factorized: "one for each family" };
  const misfit = (own) => {
    const made = state.menu.calibrations.find((item) => item.id === Number(own.calibration));
    if (!made || !policy(own.policy).certifies) return "";
    const apart = [];
    if (made.model !== state.shared.model) apart.push(`model ${made.model}`);
    if (made.layout !== own.layout) apart.push(`mask: ${LAYOUTS[made.layout] || made.layout}`);
    if (Math.abs(made.lam - Number(own.lam)) > 1e-9) apart.push(`λ ${made.lam.toFixed(2)}`);
    return apart.length ? `Calibrated with ${apart.join(", ")}: Run will ask.` : "";
  };
  const field = (at, name, label, control) => {
    const id = `cmp-${name}-${at}`;
    Object.entries({ id, "data-column": at, "data-field": name }).forEach(([key, value]) => control.setAttribute(key, value));
    return coft.el("div", { class: "field" }, coft.el("label", { for: id, text: label }), control);
  };
  const number = (value, attributes) => coft.el("input", { class: "input", type: "number", value, step: "0.01", min: "0", max: "1", ...attributes });
  const card = (own, at) => {
    const info = policy(own.policy);
    const fits = state.menu.calibrations.map((item) => option(item.id, item.name, own.calibration));
    const parts = [field(at, "policy", "Policy", coft.el("select", { class: "select" }, ...state.menu.policies.map((item) => option(item.key, item.name, own.policy))))];
    if (info.fuses) parts.push(field(at, "lam", "Lambda", number(own.lam)));
    if (info.certifies) {
      parts.push(field(at, "calibration", "Calibration", coft.el("select", { class: "select" }, ...fits, option(0, "none: no certificate", own.calibration))));
      parts.push(field(at, "alpha", "Alpha", number(own.alpha, { step: "0.005", min: "0.001" })));
    }
    if (info.layouts.length > 1) parts.push(field(at, "layout", "Mask", coft.el("select", { class: "select" }, ...info.layouts.map((key) => option(key, LAYOUTS[key] || key, own.layout)))));
    const button = (name, text, label) => coft.el("button", { type: "button", class: "btn small quiet", "data-cmp": name, "data-column": at, "aria-label": label, text });
    return coft.el("fieldset", { class: "colcard" }, coft.el("legend", { text: at ? `Column ${at + 1}` : "Column 1, the one to compare with" }),
      coft.el("div", { class: "colfields" }, ...parts), coft.el("p", { class: "hint about", text: info.about }),
      coft.el("p", { class: "hint caution misfit", role: "status", text: misfit(own) }),
      coft.el("div", { class: "colacts" }, at ? button("first", "Make first", `Make column ${at + 1} the first`) : null,
        button("remove", "Remove", `Remove column ${at + 1}`)));
  };
  const cards = (focus) => {
    one(".colcards").replaceChildren(...state.columns.map(card));
    one("[data-cmp=add]").disabled = state.columns.length >= state.menu.most;
    document.querySelectorAll("[data-cmp=remove]").forEach((node) => { node.disabled = state.columns.length < 3; });
    const next = focus && one(focus);
    if (next) next.focus();
    controls();
  };
  const summary = () => {
    const own = state.shared;
    one(".shared summary .hint").textContent = `${own.model}, ${own.greedy ? "greedy" : `T ${own.temperature}, top-p ${own.top_p}`}, ${own.max_new_tokens} steps, seed ${own.seed}`;
  };
  const add = () => {
    const used = state.columns.map((own) => own.policy);
    const fresh = state.menu.policies.find((item) => !used.includes(item.key));
    const again = column(fresh ? fresh.key : "coft");
    if (!fresh) again.lam = 1;
    if (!fresh) again.calibration = 0;
    state.columns.push(again);
    cards(`#cmp-policy-${state.columns.length - 1}`);
  };

  /* ---- stored audits ---- */
  const picked = () => {
    const list = one(".cmp-picked");
    list.replaceChildren(...state.picked.map((own, at) => coft.el("li", {},
      coft.el("span", { class: "title" }, own.title, coft.el("span", { class: "hint", text: ` ${own.name}` })),
      coft.el("label", { class: "vh", for: `cmp-branch-${at}`, text: `Branch of ${own.title}` }),
      coft.el("select", { class: "select small", id: `cmp-branch-${at}`, "data-picked": at }, ...own.branches.map(([id, name]) => option(id, name, own.branch))),
      coft.el("button", { type: "button", class: "btn small quiet", "data-cmp": "drop", "data-picked": at, "aria-label": `Take out ${own.title}`, text: "Take out" }))));
    if (!state.picked.length) list.append(coft.el("li", { class: "hint", text: "None yet. The first one is what the others are compared with." }));
    document.querySelectorAll("[data-cmp=pick]").forEach((node) => { node.disabled = Boolean(state.menu) && state.picked.length >= state.menu.most; });
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
    if (state.picked.length >= state.menu.most) return;
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
    ["session", "sessions", "branches"].forEach((name) => target.searchParams.delete(name));
    const ids = state.chains.map(([id]) => id);
    if (ids.length && new Set(ids).size === 1) target.searchParams.set("session", ids[0]);
    else if (ids.length) target.searchParams.set("sessions", ids.join(","));
    if (ids.length) target.searchParams.set("branches", state.chains.map(([, branch]) => branch).join(","));
    history.replaceState(history.state, "", target.href.replace(/%2C/g, ","));
  };

  /* ---- running and opening ---- */
  const ask = (name, data) => { phase({ begin: "beginning", run: "running", open: "opening" }[name] || "idle"); state.wanted = send(name, data); };
  const begin = async () => {
    if (busy()) return;
    phase("beginning");
    notice();
    const { prompt, spans } = await coft.editor.ready();
    if (!prompt.trim()) {
      phase("idle");
      notice(coft.el("span", { text: "The prompt is empty: type the text that the model should continue." }));
      coft.editor.focus();
      return;
    }
    state.written = true;
    ask("begin", { prompt, spans, shared: state.shared, columns: state.columns });
  };
  const open = (chains) => { notice(); state.written = false; ask("open", { chains }); };
  const go = () => {
    if (busy()) return;
    if (!state.open) ask("run", { chains: state.chains });
    else if (state.mode === "new") begin();
    else open(state.picked.map((own) => [own.session, own.branch]));
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
      state.menu = message;
      if (!state.columns.length) state.columns = ["vanilla", "coft"].map(column);
      cards();
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
  };

  const ACTIONS = {
    go, add,
    mode: (node) => mode(node.dataset.mode),
    change: () => { state.open = !state.open; controls(); if (!state.open) window.dispatchEvent(new Event("resize")); },
    csv: () => send("csv", { chains: state.chains }),
    pause: () => { action("pause").disabled = true; send("pause", { chains: state.chains }); },
    discard: async () => {
      const yes = await coft.confirm("Discard this run?", `Its ${state.chains.length} audits are deleted for good.`, "Discard");
      if (yes && !busy()) state.wanted = send("discard", { chains: state.chains });
    },
    remove: (node) => { state.columns.splice(Number(node.dataset.column), 1); cards("[data-cmp=add]"); },
    first: (node) => { state.columns.unshift(...state.columns.splice(Number(node.dataset.column), 1)); cards("#cmp-policy-0"); },
    proceed: (node) => { state.columns[Number(node.dataset.column)].proceed = true; begin(); },
    pick: (node) => send("pick", { session: Number(node.dataset.session) }),
    drop: (node) => { state.picked.splice(Number(node.dataset.picked), 1); picked(); one("#cmp-search").focus(); },
    numbers: (node) => coft.comparedSide.numbers(node),
    image: (node) => coft.comparedSide.image(node),
    only: () => coft.compare.filter(),
  };
  const changed = (node) => {
    if (node.dataset.shared) { state.shared[node.dataset.shared] = node.value; summary(); }
    else if (node.dataset.picked && node.matches("select")) state.picked[Number(node.dataset.picked)].branch = Number(node.value);
    else if (node.dataset.field) {
      const own = state.columns[Number(node.dataset.column)];
      Object.assign(own, { [node.dataset.field]: node.value, proceed: false });
      if (node.dataset.field === "policy") {
        own.layout = policy(own.policy).layouts.includes(own.layout) ? own.layout : policy(own.policy).layouts[0];
        cards(`#${node.id}`);
      } else node.closest(".colcard").querySelector(".misfit").textContent = misfit(own);
    }
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
      document.querySelectorAll("[data-shared]").forEach((node) => { node.value = state.shared[node.dataset.shared]; });
      summary();
      send("menu", {});
      const wanted = fromAddress();
      if (wanted.length) { state.mode = "stored"; search(); open(wanted); } else controls();
    },
  };
})();
