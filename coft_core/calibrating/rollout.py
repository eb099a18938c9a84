"""Calibration on the deployed policy's own chains (assumptions A2 and A4 of the paper).

The thresholds decide what the policy writes, and what it writes decides the thresholds. Rounds on fresh contexts break
the circle: each generates chains under the thresholds of the round before and reads new ones, until they settle. All
contexts that no round has used then give the final thresholds, and contexts kept apart from the start measure coverage
under exactly these.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import numpy as np

from coft_core.calibrating.chains import ChainPrompt, Chains, Progress, generate_chains
from coft_core.conformal.calibration import Calibration
from coft_core.conformal.coverage import clopper_pearson
from coft_core.conformal.groups import ContextGroups
from coft_core.conformal.quantile import minimum_contexts
from coft_core.conformal.record import ChainRecord, Iteration, Reading, is_settled
from coft_core.conformal.split import held_out_contexts
from coft_core.conformal.values import CalibrationValues
from coft_core.decode import plan
from coft_core.engine.model import LanguageModel
from coft_core.errors import InvalidInputError
from coft_core.fingerprint import Fingerprint
from coft_core.masking.spans import SpanDetector
from coft_core.masking.whitelist import kept_terms
from coft_core.policies.coft import CoftPolicy
from coft_core.types import Example


@dataclass(frozen=True, slots=True)
class RolloutSettings:
    """How rollouts are made and their thresholds iterated.

    Attributes:
        reading: How thresholds are read.
        max_new_tokens: Steps of a chain at most.
        tolerance: Largest change of any bin's tau (a probability) that counts as settled.
        max_iterations: Rounds at most, the final one included.
        verification_share: Share of the contexts kept apart.
        seed: Seed of the split and of all draws.

    Raises:
        InvalidInputError: The tolerance is negative, or there is no round.
    """

    reading: Reading
    max_new_tokens: int = 64
    tolerance: float = 0.01
    max_iterations: int = 4
    verification_share: float = 0.25
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse what cannot be iterated."""
        if not self.tolerance >= 0:
            raise InvalidInputError(f"The tolerance is {self.tolerance}; choose 0 or more, for example 0.01.")
        if self.max_iterations < 1:
            raise InvalidInputError(f"The number of rounds is {self.max_iterations}; allow at least one.")


@dataclass
class _Rounds:
    """Generates chains of contexts under thresholds, and reads thresholds off them."""

    model: LanguageModel
    policy: CoftPolicy
    fingerprint: Fingerprint
    prompts: Sequence[ChainPrompt]
    settings: RolloutSettings
    done: Callable[[int], None]
    records: list[Iteration] = field(default_factory=list)

    def chains(self, contexts: Sequence[int], thresholds: Calibration | None) -> Chains:
        wanted = set(contexts)
        chosen = [prompt for prompt in self.prompts if prompt.context in wanted]
        deployed = replace(self.policy, calibration=thresholds)
        return generate_chains(
            self.model, deployed, chosen, self.settings.max_new_tokens, self.settings.seed, self.done
        )

    def round(self, contexts: Sequence[int], thresholds: Calibration | None, final: bool) -> Calibration:
        values = self.chains(contexts, thresholds).truth
        reading = self.settings.reading
        after = Calibration(
            fingerprint=self.fingerprint,
            alpha=reading.alpha,
            values=values,
            bin_width=reading.bin_width,
            max_position=reading.max_position,
            seed=self.settings.seed,
            draws=reading.draws,
        )
        # The thresholds that generated these chains, measured on them: nothing is certified away without thresholds.
        measured = replace(thresholds or after.read(), verification=values).coverage.overall
        kept = measured.kept if thresholds else measured.contexts
        low, high = clopper_pearson(kept, measured.contexts) if measured.contexts else (0.0, 1.0)
        self.records.append(
            Iteration(
                contexts=len(contexts),
                values=len(values),
                change=largest_change(thresholds, after),
                kept=kept,
                consistent=low <= 1 - reading.alpha <= high,
                final=final,
            )
        )
        return after


def rollout_calibration(
    model: LanguageModel,
    examples: Sequence[Example],
    contexts: Sequence[int],
    policy: CoftPolicy,
    settings: RolloutSettings,
    detector: SpanDetector,
    groups: ContextGroups | None = None,
    progress: Progress | None = None,
    name: str = "",
) -> Calibration:
    """Calibrate a policy on its own chains.

    Args:
        model: The model.
        examples: Prompts; references are not needed.
        contexts: Context of each example.
        policy: The policy without thresholds.
        settings: How to iterate.
        detector: Finds spans where an example has none.
        groups: Groups of the contexts, if thresholds are asked by group.
        progress: Called after each batch; every prompt is continued once.
        name: Name of the calibration.

    Returns:
        The calibration, with the record of its rounds.

    Raises:
        InvalidInputError: There is no example, or one (named by its number) has an unusable prompt.
        PromptTooLongError: A prompt fills the model's context.
    """
    prompts = chain_prompts(model, examples, contexts, policy, detector)
    policy = policy.keeping({term for item in prompts for term in kept_terms(item.prompt)})
    fingerprint = replace(
        policy.fingerprint(model, detector.version), estimator=settings.reading.estimator, source="rollout"
    )
    rounds = _Rounds(model, policy, fingerprint, prompts, settings, counted(progress, len(prompts)))
    alpha, seed = settings.reading.alpha, settings.seed
    held_out = held_out_contexts(contexts, alpha, settings.verification_share, seed, groups)
    # A stream of its own, so that the rounds do not depend on how many contexts are kept apart.
    order = np.random.default_rng([seed, 1]).permutation(sorted(set(contexts) - set(held_out))).tolist()
    size, searches = _round_size(len(order), alpha, settings.max_iterations)
    thresholds: Calibration | None = None
    used = 0
    for _ in range(searches):
        thresholds = rounds.round(order[used : used + size], thresholds, final=False)
        used += size
        if is_settled(rounds.records[-1], settings.tolerance):
            break
    final = rounds.round(order[used:], thresholds, final=True)
    apart = rounds.chains(held_out, final) if held_out else None
    return replace(
        final,
        verification=apart.truth if apart else CalibrationValues.empty(),
        chosen=apart.chosen if apart else CalibrationValues.empty(),
        chains=ChainRecord(settings.reading, settings.max_new_tokens, settings.tolerance, tuple(rounds.records)),
        context_groups=groups or ContextGroups(),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        name=name,
    )


def drift_baseline(
    model: LanguageModel,
    examples: Sequence[Example],
    contexts: Sequence[int],
    policy: CoftPolicy,
    detector: SpanDetector,
    max_new_tokens: int = 64,
    seed: int = 0,
    progress: Progress | None = None,
) -> Calibration:
    """Record what the deployed policy itself chooses on prompts, so that drift can be measured against it.

    Args:
        model: The model.
        examples: Prompts, best those that the thresholds were not read off.
        contexts: Context of each example.
        policy: The policy with its calibration.
        detector: Finds spans where an example has none.
        max_new_tokens: Steps of a chain at most.
        seed: Seed of the draws.
        progress: Called after each batch.

    Returns:
        The policy's calibration with these chains.

    Raises:
        InvalidInputError: The policy has no calibration, or an example has an unusable prompt.
        CalibrationMismatch: The calibration belongs to another policy.
        PromptTooLongError: A prompt fills the model's context.
    """
    if policy.calibration is None:
        raise InvalidInputError("The policy has no calibration; calibrate first, then record its chains.")
    prompts = chain_prompts(model, examples, contexts, policy, detector)
    chains = generate_chains(model, policy, prompts, max_new_tokens, seed, counted(progress, len(prompts)))
    record = replace(
        policy.calibration.chains or ChainRecord(policy.calibration.reading, max_new_tokens),
        reading=policy.calibration.reading,
        max_new_tokens=max_new_tokens,
    )
    return replace(policy.calibration, chosen=chains.chosen, chains=record)


def largest_change(before: Calibration | None, after: Calibration) -> float:
    """Largest change of any bin's ``tau``, a probability; thresholds that certify everything count as 0."""
    earlier = [0.0] * len(after.bins) if before is None else [entry.tau for entry in before.bins]
    return max(abs(a.tau - b) for a, b in zip(after.bins, earlier, strict=True))


def chain_prompts(
    model: LanguageModel,
    examples: Sequence[Example],
    contexts: Sequence[int],
    policy: CoftPolicy,
    detector: SpanDetector,
) -> list[ChainPrompt]:
    """Mask the prompts as the policy would.

    Raises:
        InvalidInputError: There is no example, or one (named by its number) has an unusable prompt.
    """
    if not examples:
        raise InvalidInputError("There are no calibration prompts; give at least one.")
    prompts = []
    for row, (example, context) in enumerate(zip(examples, contexts, strict=True), start=1):
        try:
            prepared = plan(model, example.prompt, policy, example.spans, detector=detector)
        except InvalidInputError as error:
            raise InvalidInputError(f"Example {row}: {error}") from error
        prompts.append(ChainPrompt(prepared.prompt, context, row))
    return prompts


def counted(progress: Progress | None, total: int) -> Callable[[int], None]:
    """Turn counts of finished batches into (done, total)."""
    done = 0

    def advance(count: int) -> None:
        nonlocal done
        done += count
        if progress:
            progress(done, total)

    return advance


def _round_size(contexts: int, alpha: float, rounds: int) -> tuple[int, int]:
    """Contexts of a search round, and the number of such rounds that leaves the final one at least as many."""
    rounds = min(rounds, max(contexts // max(minimum_contexts(alpha), 1), 1))
    return contexts // rounds, rounds - 1
