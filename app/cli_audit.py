"""The command ``audit``: one prompt, its chain and its report."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from app.bootstrap import Services, services
from app.cli_compare import show_comparison
from app.cli_options import EMBEDDED, add_parameters, add_policy_options, calibration_id, masked, show
from app.cli_output import print_audit
from app.services.errors import ServiceError
from app.services.known_policies import FACTORIZED, KNOWN_POLICIES, fitted, parameter_values, policy_info
from app.services.plain import session_json
from app.services.reports import write_text
from app.services.run_until import stop_sentence, until_from_text
from app.services.views import AuditSettings, AuditView, Span, StartAudit, replace
from app.services.views.audits import ParameterValue
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
    add_parameters(command)
    add_policy_options(command)
    command.set_defaults(run=_audit)


def _audit(options: argparse.Namespace) -> None:
    until = None if options.until is None else until_from_text(options.until)
    policies = _policies(options)
    if until is not None and len(policies) > 1:
        raise ServiceError("--until stops one chain; give one policy with it, or leave it out.")
    with services(Settings()) as wired:
        spans = None if options.spans is None else spans_of(options.spans)
        columns = [audit_settings(wired, options, policy) for policy in policies]
        request = StartAudit(options.prompt, columns[0], spans, options.name)
        if len(policies) > 1:
            _compare(wired, options, request, columns)
            return
        view = wired.audits.start(request)
        steps = list(wired.audits.run(view.session_id, until=until))
        view = wired.audits.view(view.session_id)
        why = stop_sentence(until, steps[-1] if steps else None, len(steps), view.finished)
        if options.out:
            write_text(options.out, wired.reports.csv(view.session_id))
        show(options, session_json(view), lambda: _print(view, options.out, why))


def _compare(wired: Services, options: argparse.Namespace, request: StartAudit, columns: list[AuditSettings]) -> None:
    """Run the policies beside each other, and show where they part."""
    ids = wired.comparisons.run_columns(request, columns)
    for _ in wired.comparisons.advance(ids):
        pass
    show_comparison(options, wired.comparisons.compare(ids))


def _policies(options: argparse.Namespace) -> list[str]:
    """The policies that were named, all of them known; a policy that is not named has no parameters."""
    names = [name.strip() for name in str(options.policy).split(",")]
    chosen = [name if name == FACTORIZED else policy_info(name).key for name in names]
    for name, _, _ in _given(options):
        if name and name not in chosen:
            raise ServiceError(f"--set names the policy {name!r}, which --policy does not; name it there too.")
    return chosen


def _given(options: argparse.Namespace) -> list[tuple[str, str, str]]:
    """Policy (empty for the only one), parameter and value of each ``--set``."""
    found = []
    for text in getattr(options, "set", ()):
        name, equals, value = text.partition("=")
        policy, _, parameter = name.strip().rpartition(".")
        if not equals or not parameter:
            raise ServiceError(f"--set {text!r} is no NAME=VALUE; write, for instance, --set strength=2.")
        found.append((policy, parameter, value))
    return found


def _parameters(options: argparse.Namespace, policy: str) -> tuple[tuple[str, ParameterValue], ...]:
    """The parameters that were set for a policy; several values of one name are the lines of a list."""
    given: dict[str, list[str]] = {}
    several = len(_policies(options)) > 1
    for name, parameter, value in _given(options):
        if not name and several:
            raise ServiceError(f"Several policies are named; write --set POLICY.{parameter}={value}.")
        if name in ("", policy):
            given.setdefault(parameter, []).append(value)
    info = policy_info("coft" if policy == FACTORIZED else policy)
    return parameter_values(info, {name: "\n".join(values) for name, values in given.items()})


def _print(view: AuditView, out: Path | None, why: str) -> None:
    print_audit(view, out)
    if why:
        print(f"\n{why}")


def audit_settings(wired: Services, options: argparse.Namespace, policy: str | None = None) -> AuditSettings:
    """The settings that the options ask for, with their masking, for one of the policies; the first if None."""
    chosen = policy or _policies(options)[0]
    settings = AuditSettings(
        model=options.model,
        policy="coft" if chosen == FACTORIZED else chosen,
        lam=options.lam,
        alpha=options.alpha,
        calibration_id=_calibration_id(wired, options, chosen),
        temperature=options.temperature,
        top_p=options.top_p,
        top_k=options.top_k,
        greedy=options.greedy,
        seed=options.seed,
        max_new_tokens=options.steps,
        proceed_uncertified=options.proceed_uncertified,
        group=options.group,
    )
    own = fitted(masked(settings, wired, options), chosen)
    if options.tuned and own.policy != "vanilla":
        own = wired.tunings.applied(own)
    given = dict(own.parameters) | dict(_parameters(options, chosen))
    return replace(own, parameters=tuple(given.items()))


def _calibration_id(wired: Services, options: argparse.Namespace, policy: str) -> int | None:
    """The calibration that was asked for; the embedded one only where it can fit, which the session then says."""
    if options.calibration == "none":
        return None
    if options.calibration != EMBEDDED:
        return calibration_id(wired, options.calibration, options.model)
    embedded = any(item.embedded for item in wired.calibrations.list(options.model))
    return calibration_id(wired, EMBEDDED, options.model) if embedded and policy == "coft" else None


def spans_of(text: str) -> tuple[Span, ...]:
    """Spans from JSON; raises ServiceError where it is none."""
    try:
        items = json.loads(text)
        return tuple(Span(int(i[0]), int(i[1]), str(i[2]) if len(i) > 2 else "other") for i in items)
    except (json.JSONDecodeError, TypeError, ValueError, IndexError, KeyError) as error:
        raise ServiceError(
            "--spans is not a JSON list of [start, end, category], e.g. '[[35, 37, \"gender\"]]'."
        ) from error
