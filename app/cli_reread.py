"""The command ``reread``: a stored audit at another lambda or alpha, without the model."""

from __future__ import annotations

import argparse
import math
from typing import Any

from app.bootstrap import services
from app.cli_options import add_json, show
from app.services.reread.plain import rereading_json
from app.services.views.rereading import Rereading, RereadRequest, RereadRow
from app.settings import Settings

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
