"""How long a calibration will take: a short trial with some of its own prompts, extrapolated by tokens."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from app.services.calibrating import CalibrationWork, calibrated
from app.services.prompt_checks import length_of, spans_of
from app.services.prompt_sets import PromptRow
from app.services.views import CalibrationEstimate, CalibrationRequest
from coft_core.calibrating.chains import BATCH_ROWS
from coft_core.conformal.quantile import exact_alpha, minimum_contexts
from coft_core.conformal.shares import split_alpha
from coft_core.conformal.shift import Shift
from coft_core.conformal.split import context_numbers
from coft_core.masking.partial import in_page_order

LOOKING_SECONDS = 0.6
"""Time for looking at what is masked; where it does not suffice for all prompts, the others are taken to be alike."""

TRIAL_SECONDS = 1.0
"""Time for running the model on so many prompts as it allows, after a first run that is always slow."""

FEWEST, LARGEST_TRIAL = 2, 32
"""Prompts of a trial on references."""

WHOLE_BATCH = BATCH_ROWS // 2
"""Prompts of a batch of rollouts, with two branches each."""

TRIAL_STEPS = 4
"""Steps that a trial of rollouts takes beyond the first."""


@dataclass(frozen=True, slots=True)
class _Look:
    """What prompts have masked, as far as they were looked at.

    Attributes:
        share: Share of them in which something is masked.
        rows: Those rows.
        families: The families that are masked in them.
    """

    share: float
    rows: tuple[PromptRow, ...]
    families: tuple[str, ...]


class Trial:
    """A calibration's work, tried on a few of its prompts."""

    def __init__(self, work: CalibrationWork, clock: Callable[[], float] = time.perf_counter) -> None:
        """Prepare a trial.

        Args:
            work: The work as it would be done.
            clock: Seconds.
        """
        self._work = work
        self._clock = clock
        self._lengths = {row.line: length_of(work.model, row.example, work.request) for row in work.rows}
        self._look = self._looked()
        # Factorized masks leave out what has nothing masked.
        taking_part, share = (self._look.rows, self._look.share) if self._factorized else (work.rows, 1.0)
        self._sorted = sorted(taking_part, key=lambda row: self._lengths[row.line])
        self._share = share
        self._tried = 0

    def estimate(self) -> CalibrationEstimate:
        """Try and extrapolate.

        Raises:
            CoftError: The calibration would be refused.
        """
        rows, request = self._work.rows, self._work.request
        seconds = self._seconds() if self._sorted else 0.0
        return CalibrationEstimate(
            prompts=len(rows),
            contexts=len(set(context_numbers([row.example for row in rows], request.by_group))),
            needed=_needed(request, self._look.families),
            tried=self._tried,
            seconds=seconds,
            unmasked=round((1 - self._look.share) * len(rows)),
        )

    @property
    def _factorized(self) -> bool:
        return self._work.request.mask_layout == "factorized"

    def _looked(self) -> _Look:
        work, began, looked = self._work, self._clock(), 0
        rows: list[PromptRow] = []
        families: set[str] = set()
        # In any order, so that a sorted file is not judged by its beginning.
        for row in random.Random(0).sample(work.rows, len(work.rows)):
            masked = {span.category for span in spans_of(row.example, work.request, work.detector) if span.masked}
            looked += 1
            families |= masked
            rows += [row] if masked else []
            if self._clock() - began > LOOKING_SECONDS:
                break
        return _Look(len(rows) / max(looked, 1), tuple(rows), in_page_order(families))

    def _seconds(self) -> float:
        work = self._work
        if work.request.source == "rollout":
            return self._rollout_seconds(len(work.rows))
        recording = self._rollout_seconds(work.prompts_to_record) if work.request.record_chains else 0.0
        return self._reference_seconds() + recording

    def _reference_seconds(self) -> float:
        request = self._request()
        total = self._tokens(self._sorted) * (len(self._work.rows) * self._share / len(self._sorted))
        self._timed(self._sorted[:1], request)
        few = self._spread(FEWEST)
        seconds, tokens = self._timed(few, request), self._tokens(few)
        # Two trials of different sizes tell what every call costs from what every token costs.
        size = min(int(FEWEST * TRIAL_SECONDS / max(seconds, 1e-6)), LARGEST_TRIAL, len(self._sorted))
        if size <= FEWEST:
            return seconds / tokens * total
        more = self._spread(size)
        longer, most = self._timed(more, request), self._tokens(more)
        a_token = (longer - seconds) / (most - tokens) if longer > seconds and most > tokens else longer / most
        return longer + a_token * max(total - most, 0.0)

    def _rollout_seconds(self, prompts: int) -> float:
        steps = self._work.request.max_new_tokens
        first = replace(self._request(source="rollout"), max_new_tokens=1)
        self._timed(self._sorted[:1], first)
        reading = self._timed(chosen := self._spread(FEWEST), first)
        further = min(TRIAL_STEPS if reading < TRIAL_SECONDS / 4 else 1, steps - 1)
        if reading < TRIAL_SECONDS / 2:
            # A step costs a small model the same for many prompts as for one, so a whole batch is tried if possible.
            chosen = self._spread(WHOLE_BATCH if reading < TRIAL_SECONDS / 4 else WHOLE_BATCH // 2)
            reading = self._timed(chosen, first)
        longer = self._timed(chosen, replace(first, max_new_tokens=1 + further)) if further else reading
        a_step = max(longer - reading, 0.0) / max(further, 1)
        scale = self._tokens(self._sorted) / len(self._sorted) / (self._tokens(chosen) / len(chosen))
        return (reading * scale + (steps - 1) * a_step) * prompts * self._share / len(chosen)

    def _tokens(self, rows: Sequence[PromptRow]) -> int:
        return sum(self._lengths[row.line] for row in rows)

    def _request(self, **changes: str) -> CalibrationRequest:
        """The request without what only makes sense for all prompts."""
        plain = replace(
            self._work.request,
            weighting="none",
            rho=1.0,
            by_group=False,
            alpha_by_family=None,
            record_chains=False,
            max_iterations=1,
            verification_share=0.0,
        )
        return replace(plain, **changes)  # type: ignore[arg-type]

    def _spread(self, size: int) -> list[PromptRow]:
        """So many rows, spread over the lengths."""
        count = len(self._sorted)
        places = sorted({(2 * i + 1) * count // (2 * size) for i in range(size)}) if size < count else range(count)
        return [self._sorted[place] for place in places]

    def _timed(self, rows: Sequence[PromptRow], request: CalibrationRequest) -> float:
        self._tried = max(self._tried, len(rows))
        began = self._clock()
        calibrated(replace(self._work, rows=tuple(rows), request=request))
        return self._clock() - began


def _needed(request: CalibrationRequest, families: Sequence[str]) -> int:
    """Contexts that alpha needs at least; with factorized masks, the most that any family's share needs."""
    shift = Shift.bounded(request.rho)
    if request.mask_layout == "joint" or not families:
        return minimum_contexts(shift.level(exact_alpha(request.alpha)))
    shares = None if request.alpha_by_family is None else dict(request.alpha_by_family)
    levels = split_alpha(request.alpha, families, shares).values()
    return max(minimum_contexts(shift.level(exact_alpha(level))) for level in levels)
