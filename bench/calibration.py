"""Calibration speed and memory: one streamed pass for all fusion weights against a straightforward loop over items.

The model is a Llama of 134 million parameters with random weights. Both compute the same values, which is checked. The
loop runs each item's two branches through the forward of transformers, keeps their float32 logits and takes
log-softmaxes for every fusion weight; it runs the model once an item, not once a weight. (``loop_per_weight`` does the
latter, as a calibration called for each weight would.) Times are taken in turn, so that other load hits all, and every
ratio is within one turn: of wall time, and of processor time, which on a CPU other load hardly touches. Peak memory is
measured in a process of its own for each variant: the growth of the resident set over the loaded model on a CPU
(Linux), of allocated memory on CUDA. A variant ``whole`` is measured for memory only: a batch's logits held at once.
The
last line is JSON.

    python -m bench.calibration [--items 16] [--batch 8] [--lams 5] [--repeats 3] [--device cuda] [--dtype bfloat16]
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from bench.decode.shapes import as_transformers_has_it
from coft_core.calibrate.true_tokens import forced_supports
from coft_core.model.fake import byte_tokenizer
from coft_core.model.forced import ForcedItem
from coft_core.model.language_model import LanguageModel
from coft_core.model.load import wrap_model
from coft_core.model.packed import pack_linears

TEMPERATURE = 1.0
SENTINEL_ID = 3
TIMED = ("streamed", "loop", "loop_per_weight")
VARIANTS = ("streamed", "loop", "whole")


def llama(options: argparse.Namespace) -> LanguageModel:
    """The model: 134 million parameters in its default sizes."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=options.vocabulary,
        hidden_size=options.hidden,
        intermediate_size=4 * options.hidden * 2 // 3 // 64 * 64,
        num_hidden_layers=options.layers,
        num_attention_heads=options.hidden // 64,
        num_key_value_heads=options.hidden // 64,
        max_position_embeddings=2048,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=0,
        pad_token_id=0,
    )
    module: Any = LlamaForCausalLM(config)
    module = module.to(options.device, getattr(torch, options.dtype)).eval().requires_grad_(False)
    tokenizer: Any = byte_tokenizer()
    # The words play no part here; a tokenizer of the model's width is all that the engine asks for.
    tokenizer.add_tokens([f"<{i}>" for i in range(options.vocabulary - len(tokenizer))])
    model = wrap_model(module, tokenizer, name="llama-134m")
    pack_linears(model)
    return model


def items(options: argparse.Namespace) -> list[ForcedItem]:
    """Prompts and continuations of mixed lengths around the given means, masked at four tokens of the later half."""
    generator = np.random.default_rng(options.seed)
    made = []
    for _ in range(options.items):
        prompt, length = (
            int(generator.integers(mean * 3 // 4, mean * 5 // 4 + 1)) for mean in (options.prompt, options.continuation)
        )
        factual = generator.integers(10, options.vocabulary, prompt)
        masked = factual.copy()
        masked[generator.choice(np.arange(prompt // 2, prompt), 4, replace=False)] = SENTINEL_ID
        continuation = tuple(generator.integers(10, options.vocabulary, length).tolist())
        made.append(ForcedItem((tuple(factual.tolist()), tuple(masked.tolist())), continuation))
    return made


def streamed(model: LanguageModel, given: Sequence[ForcedItem], lams: Sequence[float], batch: int) -> list[np.ndarray]:
    """The engine: values ``(C, L)`` an item."""
    return [support[:, :, 0] for support in forced_supports(model, given, lams, TEMPERATURE, batch_size=batch)]


def loop(model: LanguageModel, given: Sequence[ForcedItem], lams: Sequence[float], batch: int) -> list[np.ndarray]:
    """One item after another, one branch after the other, whole logits."""
    del batch
    values, module = [], as_transformers_has_it(model).module
    for item in given:
        tokens = torch.tensor(item.continuation, device=model.device)[:, None]  # (C, 1)
        logits = []
        for prompt in item.prompts:
            ids = torch.tensor([[*prompt, *item.continuation]], device=model.device)  # (1, L)
            with torch.inference_mode():
                whole = module(input_ids=ids, use_cache=False).logits[0].float()  # (L, V)
            logits.append(whole[len(prompt) - 1 : -1])  # (C, V)
        log_p_masked = torch.log_softmax(logits[1] / TEMPERATURE, dim=-1).gather(-1, tokens)  # (C, 1)
        columns = []
        for lam in lams:
            fused = (1 - lam) * logits[0] + lam * logits[1]  # (C, V)
            log_p_fused = torch.log_softmax(fused / TEMPERATURE, dim=-1).gather(-1, tokens)  # (C, 1)
            columns.append(torch.minimum(log_p_fused, log_p_masked))
        values.append(torch.cat(columns, dim=1).cpu().numpy())
    return values


def whole(model: LanguageModel, given: Sequence[ForcedItem], lams: Sequence[float], batch: int) -> list[np.ndarray]:
    """A batch at a time, padded on the right, with all of its logits."""
    values = []
    for start in range(0, len(given), batch):
        chosen = given[start : start + batch]
        longest = max(item.length for item in chosen) + 1
        rows = [
            [*prompt, *item.continuation, *[0] * (longest - item.length - 1)]
            for item in chosen
            for prompt in item.prompts
        ]
        with torch.inference_mode():
            logits = model.module(input_ids=torch.tensor(rows, device=model.device), use_cache=False).logits.float()
        for index, item in enumerate(chosen):
            scored = slice(len(item.prompts[0]) - 1, item.length)
            factual, masked = logits[2 * index, scored], logits[2 * index + 1, scored]  # (C, V)
            tokens = torch.tensor(item.continuation, device=model.device)[:, None]  # (C, 1)
            log_p_masked = torch.log_softmax(masked / TEMPERATURE, dim=-1).gather(-1, tokens)
            columns = [
                torch.log_softmax(((1 - lam) * factual + lam * masked) / TEMPERATURE, dim=-1).gather(-1, tokens)
                for lam in lams
            ]
            values.append(torch.minimum(torch.cat(columns, dim=1), log_p_masked).cpu().numpy())
    return values


def loop_per_weight(
    model: LanguageModel, given: Sequence[ForcedItem], lams: Sequence[float], batch: int
) -> list[np.ndarray]:
    """:func:`loop` from the start for every fusion weight."""
    columns = [loop(model, given, [lam], batch) for lam in lams]
    return [np.concatenate(item, axis=1) for item in zip(*columns, strict=True)]


WORK: dict[str, Callable[..., list[np.ndarray]]] = {
    "streamed": streamed,
    "loop": loop,
    "loop_per_weight": loop_per_weight,
    "whole": whole,
}


@dataclass(frozen=True)
class Timing:
    """Seconds of one run: on the wall, and of this process's processors."""

    wall: float
    processor: float


def timed(work: Callable[..., list[np.ndarray]], *arguments: Any, device: str) -> Timing:
    """Time one run, the device's queue emptied before and after."""
    if device.startswith("cuda"):
        torch.cuda.synchronize()
    wall, processor = time.perf_counter(), time.process_time()
    work(*arguments)
    if device.startswith("cuda"):
        torch.cuda.synchronize()
    return Timing(time.perf_counter() - wall, time.process_time() - processor)


def resident(field: str) -> int:
    """A figure of this process's memory in bytes: ``VmRSS`` now, ``VmHWM`` at its peak."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:"))


def growth(options: argparse.Namespace) -> int:
    """Bytes that one variant needs at its peak, over the loaded and warm model; to be called in a fresh process."""
    model, given, lams = llama(options), items(options), fusion_weights(options.lams)
    work = WORK[options.memory_of]
    short = [ForcedItem(tuple(p[:2] for p in item.prompts), item.continuation[:1]) for item in given[:2]]
    work(model, short, lams, options.batch)
    if options.device.startswith("cuda"):
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        work(model, given, lams, options.batch)
        return torch.cuda.max_memory_allocated() - before
    # Loading takes more than calibrating, so the peak so far has to be forgotten.
    Path("/proc/self/clear_refs").write_text("5")
    before = resident("VmRSS")
    work(model, given, lams, options.batch)
    return resident("VmHWM") - before


def peak(variant: str, arguments: Sequence[str]) -> int:
    """:func:`growth` of a variant in a child process."""
    command = [sys.executable, "-m", "bench.calibration", *arguments, "--memory-of", variant]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return int(done.stdout.split()[-1])


def fusion_weights(count: int) -> list[float]:
    """Evenly spaced weights, none at an end: 0 and 1 would be cheaper than the others."""
    return [(index + 1) / (count + 1) for index in range(count)]


def summary(values: Sequence[float]) -> dict[str, float]:
    """Number of repeats, smallest, median and largest."""
    return {
        "n": len(values),
        "min": round(min(values), 3),
        "median": round(statistics.median(values), 3),
        "max": round(max(values), 3),
    }


def largest_difference(a: Sequence[np.ndarray], b: Sequence[np.ndarray]) -> float:
    """Largest absolute difference of two lists of values."""
    return max(float(np.abs(x - y).max()) for x, y in zip(a, b, strict=True))


def parsed(arguments: Sequence[str]) -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (
        ("items", 16),
        ("batch", 8),
        ("lams", 5),
        ("repeats", 3),
        ("prompt", 64),
        ("continuation", 48),
        ("threads", 2),
        ("seed", 0),
        ("vocabulary", 32_000),
        ("hidden", 768),
        ("layers", 12),
    ):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32", choices=("float32", "bfloat16", "float16"))
    parser.add_argument("--memory-of", choices=VARIANTS, help="print one variant's peak memory in bytes and stop")
    parser.add_argument("--no-memory", action="store_true", help="leave the memory measurement out")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str]) -> None:
    """Measure and print."""
    options = parsed(arguments)
    torch.set_num_threads(options.threads)
    if options.memory_of:
        print(growth(options))
        return
    memory = {} if options.no_memory else {name: peak(name, arguments) for name in VARIANTS}
    model, given, lams = llama(options), items(options), fusion_weights(options.lams)
    job = (model, given, lams, options.batch)
    difference = largest_difference(streamed(*job), loop(*job))
    times = [{name: timed(WORK[name], *job, device=options.device) for name in TIMED} for _ in range(options.repeats)]
    tokens = sum(2 * (item.length + 1) for item in given)
    logits = max(item.length + 1 for item in given) * 2 * options.batch * options.vocabulary * 4
    result = {
        "benchmark": "calibration",
        "parameters": model.parameter_count,
        **{k: v for k, v in vars(options).items() if k not in ("memory_of", "no_memory")},
        "largest_difference_nats": difference,
        "streamed_tokens_per_second": summary([tokens / t["streamed"].wall for t in times]),
        "loop_tokens_per_second": summary([tokens / t["loop"].wall for t in times]),
        **{
            f"streamed_speed_over_{name}": {
                "wall_time": summary([t[name].wall / t["streamed"].wall for t in times]),
                "processor_time": summary([t[name].processor / t["streamed"].processor for t in times]),
            }
            for name in TIMED[1:]
        },
        "peak_megabytes": {name: round(size / 1e6, 1) for name, size in memory.items()},
        "float32_logits_of_a_batch_megabytes": round(logits / 1e6, 1),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main(sys.argv[1:])
