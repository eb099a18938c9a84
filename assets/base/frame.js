/* What every page has: the top bar, what was saved last, and a server that cannot be reached. */
import { account } from "./account.js";
import { address } from "./address.js";
import { bell } from "./bell.js";
import { act, addressed, download, expose, failed, perFrame, whenReady } from "./core.js";
import "./errors.js";
import { glossary, list } from "./glossary.js";
import { help, keys } from "./keys.js";
import { toggleTheme } from "./theme.js";
import { html, render } from "./vendor/lit-html.js";
import "./wide.js";

const LOST = "The program cannot be reached: it was stopped, or the network is down. Everything that was written is stored.";
const BACK = "The program can be reached again. Reload the page to continue; what you had typed is kept.";
const SIGNED_OUT = "You are signed out. Sign in again to go on; what is written is stored.";
const LEAVING_MS = 3000;
const real = window.fetch.bind(window);
const ending = [];
let box = null, leaving = false;

/* Gradio's own names: an upload field is called what it shows instead, and an empty chart has no role that takes a name */
const MISNAMED = ".upload-container[aria-label], .empty[aria-label='Empty value']";
const rename = perFrame(() => document.querySelectorAll(MISNAMED).forEach((node) => node.removeAttribute("aria-label")));
whenReady(() => new MutationObserver(rename).observe(document.body, { childList: true, subtree: true }));

export const frame = {
  mount(element) {
    element.querySelectorAll("dialog").forEach((dialog) => document.body.append(dialog));
    document.querySelectorAll("body > dialog").forEach((dialog) => dialog.classList.add("coft"));
    act(element, { theme: toggleTheme, help, words: list });
    glossary.mount(document.getElementById("words"));
    bell.mount(element);
    account.mount(element);
    address.mount(element.querySelector(".topbar"));
    document.documentElement.lang = "en";
    keys.add("?", help, "this sheet", { page: null });
  },
  saved(text) {
    const line = document.getElementById("saved");
    if (line) line.textContent = text || "";
  },
};
/* the parts of an audit share its prompt, spans and settings: their tabs lead to those of the session that is open */
let brought = null;
export const carried = () => {
  brought = addressed("session");
  document.body.classList.toggle("has-session", brought !== null);
};
document.addEventListener("click", ({ target }) => {
  const way = target.closest?.("a[data-carries]");
  const number = window.coft.session?.state().session ?? addressed("session") ?? brought;
  if (!way || number === null) return;
  const to = new URL(way.href);
  to.searchParams.set("session", number);
  way.href = to.href;
}, true);
/* parts of a page end what waits for an answer when the server is lost */
export const onLost = (run) => ending.push(run);

const away = () => box !== null && !box.hidden;
const say = (text, label) => {
  if (!box) {
    box = Object.assign(document.createElement("div"), { className: "coft lost", role: "alert" });
    document.body.append(box);
  }
  render(html`<span>${text}</span><button type="button" class="btn small" @click=${retry}>${label}</button>`, box);
  box.hidden = false;
  document.body.classList.add("is-lost");
};
const retry = async (event) => {
  const button = event.currentTarget;
  button.disabled = true;
  try {
    await real("./", { cache: "no-store", method: "HEAD" });
    location.reload();
  } catch {
    say(`Still not there. ${LOST}`, "Retry");
  } finally { button.disabled = false; }
};
const lose = () => {
  if (!away()) say(LOST, "Retry");
  // What was asked after it was said waits for an answer too.
  ending.forEach((run) => run());
};

/* a page that is left breaks off its own requests: who asked is told of it only if the page stays after all, since
   Gradio writes each into the console */
window.addEventListener("beforeunload", () => {
  leaving = true;
  setTimeout(() => { leaving = false; }, LEAVING_MS);
});
const unlessLeft = async (error) => {
  if (leaving) await new Promise((resolve) => { setTimeout(resolve, LEAVING_MS); });
  throw error;
};
const kept = (answer) => {
  if (!answer.body || !answer.headers.get("content-type")?.startsWith("text/event-stream")) return answer;
  const reader = answer.body.getReader();
  const body = new ReadableStream({
    async pull(stream) {
      const { done, value } = await reader.read().catch(unlessLeft);
      if (done) stream.close(); else stream.enqueue(value);
    },
    cancel: (reason) => reader.cancel(reason),
  });
  Object.defineProperty(answer, "body", { value: body });
  return answer;
};
/* an answer that never comes raises an error for who asked, whoever that was; a request that was given up does not */
window.fetch = async (input, init) => {
  const ours = String(input instanceof Request ? input.url : input).includes("/gradio_api/");
  try {
    const answer = await real(input, init);
    if (ours && answer.status === 401) say(SIGNED_OUT, "Sign in");
    else if (ours && away()) say(BACK, "Reload");
    return ours ? kept(answer) : answer;
  } catch (error) {
    if (ours && error instanceof TypeError && !document.hidden && !leaving) lose();
    return ours ? unlessLeft(error) : Promise.reject(error);
  }
};

expose({ frame, failed, download });
