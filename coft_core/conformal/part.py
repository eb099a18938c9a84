"""One part of a calibration: the values of one masked branch, and the thresholds read off them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, Unpack

import numpy as np

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
from coft_core.conformal.record import ChainRecord, Reading, ReadingChanges
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
from coft_core.fingerprint import Fingerprint

JOINT = ""
"""Name of the only part of a calibration with one masked branch."""


@dataclass(frozen=True, slots=True)
class Part:
    """Thresholds by position for one masked branch, and all that is needed to read them off again."""

    fingerprint: Fingerprint
    alpha: float
    values: CalibrationValues
    verification: CalibrationValues = field(default_factory=CalibrationValues.empty)
    bin_width: int = USUAL_WIDTH
    max_position: int = 256
    seed: int = 0
    draws: int = 1
    shift: Shift = field(default_factory=Shift)
    context_groups: ContextGroups = field(default_factory=ContextGroups)
    group: str | None = None
    chains: ChainRecord | None = None
    bin_spacing: BinSpacing = "widening"
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
        """Coverage on the verification split, measured when it is first asked for."""
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
            log_tau = np.array([entry.log_tau for entry in self.bins])  # (B,)
            both = CalibrationValues.concat([self.values, self.verification])
            kept = both.values >= log_tau[self.positions.bins_of(both.steps)]  # (n,)
            compared = bin_evenness(kept, both.contexts, both.steps, self.positions)
            object.__setattr__(self, "_evenness", compared)
        return compared

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
    def reading(self) -> Reading:
        """How the thresholds are read off the values at present."""
        rho = self.shift.rho
        return Reading(self.alpha, self.estimator, self.bin_width, self.max_position, self.draws, rho, self.bin_spacing)

    @property
    def as_rolled_out(self) -> bool:
        """Whether the chains, if there are any, were generated with these very thresholds in force."""
        return self.chains is None or (
            self.chains.reading == self.reading and self.shift.kind != "weights" and self.group is None
        )

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
        return tuple(self._group(name) for name in self.context_groups.names)

    def _group(self, name: str) -> GroupSummary:
        contexts = group_contexts(self.context_groups, name, self.values, self.verification)
        return group_summary(contexts, self.alpha, self.shift)

    @property
    def silence(self) -> str:
        """Why none of the thresholds says anything, see :mod:`coft_core.conformal.informative`; empty if one does."""
        if any(entry.state == "calibrated" for entry in self.bins):
            return ""
        return silence(max(entry.log_tau for entry in self.bins))

    def bin(self, step: int) -> Bin:
        """The bin of a step (0-based)."""
        return self.bins[self.positions.bin_of(step)]

    def read(self, **changes: Unpack[ReadingChanges]) -> Part:
        """Other thresholds off the same values; see :meth:`coft_core.Calibration.read`."""
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
    ) -> Part:
        """Thresholds for prompts of another density; see :meth:`coft_core.Calibration.reweighted`."""
        shift = Shift.weighted(weights, test_weight, estimated)
        shift.require_effective(np.unique(self.values.contexts), max(floor, minimum_contexts(self.alpha)))
        return replace(self, shift=shift)

    def restricted(self, group: str) -> Part:
        """The contexts of one group, however few they are."""
        members = self.context_groups.contexts(group)
        values, verification = self.values.select(members), self.verification.select(members)
        return replace(self, values=values, verification=verification, group=group)

    @property
    def horizon(self) -> int:
        """Steps of a chain that :meth:`sequence` counts if no other horizon is asked for; 0 without values.

        For rollouts the steps that their chains were given, else :func:`coft_core.conformal.sequence.usual_horizon`.
        """
        if self.fingerprint.source == "rollout" and self.chains is not None and len(self.values):
            return self.chains.max_new_tokens
        return usual_horizon(self.values)

    def sequence(self, alpha: float | None = None, horizon: int | None = None) -> SequenceThreshold:
        """Threshold for whole chains (the paper's ``S = max_t s_t``), from the same values.

        It rests on the chains that reach the horizon or end by themselves before it, and speaks only of such chains.
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
