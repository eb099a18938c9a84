/* A decoding method's own parameters, drawn from their declarations; the settings rail and the compare page share it. */
"use strict";
(() => {
  const coft = window.coft;
  /* more fields than this are folded, but for those that say how strongly the method acts or what it works with */
  const MANY = 4;
  const FIRST = ["model", "file", "choice"];
  const NUMBERS = ["number", "whole"];
  let mounted = 0;

  /* ---- what a parameter takes, in the words of the refusal ---- */
  const range = (own) => {
    const low = own.low !== null, high = own.high !== null;
    if (low && high) return `from ${own.low} to ${own.high}`;
    if (low) return `of at least ${own.low}`;
    return high ? `of at most ${own.high}` : "";
  };
  const wanted = (own) => ({
    number: `give a number ${range(own)}`.trim(), whole: `give a whole number ${range(own)}`.trim(),
    flag: "say yes or no", text: "give a text", texts: "give one or more texts",
    choice: `choose ${own.choices.join(" or ")}`, model: "give the id or the folder of a model",
    file: "give the path of a file",
  })[own.kind];
  const empty = (value) => value === null || value === undefined || value === "" || (Array.isArray(value) && !value.length);
  /* the sentence that refuses a value; empty for one that fits. A field that is left empty stands at its default. */
  const refusal = (own, value) => {
    if (empty(value)) return own.optional || !empty(own.default) ? "" : `${own.title} is missing; ${wanted(own)}.`;
    if (NUMBERS.includes(own.kind)) {
      const fits = typeof value === "number" && (own.kind === "number" || Number.isInteger(value))
        && (own.low === null || value >= own.low) && (own.high === null || value <= own.high);
      return fits ? "" : `${own.title} is ${value}; ${wanted(own)}.`;
    }
    if (own.kind === "choice" && !own.choices.includes(value)) return `${own.title} is ${value}; ${wanted(own)}.`;
    return "";
  };

  /* ---- values: a number where one is written, otherwise what is written ---- */
  const usual = (own, value) => empty(value) || JSON.stringify(value) === JSON.stringify(own.default);
  const written = (own, node) => {
    if (own.kind === "flag") return node.checked;
    if (own.kind === "texts") return node.value.split("\n").map((line) => line.trim()).filter(Boolean);
    if (!NUMBERS.includes(own.kind)) return own.kind === "text" ? node.value : node.value.trim();
    if (node.validity.badInput) return "not a number";
    const text = node.value.trim();
    return text === "" ? null : Number(text);
  };
  const write = (own, node, value) => {
    if (own.kind === "flag") node.checked = Boolean(value);
    else node.value = empty(value) ? "" : [value].flat().join("\n");
  };

  /* ---- one field ---- */
  const control = (own, id, described) => {
    const shared = { id, "aria-describedby": described, "data-parameter": own.name, autocomplete: "off",
      placeholder: empty(own.default) ? "none" : [own.default].flat().join("\n") };
    if (own.kind === "flag") return coft.el("input", { ...shared, type: "checkbox" });
    if (own.kind === "choice") {
      const none = own.optional ? [coft.el("option", { value: "", text: "none" })] : [];
      return coft.el("select", { ...shared, class: "select" }, ...none,
        ...own.choices.map((name) => coft.el("option", { value: name, text: name })));
    }
    if (own.kind === "texts" || own.kind === "text") {
      return coft.el("textarea", { ...shared, class: "input", rows: own.kind === "texts" ? 4 : 3, spellcheck: "false" });
    }
    if (NUMBERS.includes(own.kind)) {
      return coft.el("input", { ...shared, class: "input tnum", type: "number", min: own.low, max: own.high,
        step: own.step ?? (own.kind === "whole" ? 1 : "any") });
    }
    return coft.el("input", { ...shared, class: "input", type: "text", spellcheck: "false" });
  };
  const about = (own) => {
    if (own.kind === "flag") return `Usually ${own.default ? "on" : "off"}.`;
    if (own.kind === "texts") return "One a line.";
    if (own.kind === "text" || empty(own.default)) return "";
    const span = NUMBERS.includes(own.kind) && range(own);
    return span ? `${span[0].toUpperCase()}${span.slice(1)}, usually ${own.default}.` : `Usually ${own.default}.`;
  };
  const sliding = (own) => NUMBERS.includes(own.kind) && own.step !== null && own.low !== null && own.high !== null;
  const field = (own, prefix, told) => {
    const id = `${prefix}-${own.name}`;
    const node = control(own, id, `${id}-help ${id}-wrong`);
    const label = coft.el("label", { for: id, text: own.title });
    const help = coft.el("p", { class: "hint tnum", id: `${id}-help`, text: [own.help, about(own)].filter(Boolean).join(" ") });
    const wrong = coft.el("p", { class: "wrong", id: `${id}-wrong`, "aria-live": "polite" });
    const slider = sliding(own) ? coft.el("input", { type: "range", min: own.low, max: own.high, step: own.step,
      "aria-label": `${own.title}, slider`, "aria-describedby": `${id}-help` }) : null;
    const line = own.kind === "flag" || NUMBERS.includes(own.kind);
    const box = coft.el("div", { class: "field param", "data-kind": own.kind },
      ...(line ? [coft.el("div", { class: "line" }, label, node)] : [label, node]), slider, help, wrong);
    const show = () => {
      const value = written(own, node);
      const sentence = refusal(own, value);
      wrong.textContent = sentence;
      node.setAttribute("aria-invalid", String(Boolean(sentence)));
      box.classList.toggle("changed", !usual(own, value));
      if (!slider) return;
      if (typeof value === "number") slider.value = String(value);
      slider.style.setProperty("--at", `${(100 * (slider.value - own.low)) / (own.high - own.low)}%`);
    };
    node.addEventListener("input", () => { show(); told(); });
    if (slider) slider.addEventListener("input", () => { node.value = slider.value; show(); told(); });
    return {
      own, box, node,
      value: () => written(own, node),
      wrong: () => wrong.textContent,
      put(value) { write(own, node, value === undefined ? own.default : value); show(); },
    };
  };

  /* ---- all of them ---- */
  /*
   * Draw the parameters of a method into an element, in place of what is there.
   *   info: the method, as in `coftShared.policies`.
   *   values: what is chosen, by name; what is left out stands at its default.
   *   onChange(values, errors): called after each change with the values that differ from their defaults, as they are
   *     written, and with a sentence for each name whose value is refused.
   * Gives `values()`, `errors()`, and `put(values)`, which shows others without calling onChange.
   */
  const mount = (element, info, values, onChange) => {
    mounted += 1;
    const prefix = `parameter-${mounted}`;
    const told = () => { count(); onChange(read(), errors()); };
    const fields = info.parameters.map((own) => field(own, prefix, told));
    const early = (own) => fields.length <= MANY || own.strength || FIRST.includes(own.kind);
    const [open, folded] = [fields.filter((one) => early(one.own)), fields.filter((one) => !early(one.own))];
    const hint = coft.el("span", { class: "hint" });
    const mark = coft.icon("chev");
    mark.classList.add("chev");
    const more = folded.length ? coft.el("details", { class: "more" },
      coft.el("summary", {}, mark, `${folded.length} more`, hint),
      coft.el("div", { class: "params" }, ...folded.map((one) => one.box))) : null;
    const reset = coft.el("button", { type: "button", class: "btn small reset", text: "Reset to defaults" });
    const changed = (some) => some.filter((one) => !usual(one.own, one.value()));
    const read = () => Object.fromEntries(changed(fields).map((one) => [one.own.name, one.value()]));
    const errors = () => Object.fromEntries(fields.filter((one) => one.wrong()).map((one) => [one.own.name, one.wrong()]));
    const count = () => {
      reset.disabled = changed(fields).length === 0;
      const own = changed(folded).length;
      hint.textContent = own ? `${own} changed` : "";
      if (more && folded.some((one) => one.wrong())) more.open = true;
    };
    const put = (chosen) => {
      fields.forEach((one) => one.put((chosen || {})[one.own.name]));
      count();
    };
    reset.addEventListener("click", () => {
      put({});
      onChange(read(), errors());
      fields[0].node.focus();
    });
    element.replaceChildren(...(fields.length ? [coft.el("div", { class: "params", role: "group",
      "aria-label": `Parameters of ${info.name}` }, ...open.map((one) => one.box), more, reset)] : []));
    put(values);
    return { values: read, errors, put };
  };

  const policies = (window.coftShared && window.coftShared.policies) || [];
  coft.parameters = {
    mount,
    /* the chosen parameters of a method in words, from the value of the rail's fields */
    words(key, text) {
      const given = text ? JSON.parse(text) : {};
      if (given.policy !== key) return [];
      return policies.filter((item) => item.key === key).flatMap((item) => item.parameters)
        .filter((own) => own.name in given.values).map((own) => `${own.title} ${[given.values[own.name]].flat().join("; ")}`);
    },
    /* what a method does and where it was published; how it differs from that, folded away */
    about: (info) => [
      [info.about && `${info.about[0].toUpperCase()}${info.about.slice(1)}`, info.source].filter(Boolean).join(" · "),
      info.differs && coft.el("details", { class: "differs" }, coft.el("summary", { class: "hint", text: "How it differs from its authors’" }), info.differs),
    ].filter(Boolean),
    /* what is known of a method; a session may have been made with one that is no longer registered */
    info: (key) => policies.find((item) => item.key === key)
      || { key, name: key, about: "", source: "", differs: "", kind: "", fuses: true, certifies: true, layouts: ["joint"], parameters: [] },
  };
})();
