/* The rail's menu of decoding methods, and the parameters of the chosen one. Both are values of the form. */
"use strict";
(() => {
  const coft = window.coft;
  const policies = (window.coftShared && window.coftShared.policies) || [];
  const state = { key: "", drawn: null, drawing: null, kept: {}, menu: null, box: null };

  const packed = (policy, values) => JSON.stringify({ policy, values });
  const parsed = (text) => {
    try { return { policy: "", values: {}, ...JSON.parse(text) }; } catch { return { policy: "", values: {} }; }
  };

  /* ---- the menu ---- */
  const option = (item) => coft.el("option", { value: item.key, text: item.name });
  const groups = () => {
    const found = new Map();
    policies.forEach((item) => found.set(item.group, [...(found.get(item.group) || []), item]));
    return [...found].map(([label, items]) => coft.el("optgroup", { label }, ...items.map(option)));
  };
  const describe = () => {
    const { select, about } = state.menu;
    /* a stored session may name a method that is no longer registered */
    if (![...select.options].some((one) => one.value === state.key)) select.append(option(coft.parameters.info(state.key)));
    select.value = state.key;
    const info = coft.parameters.info(state.key);
    about.replaceChildren(...coft.parameters.about(info));
  };

  /* ---- its parameters ---- */
  const keep = (values) => {
    state.kept[state.drawn] = values;
    state.box.props.value = packed(state.drawn, values);
  };
  const draw = () => {
    if (!state.box || !state.key) return;
    const given = parsed(state.box.props.value);
    if (given.policy === state.key) state.kept[state.key] = given.values;
    const values = state.kept[state.key] || {};
    if (state.drawn === state.key) state.drawing.put(values);
    else {
      state.drawn = state.key;
      state.drawing = coft.parameters.mount(state.box.place, coft.parameters.info(state.key), values, keep);
    }
    if (given.policy !== state.key) keep(values);
  };

  coft.policyMenu = {
    mount(element, props, watch) {
      const select = element.querySelector("select");
      select.replaceChildren(...groups());
      state.menu = { select, about: element.querySelector(".about") };
      state.key = props.value;
      describe();
      draw();
      select.addEventListener("change", () => {
        state.key = select.value;
        props.value = select.value;
        describe();
        draw();
      });
      watch("value", () => {
        if (props.value === state.key) return;
        state.key = props.value;
        describe();
        /* the server sets menu and parameters together; those that come with the new method are read once they are here */
        requestAnimationFrame(draw);
      });
    },
    parameters(element, props, watch) {
      /* a folded rail takes the fields out of the page, and draws them anew when it is unfolded */
      Object.assign(state, { box: { props, place: element.querySelector(".place") }, drawn: null });
      draw();
      watch("value", () => {
        const given = parsed(props.value);
        /* what the fields have just written comes back here too, and must not be drawn over what is being typed */
        if (given.policy !== state.drawn || packed(state.drawn, state.kept[state.drawn] || {}) === props.value) return;
        draw();
      });
    },
  };
})();
