"""One calibration per attribute family: thresholds of factorized masks (paper App. "Beyond tokens").

Family k is certified at ``alpha_k`` where its tokens are masked; by the union bound the intersection of all
certificates holds with probability at least ``1 - sum of alpha_k``.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from coft_core.conformal import archive, codec
from coft_core.conformal.calibration import Calibration
from coft_core.conformal.quantile import Estimator, check_alpha, exact_alpha
from coft_core.errors import CalibrationFormatError, InvalidInputError
from coft_core.fingerprint import Fingerprint
from coft_core.masking.partial import in_page_order
from coft_core.types import CertificateState

LAYOUT = "factorized"
SHARE_DECIMALS = 9
"""Digits of an equal share: shares are rounded down, so that their sum stays within alpha."""


def split_alpha(
    alpha: float, families: Sequence[str], by_family: Mapping[str, float] | None = None
) -> dict[str, float]:
    """Share a risk level out among families.

    Args:
        alpha: Risk level of all families together.
        families: The families.
        by_family: A level for each, by hand; None gives each an equal share.

    Returns:
        Level by family; the sum of the levels as printed is at most ``alpha``.

    Raises:
        InvalidInputError: A level is outside (0, 1), the levels sum to more than ``alpha``, or a family is missing.
    """
    total = exact_alpha(alpha)
    if by_family is None:
        share = Fraction(math.floor(total / len(families) * 10**SHARE_DECIMALS), 10**SHARE_DECIMALS)
        return dict.fromkeys(families, check_alpha(float(share)))
    if missing := [name for name in families if name not in by_family]:
        raise InvalidInputError(f"The family {missing[0]!r} has no share of alpha; give one for each family.")
    shares = {name: check_alpha(by_family[name]) for name in families}
    if sum(exact_alpha(share) for share in shares.values()) > total:
        listed = ", ".join(f"{name} {share:g}" for name, share in shares.items())
        raise InvalidInputError(f"The shares ({listed}) sum to more than alpha {alpha:g}; lower one of them.")
    return shares


@dataclass(frozen=True, slots=True)
class FactorizedCalibration:
    """Calibrations by attribute family, for one policy.

    Attributes:
        alpha: Risk level of all families together.
        parts: (family, its calibration), in the order in which pages list families; each at its own level.

    Raises:
        InvalidInputError: There is no part, a family comes twice, the parts belong to different policies, or their
            levels sum to more than ``alpha``.
    """

    alpha: float
    parts: tuple[tuple[str, Calibration], ...]

    def __post_init__(self) -> None:
        """Order and check the parts."""
        object.__setattr__(self, "alpha", check_alpha(self.alpha))
        by_family = dict(self.parts)
        if not self.parts or len(by_family) != len(self.parts):
            raise InvalidInputError("A factorized calibration needs at least one family, and each of them once.")
        names = in_page_order(by_family)
        if len(names) != len(by_family):
            raise InvalidInputError(f"One of the families {', '.join(by_family)} is unknown.")
        object.__setattr__(self, "parts", tuple((name, by_family[name]) for name in names))
        for _, part in self.parts:
            self.fingerprint.require_equal(part.fingerprint)
        split_alpha(self.alpha, names, self.alphas)

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
        return self.parts[0][1].fingerprint

    @property
    def estimator(self) -> Estimator:
        """How dependent values of one context are counted."""
        return self.parts[0][1].estimator

    @property
    def source(self) -> str:
        """Where the contexts come from."""
        return self.fingerprint.source

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
    ) -> FactorizedCalibration:
        """Read other thresholds off the same values, without the model.

        Args:
            alpha: Another risk level of all families together, shared out equally unless ``by_family`` is given.
            by_family: Another level for each family.
            estimator: Another estimator.
            bin_width: Other steps per bin.
            max_position: Another number of steps with bins of their own.

        Raises:
            InvalidInputError: An argument is outside its domain.
        """
        total = self.alpha if alpha is None else alpha
        kept = self.alphas if alpha is None and by_family is None else None
        shares = split_alpha(total, self.families, by_family or kept)
        parts = tuple((name, part.read(shares[name], estimator, bin_width, max_position)) for name, part in self.parts)
        return FactorizedCalibration(total, parts)

    def to_bytes(self) -> bytes:
        """The calibration as a file's content: an archive with one part a family."""
        settings = {"layout": LAYOUT, "alpha": self.alpha, "families": list(self.families)}
        return archive.pack(settings, {name: part.to_bytes() for name, part in self.parts})

    @classmethod
    def from_bytes(cls, data: bytes) -> FactorizedCalibration:
        """Rebuild from :meth:`to_bytes`. Nothing in the data is executed.

        Raises:
            CalibrationFormatError: The data is damaged, of another version, or no factorized calibration.
        """
        settings, _ = archive.unpack(data, ())
        if settings.get("layout") != LAYOUT:
            raise CalibrationFormatError("This calibration has one threshold for all families; load it as such.")
        names = archive.require(settings, "families", list)
        _, parts = archive.unpack(data, [str(name) for name in names])
        try:
            return cls(
                archive.require(settings, "alpha", float),
                tuple((name, Calibration.from_bytes(parts[name])) for name in names),
            )
        except InvalidInputError as error:
            raise CalibrationFormatError(f"The calibration holds a setting that is not usable: {error}") from error

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the calibration to a file: whole, or not at all.

        Raises:
            InvalidInputError: The file cannot be written there.
        """
        codec.write(path, self.to_bytes())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> FactorizedCalibration:
        """Read a factorized calibration from a file.

        Raises:
            CalibrationFormatError: The file is missing, damaged, of another version, or no factorized calibration.
        """
        data = codec.read(path)
        try:
            return cls.from_bytes(data)
        except CalibrationFormatError as error:
            raise CalibrationFormatError(f"{path}: {error}") from error
