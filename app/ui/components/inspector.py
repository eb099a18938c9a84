"""The inspector of the selected token: shells that the browser fills from the step's card."""

from __future__ import annotations

import gradio as gr

from app.ui.components.pictures import numbers, tools
from app.ui.figures import candidates_figure, steps_figure


def inspector() -> None:
    """Place head, candidate table, chart and figures of the selected token."""
    gr.HTML(
        html_template="""<section aria-label="Selected token"><div class="unselected">
        <h2>Selected token</h2><p class="sub">Nothing to show yet. After Start, each token explains itself here: what
        both readings say of it, which words were certified, and how far the attribute moved it.</p></div>
        <div class="selected" hidden>
        <div class="announce" aria-live="polite"><div class="stephead"><span class="bigtok"></span>
          <span class="marks"></span><span class="sub tnum where"></span></div>
        <p class="verdict"></p><p class="hint because"></p></div>
        <table class="cand"><caption class="vh">Candidates at this step</caption>
          <colgroup><col><col class="c-p"><col class="c-p"><col class="c-p"><col class="c-p"><col class="c-s"><col
            class="c-a"></colgroup>
          <thead><tr><th scope="col">Token</th><th scope="col" class="n" aria-sort="descending">Factual ↓</th>
            <th scope="col" class="n">Masked</th><th scope="col" class="n drawn-from">Fused</th>
            <th scope="col" class="n" title="Joint support: the smaller of masked and fused">Joint</th>
            <th scope="col" title="Certified when joint support reaches the threshold">Certified</th>
            <th scope="col"><span class="vh">Force</span></th></tr></thead><tbody></tbody></table>
        <button type="button" class="btn small quiet" data-do="rest" hidden></button>
        <form class="typed"><label class="vh" for="typed">Any other token</label>
          <input id="typed" class="input" autocomplete="off" spellcheck="false"
            placeholder="Force any other token: type it, a leading space counts">
          <button class="btn">Force</button></form>
        <table class="byfamily" hidden><caption>What each family says of this token</caption>
          <thead><tr><th scope="col">Family masked</th><th scope="col" class="n">Masked</th>
            <th scope="col" class="n" title="Joint support: the smaller of masked and fused">Joint</th>
            <th scope="col" class="n">τ</th><th scope="col">Certified</th></tr></thead><tbody></tbody></table>
        </div></section>""",
        js_on_load="coft.inspector.mount(element)",
        apply_default_css=False,
        elem_id="inspector",
        elem_classes=["coft"],
    )
    gr.Plot(candidates_figure(), show_label=False, container=False, elem_id="candidates-plot", elem_classes=["chart"])
    gr.HTML(
        html_template=f"""<div class="after" hidden><div class="key" aria-hidden="true">
        <span><i class="k-f"></i>factual</span><span><i class="k-m"></i>masked</span>
        <span><i class="k-x"></i><span class="drawn-from">fused</span></span>
        <span><i class="k-t"></i>threshold</span></div>
        <div class="undertools">{tools("candidates", "Candidates")}</div>{numbers("candidates")}
        <dl class="facts"></dl>
        <section class="shares" aria-labelledby="h-shares" hidden><h3 id="h-shares">What each span contributes</h3>
          <table><caption class="vh">Contributions of the masked spans to this token</caption>
            <thead><tr><th scope="col">Span shown again</th><th scope="col"><span class="vh">Bar</span></th>
              <th scope="col" class="n" title="Difference of log-probabilities">Log ratio</th>
              <th scope="col" class="n" title="Difference of logits">Sensitivity</th></tr></thead>
            <tbody></tbody></table>
          <p class="hint">Contributions need not sum to the total: spans can stand in for each other, or act only
            together.</p></section></div>""",
        js_on_load="coft.inspector.facts(element)",
        apply_default_css=False,
        elem_id="facts",
        elem_classes=["coft"],
    )


def steps_chart() -> None:
    """Place the chart of set size and threshold by step, and its numbers."""
    title = "Certified-set size and threshold by step"
    gr.HTML(
        html_template=f"""<div class="figcaption" hidden><h2 id="h-steps">{title}</h2>{tools("steps", title)}
        <span class="hint">bars: tokens in the set; line: τ</span></div>""",
        js_on_load="coft.charts.caption(element)",
        apply_default_css=False,
        elem_id="steps-caption",
        elem_classes=["coft"],
    )
    gr.Plot(steps_figure(), show_label=False, container=False, elem_id="steps-plot", elem_classes=["chart"])
    gr.HTML(html_template=numbers("steps"), apply_default_css=False, elem_id="steps-numbers", elem_classes=["coft"])
