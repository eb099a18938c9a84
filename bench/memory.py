"""Decoding memory on the embedded model: preallocated against growing, a prefix held once or apart, joint forwards.

Times are CPU seconds of one thread, so that other work on the machine counts little; every ratio is taken pair by pair
over several repeats, in alternating order. The last line is JSON.

    python -m bench.memory [--repeats 9] [--tokens 16]
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

import torch
from torch import Tensor

import coft_core as cc
from coft_core.model.branches import BranchBatch, joint_logits
from coft_core.model.memory import GrowingRows, Sharing
from coft_core.model.memory_fit import fit_of
from coft_core.model.slots import RowTokens

APART, ONCE = Sharing(1 << 40, None), Sharing(1, 1)
SHAPES = ((16, 1), (16, 2), (64, 2), (200, 2), (400, 1), (400, 2), (200, 4), (400, 4), (200, 8), (400, 8))
"""Prompt tokens and rows; rows differ in one token, nine tenths into the prompt."""

SESSIONS = (2, 4, 8)
"""Sessions of two rows each that step together."""


class Rows(Protocol):
    """What can be stepped."""

    def logits(self) -> Tensor:
        """Run what is pending."""

    def append(self, token_ids: Tensor) -> None:
        """Make one token a row the pending one."""


class Growing:
    """Rows over the cache that grows, whatever fits the model."""

    def __init__(self, model: cc.LanguageModel, rows: Sequence[Sequence[int]]) -> None:
        self._tokens = RowTokens(rows, model.context_length, model.device)
        self._memory = GrowingRows(model, self._tokens, fit_of(model).accepts)

    def logits(self) -> Tensor:
        """Run what is pending."""
        return self._memory.logits()

    def append(self, token_ids: Tensor) -> None:
        """Make one token a row the pending one."""
        self._tokens.append(token_ids)


def prompts(length: int, rows: int) -> list[list[int]]:
    """Prompts of one length that differ in one token."""
    ids = torch.randint(5, 6000, (length,), generator=torch.Generator().manual_seed(length)).tolist()
    place = length * 9 // 10
    return [[*ids[:place], 10 + row, *ids[place + 1 :]] for row in range(rows)]


def batch_of(model: cc.LanguageModel, sharing: Sharing, rows: Sequence[Sequence[int]]) -> BranchBatch:
    """Rows over the memory that fits the model."""
    return BranchBatch(model, rows, sharing=sharing)


def step_seconds(make: Callable[[list[list[int]]], Rows], rows: list[list[int]], tokens: int) -> float:
    """CPU seconds a step, the prompt's own forward not counted."""
    batch, token = make(rows), torch.full((len(rows),), 7)
    batch.logits()
    batch.append(token)
    batch.logits()
    start = time.thread_time()
    for _ in range(tokens):
        batch.append(token)
        batch.logits()
    return (time.thread_time() - start) / tokens


def session_seconds(model: cc.LanguageModel, sessions: int, tokens: int, together: bool) -> float:
    """CPU seconds for one step of every session, of lengths between 30 and 100."""
    batches = [BranchBatch(model, prompts(30 + 10 * n, 2), sharing=APART) for n in range(sessions)]
    token = torch.full((2,), 7)
    for batch in batches:
        batch.logits()
        batch.append(token)
    start = time.thread_time()
    for _ in range(tokens):
        if together:
            joint_logits(batches)
        else:
            for batch in batches:
                batch.logits()
        for batch in batches:
            batch.append(token)
    return (time.thread_time() - start) / tokens


def compared(works: dict[str, Callable[[], float]], repeats: int) -> dict[str, list[float]]:
    """Seconds of each, one figure a repeat, after one that is not counted."""
    for work in works.values():
        work()
    found: dict[str, list[float]] = {name: [] for name in works}
    for repeat in range(repeats):
        for name in sorted(works, reverse=bool(repeat % 2)):
            found[name].append(works[name]())
    return found


def ratio(above: list[float], below: list[float]) -> dict[str, float]:
    """Median and range of paired ratios."""
    pairs = [a / b for a, b in zip(above, below, strict=True)]
    return {
        "median": round(statistics.median(pairs), 3),
        "min": round(min(pairs), 3),
        "max": round(max(pairs), 3),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--tokens", type=int, default=16)
    options = parser.parse_args()
    torch.set_num_threads(1)
    model = cc.load_model("demo", device="cpu", dtype="float32")
    decode, joint = [], []
    for length, rows in SHAPES:
        given = prompts(length, rows)
        makes: dict[str, Callable[[list[list[int]]], Rows]] = {
            "growing": partial(Growing, model),
            "slots": partial(batch_of, model, APART),
        }
        makes["held_once"] = partial(batch_of, model, ONCE)
        found = compared(
            {name: partial(step_seconds, make, given, options.tokens) for name, make in makes.items()}, options.repeats
        )
        decode.append(
            {
                "prompt": length,
                "rows": rows,
                "growing_ms": round(1000 * statistics.median(found["growing"]), 2),
                "slots_over_growing": ratio(found["slots"], found["growing"]),
                "held_once_over_slots": ratio(found["held_once"], found["slots"]),
            }
        )
        print(decode[-1], flush=True)
    for sessions in SESSIONS:
        found = compared(
            {
                name: partial(session_seconds, model, sessions, options.tokens, together)
                for name, together in (("joint", True), ("alone", False))
            },
            options.repeats,
        )
        joint.append({"sessions": sessions, "joint_over_alone": ratio(found["joint"], found["alone"])})
        print(joint[-1], flush=True)
    result = {"benchmark": "memory", "model": "demo", "device": "cpu", "threads": 1, "tokens": options.tokens}
    print(json.dumps({**result, "repeats": options.repeats, "decode": decode, "joint": joint}))


if __name__ == "__main__":
    main()
