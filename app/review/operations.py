"""The command ``verdicts``: given, reviewed blind, decided, compared and checked."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from typing import Any

from app.bootstrap import Services, services
from app.review.log import VERDICTS, LogEntry, VerdictRequest, entry_json
from app.review.service import CurrentVerdicts, verdicts_json
from app.settings import Settings
from app.shared.events import offer, shown


class VerdictEndpoints:
    """One method per endpoint; docstrings are the interface's documentation."""

    def __init__(self, services: Services) -> None:
        """Keep the service."""
        self._verdicts = services.verdicts

    @shown
    def add_verdict(
        self,
        session_id: int,
        reviewer: str,
        verdict: str | None,
        branch_id: int | None = None,
        first_step: int | None = None,
        last_step: int | None = None,
        note: str = "",
        tag: str = "",
    ) -> dict[str, Any]:
        """Write a verdict into a session's log, from which nothing can be taken out.

        Args:
            session_id: The session.
            reviewer: The reviewer's name.
            verdict: fair, unfair or unclear; null withdraws the reviewer's own.
            branch_id: The branch; without one it is about the session.
            first_step: The step, counted from 1; without one it is about the branch or the session.
            last_step: The last step of a span; without one it is about one token.
            note: A note.
            tag: A word that such notes share.

        Returns:
            The entry as the log has it: entry, reviewer, verdict, first_step, last_step, digest, previous and others.
        """
        first, last = (None if step is None else int(step) - 1 for step in (first_step, last_step))
        branch = None if branch_id is None else int(branch_id)
        request = VerdictRequest(int(session_id), reviewer, verdict or None, branch, first, last, note, tag)
        return entry_json(self._verdicts.add(request))

    @shown
    def list_verdicts(self, session_id: int, reviewer: str = "") -> dict[str, Any]:
        """List the verdicts of a session.

        Args:
            session_id: The session.
            reviewer: Who asks; a reviewer in her blind review gets only what is hers.

        Returns:
            targets with how they stand, and the log.
        """
        name, number = reviewer.strip() or None, int(session_id)
        return verdicts_json(self._verdicts.current(number, name), self._verdicts.history(number, name))


def verdict_endpoints(services: Services) -> None:
    """Register the endpoints."""
    calls = VerdictEndpoints(services)
    for method in (calls.add_verdict, calls.list_verdicts):
        offer(method)


WITHDRAW = "withdraw"


def add_verdicts(commands: Any) -> None:
    """Add the command with its own commands."""
    parser = commands.add_parser("verdicts", help="give, show, compare and check verdicts")
    own = parser.add_subparsers(required=True, metavar="ACTION")
    for name, text, run in (
        ("add", "give a verdict", _add),
        ("decide", "decide a disagreement as a third person", _decide),
    ):
        command = _of_session(own, name, text, run)
        command.add_argument("verdict", choices=VERDICTS if name == "decide" else (*VERDICTS, WITHDRAW))
        command.add_argument("--reviewer", required=True, help="who says so")
        command.add_argument("--branch", type=int, help="the branch; default: the whole session")
        command.add_argument("--first", type=int, metavar="STEP", help="first step, from 1")
        command.add_argument("--last", type=int, metavar="STEP", help="last step; default: the first alone")
        command.add_argument("--note", default="", help="why")
        command.add_argument("--tag", default="", help="a short label")
    show = _of_session(own, "show", "what stands, and the log", _show)
    show.add_argument("--reviewer", help="as this reviewer sees it during a blind review")
    start = _of_session(own, "start", "open a review, blind to the verdicts of others", _start)
    start.add_argument("--reviewer", required=True)
    start.add_argument("--open", action="store_true", help="not blind")
    finish = _of_session(own, "finish", "submit a review", _finish)
    finish.add_argument("--reviewer", required=True)
    _of_session(own, "check", "check the chain of the verdict log", _check)
    agree = own.add_parser("agreement", help="Cohen's kappa of two reviewers")
    agree.add_argument("first")
    agree.add_argument("second")
    agree.add_argument("--session", type=int, help="only this session; default: all")
    agree.add_argument("--json", action="store_true", help="print JSON")
    agree.set_defaults(run=_agreement)


def _of_session(commands: Any, name: str, text: str, run: Any) -> Any:
    command = commands.add_parser(name, help=text)
    command.add_argument("session", type=int, help="session number")
    command.add_argument("--json", action="store_true", help="print JSON")
    command.set_defaults(run=run)
    return command


def _request(options: argparse.Namespace) -> VerdictRequest:
    first, last = (None if step is None else step - 1 for step in (options.first, options.last))
    verdict = None if options.verdict == WITHDRAW else options.verdict
    return VerdictRequest(
        options.session, options.reviewer, verdict, options.branch, first, last, options.note, options.tag
    )


def _add(options: argparse.Namespace) -> None:
    with services(Settings()) as wired:
        entry = wired.verdicts.add(_request(options))
    _show_data(options, asdict(entry), _line(entry))


def _decide(options: argparse.Namespace) -> None:
    with services(Settings()) as wired:
        entry = wired.verdicts.adjudicate(_request(options))
    _show_data(options, asdict(entry), _line(entry))


def _show(options: argparse.Namespace) -> None:
    with services(Settings()) as wired:
        current = wired.verdicts.current(options.session, options.reviewer)
        log = wired.verdicts.history(options.session, options.reviewer)
    data = {**asdict(current), "log": [asdict(entry) for entry in log]}
    _show_data(options, data, "\n".join([*_standing(current), "", *(_line(entry) for entry in log)]).strip())


def _start(options: argparse.Namespace) -> None:
    with services(Settings()) as wired:
        review = wired.verdicts.start_review(options.session, options.reviewer, blind=not options.open)
    kind = "blind review" if review.blind else "review"
    _show_data(options, asdict(review), f"{review.reviewer} begins a {kind} of session {options.session}.")


def _finish(options: argparse.Namespace) -> None:
    with services(Settings()) as wired:
        review = wired.verdicts.finish_review(options.session, options.reviewer)
    _show_data(options, asdict(review), f"{review.reviewer} has finished the review of session {options.session}.")


def _check(options: argparse.Namespace) -> int:
    with services(Settings()) as wired:
        found = wired.verdicts.verify_log(options.session)
    _show_data(options, asdict(found), f"{found.sentence}\nHead: {found.head or 'none'}")
    return 0 if found.whole else 1


def _agreement(options: argparse.Namespace) -> None:
    with services(Settings()) as wired:
        found = wired.verdicts.agreement(options.first, options.second, options.session)
    _show_data(options, {**asdict(found), "sentence": found.sentence}, found.sentence)


def _standing(current: CurrentVerdicts) -> list[str]:
    lines = [f"{item.target.label}: {item.in_words}. {item.notes}".strip() for item in current.targets]
    if current.hidden:
        others = "1 entry of others is" if current.hidden == 1 else f"{current.hidden} entries of others are"
        lines.append(f"{others} hidden until the blind review is finished.")
    return lines or ["No verdict has been given."]


def _line(entry: LogEntry) -> str:
    what = {
        "verdict": entry.verdict or "withdrawn",
        "adjudication": f"decides {entry.verdict}",
        "review_started": "starts a review",
        "review_finished": "finishes the review",
    }[entry.kind]
    about = f" on {entry.target.label}" if entry.kind in ("verdict", "adjudication") else ""
    blind = ", blind" if entry.blind else ""
    note = f": {entry.note}" if entry.note else ""
    head = f"{entry.entry:>4}  {entry.at:%Y-%m-%d %H:%M}  {entry.digest[:12]}"
    return f"{head}  {entry.reviewer}: {what}{about}{blind}{note}"


def _show_data(options: argparse.Namespace, data: Any, text: str) -> None:
    print(json.dumps(data, ensure_ascii=False, allow_nan=False, default=str) if options.json else text)
