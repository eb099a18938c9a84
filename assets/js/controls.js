/* The transcript's controls: what the reviewer asks for, and which of it is possible now. */
"use strict";
(() => {
  const coft = window.coft;
  let root;
  const found = new Map();

  const state = () => coft.session.state();
  /* this is shown at every token and key; to look for its parts would lead through all tokens of the strip */
  const part = (selector) => {
    if (!found.has(selector)) found.set(selector, root.querySelector(selector));
    return found.get(selector);
  };
  const button = (name) => part(`[data-do=${name}]`);

  const show = () => {
    const now = state();
    const open = now.session !== null;
    const fresh = !open || now.touched;
    const atEnd = now.selected >= now.cards.length - 1;
    const stopped = now.busy !== null || (!fresh && Boolean(now.finished));
    button("back").disabled = now.selected <= 0;
    button("step").disabled = !open || now.touched || now.running || (atEnd && (Boolean(now.finished) || now.busy !== null));
    coft.put(part(".word"), fresh ? "Start" : "Run");
    button("go").disabled = stopped;
    button("until").disabled = stopped || fresh;
    button("pause").disabled = !now.running || now.pausing;
    button("overhead").disabled = now.busy !== null || now.touched;
    button("report").disabled = !open || now.cards.length === 0;
    const count = open ? `${now.cards.length} of ${now.total} steps` : "";
    coft.put(part(".count"), now.finished && !now.touched ? `${count} · ${now.finished}` : count);
    coft.put(part(".stopped"), now.why);
  };

  const start = async (proceed = false) => {
    const now = state();
    if (now.busy) return;
    now.busy = "start";
    show();
    coft.session.notice();
    const { prompt, spans } = await coft.editor.ready();
    if (!prompt.trim()) {
      coft.session.idle();
      coft.session.notice(coft.el("span", { text: "The prompt is empty: type the text that the model should continue." }));
      coft.editor.focus();
      return;
    }
    coft.session.ask("start", { prompt, spans, proceed });
  };
  /* `until` is where to stop, null for the end of the chain */
  const run = (until = null) => {
    const now = state();
    if (now.session === null || now.touched || now.busy || now.finished) return;
    Object.assign(now, { running: true, pausing: false, follow: true, why: "" });
    coft.session.ask("run", { ...coft.session.ids(), until });
  };
  const go = () => (state().session === null || state().touched ? start() : run());
  const step = (focus = false) => {
    const now = state();
    if (now.session === null || now.touched) return;
    if (now.selected < now.cards.length - 1) { coft.session.choose(now.selected + 1, focus); return; }
    if (now.busy || now.finished) return;
    Object.assign(now, { follow: true, why: "" });
    coft.session.ask("step", coft.session.ids());
  };
  const back = (focus = false) => {
    const now = state();
    now.follow = false;
    if (now.selected > 0) coft.session.select(now.selected - 1, focus);
  };
  /* a pause may reach the server before the run that it ends; until the run has stopped, each frame asks again */
  const pause = () => {
    const now = state();
    if (!now.running) return;
    now.pausing = true;
    show();
    coft.session.send("pause", coft.session.ids());
  };
  const force = (token, index = state().selected) => {
    const now = state();
    if (now.busy || now.touched || index < 0) return;
    coft.session.ask("fork", { ...coft.session.ids(), index, token });
  };

  coft.controls = {
    show, run,
    mount(element) {
      root = element;
      found.clear();
      Object.assign(coft.session, { step, back, go, run, pause, force, toggle: () => (state().running ? pause() : go()) });
      coft.act(root, {
        back: () => back(), step: () => step(), go, pause,
        report: () => coft.session.send("report", coft.session.ids()),
        overhead: () => {
          if (state().busy) return;
          coft.whole.measured("Measuring …");
          coft.session.ask("overhead", coft.session.ids());
        },
        proceed: () => start(true),
        revert: () => coft.unsaved.discard(),
      });
      show();
    },
  };
})();
