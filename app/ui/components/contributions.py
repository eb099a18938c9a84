"""What each masked span contributes to the tokens of a chain: a button, and the picture that it fills."""

from __future__ import annotations

import gradio as gr


def contributions() -> gr.HTML:
    """Place the section; it triggers ``contribute`` and receives the contributions."""
    return gr.HTML(
        html_template="""<section class="spans" aria-labelledby="h-spans" hidden>
        <div class="bar"><h2 id="h-spans">Contributions of the spans</h2>
          <div class="end"><button type="button" class="btn small" data-do="contribute">What does each span
            contribute?</button></div></div>
        <p class="hint lead">Shows one masked span at a time to the masked branch and sees how far each token moves.
          Runs the model again over the whole chain.</p>
        <div class="working" role="status" hidden><i class="spin" aria-hidden="true"></i>Computing …</div>
        <div class="found" hidden>
          <div class="matrix" tabindex="0" role="group" aria-label="Contributions by span and step"></div>
          <div class="key" aria-hidden="true"><span><i class="k-up"></i>likelier with the span visible</span>
            <span><i class="k-down"></i>less likely</span><span><i class="k-hot"></i>0.50 or more</span>
            <span>the larger, the stronger</span></div>
          <p class="hint">Contributions need not sum to the total: spans can stand in for each other, or act only
            together.</p>
          <details class="numbers"><summary><svg class="icon chev" aria-hidden="true"><use href="#i-chev"/></svg>Numbers
            </summary><div class="scroll" tabindex="0" role="group" aria-label="Contributions, numbers"></div></details>
        </div></section>""",
        js_on_load="coft.spans.mount(element, trigger, props, watch, ['contribute'])",
        apply_default_css=False,
        elem_id="contributions",
        elem_classes=["coft"],
    )
