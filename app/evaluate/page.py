"""The page Evaluate: suites, methods and a model, the run, and its figures."""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gradio as gr
from gradio.components import Component
from gradio.events import Dependency
from markupsafe import Markup

from app.evaluate import words
from app.evaluate.charts import coverage_figure, methods_figure, parts_figure, plane_figure
from app.evaluate.coefficients import CoefficientService
from app.evaluate.experiments.page import JUDGES, OWN, ExperimentHandlers, notes_markup, pairs_from
from app.evaluate.exports import table_fragment
from app.evaluate.finding import finding
from app.evaluate.item_list import item_rows
from app.evaluate.layout import laid_out, readings_laid_out
from app.evaluate.methods import METHOD_SETS, methods_from
from app.evaluate.operations import export_evaluation
from app.evaluate.runs import EvaluationRequest, EvaluationView, KnownSuite, SuitePlan
from app.evaluate.service import EvaluationService
from app.evaluate.sources import HUB, SHIPPED
from app.evaluate.table_service import TableRequest, TableService, items_of
from app.evaluate.tables import Column, Table
from app.jobs.watch import JobWatch, job_part, run_buttons, wire_job
from app.report.panel import place_publication
from app.settings import Settings
from app.shared.audits import AuditSettings
from app.shared.components import chart, hint, listing, markup
from app.shared.decoding import FRAMED
from app.shared.errors import ServiceError
from app.shared.events import EVENT, LATEST, MULTIPLE, downloaded, or_refusal, shown, shown_stream, shown_to
from app.shared.glossary import explained_titles
from app.shared.markup import laid_out as template
from app.shared.markup import scrolled
from app.shared.needs import EXPORT, READ, needs
from app.shared.results.formats import SHARED
from app.shared.results.publication import Publication
from app.shared.settings_rail import frame_settings, model_menu, prompt_format
from app.shared.web import topbar
from app.shared.wiring import Services
from coft_core.model.load import DEMO
from coft_core.suites.base import Outside

MAIN = ""
"""Chosen in place of a suite for the main figures of all."""

TOLD_SECONDS = 0.7
"""How often is told how far figures are."""

FORMATS = (("CSV", "csv"), ("LaTeX", "latex"), ("HTML", "html"), ("JSON with samples", "json"))
OF_OTHERS = [(own.title, form) for form, own in SHARED.items()]

METHODS = [
    *((f"{name}: {', '.join(specifications)}", name) for name, specifications in METHOD_SETS.items()),
    *((name, name) for name in ("vanilla", "coft:calibrated", "coft:lam=0.3", "coft", "coft:lam=0.9", "coft:lam=1")),
    *((name, name) for name in ("sdd", "dexperts", "gedi", "dtcd", "detox", "safety_template", "cf_substitution")),
]
FIRST = ["vanilla", "coft"]
USUAL = AuditSettings()

ITEMS = 20
"""Items that are listed at once."""

UNTOLD = '<p class="hint">The model is not loaded yet; Estimate loads it and says what the run takes.</p>'

EMPTY = (
    '<div class="empty pile"><h2>No result yet</h2><p class="sub">Choose suites and methods, and press Run. The result '
    "opens with one sentence and a picture of each suite. Two suites come with the program. Others come from a folder "
    "with their authors’ files, or from a hub.</p></div>"
)


class EvaluateHandlers:
    """Every method answers one event of the page."""

    def __init__(self, services: Services, experiments: ExperimentHandlers) -> None:
        """The folder for downloads lives as long as the page; ``experiments`` plans what is chosen by name."""
        self._evaluations = services[EvaluationService]
        self._named = experiments
        self._tables = services[TableService]
        self._coefficients = services[CoefficientService]
        self._folder = tempfile.TemporaryDirectory(prefix="coft-evaluations-")
        self._share = partial(export_evaluation.call, services, folder=Path(self._folder.name))

    @shown_to(READ)
    def suites(self, data: str) -> list[Any]:
        """The suites that are here, those that a hub has, and a card for each."""
        known = self._evaluations.suites(data.strip())
        readable = [suite for suite in known if not suite.missing]
        here, far = ([suite for suite in readable if (suite.source == HUB) is on_hub] for on_hub in (False, True))
        keys = [suite.key for suite in here]
        first = [key for key in keys if key.startswith("phantom")] or keys[:1]
        where = {HUB: "from a hub, downloaded when first read", SHIPPED: "with the program"}
        places = {suite.key: where.get(suite.source, "in the folder") for suite in known}
        return [
            gr.CheckboxGroup([(_suite_name(suite), suite.key) for suite in here], value=first),
            gr.CheckboxGroup([(_suite_name(suite), suite.key) for suite in far], value=[]),
            gr.Accordion(visible=bool(far)),
            template("evaluate/suites.html", suites=known, places=places),
        ]

    @shown_to(READ)
    def estimate(self, *values: Any) -> str:
        """What the run will take; loads the model."""
        return self._estimated(*values)

    def _estimated(self, *values: Any) -> Markup:
        request = self._asked(*values)
        titles = {suite.key: suite.title for suite in self._evaluations.known_suites()}
        estimate = self._evaluations.estimate(request)
        return template("evaluate/estimate.html", estimate=estimate, titles=titles, refusal="")

    @shown_to(READ)
    def forecast(self, *values: Any) -> str:
        """What the run will take, where its model is loaded; a refusal is shown in its place, not as a message."""
        model = values[3]
        if model != DEMO and self._evaluations.host.loaded(model) is None:
            return UNTOLD
        told = or_refusal(lambda: self._estimated(*values))
        refusal = {"estimate": None, "titles": {}, "refusal": told}
        return told if isinstance(told, Markup) else template("evaluate/estimate.html", **refusal)

    def begin(self, *values: Any) -> int:
        """Begin an evaluation, or an experiment; the job to follow."""
        job = self._evaluations.view(self._evaluations.submit(self._asked(*values))).job
        assert job is not None
        return job.id

    @shown
    def resume(self, event: gr.EventData) -> int:
        """Go on with what is not done of an evaluation; the job to follow."""
        return self._evaluations.resume(int(event.id))

    def _asked(
        self, experiment: str, given: str | None, name: str, model: str, data: str, here: list[str], far: list[str],
        methods: list[str], judges: str, limit: float | None, seeds: float, *own: Any,
    ) -> EvaluationRequest:  # fmt: skip
        """What the form asks; an experiment has its own suites, methods and calibration."""
        if experiment != OWN:
            return self._named.request(experiment, given, name, model, data, limit, seeds, judges)
        return self._request(name, model, data, here, far, methods, judges, limit, seeds, *own)

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
            judges=pairs_from(JUDGES, judges),
        )

    @shown_to(READ)
    def show(self, event: gr.EventData) -> int:
        """Show another evaluation."""
        return int(event.id)

    @shown
    def delete(self, event: gr.EventData) -> list[Any]:
        """Delete an evaluation, and show the newest that is left."""
        self._evaluations.delete(int(event.id))
        left = self._evaluations.list()
        first = left[0].id if left else None
        return [first, template("evaluate/runs.html", runs=left, shown=first)]

    @shown_to(READ)
    def opened(self, shown_id: int | None) -> list[Any]:
        """What can be chosen of the shown evaluation, and the list of all."""
        listed = self._evaluations.list()
        runs = template("evaluate/runs.html", runs=listed, shown=shown_id)
        if shown_id is None:
            return [runs, EMPTY, *[gr.skip()] * 4, gr.Column(visible=False)]
        view = self._evaluations.view(shown_id)
        labels = [method.label for method in view.request.methods]
        notes = words.silent_sentences(view.calibrations)
        notes += dict.fromkeys(text for note in view.calibrations for text in note.notes)
        suites = [("Main figures of all", MAIN), *((plan.title, plan.suite) for plan in view.plans)]
        others = [(run.name, run.id) for run in listed if run.id != shown_id]
        return [
            runs,
            template("evaluate/head.html", view=view, notes=notes),
            gr.Dropdown(suites, value=MAIN),
            gr.Dropdown([("none", ""), *((label, label) for label in labels)], value=""),
            gr.Dropdown([("none", 0), *others], value=0),
            gr.Dropdown([(label, label) for label in labels], value=labels[0]),
            gr.Column(visible=bool(view.plans)),
        ]

    @needs(READ)
    @shown_stream
    def figures(
        self, shown_id: int | None, suite: str, reference: str, outside: Outside, beside: int
    ) -> Iterator[list[Any]]:
        """Table and pictures, and until they are there how far they are."""
        hidden = gr.Plot(visible=False)
        view = None if shown_id is None else self._evaluations.view(shown_id)
        if view is None or not view.plans:
            yield ["", "", "", hidden, hidden, hidden]
            return
        request, told = TableRequest(view.id, suite, reference, outside), -math.inf
        for done, total in self._tables.measuring(request, int(beside)):
            if time.monotonic() - told > TOLD_SECONDS:
                told = time.monotonic()
                yield [gr.skip(), _working("Working out the figures", done, total, "suite"), *[gr.skip()] * 4]
        if beside:
            table = self._tables.beside(view.id, int(beside), suite, outside)
        else:
            table = self._tables.table(request).table
        against_first = TableRequest(view.id, MAIN, view.request.methods[0].label, outside)
        found = finding(self._tables.table(against_first).table)
        said = "" if found is None else template("evaluate/finding.html", finding=found)
        yield [said, "", table_markup(table, view.plans), *_pictures(table), _coverage(view)]

    @shown_to(READ)
    def items(self, shown_id: int | None, suite: str, method: str, search: str, outside: Outside) -> str:
        """The first items of a suite whose prompt, id or answer holds a text, with what every method made of them."""
        if shown_id is None or suite == MAIN or not method:
            return '<p class="sub">Choose a suite above to see its items.</p>'
        view, read = self._evaluations.view(shown_id), partial(self._evaluations.outcomes, shown_id, suite)
        own = next(own for own in self._evaluations.known_suites() if own.key == suite)
        labels = [method, *(each.label for each in view.request.methods if each.label != method)]
        items, _ = items_of(self._evaluations, view, suite)
        rows = item_rows(own, read(method), [read(label) for label in labels[1:]], items, outside)
        found = [row for row in rows if search.strip().lower() in f"{row.prompt} {row.item} {row.answer}".lower()]
        digits = words.digits_for(value for row in found[:ITEMS] for value in row.values)
        return template(
            "evaluate/items.html", rows=found[:ITEMS], total=len(found), title=own.title, methods=labels,
            figure=own.main.replace("_", " "),
            number=partial(words.number, digits=digits),
        )  # fmt: skip

    @shown
    def open_item(self, event: gr.EventData, shown_id: int | None, suite: str, method: str) -> int:
        """Open an item as an audit; the session's number."""
        if shown_id is None or suite == MAIN or not method:
            raise ServiceError("No suite is chosen; choose one and open an item of it.")
        outcome = self._evaluations.outcomes(shown_id, suite, method)[int(event.id)]
        return self._evaluations.open_item(shown_id, suite, method, outcome.item, outcome.seed).session_id

    @shown_to(READ)
    def offered(self, shown_id: int | None, suite: str) -> list[Any]:
        """Whether a suite has coefficients; those of another suite are taken away."""
        own = {} if shown_id is None else self._coefficients.suites(self._evaluations.view(shown_id))
        return [gr.Column(visible=suite in own), "", ""]

    @needs(READ)
    @shown_stream
    def fitted(self, shown_id: int, suite: str, outside: Outside) -> Iterator[list[Any]]:
        """Fit method after method, saying how far it is; the table."""
        for done, total, label in self._coefficients.fitting(shown_id, suite, outside):
            yield [_working(f"Fitting the model of {label}", done, total, "method"), gr.skip()]
        grid = self._coefficients.coefficients(shown_id, suite, outside).grid
        table = scrolled(grid.title, table_fragment(grid.layout, grid.title, "coefficients"))
        yield ["", table + notes_markup(grid.notes)]

    @shown_to(EXPORT)
    def export(self, shown_id: int | None, suite: str, reference: str, outside: Outside, kind: str, *told: str) -> str:
        """Write the shown figures for download; ``told`` is what formats of other programs ask of a publication."""
        if shown_id is None:
            raise ServiceError("No evaluation is shown; choose one from the list.")
        if kind in SHARED:
            return str(self._share(shown_id, format=kind, suite=suite, outside=outside, publication=Publication(*told)))
        request = TableRequest(shown_id, suite, reference, outside, samples=kind == "json")
        return str(self._tables.write(request, kind, Path(self._folder.name)))


def _working(what: str, done: int, total: int, noun: str) -> str:
    """How far something is that takes a while."""
    return template("evaluate/working.html", what=what, done=done, total=total, noun=noun)


def _suite_name(suite: KnownSuite) -> str:
    """A suite's title with its kind, and whether it comes with the program."""
    shipped = ", with the program" if suite.source == SHIPPED else ""
    return f"{suite.title} ({suite.kind}{shipped})"


def table_markup(table: Table, plans: Sequence[SuitePlan]) -> str:
    """The figures, how the items were read, and every sentence that belongs to them."""
    layout = laid_out(table)
    return template(
        "evaluate/figures.html",
        figures=table_fragment(layout, "Figures"),
        explained=explained_titles(head.title for head in layout.heads),
        readings=table_fragment(readings_laid_out(table), "How the items were read", "readings"),
        notes=words.notes(table, plans),
        reading_notes=words.reading_notes(table),
    )


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


def build_page(app: gr.Blocks, services: Services) -> None:
    """Build the page."""
    named = ExperimentHandlers(services)
    handlers = EvaluateHandlers(services, named)
    topbar(services, "evaluate")
    with gr.Column(elem_classes=["page"], elem_id="main"):
        markup(
            '<div class="pagehead"><h1>Benchmarks</h1><p class="sub">Compare methods on benchmarks of bias and of '
            "quality. Open any item as an audit.</p></div>"
        )
        with gr.Row(elem_classes=["asked"]):
            form = _form(named, services.settings)
        jobs = form.jobs
        result = _result()
        with gr.Column(elem_classes=["group"]):
            markup('<div class="bar"><h2>Past runs</h2></div>')
            runs = listing("runs", "show")
    download = gr.DownloadButton("File", elem_id="evaluation-file", elem_classes=["offscreen"])
    session = gr.Number(visible=False)
    watch = JobWatch(services[EvaluationService], handlers.begin)
    wire_job(app, watch, jobs, form.inputs)
    gr.on([app.load, form.data.submit], handlers.suites, form.data, form.suites, **MULTIPLE)
    gr.on(
        [form.experiment.change, form.data.submit], named.chosen, [form.experiment, form.data], form.chosen, **MULTIPLE
    )
    form.estimate.click(handlers.estimate, form.inputs, form.estimated, **EVENT)
    # What the suites of the page's folder are is known when it has loaded; each change asks again.
    gr.on([part.change for part in form.told_of], handlers.forecast, form.inputs, form.estimated, **LATEST)
    shown_id = jobs.shown_id
    runs.show(handlers.show, None, shown_id, **MULTIPLE)
    resumed = result.head.resume(handlers.resume, None, jobs.job, **MULTIPLE)
    resumed.success(watch.poll, [jobs.job, shown_id], jobs.watched, **EVENT)
    result.head.delete(handlers.delete, None, [shown_id, runs], **MULTIPLE)
    choices = [result.suite, result.reference, result.beside, result.method]
    # A run that goes on with what is shown ends without showing another one: what follows it tells that it ended.
    opening = [shown_id.change, jobs.job.change, app.load]
    opened = gr.on(opening, handlers.opened, shown_id, [runs, result.head, *choices, result.group], **LATEST)
    asked = [shown_id, result.suite, result.reference, result.outside, result.beside]
    changed = [part.change for part in (result.suite, result.reference, result.outside, result.beside)]
    for made in (
        opened.success(handlers.figures, asked, result.made, **LATEST),
        gr.on(changed, handlers.figures, asked, result.made, **LATEST),
    ):
        made.failure(lambda: "", None, result.made[1], **EVENT)
    _wire_coefficients(handlers, result, opened, shown_id)
    _wire_tables(named, result, opening, shown_id)
    listed = [shown_id, result.suite, result.method, result.search, result.outside]
    gr.on([result.suite.change, result.method.change], handlers.items, listed, result.items, **LATEST)
    result.search.submit(handlers.items, listed, result.items, **MULTIPLE)
    begun = result.items.open(handlers.open_item, listed[:3], session, **MULTIPLE)
    begun.success(None, session, None, js="(number) => { window.location.href = `./?session=${number}`; }")
    written = result.save.click(handlers.export, [*asked[:4], result.kind, *result.told], download, **EVENT)
    downloaded(written, "evaluation-file")


def _wire_coefficients(
    handlers: EvaluateHandlers, result: SimpleNamespace, opened: Dependency, shown_id: gr.State
) -> None:
    part, own = result.coefficients, [shown_id, result.suite]
    emptied = [part.group, part.busy, part.table]
    opened.success(handlers.offered, own, emptied, **LATEST)
    gr.on([result.suite.change, result.outside.change], handlers.offered, own, emptied, **LATEST)
    fitting = part.fit.click(handlers.fitted, [*own, result.outside], [part.busy, part.table], **EVENT)
    fitting.failure(lambda: "", None, part.busy, **EVENT)


def _wire_tables(
    named: ExperimentHandlers, result: SimpleNamespace, opening: Sequence[Any], shown_id: gr.State
) -> None:
    part = result.experiment
    asked, made = [shown_id, part.which, result.outside], [part.table, part.picture, part.notes]
    opened = gr.on(opening, named.opened, shown_id, [part.group, part.intro, part.which], **LATEST)
    opened.success(named.table, asked, made, **LATEST)
    gr.on([part.which.change, result.outside.change], named.table, asked, made, **LATEST)
    download = gr.DownloadButton("Tables", elem_id="experiment-file", elem_classes=["offscreen"])
    written = part.save.click(named.export, [shown_id, result.outside, part.kind], download, **EVENT)
    downloaded(written, "experiment-file")


def _form(named: ExperimentHandlers, server: Settings) -> SimpleNamespace:
    with gr.Column(elem_classes=["group"]):
        markup("<h2>What to run</h2>")
        experiment = gr.Dropdown(
            named.choices(), value=OWN, label="What to run", elem_id="experiment",
            info="Your own choice, or a table of the paper.",
        )  # fmt: skip
        card = gr.HTML("", visible=False, apply_default_css=False, elem_id="experiment-card", elem_classes=["coft"])
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
        with gr.Accordion("Data folder", open=False, elem_classes=["fold"]):
            data = gr.Textbox(
                "", label="Data folder", placeholder="default: COFT_DATA", max_lines=1, elem_id="data",
                info="Press Enter to look again.",
            )  # fmt: skip
    with gr.Column(elem_classes=["group"]):
        markup("<h2>With which methods</h2>")
        model = model_menu(server)
        given = gr.Textbox(
            "", label="What its methods need", placeholder="cda.checkpoint=FOLDER, dexperts.expert=FOLDER", max_lines=1,
            visible=False, elem_id="given",
            info="policy.parameter=value. Methods without a value are skipped or replaced.",
        )  # fmt: skip
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
        with gr.Accordion("Judges", open=False, elem_classes=["fold"]):
            judges = gr.Textbox(
                "", label="Who judges written texts", placeholder="toxicity=embedded, sentiment=FOLDER", max_lines=1,
                elem_id="judges",
                info="As judgement=scorer or classifier. Empty: the embedded scorer for toxicity, nothing for others.",
            )  # fmt: skip
        with gr.Accordion("Protocol", open=False, elem_classes=["fold"]):
            name = gr.Textbox("", label="Name", placeholder="model and what is run", max_lines=1)
            limit = gr.Number(200, label="Items of a suite (empty takes all)", precision=0, minimum=1)
            seeds = gr.Slider(1, 5, 3, step=1, label="Seeds", buttons=[])
            with gr.Column(min_width=0) as own_calibration:
                share = gr.Slider(0.1, 0.3, 0.15, step=0.01, label="Share of items to calibrate on", buttons=[])
                steps = gr.Slider(8, 512, 64, step=1, label="Steps of a calibration's texts", buttons=[])
                temperature = gr.Number(USUAL.temperature, label="Temperature of all methods", minimum=0.01)
                top_p = gr.Number(USUAL.top_p, label="Nucleus mass of all methods (1 is off)", minimum=0.01, maximum=1)
                top_k = gr.Number(USUAL.top_k, label="Top-k of all methods (0 is off)", precision=0, minimum=0)
    with gr.Column(elem_classes=["group"], elem_id="go"):
        markup("<h2>Before you run</h2>")
        estimated = markup(UNTOLD, "estimate")
        with gr.Row(elem_classes=["go"]):
            estimate = gr.Button("Estimate", elem_id="estimate-run")
        run, cancel = run_buttons()
        run.interactive = True
        jobs = job_part(run, cancel, resumable=False)
    chosen = [own_suites, own_methods, own_calibration, card, given, seeds]
    asked = [experiment, given, name, model, data, here, far, methods, judges, limit, seeds]
    inputs = [*asked, share, steps, temperature, top_p, top_k, *(framed[name] for name in FRAMED)]
    return SimpleNamespace(
        inputs=inputs, experiment=experiment, chosen=chosen, data=data, suites=[here, far, on_hub, cards],
        estimate=estimate, estimated=estimated, jobs=jobs,
        told_of=[experiment, model, here, far, methods, limit, seeds],
    )  # fmt: skip


def _result() -> SimpleNamespace:
    with gr.Column(elem_classes=["group"], elem_id="evaluation"):
        head = listing("evaluation-head", "delete", "resume", value=EMPTY)
        experiment = _experiment_tables()
        with gr.Column(visible=False, min_width=0) as group:
            found = markup("", "evaluation-finding")
            with gr.Row(elem_classes=["choices"]):
                suite = gr.Dropdown([("Main figures of all", MAIN)], value=MAIN, label="Figures", elem_id="figures-of")
                reference = gr.Dropdown([("none", "")], value="", label="Compared with", elem_id="reference")
                beside = gr.Dropdown([("none", 0)], value=0, label="Beside", elem_id="beside")
            outside = gr.Radio(
                [("just at the threshold", "floor"), ("impossible", "zero")], value="floor",
                label="A ruled-out token counts as", elem_id="outside",
            )  # fmt: skip
            busy = markup("", "figures-busy")
            table = gr.HTML(
                "", js_on_load="coft.evaluate.mount(element)", apply_default_css=False, elem_id="figures",
                elem_classes=["coft"],
            )  # fmt: skip
            pictures = [chart(name, visible=False) for name in ("figures-plot", "plane-plot", "coverage-plot")]
            coefficients = _coefficients()
            with gr.Row(elem_classes=["choices"]):
                method = gr.Dropdown([], label="Items under", elem_id="items-under")
                search = gr.Textbox(label="Find an item", max_lines=1, elem_id="find-item", info="Press Enter.")
            items = listing("items", "open")
            with gr.Row(elem_classes=["go"]):
                kind = gr.Dropdown([*FORMATS, *OF_OTHERS], value="csv", label="Format", elem_id="format")
                save = gr.Button("Save figures", size="sm", elem_id="save-figures")
            told = place_publication("evaluation")
    return SimpleNamespace(
        head=head, experiment=experiment, coefficients=coefficients, group=group, suite=suite, reference=reference,
        beside=beside, outside=outside, made=[found, busy, table, *pictures], method=method, search=search, items=items,
        kind=kind, save=save, told=told,
    )  # fmt: skip


def _experiment_tables() -> SimpleNamespace:
    with gr.Column(visible=False, min_width=0, elem_id="experiment-tables") as group:
        intro = markup("", "experiment-intro")
        which = gr.Dropdown([], label="Table", elem_id="experiment-table-of", visible=False)
        table = markup("", "experiment-table")
        picture = chart("experiment-plot", visible=False)
        notes = markup("", "experiment-notes")
        with gr.Row(elem_classes=["go"]):
            kind = gr.Dropdown(
                [*FORMATS[:3], ("JSON", "json")], value="csv", label="Format of tables", elem_id="experiment-format"
            )
            save = gr.Button("Save tables", size="sm", elem_id="save-tables")
    return SimpleNamespace(
        group=group, intro=intro, which=which, table=table, picture=picture, notes=notes, kind=kind, save=save
    )


def _coefficients() -> SimpleNamespace:
    with gr.Column(visible=False, min_width=0, elem_id="coefficients-part") as group:
        with gr.Row(elem_classes=["go"]):
            fit = gr.Button("Fit mixed-effects coefficients", elem_id="fit-coefficients")
        hint("The model of the suite’s authors, with effects that differ between questions.")
        busy, table = markup("", "coefficients-busy"), markup("", "coefficients")
    return SimpleNamespace(group=group, fit=fit, busy=busy, table=table)
