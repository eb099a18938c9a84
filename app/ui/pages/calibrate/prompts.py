"""The prompt set: uploaded or taken from the samples, its columns mapped, its rows checked and shown."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gradio as gr

from app.bootstrap import Services
from app.services.views import PROMPT_SET_FIELDS, ParsedPromptSet, RowError
from app.ui import assets
from app.ui.components.calibration_form import CalibrationForm
from app.ui.components.pieces import listing, markup, upload
from app.ui.errors import or_told, shown
from app.ui.events import EVENT, LATEST
from app.ui.pages.calibrate.common import asked
from app.ui.presenters_form import columns_from
from app.ui.presenters_prompt_set import (
    FIELD_HELP,
    accept_label,
    bad_rows,
    column_choices,
    estimate_panel,
    needs_mapping,
    preview_rows,
    prompt_set,
    row_errors,
    samples_list,
)

TRYING = '<p class="hint">Trying a few prompts with the model…</p>'
NOT_TRIED = '<p class="hint">Not estimated.</p>'
UNTRIED = (
    '<p class="hint">Says how long it takes, which rows the model cannot use, and whether the contexts suffice.</p>'
)
HELP = "".join(f'<div><dt class="mono">{name}</dt><dd>{text}</dd></div>' for name, text in FIELD_HELP.items())
MASKING = ("layout", "family", "masked_families", "user_list_id", "whitelist", "mask_mode")
"""Fields of the form that change how rows are masked."""


@dataclass(frozen=True, slots=True)
class PromptPart:
    """The controls of a prompt set that other parts of the page need."""

    file: gr.File
    columns: tuple[gr.Dropdown, ...]
    accept: gr.Checkbox
    errors: gr.HTML
    outputs: tuple[Any, ...]


class PromptHandlers:
    """What the page asks of the services about a prompt set."""

    def __init__(self, services: Services) -> None:
        """Keep the services, and a folder for samples that lives as long as the page."""
        self._calibrations = services.calibrations
        self.samples = services.calibrations.samples()
        self._folder = tempfile.TemporaryDirectory(prefix="coft-samples-")

    @shown
    def parse(self, path: str | None) -> list[Any]:
        """Read an uploaded prompt set, each field from the column of its name."""
        return _blank() if path is None else _shown(self._calibrations.parse(Path(path), Path(path).name))

    @shown
    def remap(self, path: str | None, *columns: str) -> list[Any]:
        """Read it again with the chosen columns."""
        if path is None:
            return _blank()
        return _shown(self._calibrations.parse(Path(path), Path(path).name, columns_from(columns)))

    @shown
    def sample(self, event: gr.EventData) -> str:
        """Take a sample as if it had been uploaded; from a folder that the browser may read."""
        found = self.samples[int(event.id)]
        return str(shutil.copy(found.path, Path(self._folder.name) / found.name))

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
        return [row_errors(found, what.prompts.total), _offer(what.prompts.total, found)]

    @shown
    def estimate(self, path: str | None, *values: Any) -> str:
        """What the run will take."""
        what = asked(self._calibrations, path, True, values)
        found = self._calibrations.estimate(what.prompts, what.request)
        return estimate_panel(found, what.request.alpha, what.request.verification_share)


def prompt_part(handlers: PromptHandlers) -> tuple[PromptPart, gr.HTML, gr.HTML]:
    """Place the upload, the samples, the columns and what is said of the rows."""
    with gr.Column(elem_classes=["group"]):
        markup('<div class="bar"><h2>1. Prompt set</h2><span class="hint">CSV or JSONL, UTF-8</span></div>')
        file = upload("Prompt set", "prompt-set")
        samples = listing("samples", "sample", value=samples_list(handlers.samples))
        with gr.Row(elem_classes=["templates"]):
            markup('<span class="hint">Or start from a template:</span>')
            for kind in ("csv", "jsonl"):
                gr.DownloadButton(kind.upper(), str(assets.TEMPLATES / f"prompt_set.{kind}"), size="sm")
        summary = markup("", "parsed")
        with gr.Accordion("Columns", open=False, visible=False, elem_classes=["fold"], elem_id="columns") as fold:
            with gr.Row(elem_classes=["columns-grid"]):
                columns = tuple(
                    gr.Dropdown([("none", "")], value="", label=name, min_width=0) for name in PROMPT_SET_FIELDS
                )
            markup(f'<dl class="finger fields">{HELP}</dl>')
        errors = markup("", "row-errors")
        accept = gr.Checkbox(False, label="Go on with the good rows", visible=False, elem_id="accept")
        preview = markup("", "preview")
    outputs = (summary, fold, *columns, errors, accept)
    part = PromptPart(file, columns, accept, errors, outputs)
    return part, samples, preview


def estimate_part() -> tuple[gr.Button, gr.HTML]:
    """Place the check and what it says."""
    with gr.Row(elem_classes=["go"]):
        button = gr.Button("Check and estimate", interactive=False, elem_id="check")
    return button, markup(UNTRIED, "estimate")


def wire_prompts(
    handlers: PromptHandlers,
    part: PromptPart,
    form: CalibrationForm,
    samples: gr.HTML,
    preview: gr.HTML,
    check: tuple[gr.Button, gr.HTML],
    run: gr.Button,
) -> gr.events.Dependency:
    """Connect everything about the prompt set; gives the event that names the rows with problems."""
    button, estimate = check
    inputs = [part.file, *part.columns, *form.inputs]
    outputs = [*part.outputs, button, run, estimate]
    samples.sample(handlers.sample, None, part.file, **EVENT)
    read = part.file.change(handlers.parse, part.file, outputs, **EVENT)
    marked = read.success(handlers.preview, inputs, preview, **LATEST)
    marked.success(None, form.controls["model"], None, js="(model) => coft.calibrate.check(model)")
    mapped = gr.on(
        [column.select for column in part.columns],
        handlers.remap,
        [part.file, *part.columns],
        outputs,
        **LATEST,
    )
    mapped.success(handlers.preview_again, inputs, preview, **LATEST)
    gr.on(
        [form.controls[name].change for name in MASKING],  # type: ignore[attr-defined]
        handlers.preview_again,
        inputs,
        preview,
        **LATEST,
    )
    tried = button.click(lambda: TRYING, None, estimate, **EVENT)
    checked = tried.success(handlers.check, inputs, [part.errors, part.accept], **EVENT)
    estimated = checked.success(handlers.estimate, inputs, estimate, **EVENT)
    for event in (checked, estimated):
        event.failure(lambda: NOT_TRIED, None, estimate, **EVENT)
    return checked


def _offer(total: int, errors: Sequence[RowError], **more: Any) -> Any:
    """Offer to go on with the good rows where there are others; what was ticked before stays so."""
    return gr.Checkbox(visible=bool(errors), label=accept_label(total - bad_rows(errors)), **more)


def _blank() -> list[Any]:
    columns = [gr.Dropdown([("none", "")], value="")] * len(PROMPT_SET_FIELDS)
    off = gr.Button(interactive=False)
    return ["", gr.Accordion(visible=False), *columns, "", _offer(0, (), value=False), off, off, UNTRIED]


def _shown(parsed: ParsedPromptSet) -> list[Any]:
    found = dict(parsed.mapping)
    columns = [gr.Dropdown(column_choices(parsed), value=found.get(name, "")) for name in PROMPT_SET_FIELDS]
    fold = gr.Accordion(visible=True, open=True) if needs_mapping(parsed) else gr.Accordion(visible=True)
    usable = gr.Button(interactive=bool(parsed.rows))
    return [
        prompt_set(parsed), fold, *columns, row_errors(parsed.errors, parsed.total),
        _offer(parsed.total, parsed.errors, value=False), usable, usable, UNTRIED,
    ]  # fmt: skip
