/* Charts in the colours of the page's theme: templates and palettes, and what Gradio has drawn in the light ones. */
import { perFrame, whenReady } from "./core.js";
import { shared } from "./shared.js";
import { onTheme, theme } from "./theme.js";

export const { config } = shared;
export const template = () => shared.templates[theme()];
export const colour = (name) => shared.palettes[theme()][name];
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
