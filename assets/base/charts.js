/* Charts in the colours of the page's theme: templates and palettes, and what Gradio has drawn in the light ones. */
import { perFrame, whenReady } from "./core.js";
import { term } from "./glossary.js";
import { shared } from "./shared.js";
import { onTheme, theme } from "./theme.js";
import { html, nothing } from "./vendor/lit-html.js";

let asked = null;
/* the library is megabytes, and is fetched when there is something to draw; a failed fetch is tried again at the next drawing */
export const plotly = () => {
  asked ??= new Promise((stands, fails) => {
    const script = document.createElement("script");
    script.src = new URL("./vendor/plotly.min.js", import.meta.url);
    script.onload = stands;
    script.onerror = () => { asked = null; script.remove(); fails(new Error("The charts' library could not be fetched; reload the page.")); };
    document.head.append(script);
  });
  return asked;
};
export const { config } = shared;
export const template = () => shared.templates[theme()];
export const colour = (name) => shared.palettes[theme()][name];
/* a picture in words, for who cannot see it */
export const spoken = (node, text) => {
  node.setAttribute("role", "img");
  node.setAttribute("aria-label", text);
};
/* the numbers of a picture: by column its name and its kind, by row its name and its values */
export const numberTable = (caption, head, rows) => html`<table><caption class="vh">${caption}</caption><thead><tr>${head.map(([text, kind]) =>
  html`<th scope="col" class=${kind === "n" ? kind : nothing}>${term(text)}</th>`)}</tr></thead><tbody>${rows.map(([name, ...values]) =>
  html`<tr><th scope="row" class=${head[0][1] || nothing}>${name ?? "none"}</th>${values.map((value, at) =>
    html`<td class=${head[at + 1][1] || nothing}>${value ?? "none"}</td>`)}</tr>`)}</tbody></table>`;
/* a picture as a file, in the colours that are shown */
export const saveImage = (data, layout, file) => window.Plotly.downloadImage({
  data, layout: { ...layout, template: template(), autosize: false, paper_bgcolor: colour("surface") }, config,
}, { scale: 2, ...file });
/* a page that draws some of its charts itself says which */
const drawn = [];
export const onDrawn = (owns) => drawn.push(owns);

/* a theme swaps the template alone */
const recolour = (node) => window.Plotly.react(node, node.data, { ...node.layout, template: template() }, config);
const all = () => [...document.querySelectorAll(".js-plotly-plot")];
onTheme(() => all().filter((node) => !drawn.some((owns) => owns(node))).forEach(recolour));
/* Gradio draws with the template that came from the server, light, and with Plotly's own buttons */
const stale = (node) => node.layout?.template?.layout
  && (node.layout.template.layout.font.color !== template().layout.font.color || node.querySelector(".modebar"));
const adopt = (node) => {
  if (node.coftAdopted || !node.on) return;
  node.coftAdopted = true;
  const fresh = () => { if (stale(node)) requestAnimationFrame(() => stale(node) && recolour(node)); };
  node.on("plotly_afterplot", fresh);
  fresh();
};
whenReady(() => {
  const adoptAll = perFrame(() => all().forEach(adopt));
  new MutationObserver((records) => {
    if (records.some((record) => record.target.closest?.(".block.chart"))) adoptAll();
  }).observe(document.body, { childList: true, subtree: true });
});
