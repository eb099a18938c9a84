/* Lists that are asked for page by page: what is asked for stands in the address, so that a view is kept as a link. */
"use strict";
(() => {
  const coft = window.coft;
  const PAUSE = 250;

  coft.asked = {
    /* what the address says, each value of the kind of its usual one; numbers are pages and sizes, at least 1 */
    read(usual) {
      const given = new URLSearchParams(location.search);
      return Object.fromEntries(Object.entries(usual).map(([name, value]) => {
        const text = given.get(name);
        if (text === null) return [name, value];
        if (typeof value === "boolean") return [name, text === "true"];
        return [name, typeof value === "number" ? Math.max(1, parseInt(text, 10) || value) : text];
      }));
    },
    /* put into an address what differs from the usual */
    write(target, asked, usual) {
      for (const [name, value] of Object.entries(usual)) {
        if (asked[name] === value) target.searchParams.delete(name);
        else target.searchParams.set(name, asked[name]);
      }
      return target;
    },
    keep(target) { history.replaceState(history.state, "", target); },
    /* a form's text is looked for when it is sent, and when its writer pauses; gives the way to forget what was typed */
    search(form, look) {
      let timer = null;
      form.addEventListener("submit", (event) => { event.preventDefault(); look({ text: form.elements.text.value }); });
      form.elements.text.addEventListener("input", (event) => {
        clearTimeout(timer);
        timer = setTimeout(() => look({ text: event.target.value }), PAUSE);
      });
      return { settle() { clearTimeout(timer); timer = null; }, typing: () => timer !== null };
    },
    /* which page of how many is shown, and which others there are */
    pager(root, { where, page, pages }) {
      root.querySelector(".where").textContent = where;
      root.querySelector(".leaf").textContent = pages > 1 ? `${page} of ${pages}` : "";
      root.querySelectorAll("[data-do=page]").forEach((button) => {
        const other = page + Number(button.dataset.by);
        button.disabled = other < 1 || other > pages;
      });
    },
  };
})();
