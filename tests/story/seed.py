"""A store with audits, a calibration and what else pages show, made once by calling the services."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from random import Random
from threading import Semaphore
from typing import Any

import pytest

from app.audit.service import AuditService, RunUntil
from app.batch.service import BatchService
from app.bootstrap import services as open_services
from app.calibrate.service import CalibrationService
from app.hosting.rollouts import RolloutPool
from app.jobs.service import ACTIVE, JobService
from app.review.log import VerdictRequest
from app.review.service import VerdictService
from app.settings import Settings
from app.shared.audits import AuditSettings, CalibrationRequest, StartAudit
from app.shared.project_cache import ProjectCache
from app.shared.wiring import Services
from coft_core.types import Span, Step
from db.sessions import SessionsRepository
from tests.conftest import flat_sets_say_something
from tests.story.model import ASIDES, PROMPT, STORY, load_story

LENGTHS = {32: 8, 24: 190, 16: 297, 8: 55}
"""Contexts of the calibration by the length of their reference in tokens."""
CALIBRATION = "Ward notes, reference"


def reference(number: int, length: int) -> str:
    """A variant of the story from its third word on, in which about every fifth word is another one."""
    drawn, begin = Random(1000 + number), 2
    return "".join(
        drawn.choice(tuple(ASIDES)[:4]) if place == number // 60 % 8 or drawn.random() < 1 / 5 else word
        for place, word in enumerate(STORY[begin : begin + length])
    )


def prompt(number: int, faith: str = "") -> str:
    """A prompt that leads to the story's third word; sixty of them differ."""
    who, what = ("cook", "tourist", "chart")[number % 3], ("notes", "shift", "night", "clear")[number % 4]
    done = ("prepared", "filed", "found", "asked", "settled")[number % 5]
    return f"The {faith}{who} and he {done} the {what} and then the reports and she"


def row(number: int, length: int, faith: str = "") -> dict[str, Any]:
    """A row of a prompt set with so many tokens to predict; its ``he`` is marked, and whom it follows if they have a
    faith.
    """
    text = prompt(number, faith)
    at = text.index(" he ") + 1
    spans = [[4, 3 + len(faith), "religion"]] if faith else []
    told = reference(number, length)
    return {"prompt": text, "reference": told, "spans": [*spans, [at, at + 2, "gender"]], "context": str(number)}


def prompt_set(folder: Path, lengths: dict[int, int] | None = None) -> Path:
    """A prompt set of variants of the story: so many rows by the length of their references."""
    rows: list[dict[str, Any]] = []
    for length, count in (lengths or LENGTHS).items():
        rows += [row(number, length) for number in range(len(rows), len(rows) + count)]
    return written(folder / "ward.jsonl", rows)


def written(path: Path, rows: list[dict[str, Any]]) -> Path:
    """A prompt set as a file."""
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), "utf-8")
    return path


def calibrate(services: Services, path: Path, name: str, **changes: Any) -> int:
    """Calibrate on a prompt set as the page does; gives the calibration's number."""
    service = services[CalibrationService]
    request = CalibrationRequest(name=name, bin_spacing="even", **changes)
    job = services[JobService].wait(service.submit(service.parse(path), request))
    assert job.status == "done", job.error
    return int(job.result["calibration_id"])


KINDS: dict[str, dict[str, Any]] = {
    "factorized": {"mask_layout": "factorized"},
    "grouped": {"by_group": True},
    "rollout": {"source": "rollout", "max_new_tokens": 8},
    "weighted": {
        "weighting": "estimated",
        "deployment": tuple(prompt(number, "Muslim " if number % 3 else "") for number in range(60)),
    },
}
"""What small calibrations of other kinds are asked for beside their names."""


def calibrate_anew(services: Services, folder: Path, name: str, kind: str, **changes: Any) -> int:
    """A small calibration of a kind of :data:`KINDS`; gives its number.

    Every second row has a faith, and the groups are ``ward``, ``school`` and, too small for thresholds, ``street``.
    """
    groups = ("school", "ward", "ward", "ward") * 3 + ("school", "street", "ward", "ward")
    rows = [row(number, 12, "Muslim " if number % 2 else "") | {"group": groups[number % 16]} for number in range(80)]
    return calibrate(services, written(folder / f"{kind}.jsonl", rows), name, **(KINDS[kind] | changes))


def with_every_kind(services: Services, folder: Path) -> Services:
    """The services with a calibration of each kind beside the first one, numbered as :data:`KINDS` lists them."""
    for kind in KINDS:
        calibrate_anew(services, folder, f"Run {kind}", kind)
    return services


def tell(services: Services, folder: Path) -> None:
    """An audit with a tree of four branches, and one without a calibration and without a step."""
    audits = services[AuditService]
    number = calibrate(services, prompt_set(folder), CALIBRATION)
    spans = (Span(4, 9, "family", "lexicon", "family roles", kept=True), Span(35, 37, "gender", "lexicon", "pronouns"))
    settings = AuditSettings(calibration_id=number, greedy=True)
    main = audits.start(StartAudit(PROMPT, settings, spans, "Nurse handover"))
    audits.step(main.session_id)
    first = audits.fork(main.session_id, main.branch_id, 0, " and")
    audits.step(main.session_id)
    second = audits.fork(main.session_id, first.branch_id, 1, " he")
    list(audits.run(main.session_id, second.branch_id, RunUntil("steps", steps=36)))
    audits.fork(main.session_id, first.branch_id, 1, " the")
    audits.fork(main.session_id, first.branch_id, 1, " he")
    audits.start(StartAudit("The German tourist asked where", AuditSettings(), None, "Tourist, no calibration"))


def say(services: Services, reviewer: str, verdict: str | None, *steps: int, note: str = "", branch: int = 3) -> None:
    """A verdict on steps of the first session's shown branch (0-based), or without steps on the session."""
    first, last = (steps[0], steps[-1]) if steps else (None, None)
    services[VerdictService].add(VerdictRequest(1, reviewer, verdict, branch if steps else None, first, last, note))


def newest(services: Services) -> int:
    """The session that was started last."""
    return services[SessionsRepository].list(limit=1)[0].id


def slowed(monkeypatch: pytest.MonkeyPatch, services: Services, seconds: float) -> None:
    """Let every token take so long."""
    audits = services[AuditService]
    step = audits.step

    def later(*asked: Any, **named: Any) -> Step | None:
        time.sleep(seconds)
        return step(*asked, **named)

    monkeypatch.setattr(audits, "step", later)


def rows_held(monkeypatch: pytest.MonkeyPatch, services: Services) -> Semaphore:
    """Let each row of a batch wait until what this gives is released for it."""
    service, rows = services[BatchService], Semaphore(0)
    run_row = service._run_row

    def let(run: Any, row: Any) -> None:
        while not rows.acquire(timeout=0.05):
            run.context.check_cancelled()
        run_row(run, row)

    monkeypatch.setattr(service, "_run_row", let)
    return rows


def _kept_by(objects: Iterable[object], depth: int = 2) -> Iterator[ProjectCache[Any, Any]]:
    """What services, and what they hold in turn, keep of the store."""
    for held in (value for one in objects for value in getattr(one, "__dict__", {}).values()):
        if isinstance(held, ProjectCache):
            yield held
        elif depth and type(held).__module__.startswith("app."):
            yield from _kept_by((held,), depth - 1)


class Seeded:
    """The program on a store that can be put back to how it was seeded."""

    def __init__(self, services: Services, path: Path) -> None:
        self.services = services
        self._path, self._copy = path, path.with_suffix(".seed")
        self._copied(self._path, self._copy)

    def restore(self) -> Services:
        """Forget everything that a test did; the pages keep their services."""
        jobs = self.services[JobService]
        for job in jobs.list():
            if job.status in ACTIVE:
                jobs.cancel(job.id)
                jobs.wait(job.id, 60)
        audits, pool = self.services[AuditService], self.services[RolloutPool]
        for session_id in tuple(audits._pauses):
            audits.pause(session_id)
        audits._live.drop(tuple(audits._live._going))
        while pool.close_oldest():
            pass
        # Numbers in the store begin again, and what was kept by them is of other things.
        for cache in _kept_by(tuple(self.services._built.values())):
            cache.clear()
        self._copied(self._copy, self._path)
        return self.services

    @staticmethod
    def _copied(source: Path, target: Path) -> None:
        with closing(sqlite3.connect(source)) as read, closing(sqlite3.connect(target, timeout=30)) as written:
            read.backup(written)


@contextmanager
def seeded(folder: Path) -> Iterator[Seeded]:
    """The whole program on the story's model, with a store of its own."""
    path = folder / "story.sqlite3"
    settings = Settings(database_url=f"sqlite:///{path}", faster_steps="off")
    with ExitStack() as closing_last:
        with pytest.MonkeyPatch.context() as patch:
            # The embedded model's own calibration is of another model than the one that takes its name here.
            patch.setattr("app.shared.calibrations.EMBEDDED_CALIBRATION", ("models", "none.zip"))
            services = closing_last.enter_context(open_services(settings, owns_store=True, loader=load_story))
        with flat_sets_say_something():
            tell(services, folder)
        with closing(sqlite3.connect(path)) as store, store:
            # New audits begin with the calibration that comes with the program.
            store.execute("UPDATE calibration_runs SET embedded = 1")
        yield Seeded(services, path)
