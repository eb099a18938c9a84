"""Speed of a decoding step: COFT with its full diagnostics, vanilla, ``generate``, and a plain two-branch loop.

All methods decode in turn, one round after the other, so that other load hits all of them; every ratio is taken within
a round, and its median and range over the rounds are printed. A time a token counts from the first token to the last:
the prompt's own pass is in none. The end token is not obeyed. Models other than the embedded one have random weights.

    python -m bench.decode                    a CPU: ratios on the embedded model and on 134M, and targets
    python -m bench.decode --device cuda      a GPU: more batches and prompts, masked branches, the paper's table
    python -m bench.decode --device cuda --shapes llama-13b --batches 1 4 --prompts 64 1024 --parts speeds

The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
from collections.abc import Sequence
from typing import Any

import torch

from bench.decode import table as tables
from bench.decode.noise import noise
from bench.decode.shapes import DEMO, SHAPES, model_of
from bench.decode.suites import copy_bandwidth, masked_branches, speeds
from bench.decode.work import work_of
from coft_core.decode.captured import path_text, prepare_model

DEFAULTS: dict[str, dict[str, list[Any]]] = {
    "cpu": {"shapes": [DEMO, "llama-134m"], "batches": [1, 4], "prompts": [64]},
    "cuda": {
        "shapes": [DEMO, "llama-134m", "llama-7b", "llama-13b"],
        "batches": [1, 2, 4, 8, 16],
        "prompts": [64, 256, 1024, 4096],
    },
}
PARTS = ("speeds", "branches", "noise", "table")
QUICK = {"shapes": ["tiny"], "batches": [1, 2], "prompts": [24]}
TARGETS = (
    (DEMO, "coft_over_vanilla", 0.8),
    (DEMO, "vanilla_over_generate_sampled", 1.15),
    (DEMO, "vanilla_greedy_over_generate_greedy", 1.15),
    (DEMO, "coft_over_plain_two_forwards", 1.3),
    (DEMO, "coft_over_plain_one_batch", 1.15),
    (DEMO, "coft_greedy_over_plain_one_batch_greedy", 1.15),
    ("llama-134m", "coft_over_vanilla", 0.8),
    ("llama-134m", "coft_over_plain_one_batch", 1.0),
    ("llama-134m", "coft_greedy_over_plain_one_batch_greedy", 1.0),
    ("llama-134m", "vanilla_over_generate_sampled", 1.0),
    ("llama-134m", "vanilla_greedy_over_generate_greedy", 1.0),
)
"""What a CPU is to reach at batch 1, in wall time."""


def parsed(arguments: Sequence[str]) -> argparse.Namespace:
    """The options, with the device's defaults for those that are not given."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--shapes", nargs="+", choices=(DEMO, *SHAPES))
    parser.add_argument("--batches", nargs="+", type=int)
    parser.add_argument("--prompts", nargs="+", type=int, help="tokens of the prompts")
    parser.add_argument("--tokens", type=int, default=32, help="tokens that are timed in each run")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1, help="threads of the CPU")
    parser.add_argument("--dtype", choices=("float32", "bfloat16", "float16"), help="in place of each shape's own")
    parser.add_argument("--eager", action="store_true", help="leave out the faster paths that the engine can prepare")
    parser.add_argument("--parts", nargs="+", choices=PARTS, help="what to measure")
    parser.add_argument("--quick", action="store_true", help="everything on a toy, to see that it runs")
    options = parser.parse_args(arguments)
    defaults = QUICK if options.quick else DEFAULTS[options.device]
    for name, value in defaults.items():
        if getattr(options, name) is None:
            setattr(options, name, value)
    if options.parts is None:
        options.parts = ["speeds"] if options.device == "cpu" and not options.quick else list(PARTS)
    if options.quick:
        options.tokens, options.repeats = 2, 1
    return options


def measured(options: argparse.Namespace) -> dict[str, Any]:
    """Everything that was asked for."""
    bandwidth = copy_bandwidth(torch.device(options.device), 1 << (30 if options.device == "cuda" else 26))
    found: dict[str, Any] = {"copy_gigabytes_per_second": round(bandwidth / 1e9, 1), "models": {}, "left_out": []}
    if set(options.parts) - {"table"}:
        for shape in options.shapes:
            found["models"][shape] = _of_shape(shape, options, bandwidth, found["left_out"])
    if "table" in options.parts:
        sizes = tables.Sizes(("tiny",), 2, 3, 24, "tiny") if options.quick else tables.Sizes()
        found["table"] = tables.table(options.device, options.repeats, options.dtype, sizes)
    if options.device == "cpu" and "speeds" in options.parts:
        found["targets"] = targets(found["models"])
    return found


def targets(models: dict[str, Any]) -> list[dict[str, Any]]:
    """Which targets are reached, of those whose model was measured with one prompt at a time."""
    found = []
    for shape, ratio, least in TARGETS:
        for cell in models.get(shape, {}).get("speeds", ()):
            if cell["batch"] == 1:
                median = cell["speed"][ratio]["wall_time"]["median"]
                found.append({"model": shape, "ratio": ratio, "target": least, "median": median,
                              "reached": median >= least})  # fmt: skip
    return found


def main(arguments: Sequence[str]) -> None:
    """Measure and print."""
    options = parsed(arguments)
    torch.set_num_threads(options.threads)
    device = torch.cuda.get_device_name() if options.device == "cuda" else platform.processor() or platform.machine()
    result = {"benchmark": "decode", "device_name": device, "torch": torch.__version__, **vars(options),
              **measured(options)}  # fmt: skip
    for line in result.get("table", {}).get("lines", ()):
        print(line)
    print(json.dumps(result))


def _of_shape(shape: str, options: argparse.Namespace, bandwidth: float, left_out: list[str]) -> dict[str, Any]:
    model = model_of(shape, options.device, options.dtype)
    path = path_text(model) if options.eager else prepare_model(model)
    found: dict[str, Any] = {"dtype": model.dtype_name, "parameters": model.parameter_count, "path": path}
    if "speeds" in options.parts:
        found["speeds"] = []
        for batch in options.batches:
            for prompt in options.prompts:
                if prompt + options.tokens + 1 >= model.context_length:
                    left_out.append(f"{shape}, prompt of {prompt}: longer than its context of {model.context_length}")
                    continue
                work = work_of(model, prompt, batch, options.tokens)
                found["speeds"].append(speeds(work, options.repeats, options.device == "cuda", bandwidth))
                print(f"{shape}, batch {batch}, prompt {prompt}: done", file=sys.stderr)
    if "branches" in options.parts:
        found["branches"] = masked_branches(model, max(options.prompts[0], 24), options.tokens, options.repeats)
    if "noise" in options.parts:
        found["noise"] = noise(work_of(model, max(options.prompts[0], 24), 1, options.tokens))
    return found


if __name__ == "__main__":
    main(sys.argv[1:])
