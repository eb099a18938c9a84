/* The chain at another lambda or alpha: two sliders, a strip of marks, a table, and two ways to go on. */
import { act, cautions, draw, expose, icon, link, onFailure, pausing, put, refocus } from "../base/core.js";
import { html, nothing, render } from "../base/vendor/lit-html.js";
import { session } from "./audit_session.js";

/* at once, since only one request is ever under way and the newest wish follows it */
const SLIDE = 0;
const TYPE = 350;
const GROW = 400;
const PATIENCE = 15000;
const KNOBS = { lam: ["Lambda is a number from 0 to 1.", 0, 1], alpha: ["Alpha is a number above 0 and below 1.", 0.0001, 0.9999] };
const NAMES = Object.keys(KNOBS);
/* what is wished: null is the audit's own value */
const wish = { lam: null, alpha: null };
let root, send, last = null, newest = 0, flight = null, wanted = false, shownFor = null, steps = -1, leaving = null, came = null;

const find = (selector) => root.querySelector(selector);
const range = (name) => find(`#reread-${name}`);
const box = (name) => find(`#reread-${name}-number`);
const now = () => session.state();
const fits = (message, state) => message && message.session === state.session && message.branch === state.branch;

/* ---- the strip with its marks: the cards are the transcript's; new ones get their marks with the next answer ---- */
const SIGNS = { other: "≠", forced: "≠" };
const ICONS = { lost: "cross", gained: "tick" };
const signs = ({ t = "", c = "" }) => html`${t ? html`<b>${SIGNS[t]}</b>` : nothing}${c ? icon(ICONS[c]) : nothing}`;
const strip = ({ cards, selected }, message) => {
  const { marks, first } = message || { marks: [], first: null };
  const known = new Map(marks.map((mark) => [mark.i, mark]));
  draw(find(".restrip"), cards.map(({ i, w }) => {
    const mark = known.get(i);
    const classes = [first !== null && i > first && "after", i === first && "first", i === selected && "sel"].filter(Boolean);
    return html`<span class=${["rt", ...classes].join(" ")} data-i=${i} data-mark=${mark ? `${mark.t} ${mark.c}` : ""}
      title=${mark ? mark.sr : ""}><span class="mk" dir="ltr">${mark ? signs(mark) : nothing}</span><span
      class="w">${w}</span></span>`;
  }));
};

/* ---- the table of what differs ---- */
const signed = (kind, text) => html`${kind ? html`<span class="mk" aria-hidden="true">${signs(SIGNS[kind] ? { t: kind } : { c: kind })}</span>` : nothing}${text}`;
const row = (first, selected) => ({ i, step, written, t, would, then, c, now: reads, id }) => html`<tr data-i=${i}
  class=${`${i === first ? "first" : ""}${i === selected ? " chosen" : ""}`}><td class="n"><button type="button" class="link goto tnum" data-go=${i}
  aria-current=${String(i === selected)} aria-label=${`Select step ${step}`}>${step}</button></td><td class="mono">${written}</td><td
  class=${t === "other" ? "mono would" : "sub"}>${signed(t, would)}</td><td class="sub">${then}</td><td class=${c ? "" : "sub"}>${signed(c, reads)}</td><td
  class="act">${id === null ? nothing : html`<button type="button" class="btn small forkit" data-fork=${i} ?disabled=${leaving !== null}
  aria-label=${`Fork at step ${step} with ${would}`}>Fork</button>`}</td></tr>`;
const table = ({ selected }, message) => {
  find(".differing").hidden = message.rows.length === 0;
  find(".more").hidden = !message.more;
  put(find(".more"), message.more);
  const body = find(".differing tbody");
  refocus(body, () => draw(body, message.rows.map(row(message.first, selected))));
};

/* ---- asking: one request at a time, the newest wish next, so that no late answer meets a newer one ---- */
const ask = () => {
  const state = now();
  soon.cancel();
  if (state.session === null || !state.cards.length || leaving) return;
  if (flight && (flight.slow || performance.now() - flight.at < PATIENCE)) { wanted = true; return; }
  wanted = false;
  steps = state.cards.length;
  const mine = { nonce: send("reread", { session: state.session, branch: state.branch, ...wish }), at: performance.now() };
  flight = mine;
  /* an answer that a slow browser has dropped is asked for again */
  setTimeout(() => { if (flight === mine && !mine.slow) { flight = null; ask(); } }, PATIENCE);
};
const soon = pausing(ask, TYPE);
const unlessSoon = (wait) => { if (!soon.waiting()) soon(wait); };
const landed = () => {
  flight = null;
  if (wanted || now().cards.length !== steps) unlessSoon(wanted ? 0 : GROW);
};

/* ---- the controls ---- */
const share = (name, value) => {
  const { min, max } = range(name);
  return Math.max(0, Math.min(100, ((value - min) / (max - min)) * 100));
};
/* both controls of a value; what is being typed is left as it is typed */
const set = (name, value, typed = false) => {
  range(name).value = value;
  range(name).style.setProperty("--at", `${share(name, value)}%`);
  if (!typed && (document.activeElement !== box(name) || Number(box(name).value) !== value)) box(name).value = value;
  box(name).removeAttribute("aria-invalid");
};
const own = (name) => last.own[NAMES.indexOf(name)];
const moved = () => NAMES.some((name) => wish[name] !== null);
const want = (name, value, wait) => {
  wish[name] = last && value === own(name) ? null : value;
  wrong();
  soon(wait);
  find("[data-do=reset]").disabled = !moved();
};
const wrong = () => {
  const text = NAMES.filter((name) => box(name).getAttribute("aria-invalid")).map((name) => KNOBS[name][0]).join(" ");
  find(".wrong").hidden = !text;
  put(find(".wrong"), text);
};
const typed = (name) => {
  const [, low, high] = KNOBS[name], text = box(name).value, value = Number(text);
  if (text.trim() !== "" && value >= low && value <= high) {
    set(name, value, true);
    want(name, value, TYPE);
    return;
  }
  box(name).setAttribute("aria-invalid", "true");
  wrong();
};
const slid = (name) => {
  const value = Number(range(name).value);
  set(name, value);
  /* where the model has to run, only for a value on which the slider rests */
  want(name, value, last && last.source ? TYPE : SLIDE);
};
const reset = () => {
  if (!last) return;
  NAMES.forEach((name) => { wish[name] = null; if (own(name) !== null) set(name, own(name)); });
  wrong();
  find("[data-do=reset]").disabled = true;
  ask();
};
const controls = () => {
  NAMES.forEach((name) => {
    const value = own(name), none = value === null;
    range(name).disabled = box(name).disabled = none;
    find(`[data-knob=${name}]`).classList.toggle("none", none);
    if (none) { put(find(`#reread-${name}-hint`), "No threshold is applied in this audit, so there is no alpha to change."); return; }
    if (name === "alpha") put(find("#reread-alpha-hint"), "How often a true next word may be missed.");
    range(name).parentElement.style.setProperty("--own", share(name, value) / 100);
    range(name).parentElement.title = `the audit’s own: ${value}`;
    if (wish[name] === null && !box(name).getAttribute("aria-invalid")) set(name, value);
  });
  find("[data-do=reset]").disabled = !moved();
};

/* ---- the answer ---- */
const answer = (message) => {
  const offers = find(".madefor"), badge = find(".standing .badge");
  offers.hidden = message.offers.length < 2 && !message.offers.some((offer) => offer.lam !== message.own[0]);
  render(message.offers.map(({ lam, t, n }) => html`<button type="button" class="btn small quiet" data-offer=${lam}
    aria-pressed=${String(lam === message.lam)}><b>${t}</b>${` ${n}`}</button>`), offers);
  badge.className = `badge ${message.state[0]}`;
  const texts = {
    ".told-now .token": message.moved ? message.token : "These are the audit’s own values. Move a slider to read the text at others.",
    ".told-now .certificate": message.certificate, ".reach": [message.reach, message.source].filter(Boolean).join(" "),
    ".standing .badge": message.state[1], ".standing .words": message.told,
  };
  Object.entries(texts).forEach(([selector, text]) => put(find(selector), text));
  /* what stands with the session already is not said again */
  const said = now().warnings;
  cautions(find(".cautions"), message.notes.filter((note) => !said.includes(note)));
};

/* ---- going on ---- */
const target = (state) => {
  if (!fits(last, state)) return null;
  const forkable = last.rows.filter((found) => found.id !== null);
  return forkable.find((found) => found.i === state.selected) || forkable.find((found) => found.i === last.first) || null;
};
const onward = (state) => {
  const known = fits(last, state) && last.moved;
  find(".onward").hidden = !known && !leaving;
  if (!known) return;
  const differing = target(state), blocked = leaving !== null;
  const [fork, depart] = ["fork", "depart"].map((name) => find(`[data-do=${name}]`));
  fork.disabled = blocked || differing === null;
  put(fork, differing ? `Fork with “${differing.would}” at step ${differing.step}` : "Fork with this token");
  put(fork.nextElementSibling, differing ? `A branch of this audit with that one token forced. It goes on with this audit’s own ${last.own_text}.`
    : "No token is known to differ, so there is nothing to force.");
  depart.disabled = blocked;
  put(depart, `New audit with ${last.now_text}`);
  put(depart.nextElementSibling, last.renewal);
};
/* why the audit cannot be left or forked just now; empty if it can */
const blocking = (state) => {
  if (state.touched) return "The prompt or the settings above were changed; go back to this audit first.";
  return state.busy !== null ? "This audit is busy; pause it, or wait until it has ended." : "";
};
const free = () => {
  const why = blocking(now());
  find(".blocked").hidden = !why;
  put(find(".blocked"), why);
  return !why;
};
const fork = (index) => {
  const differing = fits(last, now()) && last.rows.find((found) => found.i === index);
  if (differing && differing.id !== null && free()) session.force(differing.id, differing.i);
};
const working = (text = "") => {
  find(".working").hidden = !text;
  put(find(".working .words"), text);
  find("[data-do=halt]").disabled = !leaving || leaving.made === null;
  show(now());
};
const depart = () => {
  const state = now();
  if (leaving || !fits(last, state) || !free()) return;
  leaving = { session: state.session, branch: state.branch, made: null };
  leaving.nonce = send("depart", { session: state.session, branch: state.branch, lam: last.lam, alpha: last.alpha });
  working("Beginning the new audit …");
};
const visit = (number, branch) => { if (free()) session.open({ session: number, branch }); };
const arrived = (message) => {
  const { session: number, branch } = leaving, state = now();
  leaving = null;
  came = { session: message.session, from: number, branch, text: message.text };
  working();
  /* whoever has gone elsewhere meanwhile is not taken away from there */
  if (fits({ session: number, branch }, state) && !blocking(state)) visit(message.session, message.branch);
  else came.offer = message.branch;
  arrival(state);
};
const arrival = (state) => {
  const line = find(".came");
  const here = came && state.session === came.session;
  line.hidden = !here && !(came && state.session === came.from && came.offer !== undefined);
  if (line.hidden) return;
  draw(line, html`<span>${here ? came.text : "The new audit is written."}</span><button type="button" class="btn small"
    data-do=${here ? "return" : "visit"}>${here ? `Back to audit ${came.from}` : `Open audit ${came.session}`}</button>`);
};

/* ---- messages ---- */
const show = (state) => {
  const known = fits(last, state);
  strip(state, known ? last : null);
  if (known) table(state, last);
  onward(state);
};
const bodies = (body, why) => { find(".body").hidden = !body; find("p.why").hidden = !why; };
/* the model runs, which may take longer than any answer that was kept */
const waiting = (message) => {
  if (!flight || message.nonce !== flight.nonce) return;
  flight.slow = true;
  const shown = !find(".body").hidden;
  if (!shown) bodies(false, true);
  put(find(shown ? ".told-now .token" : "p.why"), message.text);
};
const receive = (message) => {
  if (message.kind === "waiting") { waiting(message); return; }
  if (message.kind === "departing" || message.kind === "departed") {
    if (!leaving || message.nonce !== leaving.nonce) return;
    leaving.made = message.session;
    if (message.kind === "departed") arrived(message);
    else working(message.text);
    return;
  }
  /* a slow answer still counts where none that was asked for later has come before it */
  if (message.nonce <= newest) return;
  newest = message.nonce;
  if (flight && message.nonce >= flight.nonce) landed();
  const state = now();
  if (!fits(message, state)) return;
  if (message.kind === "refused") {
    const kept = moved() && last;
    if (kept) find(".wrong").hidden = false;
    else { last = null; bodies(false, true); }
    put(find(kept ? ".wrong" : "p.why"), message.text);
    return;
  }
  last = message;
  bodies(true, false);
  wrong();
  controls();
  answer(message);
  show(state);
};
const follow = (state) => {
  root.hidden = state.session === null || state.cards.length === 0;
  arrival(state);
  /* what is folded asks for nothing */
  if (root.hidden || !find("details").open) return;
  if (shownFor === null || shownFor.session !== state.session) {
    NAMES.forEach((name) => { wish[name] = null; box(name).removeAttribute("aria-invalid"); });
    last = null;
    bodies(false, false);
    wrong();
  }
  const other = shownFor === null || !fits(shownFor, state);
  shownFor = { session: state.session, branch: state.branch };
  if (other) { wanted = flight !== null; unlessSoon(0); }
  else if (steps !== state.cards.length && !flight) unlessSoon(moved() || !state.busy ? GROW : 4 * GROW);
  if (find(".body").hidden) return;
  show(state);
};

const rereading = {
  mount(element, trigger, props, watch) {
    root = element.querySelector("section");
    send = link(trigger, props, watch, receive);
    NAMES.forEach((name) => {
      range(name).addEventListener("input", () => slid(name));
      box(name).addEventListener("input", () => typed(name));
    });
    root.addEventListener("click", ({ target: at }) => {
      const offer = at.closest("[data-offer]"), forked = at.closest("[data-fork]"), hit = at.closest("tr[data-i], .restrip [data-i]");
      if (offer) { set("lam", Number(offer.dataset.offer)); want("lam", Number(offer.dataset.offer), 0); }
      else if (forked) fork(Number(forked.dataset.fork));
      else if (hit) session.select(Number(hit.dataset.i), false);
    });
    act(root, {
      reset, depart,
      fork: () => { const differing = target(now()); if (differing) fork(differing.i); },
      halt: () => { if (leaving && leaving.made !== null) send("halt", { session: leaving.made }); },
      return: () => visit(came.from, came.branch),
      visit: () => visit(came.session, came.offer),
    });
    onFailure("reread", landed);
    onFailure("depart", () => { leaving = null; working(); });
    find("details").addEventListener("toggle", () => follow(now()));
    session.watch(follow);
  },
};
expose({ rereading });
