"""A prompt set on a page: uploaded or taken from the samples, its columns mapped, its rows checked and shown."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gradio as gr
from markupsafe import Markup

from app.prompts.sets import (
    PROMPT_SET_FIELDS,
    ParsedPromptSet,
    PromptPreview,
    PromptSetReader,
    RowError,
    SamplePromptSet,
    grouping_note,
    names_prompts,
)
from app.shared.audits import FAMILY_NAMES
from app.shared.components import listing, markup, upload
from app.shared.errors import ServiceError
from app.shared.events import or_refusal, shown_to
from app.shared.format import count, plural
from app.shared.markup import html, laid_out, table
from app.shared.needs import READ
from app.shared.web import TEMPLATES
from coft_core.types import Span

NO_FILE = "No prompt set is chosen: upload one, or take a sample."
TRYING = '<p class="hint">Trying a few prompts with the model…</p>'
NOT_TRIED = '<p class="hint">Not estimated.</p>'

MOST_ERRORS = 5000
"""Rows of the table of errors; a browser cannot lay out many more."""

SOURCES = [
    ("The references: each row’s own continuation. Fast, and needs a reference in each row.", "reference"),
    ("Rollouts: what this policy itself writes. Slower; fits prompts whose continuation nobody has.", "rollout"),
]
"""Where the contexts of a calibration can come from."""

FIELD_HELP = {
    "prompt": "required, or messages",
    "reference": "its true continuation",
    "spans": "JSON list of [start, end, family]",
    "group": "whom the prompt is about",
    "context": "what belongs together and counts as one",
    "weight": "how likely in use",
    "messages": "a conversation in place of a prompt: JSON list of role and content",
}
"""What each field of a prompt set holds, in a few words."""


def parsed_from(prompt_sets: PromptSetReader, path: str | None, columns: Sequence[object]) -> ParsedPromptSet:
    """The uploaded prompt set, read as the form maps its columns; ``""`` reads a field from none."""
    if path is None:
        raise ServiceError(NO_FILE)
    mapping = {field: str(column or "") for field, column in zip(PROMPT_SET_FIELDS, columns, strict=True)}
    return prompt_sets.parse(Path(path), Path(path).name, mapping)


def prompt_set(parsed: ParsedPromptSet) -> Markup:
    """An uploaded prompt set: its name, size and format, and the columns that were not read."""
    return laid_out(
        "shared/prompt_set.html",
        parsed=parsed,
        kilobytes=max(1, round(parsed.size / 1024)),
        mapping=dict(parsed.mapping),
        grouping=grouping_note(parsed),
    )


def refused_file(sentence: str) -> Markup:
    """Why a file cannot be used, to stand beside it until another one is chosen; empty for nothing."""
    return html('{% if text %}<p class="notice" role="alert">{{ text }}</p>{% endif %}', text=sentence)


def samples_list(samples: Sequence[SamplePromptSet]) -> Markup:
    """Buttons that load a prompt set which comes with the program."""
    return laid_out(
        "shared/samples_list.html",
        samples=samples,
    )


def needs_mapping(parsed: ParsedPromptSet) -> bool:
    """Whether a reader should look at the columns: one that matters was not found, and others were left over."""
    mapping = dict(parsed.mapping)
    return not names_prompts(mapping) or ("reference" not in mapping and bool(parsed.ignored_columns))


def column_choices(parsed: ParsedPromptSet) -> list[tuple[str, str]]:
    """The file's columns for a menu; the empty one reads a field from none."""
    return [("none", ""), *((column, column) for column in parsed.columns)]


def row_errors(errors: Sequence[RowError], total: int) -> Markup:
    """The rows that cannot be used: line, column, and what is wrong."""
    if not errors:
        return Markup("")
    rows = [
        [str(error.line), html("{{ column }}", column=error.column), html("{{ message }}", message=error.message)]
        for error in errors[:MOST_ERRORS]
    ]
    head = [("Line", "n"), ("Column", ""), ("What is wrong", "")]
    return laid_out(
        "shared/row_errors.html",
        bad=_bad_rows(errors),
        total=total,
        table=Markup(table(head, rows, "errors", "Rows that cannot be used")),
        more=len(errors) - len(rows),
    )


def accept_box(total: int, errors: Sequence[RowError], accepted: Sequence[RowError] | None = None) -> Any:
    """Offer to go on with the good rows where there are others."""
    good = plural(total - _bad_rows(errors), "good row")
    kept = accepted is not None and _bad_rows(errors) == _bad_rows(accepted)
    return gr.Checkbox(visible=bool(errors), label=f"Go on with the {good}", **({} if kept else {"value": False}))


def _bad_rows(errors: Sequence[RowError]) -> int:
    return len({error.line for error in errors})


def preview_rows(rows: Sequence[PromptPreview], total: int) -> Markup:
    """The first rows with their spans marked, and whether these were found or given."""
    if not rows:
        return Markup('<p class="sub">No row can be used.</p>')
    return laid_out(
        "shared/preview_rows.html",
        rows=rows,
        shown=f"first {count(len(rows))} of {count(total)}" if total > len(rows) else plural(total, "row"),
        marked_text=marked_text,
    )


def marked_text(text: str, spans: Sequence[Span]) -> Markup:
    """A text with its spans marked as on the audit page; offsets count code points."""
    pieces, at = [], 0
    for span in sorted(spans):
        if span.start >= at:
            pieces.append((text[at : span.start], span, text[span.start : span.end]))
            at = span.end
    return laid_out(
        "shared/marked_text.html",
        pieces=pieces,
        rest=text[at:],
        names=FAMILY_NAMES,
    )


@dataclass(frozen=True, slots=True)
class PromptPart:
    """The controls of a prompt set; ``outputs`` is what reading one changes."""

    file: gr.File
    samples: gr.HTML
    columns: tuple[gr.Dropdown, ...]
    accept: gr.Checkbox
    errors: gr.HTML
    preview: gr.HTML
    outputs: tuple[Any, ...]


class PromptHandlers:
    """Reads uploads and samples; ``untried`` is shown until there is an estimate."""

    def __init__(self, prompt_sets: PromptSetReader, untried: str) -> None:
        self._prompt_sets = prompt_sets
        self._untried = untried
        self.samples = prompt_sets.samples()
        # Lives as long as the page.
        self._folder = tempfile.TemporaryDirectory(prefix="coft-samples-")

    @shown_to(READ)
    def parse(self, path: str | None) -> list[Any]:
        """Read an uploaded prompt set, each field from the column of its name, or say why it is refused."""
        if path is None:
            return self._values(None)
        return self._values(or_refusal(lambda: self._prompt_sets.parse(Path(path), Path(path).name)))

    @shown_to(READ)
    def remap(self, path: str | None, *columns: str) -> list[Any]:
        """Read it again with the chosen columns."""
        return self._values(None if path is None else or_refusal(lambda: parsed_from(self._prompt_sets, path, columns)))

    @shown_to(READ)
    def sample(self, event: gr.EventData) -> str:
        """Take a sample as if it had been uploaded; from a folder that the browser may read."""
        sample = self.samples[int(event.id)]
        return str(shutil.copy(sample.path, Path(self._folder.name) / sample.name))

    def _values(self, parsed: ParsedPromptSet | str | None) -> list[Any]:
        """Values of :attr:`PromptPart.outputs`, then whether one may check and run, and the estimate."""
        if parsed is None or isinstance(parsed, str):
            columns = [gr.Dropdown([("none", "")], value="")] * len(PROMPT_SET_FIELDS)
            off = gr.update(interactive=False)
            box = accept_box(0, ())
            return [refused_file(parsed or ""), gr.Accordion(visible=False), *columns, "", box, off, off, self._untried]
        mapping = dict(parsed.mapping)
        columns = [gr.Dropdown(column_choices(parsed), value=mapping.get(name, "")) for name in PROMPT_SET_FIELDS]
        fold = gr.Accordion(visible=True, open=True) if needs_mapping(parsed) else gr.Accordion(visible=True)
        usable = gr.update(interactive=bool(parsed.rows))
        return [
            prompt_set(parsed), fold, *columns, row_errors(parsed.errors, parsed.total),
            accept_box(parsed.total, parsed.errors), usable, usable, self._untried,
        ]  # fmt: skip


def prompt_part(handlers: PromptHandlers) -> PromptPart:
    """Place the upload, the samples, the columns and what is said of the rows."""
    with gr.Column(elem_classes=["group"]):
        markup('<div class="bar"><h2>Prompt set</h2><span class="hint">CSV or JSONL, UTF-8</span></div>')
        file = upload("Prompt set", "prompt-set")
        samples = listing("samples", "sample", value=samples_list(handlers.samples))
        with gr.Row(elem_classes=["templates"]):
            markup('<span class="hint">Or start from a template:</span>')
            for kind in ("csv", "jsonl"):
                gr.DownloadButton(kind.upper(), str(TEMPLATES / f"prompt_set.{kind}"), size="sm")
        summary = markup("", "parsed")
        with gr.Accordion("Columns", open=False, visible=False, elem_classes=["fold"], elem_id="columns") as fold:
            with gr.Row(elem_classes=["columns-grid"]):
                columns = tuple(
                    gr.Dropdown([("none", "")], value="", label=name, min_width=0) for name in PROMPT_SET_FIELDS
                )
            fields = "".join(
                f'<div><dt class="mono">{name}</dt><dd>{text}</dd></div>' for name, text in FIELD_HELP.items()
            )
            markup(f'<dl class="finger fields">{fields}</dl>')
        errors = markup("", "row-errors")
        accept = gr.Checkbox(False, label="Go on with the good rows", visible=False, elem_id="accept")
        preview = markup("", "preview")
    return PromptPart(file, samples, columns, accept, errors, preview, (summary, fold, *columns, errors, accept))
