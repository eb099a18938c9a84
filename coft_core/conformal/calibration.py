"""A calibration: values, the policy that they belong to, and the thresholds read off them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, ClassVar, Literal, Unpack

import numpy as np

from coft_core.conformal import archive
from coft_core.conformal.bins import (
    USUAL_WIDTH,
    Bin,
    BinEvenness,
    BinSpacing,
    PositionBins,
    bin_evenness,
    check_width,
    stepwise_bins,
)
from coft_core.conformal.certifiable import Certifiable, certifiable
from coft_core.conformal.coverage import CoverageReport, coverage_report
from coft_core.conformal.groups import ContextGroups, GroupSummary, group_contexts, group_summary
from coft_core.conformal.informative import silence
from coft_core.conformal.quantile import (
    Estimator,
    check_alpha,
    check_draws,
    check_estimator,
    check_seed,
    exact_alpha,
    minimum_contexts,
)
from coft_core.conformal.record import OTHER_THRESHOLDS, ChainRecord, Reading, ReadingChanges
from coft_core.conformal.rule import Rule
from coft_core.conformal.sequence import (
    ChainCoverage,
    SequenceThreshold,
    chain_coverage,
    sequence_threshold,
    usual_horizon,
)
from coft_core.conformal.shift import EFFECTIVE_FLOOR, Shift
from coft_core.conformal.values import CalibrationValues
from coft_core.errors import InvalidInputError
from coft_core.fingerprint import Fingerprint
from coft_core.types import BinState


@dataclass(frozen=True, slots=True)
class Calibration(archive.Stored):
    """Thresholds by position for one policy, and all that is needed to read them off again.

    Attributes:
        fingerprint: The policy that the values were computed with.
        alpha: Risk level, averaged over the steps of each bin; no single step of a wider bin is promised anything.
        values: Values of the calibration contexts.
        verification: Values of contexts kept apart to measure coverage; may be empty.
        bin_width: Steps per position bin, see :class:`coft_core.conformal.bins.PositionBins`.
        max_position: Steps that get bins of their own; later ones belong to the last bin.
        seed: Seed of the draws (``one_per_context``, coverage).
        created: When it was computed, ISO 8601.
        name: The reviewer's name for it.
        draws: Draws of ``one_per_context`` that are averaged.
        shift: What is assumed of prompts that are not distributed like the calibration's.
        context_groups: Which group each context belongs to; empty unless calibrated by group.
        group: Group that this calibration is restricted to; None for all.
        chosen: Joint support of the tokens that the deployed policy itself chose on calibration prompts, the
            baseline of drift; may be empty.
        chains: How the policy's chains were generated; None for a calibration on references alone.
        bin_spacing: ``finest``: a bin for each step that enough contexts reach; ``widening``: steps 1, 2, 3-4, 5-8,
            then bins of ``bin_width``; ``even``: all of ``bin_width``.
        positions: The position bins; computed.
        bins: The thresholds, one per position bin; computed.
    """

    fingerprint: Fingerprint
    alpha: float
    values: CalibrationValues
    verification: CalibrationValues = field(default_factory=CalibrationValues.empty)
    bin_width: int = USUAL_WIDTH
    max_position: int = 256
    seed: int = 0
    created: str = ""
    name: str = ""
    draws: int = 1
    shift: Shift = field(default_factory=Shift)
    context_groups: ContextGroups = field(default_factory=ContextGroups)
    group: str | None = None
    chosen: CalibrationValues = field(default_factory=CalibrationValues.empty)
    chains: ChainRecord | None = None
    bin_spacing: BinSpacing = "widening"
    layout: ClassVar[Literal["joint"]] = "joint"
    families: ClassVar[tuple[str, ...]] = ()
    positions: PositionBins = field(init=False, compare=False, repr=False)
    bins: tuple[Bin, ...] = field(init=False, compare=False, repr=False)
    _coverage: CoverageReport | None = field(default=None, init=False, compare=False, repr=False)
    _evenness: tuple[BinEvenness, ...] | None = field(default=None, init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Check the settings and read off the thresholds."""
        object.__setattr__(self, "alpha", check_alpha(self.alpha))
        object.__setattr__(self, "seed", check_seed(self.seed))
        object.__setattr__(self, "draws", check_draws(self.draws))
        values = self.values
        level = self.shift.level(self.exact_alpha)
        positions = PositionBins(self.bin_width, self.max_position, self.bin_spacing)
        object.__setattr__(self, "positions", positions.within(values.steps, values.contexts, level, self.shift))
        bins = stepwise_bins(values.values, values.steps, values.contexts, level, self.rule, self.positions)
        object.__setattr__(self, "bins", bins)
        # Contexts kept apart need a weight too; without one the calibration is refused now, not when it is measured.
        self.shift.of(self.verification.contexts)

    @property
    def coverage(self) -> CoverageReport:
        """Coverage on the verification split, overall, by bin and by step.

        Measured when it is first asked for: it takes longer than all thresholds, and most readings of a calibration,
        at one risk level after another, are asked for their thresholds alone.
        """
        measured = self._coverage
        if measured is None:
            level = self.shift.level(self.exact_alpha)
            measured = coverage_report(self._held_out, self.bins, self.positions, level, self.seed)
            object.__setattr__(self, "_coverage", measured)
        return measured

    @property
    def evenness(self) -> tuple[BinEvenness, ...]:
        """Of each bin whose steps could be compared, over all contexts, whether they differ; see :attr:`coverage`."""
        compared = self._evenness
        if compared is None:
            compared = self._compared()
            object.__setattr__(self, "_evenness", compared)
        return compared

    @property
    def parts(self) -> tuple[tuple[None, Calibration], ...]:
        """Itself, of no family: the one part of a calibration with one masked branch."""
        return ((None, self),)

    def part(self, family: str | None) -> Calibration:
        """Itself, which serves every family."""
        return self

    def each(self, change: Callable[[Calibration], Calibration]) -> Calibration:
        """Change its only part."""
        return change(self)

    @property
    def estimator(self) -> Estimator:
        """How dependent values of one context are counted."""
        return check_estimator(self.fingerprint.estimator)

    @property
    def rule(self) -> Rule:
        """How its values become thresholds."""
        return Rule(self.estimator, self.seed, self.draws, self.shift)

    @property
    def exact_alpha(self) -> Fraction:
        """The risk level as the decimal that it prints as."""
        return exact_alpha(self.alpha)

    @property
    def source(self) -> str:
        """Where the contexts come from: ``reference`` or ``rollout``."""
        return self.fingerprint.source

    @property
    def reading(self) -> Reading:
        """How the thresholds are read off the values at present."""
        shift = self.shift
        return Reading(
            self.alpha, self.estimator, self.bin_width, self.max_position, self.draws, shift.rho, self.bin_spacing
        )

    @property
    def as_rolled_out(self) -> bool:
        """Whether the chains, if there are any, were generated with these very thresholds in force."""
        return self.chains is None or (
            self.chains.reading == self.reading and self.shift.kind != "weights" and self.group is None
        )

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences that must be shown with the thresholds; empty when there is nothing to add."""
        sentences = [self.shift.sentence]
        if self.chains is not None and self.source == "rollout":
            sentences += [self.chains.sentence, "" if self.as_rolled_out else OTHER_THRESHOLDS]
        return tuple(sentence for sentence in sentences if sentence)

    @property
    def context_count(self) -> int:
        """Number of contexts that the thresholds rest on; contexts count, not tokens."""
        return self.values.context_count

    @property
    def effective_contexts(self) -> float | None:
        """Effective number of contexts under shift weights; None without weights."""
        return self.shift.effective(np.unique(self.values.contexts).tolist())

    @property
    def groups(self) -> tuple[GroupSummary, ...]:
        """How much is known of each group, in the order of their names; empty unless calibrated by group."""
        return tuple(self._group_summary(name) for name in self.context_groups.names)

    def bin(self, step: int) -> Bin:
        """The bin of a step (0-based)."""
        return self.bins[self.positions.bin_of(step)]

    @property
    def silence(self) -> str:
        """Why none of the thresholds says anything, see :mod:`coft_core.conformal.informative`; empty if one does."""
        if any(entry.state == "calibrated" for entry in self.bins):
            return ""
        return silence(max(entry.log_tau for entry in self.bins))

    def threshold(self, step: int) -> float:
        """``log_tau`` at a step, see :meth:`bin`; ``-inf`` where every token passes."""
        return self.bin(step).log_tau

    def state(self, step: int) -> BinState:
        """What the threshold of a step rests on, see :meth:`bin`."""
        return self.bin(step).state

    def read(self, **changes: Unpack[ReadingChanges]) -> Calibration:
        """Read other thresholds off the same values, without the model; what is left out or None stays as it is.

        A policy's fingerprint names the estimator, so another estimator gives another fingerprint; alpha, the bins,
        the draws and a shift are no part of it. Thresholds of rollouts depend on themselves: read otherwise than they
        were rolled out, they carry a note (:attr:`notes`).

        Raises:
            InvalidInputError: A setting is outside its domain.
        """
        asked: dict[str, Any] = {name: value for name, value in changes.items() if value is not None}
        check_width(asked.get("bin_width", USUAL_WIDTH), asked.get("bin_spacing", self.bin_spacing))
        if (estimator := asked.pop("estimator", None)) is not None:
            asked["fingerprint"] = replace(self.fingerprint, estimator=estimator)
        if (rho := asked.pop("rho", None)) is not None:
            asked["shift"] = Shift.bounded(rho)
        return replace(self, **asked)

    def reweighted(
        self,
        weights: Mapping[int, float],
        test_weight: float | None = None,
        estimated: bool = False,
        floor: float = EFFECTIVE_FLOOR,
    ) -> Calibration:
        """Thresholds for prompts whose density ratio to the calibration's is proportional to weights by context.

        Verification contexts need one too; a new prompt weighs as much as the largest if ``test_weight`` is None.

        Raises:
            InvalidInputError: A context has no weight, or the effective number of contexts is below the floor or
                below what alpha needs.
        """
        shift = Shift.weighted(weights, test_weight, estimated)
        shift.require_effective(np.unique(self.values.contexts), max(floor, minimum_contexts(self.alpha)))
        return replace(self, shift=shift)

    def for_group(self, name: str) -> Calibration:
        """Thresholds of one group alone: they hold for a new context of that group, not only on average.

        Raises:
            InvalidInputError: There is no such group, it has too few contexts for alpha, or weights leave it too few
                effective ones.
        """
        summary = self._group_summary(name)
        if not summary.certifiable:
            raise InvalidInputError(summary.sentence)
        return self.restricted(name)

    def restricted(self, name: str) -> Calibration:
        """The contexts of one group alone, however few they are; see :meth:`for_group`."""
        members = self.context_groups.contexts(name)
        values, verification, chosen = (v.select(members) for v in (self.values, self.verification, self.chosen))
        return replace(self, values=values, verification=verification, chosen=chosen, group=name)

    @property
    def horizon(self) -> int:
        """Steps of a chain that :meth:`sequence` counts if no other horizon is asked for; 0 without values.

        For rollouts the steps that their chains were given, else :func:`coft_core.conformal.sequence.usual_horizon`.
        """
        if self.source == "rollout" and self.chains is not None and len(self.values):
            return self.chains.max_new_tokens
        return usual_horizon(self.values)

    def sequence(self, alpha: float | None = None, horizon: int | None = None) -> SequenceThreshold:
        """Threshold for whole chains (the paper's ``S = max_t s_t``), from the same values.

        It rests on the chains that reach the horizon or end by themselves before it, and speaks of such chains alone.

        Args:
            alpha: Risk level for the whole chain; None takes the calibration's.
            horizon: Steps of a chain that count; None takes :attr:`horizon`.

        Raises:
            InvalidInputError: An argument is outside its domain.
        """
        risk = check_alpha(self.alpha if alpha is None else alpha)
        counted = (self.horizon or None) if horizon is None else horizon
        return replace(
            sequence_threshold(self.values, self.shift.level(exact_alpha(risk)), self.rule, counted), alpha=risk
        )

    def sequence_coverage(self, alpha: float | None = None, horizon: int | None = None) -> ChainCoverage:
        """How many whole chains of the verification split the threshold keeps, overall and by length."""
        threshold = self.sequence(alpha, horizon)
        return chain_coverage(self._held_out, threshold, self.shift.level(exact_alpha(threshold.alpha)), self.seed)

    @property
    def _held_out(self) -> CalibrationValues:
        """The verification split; under shift weights, contexts drawn from it as new prompts would be."""
        if self.shift.kind != "weights":
            return self.verification
        return self.verification.select(self.shift.thinned(np.unique(self.verification.contexts), self.seed).tolist())

    def smallest_alpha(self) -> Certifiable:
        """What can be certified with this: the smallest risk levels with a threshold, overall and by bin."""
        return certifiable(self.values, self.rule, self.positions, self.horizon)

    def _compared(self) -> tuple[BinEvenness, ...]:
        log_tau = np.array([entry.log_tau for entry in self.bins])  # (B,)
        both = (self.values, self.verification)
        values, steps, contexts = (
            np.concatenate([getattr(values, name) for values in both]) for name in ("values", "steps", "contexts")
        )
        return bin_evenness(values >= log_tau[self.positions.bins_of(steps)], contexts, steps, self.positions)

    def _group_summary(self, name: str) -> GroupSummary:
        contexts = group_contexts(self.context_groups, name, self.values, self.verification)
        return group_summary(contexts, self.alpha, self.shift)

    def to_bytes(self) -> bytes:
        """The calibration as a file's content; see :mod:`coft_core.conformal.archive`."""
        return archive.encode(self)

    @classmethod
    def _arguments(cls, data: bytes) -> dict[str, Any]:
        return archive.decode(data)
