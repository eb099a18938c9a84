"""The public calibration: references or rollouts, all contexts together or by group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from coft_core.calibrating.chains import Progress
from coft_core.calibrating.rollout import RolloutSettings, drift_baseline, rollout_calibration
from coft_core.conformal.calibration import Calibration
from coft_core.conformal.calibrator import calibrate as calibrate_on_references
from coft_core.conformal.quantile import check_alpha, check_draws, check_estimator, check_seed
from coft_core.conformal.record import Reading
from coft_core.conformal.split import check_share, context_numbers, groups_of, held_out_contexts, with_context_ids
from coft_core.conformal.stepwise import PositionBins
from coft_core.conformal.values import CalibrationValues
from coft_core.engine.model import LanguageModel
from coft_core.errors import InvalidInputError
from coft_core.masking.masker import DEFAULT_HINT, MaskMode
from coft_core.masking.spans import SpanDetector, default_detector
from coft_core.policies.coft import CoftPolicy
from coft_core.types import Example

SOURCES = ("reference", "rollout")
"""Where contexts can come from."""


def calibrate(
    model: LanguageModel,
    examples: Sequence[Example],
    lam: float = 0.6,
    alpha: float = 0.1,
    estimator: str = "hierarchical",
    source: str = "reference",
    *,
    temperature: float = 1.0,
    top_p: float = 0.9,
    top_k: int = 0,
    sentinel: str | None = None,
    mask_mode: MaskMode = "hard",
    mask_hint: str = DEFAULT_HINT,
    families: tuple[str, ...] | None = None,
    whitelist: tuple[str, ...] = (),
    bin_width: int = 8,
    max_position: int = 256,
    verification_share: float = 0.25,
    seed: int = 0,
    detector: SpanDetector | None = None,
    progress: Progress | None = None,
    name: str = "",
    draws: int = 1,
    by_group: bool = False,
    max_new_tokens: int = 64,
    tolerance: float = 0.01,
    max_iterations: int = 4,
) -> Calibration:
    """Calibrate thresholds on given prompts.

    Contexts are split at random: one part gives the thresholds, the other is kept apart and gives the empirical
    coverage. The calibration part keeps at least as many contexts as ``alpha`` needs, whatever the share.

    Args:
        model: The model.
        examples: Prompts, with references for ``source="reference"``.
        lam: Fusion weight.
        alpha: Risk level.
        estimator: ``"hierarchical"``, ``"one_per_context"`` or ``"pooled"``.
        source: ``"reference"``: teacher-forced on each prompt's reference (a missing space between prompt and
            reference is supplied). ``"rollout"``: prefixes are written by the deployed policy itself, thresholds
            included, and the true next token is drawn from the factual branch under the same sampling controls.
        temperature: Temperature of the policy that will use the thresholds.
        top_p: Its nucleus mass.
        top_k: Its number of tokens kept.
        sentinel: Its sentinel; None takes the tokenizer's own.
        mask_mode: Its mask mode.
        mask_hint: Hint of its soft mask.
        families: Attribute families that it masks; None is all.
        whitelist: Terms that it never masks; what an example keeps is added.
        bin_width: Steps that share a threshold.
        max_position: Steps beyond are tied to the last bin.
        verification_share: Share of the contexts kept apart.
        seed: Seed of the split, of ``one_per_context`` and of rollouts.
        detector: Finds spans where an example has none; the default one if None.
        progress: Called after each batch with (examples done, examples in all).
        name: Name of the calibration.
        draws: Draws of ``one_per_context`` that are averaged.
        by_group: Keep each context's group, for :meth:`Calibration.for_group`. Rows without a ``context`` are then
            contexts of their own; otherwise rows that share a ``group`` count as one.
        max_new_tokens: Steps of a rollout at most.
        tolerance: Rollouts are iterated on fresh contexts until no bin's tau (a probability) changes by more.
        max_iterations: Rounds of rollouts at most; fewer where alpha needs more contexts than that leaves to each.

    Returns:
        The calibration with all its values.

    Raises:
        InvalidInputError: A parameter is outside its range, there is no example, or an example (named by its number)
            lacks a reference or a group that is needed.
        PromptTooLongError: An example does not fit into the model's context.
    """
    reading = Reading(check_alpha(alpha), check_estimator(estimator), bin_width, max_position, check_draws(draws))
    PositionBins(bin_width, max_position)
    detector = detector or default_detector()
    if source == "rollout":
        groups = groups_of(examples) if by_group else None
        return rollout_calibration(
            model,
            examples,
            context_numbers(examples, by_group),
            CoftPolicy(
                lam,
                temperature=temperature,
                top_p=top_p,
                top_k=top_k,
                sentinel=sentinel,
                mask_mode=mask_mode,
                mask_hint=mask_hint,
                families=families,
                whitelist=whitelist,
            ),
            RolloutSettings(
                reading, max_new_tokens, tolerance, max_iterations, check_share(verification_share), check_seed(seed)
            ),
            detector,
            groups,
            progress,
            name,
        )
    if source != "reference":
        raise InvalidInputError(f"There is no context source {source!r}; use one of {', '.join(SOURCES)}.")
    made = calibrate_on_references(
        model,
        with_context_ids(examples, by_group),
        lam,
        alpha,
        estimator,
        temperature=temperature,
        top_p=top_p,
        top_k=top_k,
        sentinel=sentinel,
        mask_mode=mask_mode,
        mask_hint=mask_hint,
        families=families,
        whitelist=whitelist,
        bin_width=bin_width,
        max_position=max_position,
        verification_share=verification_share,
        seed=seed,
        detector=detector,
        progress=progress,
        name=name,
    )
    made = replace(made, draws=draws)
    return _grouped(made, examples, verification_share) if by_group else made


def record_chains(
    model: LanguageModel,
    examples: Sequence[Example],
    policy: CoftPolicy,
    max_new_tokens: int = 64,
    seed: int = 0,
    detector: SpanDetector | None = None,
    progress: Progress | None = None,
) -> Calibration:
    """Record what the deployed policy chooses on prompts: the baseline against which drift is measured.

    A calibration on rollouts has one already. One prompt is one context here; take prompts of the kind that will be
    audited.

    Args:
        model: The model.
        examples: Prompts; references are not needed.
        policy: The policy with its calibration.
        max_new_tokens: Steps of a chain at most.
        seed: Seed of the draws.
        detector: Finds spans where an example has none; the default one if None.
        progress: Called after each batch.

    Returns:
        The policy's calibration with the recorded chains.

    Raises:
        InvalidInputError: The policy has no calibration, or an example (named by its number) has an unusable prompt.
        CalibrationMismatch: The calibration belongs to another policy.
        PromptTooLongError: A prompt fills the model's context.
    """
    return drift_baseline(
        model,
        examples,
        context_numbers(examples),
        policy,
        detector or default_detector(),
        max_new_tokens,
        seed,
        progress,
    )


def _grouped(made: Calibration, examples: Sequence[Example], share: float) -> Calibration:
    """The same values, split again so that every group keeps contexts apart, with the groups' names."""
    groups = groups_of(examples)
    everything = CalibrationValues.concat([made.values, made.verification])
    contexts = np.unique(everything.contexts).tolist()
    held_out = held_out_contexts(contexts, made.alpha, share, made.seed, groups)
    kept = sorted(set(contexts) - set(held_out))
    return replace(
        made,
        values=everything.select(kept),
        verification=everything.select(held_out),
        context_groups=groups,
    )
