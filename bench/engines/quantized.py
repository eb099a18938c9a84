"""Quantised weights on a processor: how far they move the embedded model, and what an 8B model costs with them.

The 8B model has the shape of Llama 3 and random weights; its files (16 GB) are written to a temporary folder. It runs
in a process of its own for each number of bits, whose peak memory is that of loading and auditing.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from threading import Event, Thread
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer
from transformers import LlamaConfig, LlamaForCausalLM

import coft_core as cc
from bench.decode.shapes import LOGIT_SPREAD
from bench.engines.llama import prompts, stepped
from coft_core.decode.captured import path_text, prepare_model
from coft_core.decode.cost import weight_bytes
from coft_core.experiments.speed import with_thresholds
from coft_core.model.fake import byte_tokenizer
from coft_core.model.forced import teacher_forced_logits
from coft_core.model.needs import read_bandwidth

KINDS = ("8bit", "4bit")
PROMPT = "She said that"
SPANS = [cc.Span(0, 3, "gender")]
SHAPE: dict[str, Any] = {
    "vocab_size": 128_256, "hidden_size": 4096, "intermediate_size": 14_336, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": 8, "max_position_embeddings": 8192,
    "tie_word_embeddings": False, "bos_token_id": None, "eos_token_id": 0, "pad_token_id": 0, "dtype": "bfloat16",
}  # fmt: skip
SMALL = {"num_hidden_layers": 2, "hidden_size": 512, "intermediate_size": 1024, "num_attention_heads": 8}


def measured(quick: bool) -> dict[str, Any]:
    """Fidelity on the embedded model, and speed and memory of the large one."""
    with TemporaryDirectory() as folder:
        write_checkpoint(Path(folder), SHAPE | (SMALL if quick else {}))
        command = [sys.executable, "-m", "bench.engines.quantized", folder]
        speed = {
            kind: json.loads(subprocess.run([*command, kind], check=True, stdout=subprocess.PIPE, text=True).stdout)
            for kind in KINDS
        }
    return {"fidelity": fidelity(8 if quick else 100), "llama 3 8B": speed}


def fidelity(texts: int) -> dict[str, Any]:
    """Distances from the float32 model over texts that it wrote itself: means over texts with 95 % intervals."""
    whole = cc.load_model("demo", device="cpu", dtype="float32")
    rows, expected, found = [], [], {}
    for seed, prompt in enumerate(prompts()[:texts]):
        run = cc.generate(whole, prompt, cc.VanillaPolicy(), max_new_tokens=32, seed=seed)
        rows.append((tuple(whole.tokenizer.encode(prompt)), tuple(step.token_id for step in run.steps)))
        expected.append(log_p(whole, rows[-1]))
    for kind in ("bfloat16", *KINDS):
        asked = {"dtype": kind} if kind == "bfloat16" else {"quantization": kind}
        other = cc.load_model("demo", device="cpu", **asked)
        divergences, agreements = [], []
        for row, one in zip(rows, expected, strict=True):
            two = log_p(other, row)
            divergences.append(float((one.exp() * (one - two)).sum(-1).mean()))
            agreements.append(float((one.argmax(-1) == two.argmax(-1)).float().mean()))
        found[kind] = {"divergence_nats": interval(divergences), "top_1_agreement": interval(agreements)}
    return {"texts": len(rows), "tokens": sum(map(len, expected)), **found}


def log_p(model: Any, row: tuple[tuple[int, ...], tuple[int, ...]]) -> torch.Tensor:
    """Log-probabilities of a text's tokens, ``(C, V)``."""
    return torch.log_softmax(teacher_forced_logits(model, [row])[0].float(), -1)


def interval(values: list[float]) -> list[float]:
    """Mean over texts, and the ends of its 95 % interval by the bootstrap."""
    seen = np.array(values)
    means = np.random.default_rng(0).choice(seen, (2000, len(seen))).mean(1)
    return [float(seen.mean()), *np.quantile(means, (0.025, 0.975)).tolist()]


def write_checkpoint(folder: Path, shape: dict[str, Any]) -> None:
    """Write a model with random weights as published ones are written, a file for each layer, one at a time."""
    config = LlamaConfig(**shape)
    with torch.device("meta"):
        module: Any = LlamaForCausalLM(config)
    sizes = {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}
    index: dict[str, str] = {}
    for part in dict.fromkeys(name.partition(".layers.")[2].partition(".")[0] for name in sizes):
        names = [name for name in sizes if name.partition(".layers.")[2].partition(".")[0] == part]
        file = f"model-{part or 'rest'}.safetensors"
        save_file({name: _random(name, sizes[name], config) for name in names}, folder / file, {"format": "pt"})
        index |= dict.fromkeys(names, file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}))
    config.architectures = ["LlamaForCausalLM"]
    config.save_pretrained(folder)
    tokenizer: Any = byte_tokenizer()
    backend = json.loads(tokenizer.backend_tokenizer.to_str())
    words = backend["model"]["vocab"]
    used = {*words.values(), *(token["id"] for token in backend["added_tokens"])}
    words |= {f"<{number}>": number for number in range(config.vocab_size) if number not in used}
    tokenizer._tokenizer = Tokenizer.from_str(json.dumps(backend))
    tokenizer.save_pretrained(folder)


def _random(name: str, size: tuple[int, ...], config: LlamaConfig) -> torch.Tensor:
    if len(size) == 1:
        return torch.ones(size, dtype=torch.bfloat16)
    spread = LOGIT_SPREAD * config.hidden_size**-0.5 if name == "lm_head.weight" else 0.02
    # Repeated with a prime period, so that no two rows are the same; times do not depend on the numbers.
    drawn, count = torch.randn(1_000_003).mul_(spread).bfloat16(), size[0] * size[1]
    return drawn.repeat(count // len(drawn) + 1)[:count].reshape(size).contiguous()


def speed_of(folder: str, kind: str, rounds: int = 7, tokens: int = 8) -> dict[str, Any]:
    """Times of one model within rounds, each with its own bandwidth."""
    peak, began = Peak(), time.perf_counter()
    peak.start()
    model = cc.load_model(folder, device="cpu", quantization=kind)
    loaded = time.perf_counter() - began
    prepare_model(model)
    policy = with_thresholds(cc.CoftPolicy(), model)
    embedding = model.module.get_input_embeddings().weight.nbytes
    found: dict[str, list[float]] = {"tokens_per_second": [], "bandwidth_share": [], "second_branch": []}
    for _ in range(rounds):
        read_bandwidth.cache_clear()
        bandwidth = read_bandwidth()
        one, two = (stepped(model, rows, tokens) for rows in (1, 2))
        audited = audit(model, policy, tokens)
        found["tokens_per_second"].append(1 / audited)
        found["bandwidth_share"].append((weight_bytes(model) - embedding) / two / bandwidth)
        found["second_branch"].append(two / one)
    peak.ended.set()
    told = {name: [median(each), min(each), max(each)] for name, each in found.items()}
    return {
        "path": path_text(model), "threads": torch.get_num_threads(), "rounds": rounds, "load_seconds": loaded,
        "weight_gigabytes": weight_bytes(model) / 1e9, "peak_gigabytes": peak.own,
        "read_gigabytes_per_second": bandwidth / 1e9, **told,
    }  # fmt: skip


def audit(model: Any, policy: cc.Policy, tokens: int) -> float:
    """Seconds a token of an audit with certificates, two branches and the whole vocabulary, after the prompt."""
    rollout = cc.Rollout(cc.plan(model, PROMPT, policy, SPANS, max_new_tokens=tokens + 1, seed=0))
    rollout.step()
    began = time.perf_counter()
    for _ in range(tokens):
        rollout.step()
    seconds = (time.perf_counter() - began) / tokens
    rollout.close()
    return seconds


class Peak(Thread):
    """Watches the memory of this process that is not pages of files, gigabytes."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.own, self.ended = 0.0, Event()

    def run(self) -> None:
        """Look ten times a second."""
        while not self.ended.wait(0.1):
            told = dict(line.split(":") for line in Path("/proc/self/status").read_text("utf-8").splitlines())
            self.own = max(self.own, int(told["RssAnon"].split()[0]) * 1024 / 1e9)


if __name__ == "__main__":
    print(json.dumps(speed_of(sys.argv[1], sys.argv[2])))
