"""Decoding speed on the embedded model: COFT and vanilla on the two-branch engine, and COFT by plain recomputation.

Every figure is a ratio of times measured in one run, taken pair by pair over several repeats. The last line is JSON.

    python -m bench.decode [--repeats 5] [--tokens 64] [--threads 2]
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable

import torch

import coft_core as cc

PROMPT = "The nurse finished rounds and then he prepared the reports"
SPANS = (cc.Span(35, 37, "gender"),)


def engine(model: cc.LanguageModel, policy: cc.CoftPolicy | cc.VanillaPolicy, tokens: int) -> int:
    """Decode with the engine, candidates and diagnostics of every step included; return the number of steps."""
    rollout = cc.Rollout(cc.plan(model, PROMPT, policy, SPANS, max_new_tokens=tokens))
    for _ in range(tokens):
        # A token is forced so that every method decodes the same number of tokens.
        rollout.step(rollout.plan.prompt.factual_ids[0])
    return tokens


def plain(model: cc.LanguageModel, lam: float, tokens: int) -> int:
    """The same distributions without a cache: both branches recomputed from the start at every step."""
    prompt = cc.mask_prompt(model.tokenizer, PROMPT, SPANS)
    chain: list[int] = []
    for _ in range(tokens):
        rows = torch.tensor([[*ids, *chain] for ids in (prompt.factual_ids, prompt.masked_ids)])  # (2, L)
        with torch.inference_mode():
            logits = model.module(input_ids=rows, use_cache=False, logits_to_keep=1).logits[:, -1]  # (2, V)
        torch.softmax(cc.fuse_logits(logits[0], logits[1], lam), dim=-1)
        chain.append(prompt.factual_ids[0])
    return tokens


def seconds_per_token(work: Callable[[], int]) -> float:
    """Wall seconds a token of one run."""
    start = time.perf_counter()
    count = work()
    return (time.perf_counter() - start) / count


def summary(ratios: list[float]) -> dict[str, float]:
    """Median and range of repeated ratios."""
    return {
        "median": round(statistics.median(ratios), 3),
        "min": round(min(ratios), 3),
        "max": round(max(ratios), 3),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    model = cc.load_model("demo", device="cpu")
    works: dict[str, Callable[[], int]] = {
        "coft": lambda: engine(model, cc.CoftPolicy(), options.tokens),
        "vanilla": lambda: engine(model, cc.VanillaPolicy(observe_masked=False), options.tokens),
        "plain": lambda: plain(model, 0.6, options.tokens),
    }
    for work in works.values():
        work()
    runs = [{name: seconds_per_token(work) for name, work in works.items()} for _ in range(options.repeats)]
    result = {
        "benchmark": "decode",
        "model": "demo",
        "device": "cpu",
        "threads": options.threads,
        "tokens": options.tokens,
        "repeats": options.repeats,
        "coft_seconds_per_token": summary([r["coft"] for r in runs]),
        "coft_speed_over_vanilla": summary([r["vanilla"] / r["coft"] for r in runs]),
        "coft_speed_over_plain_recomputation": summary([r["plain"] / r["coft"] for r in runs]),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
