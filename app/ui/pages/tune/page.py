"""The tuning page: a set, the methods to sweep, and what each can do at its best."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gradio as gr

from app.services.known_policies import KNOWN_POLICIES
from app.services.ports import Services
from app.ui.components.calibration_form import hint, markup
from app.ui.components.topbar import topbar
from app.ui.pages.calibrate.common import EVENT, LATEST
from app.ui.pages.calibrate.result import chart
from app.ui.pages.tune.handlers import TuneHandlers
from app.ui.presenters_prompt_set import samples_list

POLL_SECONDS = 0.7
TUNABLE = [
    (item.name, item.key) for item in KNOWN_POLICIES if item.fuses or any(own.strength for own in item.parameters)
]


@dataclass(frozen=True, slots=True)
class _Form:
    """The controls of a new run."""

    file: gr.File
    samples: gr.HTML
    said_of_set: gr.HTML
    inputs: list[Any]
    run: gr.Button
    cancel: gr.Button


def tune_page(app: gr.Blocks, services: Services) -> None:
    """Build the page."""
    handlers = TuneHandlers(services)
    topbar("tune")
    job, shown_id = gr.State(None), gr.State(None)
    timer = gr.Timer(POLL_SECONDS, active=False)
    with gr.Column(elem_classes=["page"], elem_id="main"):
        markup(
            '<div class="pagehead"><h1>Tune</h1><p class="sub">Turn every method up in the same way, and compare each '
            "at its best: the smallest gap that loses at most 5 % of the accuracy of the model alone.</p></div>"
        )
        with gr.Row(elem_classes=["calib"]):
            with gr.Column(elem_classes=["stack"], min_width=0):
                form = _form(handlers)
                status = markup("", "job")
                said = gr.HTML("", apply_default_css=False, elem_id="job-said", elem_classes=["coft", "said-only"])
                runs = _runs()
            with gr.Column(elem_classes=["stack"], min_width=0):
                result = _result()
    download = gr.DownloadButton("Points", elem_id="points-file", elem_classes=["offscreen"])
    watched = [job, shown_id, status, said, timer, form.cancel]
    form.file.change(handlers.read, form.file, [form.said_of_set, form.run], **EVENT)
    form.samples.sample(handlers.sample, None, form.file, **EVENT)
    form.run.click(handlers.submit, [shown_id, form.file, *form.inputs], watched, **EVENT)
    form.cancel.click(handlers.cancel, job, None, **EVENT)
    timer.tick(handlers.poll, [job, shown_id], watched, **EVENT)
    app.load(handlers.opened, None, watched, **EVENT)
    runs.show(handlers.show, None, shown_id, trigger_mode="multiple", **EVENT)
    # The state is empty when the page opens on a fresh store, which is no change of it.
    gr.on([shown_id.change, app.load], handlers.result, shown_id, [runs, *result], **LATEST)
    saved = result[-1].click(handlers.csv, shown_id, download, **EVENT)
    saved.success(None, None, None, js="() => coft.download('points-file')")


def _form(handlers: TuneHandlers) -> _Form:
    with gr.Column(elem_classes=["group"]):
        markup('<div class="bar"><h2>1. Set</h2><span class="hint">CSV or JSONL, UTF-8</span></div>')
        file = gr.File(
            label="Set to tune on", show_label=False, file_types=[".csv", ".jsonl"], height=92, elem_id="tuning-set",
            elem_classes=["upload"],
        )  # fmt: skip
        samples = gr.HTML(
            samples_list(handlers.samples), js_on_load="coft.list.mount(element, trigger); /* 'sample' */",
            apply_default_css=False, elem_id="samples", elem_classes=["coft"],
        )  # fmt: skip
        hint(
            'Columns <span class="mono">prompt</span> and <span class="mono">answer</span>; optional '
            '<span class="mono">others</span> (wrong answers, separated by |), <span class="mono">pair</span> (shared '
            'by prompts that differ in the attribute alone), <span class="mono">spans</span>, and '
            '<span class="mono">graded</span> (no, where no answer is right).'
        )
        said_of_set = markup("", "read-set")
    with gr.Column(elem_classes=["group"]):
        markup('<div class="bar"><h2>2. Methods</h2></div>')
        name = gr.Textbox(label="Name", placeholder="the file's name", max_lines=1)
        model = gr.Dropdown([("demo, embedded", "demo")], value="demo", label="Model", allow_custom_value=True)
        policies = gr.CheckboxGroup(
            TUNABLE, value=["coft"], label="Methods to tune", elem_id="methods", elem_classes=["families-masked"]
        )
        with gr.Accordion("Certify COFT while tuning", open=False, elem_classes=["fold"]):
            on = gr.File(
                label="Prompts to calibrate on", show_label=False, file_types=[".csv", ".jsonl"], height=92,
                elem_id="calibrate-on", elem_classes=["upload"],
            )  # fmt: skip
            hint("A prompt set with references. COFT is calibrated at every lambda; without one it is not certified.")
        with gr.Row(elem_classes=["go"]):
            run = gr.Button("Run", variant="primary", interactive=False, elem_id="run")
            cancel = gr.Button("Cancel", visible=False, elem_id="cancel")
    return _Form(file, samples, said_of_set, [name, model, policies, on], run, cancel)


def _runs() -> gr.HTML:
    with gr.Column(elem_classes=["group"]):
        markup('<div class="bar"><h2>Past runs</h2></div>')
        return gr.HTML(
            js_on_load="coft.list.mount(element, trigger); /* 'show' */",
            apply_default_css=False,
            elem_id="runs",
            elem_classes=["coft"],
        )


def _result() -> list[Any]:
    """Head, picture, table and download of a run."""
    with gr.Column(elem_classes=["group"], elem_id="tuned"):
        head = markup("", "tuned-head")
        picture = chart("tuning-plot", visible=False)
        table = markup("", "tuned-points")
        with gr.Row(elem_classes=["go"]):
            save = gr.Button("All points as CSV", visible=False, size="sm", elem_id="save-points")
    return [head, picture, table, save]
