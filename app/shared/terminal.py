"""Options that several commands share, and how they are read."""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from app.bootstrap import Services
from app.lists.service import UserListView
from app.settings import Settings
from app.shared.audits import AuditSettings, AuditView, ParameterValue
from app.shared.errors import ServiceError
from app.shared.jobs import JobView
from app.shared.json import chain_text, span_state
from app.shared.planning import families_from_text
from app.shared.policies import FACTORIZED, KNOWN_POLICIES, fitted, parameter_values, policy_info, policy_name
from app.shared.step_words import set_size
from coft_core.conformal.informative import silence
from coft_core.text.rendering import FORMATS
from coft_core.types import FAMILIES, Span, Step
from db.audits import SessionSummary
from db.user_lists import UserListRecord

EMBEDDED = "embedded"
LAYOUTS = ("joint", "factorized")
POLICY_KEYS = tuple(item.key for item in KNOWN_POLICIES)


def add_policy_options(command: Any) -> None:
    """Everything that describes a decoding policy."""
    defaults = AuditSettings()
    command.add_argument("--model", default=Settings().model, help="'demo', a hub id, or a folder")
    command.add_argument("--lam", type=float, default=defaults.lam, help="fusion weight, 0 to 1 (default: 0.6)")
    command.add_argument("--alpha", type=float, default=defaults.alpha, help="risk level (default: 0.1)")
    command.add_argument("--temperature", type=float, default=defaults.temperature)
    command.add_argument("--top-p", type=float, default=defaults.top_p)
    command.add_argument("--top-k", type=int, default=defaults.top_k, help="0 is off")
    command.add_argument("--seed", type=int, default=defaults.seed)
    _add_prompt_options(command)
    _add_mask_options(command)
    add_json(command)


def add_parameters(command: Any) -> None:
    """A policy's own parameters."""
    command.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="[POLICY.]NAME=VALUE",
        help="a parameter of the policy, as 'policies' lists them; may be given several times",
    )
    command.add_argument("--tuned", action="store_true", help="take the strength that the newest fitting tuning found")


def add_json(command: Any) -> None:
    """The choice of JSON in place of text."""
    command.add_argument("--json", action="store_true", help="print JSON")


def layout_and_families(options: argparse.Namespace) -> tuple[str, tuple[str, ...] | None]:
    """Mask layout and masked families; None takes the program's own families.

    Raises:
        ServiceError: There is no such mask, or families are named twice.
        InvalidInputError: There is no such family.
    """
    named = None if options.mask_families is None else families_from_text(options.mask_families)
    if options.mask in LAYOUTS:
        return str(options.mask), named
    if options.mask not in FAMILIES:
        raise ServiceError(
            f"There is no mask {options.mask!r}; choose 'joint', 'factorized' or one family: {', '.join(FAMILIES)}."
        )
    if named is not None:
        raise ServiceError("--mask names one family and --mask-families others; give one of them.")
    return "joint", (str(options.mask),)


def list_id(wired: Services, options: argparse.Namespace) -> int | None:
    """The word list that was named."""
    return None if options.list is None else wired.user_lists.named(options.list).summary.id


def calibration_id(wired: Services, text: str, model: str | None = None) -> int:
    """A calibration by its number, or the embedded one.

    Args:
        wired: The services.
        text: A number, or ``"embedded"``.
        model: The embedded calibration of this model; None takes any.

    Raises:
        ServiceError: It is neither, or no calibration is embedded.
    """
    if text.isdigit():
        return int(text)
    if text != EMBEDDED:
        raise ServiceError(
            f"{text!r} is no calibration; give its number from 'calibrations list', '{EMBEDDED}' or 'none'."
        )
    embedded = [item for item in wired.calibrations.list(model) if item.embedded]
    if not embedded:
        raise ServiceError("No calibration is embedded for this model; give the number of one.")
    return embedded[0].id


def masked(settings: AuditSettings, wired: Services, options: argparse.Namespace) -> AuditSettings:
    """The settings with the masking that the options ask for."""
    layout, families = layout_and_families(options)
    return replace(
        settings,
        sentinel=options.sentinel,
        mask_layout=layout,
        mask_mode=options.mask_mode,
        mask_hint=options.mask_hint,
        whitelist=tuple(options.whitelist),
        masked_families=families,
        user_list_id=list_id(wired, options),
        prompt_format=options.prompt_format,
        chat_date=options.chat_date,
    )


def show(options: argparse.Namespace, data: Any, as_text: Callable[[], None]) -> None:
    """Print JSON if it was asked for, else text."""
    if options.json:
        print(json.dumps(data, ensure_ascii=False, allow_nan=False))
    else:
        as_text()


def _add_prompt_options(command: Any) -> None:
    command.add_argument(
        "--prompt-format",
        choices=FORMATS,
        default=AuditSettings().prompt_format,
        help="'chat' puts prompts into the model's chat template, 'plain' gives the text alone, 'auto' (the default) "
        "takes the template where the model has one",
    )
    command.add_argument(
        "--no-chat-template", action="store_const", const="plain", dest="prompt_format", help="--prompt-format plain"
    )
    command.add_argument(
        "--chat-date",
        metavar="DAY",
        help="day as of which a chat template that prints the date is rendered, such as 2026-11-21 (default: today)",
    )


def _add_mask_options(command: Any) -> None:
    command.add_argument(
        "--mask",
        default="joint",
        metavar="LAYOUT",
        help="'joint' (one masked branch, the default), 'factorized' (one for each attribute family), or one family "
        "that alone is masked",
    )
    command.add_argument("--mask-mode", choices=("hard", "soft"), default="hard", help="sentinels, or a neutral hint")
    command.add_argument("--mask-hint", metavar="TEXT", help="hint of the soft mask (default: 'a person')")
    command.add_argument(
        "--sentinel",
        help="one token that stands for masked ones, by text or name; default: chosen and told",
    )
    command.add_argument(
        "--whitelist",
        action="append",
        default=[],
        metavar="TERM",
        help="a term that is never masked; may be given several times",
    )
    command.add_argument(
        "--mask-families",
        metavar="NAMES",
        help="attribute families whose spans are masked, others being suggested: names separated by commas, "
        "'protected' (all but proxies, whose spans are masked only in texts that say no attribute outright) or 'all' "
        "(default: COFT_MASK_FAMILIES or 'protected')",
    )
    command.add_argument("--list", metavar="NAME", help="word list whose terms win over what is detected")


POLL_SECONDS = 0.5
STOPPED = 130
"""Exit code of a program that was interrupted."""


def wait_for(wired: Services, job_id: int, quiet: bool) -> JobView:
    """Wait until a job has ended; on a terminal, say how far it is."""
    if quiet or not sys.stderr.isatty():
        return wired.jobs.wait(job_id)
    while True:
        try:
            job = wired.jobs.wait(job_id, POLL_SECONDS)
        except TimeoutError:
            job = wired.jobs.get(job_id)
            left = "" if job.seconds_left is None else f", about {_duration(job.seconds_left)} left"
            print(f"\r\x1b[K{job.progress:4.0%}  {job.message}{left}", end="", file=sys.stderr, flush=True)
            continue
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)
        return job


def wait_for_all(
    wired: Services, jobs: Sequence[int], cancel: Callable[[], None], resume: str, what: str, quiet: bool
) -> bool:
    """Wait for jobs that keep what is done when they are interrupted.

    Args:
        wired: The services.
        jobs: The jobs.
        cancel: Stops them all.
        resume: Command that goes on with them, without ``python -m app``.
        what: What one of them is, to begin a sentence with.
        quiet: Say nothing of their progress.

    Returns:
        Whether they are done; False after an interruption, which has been told.

    Raises:
        ServiceError: One ended otherwise.
    """
    try:
        ended = [wait_for(wired, job, quiet) for job in jobs]
    except KeyboardInterrupt:
        cancel()
        for job in jobs:
            wired.jobs.wait(job)
        print(f"\ncoft-audit: stopped; what is done is kept. Go on with: python -m app {resume}", file=sys.stderr)
        return False
    for job_view in ended:
        if job_view.status != "done":
            raise ServiceError(job_view.error or f"{what} was {job_view.status}; go on with: {resume}.")
    return True


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


STATES = {
    "calibrated": "",
    "inherited": "inherited threshold",
    "uninformative": "uninformative",
    "mismatch": "uncertified: policy mismatch",
    "none": "no calibration",
}


def print_audit(view: AuditView, out: Path | None) -> None:
    """The chain as a table, with every reservation that the page would show."""
    print(f"Session {view.session_id}: {view.name}")
    print(f"Model {view.model}; policy {policy_name(view.settings.policy)}; {view.certificate}")
    for state, otherwise in (("masked", "nothing"), ("suggested", ""), ("kept", "")):
        named = ", ".join(_span(view.prompt, span) for span in view.spans if span_state(span) == state)
        if named or otherwise:
            print(f"{state.capitalize()}: {named or otherwise}")
    if view.preview.masked_count and view.preview.sentinel:
        print(f"Sentinel: {view.preview.sentinel}")
    if view.user_list:
        print(f"Word list: {view.user_list}")
    for warning in view.warnings:
        print(f"Note: {warning}")
    print(f"\n{'step':>4}  {'token':<16} {'factual':>8} {'masked':>8} {'fused':>8} {'tau':>8} {'set':>5}  certified")
    for step in view.steps:
        print(_row(step))
    print(f"\n{view.prompt}{chain_text(view)}")
    if out:
        print(f"\nReport: {out}")


def print_sessions(sessions: tuple[SessionSummary, ...]) -> None:
    """One line a session."""
    if not sessions:
        print('No sessions yet. Start one with: python -m app audit --prompt "..."')
    for s in sessions:
        print(f"{s.id:>5}  {s.updated_at:%Y-%m-%d %H:%M}  {s.steps:>4} steps  {s.model:<12} {s.name}")


def print_user_lists(found: tuple[UserListRecord, ...]) -> None:
    """One line a word list."""
    if not found:
        print("No word lists yet. Store one with: python -m app lists add terms.csv")
    for item in found:
        print(f"{item.term_count:>6} terms  {item.digest[:12]}  {item.created_at:%Y-%m-%d}  {item.name}")


def print_user_list(view: UserListView) -> None:
    """A word list term by term."""
    print(f"Word list “{view.summary.name}”: {view.masked} masked, {view.kept} kept; {view.summary.digest}")
    for term in view.terms:
        print(f"{'keep' if term.keep else 'mask'}  {term.family:<14} {term.term}")


def _span(prompt: str, span: Span) -> str:
    sure = "" if span.score is None else f" {span.score:.2f}"
    return f"“{prompt[span.start : span.end]}” ({span.category}, {span.source}{sure})"


def _row(step: Step) -> str:
    mark = "yes" if step.certified else "fallback" if step.fallback else "no"
    reservation = STATES[step.state]
    if step.state == "uninformative":
        reservation = f"{reservation}: {silence(step.log_tau)}"
    token = step.token.replace("\n", "\\n").replace(" ", "·", 1) if step.token.startswith(" ") else step.token
    return (
        f"{step.index + 1:>4}  {token:<16} {math.exp(step.log_p_factual):>8.4f} {math.exp(step.log_p_masked):>8.4f} "
        f"{math.exp(step.log_p_fused):>8.4f} {math.exp(step.log_tau):>8.4f} {set_size(step):>5}  {mark}"
        + (f" ({reservation})" if reservation else "")
        + (" forced" if step.forced else "")
    )


def settings_from_options(wired: Services, options: argparse.Namespace, policy: str | None = None) -> AuditSettings:
    """The settings that the options ask for, with their masking, for one of the policies; the first if None."""
    chosen = policy or named_policies(options)[0]
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


def named_policies(options: argparse.Namespace) -> list[str]:
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
    several = len(named_policies(options)) > 1
    for name, parameter, value in _given(options):
        if not name and several:
            raise ServiceError(f"Several policies are named; write --set POLICY.{parameter}={value}.")
        if name in ("", policy):
            given.setdefault(parameter, []).append(value)
    info = policy_info("coft" if policy == FACTORIZED else policy)
    return parameter_values(info, {name: "\n".join(values) for name, values in given.items()})
