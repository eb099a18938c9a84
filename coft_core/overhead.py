"""What a policy costs beside another: branches, and measured time per token."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from coft_core.decode import Plan, Rollout, plan
from coft_core.engine.model import LanguageModel
from coft_core.errors import InvalidInputError
from coft_core.masking.spans import SpanDetector
from coft_core.policies.base import Policy
from coft_core.scorers.base import ToxicityScorer
from coft_core.types import Span


@dataclass(frozen=True, slots=True)
class Overhead:
    """Cost of a policy on one prompt, relative to another policy in the same minute.

    Attributes:
        branches: Rows that the policy runs at every step.
        baseline_branches: Rows that the other policy runs.
        seconds_per_token: Measured time of the policy, one figure a repeat.
        ratios: Its time over the other's, pair by pair.
    """

    branches: int
    baseline_branches: int
    seconds_per_token: tuple[float, ...]
    ratios: tuple[float, ...]

    @property
    def median(self) -> float:
        """Median of the ratios."""
        return statistics.median(self.ratios)

    @property
    def sentence(self) -> str:
        """The cost in words."""
        return (
            f"{self.branches} branches instead of {self.baseline_branches}: {self.median:.2f} times the time per token "
            f"({min(self.ratios):.2f} to {max(self.ratios):.2f} over {len(self.ratios)} repeats)."
        )


def measure_overhead(
    model: LanguageModel,
    text: str,
    policy: Policy,
    baseline: Policy,
    spans: Sequence[Span] | None = None,
    tokens: int = 16,
    repeats: int = 3,
    detector: SpanDetector | None = None,
    models: Mapping[str, LanguageModel] | None = None,
    scorers: Mapping[str, ToxicityScorer] | None = None,
) -> Overhead:
    """Decode a few tokens under both policies in turn and compare the time.

    The prompt's own pass is not counted. The same tokens are forced in both, so that neither stops early.

    Args:
        model: The model.
        text: The prompt.
        policy: The policy whose cost is asked.
        baseline: What it is compared with, for example the joint mask.
        spans: Sensitive spans; None detects them.
        tokens: Steps that are timed.
        repeats: Pairs of measurements.
        detector: Finds the spans when none are given.
        models: Further models that the policies run, by name; None loads them.
        scorers: Toxicity scorers by name; None loads them.

    Raises:
        InvalidInputError: ``tokens`` or ``repeats`` is below 1, or the prompt is empty.
        PromptTooLongError: Prompt and steps exceed the model's context.
    """
    if tokens < 1 or repeats < 1:
        raise InvalidInputError(f"{tokens} tokens and {repeats} repeats were asked for; ask for at least one of each.")
    plans = [
        plan(
            model,
            text,
            each,
            spans,
            greedy=True,
            max_new_tokens=tokens + 1,
            detector=detector,
            models=models,
            scorers=scorers,
        )
        for each in (policy, baseline)
    ]
    for each in plans:
        _seconds(each, tokens)
    pairs = [tuple(_seconds(each, tokens) / tokens for each in plans) for _ in range(repeats)]
    counts = [len(each.policy.branches(each.prompt)) for each in plans]
    return Overhead(counts[0], counts[1], tuple(own for own, _ in pairs), tuple(own / other for own, other in pairs))


def _seconds(prepared: Plan, tokens: int) -> float:
    filler = next(i for i in range(prepared.model.vocabulary_size) if i not in prepared.model.end_token_ids)
    rollout = Rollout(prepared)
    try:
        rollout.step(filler)
        _wait(prepared.model)
        start = time.perf_counter()
        for _ in range(tokens):
            rollout.step(filler)
        _wait(prepared.model)
        return time.perf_counter() - start
    finally:
        rollout.close()


def _wait(model: LanguageModel) -> None:
    if model.device.type == "cuda":
        torch.cuda.synchronize(model.device)
