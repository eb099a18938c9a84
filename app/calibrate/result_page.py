"""The result on the page: read at any level from stored values, compared with another run, and followed by drift."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import gradio as gr
from gradio.components import Component

from app.calibrate import words
from app.calibrate.charts import comparison_figure, drift_figure, support_histogram, thresholds_figure
from app.calibrate.form import USUAL
from app.calibrate.service import CalibrationService
from app.shared.audits import CALIBRATING, CalibrationView, ReadingRequest
from app.shared.calibration_words import ALL_GROUPS
from app.shared.components import chart, hint, listing, markup, upload
from app.shared.errors import ServiceError
from app.shared.events import EVENT, LATEST, MULTIPLE, downloaded, or_refusal, or_told, shown, shown_to
from app.shared.format import level, table_threshold
from app.shared.needs import EXPORT, READ, needs
from app.shared.settings_rail import setting_control
from app.shared.wiring import Services
from coft_core.conformal.part import Reading

READING_FIELDS = ("alpha", "estimator", "draws", "bin_spacing", "bin_width", "max_position", "rho", "group", "family")
"""The controls in their order."""

ONE_PER_CONTEXT = "one_per_context"
FINEST = "finest"
AS_CALIBRATED = '<p class="hint">As it was calibrated.</p>'
NOT_COMPARED = '<p class="caution">These two runs cannot be read alike.</p>'
REFUSED = '<p class="caution">Not possible with these values; what is shown is the reading before.</p>'


def reading_from(values: Sequence[object], base: CalibrationView) -> ReadingRequest:
    """What the controls ask for; what is as calibrated stays None, so that weights and shares stay as they are."""
    fields: dict[str, Any] = dict(zip(READING_FIELDS, values, strict=True))
    kinds = {"alpha": float, "estimator": str, "bin_spacing": str, "bin_width": int, "max_position": int, "draws": int,
             "rho": float}  # fmt: skip
    asked: dict[str, Any] = {name: kind(fields[name] or getattr(base.reading, name)) for name, kind in kinds.items()}
    changed = {name: value for name, value in asked.items() if value != getattr(base.reading, name)}
    if asked["estimator"] != ONE_PER_CONTEXT:
        changed.pop("draws", None)
    if asked["bin_spacing"] == FINEST:
        changed.pop("bin_width", None)
    family = fields["family"] if base.families and fields["family"] != base.family else None
    return ReadingRequest(**changed, group=(fields["group"] or None) if base.groups else None, family=family)


def reading_updates(view: CalibrationView) -> list[Any]:
    """Updates that make the controls show a reading, and hide those that do not apply to this calibration."""
    reading = view.reading
    families = [(words.family_name(item.family), item.family) for item in view.families]
    return [
        gr.Slider(value=reading.alpha),
        gr.Dropdown(value=reading.estimator),
        gr.Slider(value=reading.draws, visible=reading.estimator == ONE_PER_CONTEXT),
        gr.Dropdown(value=reading.bin_spacing),
        gr.Slider(value=reading.bin_width, visible=reading.bin_spacing != FINEST),
        gr.Slider(value=reading.max_position),
        gr.Slider(value=reading.rho),
        gr.Dropdown([ALL_GROUPS, *((g.name, g.name) for g in view.groups)], value="", visible=bool(view.groups)),
        gr.Dropdown(families, value=view.family, visible=bool(families)),
    ]


def reading_note(view: CalibrationView, base: CalibrationView) -> str:
    """How the shown reading differs from the calibrated one."""
    changes = _words(view.reading, base.reading)
    if view.families and view.alpha != base.alpha:
        changes.append("alpha shared out equally")
    if view.group is not None:
        changes.append("only one group")
    if view.effective_contexts is None and base.effective_contexts is not None:
        changes.append("ρ in place of the weights")
    if not changes:
        return AS_CALIBRATED
    return (
        f'<p class="hint">Read from stored values, without the model: {", ".join(changes)}. Nothing is stored; audits '
        "choose their own alpha.</p>"
    )


def _words(shown: Reading, stored: Reading) -> list[str]:
    told = (
        ("alpha", "alpha ", level),
        ("estimator", "", lambda name: str(name).replace("_", " ")),
        ("draws", "averaged draws ", str),
        ("bin_spacing", "", lambda name: f"{name} bins"),
        ("bin_width", "bins of ", str),
        ("max_position", "own thresholds up to step ", str),
        ("rho", "ρ ", lambda value: f"{value:g}"),
    )
    return [
        f"{before}{say(getattr(shown, name))} instead of {say(getattr(stored, name))}"
        for name, before, say in told
        if getattr(shown, name) != getattr(stored, name)
    ]


EMPTY = (
    '<section><div class="bar"><h2>Result</h2></div><p class="sub">Choose a run, or upload a prompt set and run one. '
    "The result appears here.</p></section>"
)


def read(
    calibrations: CalibrationService, calibration_id: int, values: Sequence[Any]
) -> tuple[CalibrationView, CalibrationView]:
    """A run as it was calibrated, and as the controls ask it to be read."""
    base = calibrations.view(calibration_id)
    return base, calibrations.view(calibration_id, reading_from(values, base))


class ResultHandlers:
    """What the page asks of the services about finished runs: one read, two side by side, and what came after."""

    def __init__(self, services: Services) -> None:
        self._calibrations = services[CalibrationService]
        # Lives as long as the page.
        self._folder = tempfile.TemporaryDirectory(prefix="coft-calibrations-")

    @shown_to(READ)
    def show(self, shown_id: int | None) -> list[Any]:
        """A run as it was calibrated."""
        listed = words.runs_list(self._calibrations.list(), shown_id)
        if shown_id is None:
            blank = [gr.skip()] * (len(READING_FIELDS) + len(PANELS) + 4)
            return [listed, EMPTY, gr.Column(visible=False), gr.skip(), *blank]
        view = self._calibrations.view(shown_id)
        head = [listed, words.result_head(view), gr.Column(visible=True), AS_CALIBRATED]
        others = self._at_other_levels(shown_id, view, ReadingRequest())
        return [*head, *reading_updates(view), *panels(view), others, *self._drift(shown_id)]

    @shown_to(READ)
    def read(self, shown_id: int | None, label: str | None, *values: Any) -> list[Any]:
        """The run read otherwise."""
        if shown_id is None:
            return [gr.skip()] * (4 + len(PANELS))
        readings = or_told(lambda: read(self._calibrations, shown_id, values))
        if readings is None:
            return [gr.skip(), REFUSED, *[gr.skip()] * (2 + len(PANELS))]
        base, view = readings
        draws = gr.Slider(visible=view.reading.estimator == ONE_PER_CONTEXT)
        width = gr.Slider(visible=view.reading.bin_spacing != FINEST)
        return [words.result_head(view), reading_note(view, base), draws, width, *panels(view, label)]

    @shown_to(READ)
    def others(self, shown_id: int | None, *values: Any) -> Any:
        """The same reading at other risk levels; what stands there stays with the reading when another is refused."""
        if shown_id is None:
            return ""
        if isinstance(or_refusal(lambda: read(self._calibrations, shown_id, values)), str):
            return gr.skip()
        base = self._calibrations.view(shown_id)
        return self._at_other_levels(shown_id, base, reading_from(values, base))

    def _at_other_levels(self, shown_id: int, base: CalibrationView, request: ReadingRequest) -> Any:
        def at(alpha: float) -> CalibrationView | str:
            asked = replace(request, alpha=None if alpha == base.alpha else alpha)
            return or_refusal(lambda: self._calibrations.view(shown_id, asked))

        shown_alpha = request.alpha or base.alpha
        levels = sorted({*words.OTHER_ALPHAS, shown_alpha}, reverse=True)
        return words.alphas([(alpha, at(alpha)) for alpha in levels], shown_alpha)

    @shown_to(READ)
    def histogram(self, shown_id: int | None, label: str, *values: Any) -> Any:
        """Joint support of one bin's true tokens."""
        return None if shown_id is None else histogram(read(self._calibrations, shown_id, values)[1], label)

    @shown
    def delete(self, event: gr.EventData, shown_id: int | None) -> list[Any]:
        """Delete a run; when it was shown, show the newest of the others."""
        self._calibrations.delete(int(event.id))
        runs = self._calibrations.list()
        kept_id = shown_id if shown_id != event.id else (runs[0].id if runs else None)
        return [kept_id, words.runs_list(runs, kept_id)]

    @shown_to(EXPORT)
    def export(self, event: gr.EventData) -> str:
        """Write a run as a file for download."""
        return str(self._calibrations.export(int(event.id), Path(self._folder.name)))

    @shown_to(READ)
    def menu(self, shown_id: int | None, other: int | None) -> Any:
        """The runs that the shown one can be compared with."""
        choices = words.comparison_choices(self._calibrations.list(), shown_id)
        kept = other if any(value == other for _, value in choices) else 0
        return gr.Dropdown(choices, value=kept)

    @needs(READ)
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
            words.comparison_settings(first, second),
            gr.Plot(picture, visible=True),
            words.comparison_thresholds(first, second),
        ]

    def _drift(self, shown_id: int) -> list[Any]:
        """What the audits say against the run."""
        report = self._calibrations.drift(shown_id)
        seen = bool(report.p_values)
        picture = gr.Plot(drift_figure(report), visible=True) if seen else gr.Plot(visible=False)
        return [words.drift_head(report), picture, words.drift_foot(report)]

    @shown_to(READ)
    def reweight(self, shown_id: int | None, path: str | None, name: str) -> list[Any]:
        """Store a copy of the run with weights for other prompts, and show it."""
        if shown_id is None or path is None:
            raise ServiceError("No file is chosen: upload prompts like those that will be audited.")
        in_use = self._calibrations.prompts_in_use(Path(path))
        return [self._calibrations.reweight(shown_id, in_use, name), None, ""]


PANELS = ("promises", "figure", "thresholds", "bins", "histogram", "checks", "fingerprint")
"""What a reading changes, in order."""


def panels(view: CalibrationView, label: str | None = None) -> list[Any]:
    """Everything that a reading changes; ``label`` is the bin whose values stay in sight, if it is still there."""
    choices = words.bin_choices(view)
    labels = [value for _, value in choices]
    chosen = label if label in labels else next(iter(labels), None)
    return [
        words.promises(view), thresholds_figure(view.bins, view.coverage, 1 - words.risk(view)), words.thresholds(view),
        gr.Dropdown(choices, value=chosen, visible=bool(choices)),
        gr.Plot(histogram(view, chosen), visible=bool(choices)), words.result_checks(view), words.fingerprint(view),
    ]  # fmt: skip


def histogram(view: CalibrationView, label: str | None) -> Any:
    """Joint support of one bin's true tokens, with its threshold."""
    item = next((item for item in view.bins if item.label == label), None)
    if item is None:
        return None
    support = words.support_name(view.summary.certified_in)
    return support_histogram(view.log_values.get(item.label, ()), item.tau, table_threshold(item.tau), support)


def alike(view: CalibrationView) -> ReadingRequest:
    """The same reading for another run, as far as it does not belong to this one's prompts."""
    reading = view.reading
    return ReadingRequest(
        alpha=view.alpha,
        estimator=reading.estimator,
        bin_width=None if reading.bin_spacing == FINEST else reading.bin_width,
        max_position=reading.max_position,
        draws=reading.draws if reading.estimator == ONE_PER_CONTEXT else None,
        bin_spacing=reading.bin_spacing,
    )


def _by_hand(control: Any) -> Any:
    """The event of a person's change; a menu's ``input`` fires twice, so that a refusal would be shown twice."""
    return control.select if isinstance(control, gr.Dropdown) else control.input


def result_part(services: Services, shown_id: gr.State, runs: gr.HTML) -> None:
    """Place everything about the run that is shown, and connect it."""
    handlers = ResultHandlers(services)
    head = listing("result", "export", value=EMPTY)
    download = gr.DownloadButton("Calibration", elem_id="calibration-file", elem_classes=["offscreen"])
    with gr.Column(visible=False, elem_classes=["stack"], min_width=0) as body:
        controls, reset, note = _reading()
        certified = markup("", "promises")
        with gr.Column(elem_classes=["group"], elem_id="positions"):
            markup(words.thresholds_head())
            figure, table = chart("thresholds-plot"), markup("", "thresholds")
        with gr.Row(elem_classes=["pair"]):
            with gr.Column(min_width=0, elem_classes=["figure"]):
                bins = gr.Dropdown([], label="Lower probability of true words", elem_id="bins")
                support = chart("support-plot")
            with gr.Column(min_width=0):
                others = markup("", "alphas")
        checks = markup("", "result-foot")
        drift, reweight = _drift(), _reweighting()
        other, compared = _comparison()
        shown_panels = [certified, figure, table, bins, support, checks, markup("", "fingerprint")]

    reading: list[Any] = [shown_id, *controls]
    # All that belongs to a run changes at once, so that no table of another run remains under its name.
    whole = [runs, head, body, note, *controls, *shown_panels, others, *drift]
    hidden = [controls[READING_FIELDS.index(name)] for name in ("draws", "bin_width")]
    changed = [head, note, *hidden, *shown_panels]
    opened = shown_id.change(handlers.show, shown_id, whole, **EVENT)
    reset_again = reset.click(handlers.show, shown_id, whole, **EVENT)
    read_otherwise = gr.on(
        [_by_hand(control) for control in controls],
        handlers.read,
        [shown_id, bins, *controls],
        changed,
        **LATEST,
    )
    _by_hand(bins)(handlers.histogram, [shown_id, bins, *controls], support, **LATEST)
    runs.delete(handlers.delete, shown_id, [shown_id, runs], **MULTIPLE)
    downloaded(head.export(handlers.export, None, download, **MULTIPLE), "calibration-file")

    # An address that ends in #drift is followed when the panel is there.
    opened.success(None, None, None, js="() => coft.calibrate.anchor()")
    file, name, store = reweight
    file.change(lambda path: gr.Button(interactive=path is not None), file, store, **EVENT)
    store.click(handlers.reweight, [shown_id, file, name], [shown_id, file, name], **EVENT)

    opened.success(handlers.menu, [shown_id, other], other, **LATEST)
    both = [shown_id, other, *controls]
    other.change(handlers.compare, both, compared, **LATEST)
    read_otherwise.success(handlers.others, reading, others, **LATEST)
    for event in (opened, reset_again, read_otherwise):
        event.success(handlers.compare, both, compared, **LATEST)


def _reading() -> tuple[list[Any], gr.Button, gr.HTML]:
    """The controls in the order of :data:`READING_FIELDS`, what resets them, and what is said of them."""
    with gr.Column(elem_classes=["reading"], elem_id="reading"):
        markup(
            '<div class="bar"><h2>Try other settings</h2><span class="hint">changes at once, without the model</span>'
            "</div>"
        )
        with gr.Row(elem_classes=["reading-grid"]):
            alpha = _control("alpha", maximum=0.5)
            rho = gr.Slider(
                1, 5, 1, step=0.05, label="ρ, how much likelier in use", elem_id="read-rho", buttons=[], min_width=0
            )
            spacing = _control("bin_spacing", elem_id="read-spacing")
            width = _control("bin_width", elem_id="read-width", visible=False)
            last = _control("max_position", elem_id="read-last")
            estimator, draws = _control("estimator"), _control("draws")
            group = gr.Dropdown([ALL_GROUPS], value="", label="Group", min_width=0, elem_id="read-group")
            family = gr.Dropdown([], label="Family", min_width=0, elem_id="read-family")
        with gr.Row(elem_classes=["go", "reset"]):
            reset = gr.Button("Reset", size="sm", elem_id="read-reset")
            note = markup(AS_CALIBRATED, "read-note")
    return [alpha, estimator, draws, spacing, width, last, rho, group, family], reset, note


def _control(name: str, **how: Any) -> Component:
    usual = {"value": getattr(USUAL, name), "min_width": 0, "elem_id": f"read-{name}"}
    return setting_control(CALIBRATING[name], **{**usual, **how})


def _drift() -> list[Any]:
    with gr.Column(elem_classes=["group"], elem_id="drift"):
        return [markup("", "drift-head"), chart("drift-plot", visible=False), markup("", "drift-foot")]


def _reweighting() -> tuple[gr.File, gr.Textbox, gr.Button]:
    with gr.Column(elem_classes=["group"], elem_id="reweight"):
        markup('<div class="bar"><h2>Weights for other prompts</h2></div>')
        hint(
            "Will the audited prompts differ from these? Upload some of them: a copy of the run is stored with each "
            "context weighted by how likely it is among them. Needs no model; the level is then approximate."
        )
        with gr.Row(elem_classes=["reweight"]):
            file = upload("Prompts in use", "reweight-file")
            with gr.Column(min_width=0, elem_classes=["group"]):
                name = gr.Textbox(label="Name of the new run", placeholder="this run, weighted", max_lines=1)
                with gr.Row(elem_classes=["go"]):
                    store = gr.Button("Store with weights", interactive=False, elem_id="reweight-go")
    return file, name, store


def _comparison() -> tuple[gr.Dropdown, list[Any]]:
    """The choice of another run, and what is said of both."""
    with gr.Column(elem_classes=["group"], elem_id="compare"):
        markup('<div class="bar"><h2>Compare with another run</h2></div>')
        other = gr.Dropdown([("Choose a run", 0)], value=0, label="Other run", show_label=False, elem_id="compare-with")
        return other, [
            markup("", "compare-settings"),
            chart("compare-plot", visible=False),
            markup("", "compare-table"),
        ]
