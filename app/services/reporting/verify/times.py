"""The check of times: nothing is older than what it needs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from app.services.reporting.bundle import CALIBRATION
from app.services.reporting.schema import BranchPart, LogPart, ReportPart
from app.services.reporting.verify.findings import Findings
from app.services.reporting.verify.loaded import Loaded
from app.services.views.verification import Check
from coft_core.conformal.factorized import load_calibration
from coft_core.errors import CoftError

NAME = "Times"
SLACK = timedelta(seconds=2)
"""A clock may be set back by so much between two events, and calibrations keep whole seconds."""


def check_times(loaded: Loaded) -> Check:
    """Calibration, session, branches, steps and verdicts came one after the other."""
    report = loaded.report
    found = Findings(NAME)
    _check_calibration(found, loaded)
    session = report.session
    _in_order(found, "The session was changed last", session.updated_at, "it began", session.created_at)
    written = _check_branches(found, report)
    before = session.created_at
    for entry in report.log:
        _check_entry(found, entry, before, written)
        before = entry.at
    return found.check()


def moment_of(text: str) -> datetime | None:
    """A time that is kept as text; None where it is none."""
    try:
        return _aware(datetime.fromisoformat(text))
    except ValueError:
        return None


def _check_calibration(found: Findings, loaded: Loaded) -> None:
    files = loaded.files or {}
    try:
        made = load_calibration(files[CALIBRATION]).created if CALIBRATION in files else ""
    except CoftError:
        # That it cannot be used is a finding of the thresholds.
        return
    when = moment_of(made)
    if made and found.expect(when is not None, f"{CALIBRATION}: {made!r}, when it was made, is no time.") and when:
        began = loaded.report.session.created_at
        _in_order(found, "The session began", began, "its calibration was made", when)


def _check_branches(found: Findings, report: ReportPart) -> dict[str, list[datetime]]:
    """Check every branch, and return when the steps of each chain were written."""
    written: dict[str, list[datetime]] = {}
    paths = {branch.id: branch.path for branch in report.branches}
    for branch in report.branches:
        place = f"Branch {branch.path}"
        parent = [] if branch.parent_id is None else written[paths[branch.parent_id]]
        shared = parent[: branch.fork_step or 0]
        _in_order(found, f"{place} began", branch.created_at, "the session began", report.session.created_at)
        if shared:
            _in_order(found, f"{place} began", branch.created_at, "a step that it shares was written", shared[-1])
        written[branch.path] = shared + _check_steps(found, report, branch)
    return written


def _check_steps(found: Findings, report: ReportPart, branch: BranchPart) -> list[datetime]:
    before, what = branch.created_at, "its branch began"
    for step in branch.steps:
        place = f"Branch {branch.path}, step {step.index + 1}"
        _in_order(found, f"{place} was written", step.created_at, what, before)
        changed = report.session.updated_at
        _in_order(found, "The session was changed last", changed, f"{place} was written", step.created_at)
        before, what = step.created_at, "the step before it was"
    return [step.created_at for step in branch.steps]


def _check_entry(found: Findings, entry: LogPart, before: datetime, written: dict[str, list[datetime]]) -> None:
    place = f"Entry {entry.entry} of the verdict log was made"
    _in_order(found, place, entry.at, "what stands before it", before)
    steps = [] if entry.branch is None else written.get(entry.branch, [])
    last = entry.last_step if entry.last_step is not None else entry.first_step
    if last is not None and 0 <= last < len(steps):
        _in_order(found, place, entry.at, "the step that it is about was written", steps[last])


def _in_order(found: Findings, what: str, when: datetime, other: str, before: datetime) -> None:
    fits = _aware(when) + SLACK >= _aware(before)
    found.expect(fits, f"{what} on {when.isoformat()}, and {other} only on {before.isoformat()}.")


def _aware(when: datetime) -> datetime:
    return when if when.tzinfo else when.replace(tzinfo=UTC)
