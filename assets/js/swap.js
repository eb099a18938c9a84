/* The swap page: what is exchanged is chosen here and sent whole, so that an answer always belongs to its question. */
"use strict";
(() => {
  const coft = window.coft;
  const PAUSE = 200;
  const state = {
    /* what the reviewer chose; pronouns are null until they are touched */
    pronouns: null, groups: {}, category: "", left: new Set(), roles: {}, original: true,
    look: null, asked: null, form: null, wanted: 0, turn: 0, timer: null, run: null, values: null,
  };
  let root, form, send;

  const find = (selector) => root.querySelector(selector);
  const pick = (selector) => form.querySelector(selector);
  const say = (text) => { find(".told").textContent = text; };
  const family = () => (state.look ? state.look.category : state.category);
  const groups = () => state.groups[family()] || [];
  const notice = (...children) => coft.notice(find(".runbar + .notice"), ...children);

  /* ---- what is sent ---- */
  const chosen = ({ prompt, spans }) => ({
    prompt, spans, pronouns: state.pronouns || [], groups: groups(), category: state.category,
    left: [...state.left], roles: state.roles, original: state.original,
  });
  const numbers = () => ({ length: find("#swap-length").value, answer: find("#swap-answer").value });
  const look = () => {
    state.turn += 1;
    state.form = null;
    state.wanted = 0;
    find(".texts").setAttribute("aria-busy", "true");
    clearTimeout(state.timer);
    state.timer = setTimeout(ask, PAUSE);
    controls();
  };
  const ask = async () => {
    const { turn } = state;
    const ready = await coft.editor.ready();
    if (turn !== state.turn) return;
    if (!ready.prompt.trim()) { nothing(); return; }
    state.asked = chosen(ready);
    state.wanted = send("look", { form: state.asked, proceed: true });
  };
  const print = () => JSON.stringify([state.form || state.asked, numbers(), state.values]);
  const compare = () => coft.swapResult.compare(print());

  /* ---- what is shown ---- */
  const controls = () => {
    find("[data-do=run]").disabled = !state.form || state.run !== null;
    find("[data-do=cancel]").hidden = state.run === null;
    find("[data-do=cancel]").disabled = state.run !== null && state.run.cancelled;
    find(".doing").classList.toggle("on", state.run !== null);
    compare();
  };
  const nothing = () => {
    state.look = null;
    pick(".choices").hidden = true;
    pick(".nothing").hidden = false;
    find(".texts").replaceChildren();
    find(".texts").setAttribute("aria-busy", "false");
    find(".refusal").textContent = "The variants of your prompt appear here.";
    find(".many").textContent = "";
    controls();
  };
  const keepFocus = (box, draw) => {
    const at = box.contains(document.activeElement) ? document.activeElement.dataset.key : null;
    draw();
    if (!at) return;
    const again = [...box.querySelectorAll("[data-key]")].find((node) => node.dataset.key === at);
    if (again) again.focus();
  };
  /* what is there already stays: a press on it must not be lost to a late answer */
  const redraw = (box, data, draw) => {
    const now = JSON.stringify(data);
    if (box.dataset.shown === now) return;
    box.dataset.shown = now;
    keepFocus(box, draw);
  };
  const tickbox = (text, attributes, ...more) => coft.el("label", { class: "tickbox" },
    coft.el("input", { type: "checkbox", ...attributes }), " ", coft.el("span", { class: "word", text }), ...more);
  const drawSpans = (targets) => redraw(pick(".spans"), targets, () => pick(".spans .boxes").replaceChildren(
    ...targets.map((item) => tickbox(item.text, { "data-key": item.name, "data-span": item.name, checked: !state.left.has(item.name) },
      coft.el("span", { class: `sw f-${item.key}`, "aria-hidden": "true" }),
      coft.el("span", { class: "hint tnum", text: ` ${item.family}, character ${item.at}` })))));
  const drawRoles = (pronouns) => redraw(pick(".roles"), pronouns, () => {
    pick(".roles").hidden = pronouns.length === 0;
    pick(".roles .list").replaceChildren(...pronouns.map((item) => {
      const role = state.roles[item.name] || item.role;
      const menu = coft.el("select", { class: "select small", "data-key": item.name, "data-role": item.name },
        ...item.roles.map(([value, text]) => coft.el("option", { value, text, selected: value === role })));
      const settled = item.sure || state.roles[item.name];
      return coft.el("label", { class: "role" }, coft.el("span", { class: "word", text: item.text }),
        coft.el("span", { class: "hint tnum", text: ` at character ${item.at} stands ` }), menu,
        settled ? null : coft.el("span", { class: "caution", text: "uncertain: please check" }));
    }));
  });
  const PAIRS = [["", "pronouns as typed"], ["she", "with she"], ["he", "with he"], ["they", "with they"]];
  const both = () => Boolean(state.look && state.look.hasPronoun);
  const drawGroups = () => redraw(pick(".groups"), [family(), both(), groups().map((item) => item.text), pick(".offered").dataset.shown], () => {
    pick(".groups .picked").replaceChildren(...groups().map((item, at) => coft.el("li", { class: "group-chip" },
      coft.el("span", { class: "word", text: item.text }),
      both() ? coft.el("select", { class: "select small quiet", "data-key": `with ${item.text}`, "data-with": at, "aria-label": `Pronouns that go with ${item.text}` },
        ...PAIRS.map(([value, text]) => coft.el("option", { value, text, selected: value === item.with }))) : null,
      coft.el("button", { type: "button", class: "btn small quiet", "data-do": "drop", "data-at": at, "data-key": `drop ${item.text}`, "aria-label": `Remove ${item.text}` },
        coft.icon("cross")))));
    pick(".offered").querySelectorAll("[data-term]").forEach((node) => {
      node.setAttribute("aria-pressed", String(groups().some((item) => item.text === node.dataset.term)));
    });
  });
  const drawOffers = (offers) => {
    const box = pick(".offered");
    const now = JSON.stringify([family(), offers]);
    pick(".nohints").hidden = offers.length > 0;
    if (box.dataset.shown === now) return;
    box.dataset.shown = now;
    box.replaceChildren(...offers.map((offer, at) => coft.el("details", { open: at === 0 },
      coft.el("summary", {}, coft.icon("chev"), offer.detail, coft.el("span", { class: "hint tnum", text: offer.terms.length })),
      coft.el("div", { class: "terms-offered", tabindex: "0", role: "group", "aria-label": offer.detail }, ...offer.terms.map((term) =>
        coft.el("button", { type: "button", class: "btn small", "data-do": "offer", "data-term": term, "data-key": `offer ${term}`, text: term }))))));
    box.querySelectorAll("summary .icon").forEach((node) => node.classList.add("chev"));
  };
  const shownPronouns = (message) => {
    const sets = pick(".sets");
    sets.disabled = !message.hasPronoun;
    sets.querySelectorAll("[data-pronoun]").forEach((box) => { box.checked = (state.pronouns || []).includes(box.dataset.pronoun); });
    sets.querySelector(".why").textContent = message.hasPronoun
      ? "Each makes a variant: pronouns of the same set change with them, and verbs beside them."
      : "No masked word of the prompt is a pronoun.";
  };
  const show = (message) => {
    state.look = message;
    /* a prompt whose only marked words are pronouns has an obvious exchange */
    const obvious = state.pronouns === null && message.hasPronoun && !message.families.length;
    if (obvious) state.pronouns = ["she", "he"];
    pick(".nothing").hidden = message.targets.length > 0;
    pick(".choices").hidden = message.targets.length === 0;
    drawSpans(message.targets);
    shownPronouns(message);
    drawRoles(message.pronouns);
    pick(".groups").hidden = message.families.length === 0;
    pick(".family").hidden = message.families.length < 2;
    redraw(pick("#swap-family"), message.families, () => pick("#swap-family").replaceChildren(
      ...message.families.map(([value, text]) => coft.el("option", { value, text }))));
    pick("#swap-family").value = message.category;
    drawOffers(message.offers);
    drawGroups();
    find(".texts").innerHTML = message.variants;
    find(".texts").setAttribute("aria-busy", "false");
    find(".refusal").textContent = message.refusal;
    find(".many").textContent = message.count ? `${message.count} variants` : "";
    state.form = message.refusal ? null : state.asked;
    controls();
    if (obvious) look();
  };

  /* ---- running ---- */
  const start = (proceed) => {
    if (!state.form || state.run) return;
    notice();
    say("Waiting for the model …");
    find(".doing i").style.width = "0";
    state.run = { number: null, cancelled: false, printed: print() };
    state.run.nonce = send("run", { form: { ...state.form, ...numbers() }, proceed });
    controls();
  };
  const ended = (text) => { state.run = null; say(text); controls(); };
  const cancel = () => {
    if (!state.run) return;
    state.run.cancelled = true;
    say("Cancelling after the current token …");
    if (state.run.number !== null) send("cancel", { number: state.run.number });
    controls();
  };
  const progress = (message) => {
    const fresh = state.run.number === null;
    state.run.number = message.number;
    if (state.run.cancelled) { if (fresh) cancel(); return; }
    find(".doing i").style.width = `${100 * message.share}%`;
    say(`${Math.round(100 * message.share)} %: ${message.text}`);
  };
  const mine = (message) => state.run !== null && message.nonce === state.run.nonce;
  const receive = (message) => {
    if (message.settings) root.dataset.ready = "";
    if (message.kind === "look") { if (message.nonce === state.wanted) show(message); }
    else if (message.kind === "draft") {
      coft.editor.load(message.prompt, message.spans, message.preview, coft.session.choice(message.settings), coft.session.look(message.settings));
      coft.cautions(find("section > .cautions"), message.notes);
      look();
    } else if (message.kind === "opened") location.href = `./?session=${message.session}`;
    else if (message.kind === "progress") { if (mine(message)) progress(message); }
    else if (message.kind === "cancelled") { if (mine(message)) ended("Cancelled. Nothing of it is kept."); }
    else if (message.kind === "mismatch") {
      if (!mine(message)) return;
      ended("");
      notice(coft.el("span", { text: message.text }),
        coft.el("button", { type: "button", class: "btn small", "data-do": "proceed", text: "Proceed uncertified" }));
    } else if (message.kind === "result") {
      if (mine(message)) {
        const { printed } = state.run;
        ended("Done.");
        find(".teach").hidden = true;
        coft.swapResult.show(message, printed, true);
        compare();
      } else coft.swapResult.later(message);
    }
  };

  /* ---- what the reviewer chooses ---- */
  const add = (text) => {
    const word = text.trim().replace(/\s+/g, " ");
    if (!word || groups().some((item) => item.text === word)) return;
    state.groups[family()] = [...groups(), { text: word, with: "" }];
    drawGroups();
    look();
  };
  const drop = (at) => {
    state.groups[family()] = groups().filter((_, other) => other !== at);
    drawGroups();
    look();
  };
  const changed = (event) => {
    const { dataset, checked, value } = event.target;
    if (dataset.span !== undefined) state.left[checked ? "delete" : "add"](dataset.span);
    else if (dataset.pronoun) {
      state.pronouns = [...form.querySelectorAll("[data-pronoun]")].filter((box) => box.checked).map((box) => box.dataset.pronoun);
    } else if (dataset.role) {
      state.roles[dataset.role] = value;
      const doubt = event.target.parentElement.querySelector(".caution");
      if (doubt) doubt.remove();
    } else if (dataset.with !== undefined) groups()[Number(dataset.with)].with = value;
    else if (event.target.id === "swap-family") state.category = value;
    else if (event.target.id === "swap-original") state.original = checked;
    else return;
    look();
  };

  const folded = (values) => {
    const [, key, , lam, alpha] = values;
    const info = coft.parameters.info(key);
    const label = document.querySelector("#swap-settings > .label-wrap");
    if (label) label.dataset.summary = [info.name, ...coft.parameters.words(key, values.at(-1)),
      info.fuses ? `λ ${Number(lam).toFixed(2)}` : "", info.certifies ? `α ${Number(alpha)}` : ""].filter(Boolean).join(", ");
  };

  /* the page's parts are placed in any order; it begins when all are there */
  const parts = {};
  const begin = (name, part) => {
    parts[name] = part;
    if (Object.keys(parts).length < 4) return;
    form = parts.choices.querySelector("section");
    root = parts.stage;
    send = coft.link(...parts.wire, receive);
    coft.swapResult.mount(root, parts.body, send);
    form.addEventListener("change", changed);
    pick(".own").addEventListener("submit", (event) => {
      event.preventDefault();
      add(pick("#swap-own").value);
      pick("#swap-own").value = "";
    });
    coft.act(form, {
      drop: (node) => { drop(Number(node.dataset.at)); pick("#swap-own").focus(); },
      offer: (node) => {
        const at = groups().findIndex((item) => item.text === node.dataset.term);
        if (at < 0) add(node.dataset.term); else drop(at);
      },
    });
    coft.act(root, { run: () => start(false), proceed: () => start(true), cancel });
    find(".runbar").addEventListener("input", compare);
    coft.onFailure("run", () => ended(""));
    coft.onFailure("look", () => { find(".texts").setAttribute("aria-busy", "false"); });
    coft.editor.watch(look);
    /* the rail tells the audit page's session of its values; this page has none, and listens beside it */
    const before = coft.settings;
    coft.settings = (values) => {
      state.values = values;
      folded(values);
      compare();
      return before(values);
    };
    state.values = coft.session.state().values || null;
    if (state.values) folded(state.values);
    send("open", { session: coft.addressed("session") });
    controls();
  };
  coft.swap = {
    choices: (element) => begin("choices", element),
    stage: (element) => begin("stage", element),
    body: (element) => begin("body", element),
    mount: (...wire) => begin("wire", wire.slice(0, 3)),
  };

  /* the way here from an audit */
  coft.session.watch((state) => {
    const link = document.getElementById("to-swap");
    if (!link) return;
    link.hidden = state.session === null;
    link.href = `./swap?session=${state.session}`;
  });
})();
