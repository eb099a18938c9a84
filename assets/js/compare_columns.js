/* The columns of a new comparison: a card each, with the fields that its method has, and what all have in common. */
"use strict";
(() => {
  const coft = window.coft;
  const USUAL = { model: "demo", max_new_tokens: 64, seed: 0, temperature: 1, top_p: 0.9, top_k: 0, greedy: "" };
  const LAYOUTS = { joint: "one for all families", factorized: "one for each family" };
  const state = { menu: null, columns: [], shared: { ...USUAL }, told: () => {} };

  const one = (selector) => document.querySelector(selector);
  const policy = (key) => state.menu.policies.find((item) => item.key === key) || state.menu.policies[0];
  const column = (key) => {
    const own = state.menu.calibrations.find((item) => item.embedded && item.model === state.shared.model);
    return { policy: key, lam: 0.6, alpha: 0.1, calibration: own ? own.id : 0, layout: policy(key).layouts[0], proceed: false, parameters: {}, errors: {} };
  };
  /* a trained model is always somebody's own, so that none is put into a new column */
  const ready = (info) => info.kind !== "training";

  const option = (value, text, chosen) => coft.el("option", { value, text, selected: String(value) === String(chosen) });
  const methods = (chosen) => {
    const found = new Map();
    state.menu.policies.forEach((item) => found.set(item.group, [...(found.get(item.group) || []), item]));
    return [...found].map(([label, items]) => coft.el("optgroup", { label }, ...items.map((item) => option(item.key, item.name, chosen))));
  };
  const misfit = (own) => {
    const made = state.menu.calibrations.find((item) => item.id === Number(own.calibration));
    const info = policy(own.policy);
    if (!made || !info.certifies) return "";
    const apart = [];
    if (made.model !== state.shared.model) apart.push(`model ${made.model}`);
    if (made.layout !== own.layout) apart.push(`mask: ${LAYOUTS[made.layout] || made.layout}`);
    if (info.fuses && Math.abs(made.lam - Number(own.lam)) > 1e-9) apart.push(`λ ${made.lam.toFixed(2)}`);
    return apart.length ? `Calibrated with ${apart.join(", ")}: Run will ask.` : "";
  };
  const field = (at, name, label, control) => {
    const id = `cmp-${name}-${at}`;
    Object.entries({ id, "data-column": at, "data-field": name }).forEach(([key, value]) => control.setAttribute(key, value));
    return coft.el("div", { class: "field" }, coft.el("label", { for: id, text: label }), control);
  };
  const number = (value, attributes) => coft.el("input", { class: "input", type: "number", value, step: "0.01", min: "0", max: "1", ...attributes });
  const own_fields = (own, at, info) => {
    const box = coft.el("div", { class: "colparams" });
    if (!info.parameters.length) return box;
    coft.parameters.mount(box, info, own.parameters, (values, errors) => Object.assign(own, { parameters: values, errors }));
    box.querySelector(".params").setAttribute("aria-label", `Parameters of column ${at + 1}, ${info.name}`);
    return box;
  };
  const card = (own, at) => {
    const info = policy(own.policy);
    const fits = state.menu.calibrations.map((item) => option(item.id, item.name, own.calibration));
    const parts = [field(at, "policy", "Policy", coft.el("select", { class: "select" }, ...methods(own.policy)))];
    if (info.fuses) parts.push(field(at, "lam", "Lambda", number(own.lam)));
    if (info.certifies) {
      parts.push(field(at, "calibration", "Calibration", coft.el("select", { class: "select" }, ...fits, option(0, "none: no certificate", own.calibration))));
      parts.push(field(at, "alpha", "Alpha", number(own.alpha, { step: "0.005", min: "0.001" })));
    }
    if (info.layouts.length > 1) parts.push(field(at, "layout", "Mask", coft.el("select", { class: "select" }, ...info.layouts.map((key) => option(key, LAYOUTS[key] || key, own.layout)))));
    const button = (name, text, label) => coft.el("button", { type: "button", class: "btn small quiet", "data-cmp": name, "data-column": at, "aria-label": label, text });
    return coft.el("fieldset", { class: "colcard" }, coft.el("legend", { text: at ? `Column ${at + 1}` : "Column 1, the one to compare with" }),
      coft.el("div", { class: "colfields" }, ...parts), coft.el("div", { class: "hint about" }, ...coft.parameters.about(info)), own_fields(own, at, info),
      coft.el("p", { class: "hint caution misfit", role: "status", text: misfit(own) }),
      coft.el("div", { class: "colacts" }, at ? button("first", "Make first", `Make column ${at + 1} the first`) : null,
        button("remove", "Remove", `Remove column ${at + 1}`)));
  };
  const draw = (focus) => {
    one(".colcards").replaceChildren(...state.columns.map(card));
    one("[data-cmp=add]").disabled = state.columns.length >= state.menu.most;
    document.querySelectorAll("[data-cmp=remove]").forEach((node) => { node.disabled = state.columns.length < 3; });
    const next = focus && one(focus);
    if (next) next.focus();
    state.told();
  };
  const summary = () => {
    const own = state.shared;
    one(".shared summary .hint").textContent = `${own.model}, ${own.greedy ? "greedy" : `T ${own.temperature}, top-p ${own.top_p}`}, ${own.max_new_tokens} steps, seed ${own.seed}`;
  };

  coft.columns = {
    state,
    /* what is asked of the server: the settings of all columns, and of each */
    asked: () => ({ shared: state.shared, columns: state.columns.map(({ errors, ...own }) => own) }),
    /* the sentence that keeps a run from beginning; empty where nothing does */
    refusal() {
      for (const [at, own] of state.columns.entries()) {
        const wrong = Object.values(own.errors || {})[0];
        if (wrong) return `Column ${at + 1}: ${wrong}`;
      }
      return "";
    },
    mount(told) {
      state.told = told;
      document.querySelectorAll("[data-shared]").forEach((node) => { node.value = state.shared[node.dataset.shared]; });
      summary();
    },
    offer(menu) {
      state.menu = menu;
      if (!state.columns.length) state.columns = ["vanilla", "coft"].map(column);
      draw();
    },
    add() {
      const used = state.columns.map((own) => own.policy);
      const fresh = state.menu.policies.find((item) => !used.includes(item.key) && ready(item));
      const again = column(fresh ? fresh.key : "coft");
      if (!fresh) Object.assign(again, { lam: 1, calibration: 0 });
      state.columns.push(again);
      draw(`#cmp-policy-${state.columns.length - 1}`);
    },
    remove(at) { state.columns.splice(at, 1); draw("[data-cmp=add]"); },
    first(at) { state.columns.unshift(...state.columns.splice(at, 1)); draw("#cmp-policy-0"); },
    proceed(at) { state.columns[at].proceed = true; },
    changed(node) {
      if (node.dataset.shared) { state.shared[node.dataset.shared] = node.value; summary(); return; }
      const own = state.columns[Number(node.dataset.column)];
      Object.assign(own, { [node.dataset.field]: node.value, proceed: false });
      if (node.dataset.field === "policy") {
        own.layout = policy(own.policy).layouts.includes(own.layout) ? own.layout : policy(own.policy).layouts[0];
        Object.assign(own, { parameters: {}, errors: {} });
        draw(`#${node.id}`);
      } else node.closest(".colcard").querySelector(".misfit").textContent = misfit(own);
    },
  };
})();
