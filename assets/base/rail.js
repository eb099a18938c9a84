/* The settings rail: its folds, the line that sums the settings up, the menu of methods and the chosen one's parameters. */
import { act, draw, expose, icon, options, perFrame } from "./core.js";
import { formatWords, samplingWords, tellFolds } from "./forms.js";
import { frame } from "./frame.js";
import { keys } from "./keys.js";
import { aboutPolicy, mountParameters, parameterWords, policies, policyGroups, policyOf } from "./parameters.js";
import { shared } from "./shared.js";
import { html, nothing } from "./vendor/lit-html.js";

/* the parts that change with every token hold no fold */
const BUSY = "#transcript, #inspector, .js-plotly-plot, #js-plotly-tester";
const watchers = [];
let latest = null;

/* the rail's values by name */
const named = (values) => Object.fromEntries(shared.settings.map((name, at) => [name, values[at]]));
const flat = (value) => (Array.isArray(value) ? [...value].sort().join() : String(value ?? ""));
export const sameValue = (one, other) => flat(one) === flat(other);
/* what decides which spans are found: word list, masked families and what is never masked */
export const choice = (values) => {
  if (!values) return null;
  const { user_list_id: list, mask, attribute, masked_families: families, whitelist } = named(values);
  return [list, mask === "single" ? [attribute] : families, whitelist].map(flat).join(":");
};
/* what decides how the prompt and its masked spans read: one mask or several, hard or soft, the hint; what stands around it */
export const look = (values) => {
  if (!values) return null;
  const of = named(values);
  return ["mask", "mask_mode", "mask_hint", ...shared.framed].map((name) => flat(of[name])).join(":");
};
/* how a method and its strengths are named in one line */
const strengths = (values) => {
  const { policy, lam, alpha, parameters } = named(values);
  const info = policyOf(policy);
  return { info, words: parameterWords(policy, parameters), lam: info.fuses ? Number(lam) : null, alpha: info.certifies ? Number(alpha) : null };
};

/* ---- folds and the summary ---- */
const folds = () => {
  tellFolds();
  if (document.querySelector(".rail .fold .label-wrap:not([data-summary])")) summarize(latest);
};
const toggleRail = () => {
  const audit = document.querySelector(".audit");
  if (!audit) return;
  const drawn = audit.classList.toggle("rail-drawn");
  document.querySelectorAll("[data-do=rail]").forEach((button) => button.setAttribute("aria-expanded", String(drawn)));
  window.dispatchEvent(new Event("resize"));
};
const summarize = (values) => {
  if (!values) return;
  latest = values;
  const of = named(values);
  const { info, words, lam, alpha } = strengths(values);
  const rail = document.querySelector(".rail");
  if (rail) {
    const { fuses, certifies, layouts } = info;
    Object.assign(rail.dataset, { policy: of.policy, mask: of.mask, mode: of.mask_mode, fuses, certifies, layouts: layouts.length });
  }
  const folded = [
    samplingWords(of.temperature, of.top_p, of.top_k, of.greedy),
    `${of.mask_mode}${of.sentinel ? `, ${of.sentinel}` : ""}${Number(of.user_list_id) ? ", word list" : ""}${of.whitelist ? ", some kept" : ""}`,
    formatWords(of.prompt_format, of.chat_date, of.system_prompt, of.thinking, of.prefill),
    `${of.max_new_tokens} steps, ${of.seed}`,
  ];
  document.querySelectorAll(".rail .fold .label-wrap").forEach((node, at) => { node.dataset.summary = folded[at] || ""; });
  const fold = document.querySelector(".settings-fold > .label-wrap");
  if (fold) {
    fold.dataset.summary = [info.name, ...words, lam !== null && `λ ${lam.toFixed(2)}`, alpha !== null && `α ${alpha}`].filter(Boolean).join(", ");
  }
  const line = document.querySelector(".summaryline");
  if (!line) return;
  const masks = { joint: "joint mask", single: `${of.attribute} alone`, factorized: "factorized masks" };
  const said = [
    of.model, info.layouts.length > 1 ? `${info.name}, ${masks[of.mask]}` : info.name, ...words,
    lam !== null && `λ ${lam.toFixed(2)}`, alpha !== null && `α ${alpha.toFixed(alpha < 0.01 ? 3 : 2)}`,
  ].filter((text) => text !== false);
  const note = document.querySelector(".rail .note .badge");
  draw(line, html`<button type="button" class="btn small" data-do="rail">${icon("chev", "chev")}Settings</button>${said.map((text) =>
    html`<span>${text}</span>`)}${note ? note.cloneNode(true) : nothing}`);
};
/* what is told under the settings changed */
const noted = [];
export const onNotes = (run) => noted.push(run);
/* the values of the form changed; what they mean for the rest of a page is its own affair */
export const onSettings = (watcher) => watchers.push(watcher);
const settings = (values) => {
  summarize(values);
  watchers.forEach((watcher) => watcher(values));
  return [];
};

/* ---- the menu of methods: its value and that of the parameters are two fields of the form ---- */
const method = { key: "", drawn: null, fields: null, kept: {}, menu: null, box: null };
const packed = (policy, values) => JSON.stringify({ policy, values });
const parsed = (text) => {
  try { return { policy: "", values: {}, ...JSON.parse(text) }; } catch { return { policy: "", values: {} }; }
};
const describe = (key) => {
  const { select, about } = method.menu;
  method.key = key;
  /* a stored session may name a method that is no longer registered */
  const known = policies.some((item) => item.key === key);
  draw(select, html`${policyGroups()}${known ? nothing : options([[key, policyOf(key).name]])}`);
  select.value = key;
  draw(about, aboutPolicy(policyOf(key)));
};
const keep = (values) => {
  method.kept[method.drawn] = values;
  method.box.props.value = packed(method.drawn, values);
};
const drawParameters = () => {
  if (!method.box || !method.key) return;
  const given = parsed(method.box.props.value);
  if (given.policy === method.key) method.kept[method.key] = given.values;
  const values = method.kept[method.key] || {};
  if (method.drawn === method.key) method.fields.put(values);
  else {
    method.drawn = method.key;
    method.fields = mountParameters(method.box.place, policyOf(method.key), values, keep);
  }
  if (given.policy !== method.key) keep(values);
};
const policyMenu = {
  mount(element, props, watch) {
    const select = element.querySelector("select");
    method.menu = { select, about: element.querySelector(".about") };
    describe(props.value);
    drawParameters();
    select.addEventListener("change", () => {
      props.value = select.value;
      describe(select.value);
      drawParameters();
    });
    watch("value", () => {
      if (props.value === method.key) return;
      describe(props.value);
      /* the server sets menu and parameters together; those that come with the new method are read once they are here */
      requestAnimationFrame(drawParameters);
    });
  },
  parameters(element, props, watch) {
    /* a folded rail takes the fields out of the page, and draws them again when it is unfolded */
    Object.assign(method, { box: { props, place: element.querySelector(".place") }, drawn: null });
    drawParameters();
    watch("value", () => {
      const given = parsed(props.value);
      /* what the fields have just written comes back here too, and must not be drawn over what is being typed */
      if (given.policy !== method.drawn || packed(method.drawn, method.kept[method.drawn] || {}) === props.value) return;
      drawParameters();
    });
  },
};

Object.assign(frame, {
  rail(element) {
    act(element, { rail: toggleRail });
    new MutationObserver((records) => {
      if (records.some((record) => record.target.closest?.(".note"))) { summarize(latest); noted.forEach((run) => run()); }
    }).observe(element.closest(".rail"), { childList: true, subtree: true });
    /* folds may be drawn after the rail's head, or again: what they need is set whenever something came or changed */
    const later = perFrame(folds);
    new MutationObserver((records) => { if (!records.every((record) => record.target.closest(BUSY))) later(); })
      .observe(document.body, { childList: true, subtree: true, attributes: true, attributeFilter: ["class"] });
    folds();
  },
  line(element) { act(element, { rail: toggleRail }); },
});
expose({ settings, policyMenu });
keys.add("[", toggleRail, "hide or show the settings", { topic: "Page" });
