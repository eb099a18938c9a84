/* The reviewer's name: asked once, kept in this browser, told to all parts of a page that sign or read with it, and to
   the server, whose long jobs belong to her; who has given none is told apart by a random key of the browser. On a server
   with accounts the account's name signs: the sign-in left it in a cookie, nobody is asked, and the server reads neither. */
import { answered, made } from "./core.js";
import { html } from "./vendor/lit-html.js";

const KEY = "coft-reviewer";
const LONGEST = 200;
const followers = [];
let known = null, dialog = null;

const clean = (text) => (text || "").split(/\s+/).filter(Boolean).join(" ").slice(0, LONGEST);
const stored = () => {
  try { return clean(localStorage.getItem(KEY)); } catch { return ""; }
};
const ACCOUNTS = document.querySelector("meta[name='coft-accounts']") !== null;
document.documentElement.toggleAttribute("data-accounts", ACCOUNTS);
const account = () => clean(decodeURIComponent(document.cookie.match(/(?:^|; )(?:__Host-)?coft-account=([^;]*)/)?.[1] ?? ""));
const name = () => {
  if (ACCOUNTS) return account();
  if (known === null) known = stored();
  return known;
};
const KEY_COOKIE = "coft-browser", DAYS = 400;
const cookie = (label, value) => {
  document.cookie = `${label}=${encodeURIComponent(value)}; path=/; max-age=${value ? DAYS * 86400 : 0}; samesite=lax`;
};
const sign = () => {
  if (ACCOUNTS) return;
  cookie(KEY, name());
  const kept = document.cookie.match(/(?:^|; )coft-browser=([0-9a-f]{32})(?:;|$)/)?.[1];
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  cookie(KEY_COOKIE, kept || [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join(""));
};
const tell = () => followers.forEach((follower) => follower(name()));
const keep = (text) => {
  const before = name();
  known = text;
  try { localStorage.setItem(KEY, known); } catch { /* private windows forget the name */ }
  sign();
  if (known !== before) tell();
};
const build = () => {
  dialog = made(html`<dialog id="reviewer" class="sheet coft" aria-labelledby="reviewer-title"><form method="dialog">
    <h2 id="reviewer-title">Who is reviewing?</h2>
    <p class="sub">Verdicts are signed with this name, in the log and in every report. This browser remembers it.</p>
    <div class="field"><label for="reviewer-name">Your name</label><input class="input" id="reviewer-name" autocomplete="name"
      maxlength=${LONGEST} required></div>
    <div class="row"><button type="button" class="btn" data-do="cancel">Cancel</button><button class="btn primary"
      value="yes">Use this name</button></div></form></dialog>`);
  document.body.append(dialog);
};

export const reviewer = {
  name,
  onChange: (follower) => followers.push(follower),
  /* asks in any case; gives the name that now holds, or "" where there is still none or nothing was decided */
  async ask() {
    if (ACCOUNTS) return name();
    if (!dialog) build();
    const field = dialog.querySelector("input");
    field.value = name();
    const answer = answered(dialog);
    field.select();
    const text = await answer === "yes" ? clean(field.value) : "";
    if (text) keep(text);
    return text;
  },
  needed: async () => name() || reviewer.ask(),
};
/* another tab of this browser may change the name */
window.addEventListener("storage", (event) => {
  if (event.key !== KEY) return;
  known = null;
  sign();
  tell();
});
sign();
