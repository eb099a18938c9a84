"""The batches page put together: a new batch beside the past ones, or one batch that is open."""

from __future__ import annotations

import gradio as gr

from app.bootstrap import Services
from app.ui.components.batch_panels import batch_stage, impact_panel, totals_head, totals_numbers
from app.ui.components.pieces import chart, markup
from app.ui.components.topbar import topbar
from app.ui.events import On, downloaded, wire
from app.ui.pages.batches.form import FormHandlers
from app.ui.pages.batches.handlers import BatchHandlers
from app.ui.pages.batches.new import NewBatch, new_batch, wire_new


def batches_page(app: gr.Blocks, services: Services) -> None:
    """Build the page."""
    topbar("batches")
    handlers = FormHandlers(services)
    with gr.Column(elem_classes=["page"], elem_id="main"):
        gr.HTML(
            '<div class="pagehead"><h1>Batches</h1><p class="sub">Many prompts under the same settings: a session of '
            "each, a table of all, and totals by group.</p>"
            '<a class="btn backtonew" href="./batches">All batches</a></div>',
            js_on_load="coft.calibrate.mount()",
            apply_default_css=False,
            elem_classes=["coft"],
        )
        form = _begin(services, handlers)
        stage, plot = _open()
    file = gr.DownloadButton("Table", elem_id="batch-file", elem_classes=["offscreen"])
    wire_new(app, handlers, form, stage)
    _wire_open(BatchHandlers(services), stage, plot, file)


def _begin(services: Services, handlers: FormHandlers) -> NewBatch:
    with gr.Row(elem_classes=["calib", "newbatch"], elem_id="batch-new"):
        form = new_batch(services, handlers)
        with gr.Column(elem_classes=["stack"], min_width=0):
            markup(
                '<div class="bar"><h2>Past batches</h2></div><div id="past" aria-busy="true" tabindex="-1"><p '
                'class="sub">Loading …</p></div>'
            )
    return form


def _open() -> tuple[gr.HTML, gr.Plot]:
    with gr.Column(elem_classes=["stack"], elem_id="batch-open", min_width=0):
        stage = batch_stage()
        with gr.Row(elem_classes=["pair", "batchpair"]):
            with gr.Column(min_width=0, elem_classes=["group"], elem_id="batch-totals"):
                totals_head()
                plot = chart("totals-plot")
                totals_numbers()
            with gr.Column(min_width=0, elem_classes=["group"], elem_id="batch-impact"):
                impact_panel()
    return stage, plot


def _wire_open(handlers: BatchHandlers, stage: gr.HTML, plot: gr.Plot, file: gr.DownloadButton) -> None:
    events = {
        "find": On(handlers.find, stage),
        "listed": On(handlers.listed, stage),
        "cancel": On(handlers.cancel, stage),
        "resume": On(handlers.resume, stage),
        "delete": On(handlers.delete, stage),
        "totals": On(handlers.totals, [stage, plot]),
        "outcome": On(handlers.outcome, stage),
        "export": On(handlers.export, file),
    }
    downloaded(wire(stage, events)["export"], "batch-file", "coft.batches.written();")
