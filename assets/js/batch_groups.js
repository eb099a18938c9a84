/* Totals by group and impact ratios of the open batch. */
"use strict";
(() => {
  const coft = window.coft;
  const PAUSE = 300;
  const TICKS = ["regex", "case", "small"];
  let link = null, batch = null, totals = 0, outcome = 0, typing = null;

  const at = (selector) => document.querySelector(`#batch-open ${selector}`);
  const rule = () => {
    const form = at(".rule");
    return Object.fromEntries([...form.elements].map((field) => [field.name, TICKS.includes(field.name) ? field.checked : field.value]));
  };
  const askTotals = () => { totals = link.send("totals", { batch, measure: at("[name=measure]").value }); };
  const askOutcome = () => {
    clearTimeout(typing);
    outcome = link.send("outcome", { batch, rule: rule() });
  };
  const ruled = () => {
    link.changed(rule());
    if (batch !== null) askOutcome();
  };
  const print = () => {
    document.body.classList.add("printing-impact");
    window.addEventListener("afterprint", () => document.body.classList.remove("printing-impact"), { once: true });
    window.print();
  };
  const label = () => {
    const plot = document.getElementById("totals-plot"), menu = at("[name=measure]");
    plot.setAttribute("role", "img");
    plot.setAttribute("aria-label", `${menu.selectedOptions[0].textContent} by group with intervals; the numbers stand below`);
  };

  coft.batchGroups = {
    mount(own) {
      link = own;
      const panel = at(".impactpanel");
      coft.act(panel, { export: own.exported, print });
      coft.act(at(".totalsfoot"), { export: own.exported });
      at("[name=measure]").addEventListener("change", () => { if (batch !== null) askTotals(); });
      const form = at(".rule");
      form.addEventListener("submit", (event) => { event.preventDefault(); ruled(); });
      form.addEventListener("input", (event) => {
        clearTimeout(typing);
        if (TICKS.includes(event.target.name)) ruled();
        else typing = setTimeout(ruled, PAUSE);
      });
    },
    /* another batch is opened: nothing of the one before stays */
    begin(given) {
      clearTimeout(typing);
      at("#batch-totals").dataset.empty = "true";
      batch = null;
      totals = outcome = 0;
      for (const name of Object.keys(given)) {
        const field = at(`.rule [name=${name}]`);
        if (TICKS.includes(name)) field.checked = given[name]; else field.value = given[name];
      }
      at(".impactreport").replaceChildren();
      at(".totalsnumbers").replaceChildren();
    },
    show(number) {
      batch = number;
      askTotals();
      askOutcome();
    },
    receive(message) {
      if (message.kind === "totals") {
        if (message.nonce !== totals) return true;
        at("#batch-totals").dataset.empty = String(message.empty);
        at("#batch-totals").style.setProperty("--plot", `${message.height}px`);
        at(".totalsnumbers").innerHTML = message.html;
        label();
        return true;
      }
      if (message.kind !== "impact") return false;
      if (message.nonce !== outcome) return true;
      at(".preview-rule").innerHTML = message.preview;
      at(".impactreport").innerHTML = message.report;
      at(".impactpanel").querySelectorAll(".acts .btn").forEach((button) => { button.disabled = !message.exports; });
      return true;
    },
  };
})();
