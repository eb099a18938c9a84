"""Checks of how a report hangs together: its files and tables, branches with their steps, verdict log and times."""

from __future__ import annotations

import csv
import hashlib
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias, cast

from app.report.bundle import CALIBRATION, MANIFEST, REPORT, TABLES, digests_of
from app.report.document import BranchPart, ReportPart, digest_of
from app.report.signing import SIGNATURES, fingerprint_of, signature_holds
from app.report.verify.findings import Check, Compared, Comparing, Skipped, Unproven, Unsigned, Within, check, same
from app.report.verify.loaded import Bundled, Loaded, place_of
from app.shared.errors import ServiceError
from app.shared.files import WIDE_STARTS, plain_json
from app.shared.verdicts import check_log
from coft_core.decode.loop import ROOT_PATH, fork_path
from coft_core.types import Step
from db.verdicts import AnnotationRecord

SIGNATURE_CHECK = "Signature"
SLACK = timedelta(seconds=2)
"""A clock may be set back by so much between two events, and calibrations keep whole seconds."""


def _bundled(loaded: Bundled) -> Mapping[str, bytes]:
    if loaded.files is None:
        raise Skipped("only a report was given; its bundle has the other files")
    return loaded.files


@check("Files of the bundle")
def check_files(loaded: Bundled) -> Comparing:
    """Every file that the manifest lists is there as it was written, and no other."""
    files, manifest = _bundled(loaded), loaded.manifest or {}
    listed = cast(Mapping[str, tuple[str, int]], manifest["files"])
    for file, (digest, size) in listed.items():
        yield file in files, f"{file} is missing."
        if file in files:
            fits = len(files[file]) == size and hashlib.sha256(files[file]).hexdigest() == digest
            yield fits, f"{file} was changed: its SHA-256 is not that of the manifest."
    for file in files.keys() - listed.keys() - {MANIFEST}:
        yield False, f"{file} is in the bundle, and the manifest does not list it."
    return f"{len(listed)} files by SHA-256"


@check(SIGNATURE_CHECK)
def check_signature(
    loaded: Bundled, known: Mapping[str, str], required: bool = False, unsigned: bool = False
) -> Comparing:
    """Every signature is of this manifest, and one is by a known key.

    A bundle that an unknown key signed can have been made by anybody: its status is ``"unknown"``. One that nobody
    signed is ``"unsigned"``, unless the caller says that this is known.
    """
    manifest: dict[str, Any] = {} if loaded.files is None else plain_json(loaded.files[MANIFEST])
    listed = manifest.get(SIGNATURES) or []
    signers: list[str] = []
    for number, item in enumerate(listed if isinstance(listed, list) else [listed], 1):
        signer = signature_holds(manifest, item)
        yield signer is not None, f"Signature {number} is not one of this manifest."
        if signer is not None:
            signers.append(fingerprint_of(signer))
    keys = (f"“{known[own]}” ({own})" if own in known else f"an unknown key ({own})" for own in signers)
    told = f"signed by {', '.join(keys)}" if signers else "not signed"
    trusted = not known.keys().isdisjoint(signers)
    if required:
        wanted = ", ".join(f"“{name}” ({own})" for own, name in known.items()) or "no key is known here"
        yield trusted, f"It is {told}. A signature by one of these keys is required: {wanted}."
    if signers or unsigned:
        return told if trusted else Unproven(told)
    return Unsigned(told)


@check("Digests in the report")
def check_digests(loaded: Loaded) -> Comparing:
    """Digests of steps, thresholds, calibration and log are those of what the report holds."""
    report, thresholds = loaded.report, loaded.report.thresholds
    yield same(REPORT, "the digest of the steps", report.steps_digest, digest_of(report.branches))
    head = report.log[-1].digest if report.log else ""
    yield same(REPORT, "the head of the verdict log", report.log_head, head)
    if thresholds is not None:
        yield same(REPORT, "the digest of the thresholds", thresholds.digest, digest_of(thresholds.families))
        if loaded.files is not None and CALIBRATION in loaded.files:
            actual = hashlib.sha256(loaded.files[CALIBRATION]).hexdigest()
            yield same(REPORT, "the digest of the calibration", thresholds.calibration_digest, actual)
    if loaded.manifest is not None:
        digests = loaded.manifest.get("digests")
        for name, value in digests_of(report).items():
            yield same(MANIFEST, name, digests.get(name) if isinstance(digests, dict) else None, value)
        session = {"id": report.session.id, "name": report.session.name}
        yield same(MANIFEST, "the program", loaded.manifest.get("program"), asdict(report.program))
        yield same(MANIFEST, "the session", loaded.manifest.get("session"), session)


def check_tables(loaded: Loaded) -> tuple[Check, ...]:
    """All tables say cell by cell what the report says."""
    return tuple(check(file)(_compare_table)(loaded, file) for file in TABLES)


def _compare_table(loaded: Loaded, file: str) -> Comparing:
    data = _bundled(loaded).get(file)
    if data is None:
        raise ServiceError(f"{file} is missing.")
    expected = _rows(loaded.tables[file])
    try:
        actual = _rows(data)
    except (UnicodeDecodeError, csv.Error) as error:
        raise ServiceError(f"{file} is no CSV text in UTF-8 ({error}).") from error
    header, stated = expected[0], actual[0] if actual else []
    # Tables of earlier versions have fewer columns, in the same order.
    fewer = [column for column in header if column not in stated]
    yield same(file, "the header", stated, [column for column in header if column not in fewer])
    yield same(file, "the number of rows", len(actual) - 1, len(expected) - 1)
    skip = _unknown_columns(loaded)
    for line, (given, other) in enumerate(zip(actual[1:], expected[1:], strict=False), 2):
        yield same(f"{file}, line {line}", "the number of cells", len(given), len(stated))
        if len(given) != len(stated):
            continue
        cells = dict(zip(header, other, strict=True))
        for column, cell in zip(stated, given, strict=True):
            if column in cells and column not in skip:
                # Earlier versions left the signs of a formula alone that are as wide as Chinese characters.
                written = f"'{cell}" if cell.startswith(WIDE_STARTS) and cell != cells[column] else cell
                yield same(f"{file}, line {line}, column {column}", "the cell", written, cells[column])
    rows = f"{max(len(expected) - 1, 0):,} rows, cell by cell"
    return rows + (f"; without {', '.join(fewer)}, which this version adds" if fewer else "")


def _unknown_columns(loaded: Loaded) -> frozenset[str]:
    """Columns that need a calibration which is not in the bundle, or were written under a rule that claimed more."""
    missing = loaded.report.thresholds is not None and loaded.lacks_calibration
    return frozenset({"chain_certificate"}) if missing or loaded.vocabulary is None else frozenset()


def _rows(data: bytes) -> list[list[str]]:
    return list(csv.reader(io.StringIO(data.decode("utf-8"), newline="")))


@check("Branches and steps")
def check_branches(loaded: Loaded) -> Comparing:
    """Branches form a tree, their steps follow each other, and only forks force tokens.

    What passes here can be put together to chains, which all later checks need.
    """
    report, limit = loaded.report, loaded.report.session.max_new_tokens
    seen: dict[int, BranchPart] = {}
    lengths: dict[int, int] = {}
    yield bool(report.branches), "The report has no branch."
    for branch in report.branches:
        place = f"Branch {branch.path}"
        parent = None if branch.parent_id is None else seen.get(branch.parent_id)
        if not seen:
            yield same(place, "the path of the first branch", branch.path, ROOT_PATH)
        origin = [branch.parent_id is None, branch.fork_step is None]
        yield same(place, "whether it has no parent and departs nowhere", origin, [not seen] * 2)
        yield branch.id not in seen, f"{place}: its number {branch.id} is used twice."
        if branch.parent_id is not None and parent is None:
            yield False, f"{place}: its parent is missing."
            continue
        first = branch.fork_step or 0
        if parent is not None:
            yield same(place, "the step at which it departs", first, Within(0, lengths[parent.id]))
            yield from _check_fork(branch, parent, first)
        indices = [step.index for step in branch.steps]
        yield same(place, "the order of its steps", indices, list(range(first, first + len(indices))))
        for step in branch.steps:
            yield from _check_step(branch, step, first)
        seen[branch.id], lengths[branch.id] = branch, first + len(indices)
        allowed = Within(limit if branch.finished == "length" else 0, limit)
        yield same(place, "the number of its steps", lengths[branch.id], allowed)
    yield from _check_texts(report.branches)
    yield report.session.active_branch_id in seen, "The session's active branch is missing."
    steps = sum(len(branch.steps) for branch in report.branches)
    return f"{len(report.branches)} branches, {steps:,} steps"


@check("Verdict log")
def check_verdicts(loaded: Loaded) -> Comparing:
    """Every entry of the verdict log follows from the one before, and points at what exists."""
    log = loaded.report.log
    yield from _check_reviews(log)
    result = check_log(log)
    yield result.whole, result.sentence
    lengths = {branch.path: (branch.fork_step or 0) + len(branch.steps) for branch in loaded.report.branches}
    for entry in log:
        place, branch, last = f"Entry {entry.entry}", entry.branch_path, entry.last_step_index
        if branch is not None:
            yield branch in lengths, f"{place}: there is no branch {branch}."
        if branch in lengths:
            yield same(place, "its last step", -1 if last is None else last, Within(high=lengths[branch] - 1))
    return "empty" if not log else f"{len(log)} entries, chained by SHA-256"


def _check_reviews(log: Sequence[AnnotationRecord]) -> Iterator[Compared]:
    """Entries are blind exactly during their reviewer's own blind review, and reviews end after they began."""
    reviews: dict[str, bool] = {}
    for entry in log:
        place, opened = f"Entry {entry.entry}", entry.reviewer in reviews
        if entry.kind in ("review_started", "review_finished"):
            what = f"whether {entry.reviewer} has an open review"
            yield same(place, what, entry.kind == "review_finished", opened)
        if entry.kind == "review_started":
            reviews[entry.reviewer] = entry.blind
            continue
        yield same(place, "whether it was made blind", entry.blind, reviews.get(entry.reviewer, False))
        if entry.kind == "review_finished":
            reviews.pop(entry.reviewer, None)
        if entry.kind in ("adjudication", "comment"):
            decides = entry.kind == "adjudication"
            yield same(place, "whether it gives a verdict", entry.verdict is not None, decides)
            yield decides or bool(entry.note), f"{place}: it is a comment, and says nothing."


def _check_texts(branches: Sequence[BranchPart]) -> Iterator[Compared]:
    """A token reads the same wherever it stands."""
    texts: dict[int, str] = {}
    for branch in branches:
        for step in branch.steps:
            pairs = [(step.token_id, step.token), (step.policy_token_id, step.policy_token)]
            for token_id, text in pairs + [(row.token_id, row.token) for row in step.candidates]:
                place = place_of(branch, step)
                yield same(place, f"the text of the token {token_id}", text, texts.setdefault(token_id, text))


def _check_fork(branch: BranchPart, parent: BranchPart, first: int) -> Iterator[Compared]:
    """A fork's path names its parent, the step and the token; that step says what the parent's chain wrote there."""
    if not branch.steps:
        return
    place, forced = f"Branch {branch.path}", branch.steps[0]
    yield same(place, "its path", branch.path, fork_path(parent.path, first, forced.token_id))
    yield same(place, "whether its first token is forced", forced.forced, True)
    beside = next((step for step in parent.steps if step.index == first), forced)
    what = "the token left alone"
    yield same(f"{place}, step {first + 1}", what, forced.policy_token_id, beside.policy_token_id)


def _check_step(branch: BranchPart, step: Step, first: int) -> Iterator[Compared]:
    place = place_of(branch, step)
    if step.index != first or branch.fork_step is None:
        yield same(place, "whether it is forced", step.forced, False)
    if not step.forced:
        yield same(place, "the emitted token", step.token_id, step.policy_token_id)
    rows = {row.token_id: row.token for row in step.candidates}
    yield same(place, "the number of its candidates", len(step.candidates), len(rows))
    yield same(place, "the candidate of the emitted token", step.token, rows.get(step.token_id))
    yield same(place, "the candidate of the policy's token", step.policy_token, rows.get(step.policy_token_id))


Order: TypeAlias = tuple[str, datetime, str, datetime]
"""What happened when, and what must have happened before it, and when that was."""


@check("Times")
def check_times(loaded: Loaded) -> Comparing:
    """Calibration, session, branches, steps and verdicts came one after the other."""
    session, created = loaded.report.session, "" if loaded.stated is None else loaded.stated.created
    orders = [*_orders(loaded.report)]
    # That the calibration cannot be used is a finding of the thresholds.
    if created:
        try:
            made = datetime.fromisoformat(created)
            orders.append(("The session began", session.created_at, "its calibration was made", made))
        except ValueError:
            yield False, f"{CALIBRATION}: {created!r}, when it was made, is not a time."
    for what, when, other, before in orders:
        fits = _aware(when) + SLACK >= _aware(before)
        yield fits, f"{what} on {when.isoformat()}, and {other} only on {before.isoformat()}."


def _orders(report: ReportPart) -> Iterator[Order]:
    session, paths = report.session, {branch.id: branch.path for branch in report.branches}
    yield "The session was changed last", session.updated_at, "it began", session.created_at
    written: dict[str, list[datetime]] = {}
    for branch in report.branches:
        began = f"Branch {branch.path} began", branch.created_at
        parent = [] if branch.parent_id is None else written[paths[branch.parent_id]]
        shared = parent[: branch.fork_step or 0]
        yield *began, "the session began", session.created_at
        if shared:
            yield *began, "a step that it shares was written", shared[-1]
        before, what = branch.created_at, "its branch began"
        for step, at in zip(branch.steps, branch.times, strict=True):
            place = f"{place_of(branch, step)} was written"
            yield place, at, what, before
            yield "The session was changed last", session.updated_at, place, at
            before, what = at, "the step before it was"
        written[branch.path] = [*shared, *branch.times]
    last_entry = session.created_at
    for entry in report.log:
        made = f"Entry {entry.entry} of the verdict log was made", entry.created_at
        yield *made, "the entry before it was, or the session began", last_entry
        steps = written.get(entry.branch_path or "", [])
        last = entry.step_index if entry.last_step_index is None else entry.last_step_index
        if last is not None and 0 <= last < len(steps):
            yield *made, "the step that it is about was written", steps[last]
        last_entry = entry.created_at


def _aware(when: datetime) -> datetime:
    return when if when.tzinfo else when.replace(tzinfo=UTC)
