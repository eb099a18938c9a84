"""The tuning page: a set, the methods to sweep, and what each can do at its best."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gradio as gr

from app.jobs.watch import JobWatch, chosen, job_part, past_runs, run_buttons, wire_job
from app.prompts.form import SOURCES, refused_file, samples_list
from app.shared.audits import AuditSettings
from app.shared.components import chart, hint, listing, markup, upload
from app.shared.decoding import DECODING, SAMPLED
from app.shared.errors import ServiceError
from app.shared.events import EVENT, LATEST, downloaded, or_refusal, shown_to
from app.shared.needs import EXPORT, READ
from app.shared.settings_rail import setting_control
from app.shared.web import topbar
from app.shared.wiring import Services
from app.tune.runs import TUNABLE, TuningRequest
from app.tune.service import TuningService
from app.tune.words import EMPTY, read_set, run_details, runs_list, time_sentence, tuning_figure


class TuneHandlers:
    """Files, runs and their results."""

    def __init__(self, services: Services) -> None:
        """The folder for samples and downloads lives as long as the page."""
        self._tunings = services[TuningService]
        self.samples = services[TuningService].samples()
        self._folder = tempfile.TemporaryDirectory(prefix="coft-tuning-")

    @shown_to(READ)
    def read(self, path: str | None) -> list[Any]:
        """Read an uploaded set and say what is in it."""
        if path is None:
            return ["", gr.Button(interactive=False)]
        found = or_refusal(lambda: self._tunings.read(Path(path), Path(path).name))
        if isinstance(found, str):
            return [refused_file(found), gr.Button(interactive=False)]
        return [read_set(found), gr.Button(interactive=True)]

    @shown_to(READ)
    def forecast(self, path: str | None, model: str, policies: list[str], *sampling: Any) -> str:
        """How long the run would take; nothing while the form cannot be run, whose run says why."""
        if path is None or not policies:
            return ""
        if not self._tunings.at_hand(model):
            return time_sentence(None)
        if None in sampling:
            return ""
        request = TuningRequest("", tuple(policies), _settings(model, *sampling))
        seconds = or_refusal(lambda: self._tunings.forecast(self._tunings.read(Path(path), Path(path).name), request))
        return "" if isinstance(seconds, str) else time_sentence(seconds)

    @shown_to(READ)
    def sample(self, event: gr.EventData) -> str:
        """Take a sample as if it had been uploaded; from a folder that the browser may read."""
        sample_set = self.samples[int(event.id)]
        return str(shutil.copy(sample_set.path, Path(self._folder.name) / sample_set.name))

    def begin(
        self, path: str | None, name: str, model: str, policies: list[str], on: str | None, source: str, *sampling: Any
    ) -> int:
        """Begin a run with the form's values."""
        if path is None:
            raise ServiceError("No set is chosen: upload one, or take the sample.")
        if None in sampling:
            raise ServiceError("A sampling control is empty; give it a number.")
        settings = _settings(model, *sampling)
        request = TuningRequest(name.strip() or Path(path).stem, tuple(policies), settings, calibration_source=source)
        tuning_set = self._tunings.read(Path(path), Path(path).name)
        return self._tunings.submit(tuning_set, request, None if on is None else Path(on))

    @shown_to(READ)
    def result(self, shown_id: int | None) -> list[Any]:
        """A run's picture and figures, and the list of runs."""
        listed = runs_list(self._tunings.list(), shown_id)
        if shown_id is None:
            return [listed, EMPTY, gr.Plot(visible=False), "", gr.Button(visible=False)]
        view = self._tunings.view(shown_id)
        head, table = run_details(view)
        return [listed, head, gr.Plot(tuning_figure(view), visible=True), table, gr.Button(visible=True)]

    @shown_to(EXPORT)
    def csv(self, shown_id: int | None) -> str:
        """Write the shown run for download."""
        return str(self._tunings.write_csv(chosen(shown_id), Path(self._folder.name)))


def _settings(model: str, steps: float, temperature: float, top_p: float, top_k: float) -> AuditSettings:
    """Settings from the form's model and sampling controls, in their order."""
    return AuditSettings(
        model=model, max_new_tokens=int(steps), temperature=float(temperature), top_p=float(top_p), top_k=int(top_k)
    )


def build_page(app: gr.Blocks, services: Services) -> None:
    """Build the page."""
    handlers = TuneHandlers(services)
    topbar(services, "tune")
    with gr.Column(elem_classes=["page"], elem_id="main"):
        markup(
            '<div class="pagehead"><h1>Strength</h1><p class="sub">How strong can each method be before accuracy '
            "drops 5 %? Each is compared there, by the gap between groups that it leaves.</p></div>"
        )
        with gr.Row(elem_classes=["calib"]):
            with gr.Column(elem_classes=["stack"], min_width=0):
                form = _form(handlers)
                jobs = job_part(form.run, form.cancel, resumable=False)
                runs = past_runs(jobs.shown_id)
            with gr.Column(elem_classes=["stack"], min_width=0):
                result = _result()
    download = gr.DownloadButton("Points", elem_id="points-file", elem_classes=["offscreen"])
    shown_id = jobs.shown_id
    read = form.file.change(handlers.read, form.file, [form.said_of_set, form.run], **EVENT)
    timed = [form.file, *form.timed]
    read.success(handlers.forecast, timed, form.time, **LATEST)
    gr.on([field.change for field in form.timed[:2]], handlers.forecast, timed, form.time, **LATEST)
    form.samples.sample(handlers.sample, None, form.file, **EVENT)
    wire_job(app, JobWatch(services[TuningService], handlers.begin), jobs, [form.file, *form.inputs])
    # The state is empty when the page opens on a fresh store, which does not change it.
    gr.on([shown_id.change, app.load], handlers.result, shown_id, [runs, *result], **LATEST)
    downloaded(result[-1].click(handlers.csv, shown_id, download, **EVENT), "points-file")


def _form(handlers: TuneHandlers) -> SimpleNamespace:
    with gr.Column(elem_classes=["group"]):
        markup('<div class="bar"><h2>1. Set</h2><span class="hint">CSV or JSONL, UTF-8</span></div>')
        file = upload("Set to tune on", "tuning-set")
        samples = listing("samples", "sample", value=samples_list(handlers.samples))
        hint(
            'Columns <span class="mono">prompt</span> and <span class="mono">answer</span>; optional '
            '<span class="mono">others</span> (wrong answers, separated by |), <span class="mono">pair</span> (shared '
            'by prompts that differ only in the attribute), <span class="mono">spans</span>, and '
            '<span class="mono">graded</span> (no, where no answer is right).'
        )
        said_of_set = markup("", "read-set")
    with gr.Column(elem_classes=["group"]):
        markup('<div class="bar"><h2>2. Methods</h2></div>')
        usual = AuditSettings()
        name = gr.Textbox(label="Name", placeholder="the file's name", max_lines=1)
        model = gr.Dropdown([("demo, embedded", "demo")], value="demo", label="Model", allow_custom_value=True)
        policies = gr.CheckboxGroup(
            [(item.name, item.key) for item in TUNABLE],
            value=["coft"],
            label="Methods to tune",
            elem_id="methods",
            elem_classes=["families-masked"],
        )
        with gr.Accordion("Sampling", open=False, elem_classes=["fold"]):
            sampling = _sampling(usual)
        with gr.Accordion("Certify COFT while tuning", open=False, elem_classes=["fold"]):
            certified = _certified(usual)
        time = markup("", "tuning-time")
        run, cancel = run_buttons()
    inputs = [name, model, policies, *certified, *sampling]
    return SimpleNamespace(
        file=file, samples=samples, said_of_set=said_of_set, inputs=inputs, run=run, cancel=cancel, time=time,
        timed=[model, policies, certified[-1], *sampling],
    )  # fmt: skip


def _sampling(usual: AuditSettings) -> list[Any]:
    """Temperature, top-p and top-k."""
    controls = [setting_control(DECODING[name], value=getattr(usual, name)) for name in SAMPLED]
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
    steps = gr.Slider(8, 512, usual.max_new_tokens, step=1, label="Steps of a text", visible=False, buttons=[])
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
