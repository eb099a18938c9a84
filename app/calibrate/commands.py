"""The command ``calibrate``: a prompt set, or a calibration that was not finished."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from app.bootstrap import Services, services
from app.calibrate.json import calibration_json, calibration_summary_json, compared_json, drift_json, policy_differences
from app.settings import Settings
from app.shared.audits import (
    BinView,
    CalibrationRequest,
    CalibrationSummary,
    CalibrationView,
    CoverageView,
    ReadingRequest,
)
from app.shared.errors import ServiceError
from app.shared.prompt_sets import grouping_note
from app.shared.terminal import (
    STOPPED,
    add_json,
    add_policy_options,
    calibration_id,
    layout_and_families,
    list_id,
    show,
    wait_for,
)
from coft_core.conformal.bins import BIN_SPACINGS
from coft_core.conformal.drift import DriftReport

STEPS_PRINTED = 16
"""Steps whose own coverage is printed."""


def print_calibration(view: CalibrationView, drift: DriftReport | None = None) -> None:
    """Thresholds by position, the check on unseen contexts, and every reservation that the page would show."""
    summary = view.summary
    print(f"Calibration {summary.id}: {summary.name}, {summary.contexts} contexts, alpha {view.alpha:g}")
    print(_how(view))
    for note in view.notes:
        print(f"Note: {note}")
    _print_bins(view)
    for row in view.coverage:
        if (text := _interval(row)) is not None:
            print(f"coverage, {row.label}: {text} on {row.contexts} unseen contexts")
    _print_steps(view)
    print(view.smallest_alpha.sentence)
    _print_sequence(view)
    if view.effective_contexts is not None:
        print(f"Under the weights the contexts are worth {view.effective_contexts:.1f}.")
    _print_families(view)
    for group in view.groups:
        print(f"group: {group.sentence}")
    if drift is not None:
        print(f"drift: {drift.sentence}")


def print_calibrations(found: tuple[CalibrationSummary, ...]) -> None:
    """One line a calibration."""
    if not found:
        print("No calibrations yet. Make one with: python -m app calibrate --prompts prompts.csv")
    for item in found:
        measured = "" if item.coverage is None else f"  coverage {item.coverage:.3f}"
        layout = "" if item.mask_layout == "joint" else f", {item.mask_layout}"
        layout += ", factual reading alone" if item.certified_in == "factual" else ""
        print(
            f"{item.id:>5}  {item.created_at:%Y-%m-%d %H:%M}  {item.model:<12} {item.source}{layout}, lambda "
            f"{item.lam:g}, alpha {item.alpha:g}, {item.contexts} contexts{measured}  {item.name}"
        )


def print_comparison(first: CalibrationView, second: CalibrationView) -> None:
    """Two calibrations bin by bin, and what differs in their policies."""
    for view in (first, second):
        print(f"Calibration {view.summary.id}: {view.summary.name}, {view.summary.contexts} contexts; {_how(view)}")
    names = tuple(f"tau of {view.summary.id}" for view in (first, second))
    print(f"\n{'steps':<14} {names[0]:>12} {names[1]:>12}")
    taus = [_by_first_step(view) for view in (first, second)]
    for step in sorted(set(taus[0]) | set(taus[1])):
        cells = [_tau(_bin_at(view, step)) for view in (first, second)]
        label = (taus[0].get(step) or taus[1][step]).label
        print(f"{label:<14} {cells[0]:>12} {cells[1]:>12}")
    print("* inherited from a neighbour, ? uninformative: too few contexts or too weak, nothing is said")
    rows = [next(iter(view.coverage), None) for view in (first, second)]
    measured = [(None if row is None else _interval(row)) or "not measured" for row in rows]
    print(f"\ncoverage: {measured[0]} and {measured[1]}")
    for view in (first, second):
        print(f"{view.summary.id}: {view.smallest_alpha.sentence}")
    differences = policy_differences(first, second)
    for name, one, other in differences:
        print(f"{name}: {one} and {other}")
    if not differences:
        print("Both belong to the same policy.")


def _how(view: CalibrationView) -> str:
    """How the thresholds are read."""
    reading = view.reading
    parts = [view.summary.source, reading.estimator, f"lambda {view.summary.lam:g}", f"bins of {reading.bin_words}"]
    parts += [view.summary.mask_layout] if view.summary.mask_layout != "joint" else []
    parts += ["factual reading alone"] if view.summary.certified_in == "factual" else []
    parts += [f"{reading.draws} draws"] if reading.draws > 1 else []
    parts += [f"rho {reading.rho:g}"] if reading.rho != 1 else []
    parts += [f"group {view.group}"] if view.group is not None else []
    return ", ".join(parts)


def _print_bins(view: CalibrationView) -> None:
    named = "" if view.family is None else f"  of {view.family}"
    print(f"\n{'steps':<14} {'contexts':>8} {'tau':>10}  state{named}")
    for entry in view.bins:
        print(f"{entry.label:<14} {entry.contexts:>8} {entry.tau:>10.3g}  {_state(entry)}")
    print()


def _print_steps(view: CalibrationView) -> None:
    """Coverage at the first steps; a threshold bounds the average over its bin and no single one of them."""
    for row in view.coverage_by_step[:STEPS_PRINTED]:
        if (text := _interval(row)) is not None:
            print(f"coverage, step {row.label}: {text} on {row.contexts} unseen contexts")
    if left := len(view.coverage_by_step[STEPS_PRINTED:]):
        print(f"coverage at {left} later steps: --json has it")


def _state(entry: BinView) -> str:
    state = entry.state if entry.inherited_from is None else f"{entry.state} from {entry.inherited_from}"
    if entry.state != "uninformative":
        found = entry.evenness
        return state if found is None or not found.uneven else f"{state}, its steps differ (p {found.p:.2g})"
    if entry.tau > 0:
        return f"{state}: {entry.silence}"
    return f"{state}: needs {entry.needed} contexts" if entry.contexts < entry.needed else f"{state}: no joint support"


def _print_sequence(view: CalibrationView) -> None:
    if view.sequence is None:
        return
    if view.sequence.state == "calibrated":
        print(
            f"Whole chains: tau {view.sequence.tau:.3g} at alpha {view.sequence.alpha:g}, averaged over "
            f"{view.sequence.applies}. {view.sequence.lengths.sentence}"
        )
        for row in view.sequence_coverage:
            print(
                f"  {row.label}: {row.kept} of {row.contexts} kept, coverage {row.coverage:.3f} "
                f"[{row.low:.3f}, {row.high:.3f}]"
            )
    else:
        print(f"Whole chains: nothing is certified at alpha {view.sequence.alpha:g}. {view.sequence.reason}")


def _print_families(view: CalibrationView) -> None:
    for part in view.families:
        print(
            f"family {part.family}: alpha {part.alpha:.3g}, {part.contexts} contexts, tau {part.tau:.3g}, {part.state}"
        )


def _interval(row: CoverageView) -> str | None:
    if row.coverage is None or row.low is None or row.high is None:
        return None
    return f"{row.coverage:.3f} [{row.low:.3f}, {row.high:.3f}]"


def _by_first_step(view: CalibrationView) -> dict[int, BinView]:
    return {entry.first_step: entry for entry in view.bins}


def _bin_at(view: CalibrationView, step: int) -> BinView:
    return next(entry for entry in reversed(view.bins) if entry.first_step <= step)


def _tau(entry: BinView) -> str:
    return f"{entry.tau:.3g}" + ("" if entry.state == "calibrated" else "*" if entry.state == "inherited" else "?")


def print_drift(report: DriftReport) -> None:
    """What audits say against a calibration, and which of them do not count."""
    print(report.sentence)
    for own in report.left_out:
        print(f"left out: audit {own.session_id}, {own.why}: {own.prompt}")


SPACING_HELP = (
    "widening: steps 1, 2, 3-4, 5-8, then bins of --bin-width; even: bins of --bin-width throughout, as in the paper"
)


def add_calibrate(commands: Any) -> None:
    """Add the command."""
    command = commands.add_parser("calibrate", help="calibrate on a CSV or JSONL prompt set, or resume a calibration")
    command.add_argument("--prompts", type=Path, help="the prompt set")
    command.add_argument("--resume", type=int, metavar="JOB", help="go on with a calibration that was not finished")
    command.add_argument(
        "--columns", metavar="FIELD=COLUMN,...", help="columns to read fields from, e.g. prompt=text,reference=answer"
    )
    command.add_argument("--name", help="name of the calibration (default: the file's)")
    command.add_argument("--out", type=Path, help="also write the calibration to this file")
    command.add_argument("--accept-errors", action="store_true", help="go on with the rows that can be used")
    _add_reading_options(command)
    _add_rollout_options(command)
    _add_shift_options(command)
    add_policy_options(command)
    command.set_defaults(run=_calibrate)


def _add_reading_options(command: Any) -> None:
    defaults = CalibrationRequest("")
    command.add_argument("--estimator", choices=("hierarchical", "one_per_context", "pooled"), default="hierarchical")
    command.add_argument(
        "--draws", type=int, default=defaults.draws, help="draws of one_per_context that are averaged (default: 1)"
    )
    command.add_argument("--verification-share", type=float, default=0.25, help="share kept apart (default: 0.25)")
    command.add_argument("--bin-width", type=int, default=defaults.bin_width, help="steps that share a threshold")
    command.add_argument("--bin-spacing", choices=BIN_SPACINGS, default=defaults.bin_spacing, help=SPACING_HELP)
    command.add_argument(
        "--max-position", type=int, default=defaults.max_position, help="steps beyond belong to the last bin"
    )
    command.add_argument("--by-group", action="store_true", help="keep the rows' groups, for thresholds by group")
    command.add_argument(
        "--alpha-by-family",
        metavar="FAMILY=ALPHA,...",
        help="with --mask factorized, each family's share of alpha, e.g. gender=0.05,race=0.05 (default: equal shares)",
    )

    command.add_argument(
        "--certify-in",
        choices=("both", "factual"),
        default=defaults.certified_in,
        help="both readings (default), or the factual one alone, for methods that certify in one branch",
    )


def _add_rollout_options(command: Any) -> None:
    defaults = CalibrationRequest("")
    command.add_argument(
        "--source",
        choices=("reference", "rollout"),
        default=defaults.source,
        help="the prompts' own references (default), or what the policy itself writes",
    )
    command.add_argument(
        "--rollout-steps", type=int, default=defaults.max_new_tokens, help="tokens of a chain at most (default: 64)"
    )
    command.add_argument(
        "--tolerance", type=float, default=defaults.tolerance, help="change of tau at which rollouts count as settled"
    )
    command.add_argument("--rounds", type=int, default=defaults.max_iterations, help="rounds of rollouts at most")
    command.add_argument(
        "--record-chains", action="store_true", help="also record what the policy writes, so that drift can be measured"
    )


def _add_shift_options(command: Any) -> None:
    command.add_argument(
        "--rho", type=float, default=1.0, help="bound on how much likelier a prompt can be in use (default: 1)"
    )
    command.add_argument(
        "--weights",
        default="none",
        metavar="none|column|FILE",
        help="'column' takes the rows' own weights; a file of prompts like those in use estimates them",
    )


def _calibrate(options: argparse.Namespace) -> int:
    with services(Settings()) as wired:
        if options.resume is not None:
            if options.prompts is not None:
                raise ServiceError("--resume goes on with the prompts of its job; leave out --prompts.")
            job_id = wired.calibrations.resume(options.resume)
        else:
            job_id = _submit(wired, options)
        try:
            job = wait_for(wired, job_id, quiet=options.json)
        except KeyboardInterrupt:
            return _stop(wired, job_id)
        if job.status != "done" or job.result is None:
            raise ServiceError(job.error or f"The calibration was {job.status}.")
        number = int(str(job.result["calibration_id"]))
        view = wired.calibrations.view(number)
        if options.out:
            wired.calibrations.load(number).save(options.out)
        show(options, calibration_json(view), lambda: print_calibration(view))
    return 0


def _submit(wired: Services, options: argparse.Namespace) -> int:
    if options.prompts is None:
        raise ServiceError("There is no prompt set; name one with --prompts, or a job with --resume.")
    prompts = wired.calibrations.parse(options.prompts, columns=pairs("--columns", options.columns))
    request = _request(wired, options)
    if not options.json:
        for field, column in prompts.mapping:
            if field != column:
                print(f"{field} is read from the column “{column}”.", file=sys.stderr)
        if note := grouping_note(prompts):
            print(note, file=sys.stderr)
        for error in wired.calibrations.row_errors(prompts, request):
            print(f"line {error.line}: {error.column} {error.message}", file=sys.stderr)
    return wired.calibrations.submit(prompts, request)


def _request(wired: Services, options: argparse.Namespace) -> CalibrationRequest:
    layout, families = layout_and_families(options)
    weighting, deployment = _weights(wired, options.weights)
    return CalibrationRequest(
        name=options.name or options.prompts.stem,
        model=options.model,
        lam=options.lam,
        alpha=options.alpha,
        estimator=options.estimator,
        temperature=options.temperature,
        top_p=options.top_p,
        top_k=options.top_k,
        sentinel=options.sentinel,
        seed=options.seed,
        verification_share=options.verification_share,
        accept_errors=options.accept_errors,
        masked_families=families,
        user_list_id=list_id(wired, options),
        source=options.source,
        draws=options.draws,
        by_group=options.by_group,
        mask_layout=layout,
        alpha_by_family=levels_by_family(options.alpha_by_family),
        mask_mode=options.mask_mode,
        mask_hint=options.mask_hint,
        whitelist=tuple(options.whitelist),
        bin_width=options.bin_width,
        max_position=options.max_position,
        bin_spacing=options.bin_spacing,
        max_new_tokens=options.rollout_steps,
        tolerance=options.tolerance,
        max_iterations=options.rounds,
        record_chains=options.record_chains,
        rho=options.rho,
        weighting=weighting,
        deployment=deployment,
        certified_in=options.certify_in,
        prompt_format=options.prompt_format,
        chat_date=options.chat_date,
    )


def _stop(wired: Services, job_id: int) -> int:
    """Cancel a job and say how it is resumed."""
    wired.jobs.cancel(job_id)
    job = wired.jobs.wait(job_id)
    if job.status == "done" and job.result is not None:
        print(f"\ncoft-audit: it was done already: calibration {job.result['calibration_id']}.", file=sys.stderr)
        return 0
    print(
        f"\ncoft-audit: stopped; what is done is kept. Go on with: python -m app calibrate --resume {job_id}",
        file=sys.stderr,
    )
    return STOPPED


def _weights(wired: Services, text: str) -> tuple[str, tuple[str, ...]]:
    """Where weights come from, and the prompts of the deployment if they are to be estimated."""
    if text in ("none", "column"):
        return text, ()
    return "estimated", deployment_prompts(wired, Path(text))


def deployment_prompts(wired: Services, path: Path) -> tuple[str, ...]:
    """Prompts like those in use, from a CSV or JSONL file.

    Raises:
        ServiceError: The file cannot be read, or holds no prompt.
    """
    parsed = wired.calibrations.parse(path)
    if not parsed.rows:
        raise ServiceError(f"{path.name} holds no prompts; name its column of prompts “prompt”.")
    return tuple(example.prompt for _, example in parsed.rows)


def pairs(option: str, text: str | None) -> dict[str, str] | None:
    """Names and values of ``name=value,name=value``; None stays None.

    Raises:
        ServiceError: It is written otherwise.
    """
    if text is None:
        return None
    found: dict[str, str] = {}
    for part in text.split(","):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not (name and equals):
            raise ServiceError(f"{option} has {part.strip()!r}; write name=value, separated by commas.")
        if name in found:
            raise ServiceError(f"{option} names {name} twice; name it once.")
        found[name] = value
    return found


def levels_by_family(text: str | None) -> tuple[tuple[str, float], ...] | None:
    """Families and their shares of alpha from ``family=alpha,family=alpha``; None stays None.

    Raises:
        ServiceError: It is written otherwise.
    """
    shares = pairs("--alpha-by-family", text)
    if shares is None:
        return None
    try:
        return tuple((family, float(level)) for family, level in shares.items())
    except ValueError as error:
        raise ServiceError(f"--alpha-by-family has a level that is no number ({error}).") from error


def add_calibrations(commands: Any) -> None:
    """Add the command with its own commands."""
    parser = commands.add_parser("calibrations", help="list, show, compare, export, reweight or delete calibrations")
    own = parser.add_subparsers(required=True, metavar="ACTION")
    listed = own.add_parser("list", help="list finished calibrations, newest first")
    listed.add_argument("--model", help="only those of this model")
    add_json(listed)
    listed.set_defaults(run=_list)
    shown = own.add_parser("show", help="thresholds, coverage and what can be certified, read as asked")
    _add_id(shown)
    _add_reading(shown)
    shown.set_defaults(run=_show)
    compared = own.add_parser("compare", help="two calibrations side by side")
    compared.add_argument("first", help="number of a calibration, or 'embedded'")
    compared.add_argument("second", help="number of another one")
    _add_reading(compared)
    compared.set_defaults(run=_compare)
    drift = own.add_parser("drift", help="what the audits so far say against a calibration")
    _add_id(drift)
    add_json(drift)
    drift.set_defaults(run=_drift)
    exported = own.add_parser("export", help="write a calibration as a file that the library loads")
    _add_id(exported)
    exported.add_argument("--out", type=Path, help="file to write (default: calibration-ID.zip here)")
    exported.set_defaults(run=_export)
    reweighted = own.add_parser("reweight", help="store a calibration anew, weighted to prompts like those in use")
    _add_id(reweighted)
    reweighted.add_argument("--prompts", type=Path, required=True, help="CSV or JSONL of prompts like those in use")
    reweighted.add_argument("--name", default="", help="name of the new calibration (default: the old one, weighted)")
    add_json(reweighted)
    reweighted.set_defaults(run=_reweight)
    deleted = own.add_parser("delete", help="delete a calibration; audits that used it keep its name")
    _add_id(deleted)
    deleted.set_defaults(run=_delete)


def _add_id(command: Any) -> None:
    command.add_argument("calibration", help="number of a calibration, or 'embedded'")


def _add_reading(command: Any) -> None:
    command.add_argument("--alpha", type=float, help="risk level (default: as calibrated, here and below)")
    command.add_argument("--estimator", choices=("hierarchical", "one_per_context", "pooled"))
    command.add_argument("--draws", type=int, help="draws of one_per_context that are averaged")
    command.add_argument("--bin-width", type=int, help="steps that share a threshold")
    command.add_argument("--bin-spacing", choices=BIN_SPACINGS, help=SPACING_HELP)
    command.add_argument("--max-position", type=int, help="steps beyond belong to the last bin")
    command.add_argument("--rho", type=float, help="bound on how much likelier a prompt can be in use")
    command.add_argument("--group", help="the group whose own thresholds are read")
    command.add_argument("--family", help="with factorized masks, the family whose thresholds are shown")
    command.add_argument(
        "--alpha-by-family", metavar="FAMILY=ALPHA,...", help="with factorized masks, each family's share of alpha"
    )
    add_json(command)


def _reading(options: argparse.Namespace) -> ReadingRequest:
    return ReadingRequest(
        alpha=options.alpha,
        estimator=options.estimator,
        bin_width=options.bin_width,
        max_position=options.max_position,
        draws=options.draws,
        rho=options.rho,
        group=options.group,
        family=options.family,
        alpha_by_family=levels_by_family(options.alpha_by_family),
        bin_spacing=options.bin_spacing,
    )


def _list(options: argparse.Namespace) -> None:
    with services(Settings()) as wired:
        found = wired.calibrations.list(options.model)
        show(options, [calibration_summary_json(item) for item in found], lambda: print_calibrations(found))


def _show(options: argparse.Namespace) -> None:
    with services(Settings()) as wired:
        number = calibration_id(wired, options.calibration)
        view, drift = wired.calibrations.view(number, _reading(options)), wired.calibrations.drift(number)
        data = {**calibration_json(view), "drift": drift_json(drift)}
        show(options, data, lambda: print_calibration(view, drift))


def _compare(options: argparse.Namespace) -> None:
    with services(Settings()) as wired:
        first, second = (
            wired.calibrations.view(calibration_id(wired, text), _reading(options))
            for text in (options.first, options.second)
        )
        show(options, compared_json(first, second), lambda: print_comparison(first, second))


def _drift(options: argparse.Namespace) -> None:
    with services(Settings()) as wired:
        report = wired.calibrations.drift(calibration_id(wired, options.calibration))
        show(options, drift_json(report), lambda: print_drift(report))


def _export(options: argparse.Namespace) -> None:
    with services(Settings()) as wired:
        number = calibration_id(wired, options.calibration)
        if options.out is None:
            print(wired.calibrations.export(number, Path()))
        else:
            wired.calibrations.load(number).save(options.out)
            print(options.out)


def _reweight(options: argparse.Namespace) -> None:
    with services(Settings()) as wired:
        number = calibration_id(wired, options.calibration)
        made = wired.calibrations.reweight(number, deployment_prompts(wired, options.prompts), options.name)
        view = wired.calibrations.view(made)
        show(options, calibration_json(view), lambda: print_calibration(view))


def _delete(options: argparse.Namespace) -> None:
    with services(Settings()) as wired:
        number = calibration_id(wired, options.calibration)
        wired.calibrations.delete(number)
        print(f"Calibration {number} deleted.")
