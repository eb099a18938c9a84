/* What an exchange changes: the chart, the tables, another compared token, pictures and files. */
"use strict";
(() => {
  const coft = window.coft;
  const shared = window.coftShared;
  const state = { shown: null, wanted: 0, printed: "", drawing: null };
  let root, rest, send;

  const find = (selector) => root.querySelector(selector);
  const plot = () => document.querySelector("#swap-plot .js-plotly-plot");
  const reading = (text) => { find(".rereads").textContent = text; };
  const layout = (extra = {}) => ({ ...state.shown.figure.layout, template: shared.templates[coft.theme()], ...extra });

  /* Plotly arrives after the page; until then the newest result waits */
  const draw = () => {
    clearTimeout(state.drawing);
    const node = plot();
    if (!node || !window.Plotly) { state.drawing = setTimeout(draw, 120); return; }
    window.Plotly.react(node, state.shown.figure.data, layout({ autosize: true }), shared.config);
    const holder = document.getElementById("swap-plot");
    holder.setAttribute("role", "img");
    holder.setAttribute("aria-label", state.shown.spoken);
    window.dispatchEvent(new Event("resize"));
  };
  const show = (message, printed, first) => {
    state.shown = message;
    state.wanted = 0;
    if (first) state.printed = printed;
    find(".found").hidden = false;
    document.body.classList.add("has-swap");
    find(".summing").innerHTML = message.head;
    find(".remarks").replaceChildren(...message.notes.map((text) => coft.el("li", { text })));
    const open = rest.querySelector(".numbers");
    const wasOpen = Boolean(open && open.open);
    rest.innerHTML = message.body;
    rest.querySelector(".numbers").open = wasOpen;
    const field = find("#swap-at");
    field.max = message.most;
    field.value = message.answer;
    find(".captioned").textContent = message.caption;
    find(".of").textContent = `of ${message.most}`;
    reading("");
    draw();
    /* whoever does something else meanwhile is not called away */
    const at = document.activeElement;
    if (first && (at === document.body || at.closest(".runbar .btn"))) find("#h-found").focus();
  };
  const ids = () => ({ number: state.shown.number, answer: state.shown.answer });
  const at = () => {
    const field = find("#swap-at");
    const wanted = Number(field.value);
    if (!state.shown || !Number.isInteger(wanted) || wanted < 1 || wanted > state.shown.most) {
      if (state.shown) reading(`Choose a token from 1 to ${state.shown.most}.`);
      return;
    }
    if (wanted === state.shown.answer && !state.wanted) { reading(""); return; }
    reading("Reading the model again at this token …");
    state.wanted = send("at", { number: state.shown.number, answer: wanted });
  };
  const failed = () => {
    state.wanted = 0;
    reading("");
    if (state.shown) find("#swap-at").value = state.shown.answer;
  };
  const audit = (node) => {
    node.disabled = true;
    send("audit", { ...ids(), variant: Number(node.dataset.variant), decoding: node.dataset.decoding });
  };
  const picture = async (format) => {
    const node = plot();
    if (!node || !state.shown) return;
    const box = node.getBoundingClientRect();
    const ground = shared.palettes[coft.theme()].surface;
    const url = await window.Plotly.toImage(
      { data: state.shown.figure.data, layout: layout({ paper_bgcolor: ground, plot_bgcolor: ground }) },
      { format, width: Math.round(box.width), height: Math.round(box.height), scale: 2 },
    );
    coft.el("a", { href: url, download: `swap-${state.shown.number}-token-${state.shown.answer}.${format}` }).click();
  };

  coft.swapResult = {
    show,
    mount(element, under, sender) {
      root = element;
      rest = under.querySelector(".rest");
      send = sender;
      coft.act(rest, { audit });
      coft.act(root, {
        picture: (node) => picture(node.dataset.format),
        table: (node) => send("table", { ...ids(), table: node.dataset.table }),
      });
      find("#swap-at").addEventListener("change", at);
      coft.onFailure("at", failed);
      coft.onFailure("audit", () => rest.querySelectorAll("[data-do=audit]").forEach((node) => { node.disabled = false; }));
    },
    /* an answer of another token; a later question makes it void */
    later(message) {
      if (message.nonce === state.wanted) show(message, "", false);
    },
    compare(printed) {
      if (root) find(".stale").hidden = !state.shown || printed === state.printed;
    },
  };
})();
