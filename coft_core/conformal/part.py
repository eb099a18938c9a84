"""One part of a calibration: the values of one masked branch, how they came about, and the thresholds read off them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, TypedDict, Unpack

import numpy as np
import numpy.typing as npt

from coft_core.conformal.bins import (
    USUAL_WIDTH,
    Bin,
    BinEvenness,
    BinSpacing,
    PositionBins,
    bin_evenness,
    check_width,
    rows_by_bin,
    stepwise_bins,
)
from coft_core.conformal.coverage import CoverageReport, coverage_report
from coft_core.conformal.groups import ContextGroups, GroupSummary, group_summary
from coft_core.conformal.informative import silence
from coft_core.conformal.quantile import (
    Estimator,
    check_alpha,
    check_draws,
    check_estimator,
    check_seed,
    exact_alpha,
    level_at_least,
    minimum_contexts,
)
from coft_core.conformal.rule import Rule
from coft_core.conformal.sequence import (
    ChainCoverage,
    SequenceThreshold,
    chain_coverage,
    sequence_threshold,
    usual_horizon,
    whole_chains,
)
from coft_core.conformal.shift import EFFECTIVE_FLOOR, Shift
from coft_core.conformal.values import CalibrationValues
from coft_core.errors import CalibrationFormatError
from coft_core.fingerprint import Fingerprint

OTHER_THRESHOLDS = (
    "The chains were generated under other thresholds than these, so the level is approximate; "
    "calibrate again with these settings for an exact one."
)


@dataclass(frozen=True, slots=True)
class Reading:
    """How thresholds are read off a calibration's values; another reading of the same values gives other thresholds."""

    alpha: float
    estimator: str
    bin_width: int
    max_position: int
    draws: int = 1
    rho: float = 1.0
    bin_spacing: BinSpacing = "widening"


class ReadingChanges(TypedDict, total=False):
    """Another reading of the same values."""

    alpha: float | None
    estimator: str | None
    bin_width: int | None
    max_position: int | None
    draws: int | None
    rho: float | None
    bin_spacing: str | None


@dataclass(frozen=True, slots=True)
class Iteration:
    """One round of a rollout calibration: chains of fresh contexts under the thresholds of the round before."""

    contexts: int
    values: int
    change: float
    kept: int
    consistent: bool
    final: bool


def is_settled(iteration: Iteration, tolerance: float) -> bool:
    """Whether a round left the thresholds that generated it as they were."""
    return iteration.change <= tolerance and iteration.consistent


@dataclass(frozen=True, slots=True)
class ChainRecord:
    """Chains of the deployed policy that a calibration rests on, or that its drift is measured against."""

    reading: Reading
    max_new_tokens: int
    tolerance: float | None = None
    iterations: tuple[Iteration, ...] = ()

    @property
    def settled(self) -> bool:
        """Whether the last round left the thresholds as they were, at the coverage asked for."""
        if self.tolerance is None or not self.iterations:
            return False
        return is_settled(self.iterations[-1], self.tolerance)

    @property
    def sentence(self) -> str:
        """How the iteration ended."""
        if self.tolerance is None or not self.iterations:
            return "The thresholds were not iterated; chains were generated to measure drift against."
        last, rounds = self.iterations[-1], len(self.iterations)
        measured = (
            f"changed a bin's tau by {last.change:.2g} (allowed: {self.tolerance:g}), and the thresholds before it "
            f"certified {last.kept} of {last.contexts} fresh true tokens"
        )
        if self.settled:
            return f"The thresholds settled: the last of {rounds} rounds {measured}."
        return (
            f"The thresholds did not settle before the budget of {rounds} rounds ended: the last {measured}; "
            "give more prompts, or rely on the measured coverage."
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain dictionary; JSON values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ChainRecord:
        """Rebuild from :meth:`to_dict`."""
        try:
            record = cls(
                # What was written before bins could widen was read in even ones.
                reading=Reading(**dict[str, Any](bin_spacing="even") | data["reading"]),
                max_new_tokens=int(data["max_new_tokens"]),
                tolerance=None if data["tolerance"] is None else float(data["tolerance"]),
                iterations=tuple(Iteration(**entry) for entry in data["iterations"]),
            )
            if any(math.isnan(entry.change) for entry in record.iterations):
                raise ValueError("a change is NaN")
        except (KeyError, TypeError, ValueError) as error:
            raise CalibrationFormatError(f"The calibration's record of its chains is damaged ({error}).") from error
        return record


JOINT = ""
"""Name of the only part of a calibration with one masked branch."""


@dataclass(frozen=True)
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

    @cached_property
    def coverage(self) -> CoverageReport:
        """Coverage on the verification split."""
        level = self.shift.level(self.exact_alpha)
        return coverage_report(self._held_out, self.bins, self.positions, level, self.seed)

    @cached_property
    def evenness(self) -> tuple[BinEvenness, ...]:
        """Of each bin whose steps could be compared, over all contexts, whether they differ."""
        log_tau = np.array([entry.log_tau for entry in self.bins])  # (B,)
        both = CalibrationValues.concat([self.values, self.verification])
        kept = both.values >= log_tau[self.positions.bins_of(both.steps)]  # (n,)
        return bin_evenness(kept, both.contexts, both.steps, self.positions)

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
        parts = self.values, self.verification, self.alpha, self.shift
        return tuple(group_summary(self.context_groups, name, *parts) for name in self.context_groups.names)

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

    def under(self, shift: Shift, floor: float = EFFECTIVE_FLOOR) -> Part:
        """Thresholds under weights of contexts; see :meth:`coft_core.conformal.calibration.Calibration.reweighted`."""
        shift.require_effective(np.unique(self.values.contexts), max(floor, minimum_contexts(self.alpha)))
        return replace(self, shift=shift)

    def restricted(self, group: str) -> Part:
        """The contexts of one group, however few they are."""
        members = self.context_groups.contexts(group)
        values, verification = self.values.select(members), self.verification.select(members)
        return replace(self, values=values, verification=verification, group=group)

    @property
    def horizon(self) -> int:
        """Steps of a chain that :meth:`sequence` counts if no other horizon is asked for; 0 without values."""
        if self.fingerprint.source == "rollout" and self.chains is not None and len(self.values):
            return self.chains.max_new_tokens
        return usual_horizon(self.values)

    def sequence(self, alpha: float | None = None, horizon: int | None = None) -> SequenceThreshold:
        """Threshold for whole chains that reach the horizon or end by themselves (paper: ``S = max_t s_t``)."""
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


@dataclass(frozen=True, slots=True)
class BinSupport:
    """What one position bin supports."""

    label: str
    contexts: int
    smallest_alpha: float | None


@dataclass(frozen=True, slots=True)
class Certifiable:
    """The smallest risk levels that a calibration supports; at any smaller one everything passes."""

    contexts: int
    overall: float | None
    everywhere: float | None
    sequence: float | None
    bins: tuple[BinSupport, ...]


def certifiable(values: CalibrationValues, rule: Rule, positions: PositionBins, horizon: int) -> Certifiable:
    """Find the smallest risk levels that values support, exactly."""

    def smallest(rule: Rule, values: npt.NDArray[np.floating], contexts: npt.NDArray[np.integer]) -> float | None:
        return level_at_least(rule.units(values, contexts).smallest_alpha() / rule.shift.level(Fraction(1)))

    bins = tuple(
        BinSupport(
            positions.label(index),
            int(np.unique(values.contexts[rows]).size),
            smallest(own_rule, values.values[rows], values.contexts[rows]),
        )
        for index, (rows, own_rule) in enumerate(rows_by_bin(values.steps, rule, positions))
        if rows.size
    )
    whole = whole_chains(values, max(horizon, 1))
    known = [entry.smallest_alpha for entry in bins if entry.smallest_alpha is not None]
    return Certifiable(
        contexts=values.context_count,
        overall=min(known, default=None),
        everywhere=(min if positions.spacing == "finest" else max)(known) if len(known) == len(bins) > 0 else None,
        sequence=smallest(rule, whole.minima[whole.counted], whole.contexts[whole.counted]),
        bins=bins,
    )
