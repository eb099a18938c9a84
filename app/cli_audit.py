"""The command ``audit``: one prompt, its chain and its report."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from app.bootstrap import Services, services
from app.cli_compare import show_comparison
from app.cli_options import EMBEDDED, add_policy_options, calibration_id, masked, show
from app.cli_output import print_audit
from app.services.errors import ServiceError
from app.services.known_policies import KNOWN_POLICIES, policy_info
from app.services.plain import session_json
from app.services.reports import write_text
from app.services.run_until import stop_sentence, until_from_text
from app.services.views import AuditSettings, AuditView, Span, StartAudit
from app.settings import Settings


def add_audit(commands: Any) -> None:
    """Add the command."""
    command = commands.add_parser("audit", help="audit one prompt and write its report")
    command.add_argument("--prompt", required=True, help="the text to continue")
    command.add_argument("--out", type=Path, help="write the report as CSV to this file")
    command.add_argument("--name", help="session name (default: the prompt's beginning)")
    command.add_argument(
        "--policy",
        default="coft",
        metavar="NAME[,NAME]",
        help=f"{', '.join(item.key for item in KNOWN_POLICIES)} (default: coft); several, separated by commas, are run "
        "beside each other and compared",
    )
    command.add_argument(
        "--calibration", default=EMBEDDED, help=f"number of a calibration, '{EMBEDDED}' (default) or 'none'"
    )
    command.add_argument("--group", help="group whose own thresholds are used (default: all contexts together)")
    command.add_argument("--proceed-uncertified", action="store_true", help="use a calibration of another policy")
    command.add_argument("--spans", help="sensitive spans as JSON [[start, end, category], ...]; default: detected")
    command.add_argument("--steps", type=int, default=64, help="tokens to generate at most (default: 64)")
    command.add_argument(
        "--until", help="stop earlier: at the first fallback, sensitive[:LOG RATIO] or overruled, or after steps:N"
    )
    command.add_argument("--greedy", action="store_true", help="take the likeliest certified token")
    add_policy_options(command)
    command.set_defaults(run=_audit)


def _audit(options: argparse.Namespace) -> None:
    until = None if options.until is None else until_from_text(options.until)
    policies = _policies(options)
    if until is not None and len(policies) > 1:
        raise ServiceError("--until stops one chain; give one policy with it, or leave it out.")
    with services(Settings()) as wired:
        spans = None if options.spans is None else spans_of(options.spans)
        request = StartAudit(options.prompt, audit_settings(wired, options), spans, options.name)
        if len(policies) > 1:
            _compare(wired, options, request, policies)
            return
        view = wired.audits.start(request)
        steps = list(wired.audits.run(view.session_id, until=until))
        view = wired.audits.view(view.session_id)
        why = stop_sentence(until, steps[-1] if steps else None, len(steps), view.finished)
        if options.out:
            write_text(options.out, wired.reports.csv(view.session_id))
        show(options, session_json(view), lambda: _print(view, options.out, why))


def _compare(wired: Services, options: argparse.Namespace, request: StartAudit, policies: list[str]) -> None:
    """Run the policies beside each other, and show where they part."""
    ids = wired.comparisons.run_beside(request, policies)
    for _ in wired.comparisons.advance(ids):
        pass
    show_comparison(options, wired.comparisons.compare(ids))


def _policies(options: argparse.Namespace) -> list[str]:
    """The policies that were named, all of them known."""
    return [policy_info(name.strip()).key for name in str(options.policy).split(",")]


def _print(view: AuditView, out: Path | None, why: str) -> None:
    print_audit(view, out)
    if why:
        print(f"\n{why}")


def audit_settings(wired: Services, options: argparse.Namespace) -> AuditSettings:
    """The settings that the options ask for, with their masking."""
    settings = AuditSettings(
        model=options.model,
        policy=_policies(options)[0],
        lam=options.lam,
        alpha=options.alpha,
        calibration_id=_calibration_id(wired, options),
        temperature=options.temperature,
        top_p=options.top_p,
        top_k=options.top_k,
        greedy=options.greedy,
        seed=options.seed,
        max_new_tokens=options.steps,
        proceed_uncertified=options.proceed_uncertified,
        group=options.group,
    )
    return masked(settings, wired, options)


def _calibration_id(wired: Services, options: argparse.Namespace) -> int | None:
    if options.calibration == "none" or not any(policy_info(name).certifies for name in _policies(options)):
        return None
    if options.calibration == EMBEDDED and not any(item.embedded for item in wired.calibrations.list(options.model)):
        # Only the embedded model comes with one; other models are audited without, and the session says so.
        return None
    return calibration_id(wired, options.calibration, options.model)


def spans_of(text: str) -> tuple[Span, ...]:
    """Spans from JSON; raises ServiceError where it is none."""
    try:
        items = json.loads(text)
        return tuple(Span(int(i[0]), int(i[1]), str(i[2]) if len(i) > 2 else "other") for i in items)
    except (json.JSONDecodeError, TypeError, ValueError, IndexError, KeyError) as error:
        raise ServiceError(
            "--spans is not a JSON list of [start, end, category], e.g. '[[35, 37, \"gender\"]]'."
        ) from error
