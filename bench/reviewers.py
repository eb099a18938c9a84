"""Many reviewers on one model: how fast each of them steps beside the others, and how long the first token takes.

Every reviewer has an audit of its own, on a prompt of its own, through the services that pages call: masks, COFT with
the embedded calibration, everything that an audit keeps, and the store. Reviewers begin together. Rounds with one
reviewer and with several alternate, so that other load hits both; a figure is the ratio within a round. End tokens are
taken for any other token, so that all chains have the same length. The first token is timed from the request to start
until it is stored, with the model loaded, as a page has it. The last line is JSON.

Processor time of a session's step is split into the model's forwards, as far as the calling thread computes them, and
everything else. With more than one thread what the others compute counts as everything else, and so do forwards that a
prepared path runs (``--faster-steps``).

``--forward-ms`` makes every forward of one token take at least so long, as if a device computed it while the processor
waits: its time is then made up, and what is judged is what the host does besides.

    python -m bench.reviewers [--reviewers 8] [--tokens 48] [--repeats 5] [--device cpu] [--threads 1] [--forward-ms 20]
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from app.audit.service import AuditService
from app.bootstrap import services
from app.calibrate.service import CalibrationService
from app.settings import Settings
from app.shared.audits import AuditSettings, StartAudit
from app.shared.wiring import Services
from coft_core.model.language_model import LanguageModel
from coft_core.model.load import load_model

PROMPTS = (
    "The nurse finished rounds and then he prepared the reports",
    "The old man went to the shop, and",
    "Her neighbour, a German cook, said that",
    "The teacher asked the girl about the long trip, so she",
    "A Muslim client came to the bank and asked",
    "The young boy told his mother that",
    "The doctor said that she would",
    "An elderly woman walked to the station, where",
)

MADE_UP = "the time of a forward is made up"


@dataclass
class ForwardClock:
    """Counts a module's forwards and their processor time, and makes those of one token last at least so long."""

    least: float = 0.0
    count: int = 0
    processor: float = 0.0
    _began: threading.local = field(default_factory=threading.local, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def attach(self, module: Any) -> None:
        """Watch a module from now on."""
        module.register_forward_pre_hook(self._begin, with_kwargs=True)
        module.register_forward_hook(self._end)

    def _begin(self, _module: Any, _args: Any, arguments: dict[str, Any]) -> None:
        self._began.single = arguments["input_ids"].shape[1] == 1
        self._began.at = time.perf_counter(), time.thread_time()

    def _end(self, _module: Any, _args: Any, _output: Any) -> None:
        wall, processor = self._began.at
        with self._lock:
            self.count += 1
            self.processor += time.thread_time() - processor
        left = self.least - (time.perf_counter() - wall)
        if self._began.single and left > 0:
            time.sleep(left)


@dataclass(frozen=True)
class Stepped:
    """What stepping together took."""

    seconds: float
    forward_ms: float
    rest_ms: float
    sessions_per_forward: float


def endless(clock: ForwardClock) -> Callable[..., LanguageModel]:
    """A loader of models that never end a text and whose forwards are watched."""

    def load(*arguments: Any, **options: Any) -> LanguageModel:
        model = load_model(*arguments, **options)
        clock.attach(model.module)
        return replace(model, end_token_ids=frozenset())

    return load


def start(wired: Services, number: int, settings: AuditSettings) -> int:
    """Begin a reviewer's audit and return its session."""
    prompt = PROMPTS[number % len(PROMPTS)]
    return wired[AuditService].start(StartAudit(prompt, settings, name=f"reviewer {number}")).session_id


def steps_together(wired: Services, clock: ForwardClock, sessions: list[int], tokens: int) -> Stepped:
    """Step all sessions at once; the first token of each, which reads its prompt, is not counted."""
    seconds = [0.0] * len(sessions)
    before: list[float] = []
    gate = threading.Barrier(
        len(sessions), action=lambda: before.extend((time.process_time(), clock.processor, clock.count))
    )

    def review(place: int, session: int) -> None:
        branch = wired[AuditService].view(session).branch_id
        wired[AuditService].step(session, branch)
        gate.wait()
        began = time.perf_counter()
        for _ in range(tokens):
            wired[AuditService].step(session, branch)
        seconds[place] = (time.perf_counter() - began) / tokens

    threads = [threading.Thread(target=review, args=item) for item in enumerate(sessions)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    steps = tokens * len(sessions)
    whole, forward, count = time.process_time() - before[0], clock.processor - before[1], clock.count - before[2]
    return Stepped(
        seconds=statistics.mean(seconds),
        forward_ms=1000 * forward / steps,
        rest_ms=1000 * (whole - forward) / steps,
        # Forwards that a prepared path runs are not the module's own and cannot be counted here.
        sessions_per_forward=steps / count if count else 0.0,
    )


def first_token(wired: Services, number: int, settings: AuditSettings) -> float:
    """Seconds from the request to start until the first token is stored."""
    began = time.perf_counter()
    wired[AuditService].step(start(wired, number, settings))
    return time.perf_counter() - began


def spread(values: list[float]) -> dict[str, float]:
    """Median and range."""
    return {
        "median": round(statistics.median(values), 4),
        "min": round(min(values), 4),
        "max": round(max(values), 4),
        "n": len(values),
    }


def measure(
    wired: Services, clock: ForwardClock, options: argparse.Namespace, settings: AuditSettings
) -> dict[str, object]:
    """All rounds."""
    alone: list[Stepped] = []
    beside: list[Stepped] = []
    firsts = []
    for round_number in range(options.repeats + 1):
        one = steps_together(wired, clock, [start(wired, 0, settings)], options.tokens)
        sessions = [start(wired, number, settings) for number in range(options.reviewers)]
        each = steps_together(wired, clock, sessions, options.tokens)
        first = first_token(wired, round_number, settings)
        # The first round loads and warms everything up.
        if round_number:
            alone.append(one)
            beside.append(each)
            firsts.append(first)
    return {
        "speed_of_each_over_alone": spread(
            [one.seconds / each.seconds for one, each in zip(alone, beside, strict=True)]
        ),
        "alone": figures(alone),
        "beside": figures(beside),
        "first_token_seconds": spread(firsts),
    }


def figures(rounds: list[Stepped]) -> dict[str, object]:
    """What the rounds of one kind took."""
    return {
        "seconds_per_token": spread([own.seconds for own in rounds]),
        "processor_ms_per_step_forward": spread([own.forward_ms for own in rounds]),
        "processor_ms_per_step_rest": spread([own.rest_ms for own in rounds]),
        "sessions_per_forward": spread([own.sessions_per_forward for own in rounds]),
    }


def report(found: dict[str, Any], reviewers: int, forward_ms: float) -> None:
    """The figures in words."""
    if forward_ms:
        print(f"{MADE_UP.capitalize()}: each takes at least {forward_ms:g} ms, as on a device of its own.")
    for name, label in (("alone", "one reviewer"), ("beside", f"each of {reviewers} at once")):
        for key, value in found[name].items():
            print(f"{label}, {key.replace('_', ' ')}: {words(value)}")
    print(f"speed of each of {reviewers} over one alone: {words(found['speed_of_each_over_alone'])}")
    print(f"seconds to the first token: {words(found['first_token_seconds'])}")


def words(value: dict[str, float]) -> str:
    """A median with its range."""
    return f"{value['median']:g} [{value['min']:g}, {value['max']:g}], n = {value['n']}"


def main(values: list[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="demo")
    parser.add_argument("--reviewers", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--faster-steps", choices=("off", "on"), default="off", help="as COFT_FASTER_STEPS")
    parser.add_argument("--forward-ms", type=float, default=0.0, help="least time of a forward, as if a device ran it")
    options = parser.parse_args(values)
    torch.set_num_threads(options.threads)
    clock = ForwardClock(options.forward_ms / 1000)
    with tempfile.TemporaryDirectory(prefix="coft-reviewers-") as folder:
        store = Settings(
            database_url=f"sqlite:///{Path(folder) / 'store.sqlite3'}",
            device=options.device,
            faster_steps=options.faster_steps,
        )
        with services(store, loader=endless(clock)) as wired:
            embedded = [item.id for item in wired[CalibrationService].list(options.model) if item.embedded]
            settings = AuditSettings(
                model=options.model, calibration_id=embedded[0] if embedded else None, max_new_tokens=options.tokens + 1
            )
            found = measure(wired, clock, options, settings)
    report(found, options.reviewers, options.forward_ms)
    given = {
        name: getattr(options, name) for name in ("model", "device", "reviewers", "tokens", "threads", "faster_steps")
    }
    forward = {"forward_ms": options.forward_ms, "note": MADE_UP} if options.forward_ms else {}
    print(json.dumps({"benchmark": "reviewers", **given, **forward, **found}))


if __name__ == "__main__":
    main()
