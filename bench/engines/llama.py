"""llama.cpp: the embedded model against the transformers engine, and ours against llama.cpp's own loop."""

from __future__ import annotations

import csv
import json
import time
from dataclasses import replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

import coft_core as cc
from bench.decode.shapes import model_of
from coft_core.assets import assets_path
from coft_core.model.branches import BranchBatch
from coft_core.model.group import BranchGroup
from coft_core.model.llama_engine import Context, LlamaEngine
from coft_core.model.noise import LEAST_LOG_P
from coft_core.policies.certify import joint_support
from tests.gguf_of_demo import write_gguf

PROMPT = "The nurse finished rounds and then he prepared the reports"
SPANS = [cc.Span(35, 37, "gender")]
TOKENS = 64
LENGTH, LAM, SENTINEL = 24, 0.6, " person"
LOG_TAU = -5.0
"""About where the embedded model's shipped thresholds lie."""


def measured(quick: bool) -> dict[str, Any]:
    """Agreement over chains, and tokens per second over those of a plain loop."""
    with TemporaryDirectory() as folder:
        demo = write_gguf(Path(folder) / "demo.gguf")
        found = {"agreement": agreement(cc.load_model(str(demo)), 4 if quick else 50)}
        for kind in ("Q8_0",) if quick else ("Q8_0", "Q4_0"):
            name = "demo" if quick else "llama-134m"
            model = model_of(name, "cpu", "float32")
            engine = LlamaEngine(write_gguf(Path(folder) / f"{name}.gguf", kind, model), name, on_gpu=False)
            found[f"speed, {name}, {kind}"] = speed(replace(model, module=engine), 2 if quick else 7)
    return found


def agreement(engine: Any, chains: int) -> dict[str, Any]:
    """Chains that the local model writes, stepped through the engine: log-probabilities and certified sets."""
    local, rows = cc.load_model("demo", device="cpu", dtype="float32"), prompts()[:chains]
    largest, steps, members, wrong = 0.0, 0, 0, 0
    for seed, text in enumerate(rows):
        plan = cc.plan(local, text, cc.CoftPolicy(sentinel=SENTINEL), seed=seed)
        branches = plan.policy.branches(plan.prompt)
        rollout = cc.Rollout(plan)
        group = BranchGroup({"base": engine}, branches)
        while rollout.finished is None and len(rollout.steps) < LENGTH:
            ours, theirs = (log_p(logits) for logits in (rollout._group.logits(), group.logits()))  # (3, V) each
            likely = ours > LEAST_LOG_P
            distance = float((ours - theirs)[likely].abs().max())
            one, other = (joint_support(p[2], p[1]) for p in (ours, theirs))  # (V,)
            wrong += int(((one >= LOG_TAU) != (other >= LOG_TAU))[(one - LOG_TAU).abs() > distance].sum())
            members += int((one >= LOG_TAU).sum())
            largest, steps = max(largest, distance), steps + 1
            token = rollout.step().token_id
            group.append(torch.full((len(branches),), token))
        rollout.close()
        group.close()
    return {"chains": len(rows), "steps": steps, "largest_nats": largest, "members": members, "sets_differ": wrong}


def log_p(logits: torch.Tensor) -> torch.Tensor:
    """Factual, masked and fused log-probabilities, ``(2, V)`` to ``(3, V)``."""
    factual, masked = logits.float()
    return torch.log_softmax(torch.stack([factual, masked, cc.fuse_logits(factual, masked, LAM)]), dim=-1)


def prompts() -> list[str]:
    """Prompts that come with the program, each once."""
    with assets_path("prompts", "everyday.csv").open(encoding="utf-8") as file:
        found = [row["prompt"] for row in csv.DictReader(file)]
    lines = assets_path("prompts", "calibration_demo.jsonl").read_text("utf-8").splitlines()
    return list(dict.fromkeys([*found, *(json.loads(line)["prompt"] for line in lines)]))


def speed(model: Any, rounds: int) -> dict[str, Any]:
    """Our tokens per second for one branch over those of llama.cpp's own loop, and what a second branch costs."""
    ratios, second = [], []
    for _ in range(rounds):
        own, one, two = own_loop(model), stepped(model, 1), stepped(model, 2)
        ratios.append(own / one)
        second.append(two / one)
    return {
        "rounds": rounds,
        "own_ms": own * 1e3,
        "ours_over_own": median(ratios),
        "range": [min(ratios), max(ratios)],
        "second_branch": median(second),
        "second_range": [min(second), max(second)],
    }


def stepped(model: Any, branches: int, tokens: int = TOKENS) -> float:
    """Seconds a token for so many branches, without what an audit does with the logits."""
    batch = BranchBatch(model, [model.tokenizer.encode(PROMPT)] * branches)
    chosen = batch.logits().argmax(-1)
    began = time.perf_counter()
    for _ in range(tokens):
        batch.append(chosen)
        chosen = batch.logits().argmax(-1)
    seconds = (time.perf_counter() - began) / tokens
    batch.close()
    return seconds


def own_loop(model: Any) -> float:
    """Seconds a token of llama.cpp alone: its batch, its forward, and the likeliest token."""
    engine, ids = model.engine, model.tokenizer.encode(PROMPT)
    context = Context(engine, 512, 1)
    api, batch = engine.api, engine.api.llama_batch_init(1, 0, 1)
    chosen = int(context.read([(0, at, token, at == len(ids) - 1) for at, token in enumerate(ids)])[-1].argmax())
    batch.n_tokens, batch.n_seq_id[0], batch.seq_id[0][0], batch.logits[0] = 1, 1, 0, True
    began = time.perf_counter()
    for at in range(len(ids), len(ids) + TOKENS):
        batch.token[0], batch.pos[0] = chosen, at
        api.llama_decode(context._context, batch)
        logits = np.ctypeslib.as_array(api.llama_get_logits_ith(context._context, 0), shape=(engine.vocabulary_size,))
        chosen = int(logits.argmax())
    seconds = (time.perf_counter() - began) / TOKENS
    api.llama_batch_free(batch)
    return seconds
