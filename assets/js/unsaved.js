/* What is not started yet: told apart from the session, and kept in this tab so that a reload does not lose it. */
"use strict";
(() => {
  const coft = window.coft;
  const KEY = "coft-unsaved";
  const PATIENCE = 4000;
  const PAUSE = 250;
  let timer = null, baseline = null, ready = false;
  /* the values that the controls are on their way to; until they are there, these count and not the controls' own */
  let expected = null;

  const flat = (value) => (Array.isArray(value) ? [...value].sort().join() : String(value ?? ""));
  /* what decides which spans are found: word list, masked families and what is never masked; see the rail's fields */
  const choice = (values) => (values
    ? [values[12], values[14] === "single" ? [values[15]] : values[13], values[18]].map(flat).join(":") : null);
  /* what decides how the masked spans read: one mask or several, hard or soft, the hint */
  const look = (values) => (values ? [values[14], values[16], values[17]].map(flat).join(":") : null);
  const differs = (from, values) => Boolean(from && values) && from.some((value, at) => flat(value) !== flat(values[at]));

  /* ---- the tab's own memory ---- */
  const place = () => {
    const query = new URLSearchParams(location.search);
    const named = ["session", "duplicate", "calibration", "policy"].find((name) => query.has(name));
    return named ? `${named} ${query.get(named)}` : "new";
  };
  const name = () => `${KEY} ${place()}`;
  const forget = () => { try { sessionStorage.removeItem(name()); } catch { /* nothing is kept without storage */ } };
  const read = () => {
    try {
      const kept = JSON.parse(sessionStorage.getItem(name()));
      return kept && typeof kept.prompt === "string" && Array.isArray(kept.spans) && Array.isArray(kept.removed) ? kept : null;
    } catch { return null; }
  };
  const write = () => {
    clearTimeout(timer);
    timer = null;
    const state = coft.session.state();
    if (!ready || state.busy === "start") return;
    const text = coft.editor.kept();
    const fresh = state.session === null;
    const values = expected || state.values;
    const unsaved = fresh ? text.prompt !== baseline.prompt || differs(baseline.values, values) : state.touched;
    if (!unsaved) { if (read()) forget(); return; }
    try {
      sessionStorage.setItem(name(), JSON.stringify({ ...text, values }));
    } catch { /* full or forbidden storage: the work is then kept by this page alone */ }
  };
  const keep = () => { if (timer === null) timer = setTimeout(write, PAUSE); };

  /* ---- the session is what it was started with: another prompt or another setting needs a new one ---- */
  const compare = () => {
    const state = coft.session.state();
    if (expected && state.values && !differs(expected, state.values)) expected = null;
    keep();
    if (state.session === null || !state.based) return;
    const touched = differs(state.based, state.values || state.based) || coft.editor.print() !== state.printed;
    if (touched === state.touched) return;
    state.touched = touched;
    if (touched) {
      const lead = state.restored ? "What you had changed before the page was reloaded is here again."
        : "The prompt or the settings changed.";
      coft.session.notice(
        coft.el("span", { text: `${lead} Start begins a new audit with them; this one stays under Sessions.` }),
        coft.el("button", { type: "button", class: "btn small", "data-do": "revert", text: state.restored ? "Discard" : "Back to this audit" }));
    } else coft.session.notice();
    coft.controls.show();
  };

  /* the first answer of the server is the ground on which what was kept is laid; what was typed meanwhile stays */
  let waiting = null;
  const opened = (message) => {
    const kept = waiting;
    waiting = null;
    const state = coft.session.state();
    ready = true;
    const goal = message.shown || null;
    expected = goal;
    setTimeout(() => { if (expected === goal) expected = null; }, PATIENCE);
    if (message.kind !== "session") {
      baseline = { prompt: message.prompt || "", values: message.settings || null };
    }
    if (!kept) { keep(); return; }
    if (message.kind === "blank" && coft.editor.kept().prompt) return;
    state.restored = true;
    coft.editor.restore(kept, choice(kept.values), look(kept.values));
    if (message.kind === "session") compare();
    else {
      coft.session.notice(coft.el("span", { text: "What you had not started before the page was reloaded is here again." }),
        coft.el("button", { type: "button", class: "btn small", "data-do": "revert", text: "Discard" }));
    }
  };
  const discard = () => {
    const state = coft.session.state();
    if (state.busy) return;
    forget();
    if (state.session !== null) { coft.session.reopen(state.branch); return; }
    coft.session.notice();
    coft.editor.load("", [], null);
    state.restored = false;
    const number = Number(new URLSearchParams(location.search).get("duplicate"));
    coft.session.open(number ? { duplicate: number } : {});
  };

  coft.unsaved = {
    choice, look, compare, opened, discard, forget,
    values() {
      waiting = read();
      return (waiting && waiting.values) || null;
    },
  };
  window.addEventListener("pagehide", () => { if (timer !== null) write(); });
})();
