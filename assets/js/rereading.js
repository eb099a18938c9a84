/* The chain at another lambda or alpha: two sliders, a strip of marks, a table, and two ways to go on. */
"use strict";
(() => {
  const coft = window.coft;
  const SLIDE = 120;
  const TYPE = 350;
  const GROW = 400;
  const PATIENCE = 15000;
  const KNOBS = ["lam", "alpha"];
  const RANGES = { lam: ["Lambda", 0, 1], alpha: ["Alpha", 0.0001, 0.9999] };
  /* what is wished: null is the audit's own value */
  const wish = { lam: null, alpha: null };
  let root, send, last = null, drawn = 0, flight = null, wanted = false, timer = null, shownFor = null, steps = -1, leaving = null, came = null;

  const find = (selector) => root.querySelector(selector);
  const range = (name) => find(`#reread-${name}`);
  const box = (name) => find(`#reread-${name}-number`);
  const now = () => coft.session.state();
  const key = (state) => `${state.session}:${state.branch}`;
  const fits = (message, state) => message && message.session === state.session && message.branch === state.branch;

  /* ---- asking: one request at a time, the newest wish next, so that no late answer meets a newer one ---- */
  const ask = () => {
    const state = now();
    clearTimeout(timer);
    timer = null;
    if (state.session === null || !state.cards.length || leaving) return;
    if (flight && performance.now() - flight.at < PATIENCE) { wanted = true; return; }
    wanted = false;
    steps = state.cards.length;
    const nonce = send("reread", { session: state.session, branch: state.branch, ...wish });
    flight = { nonce, at: performance.now() };
    const mine = flight;
    /* an answer that a slow browser has dropped is asked for again */
    setTimeout(() => { if (flight === mine) { flight = null; ask(); } }, PATIENCE);
  };
  const soon = (wait) => { if (timer === null) timer = setTimeout(ask, wait); };
  const landed = () => {
    flight = null;
    if (wanted || now().cards.length !== steps) soon(wanted ? 0 : GROW);
  };

  /* ---- the controls ---- */
  const place = (name, value) => { range(name).style.setProperty("--at", `${share(name, value)}%`); };
  const share = (name, value) => {
    const { min, max } = range(name);
    return Math.max(0, Math.min(100, ((value - min) / (max - min)) * 100));
  };
  const set = (name, value) => {
    range(name).value = value;
    place(name, value);
    if (document.activeElement !== box(name) || Number(box(name).value) !== value) box(name).value = value;
    box(name).removeAttribute("aria-invalid");
  };
  const own = (name) => last.own[KNOBS.indexOf(name)];
  const moved = () => KNOBS.some((name) => wish[name] !== null);
  const want = (name, value, wait) => {
    wish[name] = last && value === own(name) ? null : value;
    wrong();
    clearTimeout(timer);
    timer = setTimeout(ask, wait);
    find("[data-do=reset]").disabled = !moved();
  };
  const wrong = () => {
    const bad = KNOBS.filter((name) => box(name).getAttribute("aria-invalid"));
    find(".wrong").hidden = bad.length === 0;
    coft.put(find(".wrong"), bad.map((name) => `${RANGES[name][0]} is a number ${name === "lam" ? "from 0 to 1" : "above 0 and below 1"}.`).join(" "));
  };
  const typed = (name) => {
    const value = Number(box(name).value);
    const [, low, high] = RANGES[name];
    if (box(name).value.trim() === "" || !(value >= low && value <= high)) {
      box(name).setAttribute("aria-invalid", "true");
      wrong();
      return;
    }
    box(name).removeAttribute("aria-invalid");
    range(name).value = value;
    place(name, value);
    want(name, value, TYPE);
  };
  const slid = (name) => {
    const value = Number(range(name).value);
    box(name).value = value;
    box(name).removeAttribute("aria-invalid");
    place(name, value);
    want(name, value, SLIDE);
  };
  const reset = () => {
    if (!last) return;
    KNOBS.forEach((name) => { wish[name] = null; if (own(name) !== null) set(name, own(name)); });
    wrong();
    find("[data-do=reset]").disabled = true;
    ask();
  };
  const controls = (message) => {
    KNOBS.forEach((name) => {
      const value = message.own[KNOBS.indexOf(name)];
      const none = value === null;
      range(name).disabled = box(name).disabled = none;
      find(`[data-knob=${name}]`).classList.toggle("none", none);
      if (none) { coft.put(find(`#reread-${name}-hint`), "No threshold is applied in this audit, so there is no alpha to change."); return; }
      if (name === "alpha") coft.put(find("#reread-alpha-hint"), "How often a true next word may be missed.");
      range(name).parentElement.style.setProperty("--own", share(name, value) / 100);
      range(name).parentElement.title = `the audit’s own: ${value}`;
      if (wish[name] === null && !box(name).getAttribute("aria-invalid")) set(name, value);
    });
    find("[data-do=reset]").disabled = !moved();
  };

  /* ---- the answer ---- */
  const offers = (message) => {
    const line = find(".madefor");
    line.hidden = message.offers.length < 2 && !message.offers.some((offer) => offer.lam !== message.own[0]);
    line.replaceChildren(line.firstElementChild, ...message.offers.map((offer) => coft.el("button", {
      type: "button", class: "btn small quiet", "data-offer": offer.lam, "aria-pressed": String(offer.lam === message.lam),
    }, coft.el("b", { text: offer.t }), ` ${offer.n}`)));
  };
  const words = (message) => {
    coft.put(find(".told-now .token"), message.moved ? message.token : "These are the audit’s own values. Move a slider to read the chain at others.");
    coft.put(find(".told-now .certificate"), message.certificate);
    coft.put(find(".reach"), [message.reach, message.gap].filter(Boolean).join(" "));
    const badge = find(".standing .badge");
    badge.className = `badge ${message.state[0]}`;
    coft.put(badge, message.state[1]);
    coft.put(find(".standing .words"), message.told);
    coft.cautions(find(".cautions"), message.notes);
  };
  /* ---- going on ---- */
  const target = (state) => {
    if (!fits(last, state)) return null;
    const forkable = last.rows.filter((row) => row.id !== null);
    return forkable.find((row) => row.i === state.selected) || forkable.find((row) => row.i === last.first) || null;
  };
  const onward = (state) => {
    const known = fits(last, state) && last.moved;
    find(".onward").hidden = !known && !leaving;
    if (!known) return;
    const row = target(state);
    const blocked = leaving !== null;
    const [fork, depart] = ["fork", "depart"].map((name) => find(`[data-do=${name}]`));
    fork.disabled = blocked || row === null;
    coft.put(fork, row ? `Fork with “${row.would}” at step ${row.step}` : "Fork with this token");
    coft.put(fork.nextElementSibling, row ? `A branch of this audit with that one token forced. It goes on with this audit’s own ${last.own_text}.` : "No token is known to differ, so there is nothing to force.");
    depart.disabled = blocked;
    coft.put(depart, `New audit with ${last.now_text}`);
    coft.put(depart.nextElementSibling, last.renewal);
    root.querySelectorAll(".forkit").forEach((button) => { button.disabled = blocked; });
  };
  /* why the audit cannot be left or forked just now; empty if it can */
  const blocking = (state) => {
    if (state.touched) return "The prompt or the settings above were changed; go back to this audit first.";
    return state.busy !== null ? "This audit is busy; pause it, or wait until it has ended." : "";
  };
  const free = () => {
    const why = blocking(now());
    find(".blocked").hidden = !why;
    coft.put(find(".blocked"), why);
    return !why;
  };
  const fork = (index) => {
    const state = now();
    const row = fits(last, state) && last.rows.find((found) => found.i === index);
    if (row && row.id !== null && free()) coft.session.force(row.id, row.i);
  };
  const working = (text) => {
    find(".working").hidden = !text;
    coft.put(find(".working .words"), text || "");
    find("[data-do=halt]").disabled = !leaving || leaving.made === null;
    onward(now());
  };
  const depart = () => {
    const state = now();
    if (leaving || !fits(last, state) || !free()) return;
    leaving = { session: state.session, branch: state.branch, made: null };
    leaving.nonce = send("depart", { session: state.session, branch: state.branch, lam: last.lam, alpha: last.alpha });
    working("Beginning the new audit …");
  };
  const arrived = (message) => {
    const from = leaving;
    leaving = null;
    came = { session: message.session, from: from.session, branch: from.branch, text: message.text };
    working("");
    const state = now();
    /* whoever has gone elsewhere meanwhile is not taken away from there */
    if (state.session === from.session && state.branch === from.branch && !blocking(state)) visit(message.session, message.branch);
    else came.offer = message.branch;
    arrival(state);
  };
  const visit = (session, branch) => { if (free()) coft.session.open({ session, branch }); };
  const arrival = (state) => {
    const line = find(".came");
    const here = came && state.session === came.session;
    const there = came && state.session === came.from && came.offer !== undefined;
    line.hidden = !here && !there;
    if (line.hidden) return;
    const text = here ? came.text : "The new audit is written.";
    const label = here ? `Back to audit ${came.from}` : `Open audit ${came.session}`;
    if (line.dataset.text === text + label) return;
    line.dataset.text = text + label;
    line.replaceChildren(coft.el("span", { text }), coft.el("button", { type: "button", class: "btn small", "data-do": here ? "return" : "visit", text: label }));
  };

  /* ---- messages ---- */
  const refused = (message) => {
    last = null;
    find(".body").hidden = true;
    find("p.why").hidden = false;
    coft.put(find("p.why"), message.text);
  };
  const receive = (message) => {
    if (message.kind === "departing" || message.kind === "departed") {
      if (!leaving || message.nonce !== leaving.nonce) return;
      leaving.made = message.session;
      if (message.kind === "departed") arrived(message);
      else working(message.text);
      return;
    }
    /* a slow answer still counts where none that was asked for later has come before it */
    if (message.nonce <= drawn) return;
    drawn = message.nonce;
    if (flight && message.nonce >= flight.nonce) landed();
    const state = now();
    if (!fits(message, state)) return;
    if (message.kind === "refused") {
      if (moved() && last) { find(".wrong").hidden = false; coft.put(find(".wrong"), message.text); } else refused(message);
      return;
    }
    last = message;
    find(".body").hidden = false;
    find("p.why").hidden = true;
    wrong();
    controls(message);
    offers(message);
    words(message);
    coft.rereadMarks.table(root, message);
    coft.rereadMarks.strip(root, state, message);
    onward(state);
  };
  const follow = (state) => {
    root.hidden = state.session === null || state.cards.length === 0;
    arrival(state);
    if (root.hidden) return;
    if (shownFor === null || shownFor.session !== state.session) {
      KNOBS.forEach((name) => { wish[name] = null; box(name).removeAttribute("aria-invalid"); });
      last = null;
      find(".body").hidden = true;
      find("p.why").hidden = true;
      wrong();
    }
    const other = shownFor === null || key(shownFor) !== key(state);
    shownFor = { session: state.session, branch: state.branch };
    if (other) { wanted = flight !== null; soon(0); }
    else if (steps !== state.cards.length && !flight) soon(moved() || !state.busy ? GROW : 4 * GROW);
    if (find(".body").hidden) return;
    coft.rereadMarks.strip(root, state, fits(last, state) ? last : null);
    onward(state);
  };

  coft.rereading = {
    mount(element, trigger, props, watch) {
      root = element.querySelector("section");
      send = coft.link(trigger, props, watch, receive);
      KNOBS.forEach((name) => {
        range(name).addEventListener("input", () => slid(name));
        box(name).addEventListener("input", () => typed(name));
      });
      root.addEventListener("click", (event) => {
        const hit = (selector) => event.target.closest(selector);
        const offer = hit("[data-offer]");
        const forked = hit("[data-fork]");
        const row = hit("tr[data-i], .restrip [data-i]");
        if (offer) { set("lam", Number(offer.dataset.offer)); want("lam", Number(offer.dataset.offer), 0); }
        else if (forked) fork(Number(forked.dataset.fork));
        else if (row) coft.session.select(Number(row.dataset.i), false);
      });
      coft.act(root, {
        reset, depart,
        fork: () => { const row = target(now()); if (row) fork(row.i); },
        halt: () => { if (leaving && leaving.made !== null) send("halt", { session: leaving.made }); },
        return: () => visit(came.from, came.branch),
        visit: () => visit(came.session, came.offer),
      });
      coft.onFailure("reread", landed);
      coft.onFailure("depart", () => { leaving = null; working(""); });
      coft.session.watch(follow);
    },
  };
})();
