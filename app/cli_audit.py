"""The command ``audit``: one prompt, its chain and its report."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from app.bootstrap import Services, services
from app.cli_compare import show_comparison
from app.cli_options import EMBEDDED, add_parameters, add_policy_options, show
from app.cli_output import print_audit
from app.cli_settings import audit_settings, named_policies, spans_of
from app.services.errors import ServiceError
from app.services.known_policies import KNOWN_POLICIES
from app.services.plain import session_json
from app.services.reports import write_text
from app.services.run_until import stop_sentence, until_from_text
from app.services.views import AuditSettings, AuditView, StartAudit
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
    policies = named_policies(options)
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


def _print(view: AuditView, out: Path | None, why: str) -> None:
    print_audit(view, out)
    if why:
        print(f"\n{why}")
