"""Chains beside each other: what is compared, the aligned columns, and what is said of them. The browser fills it."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import gradio as gr
from markupsafe import Markup

from app.audit.service import AuditService
from app.batch.service import BatchService
from app.calibrate.service import CalibrationService
from app.compare import words
from app.compare.chains import Comparison, SetRequest, align, beside
from app.compare.charts import chain_divergence_figure, changed_figure, sensitivity_figure, vanilla_figure
from app.compare.service import ComparisonService
from app.compare.set_words import set_message, set_query, sets_message
from app.compare.sets import SetComparisonService
from app.prompts.form import PromptHandlers, PromptPart, parsed_from, prompt_part
from app.prompts.sets import PROMPT_SET_FIELDS
from app.prompts.words import Message, draft_message, spans_from, spans_message
from app.sessions.service import LibraryQuery, SessionLibrary
from app.shared.audits import AuditSettings, StartAudit
from app.shared.components import chart, markup, place
from app.shared.errors import ColumnMismatch
from app.shared.events import (
    LATEST,
    MULTIPLE,
    On,
    Reply,
    downloaded,
    or_refusal,
    reply,
    shown,
    shown_stream,
    shown_to,
    wire,
)
from app.shared.markup import from_file
from app.shared.needs import EXPORT, LOOK, READ
from app.shared.web import span_editor, topbar
from app.shared.wiring import Services
from coft_core.types import Step

FRAME_SECONDS = 0.12
"""Frames come at most this often; each repeats the one before, so that none is lost."""

SHARE = 8
"""A frame may take an eighth of the time until the next one, so that long chains do not slow their own writing."""


class LiveChains:
    """What the page has been shown of columns that are being written; belongs to one run."""

    def __init__(self, comparison: Comparison) -> None:
        """Begin with the tokens that the columns have already."""
        self._place = {chain.view.session_id: place for place, chain in enumerate(comparison.chains)}
        self._tokens = [[step.token_id for step in chain.steps] for chain in comparison.chains]
        self._before: list[list[Step]] = [[] for _ in comparison.chains]
        self._fresh: list[list[Step]] = [[] for _ in comparison.chains]
        self._chains = comparison.chains
        self._texts = [[step.token for step in chain.steps] for chain in comparison.chains]
        self._due = 0.0

    def add(self, session_id: int, step: Step) -> bool:
        """Take a new token; whether a frame should be shown now."""
        place = self._place[session_id]
        self._tokens[place].append(step.token_id)
        self._texts[place].append(step.token)
        self._fresh[place].append(step)
        return time.monotonic() >= self._due

    def frame(self) -> Message:
        """The tokens of this frame and of the one before, and all columns aligned with the first."""
        began = time.monotonic()
        pairs = [align(self._tokens[0], other) for other in self._tokens[1:]]
        columns = [
            self._cells(place, (*a, *b)) for place, (a, b) in enumerate(zip(self._before, self._fresh, strict=True))
        ]
        self._before, self._fresh = self._fresh, [[] for _ in self._fresh]
        rows = words.rows_message(beside(len(self._tokens[0]), pairs))
        now = time.monotonic()
        # A frame without a token has shown nothing yet, so the first token must not wait for it.
        if any(self._before):
            self._due = now + max(FRAME_SECONDS, SHARE * (now - began))
        return {"kind": "frame", "columns": columns, "rows": rows}

    def _cells(self, place: int, steps: Sequence[Step]) -> list[Message]:
        chain = self._chains[place]
        parts = () if chain.thinking is None else chain.thinking.parts(self._texts[place])
        return [words.cell(step, chain.own_model, bool(parts) and parts[step.index] == "thinking") for step in steps]


SCRIPT = (
    "coft.compare.mount(element, trigger, props, watch, ['menu', 'draft', 'begin', 'run', 'pause', 'open', 'find', "
    "'pick', 'csv', 'discard'])"
)
SET_SCRIPT = (
    "coft.sets.mount(element, trigger, props, watch, ['listed', 'take', 'start', 'view', 'cancel', 'resume', 'remove', "
    "'table'])"
)

FIGURES = (
    (
        vanilla_figure,
        "vanilla",
        "Divergence from vanilla by step",
        "Total variation between what a column draws from and what vanilla says after the same text: 0 is the same "
        "distribution, 1 another one altogether. The numbers give KL in nats too.",
    ),
    (
        sensitivity_figure,
        "sensitivity",
        "Sensitivity over time",
        "How much likelier the written token is with the attribute visible, in log units: 0.69 is twice as likely.",
    ),
    (
        chain_divergence_figure,
        "divergence",
        "Divergence from the masked reading by step",
        "How far a column’s own distribution is from the masked reading: KL divergence in nats.",
    ),
    (
        changed_figure,
        "changed",
        "Changed tokens so far",
        "Aligned steps at which a column has another token than the first one, or none.",
    ),
)
"""What draws each picture, its name, title and explanation."""

SHARED = (
    ("model", "Model", Markup('type="text" spellcheck="false"')),
    ("max_new_tokens", "Steps at most", Markup('type="number" min="1" max="1024" step="1"')),
    ("seed", "Seed", Markup('type="number" step="1"')),
    ("temperature", "Temperature", Markup('type="number" min="0.1" max="2" step="0.05"')),
    ("top_p", "Top-p (1 is off)", Markup('type="number" min="0.05" max="1" step="0.01"')),
    ("top_k", "Top-k (0 is off)", Markup('type="number" min="0" step="1"')),
)
"""Settings that all columns share: name, label, and what kind of input takes them."""


def compare_side() -> list[gr.Plot]:
    """Place the summary, the pictures, the settings that differ, and the notes."""
    plots = []
    markup(from_file("compare/summary.html"), "cmp-summary")
    for _, name, title, about in FIGURES:
        markup(from_file("compare/figure_caption.html", name=name, title=title), f"cap-{name}")
        plots.append(chart(f"plot-{name}"))
        markup(from_file("compare/figure_after.html", name=name, title=title, about=about), f"after-{name}")
    markup(from_file("compare/rest.html"), "cmp-rest")
    return plots


PARTS_READ = len(PROMPT_SET_FIELDS) + 4
"""Outputs of a prompt set that was read: summary, fold, columns, errors and the choice to go on."""

GOOD_ROWS = "Go on with the good rows where others cannot be used"


class SetHandlers:
    """Every method answers one event."""

    def __init__(self, services: Services) -> None:
        """The folder lives as long as the page."""
        self._sets = services[SetComparisonService]
        self._batches = services[BatchService]
        self._folder = tempfile.TemporaryDirectory(prefix="coft-compared-sets-")
        self.prompts = PromptHandlers(services[BatchService], "")

    @shown_to(READ)
    def parse(self, path: str | None) -> list[Any]:
        """Read an uploaded prompt set, each field from the column of its name."""
        return _offered(self.prompts.parse(path))

    @shown_to(READ)
    def remap(self, path: str | None, *columns: str) -> list[Any]:
        """Read it again with the chosen columns."""
        return _offered(self.prompts.remap(path, *columns))

    @shown_to(READ)
    def take(self, event: gr.EventData) -> str:
        """Take a stored prompt set as if it had been uploaded."""
        return str(self._sets.write_prompt_set(int(event.id), Path(self._folder.name)))

    @shown_to(READ)
    def listed(self, event: gr.EventData) -> Reply:
        """Comparisons of earlier, and stored prompt sets."""
        return reply(event, sets_message(self._sets.list(), self._sets.prompt_sets()))

    @shown
    def start(self, event: gr.EventData, path: str | None, accept: bool, *columns: str) -> Reply:
        """Begin a comparison; a calibration of another policy is told apart, because one may proceed."""
        prompts = parsed_from(self._batches, path, columns)
        asked = SetRequest(
            name=str(event.name or "").strip() or Path(prompts.filename).stem,
            columns=words.compared_columns_from(event.shared, event.columns),
            accept_errors=bool(accept),
        )
        try:
            number = self._sets.submit(prompts, asked)
        except ColumnMismatch as mismatch:
            return reply(event, {"kind": "mismatch", "column": mismatch.column, "text": str(mismatch)})
        return reply(event, {"kind": "started", "set": number})

    @shown_to(READ)
    def view(self, event: gr.EventData) -> Reply:
        """An open comparison."""
        return self._shown(event)

    @shown
    def cancel(self, event: gr.EventData) -> Reply:
        """Stop all columns after their current tokens."""
        self._sets.cancel(set_query(event.query).comparison)
        return self._shown(event)

    @shown
    def resume(self, event: gr.EventData) -> Reply:
        """Go on with what is not finished."""
        self._sets.resume(set_query(event.query).comparison)
        return self._shown(event)

    @shown
    def remove(self, event: gr.EventData) -> Reply:
        """Delete a comparison; its sessions stay."""
        self._sets.delete(int(event.id))
        return reply(event, {"kind": "removed", "set": int(event.id)})

    @shown_to(EXPORT)
    def table(self, event: gr.EventData) -> str:
        """Write rows or means for download."""
        rows, means = self._sets.write_csv(int(event.id), Path(self._folder.name))
        return str(means if event.which == "means" else rows)

    def _shown(self, event: gr.EventData) -> Reply:
        query = set_query(event.query)
        view = self._sets.view(query.comparison, query.order, query.column, query.descending)
        return reply(event, set_message(view, query))


def set_controls(services: Services) -> tuple[SetHandlers, PromptPart]:
    """Place the upload with its columns and problems, and what was run earlier."""
    handlers = SetHandlers(services)
    with gr.Column(elem_classes=["cmp-set"]), gr.Row(elem_classes=["set-pair"]):
        with gr.Column(min_width=0):
            part = prompt_part(handlers.prompts)
        with gr.Column(min_width=0):
            markup(from_file("compare/set_begin.html"), "set-begin")
    return handlers, part


def wire_sets(controls: tuple[SetHandlers, PromptPart], stage: gr.HTML, file: gr.DownloadButton) -> None:
    """Connect everything about prompt sets."""
    handlers, part = controls
    read = [*part.outputs]
    part.samples.sample(handlers.prompts.sample, None, part.file, **MULTIPLE)
    part.file.change(handlers.parse, part.file, read, **LATEST)
    gr.on([column.select for column in part.columns], handlers.remap, [part.file, *part.columns], read, **LATEST)
    events = {
        "listed": On(handlers.listed, stage),
        "take": On(handlers.take, part.file),
        "start": On(handlers.start, stage, [part.file, part.accept, *part.columns]),
        "view": On(handlers.view, stage),
        "cancel": On(handlers.cancel, stage),
        "resume": On(handlers.resume, stage),
        "remove": On(handlers.remove, stage),
        "table": On(handlers.table, file),
    }
    downloaded(wire(stage, events, prefix="set-")["table"], "comparison-file")


def _offered(outputs: list[Any]) -> list[Any]:
    """What a prompt set shows, with the choice to go on: only a run finds which rows a column's model cannot take."""
    return [*outputs[: PARTS_READ - 1], gr.Checkbox(False, visible=outputs[PARTS_READ]["interactive"], label=GOOD_ROWS)]


FOUND = 8
"""Sessions that a search shows."""


class CompareHandlers:
    """What the page asks of the services; every method builds one request and calls one service."""

    def __init__(self, services: Services) -> None:
        """The folder lives as long as the page."""
        self._audits = services[AuditService]
        self._library = services[SessionLibrary]
        self._calibrations = services[CalibrationService]
        self._comparisons = services[ComparisonService]
        self._folder = tempfile.TemporaryDirectory(prefix="coft-comparisons-")

    @shown_to(READ)
    def detect(self, event: gr.EventData) -> Reply:
        """Find the sensitive spans of the prompt."""
        return reply(event, spans_message(self._audits.detect(event.prompt), event.prompt))

    @shown_to(READ)
    def draft(self, event: gr.EventData) -> Reply:
        """The prompt and the spans of an audit, to be run with other methods."""
        draft = self._library.prefill(int(event.session))
        request = draft.request
        preview = or_refusal(lambda: self._audits.preview(request.prompt, request.spans or (), request.settings))
        return reply(event, draft_message(request, draft.notes, preview))

    @shown_to(READ)
    def menu(self, event: gr.EventData) -> Reply:
        """What columns can be made of."""
        return reply(event, words.menu_message(self._calibrations.list()))

    @shown
    def begin(self, event: gr.EventData) -> list[Any]:
        """Begin one session a column; a calibration of another policy is told apart, because one may proceed."""
        columns = words.compared_columns_from(event.shared, event.columns)
        request = StartAudit(event.prompt, AuditSettings(model=columns[0].model), spans_from(event.spans))
        try:
            ids = self._comparisons.run_columns(request, columns)
        except ColumnMismatch as mismatch:
            return _alone(reply(event, {"kind": "mismatch", "column": mismatch.column, "text": str(mismatch)}))
        return _whole(event, self._comparisons.compare(ids))

    @shown_stream
    def run(self, event: gr.EventData) -> Iterator[list[Any]]:
        """Write all columns to their ends or to a pause, one token each in turn."""
        sessions, _ = words.chains_from(event.chains)
        live, steps = LiveChains(self._comparisons.compare(sessions)), self._comparisons.advance(sessions)
        yield _alone(reply(event, live.frame()))
        for session_id, step in steps:
            if live.add(session_id, step):
                yield _alone(reply(event, live.frame()))
        yield _whole(event, self._comparisons.compare(sessions))

    @shown_to(LOOK)
    def pause(self, event: gr.EventData) -> None:
        """End a run after the current tokens."""
        self._comparisons.pause(words.chains_from(event.chains)[0])

    @shown_to(READ)
    def open(self, event: gr.EventData) -> list[Any]:
        """Put stored chains beside each other."""
        return _whole(event, self._comparisons.compare(*words.chains_from(event.chains)))

    @shown_to(READ)
    def find(self, event: gr.EventData) -> Reply:
        """Sessions that can be compared."""
        page = self._library.search(LibraryQuery(text=str(event.text), page_size=FOUND))
        return reply(event, words.found_message(page.entries, page.total))

    @shown_to(READ)
    def pick(self, event: gr.EventData) -> Reply:
        """One session with its branches."""
        return reply(event, words.picked_message(self._audits.view(int(event.session))))

    @shown_to(EXPORT)
    def csv(self, event: gr.EventData) -> str:
        """Write the comparison as a table for download."""
        return str(self._comparisons.write_csv(*words.chains_from(event.chains), Path(self._folder.name)))

    @shown
    def discard(self, event: gr.EventData) -> Reply:
        """Delete the sessions of a run that is not wanted."""
        self._library.delete(words.chains_from(event.chains)[0])
        return reply(event, {"kind": "discarded"})


def _whole(event: gr.EventData, comparison: Comparison) -> list[Any]:
    names = words.chain_names(comparison.chains)
    pictures = [draw(comparison, names) for draw, *_ in FIGURES]
    return [reply(event, words.comparison_message(comparison)), *pictures]


def _alone(message: Reply) -> list[Any]:
    """A message that leaves the pictures as they are."""
    return [message, *(gr.skip() for _ in FIGURES)]


def build_page(app: gr.Blocks, services: Services) -> None:
    """Build the page."""
    handlers = CompareHandlers(services)
    topbar(services, "compare")
    with gr.Column(elem_classes=["page", "compare"], elem_id="main"):
        markup(from_file("compare/head.html"), "cmp-head")
        with gr.Column(elem_classes=["cmp-setup"]):
            with gr.Column(elem_classes=["cmp-new"]):
                editor = span_editor()
            sets = set_controls(services)
            usual = AuditSettings(model=services.settings.model)
            fields = [(*field, getattr(usual, field[0])) for field in SHARED]
            markup(from_file("compare/setup.html", shared=fields), "cmp-setup")
        opened = place("compare/set_stage.html", SET_SCRIPT, "compared-set")
        with gr.Row(elem_classes=["cmp"]):
            with gr.Column(elem_classes=["cmp-main"], min_width=0):
                stage = place("compare/stage.html", SCRIPT, "comparison")
            with gr.Column(elem_classes=["cmp-side"], min_width=0):
                plots = compare_side()
    file = gr.DownloadButton("Comparison", elem_id="comparison-file", elem_classes=["offscreen"])
    wire(editor, {"detect": On(handlers.detect, editor)})
    whole = [stage, *plots]
    events = {
        "begin": On(handlers.begin, whole),
        "run": On(handlers.run, whole),
        "open": On(handlers.open, whole),
        "menu": On(handlers.menu, stage),
        "draft": On(handlers.draft, stage),
        "find": On(handlers.find, stage),
        "pick": On(handlers.pick, stage),
        "pause": On(handlers.pause, None),
        "discard": On(handlers.discard, stage),
    }
    wire(stage, events)
    downloaded(stage.csv(handlers.csv, None, file, **MULTIPLE), "comparison-file")
    wire_sets(sets, opened, file)
