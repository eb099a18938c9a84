"""Speed of decoding methods: tokens a second, overhead and peak memory, taken in turn so that other load hits all.

A time a token counts from the first token to the last; the prompt's own pass is in none. The end token is not obeyed.
"""

from __future__ import annotations

import gc
import math
import statistics
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import psutil
import torch

from coft_core.conformal.calibration import Calibration
from coft_core.conformal.values import CalibrationValues
from coft_core.decode.loop import PlannedChain, Rollout, decide_and_write
from coft_core.decode.plan import Plan
from coft_core.model.group import BranchGroup
from coft_core.model.language_model import LanguageModel
from coft_core.policies.ablations import NoCertificationPolicy
from coft_core.policies.base import Policy
from coft_core.policies.coft import CoftPolicy
from coft_core.policies.factorized import FactorizedCoftPolicy
from coft_core.types import Span

_cuda: Any = torch.cuda

SENTENCE = "The nurse finished the rounds of the evening and then he prepared the reports. "
WORD = "he"
FAMILIES = ("gender", "race", "age", "religion")
"""Families that the masked words are said to be of, so that factorized masks have a branch for each."""

LOG_TAU = math.log(1e-4)
"""Threshold of timed policies: what one costs does not hang on where it lies."""


@dataclass(frozen=True)
class Timing:
    """Seconds a token of one run: on the wall (on CUDA of the device), and of this process's processors."""

    wall: float
    processor: float


@dataclass
class Clock:
    """Marks the moments at which a method has one more token; the prompt's own pass ends with the first."""

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


Decoding = Callable[[Callable[[], None]], object]
"""Decodes and calls its argument after each token, all prompts having one more token by then."""


def rounds(
    device: torch.device, methods: Mapping[str, Decoding], repeats: int, ran: Callable[[], None] = lambda: None
) -> list[dict[str, Timing]]:
    """Run methods in turn, once unmeasured and then ``repeats`` times, each round in another order."""
    names = list(methods)

    def timed(name: str) -> Timing:
        clock = Clock(device)
        methods[name](clock.mark)
        timing = clock.timing()
        ran()
        return timing

    for name in names:
        timed(name)
    found = []
    for turn in range(repeats):
        order = names[turn % len(names) :] + names[: turn % len(names)]
        times = {name: timed(name) for name in order}
        found.append({name: times[name] for name in names})
    return found


def summary(values: Sequence[float]) -> dict[str, float]:
    """Number of repeats, median, range and standard deviation, 0 of a single one."""
    return {
        "n": len(values),
        "min": round(min(values), 4),
        "median": round(statistics.median(values), 4),
        "max": round(max(values), 4),
        "deviation": round(statistics.stdev(values), 4) if len(values) > 1 else 0.0,
    }


def overhead(found: Sequence[Mapping[str, Timing]], method: str, other: str) -> dict[str, float]:
    """One minus a method's speed over another's, the paper's overhead, round by round."""
    return summary([1 - turn[other].wall / turn[method].wall for turn in found])


SAMPLED_EVERY = 0.005
"""Seconds between two looks at the resident size."""


def peak_memory(device: torch.device, method: Decoding, settle: Callable[[], object] = gc.collect) -> int:
    """Bytes that a method takes at its peak beyond what is taken before, once what nobody needs is given back.

    On CUDA they are what is allocated there. On a processor they are the growth of the resident size of this process,
    looked at every few milliseconds and after each token; other work in the process counts too.
    """
    settle()
    if device.type != "cuda":
        return _peak_resident(method)
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    method(lambda: None)
    torch.cuda.synchronize(device)
    return torch.cuda.max_memory_allocated(device) - before


def _peak_resident(method: Decoding) -> int:
    process, ended = psutil.Process(), threading.Event()
    before = peak = process.memory_info().rss

    def look() -> None:
        nonlocal peak
        peak = max(peak, process.memory_info().rss)

    def watch() -> None:
        while not ended.wait(SAMPLED_EVERY):
            look()

    watching = threading.Thread(target=watch, daemon=True)
    watching.start()
    try:
        method(look)
    finally:
        ended.set()
        watching.join()
    return int(peak - before)


@dataclass(frozen=True, slots=True)
class Efficiency:
    """What a method costs, as the paper's efficiency table has it; summaries are over rounds."""

    tokens_per_second: Mapping[str, float]
    overhead: Mapping[str, float]
    peak: int


def efficiency(
    device: torch.device,
    batch: int,
    methods: Mapping[str, Decoding],
    repeats: int,
    ran: Callable[[], None] = lambda: None,
    settle: Callable[[], object] = gc.collect,
) -> dict[str, Efficiency]:
    """Measure methods, the first of which the others are compared with; arguments as of :func:`rounds`.

    ``settle`` gives back memory that nobody needs; it is called before memory is measured.
    """
    found = rounds(device, methods, repeats, ran)
    first = next(iter(methods))
    return {
        name: Efficiency(
            summary([batch / turn[name].wall for turn in found]),
            overhead(found, name, first),
            peak_memory(device, methods[name], settle),
        )
        for name in methods
    }


def decode(plans: Sequence[Plan], mark: Callable[[], None]) -> None:
    """Decode prompts on the engine: one as a reviewer steps through it, several as a batch of them is run."""
    if len(plans) == 1:
        rollout = Rollout(plans[0])
        try:
            for _ in range(plans[0].max_new_tokens):
                rollout.step()
                mark()
        finally:
            rollout.close()
        return
    # What coft_core.decode.loop.generate_together does, with a mark after each token.
    chains = [PlannedChain(plan) for plan in plans]
    group = BranchGroup(plans[0].all_models, [branch for chain in chains for branch in chain.branches])
    try:
        for _ in range(plans[0].max_new_tokens):
            decide_and_write(group, chains)
            mark()
    finally:
        group.close()


def timed_prompt(model: LanguageModel, tokens: int, words: int = 1) -> tuple[str, tuple[Span, ...]]:
    """A text of ``tokens`` tokens and masked words in it, the last ones; shorter by what would cut a word in two."""
    text = SENTENCE * (tokens // 8 + 1)
    encoded = model.tokenizer(text, return_offsets_mapping=True, add_special_tokens=False)
    ends = [end for _, end in encoded["offset_mapping"]]
    text = text[: ends[min(tokens, len(ends)) - 1]]
    if len(model.tokenizer(text, add_special_tokens=False)["input_ids"]) != tokens:
        text = text.rsplit(" ", 1)[0]
    starts = [place + 1 for place in range(len(text)) if text.startswith(f" {WORD} ", place)]
    if len(starts) >= words:
        return text, tuple(
            Span(start, start + len(WORD), family) for start, family in zip(starts[-words:], FAMILIES, strict=False)
        )
    # A text that is too short for the words has single letters masked in their place.
    return text, tuple(
        Span(len(text) - 2 * place - 2, len(text) - 2 * place - 1, FAMILIES[place]) for place in range(words)
    )


def endless(model: LanguageModel) -> LanguageModel:
    """The model, which never ends a text of its own accord."""
    return replace(model, end_token_ids=frozenset())


def with_thresholds(policy: Policy, model: LanguageModel, families: Sequence[str] = FAMILIES[:1]) -> Policy:
    """A policy of COFT with a threshold at every step, made up to be timed; another policy as it is."""
    if isinstance(policy, FactorizedCoftPolicy):
        parts = tuple((family, _made_up(model, policy).joint) for family in families)
        calibration = Calibration(0.1 * len(parts), parts)
        return replace(policy, calibration=calibration, accept_mismatch=True)
    if isinstance(policy, CoftPolicy) and not isinstance(policy, NoCertificationPolicy):
        return replace(policy, calibration=_made_up(model, policy), accept_mismatch=True)
    return policy


def _made_up(model: LanguageModel, policy: CoftPolicy | FactorizedCoftPolicy) -> Calibration:
    """Values that give :data:`LOG_TAU` wherever they are read."""
    own = replace(policy.fingerprint(model, "none"), estimator="hierarchical", source="reference")
    count = 99
    values = CalibrationValues(np.full(count, LOG_TAU), np.zeros(count, dtype=int), np.arange(count, dtype=np.int32))
    return Calibration.of(own, 0.1, values)
