/* Shared helpers, the theme, the top bar, and the link between the page and its server. */
"use strict";
window.coft = window.coft || {};

(() => {
  const coft = window.coft;
  const THEME_KEY = "coft-theme";

  /* the head's scripts may run before or after the document is there */
  coft.whenReady = (run) => {
    if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", run, { once: true });
    else run();
  };

  /* ---- markup ---- */
  coft.el = (tag, attributes = {}, ...children) => {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (value === null || value === undefined || value === false) continue;
      if (name === "text") node.textContent = value;
      else node.setAttribute(name, value === true ? "" : value);
    }
    node.append(...children.filter((child) => child !== null && child !== undefined));
    return node;
  };
  coft.icon = (name) => {
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    svg.setAttribute("class", "icon");
    svg.setAttribute("aria-hidden", "true");
    const use = document.createElementNS("http://www.w3.org/2000/svg", "use");
    use.setAttribute("href", `#i-${name}`);
    svg.append(use);
    return svg;
  };
  coft.svg = (tag, attributes) => {
    const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    return node;
  };
  coft.shown = (token) => {
    const text = token.length > 1 && token.startsWith(" ") ? token.slice(1) : token;
    const visible = text.replace(/\n/g, "↵").replace(/\t/g, "→");
    return visible.trim() ? visible : "␣".repeat(Math.max(1, text.length));
  };

  /* ---- messages to and from the server ---- */
  let nonce = 0;
  coft.link = (trigger, props, watch, receive) => {
    let last = null;
    watch("value", () => {
      /* a message of many parts comes as text, which Gradio neither compares nor copies part by part */
      const value = props.value;
      const message = typeof value === "string" && value.startsWith("{") ? JSON.parse(value) : value;
      if (!message || typeof message !== "object" || message.at === last) return;
      last = message.at;
      receive(message);
    });
    return (name, data) => {
      nonce += 1;
      trigger(name, { ...data, nonce });
      return nonce;
    };
  };
  const failures = {};
  coft.onFailure = (name, handler) => { failures[name] = handler; };
  coft.failed = (name) => failures[name] && failures[name]();
  coft.download = (id) => {
    const seek = (left) => {
      const holder = document.getElementById(id);
      const link = holder && (holder.matches("a[href]") ? holder : holder.closest("a[href]") || holder.querySelector("a[href]"));
      if (link) link.click();
      else if (holder && left === 0) holder.click();
      else if (left > 0) requestAnimationFrame(() => seek(left - 1));
    };
    seek(30);
  };

  /* ---- theme: the system's until the reviewer chooses ---- */
  const wanted = () => {
    try { return localStorage.getItem(THEME_KEY); } catch { return null; }
  };
  const system = () => (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  coft.theme = () => (document.body && document.body.classList.contains("dark") ? "dark" : "light");
  coft.setTheme = (mode) => {
    document.documentElement.style.colorScheme = mode;
    if (document.body) document.body.classList.toggle("dark", mode === "dark");
  };
  const settle = () => {
    const mode = wanted() || system();
    if (coft.theme() !== mode) coft.setTheme(mode);
  };
  document.documentElement.style.colorScheme = wanted() || system();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", settle);
  const themed = [];
  coft.onTheme = (handler) => themed.push(handler);
  coft.whenReady(() => {
    settle();
    let shown = coft.theme();
    new MutationObserver(() => {
      if (wanted()) settle();
      if (coft.theme() === shown) return;
      shown = coft.theme();
      themed.forEach((handler) => handler(shown));
    }).observe(document.body, { attributes: true, attributeFilter: ["class"] });
  });
  const toggleTheme = () => {
    const mode = coft.theme() === "dark" ? "light" : "dark";
    try { localStorage.setItem(THEME_KEY, mode); } catch { /* private windows forget the choice */ }
    coft.setTheme(mode);
  };

  /* ---- frame ---- */
  const toggleRail = () => {
    const audit = document.querySelector(".audit");
    if (!audit) return;
    const narrow = matchMedia("(max-width: 1080px)").matches;
    audit.classList.toggle(narrow ? "rail-drawn" : "rail-folded");
    document.querySelectorAll("[data-do=rail]").forEach((button) => button.setAttribute("aria-expanded",
      String(narrow ? audit.classList.contains("rail-drawn") : !audit.classList.contains("rail-folded"))));
    window.dispatchEvent(new Event("resize"));
  };
  const act = (node, table) => node.addEventListener("click", (event) => {
    const button = event.target.closest("[data-do]");
    if (button && table[button.dataset.do]) table[button.dataset.do](button);
  });
  coft.act = act;
  coft.frame = {
    mount(element) {
      element.querySelectorAll("dialog").forEach((dialog) => document.body.append(dialog));
      document.querySelectorAll("body > dialog").forEach((dialog) => dialog.classList.add("coft"));
      act(element, { theme: toggleTheme, help: () => coft.help() });
      document.documentElement.lang = "en";
    },
    rail(element) {
      act(element, { rail: toggleRail });
      new MutationObserver((records) => {
        if (records.some((r) => r.target.closest && r.target.closest(".note"))) coft.frame.summary(coft.frame.values);
      }).observe(element.closest(".rail"), { childList: true, subtree: true });
      /* folds may be drawn after the rail's head, or anew: what they need is set whenever something came or changed */
      const folds = () => {
        document.querySelectorAll(".fold .label-wrap").forEach((fold) => {
          const open = String(fold.classList.contains("open"));
          if (fold.getAttribute("aria-expanded") !== open) fold.setAttribute("aria-expanded", open);
        });
        if (document.querySelector(".rail .fold .label-wrap:not([data-summary])")) coft.frame.summary(coft.frame.values);
      };
      let queued = false;
      /* the parts that change with every token hold no fold */
      const BUSY = "#transcript, #inspector, .js-plotly-plot, #js-plotly-tester";
      new MutationObserver((records) => {
        if (queued || records.every((r) => r.target.closest(BUSY))) return;
        queued = true;
        requestAnimationFrame(() => { queued = false; folds(); });
      }).observe(document.body, { childList: true, subtree: true, attributes: true, attributeFilter: ["class"] });
      folds();
    },
    line(element) { act(element, { rail: toggleRail }); },
    toggleRail,
    summary(values) {
      if (!values) return [];
      coft.frame.values = values;
      const [model, key, , lam, alpha, temperature, topP, topK, greedy, sentinel, steps, seed, userList, , mask, attribute, mode, , whitelist, , parameters] = values;
      const rail = document.querySelector(".rail");
      const info = coft.parameters.info(key);
      if (rail) Object.assign(rail.dataset, { policy: key, mask, mode, fuses: info.fuses, certifies: info.certifies, layouts: info.layouts.length });
      const folded = [
        `${greedy ? "greedy" : `T ${Number(temperature).toFixed(1)}`}, top-p ${Number(topP)}${Number(topK) ? `, top-k ${topK}` : ""}`,
        `${mode}${sentinel ? `, ${sentinel}` : ""}${Number(userList) ? ", word list" : ""}${whitelist ? ", some kept" : ""}`,
        `${steps} steps, ${seed}`,
      ];
      document.querySelectorAll(".rail .fold .label-wrap").forEach((node, at) => { node.dataset.summary = folded[at] || ""; });
      const masks = { joint: "joint mask", single: `${attribute} alone`, factorized: "factorized masks" };
      const line = document.querySelector(".summaryline");
      if (!line) return [];
      const note = document.querySelector(".rail .note .badge");
      line.replaceChildren(
        coft.el("button", { type: "button", class: "btn small", "data-do": "rail" }, coft.icon("rail"), "Settings"),
        coft.el("span", { text: String(model) }),
        coft.el("span", { text: info.layouts.length > 1 ? `${info.name}, ${masks[mask]}` : info.name }),
        ...coft.parameters.words(key, parameters).map((text) => coft.el("span", { text })),
        ...(info.fuses ? [coft.el("span", { text: `λ ${Number(lam).toFixed(2)}` })] : []),
        ...(info.certifies ? [coft.el("span", { text: `α ${Number(alpha).toFixed(Number(alpha) < 0.01 ? 3 : 2)}` })] : []),
        ...(note ? [note.cloneNode(true)] : []));
      return [];
    },
    saved(text) {
      const line = document.getElementById("saved");
      if (line) line.textContent = text || "";
    },
  };
  coft.settings = (values) => {
    coft.frame.summary(values);
    coft.session.settings(values);
    return [];
  };
  coft.confirm = (title, text, yes) => new Promise((resolve) => {
    const dialog = document.getElementById("confirm");
    dialog.querySelector("h2").textContent = title;
    dialog.querySelector("p").textContent = text;
    dialog.querySelector("[value=yes]").textContent = yes;
    dialog.returnValue = "no";
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true });
    dialog.showModal();
  });
})();
