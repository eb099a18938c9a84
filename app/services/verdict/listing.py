"""A verdict log as a table, and the words that verdicts are about."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from app.services.csv_files import to_csv
from app.services.views.verdicts import LogEntry, Target
from db.records import StepRecord

LOG_COLUMNS = (
    "session_id", "entry", "at", "kind", "reviewer", "blind", "target", "branch", "first_step", "last_step", "verdict",
    "tag", "note", "previous", "digest",
)  # fmt: skip


def log_csv(session_id: int, entries: Iterable[LogEntry]) -> str:
    """One row an entry of the verdict log; steps count from 1."""
    return to_csv(LOG_COLUMNS, [_row(session_id, entry) for entry in entries])


def words_of(
    targets: Iterable[Target], chain: Callable[[int], Sequence[StepRecord]]
) -> dict[tuple[str, int, int], str]:
    """The text of each target that is a step or a span, by the target's key.

    Args:
        targets: What verdicts are about.
        chain: Reads the chain of a branch by the branch's id; asked once a branch.
    """
    asked = [item for item in targets if item.branch_id is not None and item.first_step is not None]
    chains = {number: chain(number) for number in {item.branch_id for item in asked} if number is not None}
    return {item.key: "".join(step.token for step in _part(chains, item)) for item in asked}


def _part(chains: dict[int, Sequence[StepRecord]], target: Target) -> Sequence[StepRecord]:
    if target.branch_id is None or target.first_step is None or target.last_step is None:
        return ()
    return chains[target.branch_id][target.first_step : target.last_step + 1]


def _row(session_id: int, entry: LogEntry) -> dict[str, object]:
    target = entry.target
    return {
        "session_id": session_id,
        "entry": entry.entry,
        "at": entry.at.isoformat(),
        "kind": entry.kind,
        "reviewer": entry.reviewer,
        "blind": entry.blind,
        "target": target.label,
        "branch": target.branch,
        "first_step": None if target.first_step is None else target.first_step + 1,
        "last_step": None if target.last_step is None else target.last_step + 1,
        "verdict": entry.verdict,
        "tag": entry.tag,
        "note": entry.note,
        "previous": entry.previous,
        "digest": entry.digest,
    }
