"""The command ``calibrate``: a prompt set, or a calibration that was not finished."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from app.bootstrap import Services, services
from app.cli_options import add_policy_options, layout_and_families, list_id, show
from app.cli_output_calibrations import print_calibration
from app.cli_waiting import STOPPED, wait_for
from app.services.calibration.plain import calibration_json
from app.services.errors import ServiceError
from app.services.prompts.columns import grouping_note
from app.services.views import CalibrationRequest
from app.settings import Settings
from coft_core.conformal.stepwise import BIN_SPACINGS

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
