"""What commands print of batches for people."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from app.services.batch.impact import ImpactTable
from app.services.views.batches import BatchRowView, BatchSummary, BatchView, MeanInterval, Outcomes

LONGEST_PROMPT = 48


def print_batches(found: tuple[BatchSummary, ...]) -> None:
    """One line a batch."""
    if not found:
        print("No batches yet. Run one with: python -m app batch run --prompts FILE")
    for item in found:
        state = "unknown" if item.job is None else item.job.status
        print(f"{item.id:>5}  {item.created_at:%Y-%m-%d %H:%M}  {item.rows:>5} prompts  {state:<11}  {item.name}")


def print_batch(view: BatchView, written: Iterable[Path] = ()) -> None:
    """The rows, then the totals by group, with every reservation."""
    counted = ", ".join(f"{number} {state}" for state, number in view.counts.items())
    print(f"Batch {view.id}: {view.name} ({view.filename}; {counted})")
    print(
        f"\n{'line':>5}  {'group':<16} {'steps':>5} {'certified':>9} {'fallbacks':>9} {'overruled':>9} "
        f"{'mean lr':>8} {'max lr':>8} {'margin':>8}  prompt"
    )
    for row in view.rows:
        print(_row(row))
    for group in view.groups:
        print(f"\n{group.group or 'no group'}: {group.rows} rows, {group.contexts} contexts")
        for item in group.means:
            print(f"  {item.measure:<16} {_interval(item)}")
    print()
    for note in view.notes:
        print(note)
    for path in written:
        print(f"Written: {path}")


def print_impact(table: ImpactTable, found: Outcomes, out: Path | None) -> None:
    """Selection rates and impact ratios, with every reservation."""
    print(f"{'group':<20} {'applicants':>10} {'selected':>8} {'rate':>6}  {'95 % interval':<15} {'ratio':>6}")
    for row in table.rows:
        ratio = "none" if row.ratio is None else f"{row.ratio:.2f}"
        marks = [
            "most selected" if row.reference else "",
            "below four fifths" if row.below_four_fifths else "",
            row.note,
        ]
        said = "; ".join(mark for mark in marks if mark)
        interval = f"{row.low:.3f} to {row.high:.3f}"
        print(f"{row.group:<20} {row.total:>10} {row.selected:>8} {row.rate:>6.3f}  {interval:<15} {ratio:>6}  {said}")
    for note in (*table.notes, *found.notes):
        print(note)
    if out:
        print(f"Written: {out}")


def _row(row: BatchRowView) -> str:
    prompt = " ".join(row.prompt.split())
    if len(prompt) > LONGEST_PROMPT:
        prompt = f"{prompt[: LONGEST_PROMPT - 1]}…"
    certified = "-" if row.certified_share is None else f"{row.certified_share:.0%}"
    state = "" if row.state == "finished" else f" [{row.state}{': ' + row.error if row.error else ''}]"
    return (
        f"{row.line:>5}  {row.group or '-':<16} {row.steps:>5} {certified:>9} {_number(row.fallbacks):>9} "
        f"{_number(row.overruled):>9} {_number(row.mean_log_ratio):>8} {_number(row.max_log_ratio):>8} "
        f"{_number(row.min_margin):>8}  {prompt}{state}"
    )


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return str(value) if isinstance(value, int) else f"{value:.3f}"


def _interval(item: MeanInterval) -> str:
    if item.mean is None:
        return "no value"
    between = "no interval" if item.low is None else f"{item.low:.3f} to {item.high:.3f}"
    left_out = f"; {item.left_out} rows without" if item.left_out else ""
    return f"{item.mean:.3f} ({between}; {item.contexts} contexts{left_out})"
