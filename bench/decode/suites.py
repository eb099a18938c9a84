"""What is measured of one model: speeds against other ways, the share of bandwidth, and masked branches."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch

from bench.decode import baselines, methods
from bench.decode import work as works
from bench.decode.methods import Method
from bench.decode.shapes import cell_bytes, weight_bytes
from bench.decode.work import Work, work_of
from coft_core.experiments.speed import (
    FAMILIES,
    Decoding,
    Timing,
    decode,
    overhead,
    peak_memory,
    rounds,
    summary,
)
from coft_core.model.language_model import LanguageModel
from coft_core.policies.base import Policy

ROWS = {"coft": 2, "coft_greedy": 2, "coft_kept": 2, "vanilla": 1, "vanilla_greedy": 1}
"""Rows of the model that the engine's methods run for a prompt."""

COMPARED = (
    ("coft", "vanilla"),
    ("coft_kept", "vanilla"),
    ("coft", "plain_two_forwards"),
    ("coft", "plain_one_batch"),
    ("coft_greedy", "plain_one_batch_greedy"),
    ("vanilla", "generate_sampled"),
    ("vanilla_greedy", "generate_greedy"),
    ("coft", "generate_sampled"),
    ("vanilla", "generate_static"),
    ("coft", "generate_static"),
)


def known_methods(static: bool) -> dict[str, Method]:
    """The methods by name; ``generate`` over a static cache compiles the model on CUDA, which takes a while."""
    found: dict[str, Method] = {
        "coft": methods.coft,
        "coft_greedy": methods.coft_greedy,
        "coft_kept": methods.coft_kept,
        "vanilla": methods.vanilla,
        "vanilla_greedy": methods.vanilla_greedy,
        "generate_sampled": methods.generated(sample=True),
        "generate_greedy": methods.generated(sample=False),
        "plain_two_forwards": baselines.two_forwards,
        "plain_one_batch": baselines.one_batch,
        "plain_one_batch_greedy": partial(baselines.one_batch, greedy=True),
    }
    if static:
        found["generate_static"] = methods.generated(sample=True, static=True)
    return found


def speeds(work: Work, repeats: int, static: bool, bandwidth: float) -> dict[str, Any]:
    """Every method on one work, round after round."""
    device = work.model.device
    timed: dict[str, Decoding] = {name: partial(method, work) for name, method in known_methods(static).items()}
    found = rounds(device, timed, repeats)
    peaks = {name: peak_memory(device, timed[name]) for name in timed}
    return {
        "prompt_tokens": len(work.masked.factual_ids),
        "batch": work.batch,
        "tokens": work.tokens,
        "tokens_per_second": {name: summary([work.batch / turn[name].wall for turn in found]) for name in timed},
        "speed": {f"{a}_over_{b}": speed_over(found, a, b) for a, b in COMPARED if a in timed and b in timed},
        "coft_overhead_over_vanilla": overhead(found, "coft", "vanilla"),
        "bandwidth_share": {name: bandwidth_share(work, ROWS[name], found, name, bandwidth) for name in ROWS},
        "peak_bytes_over_vanilla": over_vanilla(peaks),
    }


def speed_over(found: Sequence[Mapping[str, Timing]], method: str, other: str) -> dict[str, dict[str, float]]:
    """How many times as fast a method is as another, round by round."""
    return {
        "wall_time": summary([turn[other].wall / turn[method].wall for turn in found]),
        "processor_time": summary([turn[other].processor / turn[method].processor for turn in found]),
    }


def bandwidth_share(
    work: Work, rows: int, found: Sequence[Mapping[str, Timing]], name: str, bandwidth: float
) -> dict[str, float]:
    """How much of the device's bandwidth a step uses: the bytes that it must read over those that a copy would move.

    A step reads all weights once, and keys and values of every row; half way through the timed tokens these are the
    prompt's and half of the tokens'.
    """
    length = len(work.masked.factual_ids) + work.tokens / 2
    needed = weight_bytes(work.model) + rows * work.batch * length * cell_bytes(work.model)
    return summary([needed / turn[name].wall / bandwidth for turn in found])


def copy_bandwidth(device: torch.device, size: int) -> float:
    """Bytes a second that copying ``size`` bytes reads and writes; the best of ten."""
    source = torch.ones(size, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    best = float("inf")
    for _ in range(10):
        _wait(device)
        start = time.perf_counter()
        target.copy_(source)
        _wait(device)
        best = min(best, time.perf_counter() - start)
    return 2 * size / best


def masked_branches(model: LanguageModel, prompt: int, tokens: int, repeats: int) -> dict[str, Any]:
    """What each further masked branch costs: factorized masks of one to four families against vanilla."""
    work = work_of(model, prompt, batch=1, tokens=tokens, words=len(FAMILIES))
    timed: dict[str, Decoding] = {"vanilla": partial(methods.vanilla, work)}
    for count in range(1, len(FAMILIES) + 1):
        timed[str(count)] = partial(_run, work, policy=works.factorized(model, count))
    found = rounds(model.device, timed, repeats)
    peaks = {name: peak_memory(model.device, method) for name, method in timed.items()}
    return {
        "prompt_tokens": len(work.masked.factual_ids),
        "overhead_over_vanilla": {name: overhead(found, name, "vanilla") for name in timed if name != "vanilla"},
        "time_over_vanilla": {
            name: summary([turn[name].wall / turn["vanilla"].wall for turn in found])
            for name in timed
            if name != "vanilla"
        },
        "peak_bytes_over_vanilla": over_vanilla(peaks),
    }


def over_vanilla(peaks: Mapping[str, int | None]) -> dict[str, int | None]:
    """Peaks minus vanilla's; None where there are none."""
    base = peaks["vanilla"]
    return {
        name: None if base is None or peak is None else peak - base for name, peak in peaks.items() if name != "vanilla"
    }


def _run(work: Work, mark: Callable[[], None], policy: Policy) -> None:
    decode(work.plans(policy), mark)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
