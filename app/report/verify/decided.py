"""Verification of a bundle of decisions: its numbers follow from its rows, and its rows from its outcomes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from app.report.bundle import MANIFEST, read_manifest
from app.report.decided import DECISIONS, decided_digests, decided_files
from app.report.signing import SIGNATURES
from app.report.verify.findings import Check, Comparing, Untold, Verification, check, same
from app.report.verify.structure import check_files, check_signature
from app.shared.decisions import DecidedRun, Runs, reader, run_json
from app.shared.errors import ServiceError
from app.shared.files import plain_json

SENTENCES = ("finding", "said", "notes")
"""What the program says of the numbers, in its own words."""
TOLERANCE = 1e-9


@dataclass(frozen=True)
class Decided:
    """A bundle of decisions that was read, as the checks of files and signatures take it."""

    files: Mapping[str, bytes]
    manifest: Mapping[str, object]


def verify_decided(
    path: Path, files: Mapping[str, bytes], known: Mapping[str, str], required: bool, unsigned: bool = False
) -> Verification:
    """Check everything in a bundle of decisions that can be computed again."""
    bundled = Decided(files, read_manifest(files[MANIFEST]))
    try:
        stated = plain_json(files[DECISIONS])
        run = Runs.validate_python({name: stated[name] for name in DecidedRun.__dataclass_fields__})
        computed = run_json(run)
    except (ValueError, KeyError, TypeError, RecursionError, ValidationError) as error:
        raise ServiceError(f"{DECISIONS} cannot be read ({error}); it is damaged, or was changed by hand.") from error
    signature = check_signature(bundled, known, required, unsigned)
    checks = (
        check_files(bundled), signature, _digests(bundled, run), _outcomes(run), _numbers(stated, computed),
        _tables(files, run),
    )  # fmt: skip
    return Verification(
        source=path.name,
        session=f"Decisions {run.id}: {run.name}",
        bundle_digest=hashlib.sha256(files[MANIFEST]).hexdigest(),
        checks=checks,
        beyond=tuple(_untold(run, signature)),
    )


@check("Digests in the manifest")
def _digests(bundled: Decided, run: DecidedRun) -> Comparing:
    """The manifest is of this run and its rows."""
    stated = bundled.manifest
    yield same(MANIFEST, "the digests", stated.get("digests"), decided_digests(run))
    yield same(MANIFEST, "the run", stated.get("decisions"), {"id": run.id, "name": run.name})
    return None


@check("Outcomes")
def _outcomes(run: DecidedRun) -> Comparing:
    """Each row is selected as the rule reads its outcome."""
    read = reader(run.rule, run.file, run.form, run.decisions)
    for row in run.decisions:
        yield same(f"Row {row.line}", "whether it is selected", row.selected, read(row))
    return f"{len(run.decisions):,} rows"


@check("Rates, ratios, tests and evidence")
def _numbers(stated: Mapping[str, Any], computed: Mapping[str, Any]) -> Comparing:
    """All numbers follow from the rows."""
    given, made = (dict(_leaves({k: v for k, v in own.items() if k not in SENTENCES})) for own in (stated, computed))
    yield same(DECISIONS, "the names of its fields", sorted(given), sorted(made))
    for name in given.keys() & made.keys():
        yield same(DECISIONS, name, given[name], made[name], TOLERANCE)
    return f"{len(made):,} values"


@check("Tables")
def _tables(files: Mapping[str, bytes], run: DecidedRun) -> Comparing:
    """The tables say what the rows say."""
    for name, data in decided_files(run).items():
        if name != DECISIONS:
            yield files.get(name) == data, f"{name} is not the table that follows from {DECISIONS}."
    return None


def _leaves(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, (list, tuple)) else None
    if parts is None:
        yield name, value
        return
    for key, own in parts:
        yield from _leaves(own, f"{name}.{key}" if name else str(key))


def _untold(run: DecidedRun, signature: Check) -> Iterator[Untold]:
    if signature.status in ("unknown", "unsigned"):
        yield Untold(MANIFEST, (SIGNATURES,), f"Who made the bundle: it is {signature.detail}.")
    yield Untold(
        DECISIONS,
        ("decisions.outcome", "decisions.group", "decisions.pair", "decisions.variant", "decisions.prompt", "file"),
        f"Whether the rows are what the model answered: they were read from a file with the SHA-256 {run.sha256}.",
    )
    yield Untold(DECISIONS, ("left_out",), "Whether the rows that were left out could not be read.")
    yield Untold(DECISIONS, ("id", "name", "created_at"), "What the run is called, and when it was read.")
    yield Untold(DECISIONS, SENTENCES, "Sentences: their wording belongs to the program, and only numbers are checked.")
