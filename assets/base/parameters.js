/* Decoding methods and their own parameters, drawn from their declarations, for the settings rail and compared columns. */
import { icon, options, redraw } from "./core.js";
import { shared } from "./shared.js";
import { html, nothing } from "./vendor/lit-html.js";

export const { policies } = shared;
/* more fields than this are folded, but for those that say how strongly the method acts or what it works with */
const MANY = 4;
const FIRST = ["model", "file", "choice"];
const NUMBERS = ["number", "whole"];
let mounted = 0;

const empty = (value) => value === null || value === undefined || value === "" || (Array.isArray(value) && !value.length);
/* the sentence that refuses a value; empty for one that fits. A field that is left empty stands at its default. */
const refusal = (spec, value) => {
  if (empty(value)) return spec.optional || !empty(spec.default) ? "" : `${spec.title} is missing; ${spec.wanted}.`;
  const fits = NUMBERS.includes(spec.kind) ? typeof value === "number" && (spec.kind === "number" || Number.isInteger(value))
    && (spec.low === null || value >= spec.low) && (spec.high === null || value <= spec.high)
    : spec.kind !== "choice" || spec.choices.includes(value);
  return fits ? "" : `${spec.title} is ${value}; ${spec.wanted}.`;
};

/* ---- values: a number where one is written, otherwise what is written ---- */
const usual = (spec, value) => empty(value) || JSON.stringify(value) === JSON.stringify(spec.default);
const lines = (value) => (empty(value) ? "" : [value].flat().join("\n"));
const written = (spec, node) => {
  if (spec.kind === "flag") return node.checked;
  if (spec.kind === "texts") return node.value.split("\n").map((line) => line.trim()).filter(Boolean);
  if (!NUMBERS.includes(spec.kind)) return spec.kind === "text" ? node.value : node.value.trim();
  if (node.validity.badInput) return "not a number";
  const text = node.value.trim();
  return text === "" ? null : Number(text);
};

/* ---- one field ---- */
const control = (spec) => {
  if (spec.kind === "flag") return html`<input type="checkbox">`;
  if (spec.kind === "choice") {
    return html`<select class="select">${options([...(spec.optional ? [["", "none"]] : []), ...spec.choices.map((name) => [name, name])])}</select>`;
  }
  if (spec.kind === "texts" || spec.kind === "text") {
    return html`<textarea class="input" rows=${spec.kind === "texts" ? 4 : 3} spellcheck="false"></textarea>`;
  }
  if (!NUMBERS.includes(spec.kind)) return html`<input class="input" type="text" spellcheck="false">`;
  return html`<input class="input tnum" type="number" min=${spec.low ?? nothing} max=${spec.high ?? nothing}
    step=${spec.step ?? (spec.kind === "whole" ? 1 : "any")}>`;
};
const sliding = (spec) => NUMBERS.includes(spec.kind) && spec.step !== null && spec.low !== null && spec.high !== null;
const field = (spec, id) => {
  const label = html`<label for=${id}>${spec.title}</label>`;
  const inLine = spec.kind === "flag" || NUMBERS.includes(spec.kind);
  return html`<div class="field param" data-kind=${spec.kind} data-field=${id}>${inLine
    ? html`<div class="line">${label}${control(spec)}</div>` : [label, control(spec)]}${sliding(spec)
    ? html`<input type="range" min=${spec.low} max=${spec.high} step=${spec.step} aria-label=${`${spec.title}, slider`} aria-describedby=${`${id}-help`}>`
    : nothing}<p class="hint tnum" id=${`${id}-help`}>${spec.help}</p><p
    class="wrong" id=${`${id}-wrong`} aria-live="polite"></p></div>`;
};
/* a drawn field at work */
const fieldAt = (spec, id, place, told) => {
  const box = place.querySelector(`[data-field="${id}"]`);
  const node = box.querySelector("input:not([type=range]), select, textarea");
  const named = { id, "aria-describedby": `${id}-help ${id}-wrong`, "data-parameter": spec.name, autocomplete: "off",
    placeholder: lines(spec.default) || "none" };
  Object.entries(named).forEach(([name, value]) => node.setAttribute(name, value));
  box.removeAttribute("data-field");
  const slider = box.querySelector("input[type=range]");
  const wrong = box.querySelector(".wrong");
  const show = () => {
    const value = written(spec, node);
    wrong.textContent = refusal(spec, value);
    node.setAttribute("aria-invalid", String(Boolean(wrong.textContent)));
    box.classList.toggle("changed", !usual(spec, value));
    if (!slider) return;
    if (typeof value === "number") slider.value = String(value);
    slider.style.setProperty("--at", `${(100 * (slider.value - spec.low)) / (spec.high - spec.low)}%`);
  };
  node.addEventListener("input", () => { show(); told(); });
  slider?.addEventListener("input", () => { node.value = slider.value; show(); told(); });
  return {
    spec, node,
    value: () => written(spec, node),
    changed: () => !usual(spec, written(spec, node)),
    wrong: () => wrong.textContent,
    put(value = spec.default) {
      if (spec.kind === "flag") node.checked = Boolean(value);
      else node.value = lines(value);
      show();
    },
  };
};

/* ---- all of them ---- */
/*
 * Draw the parameters of a method into an element, in place of what is there.
 *   info: the method, as in `shared.policies`.
 *   values: what is chosen, by name; what is left out stands at its default.
 *   onChange(values, errors): called after each change with the values that differ from their defaults, as they are
 *     written, and with a sentence for each name whose value is refused.
 *   label: the name of the group of fields.
 * Gives `put(values)`, which shows others without calling onChange.
 */
export const mountParameters = (element, info, values, onChange, label = `Parameters of ${info.name}`) => {
  mounted += 1;
  const id = (spec) => `parameter-${mounted}-${spec.name}`;
  const early = (spec) => info.parameters.length <= MANY || spec.strength || FIRST.includes(spec.kind);
  const drawn = (specs) => specs.map((spec) => field(spec, id(spec)));
  const folded = info.parameters.filter((spec) => !early(spec));
  const fold = folded.length ? html`<details class="more"><summary>${icon("chev", "chev")}${`${folded.length} more`}<span
    class="hint"></span></summary><div class="params pile">${drawn(folded)}</div></details>` : nothing;
  redraw(element, nothing);
  if (!info.parameters.length) return { put() {} };
  redraw(element, html`<div class="params pile" role="group" aria-label=${label}>${drawn(info.parameters.filter(early))}${fold}<button
    type="button" class="btn small reset">Reset to defaults</button></div>`);
  const told = () => { count(); onChange(read(), errors()); };
  const fields = info.parameters.map((spec) => fieldAt(spec, id(spec), element, told));
  const [more, reset] = [element.querySelector("details.more"), element.querySelector(".reset")];
  const read = () => Object.fromEntries(fields.filter((one) => one.changed()).map((one) => [one.spec.name, one.value()]));
  const errors = () => Object.fromEntries(fields.filter((one) => one.wrong()).map((one) => [one.spec.name, one.wrong()]));
  const count = () => {
    reset.disabled = !fields.some((one) => one.changed());
    if (!more) return;
    const inside = fields.filter((one) => folded.includes(one.spec));
    const changed = inside.filter((one) => one.changed()).length;
    more.querySelector("summary .hint").textContent = changed ? `${changed} changed` : "";
    if (inside.some((one) => one.wrong())) more.open = true;
  };
  const show = (chosen) => {
    fields.forEach((one) => one.put((chosen || {})[one.spec.name]));
    count();
  };
  reset.addEventListener("click", () => {
    show({});
    onChange(read(), errors());
    fields[0].node.focus();
  });
  show(values);
  return { put: show };
};

/* ---- methods ---- */
/* what is known of a method; a session may have been made with one that is no longer registered */
export const policyOf = (key) => policies.find((item) => item.key === key)
  || { key, name: key, about: "", source: "", differs: "", kind: "", fuses: true, certifies: true, layouts: ["joint"], parameters: [] };
/* the chosen parameters of a method in words, from the value of the rail's fields */
export const parameterWords = (key, text) => {
  const given = text ? JSON.parse(text) : {};
  if (given.policy !== key) return [];
  return policyOf(key).parameters.filter((spec) => spec.name in given.values)
    .map((spec) => `${spec.title} ${[given.values[spec.name]].flat().join("; ")}`);
};
/* what a method does and where it was published; how it differs from that, folded away */
export const aboutPolicy = (info) => html`${[info.about && `${info.about[0].toUpperCase()}${info.about.slice(1)}`, info.source]
  .filter(Boolean).join(" · ")}${info.differs
  ? html`<details class="differs"><summary class="hint">How it differs from its authors’</summary>${info.differs}</details>` : nothing}`;
/* a menu of methods by their groups */
export const policyGroups = (chosen) => [...Map.groupBy(policies, (item) => item.group)].map(([label, group]) =>
  html`<optgroup label=${label}>${options(group.map((item) => [item.key, item.name]), chosen)}</optgroup>`);
