"""Speed of a model's number types on a device: reading a prompt, and one token after it.

``python -m bench.dtypes --out FILE`` makes a Llama of 134 million parameters with random weights, as the program holds
it (packed on a CPU), and times both kinds of forward in each type. The types take turns in every repeat, so that
whatever else the machine does hits all of them.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import DynamicCache

from bench.decode.shapes import SHAPES, model_of


def main() -> None:
    """Measure, print and write."""
    options = _options()
    torch.set_num_threads(options.threads)
    models = {name: model_of(options.shape, options.device, name).module for name in options.dtypes}
    works: dict[str, Callable[[Any, int], None]] = {"prompt": _prompt, "token": _token}
    times: dict[tuple[str, str], list[float]] = {}
    for repeat in range(options.repeats + 1):
        for work, run in works.items():
            for name, model in models.items():
                seconds = _timed(run, model, options.tokens)
                if repeat:  # the first round only warms up
                    times.setdefault((work, name), []).append(seconds)
    first = options.dtypes[0]
    result = {
        "benchmark": "dtypes", "device": options.device, "processor": platform.processor() or platform.machine(),
        "features": _features(), "threads": options.threads, "torch": torch.__version__, "repeats": options.repeats,
        "tokens": options.tokens,
        "milliseconds": {f"{w}/{n}": round(1000 * statistics.median(t), 3) for (w, n), t in times.items()},
        f"speed_against_{first}": {
            f"{w}/{n}": _ratio(times[w, first], t) for (w, n), t in times.items() if n != first
        },
    }  # fmt: skip
    text = json.dumps(result, indent=1)
    print(text)
    if options.out:
        Path(options.out).write_text(text + "\n", encoding="utf-8")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dtypes", nargs="+", default=["float32", "bfloat16"])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--tokens", type=int, default=256, help="tokens of the prompt")
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--shape", default="llama-134m", choices=sorted(SHAPES))
    parser.add_argument("--out", help="file for the result (JSON)")
    return parser.parse_args()


@torch.inference_mode()
def _prompt(model: Any, tokens: int) -> None:
    """Two branches of a prompt, as an audit reads them."""
    model(input_ids=_ids(model, tokens), use_cache=False, logits_to_keep=1)


@torch.inference_mode()
def _token(model: Any, tokens: int) -> None:
    """Eight single tokens after a short prompt, two branches each."""
    cache = DynamicCache()
    model(input_ids=_ids(model, 8), past_key_values=cache, logits_to_keep=1)
    for _ in range(8):
        model(input_ids=_ids(model, 1), past_key_values=cache, logits_to_keep=1)


def _ids(model: Any, tokens: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randint(model.config.vocab_size, (2, tokens), generator=generator).to(model.device)


def _timed(run: Callable[[Any, int], None], model: Any, tokens: int) -> float:
    if model.device.type == "cuda":
        torch.cuda.synchronize(model.device)
    begin = time.perf_counter()
    run(model, tokens)
    if model.device.type == "cuda":
        torch.cuda.synchronize(model.device)
    return time.perf_counter() - begin


def _ratio(base: list[float], other: list[float]) -> dict[str, float]:
    """Median ratio of paired times, with the 95 percent interval of a bootstrap over repeats."""
    ratios = np.array(base) / np.array(other)
    draws = np.random.default_rng(0).choice(ratios, (2000, len(ratios)))
    low, high = np.quantile(np.median(draws, axis=1), [0.025, 0.975])
    return {"median": round(float(np.median(ratios)), 3), "low": round(float(low), 3), "high": round(float(high), 3)}


def _features() -> dict[str, bool]:
    """What of 16-bit arithmetic the processor has, as PyTorch sees it."""
    names = {"avx512_bf16": "_is_avx512_bf16_supported", "amx": "_is_amx_tile_supported"}
    found = {name: getattr(torch.cpu, attribute, None) for name, attribute in names.items()}
    return {name: bool(function()) for name, function in found.items() if function is not None}


if __name__ == "__main__":
    main()
