"""The prompt set: uploaded or taken from the samples, its columns mapped, its rows checked and shown."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gradio as gr

from app.bootstrap import Services
from app.calibrate.charts import comparison_figure, drift_figure
from app.calibrate.form import (
    BOXES,
    FIELDS,
    SHARES,
    CalibrationForm,
    applicable,
    calibration_form,
    calibration_request,
    equal_shares,
    given_from,
    shares_line,
)
from app.calibrate.result_page import (
    ONE_PER_CONTEXT,
    ReadingControls,
    ResultHandlers,
    ResultPart,
    reading_from,
    reading_part,
    result_body,
    result_head_part,
    wire_result,
)
from app.calibrate.result_words import comparison_choices, comparison_settings, comparison_thresholds
from app.calibrate.service import CalibrationService
from app.calibrate.words import drift_foot, drift_head, estimate_panel
from app.shared.audits import CalibrationRequest, CalibrationView, ReadingRequest
from app.shared.errors import ServiceError
from app.shared.events import EVENT, LATEST, or_refusal, or_told, shown
from app.shared.job_watch import JobKind, JobPart, JobWatch, job_part, run_buttons, wire_job
from app.shared.jobs import JobView
from app.shared.markup import chart, hint, listing, markup, upload
from app.shared.prompt_form import (
    NOT_TRIED,
    TRYING,
    PromptHandlers,
    PromptPart,
    accept_box,
    parsed_from,
    preview_rows,
    prompt_part,
    row_errors,
)
from app.shared.prompt_sets import PROMPT_SET_FIELDS, ParsedPromptSet
from app.shared.prompt_words import list_choices
from app.shared.web import topbar


@dataclass(frozen=True, slots=True)
class Asked:
    """A prompt set, and what is asked of it."""

    prompts: ParsedPromptSet
    request: CalibrationRequest


def asked(calibrations: CalibrationService, path: str | None, accept: bool, values: Sequence[object]) -> Asked:
    """Read the prompt set as the form maps its columns, and make the form's request.

    Args:
        calibrations: Reads the files.
        path: The uploaded prompt set.
        accept: Go on with the good rows.
        values: The chosen columns, then the form's controls.

    Raises:
        ServiceError: No prompt set is chosen.
    """
    prompts = parsed_from(calibrations, path, values[: len(PROMPT_SET_FIELDS)])
    given = given_from(values[len(PROMPT_SET_FIELDS) :])
    other = given["deployment"] if applicable(given)["deployment"] else None
    return Asked(
        prompts, calibration_request(given, Path(prompts.filename).stem, accept, prompts_of(calibrations, other))
    )


def prompts_of(calibrations: CalibrationService, path: str | None) -> tuple[str, ...]:
    """The prompts of a file of prompts in use; none without a file."""
    if path is None:
        return ()
    return tuple(example.prompt for _, example in calibrations.parse(Path(path), Path(path).name).rows)


NOT_COMPARED = '<p class="caution">These two runs cannot be read alike.</p>'


@dataclass(frozen=True, slots=True)
class ComparePart:
    """The choice of another run, and what is said of both."""

    other: gr.Dropdown
    panels: tuple[Any, ...]


class CompareHandlers:
    """What the page asks of the services about two runs."""

    def __init__(self, services: Services) -> None:
        """Keep the services."""
        self._calibrations = services.calibrations

    @shown
    def menu(self, shown_id: int | None, other: int | None) -> Any:
        """The runs that the shown one can be compared with."""
        choices = comparison_choices(self._calibrations.list(), shown_id)
        kept = other if any(value == other for _, value in choices) else 0
        return gr.Dropdown(choices, value=kept)

    def compare(self, shown_id: int | None, other: int | None, *values: Any) -> list[Any]:
        """Both runs, the other one read as the shown one; a reading that is refused changes nothing."""
        if shown_id is None or not other:
            return ["", gr.Plot(visible=False), ""]
        first = or_refusal(lambda: self._read(shown_id, values))
        if isinstance(first, str):
            return [gr.skip()] * 3
        return or_told(lambda: self._compared(first, other)) or [NOT_COMPARED, gr.Plot(visible=False), ""]

    def _read(self, shown_id: int, values: tuple[Any, ...]) -> CalibrationView:
        base = self._calibrations.view(shown_id)
        return self._calibrations.view(shown_id, reading_from(values, base))

    def _compared(self, first: CalibrationView, other: int) -> list[Any]:
        second = self._calibrations.view(other, alike(first))
        picture = comparison_figure(first.bins, second.bins, first.summary.name, second.summary.name)
        return [
            comparison_settings(first, second),
            gr.Plot(picture, visible=True),
            comparison_thresholds(first, second),
        ]


def alike(view: CalibrationView) -> ReadingRequest:
    """The same reading for another run, as far as it does not belong to this one's prompts."""
    own = view.reading
    draws = own.draws if own.estimator == ONE_PER_CONTEXT else None
    return ReadingRequest(
        view.alpha, own.estimator, own.bin_width, own.max_position, draws, bin_spacing=own.bin_spacing
    )


def compare_part() -> ComparePart:
    """Place the choice of another run, and what is said of both."""
    with gr.Column(elem_classes=["group"], elem_id="compare"):
        markup('<div class="bar"><h2>Compare with another run</h2></div>')
        other = gr.Dropdown([("Choose a run", 0)], value=0, label="Other run", show_label=False, elem_id="compare-with")
        settings, plot = markup("", "compare-settings"), chart("compare-plot", visible=False)
        return ComparePart(other, (settings, plot, markup("", "compare-table")))


def wire_compare(
    handlers: CompareHandlers, part: ComparePart, reading: ReadingControls, shown_id: gr.State, events: list[Any]
) -> None:
    """Connect the comparison; it follows the shown run and its reading."""
    inputs = [shown_id, part.other, *reading.controls]
    events[0].success(handlers.menu, [shown_id, part.other], part.other, **LATEST)
    part.other.change(handlers.compare, inputs, list(part.panels), **LATEST)
    for event in events:
        event.success(handlers.compare, inputs, list(part.panels), **LATEST)


@dataclass(frozen=True, slots=True)
class FollowPart:
    """The drift panel and the form for weights."""

    drift: tuple[Any, ...]
    file: gr.File
    name: gr.Textbox
    button: gr.Button


class FollowHandlers:
    """What the page asks of the services after a run."""

    def __init__(self, services: Services) -> None:
        """Keep the services."""
        self._calibrations = services.calibrations

    @shown
    def drift(self, shown_id: int | None) -> list[Any]:
        """What the audits say against the run."""
        if shown_id is None:
            return ["", gr.Plot(visible=False), ""]
        report = self._calibrations.drift(shown_id)
        seen = bool(report.p_values)
        picture = gr.Plot(drift_figure(report), visible=True) if seen else gr.Plot(visible=False)
        return [drift_head(report), picture, drift_foot(report)]

    @shown
    def reweight(self, shown_id: int | None, path: str | None, name: str) -> list[Any]:
        """Store the run anew with weights for other prompts, and show it."""
        if shown_id is None or path is None:
            raise ServiceError("No file is chosen: upload prompts like those that will be audited.")
        own = self._calibrations.view(shown_id).summary.name
        prompts = prompts_of(self._calibrations, path)
        made = self._calibrations.reweight(shown_id, prompts, name.strip() or f"{own}, weighted")
        return [made, None, ""]


def follow_part() -> FollowPart:
    """Place the drift panel and the form for weights."""
    with gr.Column(elem_classes=["group"], elem_id="drift"):
        drift = (markup("", "drift-head"), chart("drift-plot", visible=False), markup("", "drift-foot"))
    with gr.Column(elem_classes=["group"], elem_id="reweight"):
        markup('<div class="bar"><h2>Weights for other prompts</h2></div>')
        hint(
            "Will the audited prompts differ from these? Upload some of them: the run is stored anew with each context "
            "weighted by how likely it is among them. Needs no model; the level is then approximate."
        )
        with gr.Row(elem_classes=["reweight"]):
            file = upload("Prompts in use", "reweight-file")
            with gr.Column(min_width=0, elem_classes=["group"]):
                name = gr.Textbox(label="Name of the new run", placeholder="this run, weighted", max_lines=1)
                with gr.Row(elem_classes=["go"]):
                    button = gr.Button("Store with weights", interactive=False, elem_id="reweight-go")
    return FollowPart(drift, file, name, button)


def wire_follow(handlers: FollowHandlers, part: FollowPart, shown_id: gr.State, opened: Any) -> None:
    """Connect the drift panel and the weights; an address that ends in ``#drift`` is followed when it is there."""
    told = opened.success(handlers.drift, shown_id, list(part.drift), **LATEST)
    told.success(None, None, None, js="() => coft.calibrate.anchor()")
    part.file.change(lambda path: gr.Button(interactive=path is not None), part.file, part.button, **EVENT)
    part.button.click(handlers.reweight, [shown_id, part.file, part.name], [shown_id, part.file, part.name], **EVENT)


UNTRIED = (
    '<p class="hint">Says how long it takes, which rows the model cannot use, and whether the contexts suffice.</p>'
)
MASKING = ("layout", "family", "masked_families", "user_list_id", "whitelist", "mask_mode")
"""Fields of the form that change how rows are masked."""


class CalibrationPrompts(PromptHandlers):
    """What the page asks of the services about a prompt set."""

    def __init__(self, services: Services) -> None:
        super().__init__(services.calibrations, UNTRIED)
        self._calibrations = services.calibrations

    @shown
    def preview(self, path: str | None, *values: Any) -> str:
        """The first rows as they will be masked."""
        return self._preview(path, values)

    def _preview(self, path: str | None, values: tuple[Any, ...]) -> str:
        if path is None:
            return ""
        what = asked(self._calibrations, path, True, values)
        if "prompt" not in dict(what.prompts.mapping):
            return ""
        return preview_rows(self._calibrations.preview(what.prompts, what.request), len(what.prompts.rows))

    def preview_again(self, path: str | None, *values: Any) -> Any:
        """The first rows under other settings of the mask."""
        rows = or_told(lambda: self._preview(path, values))
        return gr.skip() if rows is None else rows

    @shown
    def check(self, path: str | None, *values: Any) -> list[Any]:
        """All rows that cannot be used, those included that only the model can tell."""
        what = asked(self._calibrations, path, True, values)
        found = self._calibrations.row_errors(what.prompts, what.request)
        return [row_errors(found, what.prompts.total), accept_box(what.prompts.total, found)]

    @shown
    def estimate(self, path: str | None, *values: Any) -> str:
        """What the run will take."""
        what = asked(self._calibrations, path, True, values)
        found = self._calibrations.estimate(what.prompts, what.request)
        return estimate_panel(found, what.request.alpha, what.request.verification_share)


def estimate_part() -> tuple[gr.Button, gr.HTML]:
    """Place the check and what it says."""
    with gr.Row(elem_classes=["go"]):
        button = gr.Button("Check and estimate", interactive=False, elem_id="check")
    return button, markup(UNTRIED, "estimate")


def wire_prompts(
    handlers: CalibrationPrompts,
    part: PromptPart,
    form: CalibrationForm,
    check: tuple[gr.Button, gr.HTML],
    run: gr.Button,
) -> gr.events.Dependency:
    """Connect everything about the prompt set; gives the event that names the rows with problems."""
    button, estimate = check
    inputs = [part.file, *part.columns, *form.inputs]
    outputs = [*part.outputs, button, run, estimate]
    part.samples.sample(handlers.sample, None, part.file, **EVENT)
    read = part.file.change(handlers.parse, part.file, outputs, **EVENT)
    marked = read.success(handlers.preview, inputs, part.preview, **LATEST)
    marked.success(None, form.controls["model"], None, js="(model) => coft.calibrate.check(model)")
    mapped = gr.on(
        [column.select for column in part.columns],
        handlers.remap,
        [part.file, *part.columns],
        outputs,
        **LATEST,
    )
    mapped.success(handlers.preview_again, inputs, part.preview, **LATEST)
    gr.on(
        [form.controls[name].change for name in MASKING],  # type: ignore[attr-defined]
        handlers.preview_again,
        inputs,
        part.preview,
        **LATEST,
    )
    tried = button.click(lambda: TRYING, None, estimate, **EVENT)
    checked = tried.success(handlers.check, inputs, [part.errors, part.accept], **EVENT)
    estimated = checked.success(handlers.estimate, inputs, estimate, **EVENT)
    for event in (checked, estimated):
        event.failure(lambda: NOT_TRIED, None, estimate, **EVENT)
    return checked


class CalibrationRuns:
    """What a run is made of, and which one the page shows at first."""

    def __init__(self, services: Services) -> None:
        """Keep the services."""
        self._calibrations = services.calibrations

    @property
    def kind(self) -> JobKind:
        """The runs as jobs that the page follows."""
        return JobKind("calibration", self._begin, _made, self._first, self._calibrations.resume)

    def _begin(self, path: str | None, accept: bool, *values: Any) -> int:
        what = asked(self._calibrations, path, accept, values)
        return self._calibrations.submit(what.prompts, what.request)

    def _first(self, request: gr.Request) -> int | None:
        """The run that the address names, else the newest."""
        found = [item.id for item in self._calibrations.list()]
        asked_for = str(request.query_params.get("run", ""))
        wanted = int(asked_for) if asked_for.isdigit() else None
        return wanted if wanted in found else next(iter(found), None)


def _made(job: JobView) -> int:
    return int(str((job.result or {})["calibration_id"]))


def wire_jobs(
    app: gr.Blocks,
    services: Services,
    part: JobPart,
    prompts: PromptPart,
    form: CalibrationForm,
    check: CalibrationPrompts,
) -> None:
    """Connect everything about runs; a refused run names the rows that refuse it."""
    inputs = [prompts.file, *prompts.columns, *form.inputs]
    watch = JobWatch(services.jobs, CalibrationRuns(services).kind)
    begun = wire_job(app, watch, part, [prompts.file, prompts.accept, *inputs[1:]])
    begun.failure(check.check, inputs, [prompts.errors, prompts.accept], **EVENT)


CHANGED = f"(...values) => coft.calibrate.summary({json.dumps(FIELDS)}, values)"
"""Runs in the browser with all values whenever one changes: what is folded away says what it holds."""

WATCHED = (
    "source", "record_chains", "layout", "split", "masked_families", "mask_mode", "estimator", "shift", "alpha",
    *SHARES,
)  # fmt: skip
"""Fields on which it depends what else applies."""


class FormHandlers:
    """What the form asks of the services."""

    def __init__(self, services: Services) -> None:
        """Keep the services."""
        self._user_lists = services.user_lists

    @shown
    def menu(self) -> Any:
        """The word lists to choose from."""
        return gr.Dropdown(list_choices(self._user_lists.list()))

    @shown
    def applies(self, *values: Any) -> list[Any]:
        """Show the fields that apply, hide the others, and sum the shares up."""
        given = given_from(values)
        visible = applicable(given)
        return [*(gr.update(visible=visible[name]) for name in BOXES), shares_line(given)]

    @shown
    def share_out(self, alpha: float, families: list[str]) -> list[float]:
        """Equal shares to begin with."""
        return equal_shares(alpha, families)


def calibrate_page(app: gr.Blocks, services: Services) -> None:
    """Build the page."""
    topbar("calibrate")
    with gr.Column(elem_classes=["page"], elem_id="main"):
        gr.HTML(
            '<div class="pagehead"><h1>Calibrate</h1><p class="sub">Learn from your own prompts how likely a word must '
            "be, in both views, before it is certified.</p></div>",
            js_on_load="coft.calibrate.mount()",
            apply_default_css=False,
            elem_classes=["coft"],
        )
        with gr.Row(elem_classes=["calib"]):
            with gr.Column(elem_classes=["stack"], min_width=0):
                jobs, runs = _left(app, services)
            with gr.Column(elem_classes=["stack"], min_width=0):
                _right(services, jobs, runs)


def _left(app: gr.Blocks, services: Services) -> tuple[JobPart, gr.HTML]:
    prompts = CalibrationPrompts(services)
    part = prompt_part(prompts)
    with gr.Column(elem_classes=["group"], elem_id="settings"):
        markup('<div class="bar"><h2>2. Settings</h2></div>')
        form = calibration_form(services.audits.masked_families)
    with gr.Column(elem_classes=["group"], elem_id="go"):
        markup('<div class="bar"><h2>3. Run</h2></div>')
        check = estimate_part()
        jobs = job_part(*run_buttons(), resumable=True)
    with gr.Column(elem_classes=["group"]):
        markup('<div class="bar"><h2>Past runs</h2></div>')
        runs = listing("runs", "show", "delete")
    wire_prompts(prompts, part, form, check, jobs.run)
    wire_jobs(app, services, jobs, part, form, prompts)
    _wire_form(app, FormHandlers(services), form)
    return jobs, runs


def _right(services: Services, jobs: JobPart, runs: gr.HTML) -> None:
    head, download = result_head_part()
    with gr.Column(visible=False, elem_classes=["stack"], min_width=0) as body:
        reading = reading_part()
        panels, bins, histogram, others = result_body()
        follow, compared = follow_part(), compare_part()
        finger = markup("", "fingerprint")
    part = ResultPart(head, body, reading, (*panels, finger), bins, histogram, others, download)
    events = wire_result(ResultHandlers(services), part, jobs.shown_id, runs)
    wire_follow(FollowHandlers(services), follow, jobs.shown_id, events[0])
    wire_compare(CompareHandlers(services), compared, reading, jobs.shown_id, events)


def _wire_form(app: gr.Blocks, handlers: FormHandlers, form: CalibrationForm) -> None:
    inputs: list[Any] = form.inputs
    split: Any = form.controls["split"]
    watched: list[Any] = [form.controls[name] for name in WATCHED]
    gr.on(
        [control.change for control in watched],
        handlers.applies,
        inputs,
        [*form.parts, form.boxes["sum"]],
        **LATEST,
    )
    shares = [form.controls[name] for name in SHARES]
    split.input(handlers.share_out, [form.controls["alpha"], form.controls["masked_families"]], shares, **LATEST)
    for control in inputs:
        control.change(None, inputs, None, js=CHANGED)
    app.load(None, inputs, None, js=CHANGED)
    app.load(handlers.menu, None, form.controls["user_list_id"], **EVENT)
