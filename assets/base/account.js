/* The account in the top bar of a server that has accounts: who is signed in, as what, and the way out. */
import { placeAt, popup } from "./menus.js";
import { html, render } from "./vendor/lit-html.js";

const ROLES = {
  viewer: "You may read and export.",
  reviewer: "You may audit and judge.",
  lead: "You may audit, judge, start long work and assign reviews.",
  admin: "You may do everything, and manage accounts.",
};

export const account = {
  async mount(bar) {
    const place = bar.querySelector("#account");
    if (!place) return;
    const button = bar.querySelector(".account-button");
    popup(place, () => button, true);
    place.addEventListener("toggle", ({ newState }) => { if (newState === "open") placeAt(place, button, true); });
    const answer = await fetch("./account", { cache: "no-store" });
    if (!answer.ok) return;
    const { name, role, form } = await answer.json();
    bar.querySelector("#account-name").textContent = name;
    render(html`<h2>${name}</h2><p class="sub">Signed in as ${role}. ${ROLES[role]}</p>
      <form method="post" action="./sign-out"><input type="hidden" name="form" value=${form}>
        <button class="btn">Sign out</button></form>`, place);
  },
};
