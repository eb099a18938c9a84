"""Options that several commands share, how they are read as settings, and waiting for jobs."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import typer

from app.settings import Settings
from app.shared.calibrations import CalibrationStore
from app.shared.commands import Stopped, progress_bar
from app.shared.errors import ServiceError
from app.shared.jobs import JobService, JobView
from app.shared.operations import Json
from app.shared.planning import families_from_text, named_list
from app.shared.policies import KNOWN_POLICIES
from app.shared.settings_json import USUAL
from app.shared.wiring import Services
from coft_core.types import FAMILIES
from db.user_lists import UserListsRepository

EMBEDDED = "embedded"
LAYOUTS = ("joint", "factorized")
POLICY_KEYS = tuple(item.key for item in KNOWN_POLICIES)
POLL_SECONDS = 0.5


@dataclass(frozen=True, kw_only=True)
class PolicyOptions:
    """Everything that describes a decoding policy.

    Attributes:
        model: 'demo', a hub id, or a folder
        lam: fusion weight, 0 to 1
        alpha: risk level
        temperature: sampling temperature
        top_p: nucleus mass; 1 is off
        top_k: 0 is off
        seed: seed of the draws
        prompt_format: 'chat' puts prompts into the model's chat template, 'plain' gives the text alone, 'auto' takes
            the template where the model has one
        no_chat_template: --prompt-format plain
        chat_date: day as of which a chat template that prints the date is rendered, such as 2026-11-21 (default: today)
        system: system prompt that is put before every prompt without one of its own
        thinking: whether the model is asked to think before it answers: 'auto' as its chat template has it, 'on', 'off'
        prefill: what the answer begins with
        mask: 'joint' (one masked branch), 'factorized' (one for each attribute family), or one family that alone is
            masked
        mask_mode: sentinels, or a neutral hint
        mask_hint: hint of the soft mask (default: 'a person')
        sentinel: one token that stands for masked ones, by text or name; default: chosen and told
        whitelist: a term that is never masked; may be given several times
        mask_families: attribute families whose spans are masked, others being suggested: names separated by commas,
            'protected' (all but proxies, whose spans are masked only in texts that say no attribute outright) or 'all'
            (default: COFT_MASK_FAMILIES or 'protected')
        word_list: word list whose terms win over what is detected
    """

    model: str = field(default_factory=lambda: Settings().model)
    lam: float = USUAL.lam
    alpha: float = USUAL.alpha
    temperature: float = USUAL.temperature
    top_p: float = USUAL.top_p
    top_k: int = USUAL.top_k
    seed: int = USUAL.seed
    prompt_format: Literal["auto", "chat", "plain"] = "auto"
    no_chat_template: bool = False
    chat_date: Annotated[str | None, typer.Option("--chat-date", metavar="DAY")] = None
    system: Annotated[str | None, typer.Option("--system", metavar="TEXT")] = None
    thinking: Literal["auto", "on", "off"] = "auto"
    prefill: Annotated[str | None, typer.Option("--prefill", metavar="TEXT")] = None
    mask: Annotated[str, typer.Option("--mask", metavar="LAYOUT")] = "joint"
    mask_mode: Literal["hard", "soft"] = "hard"
    mask_hint: Annotated[str | None, typer.Option("--mask-hint", metavar="TEXT")] = None
    sentinel: str | None = None
    whitelist: Annotated[list[str], typer.Option("--whitelist", metavar="TERM")] = field(default_factory=list)
    mask_families: Annotated[str | None, typer.Option("--mask-families", metavar="NAMES")] = None
    word_list: Annotated[str | None, typer.Option("--list", metavar="NAME")] = None

    def settings(self, wired: Services) -> Json:
        """What they say, by the names of settings that audits, calibrations and tunings share."""
        layout, families = self._layout_and_families()
        listed = None if self.word_list is None else named_list(wired[UserListsRepository], self.word_list)
        return {
            **{
                name: getattr(self, name) for name in ("model", "lam", "alpha", "temperature", "top_p", "top_k", "seed")
            },
            "prompt_format": "plain" if self.no_chat_template else self.prompt_format,
            "chat_date": self.chat_date,
            "system_prompt": self.system,
            "thinking": self.thinking,
            "prefill": self.prefill,
            "mask_layout": layout,
            "mask_mode": self.mask_mode,
            "mask_hint": self.mask_hint,
            "sentinel": self.sentinel,
            "whitelist": tuple(self.whitelist),
            "masked_families": families,
            "user_list_id": None if listed is None else listed.id,
        }

    def _layout_and_families(self) -> tuple[str, tuple[str, ...] | None]:
        """Mask layout and masked families; None takes the program's own families."""
        named = None if self.mask_families is None else families_from_text(self.mask_families)
        if self.mask in LAYOUTS:
            return self.mask, named
        if self.mask not in FAMILIES:
            raise ServiceError(
                f"There is no mask {self.mask!r}; choose 'joint', 'factorized' or one family: {', '.join(FAMILIES)}."
            )
        if named is not None:
            raise ServiceError("--mask names one family and --mask-families others; give one of them.")
        return "joint", (self.mask,)


def calibration_id(wired: Services, text: str, model: str | None = None) -> int:
    """A calibration by its number, or the embedded one."""
    if text.isdigit():
        return int(text)
    if text != EMBEDDED:
        raise ServiceError(
            f"{text!r} is no calibration; give its number from 'calibrations list', '{EMBEDDED}' or 'none'."
        )
    embedded = [item for item in wired[CalibrationStore].list(model) if item.embedded]
    if not embedded:
        raise ServiceError("No calibration is embedded for this model; give the number of one.")
    return embedded[0].id


def spans_of(text: str | None) -> list[dict[str, Any]] | None:
    """Spans from JSON as an endpoint takes them; None stays None."""
    if text is None:
        return None
    try:
        return [
            {"start": int(item[0]), "end": int(item[1]), "category": str(item[2]) if len(item) > 2 else "other"}
            for item in json.loads(text)
        ]
    except (TypeError, ValueError, IndexError, KeyError) as error:
        raise ServiceError(
            "--spans is not a JSON list of [start, end, category], e.g. '[[35, 37, \"gender\"]]'."
        ) from error


def pairs(option: str, text: str | None) -> dict[str, str] | None:
    """Names and values of ``name=value,name=value``; None stays None."""
    if text is None:
        return None
    named: dict[str, str] = {}
    for part in text.split(","):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not (name and equals):
            raise ServiceError(f"{option} has {part.strip()!r}; write name=value, separated by commas.")
        if name in named:
            raise ServiceError(f"{option} names {name} twice; name it once.")
        named[name] = value
    return named


def wait_for(wired: Services, job_id: int, quiet: bool) -> JobView:
    """Wait until a job has ended; on a terminal, draw how far it is."""
    with progress_bar(quiet) as moved:
        while moved is not None:
            try:
                return wired[JobService].wait(job_id, POLL_SECONDS)
            except TimeoutError:
                job = wired[JobService].get(job_id)
                left = "" if job.seconds_left is None else f", about {_duration(job.seconds_left)} left"
                moved(job.progress, f"{job.message}{left}")
        return wired[JobService].wait(job_id)


def wait_for_all(
    wired: Services, jobs: Sequence[int], cancel: Callable[[], None], resume: str, what: str, quiet: bool
) -> None:
    """Wait for jobs that keep what is done when they are interrupted."""
    try:
        ended = [wait_for(wired, job, quiet) for job in jobs]
    except KeyboardInterrupt as error:
        cancel()
        for job in jobs:
            wired[JobService].wait(job)
        raise Stopped(f"stopped; what is done is kept. Go on with: python -m app {resume}") from error
    for job_view in ended:
        if job_view.status != "done":
            raise ServiceError(job_view.error or f"{what} was {job_view.status}; go on with: {resume}.")


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
