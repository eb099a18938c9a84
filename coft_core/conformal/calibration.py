"""A calibration: values, the policy that they belong to, and the thresholds read off them."""

from __future__ import annotations

import os
import uuid
from dataclasses import dataclass, field, replace
from pathlib import Path

from coft_core.conformal import archive
from coft_core.conformal.coverage import CoverageReport, coverage_report
from coft_core.conformal.quantile import Estimator, check_alpha, check_estimator, check_seed
from coft_core.conformal.stepwise import Bin, PositionBins, stepwise_bins
from coft_core.conformal.values import CalibrationValues
from coft_core.errors import CalibrationFormatError, InvalidInputError
from coft_core.fingerprint import Fingerprint
from coft_core.types import BinState


@dataclass(frozen=True, slots=True)
class Calibration:
    """Thresholds by position for one policy, and all that is needed to read them off again.

    Attributes:
        fingerprint: The policy that the values were computed with.
        alpha: Risk level, for every step by itself.
        values: Values of the calibration contexts.
        verification: Values of contexts kept apart to measure coverage; may be empty.
        bin_width: Steps per position bin.
        max_position: Steps that get bins of their own; later ones belong to the last bin.
        seed: Seed of the draws (``one_per_context``, coverage).
        created: When it was computed, ISO 8601.
        name: The reviewer's name for it.
        bins: The thresholds, one per position bin; computed.
        coverage: Coverage on the verification split; computed.
    """

    fingerprint: Fingerprint
    alpha: float
    values: CalibrationValues
    verification: CalibrationValues = field(default_factory=CalibrationValues.empty)
    bin_width: int = 8
    max_position: int = 256
    seed: int = 0
    created: str = ""
    name: str = ""
    bins: tuple[Bin, ...] = field(init=False, compare=False, repr=False)
    coverage: CoverageReport = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Check the settings and read off the thresholds.

        Raises:
            InvalidInputError: Alpha, the estimator, a bin size or the seed is outside its domain.
        """
        object.__setattr__(self, "alpha", check_alpha(self.alpha))
        object.__setattr__(self, "seed", check_seed(self.seed))
        positions = self.positions
        bins = stepwise_bins(
            self.values.values,
            self.values.steps,
            self.values.contexts,
            self.alpha,
            self.estimator,
            positions,
            self.seed,
        )
        object.__setattr__(self, "bins", bins)
        report = coverage_report(self.verification, bins, positions, self.alpha, self.seed)
        object.__setattr__(self, "coverage", report)

    @property
    def estimator(self) -> Estimator:
        """How dependent values of one context are counted."""
        return check_estimator(self.fingerprint.estimator)

    @property
    def source(self) -> str:
        """Where the contexts come from: ``reference`` or ``rollout``."""
        return self.fingerprint.source

    @property
    def positions(self) -> PositionBins:
        """The position bins."""
        return PositionBins(self.bin_width, self.max_position)

    @property
    def context_count(self) -> int:
        """Number of contexts that the thresholds rest on; contexts count, not tokens."""
        return self.values.context_count

    def bin(self, step: int) -> Bin:
        """The bin of a step (0-based).

        Raises:
            InvalidInputError: The step is negative.
        """
        return self.bins[self.positions.bin_of(step)]

    def threshold(self, step: int) -> float:
        """``log_tau`` at a step (0-based); ``-inf`` where every token passes.

        Raises:
            InvalidInputError: The step is negative.
        """
        return self.bin(step).log_tau

    def state(self, step: int) -> BinState:
        """What the threshold of a step (0-based) rests on.

        Raises:
            InvalidInputError: The step is negative.
        """
        return self.bin(step).state

    def read(
        self,
        alpha: float | None = None,
        estimator: str | None = None,
        bin_width: int | None = None,
        max_position: int | None = None,
    ) -> Calibration:
        """Read other thresholds off the same values, without the model.

        A policy's fingerprint names the estimator, so another estimator gives another fingerprint; alpha and
        the bins are no part of it.

        Args:
            alpha: Another risk level; None keeps the present one, here and below.
            estimator: Another estimator.
            bin_width: Other steps per bin.
            max_position: Another number of steps with bins of their own.

        Raises:
            InvalidInputError: An argument is outside its domain.
        """
        name = self.estimator if estimator is None else check_estimator(estimator)
        return replace(
            self,
            fingerprint=replace(self.fingerprint, estimator=name),
            alpha=self.alpha if alpha is None else alpha,
            bin_width=self.bin_width if bin_width is None else bin_width,
            max_position=self.max_position if max_position is None else max_position,
        )

    def to_bytes(self) -> bytes:
        """The calibration as a file's content; see :mod:`coft_core.conformal.archive`."""
        return archive.pack(
            {
                "fingerprint": self.fingerprint.to_dict(),
                "digest": self.fingerprint.digest,
                "alpha": self.alpha,
                "bin_width": self.bin_width,
                "max_position": self.max_position,
                "seed": self.seed,
                "created": self.created,
                "name": self.name,
            },
            {"values": self.values.to_bytes(), "verification": self.verification.to_bytes()},
        )

    @classmethod
    def from_bytes(cls, data: bytes) -> Calibration:
        """Rebuild from :meth:`to_bytes`. Nothing in the data is executed.

        Raises:
            CalibrationFormatError: The data is damaged, of another version, or no calibration.
        """
        settings, parts = archive.unpack(data, ("values", "verification"))
        fingerprint = Fingerprint.from_dict(archive.require(settings, "fingerprint", dict))
        if fingerprint.digest != archive.require(settings, "digest", str):
            raise CalibrationFormatError(
                "The calibration's fingerprint was changed after it was saved; calibrate again."
            )
        try:
            return cls(
                fingerprint=fingerprint,
                alpha=archive.require(settings, "alpha", float),
                values=CalibrationValues.from_bytes(parts["values"]),
                verification=CalibrationValues.from_bytes(parts["verification"]),
                bin_width=archive.require(settings, "bin_width", int),
                max_position=archive.require(settings, "max_position", int),
                seed=archive.require(settings, "seed", int),
                created=archive.require(settings, "created", str),
                name=archive.require(settings, "name", str),
            )
        except InvalidInputError as error:
            raise CalibrationFormatError(f"The calibration holds a setting that is not usable: {error}") from error

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the calibration to a file: whole, or not at all.

        Raises:
            InvalidInputError: The file cannot be written there.
        """
        target = Path(path)
        draft = target.with_name(f".{target.name}.{uuid.uuid4().hex}.part")
        try:
            try:
                with draft.open("xb") as file:
                    file.write(self.to_bytes())
                    file.flush()
                    os.fsync(file.fileno())
                draft.replace(target)
            finally:
                draft.unlink(missing_ok=True)
        except OSError as error:
            raise InvalidInputError(
                f"The calibration cannot be written to {target} ({error.strerror}); choose another place."
            ) from error

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Calibration:
        """Read a calibration from a file.

        Raises:
            CalibrationFormatError: The file is missing, damaged, of another version, or no calibration.
        """
        try:
            data = Path(path).read_bytes()
        except FileNotFoundError as error:
            raise CalibrationFormatError(f"There is no calibration file at {path}; check the path.") from error
        except OSError as error:
            raise CalibrationFormatError(f"The calibration file {path} cannot be read ({error.strerror}).") from error
        try:
            return cls.from_bytes(data)
        except CalibrationFormatError as error:
            raise CalibrationFormatError(f"{path}: {error}") from error
