"""The command line: serve, audit, calibrate, lists, sessions, report."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from transformers.utils.logging import disable_progress_bar

from app.bootstrap import Services, services
from app.cli_lists import add_lists
from app.cli_output import print_audit, print_calibration, print_sessions
from app.services.detection import families_from_text
from app.services.errors import USER_ERRORS, ServiceError
from app.services.plain import calibration_json, session_json, summary_json
from app.services.reports import write_text
from app.services.views import AuditSettings, CalibrationRequest, Span, StartAudit
from app.settings import Settings

EMBEDDED = "embedded"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command.

    Returns:
        0; 1 when the input cannot be used, with one sentence on standard error; 2 for a usage error.
    """
    # Commands print tables and JSON; the library's progress bars would run through them.
    disable_progress_bar()
    options = _parser().parse_args(arguments)
    try:
        return int(options.run(options) or 0)
    except USER_ERRORS as error:
        print(f"coft-audit: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("coft-audit: stopped; everything shown so far is stored.", file=sys.stderr)
        return 130


def _serve(options: argparse.Namespace) -> None:
    # Gradio takes seconds to import, which no other command should wait for.
    from app.server import require_free_port, serve

    settings = Settings(**{k: v for k in ("host", "port") if (v := getattr(options, k)) is not None})
    require_free_port(settings)
    with services(settings, owns_store=True) as wired:
        serve(wired, settings, options.open)


def _audit(options: argparse.Namespace) -> None:
    with services(_settings()) as wired:
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
            sentinel=options.sentinel,
            proceed_uncertified=options.proceed_uncertified,
            masked_families=_families(options),
            user_list_id=_list_id(wired, options),
        )
        spans = None if options.spans is None else _spans(options.spans)
        view = wired.audits.start(StartAudit(options.prompt, settings, spans, options.name))
        for _ in wired.audits.run(view.session_id):
            pass
        view = wired.audits.view(view.session_id)
        if options.out:
            write_text(options.out, wired.reports.csv(view.session_id))
        _print(options, session_json(view), lambda: print_audit(view, options.out))


def _calibrate(options: argparse.Namespace) -> None:
    with services(_settings()) as wired:
        prompts = wired.calibrations.parse(options.prompts)
        if options.json is False:
            for error in wired.calibrations.row_errors(prompts, options.model):
                print(f"line {error.line}: {error.column} {error.message}", file=sys.stderr)
        request = CalibrationRequest(
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
            masked_families=_families(options),
            user_list_id=_list_id(wired, options),
        )
        job = wired.jobs.wait(wired.calibrations.submit(prompts, request))
        if job.status != "done" or job.result is None:
            raise ServiceError(job.error or f"The calibration was {job.status}.")
        calibration_id = int(str(job.result["calibration_id"]))
        view = wired.calibrations.view(calibration_id)
        if options.out:
            wired.calibrations.load(calibration_id).save(options.out)
        _print(options, calibration_json(view), lambda: print_calibration(view))


def _sessions(options: argparse.Namespace) -> None:
    with services(_settings()) as wired:
        if options.delete is not None:
            wired.audits.delete(options.delete)
            print(f"Session {options.delete} deleted.")
            return
        found = wired.audits.sessions(options.search, options.limit)
        _print(options, [summary_json(s) for s in found], lambda: print_sessions(found))


def _report(options: argparse.Namespace) -> None:
    with services(_settings()) as wired:
        text = wired.reports.csv(options.session, options.branch)
        if options.out:
            print(write_text(options.out, text))
        else:
            sys.stdout.write(text)


def _print(options: argparse.Namespace, data: Any, show: Any) -> None:
    if options.json:
        print(json.dumps(data, ensure_ascii=False, allow_nan=False))
    else:
        show()


def _settings() -> Settings:
    return Settings()


def _calibration_id(wired: Services, options: argparse.Namespace) -> int | None:
    if options.policy != "coft" or options.calibration == "none":
        return None
    if options.calibration.isdigit():
        return int(options.calibration)
    if options.calibration == EMBEDDED:
        embedded = [c for c in wired.calibrations.list(options.model) if c.embedded]
        return embedded[0].id if embedded else None
    raise ServiceError(
        f"{options.calibration!r} is no calibration; give its number from 'calibrate --json', '{EMBEDDED}' or 'none'."
    )


def _families(options: argparse.Namespace) -> tuple[str, ...] | None:
    return None if options.mask_families is None else families_from_text(options.mask_families)


def _list_id(wired: Services, options: argparse.Namespace) -> int | None:
    return None if options.list is None else wired.user_lists.named(options.list).summary.id


def _spans(text: str) -> tuple[Span, ...]:
    try:
        items = json.loads(text)
        return tuple(Span(int(i[0]), int(i[1]), str(i[2]) if len(i) > 2 else "other") for i in items)
    except (json.JSONDecodeError, TypeError, ValueError, IndexError, KeyError) as error:
        raise ServiceError(
            "--spans is not a JSON list of [start, end, category], e.g. '[[35, 37, \"gender\"]]'."
        ) from error


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m app", description="Audit language models for bias, token by token."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_serve(commands)
    _add_audit(commands)
    _add_calibrate(commands)
    add_lists(commands)
    _add_sessions(commands)
    _add_report(commands)
    return parser


def _add_serve(commands: Any) -> None:
    command = commands.add_parser("serve", help="start the web application")
    command.add_argument("--host", help="address to listen on (default: COFT_HOST or 127.0.0.1)")
    command.add_argument("--port", type=int, help="port to listen on (default: COFT_PORT or 7860)")
    command.add_argument("--open", action="store_true", help="open the page in a browser")
    command.set_defaults(run=_serve)


def _add_audit(commands: Any) -> None:
    command = commands.add_parser("audit", help="audit one prompt and write its report")
    command.add_argument("--prompt", required=True, help="the text to continue")
    command.add_argument("--out", type=Path, help="write the report as CSV to this file")
    command.add_argument("--name", help="session name (default: the prompt's beginning)")
    command.add_argument("--policy", choices=("coft", "vanilla"), default="coft")
    command.add_argument(
        "--calibration", default=EMBEDDED, help=f"number of a calibration, '{EMBEDDED}' (default) or 'none'"
    )
    command.add_argument("--proceed-uncertified", action="store_true", help="use a calibration of another policy")
    command.add_argument("--spans", help="sensitive spans as JSON [[start, end, category], ...]; default: detected")
    command.add_argument("--steps", type=int, default=64, help="tokens to generate at most (default: 64)")
    command.add_argument("--greedy", action="store_true", help="take the likeliest certified token")
    _add_policy_options(command)
    command.set_defaults(run=_audit)


def _add_calibrate(commands: Any) -> None:
    command = commands.add_parser("calibrate", help="calibrate on a CSV or JSONL prompt set with references")
    command.add_argument("--prompts", type=Path, required=True, help="the prompt set")
    command.add_argument("--name", help="name of the calibration (default: the file's)")
    command.add_argument("--out", type=Path, help="also write the calibration to this file")
    command.add_argument("--estimator", choices=("hierarchical", "one_per_context", "pooled"), default="hierarchical")
    command.add_argument("--verification-share", type=float, default=0.25, help="share kept apart (default: 0.25)")
    command.add_argument("--accept-errors", action="store_true", help="go on with the rows that can be used")
    _add_policy_options(command)
    command.set_defaults(run=_calibrate)


def _add_sessions(commands: Any) -> None:
    command = commands.add_parser("sessions", help="list or delete past audits")
    command.add_argument("--search", default="", help="only sessions that mention this text")
    command.add_argument("--limit", type=int, default=50)
    command.add_argument("--delete", type=int, metavar="ID", help="delete this session")
    command.add_argument("--json", action="store_true", help="print JSON")
    command.set_defaults(run=_sessions)


def _add_report(commands: Any) -> None:
    command = commands.add_parser("report", help="export a past audit as CSV")
    command.add_argument("session", type=int, help="session number")
    command.add_argument("--branch", type=int, help="only the chain of this branch")
    command.add_argument("--out", type=Path, help="file to write; default: standard output")
    command.set_defaults(run=_report)


def _add_policy_options(command: Any) -> None:
    defaults = AuditSettings()
    command.add_argument("--model", default=_settings().model, help="'demo', a hub id, or a folder")
    command.add_argument("--lam", type=float, default=defaults.lam, help="fusion weight, 0 to 1 (default: 0.6)")
    command.add_argument("--alpha", type=float, default=defaults.alpha, help="risk level (default: 0.1)")
    command.add_argument("--temperature", type=float, default=defaults.temperature)
    command.add_argument("--top-p", type=float, default=defaults.top_p)
    command.add_argument("--top-k", type=int, default=defaults.top_k, help="0 is off")
    command.add_argument("--sentinel", help="one token that stands for masked ones; default: the model's own")
    command.add_argument(
        "--mask-families",
        metavar="NAMES",
        help="attribute families whose spans are masked, others being suggested: names separated by commas, "
        "'protected' (all but proxies) or 'all' (default: COFT_MASK_FAMILIES or 'protected')",
    )
    command.add_argument("--list", metavar="NAME", help="word list whose terms win over what is detected")
    command.add_argument("--seed", type=int, default=defaults.seed)
    command.add_argument("--json", action="store_true", help="print JSON")
