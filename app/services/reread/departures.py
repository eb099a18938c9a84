"""New audits that repeat a stored chain at other settings up to the step at which the two part."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import replace
from itertools import takewhile
from typing import cast

from app.services.audits import AuditService
from app.services.mapping import span_from
from app.services.views import AuditSettings, Span, StartAudit, Step
from app.services.views.rereading import Departure, Rereading
from coft_core.decode import path_at
from db.records import BranchRecord, SessionRecord
from db.repositories import SessionsRepository

LONGEST_NAME = 200


class Departures:
    """Begins audits from readings of other audits."""

    def __init__(self, sessions: SessionsRepository, audits: AuditService) -> None:
        """Wire to the store and the audits."""
        self._sessions = sessions
        self._audits = audits

    def depart(
        self, record: SessionRecord, branch: BranchRecord, settings: AuditSettings, reading: Rereading
    ) -> Iterator[Departure]:
        """Begin an audit with the settings of a reading and run it to the first step that differs.

        Args:
            record: The old audit.
            branch: The branch that was read.
            settings: Its settings with the lambda and alpha of the reading.
            reading: The reading.

        Yields:
            The way there token by token; the last one is done.

        Raises:
            CoftError: The model cannot be loaded, or the settings cannot be used with it.
        """
        target = _target(reading)
        view = self._audits.start(
            StartAudit(
                record.prompt, _with(settings, reading), _spans(record), _name(record, reading), repeats=record.id
            )
        )
        session, current = view.session_id, view.branch_id
        yield Departure(session, current, 0, target)
        for index, token_id in _forks(branch.path, target):
            yield from self._advance(session, current, index, target)
            if self._length(current) < index:
                break
            current = self._audits.fork(session, current, index, token_id).branch_id
        else:
            yield from self._advance(session, current, target, target)
        yield self._arrived(branch, session, current, reading)

    def _advance(self, session: int, branch: int, wanted: int, target: int) -> Iterator[Departure]:
        written = self._length(branch)
        if written >= wanted:
            return
        running = cast("Generator[Step]", self._audits.run(session, branch))
        with closing(running) as steps:
            for step in steps:
                yield Departure(session, branch, step.index + 1, target)
                if step.index + 1 >= wanted:
                    return

    def _arrived(self, branch: BranchRecord, session: int, current: int, reading: Rereading) -> Departure:
        old = [step.token_id for step in self._sessions.chain(branch.id)]
        new = [step.token_id for step in self._sessions.chain(current)]
        target = _target(reading)
        repeats = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(old, new, strict=False)))
        departs = repeats if repeats < min(len(old), len(new)) else None
        stopped = len(new) < target and self._sessions.branch(current).finished is None
        told = _sentence(repeats, departs, reading, stopped)
        return Departure(session, current, len(new), target, True, repeats, departs, told)

    def _length(self, branch: int) -> int:
        return len(self._sessions.chain(branch))


def _with(settings: AuditSettings, reading: Rereading) -> AuditSettings:
    """The settings with the calibration of the reading; where it does not fit, going on is allowed knowingly."""
    told = reading.thresholds
    if told.kind == "none":
        return settings
    accept = told.kind == "mismatch"
    return replace(settings, calibration_id=told.calibration_id, proceed_uncertified=accept)


def _spans(record: SessionRecord) -> tuple[Span, ...]:
    return tuple(span_from(span) for span in record.spans)


def _name(record: SessionRecord, reading: Rereading) -> str:
    changed = [f"λ {reading.lam:g}"] + ([] if reading.alpha is None else [f"α {reading.alpha:g}"])
    ending = f" ({', '.join(changed)})"
    return f"{record.name[: LONGEST_NAME - len(ending)]}{ending}"


def _forks(path: str, target: int) -> list[tuple[int, int]]:
    """Forced tokens that lead to a chain's steps before ``target``, in the order in which they were forced."""
    forks = [part.split(":") for part in path_at(path, target).split("/")[1:]]
    return [(int(index), int(token_id)) for index, token_id in forks]


def _target(reading: Rereading) -> int:
    return reading.steps if reading.first is None else reading.first.index + 1


def _sentence(repeats: int, departs: int | None, reading: Rereading, stopped: bool) -> str:
    same = "no token" if repeats == 0 else "the first token" if repeats == 1 else f"the first {repeats} tokens"
    begun = f"This audit repeats {same} of audit {reading.session_id}"
    if departs is None:
        return f"{begun}; it was stopped there, and Run takes it on." if stopped else f"{begun}; none of them differs."
    told = f"{begun} and departs at step {departs + 1}."
    if departs + 1 >= _target(reading):
        return told
    if any(row.index == departs for row in reading.undecided):
        return f"{told} The reading could not tell that, because parts of the vocabulary were not kept."
    return f"{told} The reading did not say so: the model no longer computes what it did."
