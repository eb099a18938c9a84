/* Tables of stored things: runs and sessions, with a question before anything is deleted. */
"use strict";
(() => {
  const coft = window.coft;
  coft.list = {
    mount(element, trigger) {
      element.addEventListener("click", async (event) => {
        const hit = event.target.closest("button[data-do][data-id]");
        if (!hit) return;
        const { id, name, what } = hit.dataset;
        if (hit.dataset.do === "delete") {
          const sure = await coft.confirm(`Delete “${name}”?`, what, "Delete");
          if (!sure) { hit.focus(); return; }
        }
        trigger(hit.dataset.do, { id: Number(id) });
      });
    },
  };
})();
