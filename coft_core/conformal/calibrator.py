"""Calibration on a model: joint support of the true next tokens of given references (paper Sec. 3.4, offline part)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypedDict, Unpack

import numpy as np

from coft_core.conformal.calibration import Calibration
from coft_core.conformal.factorized import FactorizedCalibration, split_alpha
from coft_core.conformal.quantile import check_alpha, check_estimator, minimum_contexts
from coft_core.conformal.scoring import Prepared, Progress, factorized_values, joint_values, prepare
from coft_core.conformal.split import check_share, with_context_ids
from coft_core.conformal.values import CalibrationValues
from coft_core.engine.model import LanguageModel
from coft_core.errors import InvalidInputError
from coft_core.fingerprint import Fingerprint
from coft_core.fusion import check_lambda
from coft_core.masking.continuation import continuation_ids, joined
from coft_core.masking.masker import DEFAULT_HINT, MaskMode, mask_prompt
from coft_core.masking.settings import MaskLayout, MaskSettings
from coft_core.masking.spans import SpanDetector, default_detector
from coft_core.masking.whitelist import kept_terms
from coft_core.policies.fingerprint import policy_fingerprint
from coft_core.sampling import Sampling
from coft_core.types import Example


class ReferenceOptions(TypedDict, total=False):
    """Options of a calibration on references; what is left out has the default of the policies.

    Attributes:
        temperature: Temperature of the policy that will use the thresholds.
        top_p: Its nucleus mass.
        top_k: Its number of tokens kept.
        sentinel: Its sentinel; None takes the tokenizer's own.
        mask_mode: Its mask mode.
        mask_hint: Hint of its soft mask.
        families: Attribute families that it masks; None is all.
        whitelist: Terms that it never masks. What an example keeps is added, see :func:`calibrate_many`.
        bin_width: Steps that share a threshold.
        max_position: Steps beyond are tied to the last bin.
        verification_share: Share of the contexts kept apart.
        seed: Seed of the split and of ``one_per_context``.
        detector: Finds spans where an example has none; the default one if None.
        progress: Called after each batch.
        name: Name of the calibration.
        batch_size: Examples of one batch at most; None leaves it to their lengths.
    """

    temperature: float
    top_p: float
    top_k: int
    sentinel: str | None
    mask_mode: MaskMode
    mask_hint: str
    families: tuple[str, ...] | None
    whitelist: tuple[str, ...]
    bin_width: int
    max_position: int
    verification_share: float
    seed: int
    detector: SpanDetector | None
    progress: Progress | None
    name: str
    batch_size: int | None


def calibrate(
    model: LanguageModel,
    examples: Sequence[Example],
    lam: float = 0.6,
    alpha: float = 0.1,
    estimator: str = "hierarchical",
    source: str = "reference",
    **options: Unpack[ReferenceOptions],
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
    **options: Unpack[ReferenceOptions],
) -> list[Calibration]:
    """Calibrate thresholds on the references of given prompts for several fusion weights; the model runs once.

    Contexts (examples that share a ``context``, or else a ``group``, are one) are split at random, in the same way for
    every weight: one part gives the thresholds, the other is kept apart and gives the empirical coverage. The
    calibration part keeps at least as many contexts as ``alpha`` needs, whatever the share. A missing space between
    prompt and reference is supplied. What the examples keep from masking is put on the whitelist in the fingerprint,
    so that the thresholds serve only policies that keep the same.

    Args:
        model: The model.
        examples: Prompts with references.
        lams: Fusion weights.
        alpha: Risk level.
        estimator: ``"hierarchical"``, ``"one_per_context"`` or ``"pooled"``.
        source: ``"reference"``: teacher-forced on each prompt's reference.
        options: See :class:`ReferenceOptions`.

    Returns:
        One calibration with all its values for each of ``lams``.

    Raises:
        InvalidInputError: A parameter is outside its range, there is no weight or example, or an example (named by its
            number) has no reference.
        PromptTooLongError: An example does not fit into the model's context.
    """
    job = _Job(model, alpha, estimator, source, _Settings(**options), "joint")
    prepared = job.prepare(examples, lams)
    found = joint_values(model, prepared, lams, job.settings.temperature, job.mask, *job.run_options)
    held_out = _held_out(_contexts_by_family({"": found[0]}), {"": alpha}, job.settings)
    return [
        job.calibration(job.fingerprint(lam, prepared), values, held_out, alpha)
        for lam, values in zip(lams, found, strict=True)
    ]


def calibrate_factorized(
    model: LanguageModel,
    examples: Sequence[Example],
    lams: Sequence[float] = (0.6,),
    alpha: float = 0.1,
    estimator: str = "hierarchical",
    source: str = "reference",
    by_family: Mapping[str, float] | None = None,
    **options: Unpack[ReferenceOptions],
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
        options: See :class:`ReferenceOptions`.

    Returns:
        One factorized calibration for each of ``lams``.

    Raises:
        InvalidInputError: As in :func:`calibrate_many`; also when nothing is masked in any example, or the shares of
            ``alpha`` do not fit.
        PromptTooLongError: An example does not fit into the model's context.
    """
    job = _Job(model, alpha, estimator, source, _Settings(**options), "factorized")
    prepared = job.prepare(examples, lams)
    found = factorized_values(model, prepared, lams, job.settings.temperature, job.mask, *job.run_options)
    shares = split_alpha(alpha, tuple(found[0]), by_family)
    held_out = _held_out(_contexts_by_family(found[0]), shares, job.settings)
    made = []
    for lam, by_name in zip(lams, found, strict=True):
        fingerprint = job.fingerprint(lam, prepared)
        parts = ((name, job.calibration(fingerprint, v, held_out, shares[name])) for name, v in by_name.items())
        made.append(FactorizedCalibration(alpha, tuple(parts)))
    return made


@dataclass(frozen=True, slots=True)
class _Settings:
    """The options with their defaults."""

    temperature: float = 1.0
    top_p: float = 0.9
    top_k: int = 0
    sentinel: str | None = None
    mask_mode: MaskMode = "hard"
    mask_hint: str = DEFAULT_HINT
    families: tuple[str, ...] | None = None
    whitelist: tuple[str, ...] = ()
    bin_width: int = 8
    max_position: int = 256
    verification_share: float = 0.25
    seed: int = 0
    detector: SpanDetector | None = None
    progress: Progress | None = None
    name: str = ""
    batch_size: int | None = None


@dataclass(frozen=True, slots=True)
class _Job:
    """What all thresholds of one run have in common."""

    model: LanguageModel
    alpha: float
    estimator: str
    source: str
    settings: _Settings
    layout: MaskLayout

    @property
    def mask(self) -> MaskSettings:
        own = self.settings
        return MaskSettings(own.mask_mode, own.mask_hint, own.sentinel, own.families, self.layout, own.whitelist)

    @property
    def run_options(self) -> tuple[Progress | None, int | None]:
        return self.settings.progress, self.settings.batch_size

    def prepare(self, examples: Sequence[Example], lams: Sequence[float]) -> list[Prepared]:
        """Check everything that can be checked before the model runs."""
        if not lams:
            raise InvalidInputError("There is no fusion weight; give at least one lambda.")
        for lam in lams:
            check_lambda(lam)
        check_alpha(self.alpha)
        check_estimator(self.estimator)
        if self.source != "reference":
            raise InvalidInputError(f"There is no context source {self.source!r}; use 'reference'.")
        check_share(self.settings.verification_share)
        _ = self._sampling
        detector = self.settings.detector or default_detector()
        return prepare(self.model, with_context_ids(examples), self.mask, detector)

    @property
    def _sampling(self) -> Sampling:
        return Sampling(self.settings.temperature, self.settings.top_p, self.settings.top_k)

    def fingerprint(self, lam: float, prepared: Sequence[Prepared]) -> Fingerprint:
        """The fingerprint of the policy, with all that the examples keep on its whitelist."""
        kept = {term for item in prepared for term in kept_terms(item.prompt)}
        detector = self.settings.detector or default_detector()
        mask = self.mask.keeping(kept)
        return policy_fingerprint(self.model, lam, self._sampling, mask, detector.version, self.estimator, self.source)

    def calibration(
        self, fingerprint: Fingerprint, values: CalibrationValues, held_out: Sequence[int], alpha: float
    ) -> Calibration:
        """Thresholds from one set of values."""
        kept = np.setdiff1d(values.contexts, held_out)
        return Calibration(
            fingerprint=fingerprint,
            alpha=alpha,
            values=values.select(kept.tolist()),
            verification=values.select(held_out),
            bin_width=self.settings.bin_width,
            max_position=self.settings.max_position,
            seed=self.settings.seed,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            name=self.settings.name,
        )


def _contexts_by_family(values: Mapping[str, CalibrationValues]) -> dict[str, set[int]]:
    return {name: set(np.unique(own.contexts).tolist()) for name, own in values.items()}


def _held_out(contexts: Mapping[str, set[int]], alphas: Mapping[str, float], settings: _Settings) -> list[int]:
    """Contexts kept apart: the wanted share, as far as every family keeps as many as its level needs."""
    everything = sorted(set().union(*contexts.values()))
    wanted = math.floor(settings.verification_share * len(everything))
    spare = {name: len(own) - minimum_contexts(alphas[name]) for name, own in contexts.items()}
    chosen: list[int] = []
    for context in np.random.default_rng(settings.seed).permutation(everything).tolist():
        touched = [name for name, own in contexts.items() if context in own]
        if len(chosen) < wanted and all(spare[name] > 0 for name in touched):
            chosen.append(context)
            spare.update({name: spare[name] - 1 for name in touched})
    return chosen


def example_length(model: LanguageModel, example: Example) -> int:
    """Tokens of an example with its reference, to be compared with the model's context."""
    prompt = mask_prompt(model.tokenizer, example.prompt, (), chat=model.chat)
    reference = example.reference or ""
    text = reference if model.chat else joined(example.prompt, reference)
    return len(prompt.factual_ids) + (len(continuation_ids(model, prompt, text)) if text else 0)
