"""Measures the embedded phantom model: what was planted, what an audit finds, and what COFT removes.

    python -m bench.phantom [--data DIR] [--model demo] [--prompts-per-cell 8] [--threads 2] [--out FILE]

Everything is measured on templates and first names that training texts never use; each figure has its number of
independent units and a 95 % interval over them, since the groups of one setting are asked alike and agree or differ
together; a target is shown if no value of the interval misses it. The bias gap of a setting and a family is the largest
minus the smallest probability of the favourable outcome over the family's groups, the demographic-parity gap of the
paper's Utrecht, COMPAS and drift tables; the reduction is one minus the ratio of the mean gaps under COFT and under
vanilla decoding, as the paper's 30 to 55 % is relative to vanilla. It is computed from the distribution that a policy
draws the decision from, so it carries no sampling noise. The last line is a JSON object.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

import coft_core as cc
from bench.demo_model.phantom.intervals import Figure
from bench.demo_model.phantom.measure import Plan, measure_phantom
from coft_core.assets import assets_path


def arguments(values: list[str] | None = None) -> argparse.Namespace:
    """Parses the command line."""
    plan = Plan()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="demo", help="the embedded model, or the folder of another phantom")
    parser.add_argument("--prompts-per-cell", type=int, default=plan.prompts_per_cell)
    parser.add_argument("--alpha", type=float, default=plan.alpha)
    parser.add_argument("--lambda", dest="lam", type=float, default=plan.lam)
    parser.add_argument("--seed", type=int, default=plan.seed)
    parser.add_argument("--questions", type=int, default=plan.questions, help="neutral questions")
    parser.add_argument("--chain-prompts", type=int, default=plan.chain_prompts, help="chains of a group in a setting")
    parser.add_argument("--generations", type=int, default=plan.generations, help="continuations for empty sets")
    parser.add_argument("--documents", type=int, default=plan.documents, help="story documents of each corpus")
    parser.add_argument("--data", type=Path, help="folder with corpus/, for story text")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, help="file for the JSON object")
    return parser.parse_args(values)


def plain(value: Any) -> Any:
    """The measurements for JSON."""
    if isinstance(value, Figure):
        return value.to_dict()
    return {key: plain(item) for key, item in value.items()} if isinstance(value, dict) else value


def lines(value: dict[str, Any], path: str = "") -> Iterator[str]:
    """One readable line for each figure."""
    for key, item in value.items():
        name = f"{path} {key.replace('_', ' ')}".strip()
        if isinstance(item, dict):
            yield from lines(item, name)
        elif isinstance(item, Figure):
            interval = f"[{item.low:.4f}, {item.high:.4f}]"
            verdict = f"  target: {item.target}, {'shown' if item.shown else 'NOT shown'}" if item.target else ""
            yield f"{name:<58} {item.value:9.4f}  {interval:<20} n = {item.n:,} {item.unit}{verdict}"
        else:
            yield f"{name:<58} {item}"


def main(values: list[str] | None = None) -> None:
    """Measures and prints."""
    options = arguments(values)
    torch.set_num_threads(options.threads)
    started = time.monotonic()
    model = cc.load_model(options.model, device=options.device)
    folder = assets_path("models", "demo") if options.model == "demo" else Path(options.model)
    plan = Plan(
        prompts_per_cell=options.prompts_per_cell, lam=options.lam, alpha=options.alpha, seed=options.seed,
        questions=options.questions, chain_prompts=options.chain_prompts, generations=options.generations,
        data=options.data, documents=options.documents,
    )  # fmt: skip

    def progress(part: str) -> None:
        print(f"{time.monotonic() - started:6.0f} s  {part}", flush=True)

    figures = measure_phantom(model, plan, folder / "calibration.zip", progress)
    print("\n".join(lines(figures)))
    result = {
        "benchmark": "phantom", "model": options.model, "weights": model.weights_digest, "device": str(model.device),
        "threads": options.threads, "lambda": plan.lam, "alpha": plan.alpha, "seed": plan.seed,
        "seconds": round(time.monotonic() - started), **plain(figures),
    }  # fmt: skip
    text = json.dumps(result)
    if options.out:
        options.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
