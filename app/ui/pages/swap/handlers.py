"""What the swap page asks of the services."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import gradio as gr

from app.bootstrap import Services
from app.services.errors import CalibrationMismatch
from app.services.swap.runs import SwapCancelled
from app.services.views import AuditSettings, ReadingRequest
from app.services.views.swaps import SwapRequest, SwapResult, SwapTargets
from app.ui.components.rail_values import (
    FIELDS,
    Stored,
    control_values,
    default_calibration,
    settings_from,
    updates_from,
    without_parameters,
)
from app.ui.errors import or_refusal, shown, shown_stream
from app.ui.events import reply
from app.ui.pages.audit.common import packed
from app.ui.presenters_session import Message, draft_message, spans_from
from app.ui.presenters_swap import progress_message, result_message
from app.ui.presenters_swap_form import form_message, offered_for, swap_request

FRAME_SECONDS = 0.15
"""Progress is shown at most this often."""


CHOICES = ("calibration_id", "group", "user_list_id")
"""Controls whose choices come from the store."""


class SwapHandlers:
    """Every method builds one request and calls one service."""

    def __init__(self, services: Services) -> None:
        """Keep the services, and a folder for tables that lives as long as the page."""
        self._swaps = services.swaps
        self._audits = services.audits
        self._library = services.library
        self._calibrations = services.calibrations
        self._user_lists = services.user_lists
        self._folder = tempfile.TemporaryDirectory(prefix="coft-swaps-")

    @shown
    def open(self, event: gr.EventData) -> list[object]:
        """Take over a stored session's prompt, spans and settings, or begin with nothing."""
        stored = Stored(self._calibrations.list(), self._user_lists.list(), self._audits.masked_families)
        if event.session is None:
            settings = AuditSettings(calibration_id=default_calibration(stored.calibrations, None))
            message, *updates = self._opened(event, {"kind": "blank"}, settings, stored)
            # The other controls show the defaults already, and may have been moved since the page was asked for.
            return [message, *(u if name in CHOICES else gr.skip() for name, u in zip(FIELDS, updates, strict=True))]
        made = self._library.prefill(int(event.session))
        request = made.request
        preview = or_refusal(lambda: self._audits.preview(request.prompt, request.spans or (), request.settings))
        return self._opened(event, draft_message(made, preview), request.settings, stored)

    @shown
    def look(self, event: gr.EventData, *values: object) -> Message:
        """Say what of the prompt can be replaced, and show the variants as chosen."""
        request, targets = self._request(event, without_parameters(values))
        variants = or_refusal(lambda: self._swaps.variants(request))
        offers = self._swaps.offers(request.category or "", offered_for(targets, request.category))
        return reply(event, form_message(targets, request.category, offers, variants))

    @shown_stream
    def run(self, event: gr.EventData, *values: object) -> Iterator[Message | str]:
        """Compare the variants; a calibration of another policy is told apart, because one may proceed."""
        request, _ = self._request(event, values)
        told = -FRAME_SECONDS
        try:
            for item in self._swaps.run(request):
                if isinstance(item, SwapResult):
                    yield packed(event, result_message(item))
                elif time.monotonic() - told >= FRAME_SECONDS:
                    told = time.monotonic()
                    yield reply(event, progress_message(item))
        except SwapCancelled:
            yield reply(event, {"kind": "cancelled"})
        except CalibrationMismatch as mismatch:
            yield reply(event, {"kind": "mismatch", "text": str(mismatch)})

    @shown
    def cancel(self, event: gr.EventData) -> None:
        """End a comparison after its current token."""
        self._swaps.cancel(int(event.number))

    @shown
    def at(self, event: gr.EventData) -> str:
        """Compare another token of the chains that are there."""
        return packed(event, result_message(self._swaps.at(int(event.number), int(event.answer) - 1)))

    @shown
    def audit(self, event: gr.EventData) -> Message:
        """Begin a session that makes the same chain."""
        outcome = self._swaps.at(int(event.number), int(event.answer) - 1).outcomes[int(event.variant)]
        chain = outcome.vanilla if event.decoding == "vanilla" else outcome.policy
        return reply(event, {"kind": "opened", "session": self._audits.start(chain.start).session_id})

    @shown
    def table(self, event: gr.EventData) -> str:
        """Write a table for download."""
        kind, answer = event.table, int(event.answer) - 1
        return str(self._swaps.write_csv(int(event.number), answer, kind, Path(self._folder.name)))

    def _opened(self, event: gr.EventData, message: Message, settings: AuditSettings, stored: Stored) -> list[object]:
        """A message, and updates that make the controls show settings."""
        values = control_values(settings, stored)
        number = settings.calibration_id
        known = number is not None and number in [item.id for item in stored.calibrations]
        view = self._calibrations.view(number, ReadingRequest(settings.alpha)) if known and number else None
        updates = updates_from(values, stored, view.groups if view else ())
        return [reply(event, {**message, "settings": values}), *updates]

    def _request(self, event: gr.EventData, values: Sequence[object]) -> tuple[SwapRequest, SwapTargets]:
        """The browser's form as a request, and what of its prompt can be replaced."""
        spans = spans_from(event.form["spans"]) or ()
        targets = self._swaps.targets(str(event.form["prompt"]), spans)
        return swap_request(event.form, spans, targets, settings_from(values, bool(event.proceed))), targets
