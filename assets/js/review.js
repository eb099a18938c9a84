/* The review page: a session is chosen, reviewed, and where reviewers differ decided by a third person. */
"use strict";
(() => {
  const coft = window.coft;
  const PAUSE = 250;
  const state = { session: null, revealed: null, wanted: 0, listed: 0, status: "", asked: null, busy: false };
  let picker, root, find, ask, dialog, timer = null;

  const at = (selector) => root.querySelector(selector);
  const say = (text) => { at(".told").textContent = text; };
  const me = () => coft.reviewer.name();

  /* ---- choosing a session ---- */
  const list = () => {
    clearTimeout(timer);
    state.listed = find("find", { text: picker.querySelector("#pick-text").value });
  };
  const named = () => {
    picker.querySelector(".named").textContent = me() ? `You are ${me()}.` : "You have not said who you are.";
    picker.querySelector("[data-do=rename]").textContent = me() ? "Change name" : "Enter your name";
  };
  const address = () => {
    const target = new URL(location.href);
    if (state.session === null) target.searchParams.delete("session");
    else target.searchParams.set("session", state.session);
    history.replaceState(history.state, "", target);
  };
  const choose = (session) => {
    Object.assign(state, { session, status: "", revealed: null });
    address();
    const none = session === null;
    picker.querySelector(".picker").hidden = !none;
    at(".one-session").hidden = true;
    say("");
    coft.agreement.session(session, null);
    if (none) list(); else read();
  };

  /* ---- one session ---- */
  const data = (more = {}) => ({ session: state.session, reviewer: me(), reveal: state.revealed === me(), ...more });
  const read = () => { if (state.session !== null) state.wanted = ask("read", data()); };
  const work = (busy) => {
    state.busy = busy;
    root.querySelectorAll(".review [data-do], [data-do=decide]").forEach((button) => {
      if (button.tagName === "BUTTON") button.disabled = busy;
    });
  };
  const filter = () => {
    root.querySelectorAll(".targets tbody tr").forEach((row) => { row.hidden = Boolean(state.status) && row.dataset.status !== state.status; });
  };
  const statuses = (choices) => {
    const menu = at("#review-status");
    menu.hidden = choices.length === 0;
    menu.replaceChildren(...choices.map(([value, text]) => coft.el("option", { value, text })));
    if (!choices.some(([value]) => value === state.status)) state.status = "";
    menu.value = state.status;
  };
  const show = (message) => {
    const first = at(".one-session").hidden;
    const focused = root.contains(document.activeElement) && document.activeElement.closest(".review, .targets-box, .head");
    at(".one-session").hidden = false;
    for (const part of ["head", "review"]) at(`.${part}`).innerHTML = message[part];
    at(".targets-box").innerHTML = message.targets;
    at(".log-box").innerHTML = message.log;
    at(".check").innerHTML = message.check;
    at(".log-part").hidden = message.closed;
    statuses(message.statuses);
    filter();
    work(false);
    coft.agreement.session(message.session, message.closed || message.blind ? [] : message.reviewers);
    if (first || (focused && !root.contains(document.activeElement))) at(".head h2").focus({ preventScroll: true });
  };
  const receive = (message) => {
    if (message.session !== state.session || message.reviewer !== me()) { read(); return; }
    if (message.said) say(message.said);
    if (message.nonce === state.wanted) show(message);
    /* a reading that was asked for after this action may have been made before it */
    else if (message.said) read();
  };
  const act = async (action) => {
    if (state.busy || !(await coft.reviewer.needed())) return;
    work(true);
    state.wanted = ask("act", data({ action }));
  };

  /* ---- deciding ---- */
  const decide = async (button) => {
    const { branch, first, last, name } = button.dataset;
    const number = (text) => (text === undefined ? null : Number(text));
    const sides = button.closest("tr").querySelector(".sides").cloneNode(true);
    if (!(await coft.reviewer.needed())) return;
    state.asked = { branch: number(branch), first: number(first), last: number(last) };
    dialog.querySelector("h2").textContent = `Decide: ${name[0].toLowerCase()}${name.slice(1)}`;
    dialog.querySelector(".sides").replaceWith(sides);
    dialog.querySelector("form").reset();
    dialog.returnValue = "no";
    dialog.showModal();
  };
  const decided = () => {
    if (dialog.returnValue !== "yes") return;
    const verdict = dialog.querySelector("[name=decision]:checked").value;
    work(true);
    state.wanted = ask("decide", data({ ...state.asked, verdict, note: dialog.querySelector("#decide-note").value }));
  };

  const renamed = () => {
    if (!picker) return;
    named();
    if (state.session !== null) { state.revealed = null; read(); }
  };
  const begin = () => {
    if (!picker || !root) return;
    choose(coft.addressed("session"));
  };

  coft.review = {
    picker(element, trigger, props, watch) {
      picker = element;
      find = coft.link(trigger, props, watch, (message) => {
        if (message.nonce === state.listed) picker.querySelector(".choices").innerHTML = message.html;
      });
      const field = picker.querySelector("#pick-text");
      field.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(list, PAUSE); });
      picker.querySelector("form").addEventListener("submit", (event) => { event.preventDefault(); list(); });
      coft.act(picker, { choose: (button) => choose(Number(button.dataset.id)), rename: () => coft.reviewer.ask() });
      coft.reviewer.onChange(renamed);
      named();
      begin();
    },
    sheet(element, trigger, props, watch) {
      root = element;
      ask = coft.link(trigger, props, watch, receive);
      dialog = at("#decide");
      document.body.append(dialog);
      dialog.querySelector("[data-do=cancel]").addEventListener("click", () => dialog.close("no"));
      dialog.addEventListener("close", decided);
      coft.act(root, {
        other: () => { choose(null); picker.querySelector("#pick-text").focus(); }, refresh: read, rename: () => coft.reviewer.ask(), decide,
        blind: () => act("blind"), open: () => act("open"), finish: () => act("finish"),
        reveal: () => { state.revealed = me(); read(); at(".targets-box").focus(); },
        whole: (button) => { at(".log").classList.add("all"); button.remove(); },
        file: () => ask("file", data()),
      });
      at("#review-status").addEventListener("change", (event) => { state.status = event.target.value; filter(); });
      ["act", "decide"].forEach((name) => coft.onFailure(`review-${name}`, () => { work(false); read(); }));
      coft.onFailure("review-sheet", () => { work(false); if (at(".one-session").hidden) choose(null); });
      begin();
    },
  };
})();
