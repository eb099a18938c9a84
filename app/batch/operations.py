"""Batches: many prompts audited with the same settings, listed, shown, resumed, and read by group."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, NamedTuple, cast

import typer

from app.audit.operations import DecodingOptions
from app.batch.controls import controls_said
from app.batch.formal import RatesRule, audited_batch
from app.batch.groups import GroupControl, group_control, group_said
from app.batch.impact import Outcomes, impact_json
from app.batch.published import results_of
from app.batch.service import BatchRequest, BatchService, BatchSummary, BatchView, batch_json, batch_summary_json
from app.prompts.rows import BatchRowView, MeanInterval
from app.report.service import EXPORTS, FORMAL, INSPECT, ReportService
from app.shared.commands import Choices
from app.shared.errors import ServiceError
from app.shared.files import write_bytes, write_text
from app.shared.formal_reports import Statement
from app.shared.impact import ImpactTable, OutcomeRule, impact_csv
from app.shared.needs import EXPORT, LEAD, READ
from app.shared.operations import Json, Read, Tell, command, operation, record
from app.shared.requirements import chosen
from app.shared.results.formats import SHARED, SharedFormat
from app.shared.results.publication import Publication
from app.shared.settings_json import COLUMNS, columns_of, settings_from_json
from app.shared.terminal import POLICY_KEYS, pairs, print_table, wait_for_all
from app.shared.wiring import Services
from coft_core.messages import LANGUAGES

LONGEST_PROMPT = 48


def print_batches(batches: tuple[BatchSummary, ...]) -> None:
    """One line a batch."""
    if not batches:
        print("No batches yet. Run one with: python -m app batch run --prompts FILE")
    for item in batches:
        state = "unknown" if item.job is None else item.job.status
        print(f"{item.id:>5}  {item.created_at:%Y-%m-%d %H:%M}  {item.rows:>5} prompts  {state:<11}  {item.name}")


def print_batch(view: BatchView) -> None:
    """The rows, then the totals by group, with every reservation."""
    counted = ", ".join(f"{number} {state}" for state, number in view.counts.items())
    print(f"Batch {view.id}: {view.name} ({view.filename}; {counted})\n")
    head = (">line", "group", ">steps", ">certified", ">fallbacks", ">overruled", ">mean lr", ">max lr", ">margin",
            ">effect", ">p", ">controls", "prompt")  # fmt: skip
    print_table(head, map(_row, view.rows))
    for group in view.groups:
        print(f"\n{group.group or 'no group'}: {group.rows} rows, {group.contexts} contexts")
        for item in group.means:
            print(f"  {item.measure:<16} {_interval(item)}")
    print()
    for note in (*(controls_said(view.controls) if view.controls else ()), *view.notes):
        print(note)


def print_impact(impact: Impact) -> None:
    """Selection rates and impact ratios, with every reservation."""
    rows = []
    for row in impact.table.rows:
        marks = (
            "most selected" if row.reference else "",
            "below four fifths" if row.below_four_fifths else "",
            row.note,
        )
        interval = f"{row.low:.3f} to {row.high:.3f}"
        ratio = "none" if row.ratio is None else f"{row.ratio:.2f}"
        said = "; ".join(filter(None, marks))
        rows.append((row.group, row.total, row.selected, f"{row.rate:.3f}", interval, ratio, said))
    print_table(("group", ">applicants", ">selected", ">rate", "95 % interval", ">ratio", ""), rows)
    for note in (*group_said(impact.compared), *impact.table.notes, *impact.outcomes.notes):
        print(note)


def _row(row: BatchRowView) -> tuple[object, ...]:
    prompt = " ".join(row.prompt.split())
    if len(prompt) > LONGEST_PROMPT:
        prompt = f"{prompt[: LONGEST_PROMPT - 1]}…"
    certified = "-" if row.certified_share is None else f"{row.certified_share:.0%}"
    state = "" if row.state == "finished" else f" [{row.state}{': ' + row.error if row.error else ''}]"
    numbers = (row.fallbacks, row.overruled, row.mean_log_ratio, row.max_log_ratio, row.min_margin, row.effect,
               row.effect_p, row.controls)  # fmt: skip
    return row.line, row.group or "-", row.steps, certified, *map(_number, numbers), f"{prompt}{state}"


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


Asked = tuple[BatchRequest, dict[str, str] | None]
"""What is asked of a prompt set, and the columns that its fields are read from."""

USUAL: Asked = (BatchRequest(""), None)

BATCH = ("name", "accept_errors", "same_seed", "group_thresholds")
"""Settings of a batch that no single audit has."""


def batch_request(given: Json | None) -> Asked:
    """A batch from JSON, in which its own settings stand beside those of its sessions.

    Raises:
        ServiceError: There is no such setting, or one cannot take its value.
    """
    settings = {name: value for name, value in (given or {}).items() if name not in (*BATCH, COLUMNS)}
    named = {name: value for name, value in (given or {}).items() if name in BATCH}
    request = record(BatchRequest, named, name="", settings=settings_from_json(settings, others=(*BATCH, COLUMNS)))
    return request, columns_of(given)


def _follow(wired: Services, view: BatchView, quiet: bool) -> BatchView:
    """Wait for a batch; an interruption keeps what is done."""
    if view.job is None:
        raise ServiceError(f"Nothing is known of the run of batch {view.id}; resume it.")
    cancel = lambda: wired[BatchService].cancel(view.id)  # noqa: E731
    wait_for_all(wired, [view.job.id], cancel, f"batch resume {view.id}", "The batch", quiet)
    return wired[BatchService].view(view.id)


@operation(need=LEAD, json=batch_json, answer="batch")
def run_batch(
    wired: Services,
    file: Path,
    settings: Annotated[Asked, Read(batch_request)] = USUAL,
    *,
    tell: Tell | None = None,
) -> BatchView:
    """Start a batch, which is an audit session for each prompt of a file, without waiting for it.

    Args:
        file: CSV or JSONL with a prompt in each row, and optionally group and context.
        settings: All optional: those of start_audit, and name, accept_errors (go on with the good rows), same_seed,
            group_thresholds, and columns, which says for a field of a prompt set what column of the file to read
            it from ({"prompt": "question"}).

    Returns:
        The batch: batch_id, name, settings, its state and rows; ask batch_summary how far it is.
    """
    request, columns = settings
    request = replace(request, name=request.name or file.stem)
    prompts = wired[BatchService].parse(file, file.name, columns)
    if tell is not None:
        for error in wired[BatchService].row_errors(prompts, request):
            tell(f"line {error.line}: {error.column} {error.message}")
    return wired[BatchService].view(wired[BatchService].submit(prompts, request))


@command("batch run", json=batch_json, wait=_follow, text=print_batch)
def batch(
    wired: Services,
    *,
    prompts: Path,
    columns: Annotated[str | None, typer.Option("--columns", metavar="FIELD=COLUMN,...")] = None,
    name: str = "",
    accept_errors: bool = False,
    same_seed: bool = False,
    group_thresholds: bool = False,
    policy: Annotated[str, Choices(POLICY_KEYS), typer.Option("--policy", metavar="NAME")] = "coft",
    options: DecodingOptions,
    tell: Tell | None = None,
) -> BatchView:
    """Audit every prompt of a CSV or JSONL file.

    Args:
        prompts: the prompt set
        columns: columns to read fields from, e.g. prompt=text,group=gender
        name: name of the batch (default: the file's)
        accept_errors: go on with the rows that can be used
        same_seed: the same seed for every row, not one a context
        group_thresholds: each row under the thresholds of its own group
        policy: a method that 'policies' lists
    """
    (settings,) = options.decoding(wired, policy)
    request = BatchRequest(name, settings, accept_errors, same_seed, group_thresholds)
    return run_batch.call(wired, prompts, (request, pairs("--columns", columns)), tell=tell)


class Impact(NamedTuple):
    """Selection rates and ratios by group, the outcomes that they rest on, and the rule that read them."""

    table: ImpactTable
    outcomes: Outcomes
    rule: OutcomeRule

    @property
    def compared(self) -> GroupControl | None:
        """Both groups of the lowest ratio, compared within contexts."""
        return group_control(self.table, self.outcomes)


def _impact_json(impact: Impact) -> Json:
    compared = impact.compared
    return {**impact_json(*impact), "compared": None if compared is None else asdict(compared)}


def _summary_json(summary: tuple[BatchView, Impact | None]) -> Json:
    view, impact = summary
    return batch_json(view) if impact is None else {**batch_json(view), "impact": _impact_json(impact)}


@operation(need=READ, json=_summary_json)
def batch_summary(
    wired: Services, batch_id: int, rule: OutcomeRule | None = None, exclude_small: bool = False
) -> tuple[BatchView, Impact | None]:
    """Say how far a batch is, with its rows and totals by group.

    Args:
        batch_id: The batch.
        rule: Who counts as selected, for impact ratios: {"selected": "hired", "other": "rejected", "regex": false,
            "match_case": false}; only selected is required.
        exclude_small: Leave groups below 2 % of the rows out of the ratios.

    Returns:
        The batch with rows, groups (95 % intervals) and controls, which say whether the marked words matter more than
        comparable words over all prompts; with a rule also impact, which has selection rates and impact ratios by
        group, and compared: both groups of the lowest ratio within contexts.
    """
    view = wired[BatchService].view(batch_id)
    return view, None if rule is None else Impact(*wired[BatchService].impact(batch_id, rule, exclude_small), rule)


def _write_impact(_: Services, impact: Impact, file: Path) -> str:
    """Also write the table as CSV to this file."""
    return f"Written: {write_text(file, impact_csv(impact.table))}"


@command("batch impact", json=_impact_json, write=_write_impact, text=print_impact)
def impact(wired: Services, batch: int, *, rule: OutcomeRule, exclude_small: bool = False) -> Impact:
    """Selection rates by group and impact ratios.

    Args:
        batch: number of a batch
        exclude_small: leave groups below 2 % of the rows out
    """
    return Impact(*wired[BatchService].impact(batch, rule, exclude_small), rule)


@command("batch list", json=lambda batches: [batch_summary_json(item) for item in batches], text=print_batches)
def list_batches(wired: Services) -> tuple[BatchSummary, ...]:
    """List batches, newest first."""
    return wired[BatchService].list()


def _write(wired: Services, view: BatchView, folder: Path) -> str:
    """Write rows and totals as CSV into this folder."""
    return "\n".join(f"Written: {path}" for path in wired[BatchService].write_csv(view.id, folder))


@command("batch show", json=batch_json, write=_write, text=print_batch)
def show_batch(wired: Services, batch: int) -> BatchView:
    """The rows of a batch and its totals by group.

    Args:
        batch: number of a batch
    """
    return wired[BatchService].view(batch)


@command("batch resume", json=batch_json, wait=_follow, text=print_batch)
def resume_batch(wired: Services, batch: int) -> BatchView:
    """Go on with the rows of a batch that are not finished.

    Args:
        batch: number of a batch
    """
    wired[BatchService].resume(batch)
    return wired[BatchService].view(batch)


@command("batch delete")
def delete_batch(wired: Services, batch: int) -> str:
    """Delete a batch; its sessions stay.

    Args:
        batch: number of a batch
    """
    wired[BatchService].delete(batch)
    return f"Batch {batch} deleted; its sessions stay."


def _formal(wired: Services, batch_id: int, kind: str, statement: Statement, rule: RatesRule) -> bytes:
    view = wired[BatchService].view(batch_id)
    return wired[ReportService].formal_batch(audited_batch(view, rule), statement, kind)


@operation(need=EXPORT, answer="report")
def formal_batch_report(
    wired: Services,
    batch_id: int,
    auditor: str = "",
    question: str = "",
    language: str = "en",
    kind: str = "pdf",
    rule: RatesRule | None = None,
    annexes: str = "",
    *,
    folder: Path,
) -> Path:
    """Write the formal report of a batch: one page with the finding, and annexes for what the law asks for.

    Args:
        batch_id: The batch.
        auditor: Who audited.
        question: What the audit was to answer.
        language: en or de.
        kind: pdf, or formal for HTML.
        rule: How rates are read, all optional: {"selected": "hired", "other": "rejected", "regex": false,
            "match_case": false, "score": "number", "exclude_small": false}.
        annexes: Further annexes, with commas: eu-ai-act, pren-18283, iso-42001, nist-ai-rmf, sr-26-2, nyc-summary,
            nyc-notice.

    Returns:
        The file.
    """
    statement = Statement(auditor, question, language, annexes=chosen(annexes))
    content = _formal(wired, batch_id, kind, statement, rule or RatesRule())
    return write_bytes(folder / f"coft-audit-batch-{batch_id}{EXPORTS[kind].suffix}", content)


@operation(need=EXPORT, answer="export")
def export_batch(
    wired: Services,
    batch_id: int,
    format: SharedFormat,
    rule: RatesRule | None = None,
    publication: Publication | None = None,
    *,
    folder: Path,
) -> Path:
    """Export the results of a batch for other programs.

    Args:
        batch_id: The batch.
        format: lm-eval; every-eval-ever: schema 0.2.0; hub: a file of .eval_results; card: a section of a model card;
            inspect: its sessions as a log of Inspect; signed: results and texts, signed, by whose digest hub and card
            name their source.
        rule: How rates are read, as for formal_batch_report; with it also selection rates and impact ratios.
        publication: What only you know of a publication: organization, relationship, dataset, task, result, source_url.

    Returns:
        The file.
    """
    content = shared_batch(wired, batch_id, format, rule or RatesRule(), publication or Publication())
    return write_bytes(folder / f"coft-audit-batch-{batch_id}{SHARED[format].suffix}", content)


def shared_batch(
    wired: Services, batch_id: int, form: SharedFormat, rule: RatesRule, publication: Publication
) -> bytes:
    """The results of a batch as a file for other programs."""
    view, reports = wired[BatchService].view(batch_id), wired[ReportService]
    sessions = audited_batch(view, rule).sessions
    digest = reports.weights_digest(sessions[0]) if sessions else ""
    results = results_of(view, rule, wired[BatchService].prompts_digest(batch_id), digest)
    if form == INSPECT:
        return reports.inspect_batch(view.name, sessions, results.results)
    return reports.shared(results, form, publication)


@command("batch report")
def batch_report(
    wired: Services,
    batch: int,
    *,
    format: Annotated[str, Choices((*FORMAL, *SHARED))] = "pdf",
    auditor: str = "",
    question: str = "",
    language: Annotated[str, Choices(tuple(LANGUAGES))] = "en",
    annexes: str = "",
    rule: RatesRule,
    publication: Publication | None = None,
    out: Path,
) -> str:
    """Write the formal report of a batch, with selection and scoring rates, or its results for other programs.

    Args:
        batch: number of a batch
        format: pdf; formal: the same as HTML; and for other programs lm-eval, every-eval-ever, hub (a file of
            .eval_results), card (a section of a model card), inspect (its sessions as a log) and signed
        auditor: who audited
        question: what the audit was to answer
        language: language of the report
        annexes: further annexes, with commas: eu-ai-act, pren-18283, iso-42001, nist-ai-rmf, sr-26-2, nyc-summary,
            nyc-notice
        out: file to write
    """
    if format in SHARED:
        if auditor or question or annexes or language != "en":
            raise ServiceError(
                f"The format {format} has no auditor, question or language; leave them out, or choose pdf."
            )
        form = cast("SharedFormat", format)
        return str(write_bytes(out, shared_batch(wired, batch, form, rule, publication or Publication())))
    statement = Statement(auditor, question, language, annexes=chosen(annexes))
    return str(write_bytes(out, _formal(wired, batch, format, statement, rule)))
