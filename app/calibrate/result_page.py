"""The result on the page: read at any level from stored values, compared with another run, and followed by drift."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import gradio as gr
from gradio.components import Component

from app.calibrate.charts import comparison_figure, drift_figure, thresholds_figure
from app.calibrate.form import ESTIMATORS, SPACINGS
from app.calibrate.result_words import (
    OTHER_ALPHAS,
    alphas,
    bin_choices,
    fingerprint,
    promises,
    result_checks,
    result_head,
    risk,
    support_name,
    thresholds,
    thresholds_head,
)
from app.calibrate.service import CalibrationService
from app.calibrate.words import (
    comparison_choices,
    comparison_settings,
    comparison_thresholds,
    drift_foot,
    drift_head,
    runs_list,
)
from app.shared.audits import FAMILY_NAMES, CalibrationView, ReadingRequest
from app.shared.charts import support_histogram
from app.shared.errors import ServiceError
from app.shared.events import EVENT, LATEST, MULTIPLE, downloaded, or_refusal, or_told, shown
from app.shared.markup import chart, hint, listing, markup, upload
from app.shared.step_words import level, threshold
from app.shared.wiring import Services
from coft_core.conformal.record import Reading

READING_FIELDS = ("alpha", "estimator", "draws", "bin_spacing", "bin_width", "max_position", "rho", "group", "family")
"""The controls in their order."""

ONE_PER_CONTEXT = "one_per_context"
ALL_GROUPS = ("All groups together", "")
AS_CALIBRATED = '<p class="hint">As it was calibrated.</p>'
REFUSED = '<p class="caution">Not possible with these values; what is shown is the reading before.</p>'


@dataclass(frozen=True, slots=True)
class ReadingControls:
    """The controls in the order of :data:`READING_FIELDS`, what to reset them with, and what is said of them."""

    controls: tuple[Component, ...]
    reset: gr.Button
    note: gr.HTML


def reading_controls() -> ReadingControls:
    """Place the controls, hidden until a run is shown."""
    slider: dict[str, Any] = {"buttons": [], "min_width": 0}
    with gr.Row(elem_classes=["reading-grid"]):
        alpha = gr.Slider(0.001, 0.5, 0.1, step=0.001, label="Alpha", elem_id="read-alpha", **slider)
        rho = gr.Slider(1, 5, 1, step=0.05, label="ρ, how much likelier in use", elem_id="read-rho", **slider)
        spacing = gr.Dropdown(
            SPACINGS, value="widening", label="Steps that share a threshold", min_width=0, elem_id="read-spacing"
        )
        width = gr.Slider(1, 64, 8, step=1, label="Steps of a bin", elem_id="read-width", **slider)
        last = gr.Slider(8, 1024, 256, step=8, label="Own thresholds up to step", elem_id="read-last", **slider)
        estimator = gr.Dropdown(
            ESTIMATORS, value="hierarchical", label="Estimator", min_width=0, elem_id="read-estimator"
        )
        draws = gr.Slider(1, 200, 1, step=1, label="Draws that are averaged", elem_id="read-draws", **slider)
        group = gr.Dropdown([ALL_GROUPS], value="", label="Group", min_width=0, elem_id="read-group")
        family = gr.Dropdown([], label="Family", min_width=0, elem_id="read-family")
    with gr.Row(elem_classes=["go", "reset"]):
        reset = gr.Button("Reset", size="sm", elem_id="read-reset")
        note = markup(AS_CALIBRATED, "read-note")
    return ReadingControls((alpha, estimator, draws, spacing, width, last, rho, group, family), reset, note)


def reading_from(values: Sequence[object], base: CalibrationView) -> ReadingRequest:
    """What the controls ask for; what is as calibrated stays None, so that weights and shares stay as they are."""
    fields: dict[str, Any] = dict(zip(READING_FIELDS, values, strict=True))
    kinds = {"alpha": float, "estimator": str, "bin_spacing": str, "bin_width": int, "max_position": int, "draws": int,
             "rho": float}  # fmt: skip
    asked: dict[str, Any] = {name: kind(fields[name] or getattr(base.reading, name)) for name, kind in kinds.items()}
    changed = {name: value for name, value in asked.items() if value != getattr(base.reading, name)}
    if asked["estimator"] != ONE_PER_CONTEXT:
        changed.pop("draws", None)
    family = fields["family"] if base.families and fields["family"] != base.family else None
    return ReadingRequest(**changed, group=(fields["group"] or None) if base.groups else None, family=family)


def reading_updates(view: CalibrationView) -> list[Any]:
    """Updates that make the controls show a reading, and hide those that do not apply to this calibration."""
    own = view.reading
    families = [(FAMILY_NAMES.get(item.family, item.family), item.family) for item in view.families]
    return [
        gr.Slider(value=own.alpha),
        gr.Dropdown(value=own.estimator),
        gr.Slider(value=own.draws, visible=own.estimator == ONE_PER_CONTEXT),
        gr.Dropdown(value=own.bin_spacing),
        gr.Slider(value=own.bin_width),
        gr.Slider(value=own.max_position),
        gr.Slider(value=own.rho),
        gr.Dropdown([ALL_GROUPS, *((g.name, g.name) for g in view.groups)], value="", visible=bool(view.groups)),
        gr.Dropdown(families, value=view.family, visible=bool(families)),
    ]


def reading_note(view: CalibrationView, base: CalibrationView) -> str:
    """How the shown reading differs from the calibrated one."""
    changes = _words(view.reading, base.reading)
    if view.families and view.alpha != base.alpha:
        changes.append("alpha shared out equally")
    if view.group is not None:
        changes.append("one group alone")
    if view.effective_contexts is None and base.effective_contexts is not None:
        changes.append("ρ in place of the weights")
    if not changes:
        return AS_CALIBRATED
    return (
        f'<p class="hint">Read from stored values, without the model: {", ".join(changes)}. Nothing is stored; audits '
        "choose their own alpha.</p>"
    )


def _words(shown: Reading, own: Reading) -> list[str]:
    words = (
        ("alpha", "alpha ", level),
        ("estimator", "", lambda name: str(name).replace("_", " ")),
        ("draws", "averaged draws ", str),
        ("bin_spacing", "", lambda name: f"{name} bins"),
        ("bin_width", "bins of ", str),
        ("max_position", "own thresholds up to step ", str),
        ("rho", "ρ ", lambda value: f"{value:g}"),
    )
    return [
        f"{before}{say(getattr(shown, name))} instead of {say(getattr(own, name))}"
        for name, before, say in words
        if getattr(shown, name) != getattr(own, name)
    ]


EMPTY = (
    '<section><div class="bar"><h2>Result</h2></div><p class="sub">Choose a run, or upload a prompt set and run one. '
    "What it can certify then stands here.</p></section>"
)


@dataclass(frozen=True, slots=True)
class ResultPart:
    """What shows a run."""

    head: gr.HTML
    body: gr.Column
    reading: ReadingControls
    panels: tuple[Any, ...]
    bins: gr.Dropdown
    histogram: gr.Plot
    others: gr.HTML
    download: gr.DownloadButton


def read(
    calibrations: CalibrationService, calibration_id: int, values: Sequence[Any]
) -> tuple[CalibrationView, CalibrationView]:
    """A run as it was calibrated, and as the controls ask it to be read."""
    base = calibrations.view(calibration_id)
    return base, calibrations.view(calibration_id, reading_from(values, base))


class ResultHandlers:
    """What the page asks of the services about finished runs."""

    def __init__(self, services: Services) -> None:
        self._calibrations = services[CalibrationService]
        # Lives as long as the page.
        self._folder = tempfile.TemporaryDirectory(prefix="coft-calibrations-")

    @shown
    def show(self, shown_id: int | None) -> list[Any]:
        """A run as it was calibrated."""
        listed = runs_list(self._calibrations.list(), shown_id)
        if shown_id is None:
            blank = [gr.skip()] * (len(READING_FIELDS) + len(PANELS))
            return [listed, EMPTY, gr.Column(visible=False), gr.skip(), *blank]
        view = self._calibrations.view(shown_id)
        head = [listed, result_head(view), gr.Column(visible=True), AS_CALIBRATED]
        return [*head, *reading_updates(view), *panels(view)]

    @shown
    def read(self, shown_id: int | None, label: str | None, *values: Any) -> list[Any]:
        """The run read otherwise."""
        if shown_id is None:
            return [gr.skip()] * (3 + len(PANELS))
        readings = or_told(lambda: read(self._calibrations, shown_id, values))
        if readings is None:
            return [gr.skip(), REFUSED, *[gr.skip()] * (1 + len(PANELS))]
        base, view = readings
        draws = gr.Slider(visible=view.reading.estimator == ONE_PER_CONTEXT)
        return [result_head(view), reading_note(view, base), draws, *panels(view, label)]

    @shown
    def others(self, shown_id: int | None, *values: Any) -> Any:
        """The same reading at other risk levels; what stands there stays with the reading when another is refused."""
        if shown_id is None:
            return ""
        if isinstance(or_refusal(lambda: read(self._calibrations, shown_id, values)), str):
            return gr.skip()
        base = self._calibrations.view(shown_id)
        request = reading_from(values, base)

        def at(alpha: float) -> CalibrationView | str:
            asked = replace(request, alpha=None if alpha == base.alpha else alpha)
            return or_refusal(lambda: self._calibrations.view(shown_id, asked))

        shown_alpha = request.alpha or base.alpha
        levels = sorted({*OTHER_ALPHAS, shown_alpha}, reverse=True)
        return alphas([(alpha, at(alpha)) for alpha in levels], shown_alpha)

    @shown
    def histogram(self, shown_id: int | None, label: str, *values: Any) -> Any:
        """Joint support of one bin's true tokens."""
        return None if shown_id is None else histogram(read(self._calibrations, shown_id, values)[1], label)

    @shown
    def choose(self, event: gr.EventData) -> int:
        """Show another run."""
        return int(event.id)

    @shown
    def delete(self, event: gr.EventData, shown_id: int | None) -> list[Any]:
        """Delete a run; when it was shown, show the newest of the others."""
        self._calibrations.delete(int(event.id))
        runs = self._calibrations.list()
        kept_id = shown_id if shown_id != event.id else (runs[0].id if runs else None)
        return [kept_id, runs_list(runs, kept_id)]

    @shown
    def export(self, event: gr.EventData) -> str:
        """Write a run as a file for download."""
        return str(self._calibrations.export(int(event.id), Path(self._folder.name)))


PANELS = ("promises", "figure", "thresholds", "bins", "histogram", "checks", "fingerprint")
"""What a reading changes, in order."""


def panels(view: CalibrationView, label: str | None = None) -> list[Any]:
    """Everything that a reading changes; ``label`` is the bin whose values stay in sight, if it is still there."""
    choices = bin_choices(view)
    labels = [value for _, value in choices]
    chosen = label if label in labels else next(iter(labels), None)
    return [
        promises(view), thresholds_figure(view.bins, view.coverage, 1 - risk(view)), thresholds(view),
        gr.Dropdown(choices, value=chosen, visible=bool(choices)),
        gr.Plot(histogram(view, chosen), visible=bool(choices)), result_checks(view), fingerprint(view),
    ]  # fmt: skip


def histogram(view: CalibrationView, label: str | None) -> Any:
    """Joint support of one bin's true tokens, with its threshold."""
    item = next((item for item in view.bins if item.label == label), None)
    if item is None:
        return None
    support = support_name(view.summary.certified_in)
    return support_histogram(view.log_values.get(item.label, ()), item.tau, threshold(item.tau), support)


def result_head_part() -> tuple[gr.HTML, gr.DownloadButton]:
    """Place the head of the result, and the file that it downloads."""
    head = listing("result", "export", value=EMPTY)
    return head, gr.DownloadButton("Calibration", elem_id="calibration-file", elem_classes=["offscreen"])


def reading_part() -> ReadingControls:
    """Place the controls that read the run otherwise."""
    with gr.Column(elem_classes=["reading"], elem_id="reading"):
        markup(
            '<div class="bar"><h2>Read it otherwise</h2><span class="hint">changes at once, without the model</span>'
            "</div>"
        )
        return reading_controls()


def result_body() -> tuple[tuple[Any, ...], gr.Dropdown, gr.Plot, gr.HTML]:
    """Place everything that a reading changes, but for the fingerprint, which stands last on the page."""
    certified = markup("", "promises")
    with gr.Column(elem_classes=["group"], elem_id="positions"):
        markup(thresholds_head())
        figure = chart("thresholds-plot")
        table = markup("", "thresholds")
    with gr.Row(elem_classes=["pair"]):
        with gr.Column(min_width=0, elem_classes=["figure"]):
            bins = gr.Dropdown([], label="Joint support of true tokens", elem_id="bins")
            plot = chart("support-plot")
        with gr.Column(min_width=0):
            other = markup("", "alphas")
    checks = markup("", "result-foot")
    return (certified, figure, table, bins, plot, checks), bins, plot, other


def _by_hand(control: Any) -> Any:
    """The event of a person's change; a menu's ``input`` fires twice, so that a refusal would be shown twice."""
    return control.select if isinstance(control, gr.Dropdown) else control.input


def wire_result(handlers: ResultHandlers, part: ResultPart, shown_id: gr.State, runs: gr.HTML) -> list[Any]:
    """Connect everything about the result; gives the events after which another run or reading is shown."""
    controls = list(part.reading.controls)
    note = part.reading.note
    whole = [runs, part.head, part.body, note, *controls, *part.panels]
    changed = [part.head, note, controls[READING_FIELDS.index("draws")], *part.panels]
    opened = shown_id.change(handlers.show, shown_id, whole, **EVENT)
    reset = part.reading.reset.click(handlers.show, shown_id, whole, **EVENT)
    read = gr.on(
        [_by_hand(control) for control in controls],
        handlers.read,
        [shown_id, part.bins, *controls],
        changed,
        **LATEST,
    )
    for event in (opened, reset, read):
        event.success(handlers.others, [shown_id, *controls], part.others, **LATEST)
    _by_hand(part.bins)(handlers.histogram, [shown_id, part.bins, *controls], part.histogram, **LATEST)
    runs.show(handlers.choose, None, shown_id, **MULTIPLE)
    runs.delete(handlers.delete, shown_id, [shown_id, runs], **MULTIPLE)
    downloaded(part.head.export(handlers.export, None, part.download, **MULTIPLE), "calibration-file")
    return [opened, reset, read]


def prompts_of(calibrations: CalibrationService, path: str) -> tuple[str, ...]:
    """The prompts of a file of prompts in use."""
    return tuple(example.prompt for _, example in calibrations.parse(Path(path), Path(path).name).rows)


NOT_COMPARED = '<p class="caution">These two runs cannot be read alike.</p>'


@dataclass(frozen=True, slots=True)
class ComparePart:
    """The choice of another run, and what is said of both."""

    other: gr.Dropdown
    panels: tuple[Any, ...]


class CalibrationsBeside:
    """What the page asks of the services about two runs."""

    def __init__(self, services: Services) -> None:
        self._calibrations = services[CalibrationService]

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
        first = or_refusal(lambda: read(self._calibrations, shown_id, values)[1])
        if isinstance(first, str):
            return [gr.skip()] * 3
        return or_told(lambda: self._compared(first, other)) or [NOT_COMPARED, gr.Plot(visible=False), ""]

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
    reading = view.reading
    return ReadingRequest(
        alpha=view.alpha,
        estimator=reading.estimator,
        bin_width=reading.bin_width,
        max_position=reading.max_position,
        draws=reading.draws if reading.estimator == ONE_PER_CONTEXT else None,
        bin_spacing=reading.bin_spacing,
    )


def compare_part() -> ComparePart:
    """Place the choice of another run, and what is said of both."""
    with gr.Column(elem_classes=["group"], elem_id="compare"):
        markup('<div class="bar"><h2>Compare with another run</h2></div>')
        other = gr.Dropdown([("Choose a run", 0)], value=0, label="Other run", show_label=False, elem_id="compare-with")
        settings, plot = markup("", "compare-settings"), chart("compare-plot", visible=False)
        return ComparePart(other, (settings, plot, markup("", "compare-table")))


def wire_compare(
    handlers: CalibrationsBeside, part: ComparePart, reading: ReadingControls, shown_id: gr.State, events: list[Any]
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
        self._calibrations = services[CalibrationService]

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
        name = name.strip() or f"{self._calibrations.view(shown_id).summary.name}, weighted"
        return [self._calibrations.reweight(shown_id, prompts_of(self._calibrations, path), name), None, ""]


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
