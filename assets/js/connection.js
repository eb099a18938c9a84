/* A server that cannot be reached: one sentence and a way back, on every page. */
"use strict";
(() => {
  const coft = window.coft;
  const real = window.fetch.bind(window);
  const LOST = "The program cannot be reached: it was stopped, or the network is down. Everything that was written is stored.";
  const BACK = "The program can be reached again. Load the page anew to go on; what you had typed is kept.";
  const LEAVING_MS = 3000;
  let box = null, button = null, leaving = false;

  const say = (text, label) => {
    if (!box) {
      button = coft.el("button", { type: "button", class: "btn small" });
      box = coft.el("div", { class: "coft lost", role: "alert" }, coft.el("span"), button);
      button.addEventListener("click", retry);
      document.body.append(box);
    }
    const words = box.querySelector("span");
    if (words.textContent !== text) words.textContent = text;
    button.textContent = label;
    box.hidden = false;
    document.body.classList.add("is-lost");
  };
  const retry = async () => {
    button.disabled = true;
    try {
      await real("./", { cache: "no-store", method: "HEAD" });
      location.reload();
    } catch {
      say(`Still not there. ${LOST}`, "Retry");
    } finally { button.disabled = false; }
  };
  const lost = () => {
    if (!box || box.hidden) {
      say(LOST, "Retry");
      coft.lost.forEach((run) => run());
    }
  };

  /* a page that is left breaks off its own requests */
  window.addEventListener("beforeunload", () => {
    leaving = true;
    setTimeout(() => { leaving = false; }, LEAVING_MS);
  });

  /* other parts of the page end what waits for an answer */
  coft.lost = [];
  /* an answer that never comes raises an error for who asked, whoever that was; a request that was given up does not */
  window.fetch = async (input, init) => {
    const address = String(input instanceof Request ? input.url : input);
    const ours = address.includes("/gradio_api/");
    try {
      const answer = await real(input, init);
      if (ours && box && !box.hidden) say(BACK, "Load anew");
      return answer;
    } catch (error) {
      if (ours && error instanceof TypeError && !document.hidden && !leaving) lost();
      throw error;
    }
  };
})();
