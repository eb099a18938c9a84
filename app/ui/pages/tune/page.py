"""The tuning page: a set, the methods to sweep, and what each can do at its best."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gradio as gr

from app.bootstrap import Services
from app.services.known_policies import KNOWN_POLICIES
from app.services.views import AuditSettings
from app.ui.components.calibration_form import SOURCES
from app.ui.components.pieces import chart, hint, listing, markup, upload
from app.ui.components.topbar import topbar
from app.ui.events import EVENT, LATEST, MULTIPLE, downloaded
from app.ui.job_watch import JobWatch, job_part, run_buttons, wire_job
from app.ui.pages.tune.handlers import TuneHandlers
from app.ui.presenters_prompt_set import samples_list

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
    with gr.Column(elem_classes=["page"], elem_id="main"):
        markup(
            '<div class="pagehead"><h1>Tune</h1><p class="sub">Turn every method up in the same way, and compare each '
            "at its best: the smallest gap that loses at most 5 % of the accuracy of the model alone.</p></div>"
        )
        with gr.Row(elem_classes=["calib"]):
            with gr.Column(elem_classes=["stack"], min_width=0):
                form = _form(handlers)
                jobs = job_part(form.run, form.cancel, resumable=False)
                with gr.Column(elem_classes=["group"]):
                    markup('<div class="bar"><h2>Past runs</h2></div>')
                    runs = listing("runs", "show")
            with gr.Column(elem_classes=["stack"], min_width=0):
                result = _result()
    download = gr.DownloadButton("Points", elem_id="points-file", elem_classes=["offscreen"])
    shown_id = jobs.shown_id
    form.file.change(handlers.read, form.file, [form.said_of_set, form.run], **EVENT)
    form.samples.sample(handlers.sample, None, form.file, **EVENT)
    wire_job(app, JobWatch(services.jobs, handlers.runs), jobs, [form.file, *form.inputs])
    runs.show(handlers.show, None, shown_id, **MULTIPLE)  # type: ignore[attr-defined]
    # The state is empty when the page opens on a fresh store, which is no change of it.
    gr.on([shown_id.change, app.load], handlers.result, shown_id, [runs, *result], **LATEST)
    downloaded(result[-1].click(handlers.csv, shown_id, download, **EVENT), "points-file")


def _form(handlers: TuneHandlers) -> _Form:
    with gr.Column(elem_classes=["group"]):
        markup('<div class="bar"><h2>1. Set</h2><span class="hint">CSV or JSONL, UTF-8</span></div>')
        file = upload("Set to tune on", "tuning-set")
        samples = listing("samples", "sample", value=samples_list(handlers.samples))
        hint(
            'Columns <span class="mono">prompt</span> and <span class="mono">answer</span>; optional '
            '<span class="mono">others</span> (wrong answers, separated by |), <span class="mono">pair</span> (shared '
            'by prompts that differ in the attribute alone), <span class="mono">spans</span>, and '
            '<span class="mono">graded</span> (no, where no answer is right).'
        )
        said_of_set = markup("", "read-set")
    with gr.Column(elem_classes=["group"]):
        markup('<div class="bar"><h2>2. Methods</h2></div>')
        usual = AuditSettings()
        name = gr.Textbox(label="Name", placeholder="the file's name", max_lines=1)
        model = gr.Dropdown([("demo, embedded", "demo")], value="demo", label="Model", allow_custom_value=True)
        policies = gr.CheckboxGroup(
            TUNABLE, value=["coft"], label="Methods to tune", elem_id="methods", elem_classes=["families-masked"]
        )
        with gr.Accordion("Sampling", open=False, elem_classes=["fold"]):
            sampling = _sampling(usual)
        with gr.Accordion("Certify COFT while tuning", open=False, elem_classes=["fold"]):
            certified = _certified(usual)
        run, cancel = run_buttons()
    inputs = [name, model, policies, *certified, *sampling]
    return _Form(file, samples, said_of_set, inputs, run, cancel)


def _sampling(usual: AuditSettings) -> list[Any]:
    """Temperature, top-p and top-k."""
    controls = [
        gr.Slider(0.1, 2, usual.temperature, step=0.05, label="Temperature", buttons=[]),
        gr.Slider(0.05, 1, usual.top_p, step=0.01, label="Top-p (1 is off)", buttons=[]),
        gr.Slider(0, 200, usual.top_k, step=1, label="Top-k (0 is off)", buttons=[]),
    ]
    hint(
        "Answers are read with their whole probability at this temperature. Top-p and top-k count where COFT is "
        "calibrated, and say for which audits the strength is offered."
    )
    return controls


def _certified(usual: AuditSettings) -> list[Any]:
    """What COFT is calibrated on: a file, where its contexts come from, and how long chains of its own are."""
    on = upload("Prompts to calibrate on", "calibrate-on")
    hint("A prompt set. COFT is calibrated at every lambda; without one it is not certified.")
    source = gr.Radio(
        SOURCES, value="reference", label="Contexts come from", elem_classes=["stacked"], elem_id="source"
    )
    steps = gr.Slider(8, 512, usual.max_new_tokens, step=1, label="Steps of a chain", visible=False, buttons=[])
    source.change(lambda chosen: gr.Slider(visible=chosen == "rollout"), source, steps, **EVENT)
    return [on, source, steps]


def _result() -> list[Any]:
    """Head, picture, table and download of a run."""
    with gr.Column(elem_classes=["group"], elem_id="tuned"):
        head = markup("", "tuned-head")
        picture = chart("tuning-plot", visible=False)
        table = markup("", "tuned-points")
        with gr.Row(elem_classes=["go"]):
            save = gr.Button("All points as CSV", visible=False, size="sm", elem_id="save-points")
    return [head, picture, table, save]
