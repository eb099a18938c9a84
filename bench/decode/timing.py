"""Times of decoding methods, taken in turn, and their ratios."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from bench.decode.work import Work

_cuda: Any = torch.cuda


@dataclass(frozen=True)
class Timing:
    """Seconds a token of one run: on the wall (on CUDA of the device), and of this process's processors."""

    wall: float
    processor: float


@dataclass
class Clock:
    """Marks the moments at which a method has one more token; the prompt's own pass ends with the first.

    Attributes:
        device: Where the method runs. On CUDA moments are events of the device, which nothing waits for.
    """

    device: torch.device
    _moments: list[tuple[Any, float]] = field(default_factory=list)

    def mark(self) -> None:
        """There is one more token."""
        now: Any = time.perf_counter()
        if self.device.type == "cuda":
            now = _cuda.Event(enable_timing=True)
            now.record()
        self._moments.append((now, time.process_time()))

    def timing(self) -> Timing:
        """Time a token from the first to the last."""
        (first, processor), (last, processor_last) = self._moments[0], self._moments[-1]
        if self.device.type == "cuda":
            _cuda.synchronize(self.device)
            seconds = first.elapsed_time(last) / 1000
        else:
            seconds = last - first
        count = len(self._moments) - 1
        return Timing(seconds / count, (processor_last - processor) / count)


Method = Callable[[Work, Callable[[], None]], None]
"""Decodes the work's tokens and calls the second argument after each, all prompts having one more token by then."""


def rounds(work: Work, methods: Mapping[str, Method], repeats: int) -> list[dict[str, Timing]]:
    """Run the methods in turn, once unmeasured and then ``repeats`` times, each round in another order."""
    names = list(methods)
    for name in names:
        run(work, methods[name])
    found = []
    for turn in range(repeats):
        order = names[turn % len(names) :] + names[: turn % len(names)]
        times = {name: run(work, methods[name]) for name in order}
        found.append({name: times[name] for name in names})
    return found


def run(work: Work, method: Method) -> Timing:
    """Time one run."""
    clock = Clock(work.model.device)
    method(work, clock.mark)
    return clock.timing()


def summary(values: Sequence[float]) -> dict[str, float]:
    """Number of repeats, median and range."""
    return {
        "n": len(values),
        "min": round(min(values), 4),
        "median": round(statistics.median(values), 4),
        "max": round(max(values), 4),
    }


def speed_over(found: Sequence[Mapping[str, Timing]], method: str, other: str) -> dict[str, dict[str, float]]:
    """How many times as fast a method is as another, round by round."""
    return {
        "wall_time": summary([turn[other].wall / turn[method].wall for turn in found]),
        "processor_time": summary([turn[other].processor / turn[method].processor for turn in found]),
    }
