"""The command ``audit``: one prompt, its chain and its report."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from app.bootstrap import Services, services
from app.cli_options import EMBEDDED, add_policy_options, calibration_id, masked, show
from app.cli_output import print_audit
from app.services.errors import ServiceError
from app.services.plain import session_json
from app.services.reports import write_text
from app.services.views import AuditSettings, Span, StartAudit
from app.settings import Settings


def add_audit(commands: Any) -> None:
    """Add the command."""
    command = commands.add_parser("audit", help="audit one prompt and write its report")
    command.add_argument("--prompt", required=True, help="the text to continue")
    command.add_argument("--out", type=Path, help="write the report as CSV to this file")
    command.add_argument("--name", help="session name (default: the prompt's beginning)")
    command.add_argument("--policy", choices=("coft", "vanilla"), default="coft")
    command.add_argument(
        "--calibration", default=EMBEDDED, help=f"number of a calibration, '{EMBEDDED}' (default) or 'none'"
    )
    command.add_argument("--group", help="group whose own thresholds are used (default: all contexts together)")
    command.add_argument("--proceed-uncertified", action="store_true", help="use a calibration of another policy")
    command.add_argument("--spans", help="sensitive spans as JSON [[start, end, category], ...]; default: detected")
    command.add_argument("--steps", type=int, default=64, help="tokens to generate at most (default: 64)")
    command.add_argument("--greedy", action="store_true", help="take the likeliest certified token")
    add_policy_options(command)
    command.set_defaults(run=_audit)


def _audit(options: argparse.Namespace) -> None:
    with services(Settings()) as wired:
        settings = AuditSettings(
            model=options.model,
            policy=options.policy,
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
        spans = None if options.spans is None else _spans(options.spans)
        request = StartAudit(options.prompt, masked(settings, wired, options), spans, options.name)
        view = wired.audits.start(request)
        for _ in wired.audits.run(view.session_id):
            pass
        view = wired.audits.view(view.session_id)
        if options.out:
            write_text(options.out, wired.reports.csv(view.session_id))
        show(options, session_json(view), lambda: print_audit(view, options.out))


def _calibration_id(wired: Services, options: argparse.Namespace) -> int | None:
    if options.policy != "coft" or options.calibration == "none":
        return None
    if options.calibration == EMBEDDED and not any(item.embedded for item in wired.calibrations.list(options.model)):
        # Only the embedded model comes with one; other models are audited without, and the session says so.
        return None
    return calibration_id(wired, options.calibration, options.model)


def _spans(text: str) -> tuple[Span, ...]:
    try:
        items = json.loads(text)
        return tuple(Span(int(i[0]), int(i[1]), str(i[2]) if len(i) > 2 else "other") for i in items)
    except (json.JSONDecodeError, TypeError, ValueError, IndexError, KeyError) as error:
        raise ServiceError(
            "--spans is not a JSON list of [start, end, category], e.g. '[[35, 37, \"gender\"]]'."
        ) from error
