"""The command ``audit``: one prompt, its chain and its report."""

from __future__ import annotations

import argparse
import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

from app.audit.rereading import Rereading, RereadRequest, RereadRow, rereading_json
from app.audit.until import stop_sentence, until_from_text
from app.bootstrap import Services, services
from app.compare.commands import show_comparison
from app.settings import Settings
from app.shared.audits import AuditSettings, AuditView, StartAudit
from app.shared.errors import ServiceError
from app.shared.files import write_text
from app.shared.json import session_json
from app.shared.policies import KNOWN_POLICIES
from app.shared.terminal import (
    EMBEDDED,
    add_json,
    add_parameters,
    add_policy_options,
    named_policies,
    print_audit,
    settings_from_options,
    show,
    spans_of,
)


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
        columns = [settings_from_options(wired, options, policy) for policy in policies]
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


UNKNOWN = "?"
"""Stands where an answer hangs on logits that were not kept."""


def add_reread(commands: Any) -> None:
    """Add the command."""
    command = commands.add_parser("reread", help="read a stored audit at another lambda or alpha, without the model")
    command.add_argument("session", type=int, help="number of the session, from 'sessions'")
    command.add_argument("--lam", type=float, help="fusion weight, 0 to 1 (default: the audit's own)")
    command.add_argument("--alpha", type=float, help="risk level (default: the audit's own)")
    command.add_argument("--branch", type=int, help="number of a branch (default: the active one)")
    add_json(command)
    command.set_defaults(run=_reread)


def _reread(options: argparse.Namespace) -> None:
    with services(Settings()) as wired:
        found = wired.rereads.read(RereadRequest(options.session, options.lam, options.alpha, options.branch))
        show(options, rereading_json(found), lambda: print_rereading(found))


def print_rereading(found: Rereading) -> None:
    """The reading as a table, with every reservation that the page would show."""
    alpha = "no thresholds" if found.alpha is None else f"alpha {found.alpha:g}"
    print(f"Session {found.session_id}, branch {found.branch_id}, read at lambda {found.lam:g}, {alpha}")
    print(found.thresholds.sentence)
    for note in found.thresholds.notes:
        print(f"Note: {note}")
    if others := ", ".join(f"{offer.lam:g} (“{offer.name}”)" for offer in found.offers if offer.lam != found.lam):
        print(f"Calibrations for this policy exist at lambda {others}.")
    print(f"\n{'step':>4}  {'written':<16} {'would be':<16} {'fused':>8} {'tau':>8} {'set':>8}  certified then, now")
    for row in found.rows:
        print(_row(row))
    print(f"\n{found.summary}")


def _row(row: RereadRow) -> str:
    now = row.now
    other = UNKNOWN if row.differs is None else _shown(now.policy_token or "") if row.differs else ""
    fused = math.exp(now.log_p_fused.low)
    size = f"{now.set_size.low:.0f}" if now.set_size.exact else f"{now.set_size.low:.0f}-{now.set_size.high:.0f}"
    certified = f"{_word(row.then.certified)}, {_word(now.certified)}"
    forced = " forced" if row.then.forced else ""
    return (
        f"{row.index + 1:>4}  {_shown(row.then.token):<16} {other:<16} {fused:>8.4f} {math.exp(now.log_tau):>8.4f} "
        f"{size:>8}  {certified}{forced}"
    )


def _word(certified: bool | None) -> str:
    return UNKNOWN if certified is None else "yes" if certified else "no"


def _shown(token: str) -> str:
    text = token.replace("\n", "\\n")
    return text.replace(" ", "·", 1) if text.startswith(" ") else text


def add_policies(commands: Any) -> None:
    """Add the command."""
    command = commands.add_parser("policies", help="list the decoding methods and their parameters")
    add_json(command)
    command.set_defaults(run=_list_policies)


def _list_policies(options: argparse.Namespace) -> None:
    show(options, [asdict(info) for info in KNOWN_POLICIES], _print_policies)


def _print_policies() -> None:
    for info in KNOWN_POLICIES:
        source = f" ({info.source})" if info.source else ""
        print(f"{info.key}: {info.name}, {info.about}{source}")
        print(f"    Differs from its authors': {info.differs}")
        for own in info.parameters:
            print(f"    {own.name} = {_default(own.default)}: {own.help}")


def _default(value: object) -> str:
    """A default in a line; texts are quoted, and an empty one is none."""
    if value in (None, "", ()):
        return "none"
    return " ".join(repr(text) for text in value) if isinstance(value, tuple) else repr(value)
