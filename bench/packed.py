"""From which size on packed weights pay: products of a few rows with matrices, plain and packed, on a CPU.

Each matrix is timed in both forms in turn, repeat by repeat, in processor time; a ratio is that of one repeat. Copies
of a matrix are taken in turn, so that it comes from memory as a model's does. The last line is JSON.

    python -m bench.packed [--dtype float32] [--rows 1 2 4 16 64] [--repeats 9] [--threads 1]
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn

from coft_core.model import packed
from coft_core.model.placement import packed_product

MATRICES = ((128, 128), (256, 256), (320, 320), (320, 848), (320, 6144), (768, 768), (768, 2048), (768, 32_000))
COLD_BYTES = 64 << 20
"""Copies of a matrix that are read in turn hold at least this much together, twice what caches do."""


def measured(inputs: int, outputs: int, rows: int, repeats: int, dtype: torch.dtype) -> dict[str, Any]:
    """Microseconds of a product in both forms, and how much faster the packed one is, median and range."""
    count = min(64, max(2, COLD_BYTES // (inputs * outputs * dtype.itemsize)))
    layers = [nn.Linear(inputs, outputs, bias=False, dtype=dtype).requires_grad_(False) for _ in range(count)]
    taken = torch.randn(rows, inputs, dtype=dtype)
    weights = [packed.PackedLinear(layer).packed for layer in layers]
    forms: dict[str, list[Callable[[], Any]]] = {
        "plain": [partial(layer, taken) for layer in layers],
        "packed": [partial(packed_product, taken, own, None) for own in weights],
    }
    times: dict[str, list[float]] = {name: [] for name in forms}
    for repeat in range(repeats + 1):
        for name, calls in forms.items():
            seconds = _seconds(calls, max(count, 32))
            if repeat:  # the first one only warms up
                times[name].append(seconds)
    ratios = [a / b for a, b in zip(times["plain"], times["packed"], strict=True)]
    return {
        "inputs": inputs, "outputs": outputs, "rows": rows,
        "microseconds": {name: round(1e6 * statistics.median(found), 1) for name, found in times.items()},
        "packed_over_plain": [round(f(ratios), 2) for f in (statistics.median, min, max)],
        "is_packed": inputs * outputs >= packed.LEAST_WEIGHTS,
    }  # fmt: skip


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dtype", default="float32", choices=("float32", "bfloat16"))
    parser.add_argument("--rows", nargs="+", type=int, default=[1, 2, 4, 16, 64])
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    found = []
    with torch.inference_mode():
        for (inputs, outputs), rows in itertools.product(MATRICES, options.rows):
            found.append(measured(inputs, outputs, rows, options.repeats, getattr(torch, options.dtype)))
            print(found[-1])
    print(json.dumps({"benchmark": "packed", "torch": torch.__version__, **vars(options), "products": found}))


def _seconds(calls: list[Callable[[], Any]], count: int) -> float:
    start = time.process_time()
    for call in itertools.islice(itertools.cycle(calls), count):
        call()
    return (time.process_time() - start) / count


if __name__ == "__main__":
    main()
