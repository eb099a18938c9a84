"""Chains beside each other: what is compared, the aligned columns, and what is said of them. The browser fills it."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gradio as gr

from app.audit.parts import span_editor
from app.audit.words import Message, spans_from, spans_message
from app.bootstrap import Services
from app.compare.chains import align, beside
from app.compare.set_words import set_message, set_query, sets_message
from app.compare.types import Comparison, SetRequest
from app.compare.words import (
    cell,
    chain_names,
    chains_from,
    compared_columns_from,
    comparison_message,
    found_message,
    menu_message,
    picked_message,
    rows_message,
)
from app.compare.words import compared_columns_from as settings_of_columns
from app.sessions.service import LibraryQuery
from app.shared import web as assets
from app.shared.audits import AuditSettings, StartAudit
from app.shared.charts import chain_divergence_figure, changed_figure, sensitivity_figure, vanilla_figure
from app.shared.errors import ColumnMismatch
from app.shared.events import LATEST, MULTIPLE, On, Reply, downloaded, reply, shown, shown_stream, wire
from app.shared.markup import icon, markup
from app.shared.prompt_form import PromptHandlers, PromptPart, parsed_from, prompt_part
from app.shared.prompt_sets import PROMPT_SET_FIELDS
from app.shared.web import topbar
from coft_core.types import Step

FRAME_SECONDS = 0.12
"""Frames come at most this often; each repeats the one before, so that none is lost."""

SHARE = 8
"""A frame may take an eighth of the time until the next one, so that long chains do not slow their own writing."""


class LiveChains:
    """What the page has been shown of columns that are being written; belongs to one run."""

    def __init__(self, comparison: Comparison) -> None:
        """Begin with the tokens that the columns have already."""
        self._place = {chain.session_id: place for place, chain in enumerate(comparison.chains)}
        self._tokens = [[step.token_id for step in chain.steps] for chain in comparison.chains]
        self._before: list[list[Step]] = [[] for _ in comparison.chains]
        self._fresh: list[list[Step]] = [[] for _ in comparison.chains]
        self._apart = [chain.own_model for chain in comparison.chains]
        self._due = 0.0

    def add(self, session_id: int, step: Step) -> bool:
        """Take a new token; whether a frame should be shown now."""
        place = self._place[session_id]
        self._tokens[place].append(step.token_id)
        self._fresh[place].append(step)
        return time.monotonic() >= self._due

    def frame(self) -> Message:
        """The tokens of this frame and of the one before, and all columns aligned with the first."""
        began = time.monotonic()
        pairs = [align(self._tokens[0], other) for other in self._tokens[1:]]
        columns = [
            [cell(step, apart) for step in (*a, *b)]
            for a, b, apart in zip(self._before, self._fresh, self._apart, strict=True)
        ]
        self._before, self._fresh = self._fresh, [[] for _ in self._fresh]
        rows = rows_message(beside(len(self._tokens[0]), pairs))
        now = time.monotonic()
        # A frame without a token has shown nothing yet, so the first token must not wait for it.
        if any(self._before):
            self._due = now + max(FRAME_SECONDS, SHARE * (now - began))
        return {"kind": "frame", "columns": columns, "rows": rows}


EVENTS = "['menu', 'begin', 'run', 'pause', 'open', 'find', 'pick', 'csv', 'discard']"

FIGURES = (
    (
        "vanilla",
        "Divergence from vanilla by step",
        "Total variation between what a column draws from and what vanilla says after the same text: 0 is the same "
        "distribution, 1 another one altogether. The numbers give KL in nats too.",
    ),
    (
        "sensitivity",
        "Sensitivity over time",
        "How much likelier the written token is with the attribute visible, in log units: 0.69 is twice as likely.",
    ),
    (
        "divergence",
        "Divergence from the masked reading by step",
        "How far a column’s own distribution is from the masked reading: KL divergence in nats.",
    ),
    (
        "changed",
        "Changed tokens so far",
        "Aligned steps at which a column has another token than the first one, or none.",
    ),
)
"""Name, title and explanation of each picture."""


def compare_head() -> None:
    """Place the title, what can be done, and the choice between a new prompt, a prompt set and stored audits."""
    markup(
        f"""<div class="pagehead"><h1>Compare</h1><p class="sub">One prompt or a set of them, several ways to
          decode it.</p>
        <div class="actions" id="cmp-actions">
          <button type="button" class="btn" data-cmp="change" aria-expanded="true" hidden>Change</button>
          <button type="button" class="btn" data-cmp="csv" hidden>{icon("down")}CSV</button>
          <button type="button" class="btn" data-cmp="discard" hidden>Discard</button>
          <button type="button" class="btn" data-cmp="pause" hidden>{icon("pause")}Pause</button>
          <button type="button" class="btn primary" data-cmp="go" disabled>{icon("run")}<span class="word">Run</span
            ></button></div></div>
        <div class="modes" role="group" aria-label="What to compare">
          <button type="button" class="btn" data-cmp="mode" data-mode="new" aria-pressed="true">A new prompt</button>
          <button type="button" class="btn" data-cmp="mode" data-mode="set" aria-pressed="false">A prompt set</button>
          <button type="button" class="btn" data-cmp="mode" data-mode="stored" aria-pressed="false">Stored audits
            </button>
        </div>""",
        "cmp-head",
    )


def compare_setup() -> None:
    """Place the columns of a new run, and the pickers of stored audits."""
    markup(
        f"""<section class="cmp-columns" aria-labelledby="h-columns">
          <div class="bar"><h2 id="h-columns">Columns</h2><span class="hint">compared with the first</span>
            <div class="end"><button type="button" class="btn small" data-cmp="add">Add column</button></div></div>
          <div class="colcards"></div>
          <details class="shared"><summary>{icon("chev", "chev")}Model, sampling, length and seed<span class="hint tnum"
            ></span></summary><div class="filters">{_shared()}</div></details></section>
        <section class="cmp-picker" aria-labelledby="h-picker" hidden>
          <div class="bar"><h2 id="h-picker">Stored audits</h2><span class="hint">choose two to four, or several
            branches of one</span></div>
          <div class="pickgrid"><div><div class="field"><label for="cmp-search">Search</label><input class="input"
            id="cmp-search" type="search" autocomplete="off" spellcheck="false" placeholder="Name, prompt or tag"></div>
            <ul class="cmp-found" aria-label="Audits found"></ul><p class="hint more" role="status"></p></div>
            <div><h3 id="h-picked">Chosen</h3><ol class="cmp-picked" aria-labelledby="h-picked"></ol></div></div>
        </section>""",
        "cmp-setup",
    )


def compare_stage() -> gr.HTML:
    """Place prompt, columns and the selected row; it triggers everything and receives the messages."""
    return gr.HTML(
        html_template="""<section aria-label="Comparison"><div class="notice" role="alert" hidden></div>
        <div class="nothing"><p class="sub">Nothing is compared yet.
          Type a prompt, or take a prompt set, and press <strong>Run</strong>:
          each column writes its own continuation, and they are aligned token by token. Or choose audits that you have
          already.</p></div>
        <div class="compared" hidden>
          <div class="editor cmp-prompt"></div>
          <ul class="parting" aria-live="polite"></ul>
          <div class="lanebar"><h2 id="h-lanes">Columns, aligned</h2>
            <span class="hint tnum counted" role="status"></span>
            <label class="only"><input type="checkbox" data-cmp="only">Only differences</label></div>
          <div class="across" tabindex="0" role="region" aria-labelledby="h-lanes"><div class="cmp-lanes">
            <div class="laneheads"></div>
            <div class="cmp-rows"><table><caption class="vh">Aligned tokens; arrow keys select a row</caption>
              <thead></thead><tbody></tbody></table></div></div></div>
          <p class="hint">≠ marks steps at which a column leaves the first one’s text; a dash is a gap left by the
            alignment. Bars to the right: likelier with the attribute visible. Up and down select a row.</p>
          <section class="cmp-chosen" aria-labelledby="h-chosen" hidden><div aria-live="polite">
            <div class="bar"><h2 id="h-chosen"></h2><span class="hint"></span></div><p class="verdict"></p></div>
            <div class="views"></div></section>
        </div></section>""",
        js_on_load=f"coft.compare.mount(element, trigger, props, watch, {EVENTS})",
        apply_default_css=False,
        elem_id="comparison",
        elem_classes=["coft"],
    )


def compare_side() -> tuple[gr.Plot, ...]:
    """Place the summary, the pictures, the settings that differ, and the notes."""
    markup(
        """<section aria-labelledby="h-sum"><div class="bar"><h2 id="h-sum">Summary</h2></div><div class="sum scrolls"
          tabindex="0" role="region" aria-label="Summary, table"></div>
        <p class="hint">From vanilla: how far what a column draws from lies from vanilla’s distribution after the same
          text, on average over its steps; a dash where that is not known, or where a column decodes a checkpoint of
          its own. Overruled: certification refused the token that the policy likes best, and another one was
          certified. Time: the median of a column’s steps but the first, waiting for the model not counted. Keys and
          values: computed from the model’s shape for all readings that the column runs, the masked one included, which
          shows the sensitivity.</p></section>""",
        "cmp-summary",
    )
    plots = tuple(_figure(*item) for item in FIGURES)
    markup(
        """<section aria-labelledby="h-settings"><div class="bar"><h2 id="h-settings">Settings that differ</h2></div>
          <div class="settings scrolls" tabindex="0" role="region" aria-label="Settings that differ, table"></div>
        </section>
        <section class="notes" aria-labelledby="h-notes"><div class="bar"><h2 id="h-notes">Notes</h2></div>
          <ul class="cautions"></ul></section>""",
        "cmp-rest",
    )
    return plots


def _figure(name: str, title: str, about: str) -> gr.Plot:
    saves = "".join(
        f'<button type="button" class="link" data-cmp="image" data-figure="{name}" data-format="{kind}" '
        f'data-title="{title}" aria-label="Save “{title}” as {kind.upper()}">{word}</button>'
        for kind, word in (("png", "image"), ("svg", "SVG"))
    )
    markup(
        f"""<div class="figcaption"><h2>{title}</h2><span class="end hint">
          <button type="button" class="link" data-cmp="numbers" data-figure="{name}" aria-expanded="false"
            aria-controls="numbers-{name}" aria-label="{title}, numbers">numbers</button>{saves}</span></div>""",
        f"cap-{name}",
    )
    plot = gr.Plot(show_label=False, container=False, elem_classes=["chart"], elem_id=f"plot-{name}")
    markup(
        f"""<div class="key" aria-hidden="true"></div><p class="hint">{about} <span class="peaks"></span></p>
        <div class="cmp-numbers scrolls" id="numbers-{name}" tabindex="0" role="region"
          aria-label="{title}, numbers" hidden></div>""",
        f"after-{name}",
    )
    return plot


def _shared() -> str:
    fields = (
        ("model", "Model", 'type="text" spellcheck="false"'),
        ("max_new_tokens", "Steps at most", 'type="number" min="1" max="1024" step="1"'),
        ("seed", "Seed", 'type="number" step="1"'),
        ("temperature", "Temperature", 'type="number" min="0.1" max="2" step="0.05"'),
        ("top_p", "Top-p (1 is off)", 'type="number" min="0.05" max="1" step="0.01"'),
        ("top_k", "Top-k (0 is off)", 'type="number" min="0" step="1"'),
    )
    inputs = "".join(
        f'<div class="field"><label for="cmp-{name}">{label}</label><input class="input" id="cmp-{name}" '
        f'data-shared="{name}" {kind}></div>'
        for name, label, kind in fields
    )
    return (
        f'{inputs}<div class="field"><label for="cmp-greedy">Next token</label><select class="select" id="cmp-greedy" '
        'data-shared="greedy"><option value="">drawn, with the same seed</option>'
        '<option value="yes">always the likeliest</option></select></div>'
    )


SET_EVENTS = "['listed', 'take', 'start', 'view', 'cancel', 'resume', 'remove', 'table']"


def earlier_sets() -> None:
    """Place the name of a new comparison, stored prompt sets, and the comparisons of earlier."""
    gr.HTML(
        """<section class="set-begin" aria-labelledby="h-set-begin"><div class="bar">
          <h2 id="h-set-begin">2. Comparison</h2></div>
          <div class="field"><label for="set-name">Name</label><input class="input" id="set-name" type="text"
            autocomplete="off" placeholder="the file’s name"></div>
          <div class="field"><label for="set-stored">A prompt set of an earlier upload</label><select class="select"
            id="set-stored"><option value="">None stored yet</option></select></div>
          <h3 id="h-sets">Earlier comparisons</h3><ul class="set-list" aria-labelledby="h-sets"></ul></section>""",
        apply_default_css=False,
        elem_id="set-begin",
        elem_classes=["coft"],
    )


def set_stage() -> gr.HTML:
    """Place an open comparison: how far its columns are, their means, and its rows."""
    return gr.HTML(
        html_template="""<section class="set-open" aria-labelledby="h-set" hidden>
          <div class="bar"><h2 id="h-set" tabindex="-1"></h2><div class="end">
            <button type="button" class="btn" data-set="cancel">Cancel</button>
            <button type="button" class="btn primary" data-set="resume">Resume</button>
            <button type="button" class="btn" data-set="rows">Rows as CSV</button>
            <button type="button" class="btn" data-set="means">Means as CSV</button>
            <button type="button" class="btn quiet" data-set="remove">Delete</button></div></div>
          <p class="sub tnum about"></p>
          <ul class="set-progress"></ul><p class="vh" role="status"></p>
          <div class="set-means scrolls" tabindex="0" role="region" aria-label="Means of the columns, table"></div>
          <div class="bar"><h3 id="h-set-rows">Prompts</h3><span class="hint tnum where"></span><div class="end pager">
            <button type="button" class="btn small" data-set="previous">Previous</button>
            <button type="button" class="btn small" data-set="next">Next</button></div></div>
          <p class="hint">A prompt opens its chains side by side, below. A column’s head sorts.</p>
          <div class="set-rows scrolls" tabindex="0" role="region" aria-labelledby="h-set-rows"></div>
          <ul class="set-notes"></ul></section>""",
        js_on_load=f"coft.sets.mount(element, trigger, props, watch, {SET_EVENTS})",
        apply_default_css=False,
        elem_id="compared-set",
        elem_classes=["coft"],
    )


READ = len(PROMPT_SET_FIELDS) + 4
"""Outputs of a prompt set that was read: summary, fold, columns, errors and the choice to go on."""

GOOD_ROWS = "Go on with the good rows where others cannot be used"


class SetHandlers:
    """Every method answers one event."""

    def __init__(self, services: Services) -> None:
        """Keep the services, and a folder for files that lives as long as the page."""
        self._sets = services.compared_sets
        self._batches = services.batches
        self._folder = tempfile.TemporaryDirectory(prefix="coft-compared-sets-")
        self.prompts = PromptHandlers(services.batches, "")

    @shown
    def parse(self, path: str | None) -> list[Any]:
        """Read an uploaded prompt set, each field from the column of its name."""
        return _offered(self.prompts.parse(path), path)

    @shown
    def remap(self, path: str | None, *columns: str) -> list[Any]:
        """Read it again with the chosen columns."""
        return _offered(self.prompts.remap(path, *columns), path)

    @shown
    def take(self, event: gr.EventData) -> str:
        """Take a stored prompt set as if it had been uploaded."""
        return str(self._sets.write_prompt_set(int(event.id), Path(self._folder.name)))

    @shown
    def listed(self, event: gr.EventData) -> Reply:
        """Comparisons of earlier, and stored prompt sets."""
        return reply(event, sets_message(self._sets.list(), self._sets.prompt_sets()))

    @shown
    def start(self, event: gr.EventData, path: str | None, accept: bool, *columns: str) -> Reply:
        """Begin a comparison; a calibration of another policy is told apart, because one may proceed."""
        prompts = parsed_from(self._batches, path, columns)
        asked = SetRequest(
            name=str(event.name or "").strip() or Path(prompts.filename).stem,
            columns=settings_of_columns(event.shared, event.columns),
            accept_errors=bool(accept),
        )
        try:
            number = self._sets.submit(prompts, asked)
        except ColumnMismatch as mismatch:
            return reply(event, {"kind": "mismatch", "column": mismatch.column, "text": str(mismatch)})
        return reply(event, {"kind": "started", "set": number})

    @shown
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

    @shown
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
            earlier_sets()
    return handlers, part


def wire_sets(controls: tuple[SetHandlers, PromptPart], stage: gr.HTML, file: gr.DownloadButton) -> None:
    """Connect everything about prompt sets.

    Args:
        controls: What :func:`set_controls` gave.
        stage: The open comparison.
        file: Takes tables for download.
    """
    handlers, part = controls
    read = [*part.outputs]
    part.samples.sample(handlers.prompts.sample, None, part.file, **MULTIPLE)  # type: ignore[attr-defined]
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


def _offered(outputs: list[Any], path: str | None) -> list[Any]:
    """What a prompt set shows, with the choice to go on: only a run finds which rows a column's model cannot take."""
    return [*outputs[: READ - 1], gr.Checkbox(False, visible=path is not None, label=GOOD_ROWS)]


FOUND = 8
"""Sessions that a search shows."""

DRAWN = (vanilla_figure, sensitivity_figure, chain_divergence_figure, changed_figure)
"""What draws each picture, in the order of :data:`app.compare.page.FIGURES`."""


class CompareHandlers:
    """What the page asks of the services; every method builds one request and calls one service."""

    def __init__(self, services: Services) -> None:
        """Keep the services, and a folder for tables that lives as long as the page."""
        self._audits = services.audits
        self._library = services.library
        self._calibrations = services.calibrations
        self._comparisons = services.comparisons
        self._folder = tempfile.TemporaryDirectory(prefix="coft-comparisons-")

    @shown
    def detect(self, event: gr.EventData) -> Reply:
        """Find the sensitive spans of the prompt."""
        return reply(event, spans_message(self._audits.detect(event.prompt)))

    @shown
    def menu(self, event: gr.EventData) -> Reply:
        """What columns can be made of."""
        return reply(event, menu_message(self._comparisons.policies(), self._calibrations.list()))

    @shown
    def begin(self, event: gr.EventData) -> list[Any]:
        """Begin one session a column; a calibration of another policy is told apart, because one may proceed."""
        columns = compared_columns_from(event.shared, event.columns)
        request = StartAudit(event.prompt, AuditSettings(model=columns[0].model), spans_from(event.spans))
        try:
            ids = self._comparisons.run_columns(request, columns)
        except ColumnMismatch as mismatch:
            return _alone(reply(event, {"kind": "mismatch", "column": mismatch.column, "text": str(mismatch)}))
        return _whole(event, self._comparisons.compare(ids))

    @shown_stream
    def run(self, event: gr.EventData) -> Iterator[list[Any]]:
        """Write all columns to their ends or to a pause, one token each in turn."""
        sessions, _ = chains_from(event.chains)
        live, steps = LiveChains(self._comparisons.compare(sessions)), self._comparisons.advance(sessions)
        yield _alone(reply(event, live.frame()))
        for session_id, step in steps:
            if live.add(session_id, step):
                yield _alone(reply(event, live.frame()))
        yield _whole(event, self._comparisons.compare(sessions))

    @shown
    def pause(self, event: gr.EventData) -> None:
        """End a run after the current tokens."""
        self._comparisons.pause(chains_from(event.chains)[0])

    @shown
    def open(self, event: gr.EventData) -> list[Any]:
        """Put stored chains beside each other."""
        return _whole(event, self._comparisons.compare(*chains_from(event.chains)))

    @shown
    def find(self, event: gr.EventData) -> Reply:
        """Sessions that can be compared."""
        page = self._library.search(LibraryQuery(text=str(event.text), page_size=FOUND))
        return reply(event, found_message(page.entries, page.total))

    @shown
    def pick(self, event: gr.EventData) -> Reply:
        """One session with its branches."""
        return reply(event, picked_message(self._audits.view(int(event.session))))

    @shown
    def csv(self, event: gr.EventData) -> str:
        """Write the comparison as a table for download."""
        return str(self._comparisons.write_csv(*chains_from(event.chains), Path(self._folder.name)))

    @shown
    def discard(self, event: gr.EventData) -> Reply:
        """Delete the sessions of a run that is not wanted."""
        self._library.delete(chains_from(event.chains)[0])
        return reply(event, {"kind": "discarded"})


def _whole(event: gr.EventData, comparison: Comparison) -> list[Any]:
    names = chain_names(comparison.chains)
    pictures = [draw(comparison, names) for draw in DRAWN]
    return [reply(event, comparison_message(comparison)), *pictures]


def _alone(message: Reply) -> list[Any]:
    """A message that leaves the pictures as they are."""
    return [message, *(gr.skip() for _ in DRAWN)]


def compare_page(app: gr.Blocks, services: Services) -> None:
    """Build the page."""
    handlers = CompareHandlers(services)
    topbar("compare")
    with gr.Column(elem_classes=["page", "compare"], elem_id="main"):
        compare_head()
        with gr.Column(elem_classes=["cmp-setup"]):
            with gr.Column(elem_classes=["cmp-new"]):
                editor = span_editor(assets.examples(), assets.phantom_examples())
            sets = set_controls(services)
            compare_setup()
        opened = set_stage()
        with gr.Row(elem_classes=["cmp"]):
            with gr.Column(elem_classes=["cmp-main"], min_width=0):
                stage = compare_stage()
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
        "find": On(handlers.find, stage),
        "pick": On(handlers.pick, stage),
        "pause": On(handlers.pause, None),
        "discard": On(handlers.discard, stage),
    }
    wire(stage, events)
    downloaded(stage.csv(handlers.csv, None, file, **MULTIPLE), "comparison-file")  # type: ignore[attr-defined]
    wire_sets(sets, opened, file)
