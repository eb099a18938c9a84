"""How long a calibration will take: a short trial with some of its own prompts, extrapolated by tokens."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from app.services.calibration.run import CalibrationWork, calibrated
from app.services.prompts.checks import length_of, spans_of
from app.services.prompts.files import PromptRow
from app.services.views import CalibrationEstimate, CalibrationRequest
from coft_core.calibrating.chains import BATCH_ROWS
from coft_core.conformal.quantile import exact_alpha, minimum_contexts
from coft_core.conformal.scoring import TOKEN_BUDGET
from coft_core.conformal.shares import split_alpha
from coft_core.conformal.shift import Shift
from coft_core.conformal.split import context_numbers
from coft_core.masking.partial import in_page_order

LOOKING_SECONDS = 1.0
"""Time for looking at what is masked; where it does not suffice for all prompts, the estimate says how many it saw."""

TRIAL_SECONDS = 1.0
"""Time for running the model on so many prompts as it allows, after a first run that is always slow."""

LARGEST_TRIAL = 32
"""Prompts of a trial on references at most."""

BRANCHES = 2
FEWEST, WHOLE_BATCH = 2, BATCH_ROWS // BRANCHES
"""Prompts of a small trial of rollouts, and of a whole batch with two branches."""

TRIAL_STEPS = 4
"""Steps that a trial of rollouts takes beyond the first."""


@dataclass(frozen=True, slots=True)
class _Look:
    """What prompts have masked, as far as they were looked at.

    Attributes:
        looked_at: Their number.
        rows: Those in which something is masked.
        families: The families that are masked in them.
    """

    looked_at: int
    rows: tuple[PromptRow, ...]
    families: tuple[str, ...]

    @property
    def share(self) -> float:
        """Share of them in which something is masked."""
        return len(self.rows) / max(self.looked_at, 1)


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
            unmasked=self._look.looked_at - len(self._look.rows),
            looked_at=None if self._look.looked_at == len(rows) else self._look.looked_at,
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
        return _Look(looked, tuple(rows), in_page_order(families))

    def _seconds(self) -> float:
        work = self._work
        if work.request.source == "rollout":
            return self._rollout_seconds(len(work.rows))
        recording = self._rollout_seconds(work.prompts_to_record) if work.request.record_chains else 0.0
        return self._reference_seconds() + recording

    def _reference_seconds(self) -> float:
        request = self._request()
        total = self._tokens(self._sorted) * (len(self._work.rows) * self._share / len(self._sorted))
        shortest = self._sorted[:1]
        self._timed(shortest, request)
        short, few = self._timed(shortest, request), self._tokens(shortest)
        # Two trials of different sizes tell what a batch costs from what its tokens cost.
        more = self._spread(self._affordable(short / few))
        longer, many = self._timed(more, request), self._tokens(more)
        if many <= few:
            return longer / many * total
        a_token = max((longer - short) / (many - few), 0.0)
        a_batch = max(short - a_token * few, 0.0)
        batches = math.ceil(total * BRANCHES / TOKEN_BUDGET)
        return batches * a_batch + total * a_token

    def _affordable(self, a_token: float) -> int:
        """Prompts whose trial fits the time if tokens are all that costs; at least one, of medium length."""
        size = min(LARGEST_TRIAL, len(self._sorted))
        while size > 1 and a_token * self._tokens(self._spread(size)) > TRIAL_SECONDS:
            size //= 2
        return size

    def _rollout_seconds(self, prompts: int) -> float:
        steps = self._work.request.max_new_tokens
        first = replace(self._request(source="rollout"), max_new_tokens=1)
        self._timed(self._sorted[:1], first)
        few = self._spread(FEWEST)
        read_few = self._timed(few, first)
        quick = read_few < TRIAL_SECONDS / 4
        many = self._spread(WHOLE_BATCH if quick else 2 * FEWEST)
        read_many = self._timed(many, first)
        further = min(TRIAL_STEPS if quick else 1, steps - 1)
        longer = self._timed(many, replace(first, max_new_tokens=1 + further)) if further else read_many
        a_step = max(longer - read_many, 0.0) / max(further, 1)
        # A step costs a small model the same for a whole batch as for a few prompts; reading tells how far that holds.
        a_prompt = max(read_many - read_few, 0.0) / max(len(many) - len(few), 1)
        a_batch = max(read_many - a_prompt * len(many), 0.0)
        to_whole = (a_batch + a_prompt * WHOLE_BATCH) / read_many if read_many and a_batch + a_prompt else 1.0
        longer_prompts = self._tokens(self._sorted) / len(self._sorted) / (self._tokens(many) / len(many))
        batches = prompts * self._share / WHOLE_BATCH
        return batches * to_whole * (read_many * longer_prompts + (steps - 1) * a_step)

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
