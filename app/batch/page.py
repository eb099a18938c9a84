"""The part of the batches page that begins a batch: controls and their wiring."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import gradio as gr
from gradio.components import Component

from app.audit.handlers import AuditHandlers
from app.audit.page import wire_tuned
from app.batch.impact import groups_csv, impact_csv, impact_table
from app.batch.types import BatchRequest, Outcomes
from app.batch.words import (
    MEASURES,
    NO_RULE,
    NO_TOTALS,
    SIZES,
    batch_message,
    batch_query,
    batches_list,
    columns_help,
    estimate_line,
    figure_height,
    impact_message,
    meaning,
    outcome_rule,
    totals_figure,
    totals_table,
    whole_number,
)
from app.bootstrap import Services
from app.calibrate.form import columns_from
from app.calibrate.page import NO_FILE, NOT_TRIED, TRYING, PromptHandlers, PromptPart, prompt_part
from app.calibrate.words import accept_label, bad_rows, preview_rows, row_errors
from app.shared.audits import AuditSettings, CalibrationRequest
from app.shared.errors import ServiceError
from app.shared.events import EVENT, LATEST, On, Reply, downloaded, or_refusal, reply, shown, wire
from app.shared.events import Reply as Message
from app.shared.files import write_text
from app.shared.markup import chart, hint, icon, markup
from app.shared.prompt_sets import PROMPT_SET_FIELDS, ParsedPromptSet
from app.shared.settings_rail import (
    SettingsRail,
    Stored,
    control_values,
    default_calibration,
    known_policy,
    settings_controls,
    settings_from,
    updates_from,
    without_parameters,
)
from app.shared.web import topbar

EVENTS = "['find', 'listed', 'cancel', 'resume', 'delete', 'totals', 'outcome', 'export']"


def batch_stage() -> gr.HTML:
    """Place the batch and its rows; it triggers everything and receives all messages."""
    sizes = "".join(f'<option value="{size}">{size} a page</option>' for size in SIZES)
    return gr.HTML(
        html_template=f"""<section aria-label="Batch" aria-busy="true">
        <div class="batchhead"><p class="sub">Loading …</p></div>
        <div class="batchstatus"></div><span class="vh progresssaid" role="status"></span>
        <div class="batchnotes"></div>
        <form class="filters" role="search" aria-label="Filters">
          <div class="field wide"><label for="batch-search">Search</label><input class="input" id="batch-search"
            type="search" name="text" autocomplete="off" spellcheck="false" placeholder="Prompt or continuation"></div>
          <div class="field"><label for="batch-group">Group</label><select class="select" id="batch-group"
            name="group"><option value="">All groups</option></select></div>
          <div class="field"><label for="batch-state">State</label><select class="select" id="batch-state"
            name="state"><option value="">All states</option></select></div>
          <div class="field"><button type="button" class="btn" data-do="reset" disabled>Reset</button></div></form>
        <div class="bar foundbar"><h3 class="vh">Rows</h3><span class="sub tnum where" role="status"></span>
          <span class="sub told" role="status"></span>
          <div class="end pager"><select class="select small" name="size" aria-label="Rows on a page">{sizes}</select>
            <button type="button" class="btn small" data-do="page" data-by="-1" disabled>{icon("back")}Previous</button>
            <span class="hint tnum leaf"></span>
            <button type="button" class="btn small" data-do="page" data-by="1" disabled>Next{icon("step")}</button>
          </div></div>
        <div class="rowscroll" id="batch-rows" role="region" aria-label="Rows" tabindex="0"></div>
        <details class="meanings"><summary>{icon("chev", "chev")}What the columns mean</summary>{columns_help()}
        </details></section>""",
        js_on_load=f"coft.batches.mount(element, trigger, props, watch, {EVENTS})",
        apply_default_css=False,
        elem_id="batch",
        elem_classes=["coft"],
    )


def totals_head() -> gr.HTML:
    """Place the heading of the totals with the choice of a measure."""
    menu = "".join(f'<option value="{name}">{title}</option>' for name, title in MEASURES.items())
    return markup(
        '<div class="bar"><h2 id="h-totals">Totals by group</h2><select class="select small" name="measure" '
        f'aria-label="Measure of the chart">{menu}</select></div><p class="hint">A dot is a group’s mean over its '
        "contexts; the line is its 95 % interval. An open square has none: too few of its contexts differ.</p>"
    )


def totals_numbers() -> gr.HTML:
    """Place the numbers behind the chart."""
    return markup(
        f'<div class="totalsfoot"><details><summary>{icon("chev", "chev")}The numbers, all measures</summary>'
        '<div class="totalsnumbers"></div></details><button type="button" class="btn small" data-do="export" '
        f'data-kind="groups">{icon("down")}Totals as CSV</button></div>'
    )


def impact_panel() -> gr.HTML:
    """Place the outcome rule, its preview and the table of impact ratios."""
    return markup(
        f"""<section aria-labelledby="h-impact" class="impactpanel">
        <div class="bar"><h2 id="h-impact">Selection rates and impact ratios</h2><span class="end acts">
          <button type="button" class="btn small" data-do="export" data-kind="impact" disabled>{icon("down")}CSV
          </button>
          <button type="button" class="btn small" data-do="print" disabled>Print</button></span></div>
        <form class="rule" aria-label="How a continuation is read">
          <div class="field"><label for="rule-selected">Selected if the text has</label><input class="input"
            id="rule-selected" name="selected" autocomplete="off" spellcheck="false" placeholder="hired"></div>
          <div class="field"><label for="rule-other">and not before it (optional)</label><input class="input"
            id="rule-other" name="other" autocomplete="off" spellcheck="false" placeholder="rejected"></div>
          <div class="ticks"><label><input type="checkbox" name="case"> Match case</label>
            <label><input type="checkbox" name="regex"> Regular expression</label>
            <label><input type="checkbox" name="small"> Leave groups below 2&nbsp;% out</label></div></form>
        <div class="preview-rule" role="status">{NO_RULE}</div>
        <div class="impactreport"></div>
        <details class="meanings" open><summary>{icon("chev", "chev")}What these numbers mean, and what not</summary>
          <div class="plainwords sub">{meaning()}</div></details></section>"""
    )


OWN_FIELDS = ("name", "seeds", "by_group", "proceed")
"""What a batch has besides the settings of its sessions, in the order of the controls."""

SAME_SEED = "same"
UNTRIED = '<p class="hint">Counts prompts, groups and tokens, and says which rows the model cannot use.</p>'


@dataclass(frozen=True, slots=True)
class Asked:
    """A prompt set, and the batch that is asked of it."""

    prompts: ParsedPromptSet
    request: BatchRequest


class FormHandlers:
    """What the form asks of the services; values are the columns, then the batch's own fields, then the rail's."""

    def __init__(self, services: Services) -> None:
        """Keep the services, and what other pages' handlers do already."""
        self._batches = services.batches
        self._calibrations = services.calibrations
        self._audits = services.audits
        self._user_lists = services.user_lists
        self.settings = AuditHandlers(services)
        self.prompts = PromptHandlers(services)
        self.prompts.samples = services.batches.samples()

    @shown
    def opened(self, request: gr.Request) -> list[object]:
        """The settings that a new batch begins with: the usual ones, under the asked-for calibration and policy."""
        asked_for = str(request.query_params.get("calibration", ""))
        stored = Stored(self._calibrations.list(), self._user_lists.list(), self._audits.masked_families)
        wanted = int(asked_for) if asked_for.isdigit() else None
        chosen = AuditSettings(
            policy=known_policy(request.query_params.get("policy")),
            calibration_id=default_calibration(stored.calibrations, wanted),
        )
        return updates_from(control_values(chosen, stored), stored)

    @shown
    def parse(self, path: str | None) -> list[Any]:
        """Read an uploaded prompt set, each field from the column of its name."""
        return [*self.prompts.parse(path)[:-1], UNTRIED]

    @shown
    def remap(self, path: str | None, *columns: str) -> list[Any]:
        """Read it again with the chosen columns."""
        return [*self.prompts.remap(path, *columns)[:-1], UNTRIED]

    @shown
    def preview(self, path: str | None, *values: Any) -> str:
        """The first rows as they will be masked."""
        if path is None:
            return ""
        what = self._asked(path, True, values)
        if "prompt" not in dict(what.prompts.mapping):
            return ""
        own = what.request.settings
        masking = CalibrationRequest(
            "", masked_families=own.masked_families, user_list_id=own.user_list_id, whitelist=own.whitelist
        )
        return preview_rows(self._calibrations.preview(what.prompts, masking), len(what.prompts.rows))

    @shown
    def check(self, path: str | None, *values: Any) -> list[Any]:
        """All rows that cannot be used, those included that only the model can tell."""
        what = self._asked(path, True, values)
        found = self._batches.row_errors(what.prompts, what.request)
        label = accept_label(what.prompts.total - bad_rows(found))
        return [row_errors(found, what.prompts.total), gr.Checkbox(visible=bool(found), label=label)]

    @shown
    def estimate(self, path: str | None, *values: Any) -> str:
        """What the run will take."""
        what = self._asked(path, True, values)
        return estimate_line(self._batches.estimate(what.prompts, what.request))

    @shown
    def submit(self, path: str | None, accept: bool, *values: Any) -> Message:
        """Begin the batch, and have the page open it."""
        what = self._asked(path, accept, values)
        return {"kind": "begun", "batch": self._batches.submit(what.prompts, what.request), "at": time.monotonic_ns()}

    @shown
    def describe_calibration(self, *values: object) -> list[object]:
        """What the rail says of the calibration, and the choice to go on without one that does not fit."""
        misfit = bool(self._audits.fit(settings_from(without_parameters(values))).differences)
        return [*self.settings.describe_calibration(*values), gr.Checkbox(visible=misfit)]

    def _asked(self, path: str | None, accept: bool, values: Sequence[Any]) -> Asked:
        """Read the prompt set as the form maps its columns, and make the form's request."""
        if path is None:
            raise ServiceError(NO_FILE)
        columns, rest = values[: len(PROMPT_SET_FIELDS)], values[len(PROMPT_SET_FIELDS) :]
        own = dict(zip(OWN_FIELDS, rest, strict=False))
        settings = settings_from(rest[len(OWN_FIELDS) :], bool(own["proceed"]))
        by_group = bool(own["by_group"])
        return Asked(
            self._batches.parse(Path(path), Path(path).name, columns_from(columns)),
            BatchRequest(
                name=str(own["name"] or "").strip() or Path(path).stem,
                settings=replace(settings, group=None) if by_group else settings,
                accept_errors=accept,
                same_seed=own["seeds"] == SAME_SEED,
                group_thresholds=by_group,
            ),
        )


class BatchHandlers:
    """Every method answers one event of the page."""

    def __init__(self, services: Services) -> None:
        """Keep the services, and a folder for files that lives as long as the page."""
        self._batches = services.batches
        self._folder = tempfile.TemporaryDirectory(prefix="coft-batches-")

    @shown
    def find(self, event: gr.EventData) -> Reply:
        """A page of a batch's rows, and how far the batch is."""
        return self._shown(event)

    @shown
    def listed(self, event: gr.EventData) -> Reply:
        """All batches."""
        return reply(event, {"kind": "list", "html": batches_list(self._batches.list())})

    @shown
    def cancel(self, event: gr.EventData) -> Reply:
        """Stop a batch after its current token."""
        self._batches.cancel(whole_number(event.query, "batch"))
        return self._shown(event, "Stopping after the current token …")

    @shown
    def resume(self, event: gr.EventData) -> Reply:
        """Go on with the rows that are not finished."""
        self._batches.resume(whole_number(event.query, "batch"))
        return self._shown(event, "Resumed.")

    @shown
    def delete(self, event: gr.EventData) -> Reply:
        """Delete a batch; its sessions stay."""
        self._batches.delete(int(event.id))
        html = batches_list(self._batches.list())
        return reply(event, {"kind": "list", "html": html, "gone": int(event.id), "said": "The batch is deleted."})

    @shown
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

    @shown
    def outcome(self, event: gr.EventData) -> Reply:
        """How a rule reads the rows, and the table that comes of it."""
        view, rule = self._batches.view(int(event.batch)), outcome_rule(event.rule)
        found: Outcomes | str | None = None
        if rule.selected.strip():
            found = or_refusal(lambda: self._batches.outcomes(view.id, rule))
        made = None
        if isinstance(found, Outcomes) and found.rows:
            pairs = found.pairs
            made = or_refusal(lambda: impact_table(pairs, bool(event.rule.get("small"))))
        return reply(event, impact_message(view, rule, found, made))

    @shown
    def export(self, event: gr.EventData) -> str:
        """Write the rows, the totals or the impact ratios for download."""
        number, kind = int(event.batch), str(event.kind)
        path = Path(self._folder.name) / f"coft-audit-batch-{number}-{kind}.csv"
        return str(write_text(path, self._csv(number, kind, event)))

    def _csv(self, number: int, kind: str, event: gr.EventData) -> str:
        if kind == "rows":
            return self._batches.csv(number)
        if kind == "groups":
            return groups_csv(self._batches.view(number).groups)
        if kind == "impact":
            rule, small = outcome_rule(event.rule), bool(event.rule.get("small"))
            return impact_csv(self._batches.impact(number, rule, small)[0])
        raise ServiceError(f"There is no file {kind!r}; choose rows, groups or impact.")

    def _shown(self, event: gr.EventData, said: str = "") -> Reply:
        query = batch_query(event.query)
        view = self._batches.view(query.batch, query.order, query.descending)
        return reply(event, batch_message(view, query, said))


CHANGED = "(...values) => coft.batches.settings(values)"
"""Runs in the browser with all values whenever one changes."""

SEEDS = [
    ("A seed for each context: rows of one context share their draws, others do not", "contexts"),
    ("The same seed for every prompt", SAME_SEED),
]
UNRELATED = ("greedy", "max_new_tokens", "seed")
"""Settings that no calibration depends on."""
MASKING = ("mask", "attribute", "masked_families", "user_list_id", "whitelist")
"""Settings that change which words are marked."""


@dataclass(frozen=True, slots=True)
class NewBatch:
    """The controls of a new batch."""

    part: PromptPart
    samples: gr.HTML
    preview: gr.HTML
    own: dict[str, Component]
    rail: SettingsRail
    check: gr.Button
    run: gr.Button
    estimate: gr.HTML

    @property
    def inputs(self) -> list[Any]:
        """File, columns, the batch's own fields and the settings, as the handlers take them."""
        own = [self.own[name] for name in OWN_FIELDS]
        return [self.part.file, *self.part.columns, *own, *self.rail.inputs]

    @property
    def read(self) -> list[Any]:
        """What reading a prompt set changes."""
        return [*self.part.outputs, self.check, self.run, self.estimate]


def new_batch(services: Services, handlers: FormHandlers) -> NewBatch:
    """Place the controls in two columns: prompts with the run below them, and the settings."""
    own: dict[str, Component] = {}
    with gr.Column(elem_classes=["stack"], min_width=0):
        part, samples, preview = prompt_part(handlers.prompts)
    with gr.Column(elem_classes=["stack"], min_width=0):
        with gr.Column(elem_classes=["rail", "batchrail"], min_width=0, elem_id="settings"):
            markup('<div class="bar"><h2>2. Settings</h2><span class="hint">the same for every prompt</span></div>')
            own["name"] = gr.Textbox(label="Name", placeholder="the file's name", max_lines=1, elem_id="batch-name")
            rail = settings_controls(AuditSettings(), services.audits.masked_families)
            own["proceed"] = gr.Checkbox(
                False, label="Audit without certificate where the calibration does not fit", visible=False,
                elem_id="proceed",
            )  # fmt: skip
            own["by_group"] = gr.Checkbox(
                False, label="Each row under its own group’s thresholds", elem_classes=["ruled"], elem_id="by-group"
            )
            hint("Needs a calibration by group, and a group in each row.")
            own["seeds"] = gr.Radio(SEEDS, value="contexts", label="Seeds", elem_classes=["stacked"], elem_id="seeds")
        with gr.Column(elem_classes=["group"], elem_id="go"):
            markup('<div class="bar"><h2>3. Run</h2></div>')
            estimate = markup(UNTRIED, "estimate")
            with gr.Row(elem_classes=["go"]):
                check = gr.Button("Check and estimate", interactive=False, elem_id="check")
                run = gr.Button("Run", variant="primary", interactive=False, elem_id="run")
    return NewBatch(part, samples, preview, own, rail, check, run, estimate)


def wire_new(app: gr.Blocks, handlers: FormHandlers, form: NewBatch, stage: gr.HTML) -> None:
    """Connect the form; a batch that begins is told to ``stage``, and a refused one names its rows."""
    _wire_prompts(handlers, form)
    _wire_settings(app, handlers, form)
    part = form.part
    began = form.run.click(
        handlers.submit, [part.file, part.accept, *form.inputs[1:]], stage, trigger_mode="once", **EVENT
    )
    began.failure(handlers.check, form.inputs, [part.errors, part.accept], **EVENT)


def _wire_prompts(handlers: FormHandlers, form: NewBatch) -> None:
    part, preview = form.part, form.preview
    form.samples.sample(handlers.prompts.sample, None, part.file, **EVENT)
    read = part.file.change(handlers.parse, part.file, form.read, **EVENT)
    read.success(handlers.preview, form.inputs, preview, **LATEST)
    chosen = [column.select for column in part.columns]
    mapped = gr.on(chosen, handlers.remap, [part.file, *part.columns], form.read, **LATEST)
    mapped.success(handlers.preview, form.inputs, preview, **LATEST)
    masking = [form.rail.controls[name].change for name in MASKING]  # type: ignore[attr-defined]
    gr.on(masking, handlers.preview, form.inputs, preview, **LATEST)
    tried = form.check.click(lambda: TRYING, None, form.estimate, **EVENT)
    checked = tried.success(handlers.check, form.inputs, [part.errors, part.accept], **EVENT)
    counted = checked.success(handlers.estimate, form.inputs, form.estimate, **EVENT)
    for event in (checked, counted):
        event.failure(lambda: NOT_TRIED, None, form.estimate, **EVENT)


def _wire_settings(app: gr.Blocks, handlers: FormHandlers, form: NewBatch) -> None:
    rail, told = form.rail, handlers.settings
    changes = {name: control.change for name, control in rail.controls.items()}  # type: ignore[attr-defined]
    for change in changes.values():
        change(None, rail.inputs, None, js=CHANGED)
    app.load(None, rail.inputs, None, js=CHANGED)
    app.load(handlers.opened, None, rail.inputs, **EVENT)
    model, calibration = rail.controls["model"], rail.controls["calibration_id"]
    gr.on([changes["model"], app.load], told.describe_model, model, rail.model_note, **LATEST)
    notes = [rail.calibration_note, rail.controls["group"], rail.adopt, form.own["proceed"]]
    described = [change for name, change in changes.items() if name not in UNRELATED]
    gr.on(described, handlers.describe_calibration, rail.inputs, notes, **LATEST)
    changes["calibration_id"](told.describe_drift, calibration, rail.drift_note, **LATEST)
    gr.on([changes["policy"], changes["parameters"]], told.describe_method, rail.inputs, rail.method_note, **LATEST)
    gr.on([changes["mask"], changes["model"], changes["policy"]], told.menu, rail.inputs, calibration, **LATEST)
    rail.adopt.click(told.adopt, rail.inputs, rail.inputs, **EVENT)
    wire_tuned(app, told, rail)


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
