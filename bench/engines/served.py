"""Served models: the embedded model behind real servers, with all log-probabilities and with the 20 likeliest."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor

import coft_core as cc
from bench.engines.bounds import COUNT, LENGTH, compared, prompts, shipped
from bench.engines.llama import agreement
from coft_core.assets import assets_path
from coft_core.model.forced import teacher_forced_logits
from tests.gguf_of_demo import write_gguf
from tests.serving import llama_server, vllm

STEPS = 14_000
"""Steps that are read again from the most likely tokens, so that more than 10,000 of them are decided."""


def measured(quick: bool) -> dict[str, Any]:
    """Agreement over chains for each server that there is here, and the steps that one of them decides."""
    found: dict[str, Any] = {}
    with TemporaryDirectory() as folder:
        for name, running in servers(Path(folder)):
            with running as served:
                found[f"all, {name}"] = agreement(cc.load_served(served), 4 if quick else 50)
                found[f"{COUNT} most likely, {name}"] = decided(served, 200 if quick else STEPS)
    return found


def servers(folder: Path) -> Iterator[tuple[str, AbstractContextManager[cc.ServedModel]]]:
    """The servers whose programs are here."""
    for name, variable in (("llama-server", "COFT_LLAMA_SERVER"), ("vllm", "COFT_VLLM")):
        if not (os.environ.get(variable) or shutil.which(name)):
            print(f"{name} is not here (PATH, or {variable})", flush=True)
        elif name == "vllm":
            yield name, vllm(assets_path("models", "demo"))
        else:
            yield name, llama_server(write_gguf(folder / "demo.gguf"))


def decided(served: cc.ServedModel, steps: int) -> dict[str, Any]:
    """Chains that the local model writes, each step also from what the server returns of it."""
    local, few = (
        cc.load_model("demo", device="cpu", dtype="float32"),
        cc.load_served(served.model_copy(update={"most_likely": COUNT})),
    )
    policy = cc.CoftPolicy(calibration=shipped())
    whole: list[Tensor] = []
    returned: list[Tensor] = []
    for seed, text in enumerate(dict.fromkeys(text for texts in prompts().values() for text in texts)):
        plan = cc.plan(local, text, policy, seed=seed, max_new_tokens=LENGTH)
        tokens = [step.token_id for step in cc.generate(local, text, policy, seed=seed, max_new_tokens=LENGTH).steps]
        rows = [(branch.input_ids, tokens) for branch in policy.branches(plan.prompt)]
        ours, theirs = (torch.stack(teacher_forced_logits(model, rows), dim=1).float() for model in (local, few))
        whole.append(ours)  # (C, 2, V)
        returned.append(theirs)
        if sum(map(len, whole)) >= steps:
            break
    return compared(whole, policy, returned)
