"""Stored logits in a bundle: one archive with a file a step, named by branch and step."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Iterator, Sequence

from app.services.errors import CoftError, ServiceError
from app.services.reporting.archive import LARGEST_TOTAL, pack
from coft_core.stored import StoredLogits

FILE = "logits.zip"
MOST_STEPS = 100_000
LARGEST_STEP = 2 * 2**20
"""Bytes of one step's stored logits; they are compressed, so that more could unpack to more than memory holds."""

_NAME = re.compile(r"branch-(\d+)-step-(\d+)\.bin")


def logits_file(steps: Sequence[tuple[int, int, bytes]]) -> bytes:
    """The archive's content; equal logits give equal bytes.

    Args:
        steps: Branch id, step index (0-based) and stored logits of each step that kept them.
    """
    return pack({f"branch-{branch}-step-{index + 1}.bin": data for branch, index, data in steps})


def logits_from(data: bytes) -> dict[tuple[int, int], StoredLogits]:
    """Stored logits by branch id and step index (0-based).

    Raises:
        ServiceError: The archive is damaged, too large, or holds another file.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return dict(_entries(archive))
    except (zipfile.BadZipFile, OSError, RuntimeError, EOFError, CoftError) as error:
        raise ServiceError(f"{FILE} cannot be read ({error}).") from error


def _entries(archive: zipfile.ZipFile) -> Iterator[tuple[tuple[int, int], StoredLogits]]:
    entries = archive.infolist()
    if len(entries) > MOST_STEPS or sum(entry.file_size for entry in entries) > LARGEST_TOTAL:
        raise ServiceError(f"{FILE} holds more than can be read.")
    for entry in entries:
        named = _NAME.fullmatch(entry.filename)
        if named is None or entry.file_size > LARGEST_STEP:
            raise ServiceError(f"{FILE} holds {entry.filename!r}, which is no step's logits, or too large for them.")
        yield (int(named[1]), int(named[2]) - 1), StoredLogits.from_bytes(archive.read(entry))
