/* The account in the top bar of a server that has accounts: who is signed in, as what, in which project, and the way
   out. */
import { popup } from "./menus.js";
import { limits } from "./limits.js";
import { html, render } from "./vendor/lit-html.js";

const ROLES = {
  viewer: "You may read and export.",
  reviewer: "You may audit and judge.",
  lead: "You may audit, judge, start long work and assign reviews.",
  admin: "You may do everything, and manage accounts.",
};

const here = () => location.pathname.split("/").pop();

/* A form of its own, so that the choice is sent by the button alone: a page that is left loses what was typed. */
const projectOf = (form, project, projects) => (projects.length ? html`
  <form method="post" action="./account/project" class="project-form pile">
    <input type="hidden" name="form" value=${form}><input type="hidden" name="next" value=${here()}>
    <label class="eyebrow" for="project">Project</label>
    <select class="select" id="project" name="project">${projects.map(({ id, name }) => html`
      <option value=${id} ?selected=${name === project}>${name}</option>`)}</select>
    <button class="btn">Show it</button>
    <p class="hint">Pages show only this project, and what you make goes there.</p></form>`
  : html`<p class="hint" role="status">You are a member of no project, so that there is nothing to see. Ask an admin of
    this server.</p>`);

export const account = {
  async mount(bar) {
    const place = bar.querySelector("#account-menu");
    if (!place) return;
    limits.mount(bar, here());
    const button = bar.querySelector(".account-button");
    popup(place, () => button, true);
    const answer = await fetch("./account", { cache: "no-store" });
    if (!answer.ok) return;
    const { name, role, form, project, projects } = await answer.json();
    bar.querySelector("#account-name").textContent = name;
    render(html`<h2>${name}</h2><p class="sub">Signed in as ${role}. ${ROLES[role]}</p>
      ${projectOf(form, project, projects)}
      ${role === "admin" ? html`<a class="btn" href="./accounts">Manage accounts</a>` : ""}
      <a class="btn" href="./account/sign-ins">Sign-ins and password</a>
      <form method="post" action="./sign-out"><input type="hidden" name="form" value=${form}>
        <button class="btn">Sign out</button></form>`, place);
  },
};
