/* The bell: the long jobs of this reviewer, on every page. It asks the server now and then, since a job goes on without
   its page; an end is said once, by the live region, the title and, where the reviewer allowed it, the system. */
import { act, expose, icon, perFrame, put, refocus } from "./core.js";
import { popup } from "./menus.js";
import { reviewer } from "./reviewer.js";
import { led } from "./title.js";
import { html, nothing, render } from "./vendor/lit-html.js";

const BUSY_MS = 1000;
const IDLE_MS = 5000;
const LOST_MS = 15000;
let button, panel, said, timer = null, asking = null, jobs = [], running = new Set();

const key = (job) => job.address;
const isRunning = (job) => job.status === "running";
const ended = (job) => `${job.kind} “${job.name}” ${job.status === "done" ? "is finished" : job.status === "failed" ? "failed" : `was ${job.ended}`}.`;

/* ---- the list ---- */
const row = (job) => html`<li data-status=${job.status}><p class="bell-name"><a href=${job.address}>${job.name}</a><span
  class="hint">${job.kind}</span></p>${isRunning(job)
  ? html`<div class="progress" role="progressbar" aria-valuemin="0" aria-valuemax="100" aria-valuenow=${job.percent}
      aria-label=${job.name}><i style=${`width:${job.percent}%`}></i></div><p class="hint tnum">${[`${job.percent} %`, job.said].filter(Boolean).join(", ")}</p>`
  : html`<p class="hint tnum">${job.status === "done" ? nothing : icon("tri")}${job.said}</p><button type="button" class="btn small quiet"
      data-do="dismiss" data-id=${job.ids.join(",")} aria-label=${`Dismiss ${job.name}`} title="Dismiss">${icon("cross")}</button>`}</li>`;
const asks = () => {
  if (!("Notification" in window) || !window.isSecureContext) return nothing;
  if (Notification.permission === "granted") return html`<p class="hint">This browser tells you of an end when the page is not in front.</p>`;
  if (Notification.permission === "denied") return html`<p class="hint">This browser blocks notifications of this page.</p>`;
  return html`<button type="button" class="btn small" data-do="notify">Notify me when a job ends</button>`;
};
const drawList = () => refocus(panel, () => render(html`<h2 tabindex="-1">Jobs</h2>${jobs.length
  ? html`<ul class="pile">${jobs.map(row)}</ul>` : html`<p class="hint">Calibrations, batches, evaluations and other long jobs that you begin are listed here.</p>`}
  <div class="bell-foot flow">${asks()}${jobs.some((job) => !isRunning(job))
    ? html`<button type="button" class="btn small quiet" data-do="dismiss-all">Dismiss what has ended</button>` : nothing}</div>`, panel),
() => panel.querySelector("h2"));

/* ---- what is told ---- */
const label = (going, news) => {
  const parts = [going && `${going} running`, news && `${news} ended and not seen`].filter(Boolean);
  return parts.length ? `Jobs: ${parts.join(", ")}` : "Jobs";
};
const tell = () => {
  const going = jobs.filter(isRunning), news = jobs.filter((job) => !isRunning(job) && !job.seen);
  const count = going.length + news.length, badge = button.querySelector(".bell-count");
  badge.hidden = count === 0;
  put(badge, count > 99 ? "99+" : String(count));
  button.toggleAttribute("data-news", news.length > 0);
  button.setAttribute("aria-label", label(going.length, news.length));
  const total = going.reduce((sum, job) => sum + job.percent, 0);
  led(news.length ? `${news[0].status === "done" ? "Done" : news[0].ended[0].toUpperCase() + news[0].ended.slice(1)}: ${news[0].name}`
    : going.length ? `${Math.round(total / going.length)} %` : "");
  if (panel.matches(":popover-open")) drawList();
};
const notify = (job) => {
  if (!("Notification" in window) || Notification.permission !== "granted" || document.hasFocus()) return;
  const note = new Notification(ended(job), { tag: `coft-${key(job)}`, body: job.status === "done" ? "Click to see the result." : job.said });
  note.addEventListener("click", () => { window.focus(); location.href = job.address; });
};
const receive = (told) => {
  const ends = told.filter((job) => !isRunning(job) && running.has(key(job)));
  jobs = told;
  running = new Set(told.filter(isRunning).map(key));
  if (ends.length) put(said, ends.map(ended).join(" "));
  ends.forEach(notify);
  tell();
  if (ends.length && panel.matches(":popover-open")) seen();
};

/* ---- the server ---- */
const later = (wait) => { clearTimeout(timer); timer = setTimeout(look, wait); };
/* the newest request counts: what was asked before it says less */
const ask = async (address, init = {}) => {
  asking?.abort();
  const request = asking = new AbortController();
  clearTimeout(timer);
  let wait = LOST_MS;
  try {
    const answer = await fetch(address, { ...init, signal: request.signal });
    if (answer.ok && asking === request) receive((await answer.json()).jobs);
    wait = running.size ? BUSY_MS : IDLE_MS;
  } catch { /* whoever waits for the server is told by the frame; the bell only asks again, unless it was asked again */ }
  if (asking !== request) return;
  asking = null;
  /* a page that nobody sees has nothing to follow unless a job is running */
  if (!document.hidden || running.size) later(wait);
};
const look = () => ask("./jobs");
const mark = (what, ids) => ask(`./jobs/${what}?ids=${ids.join(",")}`, { method: "POST" });
const seen = () => {
  const ids = jobs.filter((job) => !isRunning(job) && !job.seen).flatMap((job) => job.ids);
  if (ids.length) mark("seen", ids);
};
const dismiss = (ids) => mark("dismissed", ids);

export const bell = {
  mount(element) {
    button = element.querySelector("#bell");
    panel = element.querySelector("#bell-list");
    said = element.querySelector("#bell-said");
    popup(panel, () => button, true);
    panel.addEventListener("toggle", ({ newState }) => {
      if (newState !== "open") return;
      drawList();
      seen();
    });
    act(panel, {
      dismiss: (node) => dismiss(node.dataset.id.split(",")),
      "dismiss-all": () => dismiss(jobs.filter((job) => !isRunning(job)).flatMap((job) => job.ids)),
      notify: async () => { await Notification.requestPermission(); drawList(); },
    });
    document.addEventListener("visibilitychange", () => { if (!document.hidden) look(); });
    window.addEventListener("pagehide", () => { clearTimeout(timer); asking?.abort(); asking = null; });
    window.addEventListener("pageshow", ({ persisted }) => { if (persisted) look(); });
    reviewer.onChange(() => { running = new Set(); look(); });
    look();
  },
  /* a job may just have begun */
  look: perFrame(() => { if (button) look(); }),
};
expose({ bell });
