/* How far two reviewers agree: two names, this session or all, and the newest answer. */
"use strict";
(() => {
  const coft = window.coft;
  const state = { session: null, placed: undefined, wanted: 0, here: null };
  let root = null, send;

  const menu = (name) => root.querySelector(`#agree-${name}`);
  const refresh = () => {
    const over = menu("over").value === "this" ? state.session : null;
    state.wanted = send("agree", { first: menu("first").value, second: menu("second").value, session: over });
  };
  const fill = (names) => {
    const chosen = [menu("first").value, menu("second").value];
    /* those who judged most of the shown session stand first */
    const here = (state.here || []).filter((name) => names.includes(name));
    const ordered = [...here, ...names.filter((name) => !here.includes(name))];
    const usual = [ordered[0] || "", ordered[1] || ""];
    ["first", "second"].forEach((name, at) => {
      menu(name).replaceChildren(...ordered.map((text) => coft.el("option", { value: text, text })));
      menu(name).value = names.includes(chosen[at]) ? chosen[at] : usual[at];
      menu(name).disabled = names.length < 2;
    });
    return menu("first").value !== chosen[0] || menu("second").value !== chosen[1];
  };
  const receive = (message) => {
    if (message.nonce !== state.wanted) return;
    if (fill(message.names) && message.names.length > 1) { refresh(); return; }
    root.querySelector(".agree-result").innerHTML = message.html;
  };

  coft.agreement = {
    /* `here` are the shown session's reviewers, none while the reader must not know more, null before they are known */
    session(session, here) {
      if (!root) { Object.assign(state, { session, here }); return; }
      const other = state.placed !== session;
      Object.assign(state, { session, here, placed: session });
      menu("over").options[1].disabled = session === null;
      if (other) menu("over").value = session === null ? "all" : "this";
      root.hidden = session !== null && !(here && here.length);
      if (other) ["first", "second"].forEach((name) => menu(name).replaceChildren());
      if (!root.hidden) refresh();
    },
    mount(element, trigger, props, watch) {
      root = element.querySelector("section");
      send = coft.link(trigger, props, watch, receive);
      ["first", "second", "over"].forEach((name) => menu(name).addEventListener("change", refresh));
      coft.agreement.session(state.session, state.here);
    },
  };
})();
