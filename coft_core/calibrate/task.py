"""What a calibration rests on, wherever its contexts come from: prompts, policies, levels, and how values are read."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from coft_core.calibrate.settings import CalibrationOptions
from coft_core.conformal.calibration import Calibration, split_alpha
from coft_core.conformal.groups import ContextGroups
from coft_core.conformal.part import JOINT, Part
from coft_core.conformal.quantile import check_alpha, check_estimator, one_of
from coft_core.conformal.split import context_numbers, groups_of, held_out_contexts
from coft_core.conformal.values import CalibrationValues
from coft_core.errors import InvalidInputError
from coft_core.fingerprint import Fingerprint
from coft_core.model.language_model import LanguageModel
from coft_core.policies.base import Policy
from coft_core.policies.coft import FusedPolicy
from coft_core.policies.factorized import PREFIX
from coft_core.text.detection import SpanDetector
from coft_core.text.masking import MaskedPrompt, kept_terms
from coft_core.text.rendering import require_steady
from coft_core.text.turns import common_frame, framed
from coft_core.types import Example, in_page_order

READ_BY = ("bin_width", "max_position", "bin_spacing", "seed", "draws")
"""Options by which thresholds are read off values."""

SOURCES = ("reference", "rollout")
"""Where contexts can come from."""

NOTHING_MASKED = "Nothing is masked in any calibration prompt, so no family can be calibrated; mark sensitive spans."


def masked_views(policy: Policy, prompt: MaskedPrompt) -> dict[str, tuple[int, ...]]:
    """Tokens of each masked view of a prompt under a policy: :data:`JOINT`, or the families that have a branch."""
    branches = policy.branches(prompt)[1:]
    if policy.mask.layout == "joint":
        return {JOINT: branches[0].input_ids}
    return {branch.name.removeprefix(PREFIX): branch.input_ids for branch in branches}


@dataclass(frozen=True, slots=True)
class Prepared:
    """An example in tokens; its row counts from 1."""

    prompt: MaskedPrompt
    context: int
    row: int
    continuation: tuple[int, ...] = ()

    @property
    def length(self) -> int:
        """Tokens of prompt and continuation."""
        return len(self.prompt.factual_ids) + len(self.continuation)


def prepared(
    examples: Sequence[Example],
    contexts: Sequence[int],
    tokens: Callable[[Example], tuple[MaskedPrompt, tuple[int, ...]]],
) -> Iterator[Prepared]:
    """Examples in tokens; what cannot be used is refused with the example's number."""
    if not examples:
        raise InvalidInputError("There are no calibration prompts; give at least one.")
    for row, (example, context) in enumerate(zip(examples, contexts, strict=True), start=1):
        try:
            prompt, continuation = tokens(example)
        except InvalidInputError as error:
            raise InvalidInputError(f"Example {row}: {error}") from error
        yield Prepared(prompt, context, row, continuation)


def framed_examples(
    model: LanguageModel, examples: Sequence[Example], detector: SpanDetector
) -> tuple[LanguageModel, tuple[Example, ...]]:
    """Examples in the model's frame, and the model with the frame that all of them have."""
    frame = model.prompting.frame
    placed = []
    for example in examples:
        prompt, spans = framed(example.prompt, example.spans, frame, detector.detect)
        placed.append(replace(example, prompt=prompt, spans=spans))
    return model.framed(common_frame((example.prompt for example in placed), frame.thinking)), tuple(placed)


@dataclass(frozen=True, slots=True)
class Task:
    """What all thresholds of one run have in common; :meth:`of` has checked everything that needs no model."""

    model: LanguageModel
    policies: tuple[FusedPolicy, ...]
    examples: Sequence[Example]
    contexts: Sequence[int]
    alpha: float
    by_family: Mapping[str, float] | None
    estimator: str
    source: str
    settings: CalibrationOptions
    groups: ContextGroups | None

    @classmethod
    def of(
        cls,
        kind: type[FusedPolicy],
        model: LanguageModel,
        examples: Sequence[Example],
        lams: Sequence[float],
        alpha: float,
        estimator: str,
        source: str,
        settings: CalibrationOptions,
        by_family: Mapping[str, float] | None = None,
    ) -> Task:
        """Check what is asked; arguments as for :func:`coft_core.calibrate_factorized`, for a kind of policy."""
        if not lams:
            raise InvalidInputError("There is no fusion weight; give at least one lambda.")
        controls: dict[str, Any] = {
            name: getattr(settings, name)
            for name in ("temperature", "top_p", "top_k", "sentinel", "mask_mode", "mask_hint", "families", "whitelist")
        }
        # All prompts of one calibration are rendered at the same moment.
        model = model.dated()
        require_steady(model.rendering_label)
        model, examples = framed_examples(model, examples, settings.spans)
        return cls(
            model=model,
            policies=tuple(kind(lam, **controls) for lam in lams),
            examples=examples,
            contexts=context_numbers(examples, settings.by_group),
            alpha=check_alpha(alpha),
            by_family=by_family,
            estimator=check_estimator(estimator),
            source=one_of(SOURCES, source, "context source"),
            settings=settings,
            groups=groups_of(examples) if settings.by_group else None,
        )

    def keeping(self, prompts: Iterable[MaskedPrompt]) -> Task:
        """The task with policies that never mask what the prompts keep, so that thresholds serve only such policies."""
        terms = {term for prompt in prompts for term in kept_terms(prompt)}
        return replace(self, policies=tuple(policy.keeping(terms) for policy in self.policies))

    @property
    def fingerprints(self) -> tuple[Fingerprint, ...]:
        """Fingerprint of each policy with thresholds of this estimator and source."""
        version = self.settings.spans.version
        return tuple(
            replace(policy.fingerprint(self.model, version), estimator=self.estimator, source=self.source)
            for policy in self.policies
        )

    def levels(self, views: Iterable[str]) -> dict[str, float]:
        """Risk level of each masked view that occurs."""
        if self.policies[0].mask.layout == "joint":
            return {JOINT: self.alpha}
        if not (families := in_page_order(views)):
            raise InvalidInputError(NOTHING_MASKED)
        return split_alpha(self.alpha, families, self.by_family)

    def held_out(self, contexts: Mapping[str, Collection[int]], levels: Mapping[str, float]) -> list[int]:
        """Contexts kept apart to measure coverage, of those in which each masked view occurs."""
        return held_out_contexts(contexts, levels, self.settings.verification_share, self.settings.seed, self.groups)

    def thresholds(self, fingerprint: Fingerprint, alpha: float, values: CalibrationValues, **rest: Any) -> Part:
        """Thresholds of one masked view."""
        return Part(
            fingerprint=fingerprint,
            alpha=alpha,
            values=values,
            context_groups=self.groups or ContextGroups(),
            **{name: getattr(self.settings, name) for name in READ_BY},
            **rest,
        )

    def assembled(
        self, parts: Mapping[str, Part], chosen: CalibrationValues | None = None, unmasked: int = 0
    ) -> Calibration:
        """The finished calibration of the masked views' thresholds."""
        return Calibration(
            alpha=self.alpha,
            parts=tuple(parts.items()),
            chosen=chosen or CalibrationValues.empty(),
            unmasked=unmasked,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            name=self.settings.name,
        )
