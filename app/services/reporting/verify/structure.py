"""Checks of how a session hangs together: its branches with their steps, and its verdict log."""

from __future__ import annotations

from collections.abc import Sequence

from app.services.reporting.document import log_records
from app.services.reporting.schema import BranchPart, LogPart, StepPart
from app.services.reporting.verify.findings import Findings
from app.services.reporting.verify.loaded import Loaded
from app.services.verdict.wholeness import check_log
from app.services.views.verification import Check
from coft_core.decode import ROOT_PATH, fork_path

BRANCHES = "Branches and steps"


def check_branches(loaded: Loaded) -> Check:
    """Branches form a tree, their steps follow each other, and only forks force tokens.

    What passes here can be put together to chains, which all later checks need.
    """
    report = loaded.report
    found = Findings(BRANCHES)
    seen: dict[int, BranchPart] = {}
    lengths: dict[int, int] = {}
    found.expect(bool(report.branches), "The report has no branch.")
    for branch in report.branches:
        place = f"Branch {branch.path}"
        parent = None if branch.parent_id is None else seen.get(branch.parent_id)
        found.expect(bool(seen) or branch.path == ROOT_PATH, f"{place}: the first branch has another path.")
        rooted = (branch.parent_id is None) == (not seen) and (branch.parent_id is None) == (branch.fork_step is None)
        found.expect(rooted, f"{place}: only the first branch is a root, and every other one departs from a parent.")
        found.expect(branch.id not in seen, f"{place}: its number {branch.id} is used twice.")
        if branch.parent_id is not None and not found.expect(parent is not None, f"{place}: its parent is missing."):
            continue
        first = branch.fork_step or 0
        if parent is not None:
            found.expect(0 <= first <= lengths[parent.id], f"{place}: it departs where its parent has no step.")
            _check_fork(found, branch, parent, first)
        indices = [step.index for step in branch.steps]
        found.same(place, "the order of its steps", indices, list(range(first, first + len(indices))))
        for step in branch.steps:
            _check_step(found, branch, step, first)
        seen[branch.id], lengths[branch.id] = branch, first + len(indices)
        limit = report.session.max_new_tokens
        found.expect(lengths[branch.id] <= limit, f"{place}: it has more steps than the {limit} that were allowed.")
        if branch.finished == "length":
            found.same(place, "the length at which it ended", lengths[branch.id], limit)
    _check_texts(found, report.branches)
    found.expect(report.session.active_branch_id in seen, "The session's active branch is missing.")
    steps = sum(len(branch.steps) for branch in report.branches)
    return found.check(f"{len(report.branches)} branches, {steps:,} steps")


def check_verdicts(loaded: Loaded) -> Check:
    """Every entry of the verdict log follows from the one before, and points at what exists."""
    records = log_records(loaded.report)
    found = Findings("Verdict log")
    _check_reviews(found, loaded.report.log)
    result = check_log(records)
    found.expect(result.whole, result.sentence)
    lengths = {branch.path: (branch.fork_step or 0) + len(branch.steps) for branch in loaded.report.branches}
    for record in records:
        if record.branch_path is None:
            continue
        place = f"Entry {record.entry}"
        if found.expect(record.branch_path in lengths, f"{place}: there is no branch {record.branch_path}."):
            last = record.last_step_index
            inside = last is None or last < lengths[record.branch_path]
            found.expect(inside, f"{place}: it is about steps that branch {record.branch_path} does not have.")
    return found.check("empty" if not records else f"{len(records)} entries, chained by SHA-256")


def _check_reviews(found: Findings, log: Sequence[LogPart]) -> None:
    """Entries are blind exactly during their reviewer's own blind review, and reviews end after they began."""
    reviews: dict[str, bool] = {}
    for entry in log:
        place = f"Entry {entry.entry}"
        if entry.kind == "review_started":
            found.expect(entry.reviewer not in reviews, f"{place}: {entry.reviewer} has an open review already.")
            reviews[entry.reviewer] = entry.blind
            continue
        if entry.kind == "review_finished":
            found.expect(entry.reviewer in reviews, f"{place}: {entry.reviewer} finishes a review that did not begin.")
        found.same(place, "whether it was made blind", entry.blind, reviews.get(entry.reviewer, False))
        if entry.kind == "review_finished":
            reviews.pop(entry.reviewer, None)
        if entry.kind == "adjudication":
            found.expect(entry.verdict is not None, f"{place}: it decides nothing.")


def _check_texts(found: Findings, branches: Sequence[BranchPart]) -> None:
    """A token reads the same wherever it stands."""
    texts: dict[int, str] = {}
    for branch in branches:
        for step in branch.steps:
            pairs = [(step.token_id, step.token), (step.policy_token_id, step.policy_token)]
            for token_id, text in pairs + [(row.token_id, row.token) for row in step.candidates]:
                place = f"Branch {branch.path}, step {step.index + 1}"
                found.same(place, f"the text of the token {token_id}", text, texts.setdefault(token_id, text))


def _check_fork(found: Findings, branch: BranchPart, parent: BranchPart, first: int) -> None:
    """A fork's path names its parent, the step and the token; that step says what the parent's chain wrote there."""
    place = f"Branch {branch.path}"
    if not branch.steps:
        return
    forced = branch.steps[0]
    found.same(place, "its path", branch.path, fork_path(parent.path, first, forced.token_id))
    found.expect(forced.forced, f"{place}: its first token is not marked as forced by the reviewer.")
    beside = next((step for step in parent.steps if step.index == first), None)
    if beside is not None:
        found.same(f"{place}, step {first + 1}", "the token left alone", forced.policy_token_id, beside.policy_token_id)


def _check_step(found: Findings, branch: BranchPart, step: StepPart, first: int) -> None:
    place = f"Branch {branch.path}, step {step.index + 1}"
    if step.index != first or branch.fork_step is None:
        found.expect(not step.forced, f"{place}: it is marked as forced, and no branch departs there.")
    if not step.forced:
        found.same(place, "the emitted token", step.token_id, step.policy_token_id)
    rows = {row.token_id: row for row in step.candidates}
    found.expect(len(rows) == len(step.candidates), f"{place}: a candidate is listed twice.")
    for token_id, token, what in (
        (step.token_id, step.token, "the emitted token"),
        (step.policy_token_id, step.policy_token, "the policy's token"),
    ):
        row = rows.get(token_id)
        if found.expect(row is not None, f"{place}: {what} {token!r} is not among its candidates."):
            found.same(place, f"the text of {what}", token, None if row is None else row.token)
