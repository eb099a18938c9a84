"""The command ``compare-set``: every prompt of a file under several policies, listed, shown, resumed and exported."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from app.batch.rows import MeanInterval
from app.bootstrap import Services, services
from app.calibrate.commands import pairs
from app.compare.json import comparison_json, set_json, set_summary_json
from app.compare.service import comparison_csv
from app.compare.types import ChainSummary, Comparison, SetColumn, SetComparison, SetRequest, SetSummary
from app.settings import Settings
from app.shared.errors import ServiceError
from app.shared.files import write_text
from app.shared.policies import policy_name
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

WIDTH = 18


def add_compare(commands: Any) -> None:
    """Add the command."""
    command = commands.add_parser("compare", help="put stored audits, or branches of one, beside each other")
    command.add_argument(
        "sessions", nargs="+", metavar="SESSION[:BRANCH]", help="two or more; the others are compared with the first"
    )
    command.add_argument("--out", type=Path, help="write the aligned tokens as CSV to this file")
    add_json(command)
    command.set_defaults(run=_compare)


def _compare(options: argparse.Namespace) -> None:
    chosen = [_chain(text) for text in options.sessions]
    with services(Settings()) as wired:
        found = wired.comparisons.compare([session for session, _ in chosen], [branch for _, branch in chosen])
    show_comparison(options, found)


def show_comparison(options: argparse.Namespace, found: Comparison) -> None:
    """Print a comparison as text or JSON, and write its table where ``--out`` names a file."""
    if options.out:
        write_text(options.out, comparison_csv(found))
    show(options, comparison_json(found), lambda: print_comparison(found, options.out))


def print_comparison(found: Comparison, out: Path | None) -> None:
    """The chains, where they part, and their tokens row by row; ``*`` marks what differs, ``-`` a gap."""
    for place, chain in enumerate(found.chains, 1):
        print(f"{place}: session {chain.session_id}, {chain.name}; {policy_name(chain.policy)}; {chain.certificate}")
        print(f"   {_figures(chain)}")
        print(f"   {_memory(chain)}")
    for pair in found.pairs:
        print(f"1 and {pair.other + 1}: {pair.sentence}")
        differ = ", ".join(f"{name} {first} and {other}" for name, first, other in pair.differences)
        print(f"   Settings that differ: {differ or 'none'}")
    for note in found.notes:
        print(f"Note: {note}")
    print(f"\n{'row':>4}  " + "".join(f"{place:<{WIDTH}}" for place in range(1, len(found.chains) + 1)))
    for number, row in enumerate(found.rows, 1):
        cells = [_cell(chain, step, differs)
                 for chain, step, differs in zip(found.chains, row.steps, row.differs, strict=True)]  # fmt: skip
        print(f"{number:>4}{' ' if row.same else '*'} {''.join(cells)}".rstrip())
    if out:
        print(f"\nTable: {out}")


def _figures(chain: ChainSummary) -> str:
    parts = [f"{len(chain.steps)} tokens"]
    if chain.mean_log_ratio is not None:
        parts.append(f"mean sensitivity {chain.mean_log_ratio:.3f}")
    counts = (("certified", chain.certified), ("fallbacks", chain.fallbacks), ("overruled", chain.overruled))
    parts += [f"{count} {name}" for name, count in counts if count is not None]
    if chain.mean_tv_factual is not None and chain.mean_kl_factual is not None:
        parts.append(f"from vanilla TV {chain.mean_tv_factual:.4f}, KL {chain.mean_kl_factual:.4f} nats")
    elif chain.own_model:
        parts.append("a checkpoint of its own, so no divergence from vanilla")
    if chain.seconds_per_token is not None:
        parts.append(f"{1000 * chain.seconds_per_token:.1f} ms a token")
    return ", ".join(parts)


def _memory(chain: ChainSummary) -> str:
    """Bytes as computed from the models' shapes, and as measured where the device counts them."""
    own = chain.footprint
    if own is None:
        return "memory not known"
    parts = [f"{len(own.prompt_tokens)} branches"]
    if chain.key_value_bytes is not None:
        parts.append(f"keys and values {megabytes(chain.key_value_bytes)} (computed)")
    parts += [f"further models {megabytes(own.further_bytes)} (weights)"] if own.further_bytes else []
    parts += [f"measured peak {megabytes(chain.peak_bytes)}"] if chain.peak_bytes else []
    return ", ".join(parts)


def megabytes(size: int) -> str:
    """A number of bytes in megabytes (10^6)."""
    return f"{size / 1e6:,.1f} MB"


def interval(item: MeanInterval, factor: float, digits: int) -> str:
    """A mean with its 95 % interval and the number of contexts, in the unit that the factor gives."""
    if item.mean is None:
        return "-"
    within = (
        ""
        if item.low is None or item.high is None
        else (f" ({factor * item.low:.{digits}f} to {factor * item.high:.{digits}f})")
    )
    left = f", {item.left_out} left out" if item.left_out else ""
    return f"{factor * item.mean:.{digits}f}{within}, n = {item.contexts}{left}"


def _cell(chain: ChainSummary, step: int | None, differs: bool) -> str:
    text = "-" if step is None else chain.steps[step].token.replace("\n", "\\n").replace(" ", "·", 1)
    return f"{'*' if differs and step is not None else ' '}{text:<{WIDTH - 1}}"


def _chain(text: str) -> tuple[int, int | None]:
    session, _, branch = text.partition(":")
    if not session.isdigit() or (branch and not branch.isdigit()):
        raise ServiceError(f"{text!r} is no session; give its number, or SESSION:BRANCH for one of its branches.")
    return int(session), int(branch) if branch else None


SHOWN = (
    ("parted", "other text than column 1, share of prompts", 1.0, 3),
    ("mean_tv_factual", "from vanilla, total variation", 1.0, 4),
    ("mean_kl_factual", "from vanilla, KL in nats", 1.0, 4),
    ("mean_log_ratio", "sensitivity", 1.0, 3),
    ("certified_share", "certified share", 1.0, 3),
    ("fallbacks", "fallbacks a chain", 1.0, 2),
    ("seconds_per_token", "ms a token", 1000.0, 2),
    ("key_value_bytes", "keys and values, MB (computed)", 1e-6, 2),
)
"""Measure, its words, the factor to its shown unit, and its digits."""


def add_compare_set(commands: Any) -> None:
    """Add the command with its own commands."""
    parser = commands.add_parser("compare-set", help="run every prompt of a file under several policies, and compare")
    own = parser.add_subparsers(required=True, metavar="ACTION")
    _add_run(own)
    listed = own.add_parser("list", help="list comparisons, newest first")
    add_json(listed)
    listed.set_defaults(run=_list)
    shown = own.add_parser("show", help="means of the columns, and where each prompt parts")
    shown.add_argument("comparison", type=int, help="number of a comparison")
    _add_out(shown)
    shown.set_defaults(run=_show)
    resumed = own.add_parser("resume", help="go on with the rows that are not finished")
    resumed.add_argument("comparison", type=int, help="number of a comparison")
    _add_out(resumed)
    resumed.set_defaults(run=_resume)
    deleted = own.add_parser("delete", help="delete a comparison with its batches; their sessions stay")
    deleted.add_argument("comparison", type=int, help="number of a comparison")
    deleted.set_defaults(run=_delete)


def _add_run(own: Any) -> None:
    command = own.add_parser("run", help="decode every prompt of a CSV or JSONL file under each policy")
    command.add_argument("--prompts", type=Path, required=True, help="the prompt set")
    command.add_argument(
        "--policy", required=True, metavar="NAME,NAME",
        help=f"two or more of {', '.join(POLICY_KEYS)}; the others are compared with the first",
    )  # fmt: skip
    add_parameters(command)
    command.add_argument(
        "--columns", metavar="FIELD=COLUMN,...", help="columns to read fields from, e.g. prompt=text,group=gender"
    )
    command.add_argument("--name", help="name of the comparison (default: the file's)")
    command.add_argument("--accept-errors", action="store_true", help="go on with the rows that can be used")
    command.add_argument(
        "--calibration", default=EMBEDDED, help=f"number of a calibration, '{EMBEDDED}' (default) or 'none'"
    )
    command.add_argument("--group", help="group whose own thresholds are used for all rows")
    command.add_argument("--proceed-uncertified", action="store_true", help="use a calibration of another policy")
    command.add_argument("--steps", type=int, default=64, help="tokens a prompt at most (default: 64)")
    command.add_argument("--greedy", action="store_true", help="take the likeliest certified token")
    command.add_argument("--out", type=Path, metavar="FOLDER", help="write rows and means as CSV into this folder")
    add_policy_options(command)
    command.set_defaults(run=_run)


def _add_out(command: Any) -> None:
    command.add_argument("--out", type=Path, metavar="FOLDER", help="write rows and means as CSV into this folder")
    add_json(command)


def _run(options: argparse.Namespace) -> int:
    names = [name.strip() for name in str(options.policy).split(",")]
    with services(Settings()) as wired:
        prompts = wired.batches.parse(options.prompts, columns=pairs("--columns", options.columns))
        request = SetRequest(
            name=options.name or options.prompts.stem,
            columns=tuple(settings_from_options(wired, options, name) for name in names),
            accept_errors=options.accept_errors,
        )
        return _follow(wired, wired.compared_sets.submit(prompts, request), options)


def _resume(options: argparse.Namespace) -> int:
    with services(Settings()) as wired:
        wired.compared_sets.resume(options.comparison)
        return _follow(wired, options.comparison, options)


def _follow(wired: Services, number: int, options: argparse.Namespace) -> int:
    """Wait for all columns and show them; an interruption keeps what is done."""
    jobs = [own.job for own in wired.compared_sets.view(number).columns if own.job is not None]
    left = [job.id for job in jobs if job.active]
    resume, cancel = f"compare-set resume {number}", lambda: wired.compared_sets.cancel(number)
    if not wait_for_all(wired, left, cancel, resume, "A column", quiet=options.json):
        return STOPPED
    _print_view(wired, number, options)
    return 0


def _list(options: argparse.Namespace) -> None:
    with services(Settings()) as wired:
        found = wired.compared_sets.list()
        show(options, [set_summary_json(item) for item in found], lambda: _print_list(found))


def _show(options: argparse.Namespace) -> None:
    with services(Settings()) as wired:
        _print_view(wired, options.comparison, options)


def _delete(options: argparse.Namespace) -> None:
    with services(Settings()) as wired:
        wired.compared_sets.delete(options.comparison)
        print(f"Comparison {options.comparison} deleted; its sessions stay.")


def _print_view(wired: Services, number: int, options: argparse.Namespace) -> None:
    view = wired.compared_sets.view(number)
    written = wired.compared_sets.write_csv(number, options.out) if options.out else ()
    show(options, set_json(view), lambda: _print(view, written))


def _print_list(found: Sequence[SetSummary]) -> None:
    for item in found:
        state = ", running" if item.running else ""
        print(f"{item.id:>4}  {item.name}  {item.rows} prompts  {', '.join(item.policies)}{state}")
    if not found:
        print("No comparison over a prompt set yet.")


def _print(view: SetComparison, written: Sequence[Path]) -> None:
    print(f"Comparison {view.id}, {view.name}: {len(view.rows)} prompts of {view.filename}")
    for place, column in enumerate(view.columns, 1):
        print(f"\n{place}: {policy_name(column.settings.policy)}, batch {column.batch_id}, {_standing(column, view)}")
        means = {item.measure: item for item in column.means}
        for measure, words, factor, digits in SHOWN:
            if (item := means[measure]).mean is not None:
                print(f"   {words}: {interval(item, factor, digits)}")
        print(f"   {_memory_of_set(column)}")
    print()
    for row in view.rows:
        parts = [f"{place + 1}: {_where(cell.parted, cell.parted_at)}" for place, cell in enumerate(row.cells) if place]
        print(f"line {row.line:>4}  {'; '.join(parts)}  {' '.join(row.prompt.split())[:60]}")
    for note in view.notes:
        print(f"Note: {note}")
    for path in written:
        print(f"Written: {path}")


def _standing(column: SetColumn, view: SetComparison) -> str:
    failed = f", {column.failed} failed" if column.failed else ""
    return f"{column.finished} of {len(view.rows)} finished{failed}"


def _memory_of_set(column: SetColumn) -> str:
    if column.footprint is None:
        return "memory: not known"
    own = column.footprint
    parts = [f"model {megabytes(own.model_bytes)} (weights)"]
    parts += [f"further models {megabytes(own.further_bytes)}"] if own.further_bytes else []
    parts += [f"measured peak {megabytes(column.peak_bytes)}"] if column.peak_bytes else []
    return ", ".join(parts)


def _where(parted: bool | None, at: int | None) -> str:
    return "not known yet" if parted is None else "same" if at is None else f"parts at {at + 1}"
