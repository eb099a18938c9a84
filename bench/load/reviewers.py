"""Simulated reviewers: each works on a session of her own through the pages' own requests, with time to think between.

A round of one reviewer opens the audit page, begins an audit, steps it, runs it to its end, forks it, reads it again at
another lambda, gives verdicts, looks at the list of sessions and at the review page, and writes the report as CSV.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import psutil

from app.shared.settings_rail import FIELDS
from bench.load.figures import PROMPTS, percentiles, slope
from bench.load.pages import QUERY, asked_session
from bench.load.visitor import Opened, RequestError, Times, Visitor

WRITTEN = 16
"""Tokens of a chain; the page's controls ask for it."""
SINGLE_STEPS = 4
LEAST_THOUGHT, MOST_THOUGHT = 0.5, 3.0
"""Seconds of thought between two requests."""
FORKED_AT = 2
"""Step at which the chain is left for another token."""
SECONDS_BETWEEN_READINGS = 2.0
LEAST_READINGS = 8
"""Of the memory, for a slope."""
WARM_UP_SHARE = 0.25
"""Of the time, before memory is judged."""
MEGABYTE = 2**20


class TimeOverError(Exception):
    """The time for work is over."""


@dataclass
class Reviewer:
    """One simulated reviewer."""

    name: str
    visitor: Visitor
    draw: random.Random
    ends: float
    think: Callable[[float], None] = time.sleep
    rounds: int = field(default=0, init=False)

    def work(self) -> None:
        """Go round until the time is over; a request that fails is noted, and she begins again."""
        while time.monotonic() < self.ends:
            try:
                self.go_round()
                self.rounds += 1
            except RequestError:
                self.think(LEAST_THOUGHT)
            except TimeOverError:
                return

    def go_round(self) -> None:
        """Audit a prompt, judge what came of it, and look at the lists."""
        page = self.visitor.open("")
        self.visitor.load("audit", page)
        self._ask("open a blank audit", page, "transcript-wire", "open", **asked_session(None))
        self._set_length(page)
        prompt = f"{self.draw.choice(PROMPTS)} {self.draw.randrange(1000)}"
        begun = self._audit(page, prompt)
        ids = {"session": begun["session"], "branch": begun["branch"]}
        self._judge(page, ids)
        self._look_around(ids["session"])
        self._export(page, ids["session"])

    def _audit(self, page: Opened, prompt: str) -> dict[str, Any]:
        """Begin an audit, step and run it, fork it and read it again; what the server said when it began."""
        self._ask("detect spans", page, "editor", "detect", prompt=prompt)
        told = self._told("start", page, "transcript-wire", "start", prompt=prompt, spans=None, proceed=True)
        ids = {"session": told["session"], "branch": told["branch"]}
        for _ in range(SINGLE_STEPS):
            self._ask("step", page, "transcript-wire", "step", **ids)
        self._ask("run to the end", page, "transcript-wire", "run", **ids, until=None)
        card = self._told("read the steps", page, "transcript-wire", "more", **ids, since=0)["steps"][FORKED_AT]
        other = next(row["id"] for row in card["rows"] if row["id"] != card["id"])
        fork = self._told("fork", page, "transcript-wire", "fork", **ids, index=FORKED_AT, token=other)
        forked = {"session": ids["session"], "branch": fork["branch"]}
        self._ask("run a fork", page, "transcript-wire", "run", **forked, until=None)
        lam = round(self.draw.uniform(0.2, 0.9), 2)
        self._ask("read at another lambda", page, "rereading", "reread", **ids, lam=lam, alpha=None)
        return told

    def _judge(self, page: Opened, ids: dict[str, int]) -> None:
        """Give a verdict on a token and one on the session."""
        self._ask("read verdicts", page, "verdicts", "read", session=ids["session"], reviewer=self.name)
        said = {"verdict": self.draw.choice(("fair", "unfair", "unclear")), "note": "as asked", "tag": ""}
        token = {"first": 1, "last": 1}
        self._ask("give a verdict", page, "verdicts", "give", **ids, reviewer=self.name, **said, **token)

    def _look_around(self, session: int) -> None:
        """Look at the list of sessions and at the review page."""
        library = self.visitor.open("sessions")
        self._ask("list sessions", library, "library", "find", query=QUERY)
        word = self.draw.choice(("nurse", "teacher", "bank"))
        self._ask("search sessions", library, "library", "find", query={**QUERY, "text": word})
        review = self.visitor.open("review", f"?session={session}")
        self._ask("list reviews", review, "review-pick", "find", text="", whole=True, reviewer=self.name)
        self._ask("read a review", review, "review-sheet", "read", session=session, reviewer=self.name, reveal=True)

    def _export(self, page: Opened, session: int) -> None:
        statement = dict.fromkeys(("auditor", "question", "language"), "")
        self._ask("write a CSV report", page, "downloads", "export", id=session, kind="csv", **statement)

    def _set_length(self, page: Opened) -> None:
        """Ask for a chain of so many tokens, as whoever moves the control does."""
        controls = page.functions[page.events["transcript-wire", "start"]]["inputs"]
        page.values[controls[FIELDS.index("max_new_tokens")]] = WRITTEN

    def _ask(self, kind: str, page: Opened, component: str, name: str, /, **data: Any) -> list[Any]:
        """Think, and then trigger an event."""
        self._think()
        return self.visitor.trigger(kind, page, component, name, **data)

    def _told(self, kind: str, page: Opened, component: str, name: str, /, **data: Any) -> dict[str, Any]:
        """The message that an event is answered with, which comes as text."""
        message: dict[str, Any] = json.loads(self._ask(kind, page, component, name, **data)[0])
        return message

    def _think(self) -> None:
        if time.monotonic() > self.ends:
            raise TimeOverError
        self.think(self.draw.uniform(LEAST_THOUGHT, MOST_THOUGHT))


def review(
    url: str,
    process: psutil.Process,
    reviewers: int,
    minutes: float,
    think: Callable[[float], None] = time.sleep,
) -> dict[str, Any]:
    """Let reviewers work at once for so many minutes."""
    times, begun = Times(), time.monotonic()
    ends = begun + 60 * minutes
    people = [
        Reviewer(f"reviewer {number + 1}", Visitor(url, times, number), random.Random(number), ends, think)
        for number in range(reviewers)
    ]
    threads = [threading.Thread(target=one.work, daemon=True) for one in people]
    for thread in threads:
        thread.start()
    memory = []
    while any(thread.is_alive() for thread in threads):
        memory.append(((time.monotonic() - begun) / 60, process.memory_info().rss / MEGABYTE))
        for thread in threads:
            thread.join(SECONDS_BETWEEN_READINGS / len(threads))
    for one in people:
        one.visitor.close()
    warm = [(at, size) for at, size in memory if at >= WARM_UP_SHARE * minutes]
    return {
        "reviewers": reviewers,
        "minutes": minutes,
        "rounds": sum(one.rounds for one in people),
        "requests": sum(map(len, times.seconds.values())),
        "errors": times.errors,
        "kinds": {kind: percentiles(values) for kind, values in sorted(times.seconds.items())},
        "server": {kind: percentiles(values) for kind, values in sorted(times.server.items())},
        "resident_mb": [round(size, 1) for _, size in memory],
        "mb_per_minute": slope(*zip(*warm, strict=True)) if len(warm) > LEAST_READINGS else None,
    }
