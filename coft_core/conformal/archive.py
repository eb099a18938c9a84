"""The file of a calibration: a zip archive of readable settings (JSON) and compressed arrays."""

from __future__ import annotations

import io
import json
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from coft_core.errors import CalibrationFormatError

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
    """Build the file's content; equal contents give equal bytes.

    Args:
        settings: What goes into the readable part; JSON values.
        parts: Compressed arrays by name.
    """
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
    """Take a file's content apart.

    Args:
        data: The content.
        names: Names of the parts that it must have.

    Returns:
        The settings, and the parts by name: those of ``names``, and any other that the settings list.

    Raises:
        CalibrationFormatError: The data is damaged, of another version, or no calibration.
    """
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
    """Layout of a file: :data:`JOINT` or :data:`FACTORIZED`.

    Raises:
        CalibrationFormatError: The data is damaged, of another version or an unknown layout, or no calibration.
    """
    settings, _ = unpack(data, ())
    found = settings.get("layout", JOINT)
    if found not in (JOINT, FACTORIZED):
        raise CalibrationFormatError(f"The calibration's layout is {found!r}, which this program does not know.")
    return str(found)


def require(settings: Mapping[str, Any], name: str, kind: type[_Setting]) -> _Setting:
    """A setting of the type that it must have; a whole number serves as a float.

    Raises:
        CalibrationFormatError: It is missing or has another type.
    """
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
