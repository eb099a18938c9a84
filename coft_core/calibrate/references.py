"""Calibration on a model: joint support of the true next tokens of given references (paper Sec. 3.4, offline part)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TypeVar, Unpack

import numpy as np

from coft_core.calibrate.ledger import ledger_key
from coft_core.calibrate.settings import CalibrationOptions, CalibrationSettings
from coft_core.calibrate.true_tokens import PHASE, Prepared, factorized_values, joint_values, prepare
from coft_core.conformal.calibration import Calibration
from coft_core.conformal.families import FactorizedCalibration, split_alpha
from coft_core.conformal.groups import ContextGroups
from coft_core.conformal.quantile import check_alpha, check_estimator
from coft_core.conformal.split import context_numbers, groups_of, held_out_contexts
from coft_core.conformal.values import CalibrationValues
from coft_core.errors import InvalidInputError
from coft_core.fingerprint import SINGLE_BRANCH, Fingerprint
from coft_core.model.language_model import LanguageModel
from coft_core.policies.base import policy_fingerprint
from coft_core.policies.fusion import check_lambda
from coft_core.text.masking import MaskLayout, MaskSettings, continuation_ids, joined, kept_terms, mask_prompt
from coft_core.text.rendering import require_steady
from coft_core.types import Example

_Found = TypeVar("_Found")


def calibrate(
    model: LanguageModel,
    examples: Sequence[Example],
    lam: float = 0.6,
    alpha: float = 0.1,
    estimator: str = "hierarchical",
    source: str = "reference",
    **options: Unpack[CalibrationOptions],
) -> Calibration:
    """Calibrate thresholds on the references of given prompts for one fusion weight; see :func:`calibrate_many`."""
    return calibrate_many(model, examples, [lam], alpha, estimator, source, **options)[0]


def calibrate_many(
    model: LanguageModel,
    examples: Sequence[Example],
    lams: Sequence[float],
    alpha: float = 0.1,
    estimator: str = "hierarchical",
    source: str = "reference",
    **options: Unpack[CalibrationOptions],
) -> list[Calibration]:
    """Calibrate thresholds on the references of given prompts for several fusion weights; the model runs once.

    Contexts (see :func:`coft_core.conformal.split.context_numbers`) are split at random, in the same way for every
    weight: one part gives the thresholds, the other is kept apart and gives the empirical coverage. The calibration
    part keeps at least as many contexts as ``alpha`` needs, whatever the share. A missing space between prompt and
    reference is supplied. What the examples keep from masking is put on the whitelist in the fingerprint, so that the
    thresholds serve only policies that keep the same.

    Args:
        model: The model.
        examples: Prompts with references.
        lams: Fusion weights.
        alpha: Risk level.
        estimator: ``"hierarchical"``, ``"one_per_context"`` or ``"pooled"``.
        source: ``"reference"``: teacher-forced on each prompt's reference. Rollouts are another policy's for each
            weight, so they share no pass of the model.
        options: See :class:`CalibrationOptions`; those of rollouts have no effect.

    Returns:
        One calibration with all its values for each of ``lams``.

    Raises:
        InvalidInputError: A parameter is outside its range, there is no weight or example, or an example (named by its
            number) has no reference, or no group where thresholds are asked by group.
        PromptTooLongError: An example does not fit into the model's context.
        LedgerMismatchError: The ledger belongs to other inputs.
    """
    job = _Job.of(model, examples, lams, alpha, estimator, source, CalibrationSettings(**options), "joint")
    found = job.values(joint_values)
    held_out = job.held_out({"": found[0]}, {"": alpha})
    return [
        job.calibration(fingerprint, values, held_out, alpha)
        for fingerprint, values in zip(job.fingerprints, found, strict=True)
    ]


def calibrate_factorized(
    model: LanguageModel,
    examples: Sequence[Example],
    lams: Sequence[float] = (0.6,),
    alpha: float = 0.1,
    estimator: str = "hierarchical",
    source: str = "reference",
    by_family: Mapping[str, float] | None = None,
    **options: Unpack[CalibrationOptions],
) -> list[FactorizedCalibration]:
    """Calibrate thresholds of factorized masks for several fusion weights; the model runs once for all families.

    Each family is calibrated on the examples in which it is masked. Contexts are split as in :func:`calibrate_many`,
    in the same way for all families; each family keeps at least as many as its level needs.

    Args:
        model: The model.
        examples: Prompts with references.
        lams: Fusion weights.
        alpha: Risk level of all families together.
        estimator: See :func:`calibrate_many`.
        source: See :func:`calibrate_many`.
        by_family: A level for each family; None shares ``alpha`` out equally among the families found.
        options: See :class:`CalibrationOptions`; those of rollouts have no effect.

    Returns:
        One factorized calibration for each of ``lams``.

    Raises:
        InvalidInputError: As in :func:`calibrate_many`; also when nothing is masked in any example, or the shares of
            ``alpha`` do not fit.
        PromptTooLongError: An example does not fit into the model's context.
        LedgerMismatchError: The ledger belongs to other inputs.
    """
    job = _Job.of(model, examples, lams, alpha, estimator, source, CalibrationSettings(**options), "factorized")
    found = job.values(factorized_values)
    shares = split_alpha(alpha, tuple(found[0]), by_family)
    held_out = job.held_out(found[0], shares)
    unmasked = len(examples) - np.unique(np.concatenate([own.rows for own in found[0].values()])).size
    made = []
    for fingerprint, by_name in zip(job.fingerprints, found, strict=True):
        parts = ((name, job.calibration(fingerprint, v, held_out, shares[name])) for name, v in by_name.items())
        made.append(FactorizedCalibration(alpha, tuple(parts), unmasked=unmasked))
    return made


@dataclass(frozen=True, slots=True)
class _Job:
    """What all thresholds of one run have in common; made, it has checked everything that needs no model."""

    model: LanguageModel
    examples: Sequence[Example]
    prepared: Sequence[Prepared]
    lams: Sequence[float]
    settings: CalibrationSettings
    mask: MaskSettings
    fingerprints: tuple[Fingerprint, ...]
    groups: ContextGroups | None

    @classmethod
    def of(
        cls,
        model: LanguageModel,
        examples: Sequence[Example],
        lams: Sequence[float],
        alpha: float,
        estimator: str,
        source: str,
        settings: CalibrationSettings,
        layout: MaskLayout,
    ) -> _Job:
        if not lams:
            raise InvalidInputError("There is no fusion weight; give at least one lambda.")
        for lam in lams:
            check_lambda(lam)
        check_alpha(alpha)
        check_estimator(estimator)
        if source != "reference":
            raise InvalidInputError(f"Several weights share one pass over references, not over {source!r} contexts.")
        model = steady(model)
        contexts = context_numbers(examples, settings.by_group)
        groups = groups_of(examples) if settings.by_group else None
        mask = settings.mask(layout)
        prepared = prepare(model, examples, contexts, mask, settings.spans)
        kept = mask.keeping({term for item in prepared for term in kept_terms(item.prompt)})
        version = settings.spans.version
        fingerprints = tuple(
            policy_fingerprint(model, lam, settings.sampling, kept, version, estimator, source) for lam in lams
        )
        return cls(model, examples, prepared, lams, settings, mask, fingerprints, groups)

    def values(self, score: Callable[..., _Found]) -> _Found:
        """Score the references with :func:`joint_values` or :func:`factorized_values`."""
        own = self.settings
        if own.ledger is not None:
            # Levels, splits and groups are read off values, so a ledger does not depend on them.
            own.ledger.bind(ledger_key(PHASE, self.fingerprints, self.examples, {}))
        return score(
            self.model,
            self.prepared,
            self.lams,
            own.temperature,
            self.mask,
            progress=own.progress,
            batch_size=own.batch_size,
            ledger=own.ledger,
            room=own.room,
        )

    def held_out(self, values: Mapping[str, CalibrationValues], alphas: Mapping[str, float]) -> list[int]:
        contexts = {name: np.unique(own.contexts).tolist() for name, own in values.items()}
        return held_out_contexts(contexts, alphas, self.settings.verification_share, self.settings.seed, self.groups)

    def calibration(
        self, fingerprint: Fingerprint, values: CalibrationValues, held_out: Sequence[int], alpha: float
    ) -> Calibration:
        """Thresholds from one set of values."""
        return Calibration(
            fingerprint=fingerprint,
            alpha=alpha,
            values=values.select(np.setdiff1d(values.contexts, held_out).tolist()),
            verification=values.select(held_out),
            bin_width=self.settings.bin_width,
            max_position=self.settings.max_position,
            bin_spacing=self.settings.bin_spacing,
            seed=self.settings.seed,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            name=self.settings.name,
            draws=self.settings.draws,
            context_groups=self.groups or ContextGroups(),
        )


def steady(model: LanguageModel) -> LanguageModel:
    """The model with all prompts of one calibration rendered at the same moment.

    Raises:
        InvalidInputError: Its chat template renders the same text in several ways.
    """
    dated = model.dated()
    require_steady(dated.rendering_label)
    return dated


def example_length(model: LanguageModel, example: Example) -> int:
    """Tokens of an example with its reference, to be compared with the model's context."""
    prompt = mask_prompt(model.tokenizer, example.prompt, (), chat=model.prompting)
    reference = example.reference or ""
    text = reference if model.chat else joined(example.prompt, reference)
    return len(prompt.factual_ids) + (len(continuation_ids(model, prompt, text)) if text else 0)


def calibrate_single_branch(
    model: LanguageModel,
    examples: Sequence[Example],
    alpha: float = 0.1,
    estimator: str = "hierarchical",
    **options: Unpack[CalibrationOptions],
) -> Calibration:
    """Calibrate the log-probability of the true next token in the factual reading, on given references.

    Nothing is masked, so that both readings are the factual one and its log-probability is its own joint support.

    Args:
        model: The model.
        examples: Prompts with references; their spans are not looked at.
        alpha: Risk level.
        estimator: ``"hierarchical"``, ``"one_per_context"`` or ``"pooled"``.
        options: See :class:`CalibrationOptions`.

    Returns:
        A calibration that serves only methods that certify in the factual branch.

    Raises:
        InvalidInputError: As :func:`coft_core.calibrate_many` does.
    """
    plain = [replace(example, spans=()) for example in examples]
    (made,) = calibrate_many(model, plain, [0.0], alpha, estimator, **options)
    return replace(made, fingerprint=replace(made.fingerprint, method=SINGLE_BRANCH))
