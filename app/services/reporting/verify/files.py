"""Checks of a bundle's files: digests, and that the tables say what the report says."""

from __future__ import annotations

import csv
import hashlib
import io
from collections.abc import Mapping
from typing import cast

from app.services.reporting.bundle import CALIBRATION, MANIFEST, TABLES, digests_of, tables_of
from app.services.reporting.document import steps_digest, thresholds_digest
from app.services.reporting.verify.findings import Findings, failed, skipped
from app.services.reporting.verify.loaded import Loaded
from app.services.views.verification import Check

NO_BUNDLE = "a report alone was given; its bundle has the other files"


def check_files(loaded: Loaded) -> Check:
    """Every file that the manifest lists is there as it was written, and no other."""
    name = "Files of the bundle"
    if loaded.files is None or loaded.manifest is None:
        return skipped(name, NO_BUNDLE)
    found = Findings(name)
    listed = cast(Mapping[str, tuple[str, int]], loaded.manifest["files"])
    for file, (digest, size) in listed.items():
        data = loaded.files.get(file)
        if not found.expect(data is not None, f"{file} is missing."):
            continue
        fits = data is not None and len(data) == size and hashlib.sha256(data).hexdigest() == digest
        found.expect(fits, f"{file} was changed: its SHA-256 is not that of the manifest.")
    for file in loaded.files.keys() - listed.keys() - {MANIFEST}:
        found.expect(False, f"{file} is in the bundle, and the manifest does not list it.")
    return found.check(f"{len(listed)} files by SHA-256")


def check_digests(loaded: Loaded) -> Check:
    """Digests of steps, thresholds, calibration and log are those of what the report holds."""
    report = loaded.report
    found = Findings("Digests in the report")
    found.same("report.json", "the digest of the steps", report.steps_digest, steps_digest(report.branches))
    found.same(
        "report.json", "the head of the verdict log", report.log_head, report.log[-1].digest if report.log else ""
    )
    if report.thresholds is not None and loaded.files is not None and CALIBRATION in loaded.files:
        actual = hashlib.sha256(loaded.files[CALIBRATION]).hexdigest()
        found.same("report.json", "the digest of the calibration", report.thresholds.calibration_digest, actual)
    if report.thresholds is not None:
        own = thresholds_digest(report.thresholds.families)
        found.same("report.json", "the digest of the thresholds", report.thresholds.digest, own)
    if loaded.manifest is not None:
        stated = loaded.manifest.get("digests")
        stated = stated if isinstance(stated, dict) else {}
        for key, value in digests_of(report).items():
            found.same("manifest.json", key, stated.get(key), value)
        found.same("manifest.json", "the program", loaded.manifest.get("program"), report.program.model_dump())
        session = {"id": report.session.id, "name": report.session.name}
        found.same("manifest.json", "the session", loaded.manifest.get("session"), session)
    return found.check()


def check_table(loaded: Loaded, file: str) -> Check:
    """A table says cell by cell what the report says."""
    if loaded.files is None:
        return skipped(file, NO_BUNDLE)
    data = loaded.files.get(file)
    if data is None:
        return failed(file, f"{file} is missing.")
    expected = _rows(tables_of(loaded.data())[file])
    try:
        actual = _rows(data)
    except (UnicodeDecodeError, csv.Error) as error:
        return failed(file, f"{file} is no CSV text in UTF-8 ({error}).")
    found = Findings(file)
    header = expected[0]
    stated = actual[0] if actual else []
    # Tables of earlier versions have fewer columns, in the same order.
    fewer = [column for column in header if column not in stated]
    found.same(file, "the header", stated, [column for column in header if column not in fewer])
    found.same(file, "the number of rows", len(actual) - 1, len(expected) - 1)
    skip = _unknown_columns(loaded)
    for line, (own, other) in enumerate(zip(actual[1:], expected[1:], strict=False), 2):
        if not found.expect(len(own) == len(stated), f"{file}, line {line}: it has {len(own)} cells."):
            continue
        cells = dict(zip(header, other, strict=True))
        for column, cell in zip(stated, own, strict=True):
            if column in cells and column not in skip:
                place = f"{file}, line {line}, column {column}"
                found.expect(
                    cell == cells[column], f"{place}: it says {cell!r}, and the report says {cells[column]!r}."
                )
    rows = f"{max(len(expected) - 1, 0):,} rows, cell by cell"
    return found.check(rows + (f"; without {', '.join(fewer)}, which this version adds" if fewer else ""))


def check_tables(loaded: Loaded) -> tuple[Check, ...]:
    """All tables."""
    return tuple(check_table(loaded, file) for file in TABLES)


def _unknown_columns(loaded: Loaded) -> frozenset[str]:
    """Columns that need a calibration which is not in the bundle, or were written under a rule that claimed more."""
    missing = loaded.report.thresholds is not None and loaded.lacks_calibration
    return frozenset({"chain_certificate"}) if missing or loaded.claims_longest_chain else frozenset()


def _rows(data: bytes) -> list[list[str]]:
    return list(csv.reader(io.StringIO(data.decode("utf-8"), newline="")))
