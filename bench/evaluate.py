"""Measures how much faster a suite is read in batches than item by item, at the same threads.

    python -m bench.evaluate [--model demo] [--data DIR] [--suite arc_easy] [--items 64] [--threads 2] [--repeats 3]

The plain loop reads one text after another: both branches of COFT in one forward, as an audit scores a given text. Both
ways are run in turn, ``--repeats`` times; the ratio of their times and its range over the repeats are of this one run.
Without a data folder the questions are made up, three answers each. The last line is a JSON object.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

import coft_core as cc
from coft_core.decode.plan import plan
from coft_core.model.group import score_branches
from coft_core.suites.base import Choices
from coft_core.suites.files import DataFolder
from coft_core.suites.reading import Reader
from coft_core.suites.registry import suite
from coft_core.text.masking import continuation_ids


def made_up(count: int) -> list[Choices]:
    """Questions of different lengths with three answers each."""
    return [
        Choices(
            f"{'Somebody asked before. ' * (number % 5)}Question: what did he do with the {number} boxes?\nAnswer:",
            (" He carried them home.", " She gave them away.", " Nothing"),
        )
        for number in range(count)
    ]


def item_by_item(model: cc.LanguageModel, asks: Sequence[Choices], policy: cc.CoftPolicy) -> list[list[float]]:
    """Log-likelihoods of all texts, one after the other."""
    detector = cc.SpanDetector(pipeline=None)
    likelihoods = []
    for ask in asks:
        row = []
        for text in ask.texts:
            planned = plan(model, ask.prompt, policy, ask.spans, detector=detector)
            tokens = continuation_ids(model, planned.prompt, text)
            logits = score_branches(planned.all_models, planned.policy.branches(planned.prompt), tokens)  # (C, 2, V)
            log_p = policy.views_at(logits, 0.0).log_p_fused  # (C, V)
            row.append(float(log_p.gather(-1, torch.tensor(tokens)[:, None]).sum()))
        likelihoods.append(row)
    return likelihoods


def in_batches(model: cc.LanguageModel, asks: Sequence[Choices], policy: cc.CoftPolicy) -> list[list[float]]:
    """The same as a suite is read."""
    (answers,) = Reader(model, detector=cc.SpanDetector(pipeline=None)).read(asks, [policy], [0] * len(asks))
    return [[likelihood.log_p for likelihood in answer.likelihoods] for answer in answers]  # type: ignore[union-attr]


def seconds(work: Callable[[], list[list[float]]]) -> tuple[float, list[list[float]]]:
    """How long something takes, and what it gives."""
    begun = time.perf_counter()
    result = work()
    return time.perf_counter() - begun, result


def main(values: list[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="demo")
    parser.add_argument("--data", type=Path, help="folder with benchmark files")
    parser.add_argument("--suite", default="arc_easy", help="a suite whose items have texts to choose from")
    parser.add_argument("--items", type=int, default=64)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args(values)
    torch.set_num_threads(options.threads)
    model = cc.load_model(options.model)
    asks = made_up(options.items)
    if options.data is not None:
        items = suite(options.suite).items(DataFolder(options.data))[: options.items]
        asks = [ask for item in items for ask in item.asks if isinstance(ask, Choices)]
    policy = cc.CoftPolicy()
    in_batches(model, asks[:2], policy)  # packs the model's layers
    ratios, worst = [], 0.0
    for repeat in range(options.repeats):
        plain, expected = seconds(lambda: item_by_item(model, asks, policy))
        batched, found = seconds(lambda: in_batches(model, asks, policy))
        worst = max(
            [
                worst,
                *(abs(a - b) for one, two in zip(expected, found, strict=True) for a, b in zip(one, two, strict=True)),
            ]
        )
        ratios.append(plain / batched)
        print(
            f"{repeat + 1}: item by item {plain:.2f} s, in batches {batched:.2f} s, ratio {ratios[-1]:.2f}", flush=True
        )
    print(
        json.dumps(
            {
                "asks": len(asks),
                "texts": sum(len(ask.texts) for ask in asks),
                "threads": options.threads,
                "ratio": round(statistics.median(ratios), 2),
                "lowest": round(min(ratios), 2),
                "highest": round(max(ratios), 2),
                "largest_difference_nats": round(worst, 6),
            }
        )
    )


if __name__ == "__main__":
    main()
