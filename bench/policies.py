"""Throughput and peak memory of every decoding method against vanilla, in one run (COFT's efficiency table).

Every method decodes the same prompts for the same number of tokens, alone and four at a time, with everything that an
audit keeps of a step; the end token is not obeyed, so that none stops early. The watched masked branch is left out
where a method does not need it, since vanilla decoding outside an audit has none either. Times are taken in turn, one
round after the other, so that other load hits all methods; a method's overhead is 1 minus its speed over vanilla's in
the same round. Memory is what a method needs beyond vanilla: allocated memory on CUDA, keys and values of its branches
on a CPU. Methods with further models run them as copies of the audited one. A method whose files are not there is left
out, and the run says so. The last line is JSON.

    python -m bench.policies [--batches 1 4] [--tokens 32] [--repeats 5] [--device cpu] [--methods sdd dexperts]
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

import coft_core as cc
from coft_core.decode.loop import generate_together
from coft_core.decode.plan import Plan
from coft_core.model.branches import BranchSpec
from coft_core.model.language_model import LanguageModel
from coft_core.policies.registry import METHODS, Method

PROMPTS = (
    "The nurse finished rounds and then he prepared the reports",
    "The old man went to the shop, and",
    "Her neighbour, a German cook, said that",
    "The teacher asked the girl about the long trip, so she",
)
PARAMETERS: Mapping[str, Mapping[str, object]] = {
    "dexperts": {"expert": "copy", "anti_expert": "copy"},
    "gedi": {"discriminator": "copy"},
    "cda": {"checkpoint": "copy"},
    "adv_lm_head": {"checkpoint": "copy"},
}
"""What methods with models of their own are run with; the others have their defaults."""


@dataclass(frozen=True)
class Measured:
    """One method at one batch size."""

    method: str
    batch: int
    branches: int
    speed: tuple[float, ...]
    memory: int


def plans_of(model: LanguageModel, method: Method, batch: int, tokens: int) -> list[Plan]:
    """What is decoded."""
    policy = method.build(PARAMETERS.get(method.name), observe_masked=False)
    models = dict.fromkeys(policy.models, model)
    return [cc.plan(model, PROMPTS[place], policy, seed=place, max_new_tokens=tokens, models=models)
            for place in range(batch)]  # fmt: skip


def without_end(model: LanguageModel) -> LanguageModel:
    """The model, which never ends a text of its own accord."""
    return replace(model, end_token_ids=frozenset())


def speed_of(plans: list[Plan]) -> float:
    """Tokens a second of one run."""
    wait(plans[0].model)
    start = time.perf_counter()
    runs = generate_together(plans)
    wait(plans[0].model)
    return sum(len(run.steps) for run in runs) / (time.perf_counter() - start)


def wait(model: LanguageModel) -> None:
    """Let the device finish."""
    if model.device.type == "cuda":
        torch.cuda.synchronize(model.device)


def memory_of(plans: list[Plan]) -> int:
    """Peak memory beyond the audited model, in bytes."""
    model = plans[0].model
    if model.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(model.device)
        before = torch.cuda.memory_allocated(model.device)
        generate_together(plans)
        return torch.cuda.max_memory_allocated(model.device) - before
    return sum(cache_bytes(plan, branch) for plan in plans for branch in plan.policy.branches(plan.prompt))


def cache_bytes(plan: Plan, branch: BranchSpec) -> int:
    """Keys and values of one branch at its full length."""
    config: Any = plan.all_models[branch.model].module.config
    heads = getattr(config, "num_key_value_heads", config.num_attention_heads)
    width = config.hidden_size // config.num_attention_heads
    length = len(branch.input_ids) + plan.max_new_tokens
    size = torch.finfo(plan.model.dtype).bits // 8
    return int(2 * config.num_hidden_layers * heads * width * length * size)


def measure(model: LanguageModel, methods: list[Method], batch: int, options: argparse.Namespace) -> list[Measured]:
    """All methods at one batch size, in turn."""
    plans: dict[str, list[Plan]] = {}
    for method in methods:
        try:
            plans[method.name] = plans_of(model, method, batch, options.tokens)
        except cc.CoftError as error:
            print(f"{method.name} is left out: {error}")
    for own in plans.values():
        generate_together(own)
    speeds: dict[str, list[float]] = {name: [] for name in plans}
    for _ in range(options.repeats):
        for name, own in plans.items():
            speeds[name].append(speed_of(own))
    return [
        Measured(name, batch, len(own[0].policy.branches(own[0].prompt)), tuple(speeds[name]), memory_of(own))
        for name, own in plans.items()
    ]


def row(measured: Measured, vanilla: Measured) -> dict[str, object]:
    """A line of the table."""
    overheads = [1 - own / other for own, other in zip(measured.speed, vanilla.speed, strict=True)]
    return {
        "method": measured.method,
        "batch": measured.batch,
        "branches": measured.branches,
        "tokens_per_second": round(statistics.median(measured.speed), 1),
        "overhead": round(statistics.median(overheads), 3),
        "overhead_range": [round(min(overheads), 3), round(max(overheads), 3)],
        "memory_beyond_vanilla_mb": round((measured.memory - vanilla.memory) / 2**20, 2),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="demo")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--methods", nargs="+", default=[method.name for method in METHODS])
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    model = without_end(cc.load_model(options.model, device=options.device))
    chosen = [method for method in METHODS if method.name in {"vanilla", *options.methods}]
    rows = []
    for batch in options.batches:
        measured = measure(model, chosen, batch, options)
        vanilla = next(item for item in measured if item.method == "vanilla")
        rows += [row(item, vanilla) for item in measured]
    for line in rows:
        print(f"{line['method']!s:22}{line['batch']!s:>3}  {line['tokens_per_second']!s:>8} tok/s  "
              f"{100 * float(str(line['overhead'])):6.1f} %  {line['memory_beyond_vanilla_mb']!s:>8} MB")  # fmt: skip
    print(json.dumps({"benchmark": "policies", "model": options.model, "tokens": options.tokens,
                      "repeats": options.repeats, "rows": rows}))  # fmt: skip


if __name__ == "__main__":
    main()
