"""The calibrate page put together."""

from __future__ import annotations

import json
from typing import Any

import gradio as gr

from app.bootstrap import Services
from app.ui.components.calibration_form import CalibrationForm, calibration_form
from app.ui.components.pieces import listing, markup
from app.ui.components.topbar import topbar
from app.ui.errors import shown
from app.ui.events import EVENT, LATEST
from app.ui.job_watch import JobPart, job_part, run_buttons
from app.ui.pages.calibrate.compare import CompareHandlers, compare_part, wire_compare
from app.ui.pages.calibrate.follow import FollowHandlers, follow_part, wire_follow
from app.ui.pages.calibrate.jobs import wire_jobs
from app.ui.pages.calibrate.prompts import PromptHandlers, estimate_part, prompt_part, wire_prompts
from app.ui.pages.calibrate.result import (
    ResultHandlers,
    ResultPart,
    reading_part,
    result_body,
    result_head_part,
    wire_result,
)
from app.ui.presenters_form import BOXES, FIELDS, SHARES, applicable, equal_shares, given_from, shares_line
from app.ui.presenters_session import list_choices

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
    prompts = PromptHandlers(services)
    part, samples, preview = prompt_part(prompts)
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
    wire_prompts(prompts, part, form, samples, preview, check, jobs.run)
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
