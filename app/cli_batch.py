"""The command ``batch``: many prompts audited with the same settings, listed, shown, resumed, and read by group."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from app.bootstrap import Services, services
from app.cli_calibrate import pairs
from app.cli_options import EMBEDDED, POLICY_KEYS, add_json, add_parameters, add_policy_options, show
from app.cli_output_batches import print_batch, print_batches, print_impact
from app.cli_settings import audit_settings
from app.cli_waiting import STOPPED, wait_for_all
from app.services.batch.impact import impact_csv
from app.services.batch.plain import batch_json, batch_summary_json, impact_json
from app.services.errors import ServiceError
from app.services.reports import write_text
from app.services.views.batches import BatchRequest, OutcomeRule
from app.settings import Settings


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
            settings=audit_settings(wired, options),
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
