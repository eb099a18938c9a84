"""Between a calibration and its file: what is written, what is read back, and writing whole or not at all.

Data that are damaged, of another version or layout, or no calibration at all are a :class:`CalibrationFormatError`.
"""

from __future__ import annotations

import io
import json
import os
import uuid
import zipfile
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

from coft_core.conformal.groups import ContextGroups
from coft_core.conformal.record import ChainRecord
from coft_core.conformal.shift import Shift
from coft_core.conformal.values import CalibrationValues
from coft_core.errors import CalibrationFormatError, InvalidInputError
from coft_core.fingerprint import Fingerprint, same_digests

if TYPE_CHECKING:
    from coft_core.conformal.calibration import Calibration


VERSION = 3
"""Version of the file format that is written."""

READABLE = (1, 2, 3)
"""Versions that are read; another is refused, never guessed at. Version 1 had no chains, groups or shift, and
before version 3 all bins were even."""

JOINT, FACTORIZED = "joint", "factorized"
"""Layouts: one set of thresholds, or one for each attribute family. A file that names none is joint."""

_KIND = "coft-calibration"
_SETTINGS = "calibration.json"
_Setting = TypeVar("_Setting")


def pack(settings: Mapping[str, object], parts: Mapping[str, bytes]) -> bytes:
    """Build the file's content; equal contents give equal bytes."""
    header = {"kind": _KIND, "version": VERSION, **settings, "parts": sorted(parts)}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        # ZipInfo's default date is fixed, so the bytes do not depend on the clock.
        text = json.dumps(header, indent=2, ensure_ascii=False)
        archive.writestr(zipfile.ZipInfo(_SETTINGS), text, compress_type=zipfile.ZIP_DEFLATED)
        for name, data in parts.items():
            archive.writestr(zipfile.ZipInfo(f"{name}.npz"), data)
    return buffer.getvalue()


def unpack(data: bytes, names: Iterable[str]) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Take a file's content apart."""
    # A missing part counts as damage: the end of a cut file can look like a whole archive of other content.
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            settings = json.loads(archive.read(_SETTINGS))
            _check_version(settings)
            listed = settings.get("parts", [])
            return settings, {name: archive.read(f"{name}.npz") for name in dict.fromkeys([*names, *listed])}
    except (zipfile.BadZipFile, zlib.error, KeyError, EOFError, OSError, RuntimeError) as error:
        raise CalibrationFormatError(
            "This is no calibration file, or it is damaged; use a file that was saved as a calibration."
        ) from error
    except CalibrationFormatError:
        raise
    except ValueError as error:
        raise CalibrationFormatError(f"The calibration file's settings are damaged ({error}).") from error


def layout(data: bytes) -> str:
    """Layout of a file: :data:`JOINT` or :data:`FACTORIZED`."""
    settings, _ = unpack(data, ())
    layout = settings.get("layout", JOINT)
    if layout not in (JOINT, FACTORIZED):
        raise CalibrationFormatError(f"The calibration's layout is {layout!r}, which this program does not know.")
    return str(layout)


def require(settings: Mapping[str, Any], name: str, kind: type[_Setting]) -> _Setting:
    """A setting of the type that it must have; a whole number serves as a float."""
    if name not in settings:
        raise CalibrationFormatError(f"The calibration lacks the setting {name!r}.")
    value = settings[name]
    if kind is float and type(value) is int:
        value = float(value)
    if not isinstance(value, kind) or isinstance(value, bool):
        raise CalibrationFormatError(f"The calibration's setting {name!r} is {value!r}, which is no {kind.__name__}.")
    return value


def _check_version(settings: object) -> None:
    if not isinstance(settings, dict) or settings.get("kind") != _KIND:
        raise CalibrationFormatError("This file's settings are not those of a calibration; choose another file.")
    if (version := settings.get("version")) not in READABLE:
        raise CalibrationFormatError(
            f"The calibration was saved in format {version}; this program reads formats {READABLE[0]} to "
            f"{READABLE[-1]}. Calibrate again."
        )
    parts = settings.get("parts", [])
    if not isinstance(parts, list) or not all(isinstance(part, str) for part in parts):
        raise CalibrationFormatError(f"The calibration's list of parts is {parts!r}, which is no list of names.")


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
        """Rebuild from :meth:`to_bytes`. Nothing in the data is executed."""
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
        """Read a calibration from a file."""
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
    return pack(settings, parts)


def decode(data: bytes) -> dict[str, Any]:
    """The arguments of the calibration that :func:`encode` wrote, of this version or an older one."""
    if layout(data) != JOINT:
        raise CalibrationFormatError("This calibration has thresholds of its own for each family; load it as such.")
    settings, parts = unpack(data, ("values", "verification"))
    fingerprint = Fingerprint.from_dict(require(settings, "fingerprint", dict))
    if not same_digests(fingerprint.digest, require(settings, "digest", str)):
        raise CalibrationFormatError("The calibration's fingerprint was changed after it was saved; calibrate again.")
    arguments: dict[str, Any] = {
        "fingerprint": fingerprint,
        "alpha": require(settings, "alpha", float),
        "values": CalibrationValues.from_bytes(parts["values"]),
        "verification": CalibrationValues.from_bytes(parts["verification"]),
        "bin_width": require(settings, "bin_width", int),
        "max_position": require(settings, "max_position", int),
        "bin_spacing": require(settings, "bin_spacing", str) if settings["version"] >= 3 else "even",
        "seed": require(settings, "seed", int),
        "created": require(settings, "created", str),
        "name": require(settings, "name", str),
    }
    if settings["version"] == 1:
        return arguments
    chains = require(settings, "chains", dict)
    return arguments | {
        "draws": require(settings, "draws", int),
        "shift": Shift.from_dict(require(settings, "shift", dict)),
        "context_groups": ContextGroups.from_dict(require(settings, "groups", dict)),
        "group": require(settings, "group", str) or None,
        "chosen": CalibrationValues.from_bytes(parts["chosen"]) if "chosen" in parts else CalibrationValues.empty(),
        "chains": ChainRecord.from_dict(chains) if chains else None,
    }


def write(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a file: whole, or not at all."""
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
    """A file's content."""
    try:
        return Path(path).read_bytes()
    except FileNotFoundError as error:
        raise CalibrationFormatError(f"There is no calibration file at {path}; check the path.") from error
    except OSError as error:
        raise CalibrationFormatError(f"The calibration file {path} cannot be read ({error.strerror}).") from error
