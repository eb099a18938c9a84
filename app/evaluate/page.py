"""The page Evaluate: suites, methods and a model, the run, and its figures."""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gradio as gr
from gradio.components import Component

from app.evaluate.charts import coverage_figure, methods_figure, parts_figure, plane_figure
from app.evaluate.coefficient_page import (
    CoefficientHandlers,
    CoefficientPart,
    place_coefficients,
    wire_coefficients,
)
from app.evaluate.experiments.page import (
    OWN,
    ExperimentHandlers,
    ExperimentPart,
    judges_from,
    place_given,
    place_judges,
    place_tables,
    wire_choice,
    wire_tables,
)
from app.evaluate.experiments.service import ExperimentPlan, ExperimentService
from app.evaluate.methods import METHOD_SETS, methods_from
from app.evaluate.parts import (
    EMPTY,
    estimate_markup,
    head_markup,
    items_markup,
    runs_markup,
    suite_name,
    suites_markup,
    table_markup,
    working_markup,
)
from app.evaluate.runs import EvaluationRequest, EvaluationView, SuiteOutcomes
from app.evaluate.service import JOB_KIND, EvaluationService
from app.evaluate.sources import HUB
from app.evaluate.table_service import TableRequest, TableService
from app.evaluate.tables import Column, Table
from app.shared.audits import AuditSettings
from app.shared.errors import ServiceError
from app.shared.events import EVENT, LATEST, MULTIPLE, downloaded, shown, shown_stream
from app.shared.job_watch import JobKind, JobWatch, asked_number, job_part, run_buttons, wire_job
from app.shared.jobs import JobService
from app.shared.markup import chart, hint, listing, markup
from app.shared.settings_rail import FRAMED, frame_settings, prompt_format
from app.shared.web import topbar
from app.shared.wiring import Services
from coft_core.suites.base import Outside, Suite

MAIN = ""
"""Chosen in place of a suite for the main figures of all."""

TOLD_SECONDS = 0.7
"""How often is told how far figures are."""

FORMATS = (("CSV", "csv"), ("LaTeX", "latex"), ("HTML", "html"), ("JSON with samples", "json"))

METHODS = [
    *((f"{name}: {', '.join(specifications)}", name) for name, specifications in METHOD_SETS.items()),
    *((name, name) for name in ("vanilla", "coft:calibrated", "coft:lam=0.3", "coft", "coft:lam=0.9", "coft:lam=1")),
    *((name, name) for name in ("sdd", "dexperts", "gedi", "dtcd", "detox", "safety_template", "cf_substitution")),
]
FIRST = ["vanilla", "coft"]
USUAL = AuditSettings()


class EvaluateHandlers:
    """Every method answers one event of the page."""

    def __init__(self, services: Services, experiments: ExperimentHandlers) -> None:
        """The folder for downloads lives as long as the page; ``experiments`` plans what is chosen by name."""
        self._evaluations = services[EvaluationService]
        self._experiments = services[ExperimentService]
        self._named = experiments
        self._tables = services[TableService]
        self._folder = tempfile.TemporaryDirectory(prefix="coft-evaluations-")

    @shown
    def suites(self, data: str) -> list[Any]:
        """The suites that are here, those that a hub has, and a card for each."""
        known = self._evaluations.suites(data.strip())
        readable = [suite for suite in known if not suite.missing]
        here, far = ([suite for suite in readable if (suite.source == HUB) is on_hub] for on_hub in (False, True))
        keys = [suite.key for suite in here]
        first = [key for key in keys if key.startswith("phantom")] or keys[:1]
        return [
            gr.CheckboxGroup([(suite_name(suite), suite.key) for suite in here], value=first),
            gr.CheckboxGroup([(suite_name(suite), suite.key) for suite in far], value=[]),
            gr.Accordion(visible=bool(far)),
            suites_markup(known),
        ]

    @shown
    def estimate(self, experiment: str, given: str | None, *values: Any) -> str:
        """What the run will take."""
        if experiment == OWN:
            request = self._request(*values)
            estimate = self._evaluations.estimate(request)
        else:
            plan = self._plan(experiment, given, *values)
            request, estimate = plan.request, self._experiments.estimate(plan)
        return estimate_markup(estimate, self._evaluations.suites(request.data))

    @property
    def runs(self) -> JobKind:
        """The runs as jobs that the page follows."""
        return JobKind(
            JOB_KIND, self._begin, lambda job: int(job.payload["evaluation_id"]), self._newest, keeps_parts=True
        )

    def _begin(self, experiment: str, given: str | None, *values: Any) -> int:
        own = experiment == OWN
        request = self._request(*values) if own else self._plan(experiment, given, *values).request
        evaluation = self._evaluations.submit(request)
        job = self._evaluations.view(evaluation).job
        assert job is not None
        return job.id

    @shown
    def resume(self, event: gr.EventData) -> int:
        """Go on with what is not done of an evaluation; the job to follow."""
        return self._evaluations.resume(int(event.id))

    def _plan(
        self, experiment: str, given: str | None, name: str, model: str, data: str, here: list[str], far: list[str],
        methods: list[str], judges: str, limit: float | None, seeds: float, *own: Any,
    ) -> ExperimentPlan:  # fmt: skip
        """An experiment has its own suites, methods and calibration; the rest of the form holds for it too."""
        return self._named.plan(experiment, given, name, model, data, limit, seeds, judges)

    def _request(
        self, name: str, model: str, data: str, here: list[str], far: list[str], methods: list[str], judges: str,
        limit: float | None, seeds: float, share: float, steps: float, temperature: float, top_p: float, top_k: float,
        *framed: Any,
    ) -> EvaluationRequest:  # fmt: skip
        chosen = {*here, *far}
        suites = [suite.key for suite in self._evaluations.known_suites() if suite.key in chosen]
        if not suites:
            raise ServiceError("No suite is chosen; choose at least one.")
        if not methods:
            raise ServiceError("No method is chosen; choose at least one.")
        settings = AuditSettings(
            model=model, max_new_tokens=int(steps), temperature=float(temperature), top_p=float(top_p),
            top_k=int(top_k), **frame_settings(dict(zip(FRAMED, framed, strict=True))),
        )  # fmt: skip
        return EvaluationRequest(
            name=name.strip() or f"{model}, {len(suites)} suites",
            suites=tuple(suites),
            methods=methods_from(methods, settings),
            model=model,
            seeds=tuple(range(int(seeds))),
            limit=int(limit) if limit else None,
            calibration_share=float(share),
            data=data.strip(),
            judges=judges_from(judges),
        )

    def _newest(self, request: gr.Request) -> int | None:
        runs, asked = [run.id for run in self._evaluations.list()], asked_number(request, "evaluation")
        return asked if asked in runs else next(iter(runs), None)

    @shown
    def show(self, event: gr.EventData) -> int:
        """Show another evaluation."""
        return int(event.id)

    @shown
    def delete(self, event: gr.EventData) -> list[Any]:
        """Delete an evaluation, and show the newest that is left."""
        self._evaluations.delete(int(event.id))
        left = self._evaluations.list()
        first = left[0].id if left else None
        return [first, runs_markup(left, first)]

    @shown
    def opened(self, shown_id: int | None) -> list[Any]:
        """What can be chosen of the shown evaluation, and the list of all."""
        listed = self._evaluations.list()
        runs = runs_markup(listed, shown_id)
        if shown_id is None:
            return [runs, EMPTY, *[gr.skip()] * 4, gr.Column(visible=False)]
        view = self._evaluations.view(shown_id)
        labels = [method.label for method in view.request.methods]
        suites = [("Main figures of all", MAIN), *((plan.title, plan.suite) for plan in view.plans)]
        others = [(run.name, run.id) for run in listed if run.id != shown_id]
        return [
            runs,
            head_markup(view),
            gr.Dropdown(suites, value=MAIN),
            gr.Dropdown([("none", ""), *((label, label) for label in labels)], value=""),
            gr.Dropdown([("none", 0), *others], value=0),
            gr.Dropdown([(label, label) for label in labels], value=labels[0]),
            gr.Column(visible=bool(view.plans)),
        ]

    @shown_stream
    def figures(
        self, shown_id: int | None, suite: str, reference: str, outside: Outside, beside: int
    ) -> Iterator[list[Any]]:
        """Table and pictures, and until they are there how far they are."""
        hidden = gr.Plot(visible=False)
        view = None if shown_id is None else self._evaluations.view(shown_id)
        if view is None or not view.plans:
            yield ["", "", hidden, hidden, hidden]
            return
        request, told = TableRequest(view.id, suite, reference, outside), -math.inf
        for done, total in self._tables.measuring(request, int(beside)):
            if time.monotonic() - told > TOLD_SECONDS:
                told = time.monotonic()
                yield [working_markup("Working out the figures", done, total, "suite"), *[gr.skip()] * 4]
        if beside:
            table = self._tables.beside(view.id, int(beside), suite, outside)
        else:
            table = self._tables.table(request).table
        yield ["", table_markup(table, view.plans), *_pictures(table), _coverage(view)]

    @shown
    def items(self, shown_id: int | None, suite: str, method: str, search: str) -> str:
        """The items of a suite under a method."""
        outcomes = self._outcomes(shown_id, suite, method)
        if outcomes is None:
            return '<p class="sub">Choose a suite above to see its items.</p>'
        return items_markup(outcomes, search, self._suite(suite).title)

    @shown
    def open_item(self, event: gr.EventData, shown_id: int | None, suite: str, method: str) -> int:
        """Open an item as an audit; the session's number."""
        outcomes = self._outcomes(shown_id, suite, method)
        if outcomes is None or shown_id is None:
            raise ServiceError("No suite is chosen; choose one and open an item of it.")
        outcome = outcomes.outcomes[int(event.id)]
        opened = self._evaluations.open_item(shown_id, suite, method, outcome.item, outcome.seed)
        return opened.session_id

    @shown
    def export(self, shown_id: int | None, suite: str, reference: str, outside: Outside, kind: str) -> str:
        """Write the shown figures for download."""
        if shown_id is None:
            raise ServiceError("No evaluation is shown; choose one from the list.")
        request = TableRequest(shown_id, suite, reference, outside)
        return str(self._tables.write(request, kind, Path(self._folder.name), samples=kind == "json"))

    def _outcomes(self, shown_id: int | None, suite: str, method: str) -> SuiteOutcomes | None:
        if shown_id is None or suite == MAIN or not method:
            return None
        return SuiteOutcomes(suite, method, self._evaluations.outcomes(shown_id, suite, method))

    def _suite(self, key: str) -> Suite:
        return next(suite for suite in self._evaluations.known_suites() if suite.key == key)


def _pictures(table: Table) -> list[gr.Plot]:
    """The main figure of the first suite by method or by part, and bias against utility where there are both."""
    columns = table.columns
    if not columns:
        return [gr.Plot(visible=False)] * 2
    first = next((column for column in columns if column.main), columns[0])
    parts = [column for column in columns if column.figure == first.figure and column.part]
    picture = parts_figure(table, parts) if table.suite and parts else methods_figure(table, first)
    bias, utility = _of_kind(columns, "bias"), _of_kind(columns, "utility")
    both = gr.Plot(plane_figure(table, bias, utility), visible=True) if bias and utility else gr.Plot(visible=False)
    return [gr.Plot(picture, visible=True), both]


def _of_kind(columns: Sequence[Column], kind: str) -> Column | None:
    return next((column for column in columns if column.kind == kind and column.main), None)


def _coverage(view: EvaluationView) -> gr.Plot:
    checked = [note for note in view.calibrations if note.coverage is not None]
    return gr.Plot(coverage_figure(checked), visible=True) if checked else gr.Plot(visible=False)


@dataclass(frozen=True, slots=True)
class _Form:
    inputs: list[Any]
    experiment: gr.Dropdown
    chosen: list[Any]
    data: gr.Textbox
    suites: list[Any]
    cards: gr.HTML
    estimate: gr.Button
    estimated: gr.HTML
    run: gr.Button
    cancel: gr.Button


@dataclass(frozen=True, slots=True)
class _Result:
    head: gr.HTML
    experiment: ExperimentPart
    coefficients: CoefficientPart
    group: gr.Column
    suite: gr.Dropdown
    reference: gr.Dropdown
    beside: gr.Dropdown
    outside: gr.Radio
    busy: gr.HTML
    table: gr.HTML
    pictures: list[gr.Plot]
    method: gr.Dropdown
    search: gr.Textbox
    items: gr.HTML
    kind: gr.Dropdown
    save: gr.Button


def build_page(app: gr.Blocks, services: Services) -> None:
    """Build the page."""
    named = ExperimentHandlers(services)
    handlers = EvaluateHandlers(services, named)
    topbar(services, "evaluate")
    with gr.Column(elem_classes=["page"], elem_id="main"):
        markup(
            '<div class="pagehead"><h1>Benchmarks</h1><p class="sub">Benchmarks of bias and of usefulness, read with '
            "every method; each figure with its interval, each item open to an audit.</p></div>"
        )
        with gr.Row(elem_classes=["calib"]):
            with gr.Column(elem_classes=["stack"], min_width=0):
                form = _form(named)
                jobs = job_part(form.run, form.cancel, resumable=False)
                with gr.Column(elem_classes=["group"]):
                    markup('<div class="bar"><h2>Evaluations</h2></div>')
                    runs = listing("runs", "show")
            with gr.Column(elem_classes=["stack"], min_width=0):
                result = _result()
    download = gr.DownloadButton("File", elem_id="evaluation-file", elem_classes=["offscreen"])
    session = gr.Number(visible=False)
    watch = JobWatch(services[JobService], handlers.runs)
    wire_job(app, watch, jobs, form.inputs)
    gr.on([app.load, form.data.submit], handlers.suites, form.data, [*form.suites, form.cards], **MULTIPLE)
    wire_choice(named, form.experiment, form.data, form.chosen)
    form.estimate.click(handlers.estimate, form.inputs, form.estimated, **EVENT)
    shown_id = jobs.shown_id
    runs.show(handlers.show, None, shown_id, **MULTIPLE)
    resumed = result.head.resume(handlers.resume, None, jobs.job, **MULTIPLE)
    resumed.success(watch.poll, [jobs.job, shown_id], jobs.watched, **EVENT)
    result.head.delete(handlers.delete, None, [shown_id, runs], **MULTIPLE)
    choices = [result.suite, result.reference, result.beside, result.method]
    # A run that goes on with what is shown ends without showing another one: what follows it tells that it ended.
    opening = [shown_id.change, jobs.job.change, app.load]
    opened = gr.on(opening, handlers.opened, shown_id, [runs, result.head, *choices, result.group], **LATEST)
    wire_tables(named, result.experiment, shown_id, result.outside, opening)
    asked = [shown_id, result.suite, result.reference, result.outside, result.beside]
    shown_parts = [result.busy, result.table, *result.pictures]
    changed = [part.change for part in (result.suite, result.reference, result.outside, result.beside)]
    for made in (
        opened.success(handlers.figures, asked, shown_parts, **LATEST),
        gr.on(changed, handlers.figures, asked, shown_parts, **LATEST),
    ):
        made.failure(lambda: "", None, result.busy, **EVENT)
    wire_coefficients(
        CoefficientHandlers(services), result.coefficients, opened, shown_id, result.suite, result.outside
    )  # fmt: skip
    listed = [shown_id, result.suite, result.method, result.search]
    gr.on([result.suite.change, result.method.change], handlers.items, listed, result.items, **LATEST)
    result.search.submit(handlers.items, listed, result.items, **MULTIPLE)
    begun = result.items.open(handlers.open_item, listed[:3], session, **MULTIPLE)
    begun.success(None, session, None, js="(number) => { window.location.href = `./?session=${number}`; }")
    written = result.save.click(handlers.export, [*asked[:4], result.kind], download, **EVENT)
    downloaded(written, "evaluation-file")


def _form(named: ExperimentHandlers) -> _Form:
    with gr.Column(elem_classes=["group"]):
        markup('<div class="bar"><h2>1. Suites</h2></div>')
        experiment = gr.Dropdown(
            named.choices(), value=OWN, label="What is read", elem_id="experiment",
            info="Your own choice, or a table or figure of the paper.",
        )  # fmt: skip
        card = gr.HTML("", visible=False, apply_default_css=False, elem_id="experiment-card", elem_classes=["coft"])
        data = gr.Textbox(
            label="Data folder", placeholder="that of COFT_DATA", max_lines=1, elem_id="data", info="Enter looks again."
        )
        with gr.Column(min_width=0) as own_suites:
            here = gr.CheckboxGroup(
                [], label="In the folder, or with the program", elem_id="suites", elem_classes=["families-masked"]
            )
            with gr.Accordion("From a hub, downloaded when first read", open=False, elem_classes=["fold"]) as on_hub:
                far = gr.CheckboxGroup(
                    [], label="From a hub", elem_id="hub-suites", elem_classes=["families-masked"], show_label=False
                )
            with gr.Accordion("What they measure, and what not", open=False, elem_classes=["fold"]):
                cards = markup("", "cards")
    with gr.Column(elem_classes=["group"]):
        markup('<div class="bar"><h2>2. Model and methods</h2></div>')
        name = gr.Textbox(label="Name", placeholder="model and what is read", max_lines=1)
        model = gr.Dropdown([("demo, embedded", "demo")], value="demo", label="Model", allow_custom_value=True)
        given = place_given()
        with gr.Column(min_width=0) as own_methods:
            methods = gr.Dropdown(
                METHODS, value=FIRST, multiselect=True, allow_custom_value=True, label="Methods", elem_id="methods"
            )
            hint(
                'A method is a name with options, as in <span class="mono">coft:calibrated,lam=0.4</span>: '
                '<span class="mono">calibrated</span> fits its thresholds on a share of each suite. A set names '
                "several."
            )
            framed: dict[str, Component] = {}
            with gr.Accordion("Prompt format", open=False, elem_classes=["fold"]):
                hint(
                    'Of all methods; one with an option of its own, as in <span class="mono">coft:thinking=off</span>, '
                    "keeps that."
                )
                prompt_format(framed)
        judges = place_judges()
        with gr.Accordion("Protocol", open=False, elem_classes=["fold"]):
            limit = gr.Number(200, label="Items of a suite (empty takes all)", precision=0, minimum=1)
            seeds = gr.Slider(1, 5, 3, step=1, label="Seeds", buttons=[])
            with gr.Column(min_width=0) as own_calibration:
                share = gr.Slider(0.1, 0.3, 0.15, step=0.01, label="Share of items to calibrate on", buttons=[])
                steps = gr.Slider(8, 512, 64, step=1, label="Steps of a calibration's chains", buttons=[])
                temperature = gr.Number(USUAL.temperature, label="Temperature of all methods", minimum=0.01)
                top_p = gr.Number(USUAL.top_p, label="Nucleus mass of all methods (1 is off)", minimum=0.01, maximum=1)
                top_k = gr.Number(USUAL.top_k, label="Top-k of all methods (0 is off)", precision=0, minimum=0)
    with gr.Column(elem_classes=["group"], elem_id="go"):
        markup('<div class="bar"><h2>3. Run</h2></div>')
        estimated = markup('<p class="hint">Reads one item of each suite, and says what all will take.</p>', "estimate")
        with gr.Row(elem_classes=["go"]):
            estimate = gr.Button("Estimate", elem_id="estimate-run")
        run, cancel = run_buttons()
        run.interactive = True
    chosen = [own_suites, own_methods, own_calibration, card, given, seeds]
    asked = [experiment, given, name, model, data, here, far, methods, judges, limit, seeds]
    inputs = [*asked, share, steps, temperature, top_p, top_k, *(framed[name] for name in FRAMED)]
    return _Form(inputs, experiment, chosen, data, [here, far, on_hub], cards, estimate, estimated, run, cancel)


def _result() -> _Result:
    with gr.Column(elem_classes=["group"], elem_id="evaluation"):
        head = listing("evaluation-head", "delete", "resume", value=EMPTY)
        experiment = place_tables()
        with gr.Column(visible=False, min_width=0) as group:
            with gr.Row(elem_classes=["choices"]):
                suite = gr.Dropdown([("Main figures of all", MAIN)], value=MAIN, label="Figures", elem_id="figures-of")
                reference = gr.Dropdown([("none", "")], value="", label="Compared with", elem_id="reference")
                beside = gr.Dropdown([("none", 0)], value=0, label="Beside", elem_id="beside")
            outside = gr.Radio(
                [("the step's threshold", "floor"), ("nothing: the text is impossible", "zero")], value="floor",
                label="A refused token counts as", elem_id="outside",
            )  # fmt: skip
            busy = markup("", "figures-busy")
            table = gr.HTML(
                "", js_on_load="coft.evaluate.mount(element)", apply_default_css=False, elem_id="figures",
                elem_classes=["coft"],
            )  # fmt: skip
            pictures = [chart(name, visible=False) for name in ("figures-plot", "plane-plot", "coverage-plot")]
            coefficients = place_coefficients()
            with gr.Row(elem_classes=["choices"]):
                method = gr.Dropdown([], label="Items under", elem_id="items-under")
                search = gr.Textbox(label="Find an item", max_lines=1, elem_id="find-item", info="Enter looks.")
            items = listing("items", "open")
            with gr.Row(elem_classes=["go"]):
                kind = gr.Dropdown(list(FORMATS), value="csv", label="Format", elem_id="format")
                save = gr.Button("Save figures", size="sm", elem_id="save-figures")
    return _Result(
        head, experiment, coefficients, group, suite, reference, beside, outside, busy, table, pictures, method, search,
        items, kind, save,
    )  # fmt: skip
