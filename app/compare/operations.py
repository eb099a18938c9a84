"""Comparisons: stored audits beside each other, and every prompt of a file under several policies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from app.audit import operations as auditing
from app.audit.operations import Audited, AuditOptions, DecodingOptions, audited_json, print_audited, write_audited
from app.batch.service import BatchService
from app.compare.chains import (
    ChainSummary,
    Comparison,
    PairComparison,
    SetCell,
    SetColumn,
    SetComparison,
    SetRequest,
    SetSummary,
)
from app.compare.service import FROM_VANILLA, ComparisonService, comparison_csv
from app.compare.set_words import cell_text, column_names, means_rows
from app.compare.sets import SetComparisonService
from app.compare.words import chain_names, summary_rows
from app.prompts.rows import fields_json
from app.shared.errors import ServiceError
from app.shared.files import write_text
from app.shared.json import chain_text, job_json, settings_json
from app.shared.needs import READ, WORK
from app.shared.operations import Json, Read, checked, command, operation
from app.shared.settings_json import COLUMNS, columns_of, settings_from_json
from app.shared.terminal import pairs, print_table, wait_for_all
from app.shared.thinking import thinking_sentence
from app.shared.wiring import Services
from coft_core.step_numbers import step_numbers

CHAIN_FIGURES = (
    "certified", "fallbacks", "overruled", "mean_log_ratio", "mean_kl_factual", "mean_tv_factual", "seconds_per_token",
)  # fmt: skip


def comparison_json(comparison: Comparison) -> dict[str, Any]:
    """Chains, where each parts from the first, the aligned rows, and what is stored of each step."""
    return {
        "chains": [_chain_json(chain) for chain in comparison.chains],
        "pairs": [_pair_json(pair) for pair in comparison.pairs],
        "rows": [
            {
                "steps": [None if step is None else step + 1 for step in row.steps],
                "differs": list(row.differs),
                "same": row.same,
            }
            for row in comparison.rows
        ],
        "notes": list(comparison.notes),
    }


def _chain_json(chain: ChainSummary) -> dict[str, Any]:
    view, settings = chain.view, chain.settings
    # The factual reading of a checkpoint of its own is not vanilla's.
    hidden = dict.fromkeys(FROM_VANILLA if chain.own_model else ())
    return {
        "session_id": view.session_id,
        "branch_id": view.branch_id,
        "name": view.name,
        "branch": chain.branch.name,
        **{name: getattr(settings, name) for name in ("policy", "lam", "alpha", "mask_layout")},
        "model": view.model,
        "calibration_id": None if view.calibration is None else view.calibration.id,
        "certificate": view.certificate,
        "finished": view.finished,
        "text": chain_text(view),
        "tokens": len(chain.steps),
        **{name: getattr(chain, name) for name in CHAIN_FIGURES},
        "parameters": dict(settings.parameters),
        "memory": {"key_value_bytes": chain.key_value_bytes, **_memory_json(chain)},
        "steps": [step_numbers(step) | hidden for step in chain.steps],
    }


def _memory_json(measured: ChainSummary | SetColumn) -> dict[str, Any]:
    """Branches, bytes of weights as computed from the models' shapes, and the peak as measured."""
    own = measured.footprint
    return {
        "branches": None if own is None else len(own.prompt_tokens),
        "model_bytes": None if own is None else own.model_bytes,
        "further_bytes": None if own is None else own.further_bytes,
        "peak_bytes": measured.peak_bytes,
    }


def _pair_json(pair: PairComparison) -> dict[str, Any]:
    return {
        "chain": pair.other + 1,
        "first_divergence": None if pair.first_divergence is None else pair.first_divergence + 1,
        **pair.counts,
        "by_text": pair.by_text,
        "sentence": pair.sentence,
        "differences": [{"setting": name, "first": a, "other": b} for name, a, b in pair.differences],
    }


def set_json(view: SetComparison) -> dict[str, Any]:
    """A comparison with its columns' means, its rows, and what must be said with them."""
    return {
        "comparison_id": view.id,
        **{name: getattr(view, name) for name in ("name", "filename", "running", "resumable")},
        "created_at": view.created_at.isoformat(),
        "columns": [_column_json(column) for column in view.columns],
        "rows": [{**asdict(row), "cells": [_cell_json(cell) for cell in row.cells]} for row in view.rows],
        "notes": list(view.notes),
    }


def set_summary_json(item: SetSummary) -> dict[str, Any]:
    """A comparison in a list."""
    return {
        "comparison_id": item.id,
        "name": item.name,
        "created_at": item.created_at.isoformat(),
        "prompts": item.rows,
        "policies": list(item.policies),
        "running": item.running,
    }


def _column_json(column: SetColumn) -> dict[str, Any]:
    means = [asdict(item) for item in column.means]
    return {
        "batch_id": column.batch_id,
        "settings": settings_json(column.settings),
        "job": None if column.job is None else job_json(column.job),
        "finished": column.finished,
        "failed": column.failed,
        "means": {item.pop("measure"): item for item in means},
        "memory": _memory_json(column),
        "own_model": column.own_model,
    }


def _cell_json(cell: SetCell) -> dict[str, Any]:
    return {**fields_json(cell), "parted_at": None if cell.parted_at is None else cell.parted_at + 1}


def print_comparison(comparison: Comparison) -> None:
    """The chains, where they part, and their tokens row by row; ``*`` marks what differs, ``-`` a gap."""
    chains, names = comparison.chains, chain_names(comparison.chains)
    for place, chain in enumerate(chains, 1):
        thinking = "" if chain.view.thinking is None else f"; {thinking_sentence(chain.view.thinking)}"
        print(f"{place}: session {chain.view.session_id}, {chain.view.name}; {chain.view.certificate}{thinking}")
    print_table(["", *(f">{name}" for name in names)], summary_rows(comparison, names))
    for pair in comparison.pairs:
        differ = ", ".join(f"{name} {first} and {other}" for name, first, other in pair.differences)
        print(f"1 and {pair.other + 1}: {pair.sentence} Settings that differ: {differ or 'none'}")
    for note in comparison.notes:
        print(f"Note: {note}")
    rows = (
        [number, *(_cell(*cell) for cell in zip(chains, row.steps, row.differs, strict=True))]
        for number, row in enumerate(comparison.rows, 1)
    )
    print_table([">row", *names], rows)


def _cell(chain: ChainSummary, step: int | None, differs: bool) -> str:
    text = "-" if step is None else chain.steps[step].token.replace("\n", "\\n").replace(" ", "·", 1)
    return f"{'*' if differs and step is not None else ' '}{text}"


def _print_sets(sets: Sequence[SetSummary]) -> None:
    for item in sets:
        state = ", running" if item.running else ""
        print(f"{item.id:>4}  {item.name}  {item.rows} prompts  {', '.join(item.policies)}{state}")
    if not sets:
        print("No comparison over a prompt set yet.")


def _print_set(view: SetComparison) -> None:
    names = column_names(view.columns)
    print(f"Comparison {view.id}, {view.name}: {len(view.rows)} prompts of {view.filename}")
    for name, column in zip(names, view.columns, strict=True):
        print(f"{name}: batch {column.batch_id}, {column.finished} finished, {column.failed} failed")
    print_table(["", *(f">{name}" for name in names)], means_rows(view.columns))
    parts = [[cell_text(cell.parted, cell.parted_at) for cell in row.cells[1:]] for row in view.rows]
    rows = ([row.line, *own, " ".join(row.prompt.split())[:60]] for row, own in zip(view.rows, parts, strict=True))
    print_table([">line", *(f">{name} parts at" for name in names[1:]), "prompt"], rows)
    for note in view.notes:
        print(f"Note: {note}")


def write_comparison(_: Services, comparison: Comparison, file: Path) -> str:
    """Write the aligned tokens as CSV to this file."""
    return f"\nTable: {write_text(file, comparison_csv(comparison))}"


def _audited_json(audited: Audited | Comparison) -> Json:
    return audited_json(audited) if isinstance(audited, Audited) else comparison_json(audited)


def _write_audited(wired: Services, audited: Audited | Comparison, file: Path) -> str:
    """Write the report as CSV to this file."""
    return (
        write_audited(wired, audited, file) if isinstance(audited, Audited) else write_comparison(wired, audited, file)
    )


def _print_audited(audited: Audited | Comparison) -> None:
    if isinstance(audited, Audited):
        print_audited(audited)
    else:
        print_comparison(audited)


@command("audit", json=_audited_json, write=_write_audited, text=_print_audited)
def audit_under_policies(wired: Services, *, asked: AuditOptions, options: DecodingOptions) -> Audited | Comparison:
    """Audit one prompt and write its report."""
    columns = options.decoding(wired, asked.policy)
    if len(columns) == 1:
        audited: Audited = auditing.audit.call(wired, asked=asked, options=options)
        return audited
    if asked.until is not None:
        raise ServiceError("--until stops one text; give one policy with it, or leave it out.")
    ids = wired[ComparisonService].run_columns(asked.request(columns[0]), columns)
    for _ in wired[ComparisonService].advance(ids):
        pass
    return wired[ComparisonService].compare(ids)


def _session_and_branch(text: str) -> tuple[int, int | None]:
    session, _, branch = text.partition(":")
    if not session.isdigit() or (branch and not branch.isdigit()):
        raise ServiceError(f"{text!r} is no session; give its number, or SESSION:BRANCH for one of its branches.")
    return int(session), int(branch) if branch else None


@operation(need=READ, json=comparison_json)
def compare_sessions(wired: Services, session_ids: list[int], branch_ids: list[int | None] | None = None) -> Comparison:
    """Compare the chains of two to eight sessions with the first of them; needs no model.

    Args:
        session_ids: The sessions; one can be named several times for several of its branches.
        branch_ids: A branch for each session, or null for its active one; without any, the active ones.

    Returns:
        chains, pairs (where each parts from the first, and the settings that differ), and the aligned rows; steps
        count from 1 and are null where a chain has no token.
    """
    return wired[ComparisonService].compare(session_ids, branch_ids or [])


@command("compare", json=comparison_json, write=write_comparison, text=print_comparison)
def compare(wired: Services, sessions: Annotated[list[str], typer.Argument(metavar="SESSION[:BRANCH]")]) -> Comparison:
    """Put stored audits, or branches of one, beside each other.

    Args:
        sessions: two or more; the others are compared with the first
    """
    chosen = [_session_and_branch(text) for text in sessions]
    return compare_sessions.call(wired, [session for session, _ in chosen], [branch for _, branch in chosen])


Asked = tuple[SetRequest, dict[str, str] | None]
"""What is asked of a prompt set, and the columns that its fields are read from."""

NOTHING: Asked = (SetRequest("", ()), None)


def set_request(given: Json | None) -> Asked:
    """A comparison over a prompt set from JSON: settings of all columns, and under ``compare`` those of each.

    Raises:
        ServiceError: A setting does not exist, or the columns are no list of objects.
    """
    everywhere = {name: value for name, value in (given or {}).items() if name != COLUMNS}
    name = checked("The setting name", str | None, everywhere.pop("name", None))
    accept_errors = checked("The setting accept_errors", bool, everywhere.pop("accept_errors", False))
    columns = everywhere.pop("compare", None)
    if not isinstance(columns, list) or not all(isinstance(item, dict) for item in columns):
        raise ServiceError('The setting "compare" must list the columns: [{"policy": "vanilla"}, {"policy": "coft"}].')
    settings = tuple(settings_from_json({**everywhere, **item}) for item in columns)
    return SetRequest(name or "", settings, accept_errors), columns_of(given)


def _follow(wired: Services, view: SetComparison, quiet: bool) -> SetComparison:
    """Wait for all columns; an interruption keeps what is done."""
    sets = wired[SetComparisonService]
    left = [column.job.id for column in view.columns if column.job is not None and column.job.active]
    wait_for_all(wired, left, lambda: sets.cancel(view.id), f"compare-set resume {view.id}", "A column", quiet)
    return sets.view(view.id)


def _write_set(wired: Services, view: SetComparison, folder: Path) -> str:
    """Write rows and means as CSV into this folder."""
    return "\n".join(f"Written: {path}" for path in wired[SetComparisonService].write_csv(view.id, folder))


SET: Json = {"json": set_json, "write": _write_set, "text": _print_set}


@operation(need=WORK, json=set_json, answer="comparison")
def run_comparison(
    wired: Services, file: Path, settings: Annotated[Asked, Read(set_request)] = NOTHING
) -> SetComparison:
    """Start every prompt of a file under several policies or settings, without waiting for it.

    Args:
        file: CSV or JSONL with a prompt in each row, and optionally group and context.
        settings: compare is required: a list with the settings of each column, of which only policy is needed, such
            as [{"policy": "vanilla"}, {"policy": "coft", "lam": 0.8}]. All else is optional and holds for every
            column: the settings of start_audit. Besides there are name, accept_errors (go on with the good rows),
            and columns, which says for a field of a prompt set what column of the file to read it from.

    Returns:
        The comparison: comparison_id, its columns and rows; ask comparison_summary how far it is.
    """
    request, columns = settings
    prompts, sets = wired[BatchService].parse(file, file.name, columns), wired[SetComparisonService]
    return sets.view(sets.submit(prompts, replace(request, name=request.name or file.stem)))


@command("compare-set run", wait=_follow, **SET)
def compare_set(
    wired: Services,
    *,
    prompts: Path,
    policy: Annotated[str, typer.Option("--policy", metavar="NAME,NAME")],
    columns: Annotated[str | None, typer.Option("--columns", metavar="FIELD=COLUMN,...")] = None,
    name: str = "",
    accept_errors: bool = False,
    options: DecodingOptions,
) -> SetComparison:
    """Decode every prompt of a CSV or JSONL file under each policy.

    Args:
        prompts: the prompt set
        policy: two or more that 'policies' lists; the others are compared with the first
        columns: columns to read fields from, e.g. prompt=text,group=gender
        name: name of the comparison (default: the file's)
        accept_errors: go on with the rows that can be used
    """
    request = SetRequest(name, tuple(options.decoding(wired, policy)), accept_errors)
    return run_comparison.call(wired, prompts, (request, pairs("--columns", columns)))


@operation(need=READ, command="compare-set show", **SET)
def comparison_summary(wired: Services, comparison_id: int) -> SetComparison:
    """Say how far a comparison over a prompt set is, with its means and rows.

    Args:
        comparison_id: The comparison.

    Returns:
        columns (means with 95 % intervals, and memory) and rows, whose cells say where each column parts from the
        first one (steps count from 1), its divergence from vanilla, sensitivity, fallbacks, time and memory.
    """
    return wired[SetComparisonService].view(comparison_id)


@command("compare-set list", json=lambda sets: [set_summary_json(item) for item in sets], text=_print_sets)
def list_comparisons(wired: Services) -> tuple[SetSummary, ...]:
    """List comparisons, newest first."""
    return wired[SetComparisonService].list()


@command("compare-set resume", wait=_follow, **SET)
def resume_comparison(wired: Services, comparison: int) -> SetComparison:
    """Go on with the rows that are not finished.

    Args:
        comparison: number of a comparison
    """
    wired[SetComparisonService].resume(comparison)
    return wired[SetComparisonService].view(comparison)


@command("compare-set delete")
def delete_comparison(wired: Services, comparison: int) -> str:
    """Delete a comparison with its batches; their sessions stay.

    Args:
        comparison: number of a comparison
    """
    wired[SetComparisonService].delete(comparison)
    return f"Comparison {comparison} deleted; its sessions stay."
