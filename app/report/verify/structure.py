"""Checks of how a report hangs together: its files and tables, branches with their steps, verdict log and times."""

from __future__ import annotations

import csv
import hashlib
import io
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import cast

from app.report.bundle import CALIBRATION, MANIFEST, TABLES, digests_of
from app.report.document import BranchPart, LogPart, ReportPart, StepPart, log_records, steps_digest, thresholds_digest
from app.report.verify.findings import Check, Findings, failed, skipped
from app.report.verify.loaded import Loaded, place_of
from app.shared.files import WIDE_STARTS
from app.shared.verdicts import check_log
from coft_core.decode.loop import ROOT_PATH, fork_path

NO_BUNDLE = "a report alone was given; its bundle has the other files"


def check_files(loaded: Loaded) -> Check:
    """Every file that the manifest lists is there as it was written, and no other."""
    name = "Files of the bundle"
    if loaded.files is None or loaded.manifest is None:
        return skipped(name, NO_BUNDLE)
    findings = Findings(name)
    listed = cast(Mapping[str, tuple[str, int]], loaded.manifest["files"])
    for file, (digest, size) in listed.items():
        data = loaded.files.get(file)
        if not findings.expect(data is not None, f"{file} is missing."):
            continue
        fits = data is not None and len(data) == size and hashlib.sha256(data).hexdigest() == digest
        findings.expect(fits, f"{file} was changed: its SHA-256 is not that of the manifest.")
    for file in loaded.files.keys() - listed.keys() - {MANIFEST}:
        findings.expect(False, f"{file} is in the bundle, and the manifest does not list it.")
    return findings.check(f"{len(listed)} files by SHA-256")


def check_digests(loaded: Loaded) -> Check:
    """Digests of steps, thresholds, calibration and log are those of what the report holds."""
    report = loaded.report
    findings = Findings("Digests in the report")
    findings.same("report.json", "the digest of the steps", report.steps_digest, steps_digest(report.branches))
    findings.same(
        "report.json", "the head of the verdict log", report.log_head, report.log[-1].digest if report.log else ""
    )
    if report.thresholds is not None and loaded.files is not None and CALIBRATION in loaded.files:
        actual = hashlib.sha256(loaded.files[CALIBRATION]).hexdigest()
        findings.same("report.json", "the digest of the calibration", report.thresholds.calibration_digest, actual)
    if report.thresholds is not None:
        digest = thresholds_digest(report.thresholds.families)
        findings.same("report.json", "the digest of the thresholds", report.thresholds.digest, digest)
    if loaded.manifest is not None:
        stated = loaded.manifest.get("digests")
        stated = stated if isinstance(stated, dict) else {}
        for key, value in digests_of(report).items():
            findings.same("manifest.json", key, stated.get(key), value)
        findings.same("manifest.json", "the program", loaded.manifest.get("program"), report.program.model_dump())
        session = {"id": report.session.id, "name": report.session.name}
        findings.same("manifest.json", "the session", loaded.manifest.get("session"), session)
    return findings.check()


def check_table(loaded: Loaded, file: str) -> Check:
    """A table says cell by cell what the report says."""
    if loaded.files is None:
        return skipped(file, NO_BUNDLE)
    data = loaded.files.get(file)
    if data is None:
        return failed(file, f"{file} is missing.")
    expected = _rows(loaded.tables[file])
    try:
        actual = _rows(data)
    except (UnicodeDecodeError, csv.Error) as error:
        return failed(file, f"{file} is no CSV text in UTF-8 ({error}).")
    findings = Findings(file)
    header = expected[0]
    stated = actual[0] if actual else []
    # Tables of earlier versions have fewer columns, in the same order.
    fewer = [column for column in header if column not in stated]
    findings.same(file, "the header", stated, [column for column in header if column not in fewer])
    findings.same(file, "the number of rows", len(actual) - 1, len(expected) - 1)
    skip = _unknown_columns(loaded)
    for line, (given, other) in enumerate(zip(actual[1:], expected[1:], strict=False), 2):
        if not findings.expect(len(given) == len(stated), f"{file}, line {line}: it has {len(given)} cells."):
            continue
        cells = dict(zip(header, other, strict=True))
        for column, cell in zip(stated, given, strict=True):
            if column in cells and column not in skip:
                place = f"{file}, line {line}, column {column}"
                # Earlier versions left the signs of a formula alone that are as wide as Chinese characters.
                same = cell == cells[column] or (cell.startswith(WIDE_STARTS) and f"'{cell}" == cells[column])
                findings.expect(same, f"{place}: it says {cell!r}, and the report says {cells[column]!r}.")
    rows = f"{max(len(expected) - 1, 0):,} rows, cell by cell"
    return findings.check(rows + (f"; without {', '.join(fewer)}, which this version adds" if fewer else ""))


def check_tables(loaded: Loaded) -> tuple[Check, ...]:
    """All tables."""
    return tuple(check_table(loaded, file) for file in TABLES)


def _unknown_columns(loaded: Loaded) -> frozenset[str]:
    """Columns that need a calibration which is not in the bundle, or were written under a rule that claimed more."""
    missing = loaded.report.thresholds is not None and loaded.lacks_calibration
    return frozenset({"chain_certificate"}) if missing or loaded.vocabulary is None else frozenset()


def _rows(data: bytes) -> list[list[str]]:
    return list(csv.reader(io.StringIO(data.decode("utf-8"), newline="")))


BRANCHES = "Branches and steps"


def check_branches(loaded: Loaded) -> Check:
    """Branches form a tree, their steps follow each other, and only forks force tokens.

    What passes here can be put together to chains, which all later checks need.
    """
    report = loaded.report
    findings = Findings(BRANCHES)
    seen: dict[int, BranchPart] = {}
    lengths: dict[int, int] = {}
    findings.expect(bool(report.branches), "The report has no branch.")
    for branch in report.branches:
        place = f"Branch {branch.path}"
        parent = None if branch.parent_id is None else seen.get(branch.parent_id)
        findings.expect(bool(seen) or branch.path == ROOT_PATH, f"{place}: the first branch has another path.")
        rooted = (branch.parent_id is None) == (not seen) and (branch.parent_id is None) == (branch.fork_step is None)
        findings.expect(rooted, f"{place}: only the first branch is a root, and every other one departs from a parent.")
        findings.expect(branch.id not in seen, f"{place}: its number {branch.id} is used twice.")
        if branch.parent_id is not None and not findings.expect(parent is not None, f"{place}: its parent is missing."):
            continue
        first = branch.fork_step or 0
        if parent is not None:
            findings.expect(0 <= first <= lengths[parent.id], f"{place}: it departs where its parent has no step.")
            _check_fork(findings, branch, parent, first)
        indices = [step.index for step in branch.steps]
        findings.same(place, "the order of its steps", indices, list(range(first, first + len(indices))))
        for step in branch.steps:
            _check_step(findings, branch, step, first)
        seen[branch.id], lengths[branch.id] = branch, first + len(indices)
        limit = report.session.max_new_tokens
        findings.expect(lengths[branch.id] <= limit, f"{place}: it has more steps than the {limit} that were allowed.")
        if branch.finished == "length":
            findings.same(place, "the length at which it ended", lengths[branch.id], limit)
    _check_texts(findings, report.branches)
    findings.expect(report.session.active_branch_id in seen, "The session's active branch is missing.")
    steps = sum(len(branch.steps) for branch in report.branches)
    return findings.check(f"{len(report.branches)} branches, {steps:,} steps")


def check_verdicts(loaded: Loaded) -> Check:
    """Every entry of the verdict log follows from the one before, and points at what exists."""
    records = log_records(loaded.report)
    findings = Findings("Verdict log")
    _check_reviews(findings, loaded.report.log)
    result = check_log(records)
    findings.expect(result.whole, result.sentence)
    lengths = {branch.path: (branch.fork_step or 0) + len(branch.steps) for branch in loaded.report.branches}
    for record in records:
        if record.branch_path is None:
            continue
        place = f"Entry {record.entry}"
        if findings.expect(record.branch_path in lengths, f"{place}: there is no branch {record.branch_path}."):
            last = record.last_step_index
            inside = last is None or last < lengths[record.branch_path]
            findings.expect(inside, f"{place}: it is about steps that branch {record.branch_path} does not have.")
    return findings.check("empty" if not records else f"{len(records)} entries, chained by SHA-256")


def _check_reviews(findings: Findings, log: Sequence[LogPart]) -> None:
    """Entries are blind exactly during their reviewer's own blind review, and reviews end after they began."""
    reviews: dict[str, bool] = {}
    for entry in log:
        place = f"Entry {entry.entry}"
        if entry.kind == "review_started":
            findings.expect(entry.reviewer not in reviews, f"{place}: {entry.reviewer} has an open review already.")
            reviews[entry.reviewer] = entry.blind
            continue
        if entry.kind == "review_finished":
            findings.expect(
                entry.reviewer in reviews, f"{place}: {entry.reviewer} finishes a review that did not begin."
            )
        findings.same(place, "whether it was made blind", entry.blind, reviews.get(entry.reviewer, False))
        if entry.kind == "review_finished":
            reviews.pop(entry.reviewer, None)
        if entry.kind == "adjudication":
            findings.expect(entry.verdict is not None, f"{place}: it decides nothing.")
        if entry.kind == "comment":
            findings.expect(entry.verdict is None, f"{place}: it is a comment, and gives a verdict.")
            findings.expect(bool(entry.note), f"{place}: it is a comment, and says nothing.")


def _check_texts(findings: Findings, branches: Sequence[BranchPart]) -> None:
    """A token reads the same wherever it stands."""
    texts: dict[int, str] = {}
    for branch in branches:
        for step in branch.steps:
            pairs = [(step.token_id, step.token), (step.policy_token_id, step.policy_token)]
            for token_id, text in pairs + [(row.token_id, row.token) for row in step.candidates]:
                place = place_of(branch, step)
                findings.same(place, f"the text of the token {token_id}", text, texts.setdefault(token_id, text))


def _check_fork(findings: Findings, branch: BranchPart, parent: BranchPart, first: int) -> None:
    """A fork's path names its parent, the step and the token; that step says what the parent's chain wrote there."""
    place = f"Branch {branch.path}"
    if not branch.steps:
        return
    forced = branch.steps[0]
    findings.same(place, "its path", branch.path, fork_path(parent.path, first, forced.token_id))
    findings.expect(forced.forced, f"{place}: its first token is not marked as forced by the reviewer.")
    beside = next((step for step in parent.steps if step.index == first), None)
    if beside is not None:
        findings.same(
            f"{place}, step {first + 1}", "the token left alone", forced.policy_token_id, beside.policy_token_id
        )


def _check_step(findings: Findings, branch: BranchPart, step: StepPart, first: int) -> None:
    place = place_of(branch, step)
    if step.index != first or branch.fork_step is None:
        findings.expect(not step.forced, f"{place}: it is marked as forced, and no branch departs there.")
    if not step.forced:
        findings.same(place, "the emitted token", step.token_id, step.policy_token_id)
    rows = {row.token_id: row for row in step.candidates}
    findings.expect(len(rows) == len(step.candidates), f"{place}: a candidate is listed twice.")
    for token_id, token, what in (
        (step.token_id, step.token, "the emitted token"),
        (step.policy_token_id, step.policy_token, "the policy's token"),
    ):
        row = rows.get(token_id)
        if findings.expect(row is not None, f"{place}: {what} {token!r} is not among its candidates."):
            findings.same(place, f"the text of {what}", token, None if row is None else row.token)


NAME = "Times"
SLACK = timedelta(seconds=2)
"""A clock may be set back by so much between two events, and calibrations keep whole seconds."""


def check_times(loaded: Loaded) -> Check:
    """Calibration, session, branches, steps and verdicts came one after the other."""
    report = loaded.report
    findings = Findings(NAME)
    _check_calibration(findings, loaded)
    session = report.session
    _in_order(findings, "The session was changed last", session.updated_at, "it began", session.created_at)
    written = _check_branches(findings, report)
    before = session.created_at
    for entry in report.log:
        _check_entry(findings, entry, before, written)
        before = entry.at
    return findings.check()


def moment_of(text: str) -> datetime | None:
    """A time that is kept as text; None where it is none."""
    try:
        return _aware(datetime.fromisoformat(text))
    except ValueError:
        return None


def _check_calibration(findings: Findings, loaded: Loaded) -> None:
    # That it cannot be used is a finding of the thresholds.
    created = "" if loaded.stated is None else loaded.stated.created
    when = moment_of(created)
    if (
        created
        and findings.expect(when is not None, f"{CALIBRATION}: {created!r}, when it was made, is no time.")
        and when
    ):
        began = loaded.report.session.created_at
        _in_order(findings, "The session began", began, "its calibration was made", when)


def _check_branches(findings: Findings, report: ReportPart) -> dict[str, list[datetime]]:
    """Check every branch, and return when the steps of each chain were written."""
    written: dict[str, list[datetime]] = {}
    paths = {branch.id: branch.path for branch in report.branches}
    for branch in report.branches:
        place = f"Branch {branch.path}"
        parent = [] if branch.parent_id is None else written[paths[branch.parent_id]]
        shared = parent[: branch.fork_step or 0]
        _in_order(findings, f"{place} began", branch.created_at, "the session began", report.session.created_at)
        if shared:
            _in_order(findings, f"{place} began", branch.created_at, "a step that it shares was written", shared[-1])
        written[branch.path] = shared + _check_steps(findings, report, branch)
    return written


def _check_steps(findings: Findings, report: ReportPart, branch: BranchPart) -> list[datetime]:
    before, what = branch.created_at, "its branch began"
    for step in branch.steps:
        place = place_of(branch, step)
        _in_order(findings, f"{place} was written", step.created_at, what, before)
        changed = report.session.updated_at
        _in_order(findings, "The session was changed last", changed, f"{place} was written", step.created_at)
        before, what = step.created_at, "the step before it was"
    return [step.created_at for step in branch.steps]


def _check_entry(findings: Findings, entry: LogPart, before: datetime, written: dict[str, list[datetime]]) -> None:
    place = f"Entry {entry.entry} of the verdict log was made"
    _in_order(findings, place, entry.at, "what stands before it", before)
    steps = [] if entry.branch is None else written.get(entry.branch, [])
    last = entry.last_step if entry.last_step is not None else entry.first_step
    if last is not None and 0 <= last < len(steps):
        _in_order(findings, place, entry.at, "the step that it is about was written", steps[last])


def _in_order(findings: Findings, what: str, when: datetime, other: str, before: datetime) -> None:
    fits = _aware(when) + SLACK >= _aware(before)
    findings.expect(fits, f"{what} on {when.isoformat()}, and {other} only on {before.isoformat()}.")


def _aware(when: datetime) -> datetime:
    return when if when.tzinfo else when.replace(tzinfo=UTC)
