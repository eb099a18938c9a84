/* The tree of branches: where the shown one stands, and what can be done with each. */
"use strict";
(() => {
  const coft = window.coft;
  const MOST_COMPARED = 8;
  const MOST_CRUMBS = 3;
  const PAUSE = 250;
  let send, panel = null, menu = null, session = null, since = 0, newest = 0, asking = 0, renaming = null, target = null;
  let drawn = { at: 0, key: "" }, timer = null;

  const state = () => coft.session.state();
  const tree = () => (state().crumbs && state().crumbs.tree) || [];
  const byId = (id) => tree().find((node) => node.id === id);
  const find = (selector) => panel.querySelector(selector);
  const tell = (text) => { find(".told").textContent = text; };
  const say = (name, data) => send(name, { session: state().session, shown: state().branch, ...data });
  /* of several answers with a tree, only the last one that was asked for counts */
  const ask = (name, data = {}) => { newest = say(name, data); return newest; };

  /* ---- crumbs ---- */
  const node = (item) => {
    const word = coft.el("span", { class: item.name ? null : "mono", text: item.name || item.token });
    const inner = item.step === null ? [item.token] : [coft.icon("pin"), String(item.step), " ", word];
    return item.on ? coft.el("span", { class: "node on", "aria-current": "true" }, ...inner)
      : coft.el("button", { type: "button", class: "node", "data-branch": item.id }, ...inner);
  };
  const crumbsInto = (bar, crumbs, { cards }) => {
    const parts = [];
    crumbs.path.forEach((item, at) => {
      if (at) parts.push(coft.el("span", { class: "sep", "aria-hidden": "true", text: "/" }));
      parts.push(node(item));
    });
    const side = coft.el("span", { class: "sib" });
    const other = (item, pinned) => (pinned ? node({ ...item, on: false })
      : coft.el("button", { type: "button", class: "node", "data-branch": item.id }, coft.el("span", { class: item.name ? null : "mono", text: item.name || item.token })));
    const few = (items, pinned) => {
      side.append(...items.slice(0, MOST_CRUMBS).map((item) => other(item, pinned)));
      const left = items.length - MOST_CRUMBS;
      if (left > 0) side.append(coft.el("button", { type: "button", class: "node", "data-do": "unfold-tree", text: `${left} more` }));
    };
    if (crumbs.parent !== null && crumbs.at !== null) {
      const card = cards[crumbs.at];
      side.append(coft.el("span", { class: "hint", text: `siblings at ${crumbs.at + 1}` }),
        coft.el("button", { type: "button", class: "node", "data-branch": crumbs.parent },
          card && card.pt !== card.w ? coft.el("span", { class: "mono", text: card.pt }) : null,
          coft.el("span", { class: "hint", text: card && card.pt !== card.w ? " COFT’s choice" : "the chain before" })));
      few(crumbs.siblings, false);
    }
    if (crumbs.children.length) {
      side.append(coft.el("span", { class: "hint", text: "leads to" }));
      few(crumbs.children, true);
    }
    if (crumbs.path.length > 1 || crumbs.children.length) bar.replaceChildren(...parts, side);
    else bar.replaceChildren();
  };

  /* ---- the panel ---- */
  const family = (id) => {
    const own = byId(id);
    if (!own) return [];
    const peers = tree().filter((other) => (own.step === null ? other.owner === id : other.owner === own.owner && other.step === own.step));
    const first = own.step === null ? [id] : [own.owner, id];
    return [...new Set([...first, ...peers.map((other) => other.id)])].slice(0, MOST_COMPARED);
  };
  const comparison = (ids) => `./compare?session=${state().session}&branches=${ids.join(",")}`;
  const render = () => {
    timer = null;
    if (!panel) return;
    const { branch, cards, crumbs, finished } = state();
    const own = crumbs ? byId(branch) : null;
    panel.hidden = !own;
    if (!own) return;
    own.length = cards.length;
    own.end = finished || "";
    const all = tree();
    find(".title").textContent = `Branches (${all.length})`;
    find(".alone").hidden = all.length > 1;
    find(".tree").hidden = all.length < 2;
    const link = find(".siblings");
    const ids = family(branch);
    link.hidden = ids.length < 2;
    link.href = comparison(ids);
    if (!panel.open || all.length < 2) return;
    const key = JSON.stringify([all, branch]);
    if (key !== drawn.key) coft.tree.show(all, branch);
    drawn = { at: performance.now(), key };
    coft.beside.follow();
  };
  /* a run adds a token many times a second; its line grows a few times a second */
  const later = () => {
    if (timer !== null) return;
    const wait = state().running ? Math.max(0, PAUSE - (performance.now() - drawn.at)) : 0;
    if (wait === 0) render(); else timer = setTimeout(render, wait);
  };

  /* ---- what can be done ---- */
  const open = (id) => {
    if (id === state().branch) return;
    if (state().busy) { tell("Something is under way; pause it or wait for its end, then open another branch."); return; }
    tell("");
    coft.session.reopen(id);
  };
  const rename = (id, name, done, failed) => {
    renaming = { done, failed };
    renaming.nonce = ask("rename", { branch: id, name });
  };
  const prune = (id) => {
    tell("");
    asking = say("ponder", { branch: id });
  };
  const address = (id) => {
    const own = byId(id);
    const step = id === state().branch && state().selected >= 0 ? state().selected + 1 : own && own.step;
    const url = new URL("./", location.href);
    url.search = new URLSearchParams({ session: state().session, branch: id, ...(step ? { step } : {}) });
    return url.href;
  };
  const copy = async (id) => {
    const url = address(id);
    try {
      await navigator.clipboard.writeText(url);
      tell("The link is copied.");
    } catch {
      /* a browser may keep the clipboard from pages: the link is then shown, to be copied by hand */
      find(".told").replaceChildren("Copy this link: ", coft.el("a", { href: url, text: url }));
    }
  };
  const partner = (id) => (id === state().branch ? (byId(id) || {}).owner : id);
  const ACTIONS = {
    open, prune, link: copy,
    rename: (id) => coft.tree.rename(id),
    beside: (id) => coft.beside.show(state().branch, partner(id)),
  };
  const openMenu = (button, id) => {
    target = id;
    menu.open(button, (box) => {
      const ids = family(id);
      const own = byId(id);
      const item = (name) => box.querySelector(`[data-action=${name}]`);
      item("open").hidden = id === state().branch;
      item("prune").hidden = own.step === null;
      item("beside").hidden = partner(id) === null;
      item("beside").querySelector(".title").textContent = id === state().branch ? "Put beside the chain that it left" : "Put beside the shown one";
      item("compare").hidden = ids.length < 2;
      item("compare").href = comparison(ids);
    });
  };

  /* ---- answers ---- */
  const whenIdle = (run) => { if (state().busy) setTimeout(() => whenIdle(run), 60); else run(); };
  const takeTree = (message) => {
    if (message.said) tell(message.said);
    if (renaming && renaming.nonce === message.nonce) { const { done } = renaming; renaming = null; done(); }
    const now = state();
    if (message.session !== now.session || message.nonce < newest) return;
    const there = message.crumbs.tree.some((item) => item.id === now.branch);
    if (!there) {
      whenIdle(() => { if (state().session === message.session && state().branch === now.branch) coft.session.reopen(message.branch); });
      return;
    }
    /* an answer that was asked for before the chain was opened may lack what has happened since */
    if (message.branch !== now.branch || message.nonce <= since) { ask("tree"); return; }
    now.crumbs = message.crumbs;
    crumbsInto(document.querySelector("#transcript .crumbs"), message.crumbs, now);
    render();
  };
  const question = async (message) => {
    if (message.nonce !== asking) return;
    const { session: asked } = state();
    if (!message.allowed) { tell(message.text); coft.tree.focus(message.branch); return; }
    const yes = await coft.confirm(`Prune “${coft.tree.label(message.branch)}”?`, message.text, "Prune");
    if (state().session !== asked) return;
    coft.tree.focus(yes && byId(message.branch) ? byId(message.branch).parent : message.branch);
    if (!yes) return;
    tell("Pruning …");
    ask("prune", { branch: message.branch });
  };
  const receive = (message) => {
    if (message.kind === "tree") takeTree(message);
    else if (message.kind === "prune") question(message);
    else if (message.kind === "beside") coft.beside.take(message);
  };

  coft.branches = {
    /* the path to the shown branch, its siblings, and the branches that leave it */
    draw(bar, crumbs, now) {
      crumbsInto(bar, crumbs, now);
      since = newest;
      if (session !== now.session && panel) { tell(""); coft.beside.close(); }
      session = now.session;
    },
    byId, comparison,
    ask: (pair) => send("beside", { session: state().session, pair }),
    mount(element, trigger, props, watch) {
      send = coft.link(trigger, props, watch, receive);
      const bind = () => {
        panel = document.querySelector("#transcript .branching");
        if (!panel) { requestAnimationFrame(bind); return; }
        menu = coft.menu(panel.querySelector("#menu-branch"), (item) => { if (ACTIONS[item.dataset.action]) ACTIONS[item.dataset.action](target); });
        coft.tree.mount(panel, { open, rename, prune, menu: openMenu });
        coft.beside.mount(find(".beside"));
        panel.addEventListener("toggle", (event) => { if (event.target === panel && panel.open) { drawn.key = ""; render(); } });
        document.querySelector("#transcript .crumbs").addEventListener("click", (event) => {
          if (!event.target.closest("[data-do=unfold-tree]")) return;
          panel.open = true;
          panel.querySelector("summary").focus();
        });
        later();
      };
      bind();
      coft.session.watch(later);
      coft.onFailure("rename", () => { if (renaming) { const { failed } = renaming; renaming = null; failed(); } ask("tree"); });
      coft.onFailure("prune", () => { tell(""); ask("tree"); });
      coft.onFailure("beside", () => coft.beside.close());
    },
  };
})();
