"""Options that several commands share, how they are read as settings, and waiting for jobs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, make_dataclass
from typing import Annotated, Any, get_origin, get_type_hints

from app.jobs.service import JobService, JobView
from app.settings import Settings
from app.shared.calibrations import CalibrationStore
from app.shared.commands import Stopped, progress_bar
from app.shared.decoding import DECODING, DecodingSettings, Setting
from app.shared.errors import ServiceError
from app.shared.format import duration
from app.shared.operations import Json
from app.shared.planning import LAYOUTS, families_from_text, named_list
from app.shared.policies import KNOWN_POLICIES
from app.shared.wiring import Services
from coft_core.types import FAMILIES
from db.user_lists import UserListsRepository

EMBEDDED = "embedded"
POLICY_KEYS = tuple(item.key for item in KNOWN_POLICIES)
POLL_SECONDS = 0.5


def options_of(name: str, settings: Mapping[str, Setting], record: type, needed: bool = True) -> Any:
    """A record whose fields are the options of those settings that have one; those not ``needed`` can be None."""
    defaults = {item.name: item.default for item in fields(record)}
    kinds = get_type_hints(record)
    options = []
    for key, said in settings.items():
        if said.help:
            kind = said.typed or kinds[key]
            usual: Any = {"default_factory": list} if get_origin(kind) is list else {"default": defaults[key]}
            if not needed:
                kind, usual = kind | None, {"default": None}
            annotation = kind if said.option is None else Annotated[kind, said.option]
            options.append((key, annotation, field(metadata={"setting": said}, **usual)))
    return make_dataclass(name, options, frozen=True, kw_only=True)


_Shared = options_of("_Shared", DECODING, DecodingSettings)


@dataclass(frozen=True, kw_only=True)
class PolicyOptions(_Shared):
    """Everything that describes a decoding policy.

    Attributes:
        model: 'demo', a hub id, or a folder
        no_chat_template: --prompt-format plain
    """

    model: str = field(default_factory=lambda: Settings().model)
    no_chat_template: bool = False

    def settings(self, wired: Services) -> Json:
        """What they say, by the names of settings that audits, calibrations and tunings share."""
        layout, families = self._layout_and_families()
        listed = None if self.user_list_id is None else named_list(wired[UserListsRepository], self.user_list_id)
        return {name: getattr(self, name) for name, said in DECODING.items() if said.help} | {
            "prompt_format": "plain" if self.no_chat_template else self.prompt_format,
            "whitelist": tuple(self.whitelist),
            "mask_layout": layout,
            "masked_families": families,
            "user_list_id": None if listed is None else listed.id,
        }

    def _layout_and_families(self) -> tuple[str, tuple[str, ...] | None]:
        """Mask layout and masked families; None takes the program's own families."""
        named = None if self.masked_families is None else families_from_text(self.masked_families)
        if self.mask_layout in LAYOUTS:
            return self.mask_layout, named
        if self.mask_layout not in FAMILIES:
            raise ServiceError(
                f"There is no mask {self.mask_layout!r}; choose 'joint', 'factorized' or one family: "
                f"{', '.join(FAMILIES)}."
            )
        if named is not None:
            raise ServiceError("--mask names one family and --mask-families others; give one of them.")
        return "joint", (self.mask_layout,)


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
                left = "" if job.seconds_left is None else f", {duration(job.seconds_left)} left"
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


def print_table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Rows below their head in columns as wide as they must be; a column whose name begins with ``>`` is of numbers."""
    lines = [[name.removeprefix(">") for name in head], *([str(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    sides = [">" if name.startswith(">") else "<" for name in head]
    for line in lines:
        cells = (f"{cell:{side}{width}}" for cell, side, width in zip(line, sides, widths, strict=True))
        print("  ".join(cells).rstrip())
