/* Keys and what they do. All of them are registered here, so that the help sheet lists exactly those that work. */
"use strict";
(() => {
  const coft = window.coft;
  const NAMES = { ArrowLeft: "←", ArrowRight: "→", ArrowUp: "↑", ArrowDown: "↓", " ": "space" };
  const TOPICS = ["Transcript", "Branches", "Verdict", "Prompt", "Page"];
  const entries = [];

  /* whether a key means text, a choice or a control's own movement where it was pressed */
  coft.typing = (node) => Boolean(node instanceof Element
    && node.closest("input, textarea, select, [contenteditable=true], [role=listbox], [role=slider], [role=tree], [role=menu], [popover], dialog[open]"));
  const pressing = (node) => node instanceof Element && node.closest("a, button, summary, label") && !node.closest(".strip");

  /* "Shift+" counts for letters and named keys; a sign such as "?" has it already */
  const nameOf = (event) => {
    const letter = event.altKey ? event.code.replace(/^Key/, "") : event.key.length === 1 ? event.key.toUpperCase() : event.key;
    const shift = event.shiftKey && (letter.length > 1 || /[A-Z]/.test(letter));
    return `${event.ctrlKey || event.metaKey ? "Ctrl+" : ""}${event.altKey ? "Alt+" : ""}${shift ? "Shift+" : ""}${letter}`;
  };
  const present = (entry) => !entry.page || document.querySelector(entry.page) !== null;
  const allowed = (entry, event) => {
    if (entry.within) return event.target instanceof Element && event.target.closest(entry.within) !== null;
    return !coft.typing(event.target) && !(entry.keys.includes(" ") && pressing(event.target));
  };

  coft.keys = {
    /* `key`: one key or several, as "ArrowLeft", "N", "Shift+N", "Alt+M", "Ctrl+Z". `action` gets the event; it returns
       false to leave the key to the browser, and is null where a control handles the key itself. Options: `topic` for
       the help sheet, `page`: selector of what must be there (null: every page), `within`: selector of the fields in
       which alone the key counts, `shown`: what the sheet prints instead. */
    add(key, action, description, { topic = "Page", page = ".audit", within = null, shown = null } = {}) {
      const keys = [].concat(key).map((name) => (name.length === 1 ? name.toUpperCase() : name));
      entries.push({ keys, action, description, topic, page, within, shown });
    },
    /* what works on this page, for the help sheet and for tests */
    list: () => entries.filter(present),
  };

  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.isComposing || document.querySelector("dialog[open]")) return;
    const name = nameOf(event);
    for (const entry of entries) {
      if (!entry.action || !entry.keys.includes(name) || !present(entry) || !allowed(entry, event)) continue;
      if (entry.action(event) !== false) { event.preventDefault(); return; }
    }
  });

  /* ---- the help sheet ---- */
  const cap = (part) => (part === "to" ? " to " : coft.el("kbd", { text: NAMES[part] || part }));
  const caps = (entry) => {
    const shown = entry.shown || entry.keys.flatMap((key) => (key.length > 1 ? key.split("+") : [key]));
    return shown.flatMap((part, at) => [at && part !== "to" && shown[at - 1] !== "to" ? " " : "", cap(part)]);
  };
  const group = (topic) => {
    const own = coft.keys.list().filter((entry) => entry.topic === topic);
    return own.length ? [coft.el("section", {}, coft.el("h3", { text: topic }), coft.el("dl", { class: "keys" },
      ...own.map((entry) => coft.el("div", {}, coft.el("dt", {}, ...caps(entry)), coft.el("dd", { text: entry.description })))))] : [];
  };
  coft.help = () => {
    const sheet = document.getElementById("help");
    const others = coft.keys.list().map((entry) => entry.topic).filter((topic) => !TOPICS.includes(topic));
    sheet.querySelector(".topics").replaceChildren(...[...TOPICS, ...new Set(others)].flatMap(group));
    sheet.showModal();
  };
  coft.keys.add("[", () => coft.frame.toggleRail(), "hide or show the settings", { topic: "Page" });
  coft.keys.add("?", () => coft.help(), "this sheet", { topic: "Page", page: null });
})();
