"""Between a calibration and its file: what is written, what is read back, and writing whole or not at all."""

from __future__ import annotations

import os
import uuid
from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from coft_core.conformal import archive
from coft_core.conformal.groups import ContextGroups
from coft_core.conformal.record import ChainRecord
from coft_core.conformal.shift import Shift
from coft_core.conformal.values import CalibrationValues
from coft_core.digests import same_digests
from coft_core.errors import CalibrationFormatError, InvalidInputError
from coft_core.fingerprint import Fingerprint

if TYPE_CHECKING:
    from coft_core.conformal.calibration import Calibration


class Stored(ABC):
    """What can be written to a file and read back; a subclass says how it becomes bytes and arguments."""

    __slots__ = ()

    @abstractmethod
    def to_bytes(self) -> bytes:
        """The calibration as a file's content; see :mod:`coft_core.conformal.archive`."""

    @classmethod
    @abstractmethod
    def _arguments(cls, data: bytes) -> dict[str, Any]:
        """Arguments of the class from a file's content."""

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Rebuild from :meth:`to_bytes`. Nothing in the data is executed.

        Raises:
            CalibrationFormatError: The data is damaged, of another version or layout, or no calibration.
        """
        try:
            return cls(**cls._arguments(data))
        except InvalidInputError as error:
            raise CalibrationFormatError(f"The calibration holds a setting that is not usable: {error}") from error

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the calibration to a file: whole, or not at all.

        Raises:
            InvalidInputError: The file cannot be written there.
        """
        write(path, self.to_bytes())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a calibration from a file.

        Raises:
            CalibrationFormatError: The file is missing, damaged, of another version or layout, or no calibration.
        """
        data = read(path)
        try:
            return cls.from_bytes(data)
        except CalibrationFormatError as error:
            raise CalibrationFormatError(f"{path}: {error}") from error


def encode(calibration: Calibration) -> bytes:
    """A calibration as a file's content; equal calibrations give equal bytes."""
    parts = {"values": calibration.values.to_bytes(), "verification": calibration.verification.to_bytes()}
    if len(calibration.chosen):
        parts["chosen"] = calibration.chosen.to_bytes()
    settings: dict[str, object] = {
        "fingerprint": calibration.fingerprint.to_dict(),
        "digest": calibration.fingerprint.digest,
        "alpha": calibration.alpha,
        "bin_width": calibration.bin_width,
        "max_position": calibration.max_position,
        "bin_spacing": calibration.bin_spacing,
        "seed": calibration.seed,
        "created": calibration.created,
        "name": calibration.name,
        "draws": calibration.draws,
        "shift": calibration.shift.to_dict(),
        "groups": calibration.context_groups.to_dict(),
        "group": calibration.group or "",
        "chains": calibration.chains.to_dict() if calibration.chains else {},
    }
    return archive.pack(settings, parts)


def decode(data: bytes) -> dict[str, Any]:
    """The arguments of the calibration that :func:`encode` wrote, of this version or an older one.

    Raises:
        CalibrationFormatError: The data is damaged, of another version, or no calibration.
        InvalidInputError: A setting is outside its domain.
    """
    if archive.layout(data) != archive.JOINT:
        raise CalibrationFormatError("This calibration has thresholds of its own for each family; load it as such.")
    settings, parts = archive.unpack(data, ("values", "verification"))
    fingerprint = Fingerprint.from_dict(archive.require(settings, "fingerprint", dict))
    if not same_digests(fingerprint.digest, archive.require(settings, "digest", str)):
        raise CalibrationFormatError("The calibration's fingerprint was changed after it was saved; calibrate again.")
    arguments: dict[str, Any] = {
        "fingerprint": fingerprint,
        "alpha": archive.require(settings, "alpha", float),
        "values": CalibrationValues.from_bytes(parts["values"]),
        "verification": CalibrationValues.from_bytes(parts["verification"]),
        "bin_width": archive.require(settings, "bin_width", int),
        "max_position": archive.require(settings, "max_position", int),
        "bin_spacing": archive.require(settings, "bin_spacing", str) if settings["version"] >= 3 else "even",
        "seed": archive.require(settings, "seed", int),
        "created": archive.require(settings, "created", str),
        "name": archive.require(settings, "name", str),
    }
    if settings["version"] == 1:
        return arguments
    chains = archive.require(settings, "chains", dict)
    return arguments | {
        "draws": archive.require(settings, "draws", int),
        "shift": Shift.from_dict(archive.require(settings, "shift", dict)),
        "context_groups": ContextGroups.from_dict(archive.require(settings, "groups", dict)),
        "group": archive.require(settings, "group", str) or None,
        "chosen": CalibrationValues.from_bytes(parts["chosen"]) if "chosen" in parts else CalibrationValues.empty(),
        "chains": ChainRecord.from_dict(chains) if chains else None,
    }


def write(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a file: whole, or not at all.

    Raises:
        InvalidInputError: The file cannot be written there.
    """
    target = Path(path)
    draft = target.with_name(f".{target.name}.{uuid.uuid4().hex}.part")
    try:
        try:
            with draft.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(target)
        finally:
            draft.unlink(missing_ok=True)
    except OSError as error:
        raise InvalidInputError(
            f"The calibration cannot be written to {target} ({error.strerror}); choose another place."
        ) from error


def read(path: str | os.PathLike[str]) -> bytes:
    """A file's content.

    Raises:
        CalibrationFormatError: The file is missing or cannot be read.
    """
    try:
        return Path(path).read_bytes()
    except FileNotFoundError as error:
        raise CalibrationFormatError(f"There is no calibration file at {path}; check the path.") from error
    except OSError as error:
        raise CalibrationFormatError(f"The calibration file {path} cannot be read ({error.strerror}).") from error
