/* The page of paths: the prompt with its spans is sent with the form when a run begins; all else comes as markup. */
import { bell } from "../base/bell.js";
import { addressed, cautions, expose, link, onFailure } from "../base/core.js";
import { editor } from "../base/editor.js";
import { carried } from "../base/frame.js";
import "../base/lists.js";
import { choice, look, onSettings } from "../base/rail.js";

let send, waiting = false;

const button = () => document.getElementById("run");
const run = async () => {
  /* one click, one run */
  if (waiting || !send) return;
  waiting = true;
  const { prompt, spans } = await editor.ready();
  send("run", { prompt, spans });
  bell.look();
  setTimeout(() => { waiting = false; }, 500);
};
const receive = (message) => {
  if (message.settings) document.body.dataset.ready = "";
  if (message.kind === "draft") {
    editor.load(message.prompt, message.spans, message.preview, choice(message.settings), look(message.settings));
    const list = document.querySelector("#editor .cautions");
    if (list) cautions(list, message.notes);
    carried();
  }
};
/* which beginning is looked at is marked here, since drawing the picture again would take the focus away */
document.addEventListener("click", ({ target }) => {
  const chosen = target.closest("[data-do=node]");
  if (!chosen) return;
  document.querySelectorAll("[data-do=node]").forEach((node) => {
    if (node.dataset.id === chosen.dataset.id) node.setAttribute("aria-current", "true");
    else node.removeAttribute("aria-current");
  });
});
onSettings((values) => {
  editor.chosen(choice(values), look(values));
});
expose({
  paths: {
    run,
    mount(trigger, props, watch) {
      send = link(trigger, props, watch, receive);
      onFailure("run", () => button()?.focus());
      onFailure("open", () => {
        if (!("ready" in document.body.dataset) && addressed("session") !== null) send("open", { session: null });
      });
      send("open", { session: addressed("session") });
    },
  },
});
