"""Zip archives with the same bytes for the same content, and careful reading of archives from elsewhere."""

from __future__ import annotations

import io
import os
import stat
import tempfile
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path

from app.services.errors import ServiceError

LARGEST_FILE = 512 * 2**20
"""Bytes of one file of an archive, unpacked."""
LARGEST_TOTAL = 1024 * 2**20
"""Bytes of all files of an archive, unpacked."""
MOST_FILES = 64
STORED_ALREADY_COMPRESSED = (".zip", ".npz", ".bin")

_EPOCH = (1980, 1, 1, 0, 0, 0)
_PIECE = 2**20


def pack(files: Mapping[str, bytes]) -> bytes:
    """Build an archive; equal files in equal order give equal bytes, whenever and wherever it is built."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name, _EPOCH)
            # The system and the rights are part of an archive's bytes and otherwise follow the computer.
            entry.create_system, entry.external_attr = 3, (stat.S_IFREG | 0o644) << 16
            compressed = name.endswith(STORED_ALREADY_COMPRESSED)
            archive.writestr(entry, data, zipfile.ZIP_STORED if compressed else zipfile.ZIP_DEFLATED, 9)
    return buffer.getvalue()


def unpack(path: Path) -> dict[str, bytes]:
    """Read all files of an archive into memory; nothing is written anywhere.

    Raises:
        ServiceError: It is no archive, is damaged or encrypted, names a file outside itself or twice, or is too large.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
            _check(entries, path.name)
            return {entry.filename: _read(archive, entry) for entry in entries}
    except FileNotFoundError as error:
        raise ServiceError(f"There is no file {path}; check the path.") from error
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError, ValueError) as error:
        raise ServiceError(
            f"{path.name} cannot be read as a bundle ({_reason(error)}); it is damaged, cut short, or another file."
        ) from error


def write_bytes(path: Path, data: bytes) -> Path:
    """Write a file so that it is either whole or not there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return path


def _check(entries: list[zipfile.ZipInfo], archive: str) -> None:
    if len(entries) > MOST_FILES:
        raise ServiceError(f"{archive} holds {len(entries)} files; a bundle holds at most {MOST_FILES}.")
    names = [entry.filename for entry in entries]
    for entry in entries:
        name = entry.filename
        plain = name and name == Path(name).name and "\\" not in name and name not in (".", "..") and "\0" not in name
        if not plain or entry.is_dir() or stat.S_ISLNK(entry.external_attr >> 16):
            raise ServiceError(f"{archive} holds {name!r}, which is no plain file of a bundle; do not unpack it.")
        if names.count(name) > 1:
            raise ServiceError(f"{archive} holds {name!r} twice, so that it is not clear which one counts.")
        if entry.file_size > LARGEST_FILE:
            raise ServiceError(f"{name} in {archive} is larger than {LARGEST_FILE // 2**20} MB; it was not read.")
    if sum(entry.file_size for entry in entries) > LARGEST_TOTAL:
        raise ServiceError(f"{archive} unpacks to more than {LARGEST_TOTAL // 2**20} MB; it was not read.")


def _read(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> bytes:
    """A file's bytes; never more than its header says, so that the limits hold whatever the header says."""
    pieces, size = [], 0
    with archive.open(entry) as file:
        while piece := file.read(_PIECE):
            size += len(piece)
            if size > entry.file_size:
                raise ServiceError(f"{entry.filename} is larger than the archive says; it was not read.")
            pieces.append(piece)
    return b"".join(pieces)


def _reason(error: Exception) -> str:
    return " ".join(str(error).split()).rstrip(".") or type(error).__name__
