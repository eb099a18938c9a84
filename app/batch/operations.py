"""The command ``batch``: many prompts audited with the same settings, listed, shown, resumed, and read by group."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import gradio as gr
from gradio.components import Component

from app.batch.impact import ImpactTable, OutcomeRule, Outcomes, impact_csv, impact_json
from app.batch.rows import BatchRowView, MeanInterval
from app.batch.service import BatchRequest, BatchSummary, BatchView, batch_json, batch_summary_json
from app.bootstrap import Services, services
from app.calibrate.commands import pairs
from app.settings import Settings
from app.shared.errors import ServiceError
from app.shared.events import offer, offer_with_files, shown
from app.shared.files import write_text
from app.shared.settings_json import batch_request, columns_of
from app.shared.terminal import (
    EMBEDDED,
    POLICY_KEYS,
    STOPPED,
    add_json,
    add_parameters,
    add_policy_options,
    settings_from_options,
    show,
    wait_for_all,
)

RULE = ("selected", "other", "regex", "match_case")


class BatchEndpoints:
    """One method per endpoint; docstrings are the interface's documentation."""

    def __init__(self, services: Services) -> None:
        """Keep the services."""
        self._batches = services.batches

    @shown
    def run_batch(self, file: str, settings: dict[str, Any] | None = None) -> dict[str, Any]:
        """Start a batch, which is an audit session for each prompt of a file, without waiting for it.

        Args:
            file: CSV or JSONL with a prompt in each row, and optionally group and context.
            settings: All optional: those of start_audit, and name, accept_errors (go on with the good rows), same_seed,
                group_thresholds, and columns, which says for a field of a prompt set what column of the file to read
                it from ({"prompt": "question"}).

        Returns:
            The batch: batch_id, name, settings, its state and rows; ask batch_summary how far it is.
        """
        request = batch_request(Path(file).stem, settings)
        prompts = self._batches.parse(Path(file), Path(file).name, columns_of(settings))
        return batch_json(self._batches.view(self._batches.submit(prompts, request)))

    @shown
    def batch_summary(
        self, batch_id: int, rule: dict[str, Any] | None = None, exclude_small: bool = False
    ) -> dict[str, Any]:
        """Say how far a batch is, with its rows and totals by group.

        Args:
            batch_id: The batch.
            rule: Who counts as selected, for impact ratios: {"selected": "hired", "other": "rejected", "regex": false,
                "match_case": false}; only selected is required.
            exclude_small: Leave groups below 2 % of the rows out of the ratios.

        Returns:
            The batch with rows and groups (95 % intervals); with a rule also impact, which has selection rates and
            impact ratios by group.
        """
        found = batch_json(self._batches.view(int(batch_id)))
        if rule is None:
            return found
        unknown = sorted(set(rule) - set(RULE))
        if unknown or not rule.get("selected"):
            wrong = f"There is no {unknown[0]!r} in a rule" if unknown else "The rule does not say who is selected"
            raise ServiceError(f"{wrong}; a rule has {', '.join(RULE)}, and selected is required.")
        read = OutcomeRule(**rule)
        table, outcomes = self._batches.impact(int(batch_id), read, bool(exclude_small))
        return {**found, "impact": impact_json(table, outcomes, read)}


def batch_endpoints(services: Services, file: gr.File, settings: Component) -> None:
    """Register the endpoints; ``file`` and ``settings`` are hidden components for what is uploaded."""
    calls = BatchEndpoints(services)
    offer(calls.batch_summary)
    offer_with_files(calls.run_batch, [file, settings], gr.JSON(label="batch"))


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


def add_batch(commands: Any) -> None:
    """Add the command with its own commands."""
    parser = commands.add_parser("batch", help="audit many prompts with the same settings, and sum them up by group")
    own = parser.add_subparsers(required=True, metavar="ACTION")
    _add_run(own)
    listed = own.add_parser("list", help="list batches, newest first")
    add_json(listed)
    listed.set_defaults(run=_list)
    shown = own.add_parser("show", help="the rows of a batch and its totals by group")
    shown.add_argument("batch", type=int, help="number of a batch")
    shown.add_argument("--out", type=Path, metavar="FOLDER", help="write rows and totals as CSV into this folder")
    add_json(shown)
    shown.set_defaults(run=_show)
    resumed = own.add_parser("resume", help="go on with the rows of a batch that are not finished")
    resumed.add_argument("batch", type=int, help="number of a batch")
    add_json(resumed)
    resumed.set_defaults(run=_resume)
    deleted = own.add_parser("delete", help="delete a batch; its sessions stay")
    deleted.add_argument("batch", type=int, help="number of a batch")
    deleted.set_defaults(run=_delete)
    _add_impact(own)


def _add_run(own: Any) -> None:
    command = own.add_parser("run", help="audit every prompt of a CSV or JSONL file")
    command.add_argument("--prompts", type=Path, required=True, help="the prompt set")
    command.add_argument(
        "--columns", metavar="FIELD=COLUMN,...", help="columns to read fields from, e.g. prompt=text,group=gender"
    )
    command.add_argument("--name", help="name of the batch (default: the file's)")
    command.add_argument("--accept-errors", action="store_true", help="go on with the rows that can be used")
    command.add_argument("--same-seed", action="store_true", help="the same seed for every row, not one a context")
    command.add_argument(
        "--group-thresholds", action="store_true", help="each row under the thresholds of its own group"
    )
    command.add_argument(
        "--policy", choices=POLICY_KEYS, default="coft", metavar="NAME",
        help=f"{', '.join(POLICY_KEYS)} (default: coft)",
    )  # fmt: skip
    add_parameters(command)
    command.add_argument(
        "--calibration", default=EMBEDDED, help=f"number of a calibration, '{EMBEDDED}' (default) or 'none'"
    )
    command.add_argument("--group", help="group whose own thresholds are used for all rows")
    command.add_argument("--proceed-uncertified", action="store_true", help="use a calibration of another policy")
    command.add_argument("--steps", type=int, default=64, help="tokens a prompt at most (default: 64)")
    command.add_argument("--greedy", action="store_true", help="take the likeliest certified token")
    add_policy_options(command)
    command.set_defaults(run=_run)


def _add_impact(own: Any) -> None:
    command = own.add_parser("impact", help="selection rates by group and impact ratios")
    command.add_argument("batch", type=int, help="number of a batch")
    command.add_argument("--selected", required=True, help="word or phrase of a continuation that means selected")
    command.add_argument("--other", default="", help="a second one; the one that stands first decides")
    command.add_argument("--regex", action="store_true", help="they are regular expressions")
    command.add_argument("--match-case", action="store_true", help="letter case matters")
    command.add_argument("--exclude-small", action="store_true", help="leave groups below 2 %% of the rows out")
    command.add_argument("--out", type=Path, help="also write the table as CSV to this file")
    add_json(command)
    command.set_defaults(run=_impact)


def _run(options: argparse.Namespace) -> int:
    with services(Settings()) as wired:
        request = BatchRequest(
            name=options.name or options.prompts.stem,
            settings=settings_from_options(wired, options),
            accept_errors=options.accept_errors,
            same_seed=options.same_seed,
            group_thresholds=options.group_thresholds,
        )
        prompts = wired.batches.parse(options.prompts, columns=pairs("--columns", options.columns))
        if not options.json:
            for error in wired.batches.row_errors(prompts, request):
                print(f"line {error.line}: {error.column} {error.message}", file=sys.stderr)
        return _follow(wired, wired.batches.submit(prompts, request), options)


def _resume(options: argparse.Namespace) -> int:
    with services(Settings()) as wired:
        wired.batches.resume(options.batch)
        return _follow(wired, options.batch, options)


def _follow(wired: Services, batch_id: int, options: argparse.Namespace) -> int:
    """Wait for a batch and show it; an interruption keeps what is done."""
    job = wired.batches.view(batch_id).job
    if job is None:
        raise ServiceError(f"Nothing is known of the run of batch {batch_id}; resume it.")
    resume, cancel = f"batch resume {batch_id}", lambda: wired.batches.cancel(batch_id)
    if not wait_for_all(wired, [job.id], cancel, resume, "The batch", quiet=options.json):
        return STOPPED
    view = wired.batches.view(batch_id)
    show(options, batch_json(view), lambda: print_batch(view))
    return 0


def _list(options: argparse.Namespace) -> None:
    with services(Settings()) as wired:
        found = wired.batches.list()
        show(options, [batch_summary_json(item) for item in found], lambda: print_batches(found))


def _show(options: argparse.Namespace) -> None:
    with services(Settings()) as wired:
        view = wired.batches.view(options.batch)
        written = wired.batches.write_csv(options.batch, options.out) if options.out else ()
        show(options, batch_json(view), lambda: print_batch(view, written))


def _delete(options: argparse.Namespace) -> None:
    with services(Settings()) as wired:
        wired.batches.delete(options.batch)
        print(f"Batch {options.batch} deleted; its sessions stay.")


def _impact(options: argparse.Namespace) -> None:
    rule = OutcomeRule(options.selected, options.other, options.regex, options.match_case)
    with services(Settings()) as wired:
        table, found = wired.batches.impact(options.batch, rule, options.exclude_small)
        if options.out:
            write_text(options.out, impact_csv(table))
        show(options, impact_json(table, found, rule), lambda: print_impact(table, found, options.out))
