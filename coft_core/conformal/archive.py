"""A calibration as a file: what is written and read back; whatever is unusable is a :class:`CalibrationFormatError`."""

from __future__ import annotations

import io
import json
import os
import uuid
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from coft_core.conformal.groups import ContextGroups
from coft_core.conformal.part import JOINT, ChainRecord, Part
from coft_core.conformal.shift import Shift
from coft_core.conformal.values import CalibrationValues
from coft_core.errors import CalibrationFormatError, InvalidInputError
from coft_core.fingerprint import Fingerprint, same_digests

if TYPE_CHECKING:
    from coft_core.conformal.calibration import Calibration


VERSION = 3
"""Version of the file format that is written."""

READABLE = (1, 2, 3)
"""Version 1 had no chains, groups or shift; before version 3 all bins were even."""

FACTORIZED = "factorized"
"""Layout of an archive for each attribute family; without a layout, a file holds the values of one part."""

_KIND = "coft-calibration"
_SETTINGS = "calibration.json"
_CHOSEN = "chosen tokens"
"""Part of a factorized file that holds the policy's own choices; no family has this name."""

_Setting = TypeVar("_Setting")


def encode(calibration: Calibration) -> bytes:
    """A calibration as a file's content; equal calibrations give equal bytes."""
    label = {"created": calibration.created, "name": calibration.name}
    if calibration.layout == "joint":
        return _encoded_part(calibration.joint, calibration.chosen, label)
    nothing = CalibrationValues.empty()
    parts = {name: _encoded_part(part, nothing, label) for name, part in calibration.parts}
    if len(calibration.chosen):
        parts[_CHOSEN] = calibration.chosen.to_bytes()
    settings = {
        "layout": FACTORIZED,
        "alpha": calibration.alpha,
        "families": list(calibration.families),
        "unmasked": calibration.unmasked,
    }
    return _packed(settings, parts)


def decode(data: bytes) -> dict[str, Any]:
    """The arguments of the calibration that :func:`encode` wrote, of this version or an older one."""
    settings, parts = _unpacked(data)
    layout = settings.get("layout", "joint")
    if layout == "joint":
        part, rest = _decoded_part(settings, parts)
        return {"alpha": part.alpha, "parts": ((JOINT, part),), **rest}
    if layout != FACTORIZED:
        raise CalibrationFormatError(f"The calibration's layout is {layout!r}, which this program does not know.")
    names = [str(name) for name in _required(settings, "families", list)]
    if missing := [name for name in names if name not in parts]:
        raise CalibrationFormatError(f"The calibration lacks the thresholds of the family {missing[0]!r}.")
    decoded = {name: _decoded_part(*_unpacked(parts[name])) for name in names}
    label = next((rest for _, rest in decoded.values()), {})
    return {
        **label,
        "alpha": _required(settings, "alpha", float),
        "parts": tuple((name, part) for name, (part, _) in decoded.items()),
        "unmasked": _required({"unmasked": 0, **settings}, "unmasked", int),
        "chosen": _chosen(parts, _CHOSEN),
    }


def _encoded_part(part: Part, chosen: CalibrationValues, label: Mapping[str, str]) -> bytes:
    parts = {"values": part.values.to_bytes(), "verification": part.verification.to_bytes()}
    if len(chosen):
        parts["chosen"] = chosen.to_bytes()
    settings: dict[str, object] = {
        "fingerprint": part.fingerprint.to_dict(),
        "digest": part.fingerprint.digest,
        "alpha": part.alpha,
        "bin_width": part.bin_width,
        "max_position": part.max_position,
        "bin_spacing": part.bin_spacing,
        "seed": part.seed,
        **label,
        "draws": part.draws,
        "shift": part.shift.to_dict(),
        "groups": part.context_groups.to_dict(),
        "group": part.group or "",
        "chains": part.chains.to_dict() if part.chains else {},
    }
    return _packed(settings, parts)


def _decoded_part(settings: dict[str, Any], parts: dict[str, bytes]) -> tuple[Part, dict[str, Any]]:
    """A part, and what its file says of the whole calibration."""
    if not {"values", "verification"} <= parts.keys():
        raise CalibrationFormatError(_DAMAGED)
    fingerprint = Fingerprint.from_dict(_required(settings, "fingerprint", dict))
    if not same_digests(fingerprint.digest, _required(settings, "digest", str)):
        raise CalibrationFormatError("The calibration's fingerprint was changed after it was saved; calibrate again.")
    arguments: dict[str, Any] = {
        "fingerprint": fingerprint,
        "alpha": _required(settings, "alpha", float),
        "values": CalibrationValues.from_bytes(parts["values"]),
        "verification": CalibrationValues.from_bytes(parts["verification"]),
        "bin_width": _required(settings, "bin_width", int),
        "max_position": _required(settings, "max_position", int),
        "bin_spacing": _required(settings, "bin_spacing", str) if settings["version"] >= 3 else "even",
        "seed": _required(settings, "seed", int),
    }
    rest = {name: _required(settings, name, str) for name in ("created", "name")}
    if settings["version"] == 1:
        return Part(**arguments), rest
    chains = _required(settings, "chains", dict)
    arguments |= {
        "draws": _required(settings, "draws", int),
        "shift": Shift.from_dict(_required(settings, "shift", dict)),
        "context_groups": ContextGroups.from_dict(_required(settings, "groups", dict)),
        "group": _required(settings, "group", str) or None,
        "chains": ChainRecord.from_dict(chains) if chains else None,
    }
    return Part(**arguments), {**rest, "chosen": _chosen(parts, "chosen")}


def _chosen(parts: Mapping[str, bytes], name: str) -> CalibrationValues:
    return CalibrationValues.from_bytes(parts[name]) if name in parts else CalibrationValues.empty()


def _packed(settings: Mapping[str, object], parts: Mapping[str, bytes]) -> bytes:
    header = {"kind": _KIND, "version": VERSION, **settings, "parts": sorted(parts)}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        # ZipInfo's default date is fixed, so the bytes do not depend on the clock.
        text = json.dumps(header, indent=2, ensure_ascii=False)
        archive.writestr(zipfile.ZipInfo(_SETTINGS), text, compress_type=zipfile.ZIP_DEFLATED)
        for name, data in parts.items():
            archive.writestr(zipfile.ZipInfo(f"{name}.npz"), data)
    return buffer.getvalue()


def _unpacked(data: bytes) -> tuple[dict[str, Any], dict[str, bytes]]:
    """A file's settings, and its parts by name."""
    # A missing part counts as damage: the end of a cut file can look like a whole archive of other content.
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            settings = json.loads(archive.read(_SETTINGS))
            _check_version(settings)
            present = [name.removesuffix(".npz") for name in archive.namelist() if name.endswith(".npz")]
            names = dict.fromkeys([*present, *settings.get("parts", [])])
            return settings, {name: archive.read(f"{name}.npz") for name in names}
    except (zipfile.BadZipFile, zlib.error, KeyError, EOFError, OSError, RuntimeError) as error:
        raise CalibrationFormatError(_DAMAGED) from error
    except CalibrationFormatError:
        raise
    except ValueError as error:
        raise CalibrationFormatError(f"The calibration file's settings are damaged ({error}).") from error


_DAMAGED = "This is no calibration file, or it is damaged; use a file that was saved as a calibration."


def _required(settings: Mapping[str, Any], name: str, kind: type[_Setting]) -> _Setting:
    """A setting of the type that it must have; a whole number serves as a float."""
    if name not in settings:
        raise CalibrationFormatError(f"The calibration lacks the setting {name!r}.")
    value = settings[name]
    if kind is float and type(value) is int:
        value = float(value)
    if not isinstance(value, kind) or isinstance(value, bool):
        raise CalibrationFormatError(
            f"The calibration's setting {name!r} is {value!r}, which is not of the type {kind.__name__}."
        )
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
        raise CalibrationFormatError(f"The calibration's list of parts is {parts!r}, which is not a list of names.")


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
