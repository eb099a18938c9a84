/* What is compared: a prompt under the columns, a prompt set, or stored audits and branches; and the run itself. */
import { act, addressed, confirm, draw, expose, link, notice as noticeIn, onFailure, options, pausing, readdress, redraw } from "../base/core.js";
import { editor, EMPTY } from "../base/editor.js";
import { carried } from "../base/frame.js";
import "../base/lists.js";
import { aboutPolicy, mountParameters, policies, policyGroups, policyOf } from "../base/parameters.js";
import { html, nothing } from "../base/vendor/lit-html.js";
import { lanes } from "./compare_lanes.js";
import { sets } from "./compare_sets.js";

const PAUSE = 250;
const WORDS = ["", "", "both", "all three", "all four"];
const state = {
  mode: "new", open: true, picked: [], chains: [], phase: "idle", set: 0, written: false, unfinished: false, wanted: 0, finding: 0, live: false,
  menu: null, columns: [],
};
let root, send;

const one = (selector) => document.querySelector(selector);
const action = (name) => one(`#cmp-actions [data-cmp=${name}]`);
const busy = () => state.phase !== "idle";
const notice = (text, button) => noticeIn(root.querySelector(".notice"), text, button);

/* ---- what can be done now ---- */
const controls = () => {
  const { mode, open, phase } = state;
  const chains = state.chains.length > 0, shownSet = Boolean(sets.shown());
  const paused = chains && !open && state.written && state.unfinished && !busy();
  const many = mode === "stored" ? state.picked.length : state.columns.length;
  one(".compare").classList.toggle("closed", !open);
  ["stored", "set"].forEach((name) => one(".compare").classList.toggle(name, mode === name));
  document.body.classList.toggle("has-comparison", chains);
  document.body.classList.toggle("has-set", shownSet);
  one("#cmp-head .modes").hidden = !open;
  document.querySelectorAll("#cmp-head [data-mode]").forEach((node) => node.setAttribute("aria-pressed", String(node.dataset.mode === mode)));
  one("#cmp-setup .cmp-columns").hidden = !open || mode === "stored";
  one("#cmp-setup .cmp-picker").hidden = !open || mode !== "stored";
  const change = action("change");
  change.textContent = open ? "Back to the comparison" : "Change";
  change.setAttribute("aria-expanded", String(open));
  Object.assign(change, { hidden: !chains && !shownSet, disabled: busy() });
  Object.assign(action("csv"), { hidden: !chains || open, disabled: busy() });
  action("discard").hidden = !paused;
  Object.assign(action("pause"), { hidden: phase !== "running", disabled: !state.live });
  const go = action("go");
  Object.assign(go, { hidden: !open && !paused, disabled: busy() || !state.menu || (open && many < 2) });
  go.querySelector(".word").textContent = paused ? "Continue"
    : [mode === "stored" ? "Compare" : "Run", WORDS[many], mode === "set" && "on the set"].filter(Boolean).join(" ");
};
const phase = (name) => { Object.assign(state, { phase: name, live: false }); controls(); };

/* ---- the columns of a new comparison: a card each, with the fields that its method has, and what all have in common ---- */
const shared = () => Object.fromEntries([...document.querySelectorAll("[data-shared]")].map((node) => [node.dataset.shared, node.value]));
const column = (key) => {
  const { calibrations, usual } = state.menu, { model } = shared();
  const made = calibrations.find((item) => item.embedded && item.model === model);
  return { ...usual, policy: key, calibration: made ? made.id : 0, layout: policyOf(key).layouts[0], proceed: false, parameters: {}, errors: {} };
};
const misfit = (chosen) => {
  const made = state.menu.calibrations.find((item) => item.id === Number(chosen.calibration));
  const info = policyOf(chosen.policy);
  if (!made || !info.certifies) return "";
  const apart = [
    made.model !== shared().model && `model ${made.model}`,
    made.layout !== chosen.layout && `mask: ${state.menu.layouts[made.layout] || made.layout}`,
    info.fuses && Math.abs(made.lam - Number(chosen.lam)) > 1e-9 && `λ ${made.lam.toFixed(2)}`,
  ].filter(Boolean);
  return apart.length ? `Calibrated with ${apart.join(", ")}: Run will ask.` : "";
};
const field = (at, name, label, control) => html`<div class="field"><label for=${`cmp-${name}-${at}`}>${label}</label>${control}</div>`;
const select = (at, name, choices) => html`<select class="select" id=${`cmp-${name}-${at}`} data-column=${at} data-field=${name}>${choices}</select>`;
const number = (at, name, value, step, least) => html`<input class="input" type="number" value=${value} step=${step} min=${least} max="1"
  id=${`cmp-${name}-${at}`} data-column=${at} data-field=${name}>`;
const card = (chosen, at) => {
  const info = policyOf(chosen.policy);
  const made = state.menu.calibrations.map((item) => [item.id, item.name]);
  const layouts = info.layouts.map((key) => [key, state.menu.layouts[key] || key]);
  const button = (name, text, label) => html`<button type="button" class="btn small quiet" data-cmp=${name} data-column=${at} aria-label=${label}
    ?disabled=${name === "remove" && state.columns.length < 3}>${text}</button>`;
  return html`<fieldset class="colcard"><legend>${at ? `Column ${at + 1}` : "Column 1, the one to compare with"}</legend><div class="colfields">${[
    field(at, "policy", "Policy", select(at, "policy", policyGroups(chosen.policy))),
    info.fuses && field(at, "lam", "Lambda", number(at, "lam", chosen.lam, "0.01", "0")),
    info.certifies && field(at, "calibration", "Calibration", select(at, "calibration", options([...made, [0, "none: no certificate"]], chosen.calibration))),
    info.certifies && field(at, "alpha", "Alpha", number(at, "alpha", chosen.alpha, "0.005", "0.001")),
    info.layouts.length > 1 && field(at, "layout", "Mask", select(at, "layout", options(layouts, chosen.layout))),
  ].filter(Boolean)}</div><div class="hint about">${aboutPolicy(info)}</div><div class="colparams"></div><p class="hint caution misfit"
    role="status">${misfit(chosen)}</p><div class="colacts abreast">${at ? button("first", "Make first", `Make first: column ${at + 1}`) : nothing}${
    button("remove", "Remove", `Remove column ${at + 1}`)}</div></fieldset>`;
};
const cards = (focus) => {
  const place = one(".colcards");
  redraw(place, state.columns.map(card));
  place.querySelectorAll(".colparams").forEach((box, at) => {
    const chosen = state.columns[at], info = policyOf(chosen.policy);
    mountParameters(box, info, chosen.parameters, (parameters, errors) => Object.assign(chosen, { parameters, errors }),
      `Parameters of column ${at + 1}, ${info.name}`);
  });
  one("[data-cmp=add]").disabled = state.columns.length >= state.menu.most;
  if (focus) one(focus)?.focus();
  controls();
};
const summary = () => {
  const { model, greedy, temperature, top_p: topP, max_new_tokens: steps, seed } = shared();
  one(".shared summary .hint").textContent = `${model}, ${greedy ? "greedy" : `T ${temperature}, top-p ${topP}`}, ${steps} steps, seed ${seed}`;
};
const addColumn = () => {
  const used = state.columns.map((chosen) => chosen.policy);
  /* a trained model is always somebody's own, so that none is put into a new column */
  const fresh = policies.find((item) => !used.includes(item.key) && item.kind !== "training");
  const again = column(fresh ? fresh.key : "coft");
  if (!fresh) Object.assign(again, { lam: 1, calibration: 0 });
  state.columns.push(again);
  cards(`#cmp-policy-${state.columns.length - 1}`);
};
const changedColumn = (node) => {
  const chosen = state.columns[Number(node.dataset.column)];
  Object.assign(chosen, { [node.dataset.field]: node.value, proceed: false });
  if (node.dataset.field !== "policy") { node.closest(".colcard").querySelector(".misfit").textContent = misfit(chosen); return; }
  const { layouts } = policyOf(chosen.policy);
  Object.assign(chosen, { layout: layouts.includes(chosen.layout) ? chosen.layout : layouts[0], parameters: {}, errors: {} });
  cards(`#${node.id}`);
};
/* what is asked of the server: the settings of all columns, and of each */
const asked = () => ({ shared: shared(), columns: state.columns.map(({ errors, ...chosen }) => chosen) });
/* the sentence that keeps a run from beginning; empty where nothing does */
const refusal = () => state.columns.map(({ errors }, at) => [at, Object.values(errors || {})[0]]).filter(([, wrong]) => wrong)
  .map(([at, wrong]) => `Column ${at + 1}: ${wrong}`)[0] || "";

/* ---- stored audits ---- */
const picked = () => {
  const row = (audit, at) => html`<li><span class="title">${audit.title}<span class="hint">${` ${audit.name}`}</span></span><label class="vh"
    for=${`cmp-branch-${at}`}>Branch of ${audit.title}</label><select class="select small" id=${`cmp-branch-${at}`}
    data-picked=${at}>${options(audit.branches, audit.branch)}</select><button type="button" class="btn small quiet" data-cmp="drop"
    data-picked=${at} aria-label=${`Take out ${audit.title}`}>Take out</button></li>`;
  draw(one(".cmp-picked"), state.picked.length ? state.picked.map(row)
    : html`<li class="hint">None yet. The first one is what the others are compared with.</li>`);
  document.querySelectorAll("[data-cmp=pick]").forEach((node) => { node.disabled = state.menu !== null && state.picked.length >= state.menu.most; });
  controls();
};
const search = () => { searchSoon.cancel(); state.finding = send("find", { text: one("#cmp-search").value }); };
const searchSoon = pausing(() => search(), PAUSE);
const found = (message) => {
  const row = (audit) => html`<li><span class="title">${audit.name}<span class="hint tnum">${audit.about}</span></span><button type="button"
    class="btn small" data-cmp="pick" data-session=${audit.id} aria-label=${`Choose ${audit.name}`}>Choose</button></li>`;
  draw(one(".cmp-found"), message.sessions.length ? message.sessions.map(row) : html`<li class="hint">No audit matches.</li>`);
  one("#cmp-setup .more").textContent = message.more;
  picked();
};
const pick = (message) => {
  if (state.picked.length >= state.menu.most) return;
  const taken = state.picked.map((audit) => audit.branch);
  const free = message.branches.map(([id]) => id).find((id) => !taken.includes(id));
  const branch = taken.includes(message.branch) ? free : message.branch;
  if (branch === undefined) notice(`All branches of “${message.title}” are chosen already.`);
  else state.picked.push({ ...message, branch });
  picked();
};

/* ---- the address names what is shown, so that it can be kept as a link ---- */
const numbers = (text) => (text ? text.split(",").map((part) => (/^\d+$/.test(part) ? Number(part) : null)) : []);
const fromAddress = () => {
  const given = new URLSearchParams(location.search);
  const branches = numbers(given.get("branches"));
  const session = numbers(given.get("session"))[0];
  const sessions = given.has("sessions") ? numbers(given.get("sessions")) : branches.map(() => session);
  const chains = sessions.filter(Number.isInteger).map((id, at) => [id, Number.isInteger(branches[at]) ? branches[at] : null]);
  return { chains, set: numbers(given.get("set"))[0] };
};
const toAddress = () => {
  const ids = state.chains.map(([id]) => id);
  const alone = ids.length > 0 && new Set(ids).size === 1;
  const branches = ids.length ? state.chains.map(([, branch]) => branch).join(",") : null;
  /* in this order, whatever stood there before */
  readdress({ set: null, session: null, sessions: null, branches: null });
  readdress({ set: sets.shown() || null, session: alone ? ids[0] : null, sessions: ids.length && !alone ? ids.join(",") : null, branches });
};

/* ---- running and opening ---- */
const request = (name, data) => { phase({ begin: "beginning", run: "running", open: "opening" }[name]); state.wanted = send(name, data); };
const leave = () => { sets.close(); state.set = 0; };
const begin = async () => {
  if (busy()) return;
  const wrong = refusal();
  notice(wrong);
  if (wrong) return;
  if (state.mode === "set") { sets.begin(asked()); return; }
  phase("beginning");
  const { prompt, spans } = await editor.ready();
  if (!prompt.trim()) {
    phase("idle");
    notice(EMPTY);
    editor.focus();
    return;
  }
  state.written = true;
  leave();
  request("begin", { prompt, spans, ...asked() });
};
const open = (chains) => { notice(); state.written = false; request("open", { chains }); };
const go = () => {
  if (busy()) return;
  if (!state.open) request("run", { chains: state.chains });
  else if (state.mode !== "stored") begin();
  else { leave(); open(state.picked.map((audit) => [audit.session, audit.branch])); }
};
const show = (message) => {
  const started = state.phase === "beginning";
  Object.assign(state, {
    chains: message.columns.map((chain) => [chain.session, chain.branch]), unfinished: message.columns.some((chain) => !chain.finished),
    open: false, picked: message.columns.map((chain) => ({ ...chain, name: chain.line })),
  });
  notice();
  controls();
  lanes.show(message, started);
  toAddress();
  picked();
  /* the prompt of what is shown is a beginning for another run, unless something was typed meanwhile */
  if (!started && JSON.parse(editor.print())[0] === "") editor.load(message.prompt, message.spans, null);
  window.dispatchEvent(new Event("resize"));
  if (started) request("run", { chains: state.chains });
  else phase("idle");
};
const mismatch = (message) => {
  phase("idle");
  notice(`Column ${message.column + 1}: ${message.text}`,
    html`<button type="button" class="btn small" data-cmp="proceed" data-column=${message.column}>Proceed uncertified</button>`);
};
const discarded = () => {
  Object.assign(state, { chains: [], picked: [], open: true, written: false });
  lanes.clear();
  toAddress();
  picked();
  phase("idle");
};
const receive = (message) => {
  if (message.kind === "menu") {
    state.menu = message;
    if (!state.columns.length) state.columns = ["vanilla", "coft"].map(column);
    cards();
  } else if (message.kind === "found") { if (message.nonce === state.finding) found(message); }
  else if (message.kind === "picked") pick(message);
  else if (message.kind === "draft") {
    editor.load(message.prompt, message.spans, message.preview);
    carried();
  }
  else if (message.nonce !== state.wanted) return;
  else if (message.kind === "comparison") show(message);
  else if (message.kind === "mismatch") mismatch(message);
  else if (message.kind === "discarded") discarded();
  else if (message.kind === "frame") {
    if (!state.live) { state.live = true; controls(); }
    lanes.extend(message);
  }
};
const mode = (name) => {
  state.mode = name;
  controls();
  if (name === "stored") search();
  if (name === "set") sets.list();
};
const ACTIONS = {
  go,
  add: addColumn,
  mode: (node) => mode(node.dataset.mode),
  change: () => { state.open = !state.open; controls(); if (!state.open) window.dispatchEvent(new Event("resize")); },
  csv: () => send("csv", { chains: state.chains }),
  pause: () => { action("pause").disabled = true; send("pause", { chains: state.chains }); },
  discard: async () => {
    const yes = await confirm("Discard this run?", `Its ${state.chains.length} audits are deleted for good.`, "Discard");
    if (yes && !busy()) state.wanted = send("discard", { chains: state.chains });
  },
  remove: (node) => { state.columns.splice(Number(node.dataset.column), 1); cards("[data-cmp=add]"); },
  first: (node) => { state.columns.unshift(...state.columns.splice(Number(node.dataset.column), 1)); cards("#cmp-policy-0"); },
  proceed: (node) => { state.columns[Number(node.dataset.column)].proceed = true; begin(); },
  pick: (node) => send("pick", { session: Number(node.dataset.session) }),
  drop: (node) => { state.picked.splice(Number(node.dataset.picked), 1); picked(); one("#cmp-search").focus(); },
  numbers: lanes.numbers, image: lanes.image, only: lanes.filter,
};
const changed = (node) => {
  const { field: name, picked: place } = node.dataset || {};
  if (node.id === "cmp-search") searchSoon();
  else if (node.matches?.("[data-shared]")) summary();
  else if (name) changedColumn(node);
  else if (place && node.matches("select")) {
    state.picked[Number(place)].branch = Number(node.value);
    picked();
  }
};

const compare = {
  mount(element, trigger, props, watch) {
    root = element.querySelector("section");
    send = link(trigger, props, watch, receive);
    lanes.mount(root);
    act(document, ACTIONS, "cmp");
    document.addEventListener("input", ({ target }) => changed(target));
    onFailure(["begin", "open"], () => phase("idle"));
    /* what was written before a run broke off is stored */
    onFailure("run", () => { state.wanted = send("open", { chains: state.chains }); phase("opening"); });
    onFailure("menu", () => notice("The policies could not be read; load the page again."));
    summary();
    send("menu", {});
    const { chains, set } = fromAddress();
    if (Number.isInteger(set)) { Object.assign(state, { mode: "set", set }); sets.list(); sets.open(set); }
    else if (chains.length) { state.mode = "stored"; search(); }
    if (chains.length) open(chains); else controls();
    if (!chains.length && addressed("session") !== null) send("draft", { session: addressed("session") });
  },
};
sets.within({
  open, mismatch, notice,
  /* a comparison over a set opened or went; the chains of one of its prompts may have come before it */
  opened(set) {
    state.open = !set;
    if (!set || set !== state.set) { Object.assign(state, { chains: [], written: false }); lanes.clear(); }
    state.set = set;
    toAddress();
    controls();
  },
});
expose({ compare });
