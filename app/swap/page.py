"""The swap page: what is exchanged, the variants, and what follows them. The browser fills it."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import gradio as gr

from app.audit.panel import DraftHandlers, folded_settings, message_wire, prompt_events, wire_settings
from app.prompts.words import Message, spans_from
from app.shared.components import place
from app.shared.events import (
    GENERATING,
    MULTIPLE,
    On,
    downloaded,
    or_refusal,
    packed,
    reply,
    shown,
    shown_stream,
    shown_to,
    wire,
)
from app.shared.needs import EXPORT, LOOK, READ
from app.shared.settings_rail import (
    CHANGED,
    as_kept,
    control_values,
    kept_settings,
    settings_from,
    usual_settings,
    without_parameters,
)
from app.shared.web import span_editor, topbar
from app.shared.wiring import Services
from app.swap.service import SwapCancelled, SwapService
from app.swap.types import SwapRequest, SwapResult, SwapTargets
from app.swap.variants import swap_targets, words_from
from app.swap.words import form_message, progress_message, result_message, swap_request
from coft_core.errors import CalibrationMismatch
from db.types import JsonObject, NotFoundError

SCRIPT = "coft.swap.mount(trigger, props, watch, ['open', 'look', 'run', 'cancel', 'at', 'audit', 'table', 'lists'])"
USUAL_LENGTH = 12
LONGEST = 256
FRAME_SECONDS = 0.15
"""Progress is shown at most this often."""


class SwapHandlers(DraftHandlers):
    """What the page asks of the services; every method builds one request and calls one service."""

    def __init__(self, services: Services) -> None:
        super().__init__(services)
        self._swaps = services[SwapService]
        self._folder = tempfile.TemporaryDirectory(prefix="coft-swaps-")

    @shown_to(READ)
    def open(self, event: gr.EventData) -> list[object]:
        """Show a stored comparison, take over a session's prompt, spans and settings, or begin with nothing."""
        found = None if event.result is None else self._found(event)
        if found is None and event.values is None:
            return self.begun(event)
        message: Message = {"kind": "kept"}
        values = event.values
        if found is not None:
            result, form = found
            shown_result = {**result_message(result), "key": str(event.result)}
            message = {"kind": "stored", "form": form, "result": shown_result}
            values = form["values"] if values is None else values
        stored = self.stored()
        settings = kept_settings(values, usual_settings(stored))
        message["settings"] = as_kept(control_values(settings, stored), values)
        return [packed(event, message), *self.updates(settings, stored, values)]

    @shown_to(READ)
    def look(self, event: gr.EventData, *values: object) -> Message:
        """Say what of the prompt can be replaced, and show the variants as chosen."""
        request, targets = self._request(event, without_parameters(values))
        variants = or_refusal(lambda: self._swaps.variants(request))
        groups = () if isinstance(variants, str) or not request.groups else self._swaps.groups(request)
        return reply(event, form_message(targets, request.category, variants, groups))

    @shown_to(READ)
    def lists(self, event: gr.EventData) -> Message:
        """Read a file of words for groups, or of paraphrases."""
        members, paraphrases = words_from(str(event.text), "The file")
        return reply(event, {"kind": "lists", "members": dict(members), "paraphrases": paraphrases})

    @shown_stream
    def run(self, event: gr.EventData, *values: object) -> Iterator[Message | str]:
        """Compare the variants; a calibration of another policy is told apart, because one may proceed."""
        request, _ = self._request(event, values)
        told = -FRAME_SECONDS
        try:
            for item in self._swaps.run(request):
                if isinstance(item, SwapResult):
                    form = {"form": event.form, "values": event.values, "printed": event.printed}
                    yield packed(event, {**result_message(item), "key": self._swaps.store(item.number, form)})
                elif time.monotonic() - told >= FRAME_SECONDS:
                    told = time.monotonic()
                    yield reply(event, progress_message(item))
        except SwapCancelled:
            yield reply(event, {"kind": "cancelled"})
        except CalibrationMismatch as mismatch:
            yield reply(event, {"kind": "mismatch", "text": str(mismatch)})

    @shown_to(LOOK)
    def cancel(self, event: gr.EventData) -> None:
        """End a comparison after its current token."""
        self._swaps.cancel(int(event.number))

    @shown_to(READ)
    def at(self, event: gr.EventData) -> str:
        """Compare another token of the chains that are there."""
        return packed(event, result_message(self._swaps.at(int(event.number), int(event.answer) - 1)))

    @shown
    def audit(self, event: gr.EventData) -> Message:
        """Begin a session that makes the same chain."""
        outcome = self._swaps.at(int(event.number), int(event.answer) - 1).outcomes[int(event.variant)]
        chain = outcome.vanilla if event.decoding == "vanilla" else outcome.policy
        return reply(event, {"kind": "opened", "session": self._audits.start(chain.start).session_id})

    @shown_to(EXPORT)
    def table(self, event: gr.EventData) -> str:
        """Write a table for download."""
        kind, answer = event.table, int(event.answer) - 1
        return str(self._swaps.write_csv(int(event.number), answer, kind, Path(self._folder.name)))

    def _found(self, event: gr.EventData) -> tuple[SwapResult, JsonObject] | None:
        """The comparison that the address names; the page says in its head where there is none."""
        try:
            return self._swaps.stored(str(event.result), None if event.token is None else int(event.token) - 1)
        except NotFoundError:
            return None

    def _request(self, event: gr.EventData, values: Sequence[object]) -> tuple[SwapRequest, SwapTargets]:
        """The browser's form as a request, and what of its prompt can be replaced."""
        spans = spans_from(event.form["spans"]) or ()
        targets = swap_targets(str(event.form["prompt"]), spans)
        return swap_request(event.form, spans, targets, settings_from(values, bool(event.proceed))), targets


def build_page(app: gr.Blocks, services: Services) -> None:
    """Build the page."""
    handlers = SwapHandlers(services)
    topbar(services, "swap")
    with gr.Column(elem_classes=["page"], elem_id="main"):
        gr.HTML(
            '<div class="pagehead"><h1>What if someone else?</h1><p class="sub">The same prompt with one attribute '
            "exchanged: what changes for the model alone, and what is left of it under the policy.</p></div>",
            apply_default_css=False,
            elem_classes=["coft"],
        )
        with gr.Row(elem_classes=["beside-prompt"]):
            with gr.Column(min_width=0, elem_classes=["group"]):
                editor = span_editor()
                rail = folded_settings(services, "swap")
                # The length of the chains is chosen beside the button that runs them.
                rail.controls["max_new_tokens"].visible = False
            with gr.Column(min_width=0):
                place("swap/choices.html", "coft.swap.choices(element)", "swap-choices")
        place("swap/stage.html", "coft.swap.stage(element)", "swap-stage", longest=LONGEST, usual=USUAL_LENGTH)
        stage = message_wire("swap-wire", SCRIPT)
        place("swap/body.html", "coft.swap.body(element)", "swap-body")
    file = gr.DownloadButton("Table", elem_id="swap-file", elem_classes=["offscreen"])
    app.load(None, rail.inputs, None, js=CHANGED)
    wire_settings(app, handlers, rail)
    wire(editor, prompt_events(handlers, editor, rail), MULTIPLE)
    events = {
        "open": On(handlers.open, [stage, *rail.inputs]),
        "look": On(handlers.look, stage, rail.inputs),
        "run": On(handlers.run, stage, rail.inputs, GENERATING),
        "cancel": On(handlers.cancel, None),
        "at": On(handlers.at, stage),
        "audit": On(handlers.audit, stage, settings=GENERATING),
        "table": On(handlers.table, file),
        "lists": On(handlers.lists, stage),
    }
    downloaded(wire(stage, events, MULTIPLE)["table"], "swap-file")
