"""The batches page: a new batch, one that is open with its rows, totals and selection rates, and the past ones."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import gradio as gr
import plotly.graph_objects as go
from gradio.components import Component

from app.audit.panel import SettingsHandlers, folded_settings, wire_settings
from app.batch.controls import batch_controls, controls_csv
from app.batch.formal import RatesRule, audited_batch
from app.batch.impact import Outcomes, outcomes_of
from app.batch.operations import export_batch
from app.batch.rows import SIZES, GroupTotals, batch_query, groups_csv, rows_csv
from app.batch.service import BatchRequest, BatchService
from app.batch.words import (
    COLUMNS,
    MEASURES,
    NO_RULE,
    NO_TOTALS,
    batch_message,
    batches_list,
    group_name,
    impact_message,
    totals_table,
)
from app.calibrate.service import CalibrationService
from app.prompts.form import (
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
from app.prompts.sets import PROMPT_SET_FIELDS, ParsedPromptSet
from app.report.panel import place_downloads, place_publication
from app.report.service import EXPORTS, ReportService
from app.shared.audits import CalibrationRequest
from app.shared.charts import plain_layout
from app.shared.components import chart, hint, markup, place
from app.shared.errors import ServiceError
from app.shared.events import EVENT, LATEST, On, Reply, downloaded, or_refusal, reply, shown, shown_to, wire
from app.shared.files import write_bytes, write_text
from app.shared.formal_reports import Statement
from app.shared.impact import impact_csv, impact_table
from app.shared.markup import from_file, laid_out
from app.shared.needs import EXPORT, READ
from app.shared.requirements import chosen
from app.shared.results.formats import SHARED
from app.shared.results.publication import Publication
from app.shared.settings_json import whole
from app.shared.settings_rail import (
    CHANGED,
    SettingsRail,
    control_values,
    settings_from,
    updates_from,
    usual_settings,
)
from app.shared.web import topbar
from app.shared.wiring import Services

EVENTS = ["find", "listed", "cancel", "resume", "delete", "totals", "outcome", "export", "formal"]


def rates_rule(form: Mapping[str, Any]) -> RatesRule:
    """How continuations are read as outcomes: ``selected``, ``other``, ``regex``, ``case`` and ``small``."""
    return RatesRule(
        selected=str(form.get("selected") or ""),
        other=str(form.get("other") or ""),
        regex=bool(form.get("regex")),
        match_case=bool(form.get("case")),
        exclude_small=bool(form.get("small")),
    )


ROW_HEIGHT = 30
FRAME_HEIGHT = 58
LONGEST_NAME = 22
CHARACTER_WIDTH = 6.5
INTERVALS, DOTS = 2, 3
"""Places of both traces in the template."""


def figure_height(groups: int) -> int:
    """Height in pixels of the totals' chart for a number of groups."""
    return FRAME_HEIGHT + ROW_HEIGHT * max(1, groups)


def totals_figure(groups: Sequence[GroupTotals], measure: str) -> go.Figure:
    """A dot for each group's mean of a measure, drawn from the top, and a line for its interval.

    A mean without an interval is an open square.
    """
    names = [group_name(group.group) for group in groups]
    short = [name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…" for name in names]
    left = 16 + CHARACTER_WIDTH * max(map(len, short), default=4)
    figure = go.Figure(layout=plain_layout(figure_height(len(groups)), {"l": round(left), "r": 16, "t": 8, "b": 40}))
    means = [group.mean(measure) for group in groups]
    dots = [(row, mean) for row, mean in enumerate(means) if mean.mean is not None]
    lines = [(row, mean) for row, mean in dots if mean.low is not None]
    for _ in range(INTERVALS):
        figure.add_trace(go.Scatter(x=[], y=[], hoverinfo="skip"))
    figure.add_scatter(
        x=[end for _, mean in lines for end in (mean.low, mean.high, None)],
        y=[end for row, _ in lines for end in (row, row, None)],
        mode="lines+markers", line={"width": 1.6}, hoverinfo="skip",
        marker={"symbol": "line-ns-open", "size": 9, "line": {"width": 1.6}},
    )  # fmt: skip
    figure.add_scatter(
        x=[mean.mean for _, mean in dots],
        y=[row for row, _ in dots],
        mode="markers",
        marker={
            "size": 9, "line": {"width": 1.6},
            "symbol": ["square-open" if mean.low is None else "circle" for _, mean in dots],
        },
        hovertext=[
            f"{names[row]}: {mean.mean:.3g} "
            f"({'no interval' if mean.low is None else f'{mean.low:.3g} to {mean.high:.3g}'})"
            for row, mean in dots
        ],
        hovertemplate="%{hovertext}<extra></extra>",
        cliponaxis=False,
    )  # fmt: skip
    share = measure == "certified_share"
    least = min((value for _, mean in dots for value in (mean.low, mean.mean) if value is not None), default=0.0)
    figure.update_xaxes(
        title={"text": MEASURES[measure], "standoff": 6}, tickformat=".0%" if share else None, nticks=6, showgrid=True,
        # From a little below the lowest value to 100 %, beyond which no share goes.
        range=[max(0.0, least - 0.05), 1.02] if share else None,
    )  # fmt: skip
    figure.update_yaxes(
        tickmode="array", tickvals=list(range(len(short))), ticktext=short, showgrid=False, zeroline=False,
        range=[len(short) - 0.5, -0.5],
    )  # fmt: skip
    return figure


BATCH_FIELDS = ("name", "seeds", "by_group", "proceed")
"""What a batch has besides the settings of its sessions, in the order of the controls."""

SAME_SEED = "same"
UNTRIED = '<p class="hint">Counts prompts, groups and tokens, and says which rows the model cannot use.</p>'


class BatchSettings(SettingsHandlers):
    """The rail's handlers, with the choice to go on without a calibration that does not fit."""

    offers_to_proceed = True


class BatchFormHandlers:
    """What the form asks of the services; values are the columns, then the batch's own fields, then the rail's."""

    def __init__(self, services: Services) -> None:
        self._batches = services[BatchService]
        self._calibrations = services[CalibrationService]
        self.settings = BatchSettings(services)
        self.prompts = PromptHandlers(services[BatchService], UNTRIED)

    @shown_to(READ)
    def opened(self, request: gr.Request) -> list[object]:
        """The settings that a new batch begins with: the usual ones, under the asked-for calibration and policy."""
        calibration = str(request.query_params.get("calibration", ""))
        stored = self.settings.stored()
        asked = int(calibration) if calibration.isdigit() else None
        settings = usual_settings(stored, asked, request.query_params.get("policy"))
        return updates_from(control_values(settings, stored), stored)

    @shown_to(READ)
    def preview(self, path: str | None, *values: Any) -> str:
        """The first rows as they will be masked."""
        if path is None:
            return ""
        prompts = or_refusal(lambda: parsed_from(self._batches, path, values[: len(PROMPT_SET_FIELDS)]))
        if isinstance(prompts, str) or "prompt" not in dict(prompts.mapping):
            return ""
        settings = self._batch(path, True, values)[1].settings
        masking = CalibrationRequest(
            "",
            masked_families=settings.masked_families,
            user_list_id=settings.user_list_id,
            whitelist=settings.whitelist,
        )
        return preview_rows(self._calibrations.preview(prompts, masking), len(prompts.rows))

    @shown_to(READ)
    def check(self, path: str | None, *values: Any) -> list[Any]:
        """All rows that cannot be used, those included that only the model can tell."""
        prompts, request = self._batch(path, True, values)
        errors = self._batches.row_errors(prompts, request)
        return [row_errors(errors, prompts.total), accept_box(prompts.total, errors, prompts.errors)]

    @shown_to(READ)
    def estimate(self, path: str | None, *values: Any) -> str:
        """What the run will take."""
        estimate = self._batches.estimate(*self._batch(path, True, values))
        return laid_out("batch/estimate.html", it=estimate)

    @shown
    def submit(self, path: str | None, accept: bool, *values: Any) -> Reply:
        """Begin the batch, and have the page open it."""
        batch_id = self._batches.submit(*self._batch(path, accept, values))
        return {"kind": "begun", "batch": batch_id, "at": time.monotonic_ns()}

    def _batch(self, path: str | None, accept: bool, values: Sequence[Any]) -> tuple[ParsedPromptSet, BatchRequest]:
        """The prompt set as the form maps its columns, and the form's request."""
        columns, own = len(PROMPT_SET_FIELDS), len(BATCH_FIELDS)
        prompts = parsed_from(self._batches, path, values[:columns])
        name, seeds, by_group, proceed = values[columns : columns + own]
        settings = settings_from(values[columns + own :], bool(proceed))
        request = BatchRequest(
            name=str(name or "").strip() or Path(prompts.filename).stem,
            settings=replace(settings, group=None) if by_group else settings,
            accept_errors=accept,
            same_seed=seeds == SAME_SEED,
            group_thresholds=bool(by_group),
        )
        return prompts, request


class BatchHandlers:
    """Every method answers one event of the page."""

    def __init__(self, services: Services) -> None:
        self._batches = services[BatchService]
        # Lives as long as the page.
        self._reports = services[ReportService]
        self._folder = tempfile.TemporaryDirectory(prefix="coft-batches-")
        self._share = partial(export_batch.call, services, folder=Path(self._folder.name))

    @shown_to(READ)
    def find(self, event: gr.EventData) -> Reply:
        """A page of a batch's rows, and how far the batch is."""
        return self._shown(event)

    @shown_to(READ)
    def listed(self, event: gr.EventData) -> Reply:
        """All batches."""
        return reply(event, {"kind": "list", "html": batches_list(self._batches.list())})

    @shown
    def cancel(self, event: gr.EventData) -> Reply:
        """Stop a batch after its current token."""
        self._batches.cancel(whole(event.query, "batch"))
        return self._shown(event, "Stopping after the current token …")

    @shown
    def resume(self, event: gr.EventData) -> Reply:
        """Go on with the rows that are not finished."""
        self._batches.resume(whole(event.query, "batch"))
        return self._shown(event, "Resumed.")

    @shown
    def delete(self, event: gr.EventData) -> Reply:
        """Delete a batch; its sessions stay."""
        self._batches.delete(int(event.id))
        listed = batches_list(self._batches.list())
        return reply(event, {"kind": "list", "html": listed, "gone": int(event.id), "said": "The batch is deleted."})

    @shown_to(READ)
    def totals(self, event: gr.EventData) -> list[Any]:
        """Means by group as a chart and as numbers."""
        measure = str(event.measure)
        if measure not in MEASURES:
            raise ServiceError(f"There is no measure {measure!r}; choose one of {', '.join(MEASURES)}.")
        groups = self._batches.view(int(event.batch)).groups
        message = {
            "kind": "totals", "html": totals_table(groups) or NO_TOTALS, "height": figure_height(len(groups)),
            "empty": not groups,
        }  # fmt: skip
        return [reply(event, message), totals_figure(groups, measure)]

    @shown_to(READ)
    def outcome(self, event: gr.EventData) -> Reply:
        """How a rule reads the rows, and the table that comes of it."""
        view, rule = self._batches.view(int(event.batch)), rates_rule(event.rule)
        outcomes = or_refusal(lambda: outcomes_of(view.rows, rule)) if rule.selected.strip() else None
        impact = None
        if isinstance(outcomes, Outcomes) and outcomes.pairs:
            pairs = outcomes.pairs
            impact = or_refusal(lambda: impact_table(pairs, rule.exclude_small))
        return reply(event, impact_message(view, rule, outcomes, impact))

    @shown_to(EXPORT)
    def export(self, event: gr.EventData) -> str:
        """Write the rows, the totals or the impact ratios for download."""
        kind, view = str(event.kind), self._batches.view(int(event.batch))
        if kind == "rows":
            text = rows_csv(view.rows)
        elif kind == "groups":
            text = groups_csv(view.groups)
        elif kind == "controls":
            text = controls_csv(batch_controls(view.rows, view.request.settings.controls))
        elif kind == "impact":
            rule = rates_rule(event.rule)
            text = impact_csv(impact_table(outcomes_of(view.rows, rule).pairs, rule.exclude_small))
        else:
            raise ServiceError(f"The file {kind!r} does not exist; choose rows, groups, controls or impact.")
        return str(write_text(self._file(view.id, f"-{kind}.csv"), text))

    @shown_to(EXPORT)
    def share(self, shown: str, form: str, *told: str) -> str:
        """Write the results for other programs; ``shown`` is the open batch with its rule, as JSON."""
        asked = json.loads(shown)
        if asked["batch"] is None:
            raise ServiceError("No batch is open; choose one from the list.")
        return str(self._share(int(asked["batch"]), form, rates_rule(asked["rule"]), Publication(*told)))

    @shown_to(EXPORT)
    def formal(self, event: gr.EventData) -> str:
        """Write the batch's formal report for download, with selection rates where the page has a rule."""
        batch, kind = audited_batch(self._batches.view(int(event.batch)), rates_rule(event.rule)), str(event.kind)
        statement = Statement(
            str(event.auditor), str(event.question), str(event.language), annexes=chosen(str(event.annexes))
        )
        content = self._reports.formal_batch(batch, statement, kind)
        return str(write_bytes(self._file(batch.id, EXPORTS[kind].suffix), content))

    def _file(self, batch_id: int, suffix: str) -> Path:
        return Path(self._folder.name) / f"coft-audit-batch-{batch_id}{suffix}"

    def _shown(self, event: gr.EventData, said: str = "") -> Reply:
        query = batch_query(event.query)
        view = self._batches.view(query.batch, query.order, query.descending)
        return reply(event, batch_message(view, query, said))


SEEDS = [
    ("A seed for each context: rows of one context share their draws, others do not", "contexts"),
    ("The same seed for every prompt", SAME_SEED),
]
MASKING = ("mask", "attribute", "masked_families", "user_list_id", "whitelist")
"""Settings that change which words are marked."""


@dataclass(frozen=True, slots=True)
class NewBatch:
    """The controls of a new batch."""

    part: PromptPart
    fields: dict[str, Component]
    rail: SettingsRail
    check: gr.Button
    run: gr.Button
    estimate: gr.HTML

    @property
    def inputs(self) -> list[Any]:
        """File, columns, the batch's own fields and the settings, as the handlers take them."""
        fields = [self.fields[name] for name in BATCH_FIELDS]
        return [self.part.file, *self.part.columns, *fields, *self.rail.inputs]

    @property
    def read(self) -> list[Any]:
        """What reading a prompt set changes."""
        return [*self.part.outputs, self.check, self.run, self.estimate]


def new_batch(services: Services, handlers: BatchFormHandlers) -> NewBatch:
    """Place prompts and run in two columns, and below them the settings, folded into a line."""
    fields: dict[str, Component] = {}
    part = prompt_part(handlers.prompts)
    with gr.Column(elem_classes=["group"], elem_id="go"):
        markup("<h2>Before you run</h2>")
        fields["name"] = gr.Textbox(label="Name", placeholder="the file's name", max_lines=1, elem_id="batch-name")
        fields["by_group"] = gr.Checkbox(False, label="Each row under its own group’s thresholds", elem_id="by-group")
        hint("Needs a calibration by group, and a group in each row.")
        fields["seeds"] = gr.Radio(SEEDS, value="contexts", label="Seeds", elem_classes=["stacked"], elem_id="seeds")
        estimate = markup(UNTRIED, "estimate")
        fields["proceed"] = gr.Checkbox(
            False,
            label="Audit without certificate where the calibration does not fit",
            visible=False,
            elem_id="proceed",
        )
        with gr.Row(elem_classes=["go"]):
            check = gr.Button("Check and estimate", interactive=False, elem_id="check")
            run = gr.Button("Run", variant="primary", interactive=False, elem_id="run")
    rail = folded_settings(services, "batch")
    return NewBatch(part, fields, rail, check, run, estimate)


def wire_new(app: gr.Blocks, handlers: BatchFormHandlers, form: NewBatch, stage: gr.HTML) -> None:
    """Connect the form; a batch that begins is told to ``stage``, and a refused one names its rows."""
    part, preview = form.part, form.part.preview
    part.samples.sample(handlers.prompts.sample, None, part.file, **EVENT)
    read = part.file.change(handlers.prompts.parse, part.file, form.read, **EVENT)
    read.success(handlers.preview, form.inputs, preview, **LATEST)
    chosen = [column.select for column in part.columns]
    mapped = gr.on(chosen, handlers.prompts.remap, [part.file, *part.columns], form.read, **LATEST)
    mapped.success(handlers.preview, form.inputs, preview, **LATEST)
    masking = [form.rail.controls[name].change for name in MASKING]
    gr.on(masking, handlers.preview, form.inputs, preview, **LATEST)
    tried = form.check.click(lambda: TRYING, None, form.estimate, **EVENT)
    checked = tried.success(handlers.check, form.inputs, [part.errors, part.accept], **EVENT)
    counted = checked.success(handlers.estimate, form.inputs, form.estimate, **EVENT)
    for event in (checked, counted):
        event.failure(lambda: NOT_TRIED, None, form.estimate, **EVENT)
    app.load(None, form.rail.inputs, None, js=CHANGED)
    app.load(handlers.opened, None, form.rail.inputs, **EVENT)
    wire_settings(app, handlers.settings, form.rail, CHANGED, [form.fields["proceed"]])
    begun = [part.file, part.accept, *form.inputs[1:]]
    began = form.run.click(handlers.submit, begun, stage, trigger_mode="once", **EVENT)
    began.failure(handlers.check, form.inputs, [part.errors, part.accept], **EVENT)


def build_page(app: gr.Blocks, services: Services) -> None:
    """Build the page."""
    topbar(services, "batches")
    handlers = BatchFormHandlers(services)
    with gr.Column(elem_classes=["page"], elem_id="main"):
        gr.HTML(
            '<div class="pagehead"><h1>My file</h1><p class="sub">Many prompts under the same settings: a session of '
            "each, a table of all, and totals by group.</p>"
            '<a class="btn end backtonew" href="./batches">All batches</a></div>',
            js_on_load="coft.calibrate.mount()",
            apply_default_css=False,
            elem_classes=["coft"],
        )
        with gr.Column(elem_classes=["stack"], elem_id="batch-new", min_width=0):
            with gr.Row(elem_classes=["asked"]):
                form = new_batch(services, handlers)
            markup(
                '<div class="bar"><h2>Past batches</h2></div><div id="past" aria-busy="true" tabindex="-1"><p '
                'class="sub">Loading …</p></div>'
            )
        stage, plot, shared = _open()
    place_downloads(services)
    file = gr.DownloadButton("Table", elem_id="batch-file", elem_classes=["offscreen"])
    wire_new(app, handlers, form, stage)
    opened = BatchHandlers(services)
    _wire_open(opened, stage, plot, file)
    _wire_shared(opened, shared, file)


def _open() -> tuple[gr.HTML, gr.Plot, list[Any]]:
    """Place an open batch; its stage triggers everything and receives all messages."""
    with gr.Column(elem_classes=["stack"], elem_id="batch-open", min_width=0):
        script = f"coft.batches.mount(element, trigger, props, watch, {EVENTS})"
        stage = place("batch/stage.html", script, "batch", sizes=SIZES, columns=COLUMNS)
        with gr.Row(elem_classes=["pair", "batchpair"]):
            with gr.Column(min_width=0, elem_classes=["group"], elem_id="batch-totals"):
                markup(from_file("batch/totals.html", measures=MEASURES))
                plot = chart("totals-plot")
                markup(from_file("batch/numbers.html"))
            with gr.Column(min_width=0, elem_classes=["group"], elem_id="batch-impact"):
                markup(from_file("batch/impact.html", no_rule=NO_RULE))
        with gr.Column(min_width=0, elem_classes=["group"], elem_id="batch-shared"):
            markup("<h2>For other programs</h2>")
            with gr.Row(elem_classes=["go"]):
                form = gr.Dropdown(
                    [(own.title, key) for key, own in SHARED.items()], value="lm-eval", label="Format of results"
                )
                save = gr.Button("Save results", size="sm", elem_id="save-results")
            told = place_publication("batch")
    return stage, plot, [save, form, *told]


def _wire_shared(handlers: BatchHandlers, shared: list[Any], file: gr.DownloadButton) -> None:
    save, *fields = shared
    # The open batch and its rule are known to the page's script only.
    opened = gr.Textbox(visible=False)
    asked = "(_, ...rest) => [coft.batches.shown(), ...rest]"
    written = save.click(handlers.share, [opened, *fields], file, js=asked, **EVENT)
    downloaded(written, "batch-file", "coft.batches.written();")


def _wire_open(handlers: BatchHandlers, stage: gr.HTML, plot: gr.Plot, file: gr.DownloadButton) -> None:
    """Connect the open batch: each event is answered by the method of its name."""
    shows = {"totals": [stage, plot], "export": file, "formal": file}
    wired = wire(stage, {name: On(getattr(handlers, name), shows.get(name, stage)) for name in EVENTS})
    for name in ("export", "formal"):
        downloaded(wired[name], "batch-file", "coft.batches.written();")
