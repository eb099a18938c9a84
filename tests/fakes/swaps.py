"""Attribute swaps without a model: real variants and offers, made-up distributions and chains."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path

from app.shared.audits import StartAudit
from app.shared.errors import ServiceError
from app.shared.files import write_text
from app.shared.policies import policy_name
from app.swap.distributions import SwapTable, swap_csv
from app.swap.service import SwapRuns
from app.swap.types import (
    SwapChain,
    SwapGap,
    SwapOutcome,
    SwapProgress,
    SwapRequest,
    SwapResult,
    SwapToken,
    SwapVariant,
)
from app.swap.variants import swap_variants
from coft_core.errors import CalibrationMismatch
from tests.fakes.audits import FakeAudits
from tests.fakes.data import TOKENS, make_step

WORDS = (" hire", " reject", " call", " thank", " the", " wait", " interview", " think")
SHARES = {"factual": 1.0, "fused": 0.35, "drawn": 0.3, "masked": 0.0}


class FakeSwaps:
    """``going`` is cleared by a test that wants to catch a comparison while it runs."""

    def __init__(self, audits: FakeAudits) -> None:
        self.audits = audits
        self.runs = SwapRuns()
        self.asked: list[SwapRequest] = []
        self.read: list[int] = []
        self.going = threading.Event()
        self.going.set()
        self.reading = threading.Event()
        self.reading.set()

    def variants(self, request: SwapRequest) -> tuple[SwapVariant, ...]:
        spans = self.audits.detect(request.prompt, request.settings) if request.spans is None else request.spans
        return swap_variants(request, spans)

    def compare(self, request: SwapRequest, progress: Callable[[float, str], None] | None = None) -> SwapResult:
        *_, result = self.run(request)
        assert isinstance(result, SwapResult)
        return result

    def run(self, request: SwapRequest) -> Iterator[SwapProgress | SwapResult]:
        self.asked.append(request)
        variants = self.variants(request)
        differences = self.audits.fit(request.settings).differences
        if differences and not request.settings.proceed_uncertified:
            raise CalibrationMismatch(differences)
        with self.runs.watched(len(variants), 2) as watch:
            for number, variant in enumerate(variants):
                yield watch.told(number, 0, variant.label, "vanilla")
                while not self.going.wait(0.02):
                    yield watch.told(number, 1, variant.label, "coft")
            result = made_up_result(request, variants, watch.number)
            self.runs.keep(request, result)
            yield result

    def cancel(self, number: int) -> None:
        self.runs.cancel(number)

    def at(self, number: int, answer_step: int) -> SwapResult:
        kept = self.runs.kept(number)
        if answer_step in kept.steps:
            return kept.steps[answer_step]
        self.read.append(answer_step)
        if answer_step == 2:
            self.reading.wait(20)
        first = next(iter(kept.steps.values()))
        if answer_step >= first.common_steps:
            raise ServiceError("The chain ends before this token; compare an earlier one.")
        request = replace(kept.request, answer_step=answer_step)
        result = made_up_result(request, tuple(outcome.variant for outcome in first.outcomes), number)
        self.runs.keep(request, result)
        return result

    def write_csv(self, number: int, answer_step: int, table: SwapTable, folder: Path) -> Path:
        result = self.at(number, answer_step)
        return write_text(folder / f"swap-{number}-{table}.csv", swap_csv(result, table))


def made_up_result(request: SwapRequest, variants: Sequence[SwapVariant], number: int = 1) -> SwapResult:
    """A result in which variants differ in the visible view, less after fusion, and not at all when masked."""
    views = ("factual", "fused", "masked") if request.settings.calibration_id is None else tuple(SHARES)
    step = request.answer_step
    outcomes = tuple(
        SwapOutcome(v, chain(request, v, "vanilla"), chain(request, v, request.settings.policy), True, 12)
        for v in variants
    )
    tokens = tuple(
        SwapToken(
            200 + row,
            word,
            {
                view: tuple(_probability(row, n, SHARES[view], len(variants), step) for n in range(len(variants)))
                for view in views
            },
        )
        for row, word in enumerate(WORDS)
    )
    gaps = tuple(
        SwapGap(i, j, {view: 0.41 * SHARES[view] * (j - i) / (len(variants) - 1) / (1 + step) for view in views})
        for i, j in combinations(range(len(variants)), 2)
    )
    notes = ("Distributions are compared over the whole vocabulary at temperature 1, before top-p and top-k.",)
    return SwapResult(outcomes, views, step, tokens, gaps, notes, number)


def chain(request: SwapRequest, variant: SwapVariant, policy: str) -> SwapChain:
    settings = replace(
        request.settings,
        policy=policy,
        calibration_id=request.settings.calibration_id if policy == "coft" else None,
        max_new_tokens=request.max_new_tokens,
    )
    calibrated = settings.calibration_id is not None
    steps = tuple(
        make_step(index, TOKENS[index % len(TOKENS)], None if calibrated else "none")
        for index in range(request.max_new_tokens)
    )
    text = "".join(step.token for step in steps)
    certificate = "certified" if calibrated else "uncertified: no calibration"
    start = StartAudit(variant.prompt, settings, variant.spans, f"{variant.label} · {policy_name(policy)}")
    return SwapChain(steps, text, "length", certificate, start)


def _probability(row: int, variant: int, share: float, count: int, step: int) -> float:
    base = 0.42 / (1 + row)
    lean = (variant / max(1, count - 1) - 0.5) * (1 if row % 2 else -1)
    return max(0.0, base + 0.3 * share * lean / (1 + row + step))
