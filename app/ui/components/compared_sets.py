"""Comparisons over prompt sets: what is begun, what is shown of one, and those of earlier. The browser fills it."""

from __future__ import annotations

import gradio as gr

EVENTS = "['listed', 'take', 'start', 'view', 'cancel', 'resume', 'remove', 'table']"


def earlier_sets() -> None:
    """Place the name of a new comparison, stored prompt sets, and the comparisons of earlier."""
    gr.HTML(
        """<section class="set-begin" aria-labelledby="h-set-begin"><div class="bar">
          <h2 id="h-set-begin">2. Comparison</h2></div>
          <div class="field"><label for="set-name">Name</label><input class="input" id="set-name" type="text"
            autocomplete="off" placeholder="the file’s name"></div>
          <div class="field"><label for="set-stored">A prompt set of an earlier upload</label><select class="select"
            id="set-stored"><option value="">None stored yet</option></select></div>
          <h3 id="h-sets">Earlier comparisons</h3><ul class="set-list" aria-labelledby="h-sets"></ul></section>""",
        apply_default_css=False,
        elem_id="set-begin",
        elem_classes=["coft"],
    )


def set_stage() -> gr.HTML:
    """Place an open comparison: how far its columns are, their means, and its rows."""
    return gr.HTML(
        html_template="""<section class="set-open" aria-labelledby="h-set" hidden>
          <div class="bar"><h2 id="h-set" tabindex="-1"></h2><div class="end">
            <button type="button" class="btn" data-set="cancel">Cancel</button>
            <button type="button" class="btn primary" data-set="resume">Resume</button>
            <button type="button" class="btn" data-set="rows">Rows as CSV</button>
            <button type="button" class="btn" data-set="means">Means as CSV</button>
            <button type="button" class="btn quiet" data-set="remove">Delete</button></div></div>
          <p class="sub tnum about"></p>
          <ul class="set-progress"></ul><p class="vh" role="status"></p>
          <div class="set-means scrolls" tabindex="0" role="region" aria-label="Means of the columns, table"></div>
          <div class="bar"><h3 id="h-set-rows">Prompts</h3><span class="hint tnum where"></span><div class="end pager">
            <button type="button" class="btn small" data-set="previous">Previous</button>
            <button type="button" class="btn small" data-set="next">Next</button></div></div>
          <p class="hint">A prompt opens its chains side by side, below. A column’s head sorts.</p>
          <div class="set-rows scrolls" tabindex="0" role="region" aria-labelledby="h-set-rows"></div>
          <ul class="set-notes"></ul></section>""",
        js_on_load=f"coft.sets.mount(element, trigger, props, watch, {EVENTS})",
        apply_default_css=False,
        elem_id="compared-set",
        elem_classes=["coft"],
    )
