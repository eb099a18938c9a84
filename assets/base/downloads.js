/* The menu of all that a session can be exported as, the same on every page; formal reports first ask who signs them. */
import { answered, expose, link, onFailure } from "./core.js";
import { menu } from "./menus.js";
import { reviewer } from "./reviewer.js";

let list = null, dialog = null, send = null, asked = null;

const say = (text) => { if (asked) asked.say(text); };
const write = (kind, told = {}) => {
  say("Writing the report …");
  send("export", { id: asked.session, kind, auditor: "", question: "", language: "en", annexes: "", ...told });
};
/* who signs a formal report and what it answers, or null when nothing was decided; gives the focus back */
const sign = async (from) => {
  const { auditor, question, language } = dialog.querySelector("form").elements;
  auditor.value ||= reviewer.name();
  const answer = answered(dialog);
  auditor.select();
  const annexes = () => [...dialog.querySelectorAll("[name=annex]:checked")].map((box) => box.value).join(",");
  const told = await answer === "yes"
    ? { auditor: auditor.value, question: question.value, language: language.value, annexes: annexes() } : null;
  if (from.isConnected) from.focus();
  return told;
};
const signed = async (kind, from) => {
  const told = await sign(from);
  if (told) write(kind, told);
};

export const downloads = {
  sign,
  mount(element, trigger, props, watch) {
    const panel = element.querySelector("#menu-download");
    dialog = element.querySelector("#formal");
    send = link(trigger, props, watch, () => {});
    /* beside the page's parts, so that nothing of theirs cuts off or hides a menu */
    const holder = Object.assign(document.createElement("div"), { className: "coft" });
    holder.append(panel, dialog);
    document.body.append(holder);
    list = menu(panel, (item, from) => {
      if ("formal" in item.dataset) signed(item.dataset.kind, from);
      else write(item.dataset.kind);
    });
    onFailure("download", () => say(""));
  },
  /* opens at a button for a session; `told` takes what is said of the file */
  open(button, session, told = () => {}) {
    asked = { session, say: told };
    list.open(button, () => {});
  },
  written() { say("The report is ready and is being downloaded."); },
};
expose({ downloads });
