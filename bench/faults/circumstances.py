"""Faults that a process lives through: each is told in one sentence, costs nothing, and work goes on when it ends."""

from __future__ import annotations

import os
import random
import resource
import signal
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import torch

import db.database
from app.audit.service import AuditService
from app.shared.errors import USER_ERRORS
from app.shared.wiring import Services
from bench.faults.forking import STORE, Say, opened, run
from bench.faults.works import TASKS, copied, half_written
from coft_core.decode.loop import Rollout
from coft_core.types import Step
from db.database import Database
from db.sessions import SessionsRepository
from db.types import StoreError

NOBODY = 65534
RUNS = TASKS[0]


def _steps(wired: Services, say: Say, most: int = 100) -> None:
    """Step the session, and say each step that is shown; a refusal is said as its sentence."""
    audits = wired[AuditService]
    try:
        for number, step in enumerate(audits.run(1)):
            say_step(say, step)
            if number + 1 == most:
                return
    except USER_ERRORS as error:
        say(f"SAID {error}")


def say_step(say: Say, step: Step) -> None:
    """Say a step that is shown."""
    say(f"{step.index} {step.token_id}")


def full_disk(folder: Path, say: Say, draw: random.Random) -> None:
    """No file may grow beyond a size: the store and its log are refused the next page."""
    with opened(folder) as wired:
        _steps(wired, say, 3)
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        sizes = [path.stat().st_size for path in folder.glob(f"{STORE}*")]
        usual = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (max(sizes) + draw.randrange(1, 60_000), usual[1]))
        _steps(wired, say)
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)
        say("AFTER")
        _steps(wired, say)


def locked(folder: Path, say: Say, draw: random.Random) -> None:
    """Another program holds the store's write lock for longer than is waited."""
    db.database.BUSY_TIMEOUT_MS = 50
    with opened(folder) as wired:
        _steps(wired, say, draw.randrange(1, 12))
        with closing(sqlite3.connect(folder / STORE, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            _steps(wired, say)
            other.execute("ROLLBACK")
        say("AFTER")
        _steps(wired, say)


def read_only(folder: Path, say: Say, draw: random.Random) -> None:
    """The file and its folder may be read and not written, when the program starts and while it runs."""
    with opened(folder) as wired:
        _steps(wired, say, draw.randrange(1, 12))
    folder.chmod(0o555)
    for path in folder.iterdir():
        path.chmod(0o444)
    # Rights do not hold the owner of the system back.
    if os.geteuid() == 0:
        folder.parent.chmod(0o755)
        os.seteuid(NOBODY)
    try:
        with opened(folder) as wired:
            _steps(wired, say)
    except USER_ERRORS as error:
        say(f"SAID {error}")
    os.seteuid(os.getuid())
    folder.chmod(0o755)
    for path in folder.iterdir():
        path.chmod(0o644)
    say("AFTER")
    with opened(folder) as wired:
        _steps(wired, say)


def out_of_memory(folder: Path, say: Say, draw: random.Random) -> None:
    """The device has no memory for a forward, twice in a row, so that the second attempt fails too."""
    failing, usual = [False], Rollout.step

    def short(rollout: Rollout) -> Step:
        if failing[0]:
            raise torch.OutOfMemoryError("CUDA out of memory (injected)")
        return usual(rollout)

    Rollout.step = short  # type: ignore[method-assign]
    with opened(folder) as wired:
        _steps(wired, say, draw.randrange(1, 12))
        failing[0] = True
        _steps(wired, say)
        failing[0] = False
        say("AFTER")
        _steps(wired, say)


CIRCUMSTANCES: dict[str, Callable[[Path, Say, random.Random], None]] = {
    "full disk": full_disk,
    "locked store": locked,
    "read-only store": read_only,
    "memory that runs out": out_of_memory,
}


def try_often(name: str, times: int, place: Path, seed: int) -> tuple[int, list[str]]:
    """Let a fault come at random moments; gives how often it was told, and what was lost."""
    draw = random.Random(seed)
    template, ground = place / "template", place / "ground"
    template.mkdir(parents=True)
    run(RUNS.prepare, template)
    run(lambda folder, say: _whole(folder, say), copied(template, ground))
    wanted = stored(ground)
    told, lost = 0, list[str]()
    for number in range(1, times + 1):
        ended = run(lambda folder, say: CIRCUMSTANCES[name](folder, say, draw), copied(template, ground))
        draw.random()
        said = [line for line in ended.said if line.startswith("SAID ")]
        told += bool(said)
        shown = [line for line in ended.said if line[:1].isdecimal()]
        kept = stored(ground)
        if ended.failed:
            lost.append(f"{number}: no sentence, but {ended.said[-1]}")
        if kept != wanted:
            lost.append(f"{number}: it did not go on to the end")
        if any(line not in kept for line in shown):
            lost.append(f"{number}: a shown step is gone")
        lost += [f"{number}: {what}" for what in half_written(ground)]
    return told, lost


def _whole(folder: Path, say: Say) -> None:
    with opened(folder) as wired:
        _steps(wired, say)


def stored(folder: Path, branch: int = 1) -> list[str]:
    """The steps of a branch, as they are said when they are shown."""
    found: list[str] = []

    def read(place: Path, say: Say) -> None:
        with Database(f"sqlite:///{place / STORE}") as store:
            for step in SessionsRepository(store).chain(branch):
                say_step(say, step)

    found += run(read, folder).said
    return found


def tear_often(times: int, place: Path, seed: int) -> tuple[int, int, list[str]]:
    """Overwrite pages of the store's file; gives how often that was refused, or harmless, and what was lost else.

    A refused file is left as it is. A file that opens says the same as before: the damage was in what nothing reads.
    """
    draw = random.Random(seed)
    template, ground = place / "template", place / "ground"
    template.mkdir(parents=True)
    run(RUNS.prepare, template)
    run(lambda folder, say: _whole(folder, say), template)
    wanted = stored(template)
    refused, harmless, lost = 0, 0, list[str]()
    for number in range(1, times + 1):
        file = copied(template, ground) / STORE
        data = bytearray(file.read_bytes())
        begin = 4096 * draw.randrange(len(data) // 4096)
        data[begin : begin + 4096] = draw.randbytes(4096)
        file.write_bytes(data if draw.random() < 0.7 else data[:begin])

        def start(folder: Path, say: Say) -> None:
            try:
                Database(f"sqlite:///{folder / STORE}", checked=True).open().close()
            except StoreError as error:
                say(f"SAID {error}")

        before = file.read_bytes()
        ended = run(start, ground)
        if ended.failed:
            lost.append(f"{number}: no sentence, but {ended.said[-1]}")
        elif ended.said:
            refused += 1
            if file.read_bytes() != before:
                lost.append(f"{number}: a refused file was changed")
        elif stored(ground) == wanted:
            harmless += 1
        else:
            lost.append(f"{number}: a damaged file was opened, and says something else")
    return refused, harmless, lost
