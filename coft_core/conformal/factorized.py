"""One calibration per attribute family: thresholds of factorized masks (paper App. "Beyond tokens").

Family k is certified at ``alpha_k`` where its tokens are masked; by the union bound the intersection of all
certificates holds with probability at least ``1 - sum of alpha_k``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from coft_core.conformal import archive, codec, intersection
from coft_core.conformal.calibration import Calibration
from coft_core.conformal.certifiable import Certifiable
from coft_core.conformal.coverage import CoverageReport
from coft_core.conformal.quantile import Estimator, check_alpha, exact_alpha
from coft_core.conformal.record import OTHER_THRESHOLDS, ChainRecord, Reading
from coft_core.conformal.shares import split_alpha
from coft_core.conformal.shift import EFFECTIVE_FLOOR, Shift
from coft_core.conformal.values import CalibrationValues
from coft_core.errors import CalibrationFormatError, InvalidInputError
from coft_core.fingerprint import Fingerprint
from coft_core.masking.partial import in_page_order
from coft_core.types import CertificateState


@dataclass(frozen=True, slots=True)
class FactorizedCalibration(codec.Stored):
    """Calibrations by attribute family, for one policy.

    Attributes:
        alpha: Risk level of all families together.
        parts: (family, its calibration), in the order in which pages list families; each at its own level.
        chosen: Joint support of the tokens that the deployed policy itself chose on calibration prompts, against the
            mean of the families' masked views as an audit shows it: the baseline of drift; may be empty.
        unmasked: Calibration prompts in which no family is masked; they play no part.
        coverage: Coverage of all families' certificates together on the contexts kept apart; computed.

    Raises:
        InvalidInputError: There is no part, a family comes twice, the parts belong to different policies or differ in
            bins, shift or seed, or their levels sum to more than ``alpha``.
    """

    alpha: float
    parts: tuple[tuple[str, Calibration], ...]
    chosen: CalibrationValues = field(default_factory=CalibrationValues.empty)
    unmasked: int = 0
    coverage: CoverageReport = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Order and check the parts, and measure their coverage together."""
        object.__setattr__(self, "alpha", check_alpha(self.alpha))
        by_family = dict(self.parts)
        if not self.parts or len(by_family) != len(self.parts):
            raise InvalidInputError("A factorized calibration needs at least one family, and each of them once.")
        names = in_page_order(by_family)
        if len(names) != len(by_family):
            raise InvalidInputError(f"One of the families {', '.join(by_family)} is unknown.")
        object.__setattr__(self, "parts", tuple((name, by_family[name]) for name in names))
        for name, part in self.parts:
            self.fingerprint.require_equal(part.fingerprint)
            if _common(part) != _common(self._first):
                raise InvalidInputError(
                    f"The family {name!r} has other position bins, another shift, seed or group than {names[0]!r}; "
                    "read all families alike."
                )
        split_alpha(self.alpha, names, self.alphas)
        object.__setattr__(self, "coverage", intersection.intersected_coverage(by_family, exact_alpha(self.alpha)))

    @property
    def _first(self) -> Calibration:
        return self.parts[0][1]

    @property
    def families(self) -> tuple[str, ...]:
        """The calibrated families."""
        return tuple(name for name, _ in self.parts)

    @property
    def alphas(self) -> dict[str, float]:
        """Risk level by family."""
        return {name: part.alpha for name, part in self.parts}

    @property
    def fingerprint(self) -> Fingerprint:
        """The policy that the values were computed with, equal in all parts."""
        return self._first.fingerprint

    @property
    def estimator(self) -> Estimator:
        """How dependent values of one context are counted."""
        return self._first.estimator

    @property
    def source(self) -> str:
        """Where the contexts come from: ``reference`` or ``rollout``."""
        return self.fingerprint.source

    @property
    def name(self) -> str:
        """The reviewer's name for it."""
        return self._first.name

    @property
    def created(self) -> str:
        """When it was computed, ISO 8601."""
        return self._first.created

    @property
    def group(self) -> str | None:
        """Group that it is restricted to; None for all."""
        return self._first.group

    @property
    def groups(self) -> tuple[str, ...]:
        """Names of the groups that it can be restricted to; empty unless calibrated by group."""
        return self._first.context_groups.names

    @property
    def reading(self) -> Reading:
        """How the thresholds are read off the values at present; its alpha is that of all families together."""
        return replace(self._first.reading, alpha=self.alpha)

    @property
    def chains(self) -> ChainRecord | None:
        """How the policy's chains were generated, with all families' levels together; None without chains."""
        records = [part.chains for _, part in self.parts if part.chains is not None]
        if not records:
            return None
        alpha = float(sum(exact_alpha(record.reading.alpha) for record in records))
        return replace(records[0], reading=replace(records[0].reading, alpha=alpha))

    @property
    def as_rolled_out(self) -> bool:
        """Whether the chains, if there are any, were generated with these very thresholds in force."""
        return all(part.as_rolled_out for _, part in self.parts)

    @property
    def context_count(self) -> int:
        """Number of contexts that the thresholds of any family rest on."""
        return int(np.unique(np.concatenate([part.values.contexts for _, part in self.parts])).size)

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences that must be shown with the thresholds; empty when there is nothing to add."""
        sentences = [self._first.shift.sentence]
        if self.source == "rollout" and (record := self._first.chains) is not None:
            sentences += [record.sentence, "" if self.as_rolled_out else OTHER_THRESHOLDS]
        sentences += intersection.family_notes(dict(self.parts), self.unmasked, self.coverage.contexts)
        return tuple(sentence for sentence in sentences if sentence)

    @property
    def silence(self) -> str:
        """Why no family's thresholds say anything; empty if one of them does."""
        found = [part.silence for _, part in self.parts]
        return found[0] if all(found) else ""

    def part(self, family: str) -> Calibration | None:
        """A family's calibration; None if no calibration prompt had it masked."""
        return dict(self.parts).get(family)

    def threshold(self, family: str, step: int) -> tuple[float, CertificateState]:
        """A family's log-threshold at a step (0-based) and what it rests on.

        A family that was never calibrated certifies everything and is called uninformative: it cannot be violated, so
        the bound on the intersection stands.
        """
        part = self.part(family)
        return (-math.inf, "uninformative") if part is None else (part.threshold(step), part.state(step))

    def read(
        self,
        alpha: float | None = None,
        by_family: Mapping[str, float] | None = None,
        estimator: str | None = None,
        bin_width: int | None = None,
        max_position: int | None = None,
        draws: int | None = None,
        rho: float | None = None,
        bin_spacing: str | None = None,
    ) -> FactorizedCalibration:
        """Read other thresholds off the same values, without the model; see :meth:`Calibration.read`.

        Args:
            alpha: Another risk level of all families together, shared out equally unless ``by_family`` is given.
            by_family: Another level for each family.
            estimator: Another estimator.
            bin_width: Other steps per bin.
            max_position: Another number of steps with bins of their own.
            draws: Another number of draws of ``one_per_context``.
            rho: Another bound on the density ratio of the deployment prompts.
            bin_spacing: Another spacing of the bins.

        Raises:
            InvalidInputError: An argument is outside its domain.
        """
        shares = self._shares(alpha, by_family)
        total = self.alpha if alpha is None else alpha
        read = {
            name: part.read(shares[name], estimator, bin_width, max_position, draws, rho, bin_spacing)
            for name, part in self.parts
        }
        return replace(self, alpha=total, parts=tuple(read.items()))

    def reweighted(
        self,
        weights: Mapping[int, float],
        test_weight: float | None = None,
        estimated: bool = False,
        floor: float = EFFECTIVE_FLOOR,
    ) -> FactorizedCalibration:
        """Thresholds for prompts of another density, family by family; see :meth:`Calibration.reweighted`.

        Raises:
            InvalidInputError: A context has no weight, or the weights leave a family too few effective contexts.
        """
        shift = Shift.weighted(weights, test_weight, estimated)
        return replace(self, parts=intersection.reweighted_parts(self.parts, shift, floor))

    def for_group(self, name: str) -> FactorizedCalibration:
        """Thresholds of one group alone; a family with too few contexts in it refuses nothing, and a note says so.

        Raises:
            InvalidInputError: There is no such group, or too few contexts in it, under weights of any one family.
        """
        intersection.check_group(dict(self.parts), name)
        parts = tuple((family, part.restricted(name)) for family, part in self.parts)
        return replace(self, parts=parts, chosen=self.chosen.select(self._first.context_groups.contexts(name)))

    def sequence(self, alpha: float | None = None, horizon: int | None = None) -> intersection.FamilySequences:
        """Thresholds for whole chains, one a family: together they hold for a whole chain (union bound).

        Args:
            alpha: Risk level for the whole chain and all families, shared out equally; None takes the calibration's
                own levels.
            horizon: Steps of a chain that count; None takes the least that any family with a threshold has for its
                own, see :attr:`Calibration.horizon`.

        Raises:
            InvalidInputError: An argument is outside its domain.
        """
        shares = self._shares(alpha)
        own = [(name, part.sequence(shares[name])) for name, part in self.parts]
        common = horizon or min((found.horizon for _, found in own if found.state == "calibrated"), default=None)
        thresholds = tuple((name, part.sequence(shares[name], common)) for name, part in self.parts)
        return intersection.FamilySequences(self.alpha if alpha is None else check_alpha(alpha), thresholds)

    def smallest_alpha(self) -> Certifiable:
        """What can be certified with this: the smallest levels that, shared out equally, give every family a threshold.

        A family without any supported true token is left out; it refuses nothing at any level.
        """
        return intersection.intersected_certifiable(dict(self.parts), self.context_count)

    def _shares(self, alpha: float | None, by_family: Mapping[str, float] | None = None) -> dict[str, float]:
        """Levels by family: by hand, else equal for another alpha, else the present ones."""
        kept = self.alphas if alpha is None else None
        return split_alpha(self.alpha if alpha is None else alpha, self.families, by_family or kept)

    def to_bytes(self) -> bytes:
        """The calibration as a file's content: an archive with one part a family."""
        parts = {name: part.to_bytes() for name, part in self.parts}
        if len(self.chosen):
            parts[_CHOSEN] = self.chosen.to_bytes()
        settings = {
            "layout": archive.FACTORIZED,
            "alpha": self.alpha,
            "families": list(self.families),
            "unmasked": self.unmasked,
        }
        return archive.pack(settings, parts)

    @classmethod
    def _arguments(cls, data: bytes) -> dict[str, Any]:
        if archive.layout(data) != archive.FACTORIZED:
            raise CalibrationFormatError("This calibration has one threshold for all families; load it as such.")
        settings, _ = archive.unpack(data, ())
        names = [str(name) for name in archive.require(settings, "families", list)]
        _, parts = archive.unpack(data, names)
        arguments: dict[str, Any] = {
            "alpha": archive.require(settings, "alpha", float),
            "parts": tuple((name, Calibration.from_bytes(parts[name])) for name in names),
            "unmasked": archive.require({"unmasked": 0, **settings}, "unmasked", int),
        }
        return arguments | ({"chosen": CalibrationValues.from_bytes(parts[_CHOSEN])} if _CHOSEN in parts else {})


_CHOSEN = "chosen tokens"
"""Part of a file that holds the policy's own choices; no family has this name."""


def load_calibration(data: bytes) -> Calibration | FactorizedCalibration:
    """Rebuild a calibration of either layout from a file's content.

    Args:
        data: What ``to_bytes`` of either class wrote.

    Raises:
        CalibrationFormatError: The data is damaged, of another version, or no calibration.
    """
    if archive.layout(data) == archive.FACTORIZED:
        return FactorizedCalibration.from_bytes(data)
    return Calibration.from_bytes(data)


def _common(part: Calibration) -> tuple[object, ...]:
    """What all families share, so that their certificates can be intersected."""
    return (part.positions, part.shift, part.seed, part.draws, part.group, part.context_groups)
