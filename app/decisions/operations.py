"""Decisions that other programs made: read from a file, listed, shown, exported and deleted."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from app.decisions.service import DecisionRequest, DecisionService
from app.report.service import DECIDED
from app.shared.commands import Choices
from app.shared.decisions import DecidedRun, compared_said, control_said, finding, notes, rates_csv, run_json
from app.shared.files import write_bytes, write_text
from app.shared.formal_reports import Statement
from app.shared.needs import EXPORT, READ, WORK
from app.shared.operations import Json, Read, command, operation, record
from app.shared.requirements import chosen
from app.shared.settings_json import COLUMNS, columns_of
from app.shared.terminal import pairs, print_table
from app.shared.wiring import Services
from coft_core.messages import LANGUAGES, catalogue
from db.decisions import DecisionRunRecord

Asked = tuple[DecisionRequest, dict[str, str] | None]
"""How a file is read, and the columns that its fields are read from."""


USUAL: Asked = (DecisionRequest(), None)


def request_from(given: Json | None) -> Asked:
    """A request from JSON, with the columns beside it.

    Raises:
        ServiceError: There is no such setting, or one cannot take its value.
    """
    return record(DecisionRequest, given, others=(COLUMNS,)), columns_of(given)


def print_run(run: DecidedRun) -> None:
    """The finding first, then rates, comparisons and reservations."""
    found, say = run.found, catalogue("en")
    print(f"Decisions {run.id}: {run.name} ({run.file}, {run.form}, {len(run.decisions)} rows)\n")
    print(f"{finding(found, say)}\n")
    rows = []
    for row in found.table.rows:
        ends = found.ratios.get(row.group)
        mark = "most selected" if row.reference else "below four fifths" if row.below_four_fifths else ""
        ratio = "none" if row.ratio is None else f"{row.ratio:.2f}"
        between = "" if ends is None else f"{ends[0]:.2f} to {ends[1]:.2f}"
        rates = f"{row.rate:.3f}", f"{row.low:.3f} to {row.high:.3f}"
        rows.append((row.group, row.total, row.selected, *rates, ratio, between, mark))
    print_table(("group", ">rows", ">selected", ">rate", "95 % interval", ">ratio", "95 % interval", ""), rows)
    for sentence in (*compared_said(found, say), control_said(found, say), *notes(run, say)):
        print(sentence)


def _write(_: Services, run: DecidedRun, file: Path) -> str:
    """Also write rates and impact ratios as CSV to this file."""
    return f"Written: {write_text(file, rates_csv(run))}"


@operation(need=WORK, json=run_json, at_once=1)
def read_decisions(wired: Services, file: Path, settings: Annotated[Asked, Read(request_from)] = USUAL) -> DecidedRun:
    """Read outcomes that another program made, without probabilities, keep them, and compare groups.

    Args:
        file: CSV or JSON lines with an outcome and a group in each row, and optionally pair, variant and prompt; a log
            of Inspect, samples of lm-eval, or JSON of promptfoo.
        settings: All optional: selected (word or phrase that means selected), other, regex, match_case, model,
            exclude_small, name, accept_errors, and columns ({"group": "gender"}).

    Returns:
        groups with rates and impact ratios, tests of every two groups with p-values and e-values, several (all groups
        at once), control (beside variants of one group), finding, said and notes in sentences, and the rows.
    """
    request, columns = settings
    service = wired[DecisionService]
    return service.add(service.parse(file, request, columns), request)


@command("decisions read", json=run_json, write=_write, text=print_run)
def read_file(
    wired: Services,
    file: Path,
    *,
    columns: Annotated[str | None, typer.Option("--columns", metavar="FIELD=COLUMN,...")] = None,
    request: DecisionRequest,
) -> DecidedRun:
    """Read outcomes that another program made, and compare groups.

    Args:
        file: CSV, JSON lines, a log of Inspect, samples of lm-eval, or JSON of promptfoo
        columns: columns to read fields from, e.g. outcome=decision,group=gender,pair=case,variant=name
    """
    return read_decisions.call(wired, file, (request, pairs("--columns", columns)))


def _print_list(runs: list[DecisionRunRecord]) -> None:
    if not runs:
        print("No decisions yet. Read a file with: python -m app decisions read FILE")
    for run in runs:
        print(f"{run.id:>5}  {run.created_at:%Y-%m-%d %H:%M}  {run.row_count:>6} rows  {run.name} ({run.filename})")


@operation(
    need=READ, command="decisions list", json=lambda runs: [_listed(run) for run in runs], text=_print_list
)  # fmt: skip
def list_decisions(wired: Services) -> list[DecisionRunRecord]:
    """List the files of decisions that were read, newest first.

    Returns:
        id, name, filename, digest, request, row_count and created_at of each.
    """
    return wired[DecisionService].list()


def _listed(run: DecisionRunRecord) -> Json:
    return {**asdict(run), "created_at": run.created_at.isoformat()}


@operation(need=READ, command="decisions show", json=run_json, write=_write, text=print_run)
def show_decisions(wired: Services, run_id: int) -> DecidedRun:
    """Show what decisions say that were read before.

    Args:
        run_id: number of the run

    Returns:
        The same as read_decisions.
    """
    return wired[DecisionService].get(run_id)


@operation(need=EXPORT, answer="report")
def decisions_report(
    wired: Services,
    run_id: int,
    kind: str = "pdf",
    auditor: str = "",
    question: str = "",
    language: str = "en",
    annexes: str = "",
    *,
    folder: Path,
) -> Path:
    """Write a report of decisions.

    Args:
        run_id: The run.
        kind: csv (rates), rows, json, html, formal, pdf, or bundle (signed evidence that verify recomputes).
        auditor: Who audited.
        question: What the audit was to answer.
        language: en or de.
        annexes: Further annexes, with commas: eu-ai-act, pren-18283, iso-42001, nist-ai-rmf, sr-26-2, nyc-summary,
            nyc-notice.

    Returns:
        The file.
    """
    return wired[DecisionService].write(
        run_id, kind, folder, Statement(auditor, question, language, annexes=chosen(annexes))
    )


@command("decisions report")
def write_report(
    wired: Services,
    run: int,
    *,
    format: Annotated[str, Choices(tuple(DECIDED))] = "pdf",
    auditor: str = "",
    question: str = "",
    language: Annotated[str, Choices(tuple(LANGUAGES))] = "en",
    annexes: str = "",
    out: Path,
) -> str:
    """Write a report of decisions.

    Args:
        run: number of the run
        format: csv: rates; rows; json: everything; html: for people; formal: one page and annexes as HTML; pdf: the
            same as PDF; bundle: evidence that 'verify' recomputes
        auditor: who audited (formal, pdf)
        question: what the audit was to answer (formal, pdf)
        language: language of the report (formal, pdf)
        annexes: further annexes, with commas (formal, pdf): eu-ai-act, pren-18283, iso-42001, nist-ai-rmf, sr-26-2,
            nyc-summary, nyc-notice
        out: file to write
    """
    statement = Statement(auditor, question, language, annexes=chosen(annexes))
    content = wired[DecisionService].content(run, format, statement)[1]
    return str(write_bytes(out, content))


@command("decisions delete")
def delete_decisions(wired: Services, run: int) -> str:
    """Delete decisions.

    Args:
        run: number of the run
    """
    wired[DecisionService].delete(run)
    return f"Decisions {run} deleted."
