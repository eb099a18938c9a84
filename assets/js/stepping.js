/* Where a run stops, the way to a step, and the step in the address. */
"use strict";
(() => {
  const coft = window.coft;
  const GAP = 4;
  const PAUSE = 300;
  const KINDS = {
    any: ["Remarkable", (card) => card.c.includes("sensitive") || card.c.includes("fallback") || card.u],
    sensitive: ["Sensitive", (card) => card.c.includes("sensitive")],
    fallback: ["Fallback", (card) => card.c.includes("fallback")],
    overruled: ["Overruled", (card) => card.u],
  };
  let root, panel, opener, jump, kinds, pressed = false;
  const state = () => coft.session.state();

  /* ---- run until ---- */
  const place = () => {
    const { left, top, bottom } = opener.getBoundingClientRect();
    const { offsetWidth: width, offsetHeight: height } = panel;
    const below = bottom + GAP + height <= innerHeight || top < height;
    panel.style.left = `${Math.max(GAP, Math.min(left, innerWidth - width - GAP))}px`;
    panel.style.top = `${Math.max(GAP, below ? bottom + GAP : top - GAP - height)}px`;
  };
  const openPanel = () => {
    if (opener.disabled) return false;
    panel.showPopover();
    place();
    panel.querySelector("[data-until]").focus();
    return true;
  };
  const runUntil = (kind) => {
    const value = (name) => panel.querySelector(`[name=${name}]`);
    const field = { sensitive: value("threshold"), steps: value("steps") }[kind];
    if (field && !field.reportValidity()) return;
    if (field && field.value === "") { field.focus(); return; }
    panel.hidePopover();
    opener.focus();
    coft.session.run({ kind, threshold: Number(value("threshold").value), steps: Number(value("steps").value) });
  };

  /* ---- to a step ---- */
  const go = (index, focus) => coft.session.choose(Math.max(0, Math.min(index, state().cards.length - 1)), focus);
  const jumpTo = () => {
    const number = Number(jump.value);
    if (!jump.value || !Number.isFinite(number) || !state().cards.length) return;
    go(Math.round(number) - 1, true);
    jump.value = "";
  };
  const next = (by) => {
    const { cards, selected } = state();
    const [, wanted] = KINDS[kinds.value || "any"];
    for (let away = 1; away <= cards.length; away += 1) {
      const at = (((selected + by * away) % cards.length) + cards.length) % cards.length;
      if (wanted(cards[at])) { go(at, root.querySelector(".strip").contains(document.activeElement)); return true; }
    }
    return true;
  };
  let counted = "", seen = { cards: null, length: -1, end: null };
  const count = ({ cards }) => {
    const end = cards[cards.length - 1];
    if (seen.cards === cards && seen.length === cards.length && seen.end === end) return;
    seen = { cards, length: cards.length, end };
    const many = Object.entries(KINDS).map(([kind, [, wanted]]) => [kind, cards.filter(wanted).length]);
    const print = many.join();
    root.querySelector("#jump-of").textContent = `of ${cards.length}`;
    jump.max = Math.max(1, cards.length);
    if (print === counted) return;
    counted = print;
    const chosen = kinds.value || "any";
    if (!kinds.options.length) kinds.append(...many.map(([kind]) => coft.el("option", { value: kind, selected: kind === chosen })));
    many.forEach(([kind, number], at) => { kinds.options[at].textContent = `${KINDS[kind][0]} (${number})`; });
    able();
  };
  const able = () => {
    const none = !state().cards.some(KINDS[kinds.value || "any"][1]);
    root.querySelectorAll("[data-do^=find-]").forEach((button) => { button.disabled = none; });
  };

  /* ---- the step in the address: browsers allow a page to write its address a limited number of times ---- */
  let timer = null, wanted = null;
  const write = () => {
    timer = null;
    const { selected, session } = state();
    const target = new URL(location.href);
    if (session === null || target.searchParams.get("session") !== String(session)) return;
    const step = selected < 0 ? null : String(selected + 1);
    if (target.searchParams.get("step") === step) return;
    if (step === null) target.searchParams.delete("step");
    else target.searchParams.set("step", step);
    history.replaceState(history.state, "", target);
  };
  const follow = (now) => {
    count(now);
    if (timer === null && now.session !== null) timer = setTimeout(write, PAUSE);
  };
  coft.permalink = {
    /* the 0-based step that the page was opened with, once; null if there was none */
    wanted({ cards }) {
      const asked = wanted;
      wanted = null;
      if (asked === null || !cards.length) return null;
      if (asked > cards.length) {
        coft.session.notice(coft.el("span", { text: `The address names step ${asked}; this chain has ${cards.length} so far, so its last one is shown.` }));
      }
      return Math.min(asked, cards.length) - 1;
    },
  };

  coft.stepping = {
    openPanel,
    next,
    field() { jump.focus(); jump.select(); },
    mount(element) {
      root = element;
      panel = root.querySelector(".untilbox");
      opener = root.querySelector("[data-do=until]");
      jump = root.querySelector("#jump");
      kinds = root.querySelector("#seek-kind");
      const asked = new URLSearchParams(location.search).get("step");
      wanted = /^[1-9]\d{0,5}$/.test(asked || "") ? Number(asked) : null;
      /* a press on the open panel's own button closes it before the click arrives, which must not open it again */
      document.addEventListener("pointerdown", (event) => {
        pressed = opener.contains(event.target) && panel.matches(":popover-open");
      }, true);
      const toggle = () => { if (!pressed) openPanel(); pressed = false; };
      coft.act(root, { until: toggle, "find-next": () => next(1), "find-back": () => next(-1) });
      panel.addEventListener("click", (event) => {
        const hit = event.target.closest("[data-until]");
        if (hit) runUntil(hit.dataset.until);
      });
      panel.addEventListener("keydown", (event) => {
        if (event.key !== "Enter" || !event.target.matches("input")) return;
        event.preventDefault();
        runUntil(event.target.closest("div").querySelector("[data-until]").dataset.until);
      });
      panel.addEventListener("toggle", (event) => {
        opener.setAttribute("aria-expanded", String(event.newState === "open"));
      });
      window.addEventListener("scroll", () => { if (panel.matches(":popover-open")) panel.hidePopover(); }, { passive: true });
      root.querySelector(".jump").addEventListener("submit", (event) => { event.preventDefault(); jumpTo(); });
      kinds.addEventListener("change", able);
      coft.session.watch(follow);
    },
  };

  /* ---- keys ---- */
  const inStrip = (event) => event.target instanceof Element && Boolean(event.target.closest(".strip"));
  const topic = (name) => ({ topic: name });
  coft.keys.add("ArrowLeft", (event) => coft.session.back(inStrip(event)), "back: look at the token before", topic("Transcript"));
  coft.keys.add("ArrowRight", (event) => coft.session.step(inStrip(event)), "step: the next token, written if it does not exist yet", topic("Transcript"));
  coft.keys.add(" ", (event) => { if (!event.repeat) coft.session.toggle(); }, "start, run or pause", topic("Transcript"));
  coft.keys.add("R", () => openPanel(), "run until …", topic("Transcript"));
  coft.keys.add("Home", () => { if (state().cards.length) go(0, true); }, "first token", topic("Transcript"));
  coft.keys.add("End", () => { if (state().cards.length) go(state().cards.length - 1, true); }, "last token", topic("Transcript"));
  coft.keys.add("G", () => coft.stepping.field(), "go to a step by its number", topic("Transcript"));
  coft.keys.add("N", () => next(1), "next remarkable token: sensitive, fallback or overruled", topic("Transcript"));
  coft.keys.add("Shift+N", () => next(-1), "the one before", topic("Transcript"));
  coft.keys.add(["1", "2", "3", "4", "5", "6", "7", "8", "9"], (event) => coft.inspector.forceRow(Number(event.key) - 1),
    "force this candidate at the selected token", { topic: "Branches", shown: ["1", "to", "9"] });
  coft.keys.add("B", () => coft.inspector.type(), "force a typed token at the selected step", topic("Branches"));
})();
