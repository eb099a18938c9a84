"""What leaves the program: the report's files, and the evidence bundle with a manifest of their digests."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from dataclasses import dataclass

from app.services.errors import ServiceError
from app.services.reporting.archive import pack
from app.services.reporting.canonical import canonical
from app.services.reporting.document import digest_of
from app.services.reporting.schema import ReportPart, report_text
from app.services.reporting.tables import annotations_csv, candidates_csv
from app.services.reports import SessionData, steps_csv

KIND = "coft-evidence-bundle"
VERSION = 1

REPORT = "report.json"
STEPS = "steps.csv"
CANDIDATES = "candidates.csv"
ANNOTATIONS = "annotations.csv"
CALIBRATION = "calibration.zip"
MANIFEST = "manifest.json"
TABLES = (STEPS, CANDIDATES, ANNOTATIONS)


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a bundle is made of.

    Attributes:
        data: The stored session.
        report: Its document.
        calibration: File of the calibration that it used; None without one, or where it was deleted.
        extra: Further files by name, such as stored logits.
    """

    data: SessionData
    report: ReportPart
    calibration: bytes | None = None
    extra: tuple[tuple[str, bytes], ...] = ()


def tables_of(data: SessionData) -> dict[str, bytes]:
    """The CSV files of a session by name, as UTF-8."""
    texts = {STEPS: steps_csv(data), CANDIDATES: candidates_csv(data), ANNOTATIONS: annotations_csv(data)}
    # A lone surrogate has no UTF-8; the JSON file keeps it exactly.
    return {name: text.encode("utf-8", "replace") for name, text in texts.items()}


def tables_zip(data: SessionData) -> bytes:
    """An archive of the CSV files."""
    return pack(tables_of(data))


def bundle_of(evidence: Evidence) -> bytes:
    """The evidence bundle; the same session gives the same bytes."""
    files = {REPORT: report_text(evidence.report).encode("ascii"), **tables_of(evidence.data)}
    if evidence.calibration is not None:
        files[CALIBRATION] = evidence.calibration
    files.update(evidence.extra)
    manifest = canonical(manifest_of(evidence.report, files), indent=1) + "\n"
    return pack({MANIFEST: manifest.encode("ascii"), **files})


def bundle_digest(bundle: bytes) -> str:
    """SHA-256 of a bundle's manifest: whoever knows it can tell whether anything in a bundle was exchanged."""
    with zipfile.ZipFile(io.BytesIO(bundle)) as archive:
        return hashlib.sha256(archive.read(MANIFEST)).hexdigest()


def manifest_of(report: ReportPart, files: dict[str, bytes]) -> dict[str, object]:
    """What a bundle says of itself: the digest of every file, and of all that the audit rests on."""
    return {
        "kind": KIND,
        "version": VERSION,
        "program": report.program.model_dump(),
        "session": {"id": report.session.id, "name": report.session.name},
        "digests": digests_of(report),
        "files": {
            name: {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
            for name, data in sorted(files.items())
        },
        # Signatures come with accounts. They will be of this very document with an empty list in this place.
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
    """A bundle's manifest.

    Raises:
        ServiceError: It is damaged, of another version, or no manifest.
    """
    try:
        manifest = json.loads(data)
        kind, version = manifest["kind"], manifest["version"]
        listed = {str(name): (str(item["sha256"]), int(item["bytes"])) for name, item in manifest["files"].items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ServiceError(f"The bundle's manifest is damaged ({error}).") from error
    if kind != KIND or version != VERSION:
        raise ServiceError(f"The bundle is of format {version!r}; this program reads format {VERSION}.")
    return {**manifest, "files": listed}
