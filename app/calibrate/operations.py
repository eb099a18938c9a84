"""Calibrations: made from a prompt set, read off their values, compared, watched for drift, weighted and deleted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from app.calibrate.service import CalibrationService
from app.calibrate.words import bins_named, run_facts, smallest_sentence
from app.jobs.service import JobService, JobView
from app.prompts.sets import grouping_note
from app.shared.audits import (
    CALIBRATING,
    CalibrationRequest,
    CalibrationSummary,
    CalibrationView,
    ReadingRequest,
)
from app.shared.calibration_words import lengths_sentence
from app.shared.commands import Stopped
from app.shared.decoding import DECODING
from app.shared.errors import ServiceError
from app.shared.json import job_json
from app.shared.needs import LEAD, READ
from app.shared.operations import Json, Read, Tell, command, operation, record
from app.shared.settings_json import COLUMNS, columns_of
from app.shared.terminal import PolicyOptions, calibration_id, options_of, pairs, print_table, wait_for
from app.shared.wiring import Services
from coft_core.conformal.bins import Bin
from coft_core.conformal.coverage import CoverageRow
from coft_core.conformal.drift import DriftReport
from coft_core.conformal.sequence import SequenceThreshold
from coft_core.fingerprint import same_digests

SUMMARY_FIELDS = ("name", "model", "lam", "source", "mask_layout", "certified_in", "contexts")
VIEW_FIELDS = ("alpha", "group", "family", "effective_contexts", "has_chains")
BIN_FIELDS = ("label", "contexts", "rank", "tau", "state", "inherited_from", "coverage_low", "coverage_high", "needed")
COVERAGE_FIELDS = ("contexts", "kept", "coverage", "low", "high")
CHAIN_FIELDS = ("alpha", "tau", "state", "contexts", "horizon", "rank", "coverage_low", "coverage_high")


def _named(record: object, names: Sequence[str]) -> Json:
    return {name: getattr(record, name) for name in names}


def _measured(rows: Iterable[CoverageRow]) -> Json:
    """Coverage measured on contexts kept apart, by label."""
    return {row.label: _named(row, COVERAGE_FIELDS) for row in rows}


def calibration_json(view: CalibrationView) -> Json:
    """A calibration as it is read, without its values."""
    smallest, chains = view.smallest_alpha, view.sequence
    return {
        "calibration_id": view.summary.id,
        **_named(view.summary, SUMMARY_FIELDS),
        **_named(view, VIEW_FIELDS),
        "estimator": view.reading.estimator,
        "fingerprint": view.fingerprint_digest,
        "policy": dict(view.fingerprint),
        "reading": asdict(view.reading),
        "bins": [bin_json(entry) for entry in view.bins],
        "coverage": _named(view.coverage[0], COVERAGE_FIELDS) if view.coverage else None,
        "coverage_by_bin": _measured(view.coverage[1:]),
        "coverage_by_step": _measured(view.coverage_by_step),
        "smallest_alpha": _named(smallest, ("overall", "everywhere", "sequence"))
        | {"bins": {entry.label: entry.smallest_alpha for entry in smallest.bins}},
        "sequence": None if chains is None else sequence_json(chains),
        "sequence_coverage": _measured(view.sequence_coverage),
        "families": [asdict(part) for part in view.families],
        "groups": [{**asdict(group), "certifiable": group.certifiable} for group in view.groups],
        "iterations": [asdict(entry) for entry in view.iterations],
        "notes": list(view.notes),
    }


def calibration_summary_json(item: CalibrationSummary) -> Json:
    """A calibration in a list."""
    record: Json = asdict(item)
    return {"calibration_id": record.pop("id"), **record, "created_at": item.created_at.isoformat()}


def bin_json(entry: Bin) -> Json:
    """A position bin; ``uneven`` tells whether its steps differ, and is null where they could not be compared."""
    evenness = entry.evenness
    return {
        **_named(entry, BIN_FIELDS),
        "uneven": None if evenness is None else evenness.uneven,
        "evenness": None if evenness is None else asdict(evenness),
    }


def sequence_json(threshold: SequenceThreshold) -> Json:
    """The threshold for whole chains."""
    rest = {"holds_for": threshold.applies, "lengths": asdict(threshold.lengths), "reason": threshold.reason}
    return {**_named(threshold, CHAIN_FIELDS), **rest}


def drift_json(report: DriftReport) -> Json:
    """What audits say against a calibration."""
    return {**asdict(report), "sentence": report.sentence}


def compared_json(compared: tuple[CalibrationView, CalibrationView]) -> Json:
    """Two calibrations side by side, and what differs in their policies."""
    first, second = map(calibration_json, compared)
    return {"first": first, "second": second, "differences": [list(row) for row in policy_differences(*compared)]}


def policy_differences(first: CalibrationView, second: CalibrationView) -> tuple[tuple[str, str, str], ...]:
    """Fields of the fingerprint that differ, with both values."""
    other = dict(second.fingerprint)
    return tuple(
        (name, value, other[name]) for name, value in first.fingerprint if not same_digests(value, other[name])
    )


STEPS_PRINTED = 16
"""Steps whose own coverage is printed."""


def print_calibration(view: CalibrationView, drift: DriftReport | None = None) -> None:
    """Thresholds by position, the check on unseen contexts, and every reservation that the page would show."""
    _print_head(view)
    for note in view.notes:
        print(f"Note: {note}")
    bins = ((entry.label, entry.contexts, f"{entry.tau:.3g}", _state(entry)) for entry in view.bins)
    print_table(("steps", ">contexts", ">tau", f"state {view.family or ''}"), bins)
    steps = [replace(row, label=f"step {row.label}") for row in view.coverage_by_step[:STEPS_PRINTED]]
    measured = (
        (row.label, f"{row.kept} of {row.contexts}", _share(row))
        for row in (*view.coverage, *steps, *view.sequence_coverage)
        if row.coverage is not None
    )
    print_table(("on unseen contexts", ">kept", "coverage, 95 % interval"), measured)
    if left := len(view.coverage_by_step[STEPS_PRINTED:]):
        print(f"coverage at {left} later steps: --json has it")
    print(smallest_sentence(view.smallest_alpha))
    if (chains := view.sequence) is not None:
        held = (
            chains.reason or f"tau {chains.tau:.3g}, averaged over {chains.applies}. {lengths_sentence(chains.lengths)}"
        )
        print(f"Whole texts at alpha {chains.alpha:g}: {held}")
    if view.effective_contexts is not None:
        print(f"Under the weights the contexts are worth {view.effective_contexts:.1f}.")
    for part in view.families:
        print(
            f"family {part.family}: alpha {part.alpha:.3g}, {part.contexts} contexts, tau {part.tau:.3g}, {part.state}"
        )
    for group in view.groups:
        print(f"group: {group.sentence}")
    if drift is not None:
        print_drift(drift)


def print_calibrations(calibrations: tuple[CalibrationSummary, ...]) -> None:
    """One line a calibration."""
    if not calibrations:
        print("No calibrations yet. Make one with: python -m app calibrate --prompts prompts.csv")
    for item in calibrations:
        measured = "" if item.coverage is None else f", coverage {item.coverage:.3f}"
        print(f"{item.id:>5}  {item.name}: {run_facts(item)}{measured}")


def print_compared(compared: tuple[CalibrationView, CalibrationView]) -> None:
    """Two calibrations bin by bin, and what differs in their policies."""
    first, second = compared
    for view in compared:
        _print_head(view)
    labels = {entry.first_step: entry.label for view in (second, first) for entry in view.bins}
    rows = []
    for step, label in sorted(labels.items()):
        there = [next(entry for entry in reversed(view.bins) if entry.first_step <= step) for view in compared]
        rows.append((label, *(cell for entry in there for cell in (f"{entry.tau:.3g}", entry.state))))
    print_table(("steps", *(name for view in compared for name in (f">tau of {view.summary.id}", "state"))), rows)
    for view in compared:
        measured = _share(view.coverage[0]) if view.coverage else "not measured"
        print(f"{view.summary.id}: coverage {measured}. {smallest_sentence(view.smallest_alpha)}")
    differences = policy_differences(first, second)
    for name, one, other in differences:
        print(f"{name}: {one} and {other}")
    if not differences:
        print("Both belong to the same policy.")


def _print_head(view: CalibrationView) -> None:
    """Which calibration it is, and how its thresholds are read."""
    reading = view.reading
    print(f"Calibration {view.summary.id}, {view.summary.name}: {run_facts(view.summary)}")
    parts = [f"alpha {view.alpha:g}", reading.estimator, f"bins of {bins_named(reading)}"]
    parts += [f"{reading.draws} draws"] if reading.draws > 1 else []
    parts += [f"rho {reading.rho:g}"] if reading.rho != 1 else []
    parts += [f"group {view.group}"] if view.group is not None else []
    print(f"Read at {', '.join(parts)}")


def _state(entry: Bin) -> str:
    """A bin's state and the reason for it."""
    if entry.state == "uninformative":
        needs = f", needs {entry.needed} contexts" if entry.contexts < entry.needed else ""
        return f"{entry.state}: {entry.silence}{needs}"
    lender = "" if entry.inherited_from is None else f" from {entry.inherited_from}"
    if entry.evenness is not None and entry.evenness.uneven:
        return f"{entry.state}{lender}, its steps differ (p {entry.evenness.p:.2g})"
    return f"{entry.state}{lender}"


def _share(row: CoverageRow) -> str:
    return "not measured" if row.coverage is None else f"{row.coverage:.3f} [{row.low:.3f}, {row.high:.3f}]"


def print_drift(report: DriftReport) -> None:
    """What audits say against a calibration, and which of them do not count."""
    print(f"drift: {report.sentence} {report.figures}".rstrip())
    for audit in report.left_out:
        print(f"left out: audit {audit.session_id}, {audit.why}: {audit.prompt}")


Asked = tuple[CalibrationRequest, dict[str, str] | None]
"""What is asked of a prompt set, and the columns that its fields are read from."""

USUAL = CalibrationRequest("")


def _asked(given: Json | None) -> Asked:
    return calibration_request("", given), columns_of(given)


OWN = {name: said for name, said in CALIBRATING.items() if name not in DECODING}
READ_OFF = ("alpha", "estimator", "draws", "bin_width", "bin_spacing", "max_position", "rho")
"""Settings in which a finished calibration can be read otherwise."""

_Own = options_of("_Own", OWN, CalibrationRequest)
_ReadOff = options_of("_ReadOff", {name: CALIBRATING[name] for name in READ_OFF}, CalibrationRequest, needed=False)


@dataclass(frozen=True, kw_only=True)
class CalibrateOptions(_Own, PolicyOptions):
    """Everything that a calibration can be told beside its prompts.

    Attributes:
        rollout_steps: tokens of a chain at most
        weights: 'column' takes the rows' own weights; a file of prompts like those in use estimates them
    """

    rollout_steps: int = USUAL.max_new_tokens
    weights: Annotated[str, typer.Option("--weights", metavar="none|column|FILE")] = "none"

    def request(self, wired: Services, name: str) -> CalibrationRequest:
        """The request that they make."""
        weighted = self.weights in ("none", "column")
        return CalibrationRequest(
            **{name: getattr(self, name) for name in OWN}
            | self.settings(wired)
            | {
                "name": name,
                "alpha_by_family": levels_by_family(self.alpha_by_family),
                "max_new_tokens": self.rollout_steps,
                "weighting": self.weights if weighted else "estimated",
                "deployment": () if weighted else wired[CalibrationService].prompts_in_use(Path(self.weights)),
            }
        )


def levels_by_family(text: str | None) -> tuple[tuple[str, float], ...] | None:
    """Families and their shares of alpha from ``family=alpha,family=alpha``; None stays None."""
    shares = pairs("--alpha-by-family", text)
    if shares is None:
        return None
    try:
        return tuple((family, float(level)) for family, level in shares.items())
    except ValueError as error:
        raise ServiceError(f"--alpha-by-family has a level that is no number ({error}).") from error


@operation(need=LEAD, json=job_json, answer="job")
def calibrate(
    wired: Services,
    file: Path,
    settings: Annotated[Asked, Read(_asked)] = (USUAL, None),
    *,
    tell: Tell | None = None,
) -> JobView:
    """Start a calibration on a prompt set, without waiting for it.

    Args:
        file: CSV or JSONL with a prompt and a reference in each row, and optionally group, context and weight.
        settings: All optional: name, model, alpha, lam, estimator (hierarchical, one_per_context or pooled), draws,
            source (reference or rollout), mask_layout (joint or factorized), alpha_by_family ({"gender": 0.05}),
            masked_families, prompt_format (auto, chat or plain), chat_date, by_group, rho, weighting with
            deployment (a list of prompts), and others; and columns, which says for a field of a prompt set what
            column of the file to read it from ({"prompt": "question"}).

    Returns:
        The job: job_id, status, progress and message; ask job how far it is.
    """
    request, columns = settings
    request = replace(request, name=request.name or file.stem)
    prompts = wired[CalibrationService].parse(file, file.name, columns)
    if tell is not None:
        for field, column in prompts.mapping:
            if field != column:
                tell(f"{field} is read from the column “{column}”.")
        if note := grouping_note(prompts):
            tell(note)
        for error in wired[CalibrationService].row_errors(prompts, request):
            tell(f"line {error.line}: {error.column} {error.message}")
    return wired[JobService].get(wired[CalibrationService].submit(prompts, request))


def _follow(wired: Services, begun: JobView, quiet: bool) -> CalibrationView:
    """Wait for a calibration; an interruption keeps what is done."""
    try:
        job = wait_for(wired, begun.id, quiet)
    except KeyboardInterrupt as error:
        wired[JobService].cancel(begun.id)
        job = wired[JobService].wait(begun.id)
        if job.status == "done" and job.result is not None:
            raise Stopped(f"it was done already: calibration {job.result['calibration_id']}.", code=0) from error
        again = f"python -m app calibrate --resume {begun.id}"
        raise Stopped(f"stopped; what is done is kept. Go on with: {again}") from error
    if job.status != "done" or job.result is None:
        raise ServiceError(job.error or f"The calibration was {job.status}.")
    return wired[CalibrationService].view(int(str(job.result["calibration_id"])))


def _write(wired: Services, view: CalibrationView, file: Path) -> str:
    """Also write the calibration to this file."""
    wired[CalibrationService].load(view.summary.id).save(file)
    return ""


@command("calibrate", json=calibration_json, wait=_follow, write=_write, text=print_calibration)
def calibrate_or_resume(
    wired: Services,
    *,
    prompts: Path | None = None,
    resume: Annotated[int | None, typer.Option("--resume", metavar="JOB")] = None,
    columns: Annotated[str | None, typer.Option("--columns", metavar="FIELD=COLUMN,...")] = None,
    name: str = "",
    options: CalibrateOptions,
    tell: Tell | None = None,
) -> JobView:
    """Calibrate on a CSV or JSONL prompt set, or resume a calibration.

    Args:
        prompts: the prompt set
        resume: go on with a calibration that was not finished
        columns: columns to read fields from, e.g. prompt=text,reference=answer
        name: name of the calibration (default: the file's)
    """
    if resume is not None:
        if prompts is not None:
            raise ServiceError("--resume goes on with the prompts of its job; leave out --prompts.")
        return wired[JobService].get(wired[CalibrationService].resume(resume))
    if prompts is None:
        raise ServiceError("There is no prompt set; name one with --prompts, or a job with --resume.")
    asked = (options.request(wired, name), pairs("--columns", columns))
    return calibrate.call(wired, prompts, asked, tell=tell)


@operation(need=READ, json=calibration_json)
def read_calibration(
    wired: Services,
    calibration_id: int,
    alpha: float | None = None,
    estimator: str | None = None,
    bin_width: int | None = None,
    max_position: int | None = None,
    draws: int | None = None,
    rho: float | None = None,
    group: str | None = None,
    family: str | None = None,
    bin_spacing: str | None = None,
) -> CalibrationView:
    """Read a finished calibration off its stored values, without the model; what is left out is as calibrated.

    Args:
        calibration_id: The calibration.
        alpha: Risk level.
        estimator: hierarchical, one_per_context or pooled.
        bin_width: Steps that share a threshold.
        max_position: Steps beyond belong to the last bin.
        draws: Draws of one_per_context that are averaged.
        rho: Bound on how much likelier a prompt can be in use than in the calibration.
        group: The group whose own thresholds are read.
        family: With factorized masks, the family whose thresholds are read.
        bin_spacing: finest (each step), widening (steps 1, 2, 3-4, 5-8, then bins of bin_width) or even (all of
            bin_width).

    Returns:
        The reading: settings, bins with their thresholds and contexts, coverage, the smallest alpha, and notes.
    """
    reading = ReadingRequest(
        alpha, estimator, bin_width, max_position, draws, rho, group or None, family or None,
        bin_spacing=bin_spacing or None,
    )  # fmt: skip
    return wired[CalibrationService].view(calibration_id, reading)


@operation(
    need=READ,
    json=lambda calibrations: [calibration_summary_json(item) for item in calibrations],
    command="calibrations list",
    text=print_calibrations,
)
def list_calibrations(wired: Services, *, model: str = "") -> tuple[CalibrationSummary, ...]:
    """List finished calibrations.

    Args:
        model: Only those of this model.

    Returns:
        A list of calibrations, newest first: calibration_id, name, model, settings, contexts and others.
    """
    return wired[CalibrationService].list(model or None)


@operation(need=READ, json=job_json)
def job(wired: Services, job_id: int) -> JobView:
    """Say how far a calibration's job is.

    Args:
        job_id: The job, as calibrate returned it.

    Returns:
        The job: status (queued, running, done, failed, cancelled), progress, message, and result, which names the
        calibration_id once it is done.
    """
    return wired[JobService].get(job_id)


@dataclass(frozen=True, kw_only=True)
class ReadingOptions(_ReadOff):
    """How a finished calibration is read; what is left out stays as calibrated.

    Attributes:
        group: the group whose own thresholds are read
        family: with factorized masks, the family whose thresholds are shown
        alpha_by_family: with factorized masks, each family's share of alpha
    """

    group: str | None = None
    family: str | None = None
    alpha_by_family: Annotated[str | None, typer.Option("--alpha-by-family", metavar="FAMILY=ALPHA,...")] = None

    def view(self, wired: Services, calibration: str) -> CalibrationView:
        """A calibration, read so."""
        reading = replace(ReadingRequest(**vars(self)), alpha_by_family=levels_by_family(self.alpha_by_family))
        return wired[CalibrationService].view(calibration_id(wired, calibration), reading)


@command(
    "calibrations show",
    json=lambda shown: {**calibration_json(shown[0]), "drift": drift_json(shown[1])},
    text=lambda shown: print_calibration(*shown),
)
def show_calibration(
    wired: Services, calibration: str, *, reading: ReadingOptions
) -> tuple[CalibrationView, DriftReport]:
    """Thresholds, coverage and what can be certified, read as asked.

    Args:
        calibration: number of a calibration, or 'embedded'
    """
    view = reading.view(wired, calibration)
    return view, wired[CalibrationService].drift(view.summary.id)


@command("calibrations compare", json=compared_json, text=print_compared)
def compare_calibrations(
    wired: Services, first: str, second: str, *, reading: ReadingOptions
) -> tuple[CalibrationView, CalibrationView]:
    """Two calibrations side by side.

    Args:
        first: number of a calibration, or 'embedded'
        second: number of another one
    """
    return reading.view(wired, first), reading.view(wired, second)


@operation(need=READ, json=drift_json)
def drift(wired: Services, calibration_id: int) -> DriftReport:
    """Say whether the audits that used a calibration still resemble it.

    Args:
        calibration_id: The calibration.

    Returns:
        status, martingale, p_values, the number of audits, left_out (audits that do not count: session_id, prompt
        and why), and a sentence in plain words.
    """
    return wired[CalibrationService].drift(calibration_id)


@command("calibrations drift", json=drift_json, text=print_drift)
def show_drift(wired: Services, calibration: str) -> DriftReport:
    """What the audits so far say against a calibration.

    Args:
        calibration: number of a calibration, or 'embedded'
    """
    return drift.call(wired, calibration_id(wired, calibration))


@command("calibrations export")
def export_calibration(wired: Services, calibration: str, *, out: Path | None = None) -> Path:
    """Write a calibration as a file that the library loads.

    Args:
        calibration: number of a calibration, or 'embedded'
        out: file to write (default: calibration-ID.zip here)
    """
    number = calibration_id(wired, calibration)
    if out is None:
        return wired[CalibrationService].export(number, Path())
    wired[CalibrationService].load(number).save(out)
    return out


@command("calibrations reweight", json=calibration_json, text=print_calibration)
def reweight_calibration(wired: Services, calibration: str, *, prompts: Path, name: str = "") -> CalibrationView:
    """Store a copy of a calibration, weighted to prompts like those in use.

    Args:
        calibration: number of a calibration, or 'embedded'
        prompts: CSV or JSONL of prompts like those in use
        name: name of the new calibration (default: the old one, weighted)
    """
    number = calibration_id(wired, calibration)
    calibrations = wired[CalibrationService]
    return calibrations.view(calibrations.reweight(number, calibrations.prompts_in_use(prompts), name))


@command("calibrations delete")
def delete_calibration(wired: Services, calibration: str) -> str:
    """Delete a calibration; audits that used it keep its name.

    Args:
        calibration: number of a calibration, or 'embedded'
    """
    number = calibration_id(wired, calibration)
    wired[CalibrationService].delete(number)
    return f"Calibration {number} deleted."


def calibration_request(name: str, given: Json | None) -> CalibrationRequest:
    """A calibration request from JSON."""
    settings = dict(given or {})
    if isinstance(shares := settings.get("alpha_by_family"), dict):
        settings["alpha_by_family"] = list(shares.items())
    return record(CalibrationRequest, settings, others=(COLUMNS,), name=name)
