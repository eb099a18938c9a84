"""What leaves the program: the report's files, and the evidence bundle with a manifest of their digests."""

from __future__ import annotations

import hashlib
import io
import re
import stat
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from app.calibrate.service import request_from_json
from app.report.document import ReportPart, canonical, digest_of, report_text
from app.report.tables import SessionData, annotations_csv, candidates_csv, steps_csv
from app.report.verify import alone
from app.shared.audits import CalibrationRequest
from app.shared.errors import ServiceError
from app.shared.files import plain_json
from coft_core.assets import assets_path
from coft_core.errors import CoftError
from coft_core.stored_logits import StoredLogits, holds_all
from coft_core.text.user_list import UserList
from coft_core.types import UserTerm
from db.prompt_sets import PromptRow, PromptSetRecord

LARGEST_FILE = 512 * 2**20
"""Bytes of one file of an archive, unpacked."""
LARGEST_TOTAL = 1024 * 2**20
"""Bytes of all files of an archive, unpacked."""
SMALL = 64 * 2**20
"""Bytes that any archive may unpack to, however small it is."""
MOST_TIMES = 100
"""How many times its own size a larger archive may unpack to; reports come to about fifteen."""
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
    """Read all files of an archive into memory; nothing is written anywhere."""
    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
            _check(entries, path.name, path.stat().st_size)
            return {entry.filename: _read(archive, entry) for entry in entries}
    except FileNotFoundError as error:
        raise ServiceError(f"There is no file {path}; check the path.") from error
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError, ValueError) as error:
        raise ServiceError(
            f"{path.name} cannot be read as a bundle ({_reason(error)}); it is damaged, cut short, or another file."
        ) from error


def _check(entries: list[zipfile.ZipInfo], archive: str, size: int) -> None:
    if len(entries) > MOST_FILES:
        raise ServiceError(f"{archive} holds {len(entries)} files; a bundle holds at most {MOST_FILES}.")
    names = [entry.filename for entry in entries]
    for entry in entries:
        name = entry.filename
        plain = name and name == Path(name).name and "\\" not in name and name not in (".", "..") and "\0" not in name
        if not plain or entry.is_dir() or stat.S_ISLNK(entry.external_attr >> 16):
            raise ServiceError(f"{archive} holds {name!r}, which is not a plain file of a bundle; do not unpack it.")
        if names.count(name) > 1:
            raise ServiceError(f"{archive} holds {name!r} twice, so that it is not clear which one counts.")
        if entry.file_size > LARGEST_FILE:
            raise ServiceError(f"{name} in {archive} is larger than {LARGEST_FILE // 2**20} MB; it was not read.")
    total = sum(entry.file_size for entry in entries)
    if total > LARGEST_TOTAL:
        raise ServiceError(f"{archive} unpacks to more than {LARGEST_TOTAL // 2**20} MB; it was not read.")
    if total > max(SMALL, MOST_TIMES * size):
        raise ServiceError(f"{archive} unpacks to more than {MOST_TIMES} times its size; it was not read.")


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


LOGITS_FILE = "logits.zip"
MOST_STEPS = 100_000
LARGEST_STEP = 2 * 2**20
"""Bytes of one step's stored logits; they are compressed, so that more could unpack to more than memory holds."""

_NAME = re.compile(r"branch-(\d+)-step-(\d+)\.bin")


def logits_file(steps: Sequence[tuple[int, int, bytes]]) -> bytes:
    """The archive's content; equal logits give equal bytes."""
    return pack({f"branch-{branch}-step-{index + 1}.bin": data for branch, index, data in steps})


def logits_from(data: bytes) -> dict[tuple[int, int], StoredLogits]:
    """Stored logits by branch id and step index (0-based)."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return dict(_entries(archive))
    except (zipfile.BadZipFile, OSError, RuntimeError, EOFError, CoftError) as error:
        raise ServiceError(f"{LOGITS_FILE} cannot be read ({error}).") from error


def _entries(archive: zipfile.ZipFile) -> Iterator[tuple[tuple[int, int], StoredLogits]]:
    entries = archive.infolist()
    # They are compressed already and stored as they are, so that their sizes are those of the archive's own bytes.
    if len(entries) > MOST_STEPS or any(entry.file_size > entry.compress_size for entry in entries):
        raise ServiceError(f"{LOGITS_FILE} holds more than can be read.")
    for entry in entries:
        named = _NAME.fullmatch(entry.filename)
        if named is None or entry.file_size > LARGEST_STEP:
            raise ServiceError(
                f"{LOGITS_FILE} holds {entry.filename!r}, which is not a step's logits, or too large for them."
            )
        if holds_all(data := archive.read(entry)):
            yield (int(named[1]), int(named[2]) - 1), StoredLogits.from_bytes(data)


PROMPTS_FILE = "calibration_prompts.json"
PROMPTS_KIND = "coft-calibration-prompts"
PROMPTS_VERSION = 1

_ROWS = TypeAdapter(tuple[PromptRow, ...])
_TERMS = TypeAdapter(tuple[UserTerm, ...])


@dataclass(frozen=True, slots=True)
class CalibrationSource:
    """What a calibration was made of."""

    request: CalibrationRequest
    rows: tuple[PromptRow, ...]
    user_list: UserList | None = None


def prompts_file(made_of: CalibrationSource, stored: PromptSetRecord) -> bytes:
    """The file's content; equal prompts give equal bytes."""
    listed = made_of.user_list
    content = {
        "kind": PROMPTS_KIND,
        "version": PROMPTS_VERSION,
        "prompt_set": {"name": stored.name, "filename": stored.filename, "sha256": stored.digest},
        "request": asdict(made_of.request),
        "user_list": None
        if listed is None
        else {"name": listed.name, "terms": [asdict(term) for term in listed.terms]},
        "rows": [{"line": row.line, **asdict(row.example), "weight": row.weight} for row in made_of.rows],
    }
    return (canonical(content, indent=1) + "\n").encode("ascii")


def _nested(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row of the file as :class:`PromptRow` has it."""
    figures = {name: row[name] for name in ("line", "weight")}
    return {**figures, "example": {name: value for name, value in row.items() if name not in figures}}


def prompts_from(data: bytes) -> CalibrationSource:
    """Read the file."""
    try:
        content = plain_json(data)
        if content["kind"] != PROMPTS_KIND or content["version"] != PROMPTS_VERSION:
            raise ServiceError(
                f"{PROMPTS_FILE} is of format {content['version']!r}; this program reads format {PROMPTS_VERSION}."
            )
        listed = content["user_list"]
        return CalibrationSource(
            request_from_json(content["request"]),
            _ROWS.validate_python([_nested(row) for row in content["rows"]]),
            None if listed is None else UserList(listed["name"], _TERMS.validate_python(listed["terms"])),
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, ValidationError, CoftError) as error:
        raise ServiceError(f"{PROMPTS_FILE} cannot be read ({error}); it is damaged, or another file.") from error


KIND = "coft-evidence-bundle"
VERSION = 1

REPORT = "report.json"
STEPS = "steps.csv"
CANDIDATES = "candidates.csv"
ANNOTATIONS = "annotations.csv"
CALIBRATION = "calibration.zip"
MANIFEST = "manifest.json"
TABLES = (STEPS, CANDIDATES, ANNOTATIONS)


def tables_of(data: SessionData) -> dict[str, bytes]:
    """The CSV files of a session by name, as UTF-8."""
    texts = {STEPS: steps_csv(data), CANDIDATES: candidates_csv(data), ANNOTATIONS: annotations_csv(data)}
    # A lone surrogate has no UTF-8; the JSON file keeps it exactly.
    return {name: text.encode("utf-8", "replace") for name, text in texts.items()}


def bundle_of(
    data: SessionData, report: ReportPart, further: Mapping[str, bytes], sign: Callable[[dict[str, object]], object]
) -> bytes:
    """The evidence bundle, with further files by name; the same session and key give the same bytes."""
    files = {REPORT: report_text(report).encode("ascii"), **tables_of(data), **further, **verifiers()}
    stated = manifest_of(report, files)
    manifest = canonical({**stated, "signatures": [sign(stated)]}, indent=1) + "\n"
    return pack({MANIFEST: manifest.encode("ascii"), **files})


def verifiers() -> dict[str, bytes]:
    """What checks a bundle without this program: in Python, and as a page that needs no network."""
    page = assets_path("reports", "verify.html").read_bytes()
    return {"verify.py": Path(alone.__file__).read_bytes(), "verify.html": page}


def bundle_digest(bundle: bytes) -> str:
    """SHA-256 of a bundle's manifest: whoever knows it can tell whether anything in a bundle was exchanged."""
    with zipfile.ZipFile(io.BytesIO(bundle)) as archive:
        return hashlib.sha256(archive.read(MANIFEST)).hexdigest()


def manifest_of(report: ReportPart, files: dict[str, bytes]) -> dict[str, object]:
    """What a bundle says of itself: the digest of every file, and of all that the audit rests on."""
    return {
        "kind": KIND,
        "version": VERSION,
        "program": asdict(report.program),
        "session": {"id": report.session.id, "name": report.session.name},
        "digests": digests_of(report),
        "files": {
            name: {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
            for name, data in sorted(files.items())
        },
        # They are of this very document with an empty list in this place.
        "signatures": [],
    }


def digests_of(report: ReportPart) -> dict[str, object]:
    """Digests of what the audit rests on, as they stand in the report."""
    fingerprint = report.session.fingerprint
    return {
        "model_weights": fingerprint.get("weights"),
        "tokenizer": fingerprint.get("tokenizer"),
        "fingerprint": report.session.fingerprint_digest,
        "calibration": None if report.thresholds is None else report.thresholds.calibration_digest,
        "thresholds": None if report.thresholds is None else report.thresholds.digest,
        "steps": report.steps_digest,
        "prompt": digest_of(report.session.prompt),
        "log_entries": len(report.log),
        "log_head": report.log_head,
    }


def read_manifest(data: bytes) -> dict[str, object]:
    """A bundle's manifest."""
    try:
        manifest = plain_json(data)
        kind, version = manifest["kind"], manifest["version"]
        listed = {str(name): (str(item["sha256"]), int(item["bytes"])) for name, item in manifest["files"].items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ServiceError(f"The bundle's manifest is damaged ({error}).") from error
    if kind != KIND or version != VERSION:
        raise ServiceError(f"The bundle is of format {version!r}; this program reads format {VERSION}.")
    return {**manifest, "files": listed}
