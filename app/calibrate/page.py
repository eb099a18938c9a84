"""The calibrate page: a prompt set, the settings, runs, and the result beside them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gradio as gr

from app.audit.service import AuditService
from app.calibrate.form import (
    BOXES,
    FIELDS,
    SHARES,
    CalibrationForm,
    applicable,
    calibration_form,
    calibration_request,
    equal_shares,
    fields_from,
    shares_line,
)
from app.calibrate.result_page import result_part
from app.calibrate.service import CalibrationService
from app.calibrate.words import estimate_panel
from app.jobs.watch import JobPart, JobWatch, job_part, past_runs, run_buttons, wire_job
from app.lists.service import UserListService
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
from app.prompts.words import list_choices
from app.shared.audits import CalibrationRequest
from app.shared.components import markup
from app.shared.events import EVENT, LATEST, or_refusal, or_told, shown_to
from app.shared.needs import READ, needs
from app.shared.web import topbar
from app.shared.wiring import Services


def submission(
    calibrations: CalibrationService, path: str | None, accept: bool, values: Sequence[object]
) -> tuple[ParsedPromptSet, CalibrationRequest]:
    """The prompt set as the form maps its columns, and the form's request."""
    prompts = parsed_from(calibrations, path, values[: len(PROMPT_SET_FIELDS)])
    return prompts, _request(calibrations, prompts, accept, values)


def _request(
    calibrations: CalibrationService, prompts: ParsedPromptSet, accept: bool, values: Sequence[object]
) -> CalibrationRequest:
    fields = fields_from(values[len(PROMPT_SET_FIELDS) :])
    in_use = fields["deployment"] if applicable(fields)["deployment"] else None
    deployment = () if in_use is None else calibrations.prompts_in_use(Path(in_use))
    return calibration_request(fields, Path(prompts.filename).stem, accept, deployment)


UNTRIED = (
    '<p class="hint">Says how long it takes, which rows the model cannot use, and whether the contexts suffice.</p>'
)
MASKING = ("layout", "family", "masked_families", "user_list_id", "whitelist", "mask_mode")
"""Fields of the form that change how rows are masked."""


class CalibrationPrompts(PromptHandlers):
    """What the page asks of the services about a prompt set."""

    def __init__(self, services: Services) -> None:
        super().__init__(services[CalibrationService], UNTRIED)
        self._calibrations = services[CalibrationService]

    @shown_to(READ)
    def preview(self, path: str | None, *values: Any) -> str:
        """The first rows as they will be masked."""
        return self._preview(path, values)

    def _preview(self, path: str | None, values: Sequence[Any]) -> str:
        if path is None:
            return ""
        prompts = or_refusal(lambda: parsed_from(self._calibrations, path, values[: len(PROMPT_SET_FIELDS)]))
        if isinstance(prompts, str) or "prompt" not in dict(prompts.mapping):
            return ""
        request = _request(self._calibrations, prompts, True, values)
        return preview_rows(self._calibrations.preview(prompts, request), len(prompts.rows))

    @needs(READ)
    def preview_again(self, path: str | None, *values: Any) -> Any:
        """The first rows under other settings of the mask."""
        rows = or_told(lambda: self._preview(path, values))
        return gr.skip() if rows is None else rows

    @shown_to(READ)
    def check(self, path: str | None, *values: Any) -> list[Any]:
        """All rows that cannot be used, those included that only the model can tell."""
        prompts, request = submission(self._calibrations, path, True, values)
        errors = self._calibrations.row_errors(prompts, request)
        return [row_errors(errors, prompts.total), accept_box(prompts.total, errors, prompts.errors)]

    @shown_to(READ)
    def estimate(self, path: str | None, *values: Any) -> str:
        """What the run will take."""
        prompts, request = submission(self._calibrations, path, True, values)
        estimate, column = self._calibrations.estimate(prompts, request), dict(prompts.mapping).get("context", "")
        return estimate_panel(estimate, request.alpha, request.verification_share, column)


def wire_prompts(
    handlers: CalibrationPrompts,
    part: PromptPart,
    form: CalibrationForm,
    check: tuple[gr.Button, gr.HTML],
    run: gr.Button,
) -> None:
    """Connect everything about the prompt set."""
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
        [form.controls[name].change for name in MASKING],
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
    calibrations = services[CalibrationService]

    def begin(path: str | None, accept: bool, *values: Any) -> int:
        return calibrations.submit(*submission(calibrations, path, accept, values))

    watch = JobWatch(calibrations, begin, calibrations.resume)
    begun = wire_job(app, watch, part, [prompts.file, prompts.accept, *inputs[1:]])
    begun.failure(check.check, inputs, [prompts.errors, prompts.accept], **EVENT)


CHANGED = f"(...values) => coft.calibrate.summary({json.dumps(FIELDS)}, values)"
"""Runs in the browser with all values whenever one changes: what is folded away says what it holds."""

WATCHED = (
    "source", "record_chains", "layout", "split", "masked_families", "mask_mode", "estimator", "bin_spacing", "shift",
    "alpha", *SHARES,
)  # fmt: skip
"""Fields on which it depends what else applies."""


class CalibrationFormHandlers:
    """What the form asks of the services."""

    def __init__(self, services: Services) -> None:
        self._user_lists = services[UserListService]

    @shown_to(READ)
    def menu(self) -> Any:
        """The word lists to choose from."""
        return gr.Dropdown(list_choices(self._user_lists.list()))

    @shown_to(READ)
    def applies(self, *values: Any) -> list[Any]:
        """Show the fields that apply, hide the others, and sum the shares up."""
        fields = fields_from(values)
        visible = applicable(fields)
        return [*(gr.update(visible=visible[name]) for name in BOXES), shares_line(fields)]

    @shown_to(READ)
    def share_out(self, alpha: float, families: list[str]) -> list[float]:
        """Equal shares to begin with."""
        return equal_shares(alpha, families)


def build_page(app: gr.Blocks, services: Services) -> None:
    """Build the page."""
    topbar(services, "calibrate")
    with gr.Column(elem_classes=["page"], elem_id="main"):
        gr.HTML(
            '<div class="pagehead"><h1>Calibrations</h1><p class="sub">Set the minimum likelihood that a word '
            "must reach, using your own prompts.</p></div>",
            js_on_load="coft.calibrate.mount()",
            apply_default_css=False,
            elem_classes=["coft"],
        )
        with gr.Row(elem_classes=["asked"]):
            jobs = _form(app, services)
        runs = past_runs(jobs.shown_id, "delete")
        with gr.Column(elem_classes=["stack"], min_width=0):
            result_part(services, jobs.shown_id, runs)


def _form(app: gr.Blocks, services: Services) -> JobPart:
    prompts = CalibrationPrompts(services)
    part = prompt_part(prompts)
    with gr.Column(elem_classes=["group"], elem_id="settings"):
        markup('<div class="bar"><h2>Settings</h2></div>')
        form = calibration_form(services.settings, services[AuditService].masked_families)
    with gr.Column(elem_classes=["group"], elem_id="go"):
        markup("<h2>Before you run</h2>")
        with gr.Row(elem_classes=["go"]):
            button = gr.Button("Check and estimate", interactive=False, elem_id="check")
        check = (button, markup(UNTRIED, "estimate"))
        jobs = job_part(*run_buttons(), resumable=True)
    wire_prompts(prompts, part, form, check, jobs.run)
    wire_jobs(app, services, jobs, part, form, prompts)
    _wire_form(app, CalibrationFormHandlers(services), form)
    return jobs


def _wire_form(app: gr.Blocks, handlers: CalibrationFormHandlers, form: CalibrationForm) -> None:
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
    gr.on([control.change for control in inputs], None, inputs, None, js=CHANGED, trigger_mode="multiple")
    app.load(None, inputs, None, js=CHANGED)
    app.load(handlers.menu, None, form.controls["user_list_id"], **EVENT)
