/* What every module builds on: nodes, clicks, questions, and the link between the page and its server. */
"use strict";
window.coft = window.coft || {};

(() => {
  const coft = window.coft;

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

  /* ---- what is pressed ---- */
  coft.act = (node, table) => node.addEventListener("click", (event) => {
    const button = event.target.closest("[data-do]");
    if (button && table[button.dataset.do]) table[button.dataset.do](button);
  });
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
