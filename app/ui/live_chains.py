"""Columns while they are written: new tokens gathered into frames, and aligned anew in each of them."""

from __future__ import annotations

import time

from app.services.comparing.alignment import align, beside
from app.services.views import Step
from app.services.views.comparisons import Comparison
from app.ui.presenters_chains import cell, rows_message
from app.ui.presenters_session import Message

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
