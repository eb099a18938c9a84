"""Kills at random moments: what was shown and is gone, what is half there, and what cannot go on."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bench.faults.forking import Ended, run
from bench.faults.works import Task, copied, half_written

THEN = "THEN"
LOST = "LOST "


@dataclass(frozen=True, slots=True)
class Killed:
    """What kills of one kind of work came to."""

    name: str
    kills: int
    shown: int
    lost: tuple[str, ...]


def kill_often(task: Task, kills: int, place: Path, seed: int, tell: Callable[[str], None]) -> Killed:
    """Kill work at random moments, go on with it, and compare what there is in the end with an undisturbed run."""
    draw = random.Random(seed)
    template, ground = place / "template", place / "ground"
    template.mkdir(parents=True)
    _whole(run(task.prepare, template))
    lived = _whole(run(task.work, copied(template, ground)))
    wanted = _whole(run(task.finish, ground)).said[-1]
    usual = half_written(ground)
    tell(f"{task.name}: {lived.seconds:.2f} s undisturbed")
    done, shown, lost = 0, 0, list[str]()
    while done < kills:
        ended = run(task.work, copied(template, ground), draw.uniform(0.0, lived.seconds))
        if not ended.killed:
            continue
        done += 1
        shown += len(ended.said)
        lost += [f"kill {done}: {what}" for what in _lost(task, ground, ended, wanted) if what not in usual]
    return Killed(task.name, done, shown, tuple(lost))


def _lost(task: Task, ground: Path, ended: Ended, wanted: str) -> list[str]:
    after = run(task.finish, ground)
    if after.failed:
        return [f"it cannot go on: {after.said[-1] if after.said else 'nothing was said'}"]
    found = [line.removeprefix(LOST) for line in after.said if line.startswith(LOST)]
    if THEN in after.said:
        stored = after.said[: after.said.index(THEN)]
        found += [f"a shown step is gone: {line[:60]}" for line in ended.said if line not in stored]
    if after.said[-1] != wanted:
        found.append("what there is in the end is not what an undisturbed run gives")
    return found + half_written(ground)


def _whole(ended: Ended) -> Ended:
    if ended.killed or ended.failed:
        raise RuntimeError(f"It failed although nobody disturbed it: {ended.said[-1:]}")
    return ended
