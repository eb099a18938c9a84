"""The open batch: its rows, totals by group, and impact ratios. The browser asks for what they show."""

from __future__ import annotations

import gradio as gr

from app.ui.components.markup import icon
from app.ui.components.pieces import markup
from app.ui.presenters_batch_query import SIZES
from app.ui.presenters_batch_rows import columns_help
from app.ui.presenters_impact import MEASURES, NO_RULE, meaning

EVENTS = "['find', 'listed', 'cancel', 'resume', 'delete', 'totals', 'outcome', 'export']"


def batch_stage() -> gr.HTML:
    """Place the batch and its rows; it triggers everything and receives all messages."""
    sizes = "".join(f'<option value="{size}">{size} a page</option>' for size in SIZES)
    return gr.HTML(
        html_template=f"""<section aria-label="Batch" aria-busy="true">
        <div class="batchhead"><p class="sub">Loading …</p></div>
        <div class="batchstatus"></div><span class="vh progresssaid" role="status"></span>
        <div class="batchnotes"></div>
        <form class="filters" role="search" aria-label="Filters">
          <div class="field wide"><label for="batch-search">Search</label><input class="input" id="batch-search"
            type="search" name="text" autocomplete="off" spellcheck="false" placeholder="Prompt or continuation"></div>
          <div class="field"><label for="batch-group">Group</label><select class="select" id="batch-group"
            name="group"><option value="">All groups</option></select></div>
          <div class="field"><label for="batch-state">State</label><select class="select" id="batch-state"
            name="state"><option value="">All states</option></select></div>
          <div class="field"><button type="button" class="btn" data-do="reset" disabled>Reset</button></div></form>
        <div class="bar foundbar"><h3 class="vh">Rows</h3><span class="sub tnum where" role="status"></span>
          <span class="sub told" role="status"></span>
          <div class="end pager"><select class="select small" name="size" aria-label="Rows on a page">{sizes}</select>
            <button type="button" class="btn small" data-do="page" data-by="-1" disabled>{icon("back")}Previous</button>
            <span class="hint tnum leaf"></span>
            <button type="button" class="btn small" data-do="page" data-by="1" disabled>Next{icon("step")}</button>
          </div></div>
        <div class="rowscroll" id="batch-rows" role="region" aria-label="Rows" tabindex="0"></div>
        <details class="meanings"><summary>{icon("chev", "chev")}What the columns mean</summary>{columns_help()}
        </details></section>""",
        js_on_load=f"coft.batches.mount(element, trigger, props, watch, {EVENTS})",
        apply_default_css=False,
        elem_id="batch",
        elem_classes=["coft"],
    )


def totals_head() -> gr.HTML:
    """Place the heading of the totals with the choice of a measure."""
    menu = "".join(f'<option value="{name}">{title}</option>' for name, title in MEASURES.items())
    return markup(
        '<div class="bar"><h2 id="h-totals">Totals by group</h2><select class="select small" name="measure" '
        f'aria-label="Measure of the chart">{menu}</select></div><p class="hint">A dot is a group’s mean over its '
        "contexts; the line is its 95 % interval. An open square has none: too few of its contexts differ.</p>"
    )


def totals_numbers() -> gr.HTML:
    """Place the numbers behind the chart."""
    return markup(
        f'<div class="totalsfoot"><details><summary>{icon("chev", "chev")}The numbers, all measures</summary>'
        '<div class="totalsnumbers"></div></details><button type="button" class="btn small" data-do="export" '
        f'data-kind="groups">{icon("down")}Totals as CSV</button></div>'
    )


def impact_panel() -> gr.HTML:
    """Place the outcome rule, its preview and the table of impact ratios."""
    return markup(
        f"""<section aria-labelledby="h-impact" class="impactpanel">
        <div class="bar"><h2 id="h-impact">Selection rates and impact ratios</h2><span class="end acts">
          <button type="button" class="btn small" data-do="export" data-kind="impact" disabled>{icon("down")}CSV
          </button>
          <button type="button" class="btn small" data-do="print" disabled>Print</button></span></div>
        <form class="rule" aria-label="How a continuation is read">
          <div class="field"><label for="rule-selected">Selected if the text has</label><input class="input"
            id="rule-selected" name="selected" autocomplete="off" spellcheck="false" placeholder="hired"></div>
          <div class="field"><label for="rule-other">and not before it (optional)</label><input class="input"
            id="rule-other" name="other" autocomplete="off" spellcheck="false" placeholder="rejected"></div>
          <div class="ticks"><label><input type="checkbox" name="case"> Match case</label>
            <label><input type="checkbox" name="regex"> Regular expression</label>
            <label><input type="checkbox" name="small"> Leave groups below 2&nbsp;% out</label></div></form>
        <div class="preview-rule" role="status">{NO_RULE}</div>
        <div class="impactreport"></div>
        <details class="meanings" open><summary>{icon("chev", "chev")}What these numbers mean, and what not</summary>
          <div class="plainwords sub">{meaning()}</div></details></section>"""
    )
