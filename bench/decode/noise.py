"""How far log-probabilities lie apart that ways of running one model should give alike."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import DynamicCache

from bench.decode.work import Work
from coft_core.model.branches import BranchSpec
from coft_core.model.compiled import path_of
from coft_core.model.group import BranchGroup
from coft_core.model.language_model import LanguageModel

LEAST_LOG_P = -14.0
"""Tokens that are likelier than this are compared: no threshold lies where a token is one in a million."""

BATCHES = (1, 2, 4, 8)


def noise(work: Work) -> dict[str, Any]:
    """Differences between uncached, dynamically cached and engine forwards, alone and in batches, and plain weights.

    The reference is the forward without any cache over the whole sequence. One chain of random tokens is forced in all.
    """
    generator = torch.Generator().manual_seed(0)
    chain = torch.randint(work.model.vocabulary_size, (work.tokens,), generator=generator).tolist()
    prompt = work.masked.factual_ids
    reference = _uncached(work.model.module, work.model.device, prompt, chain)  # (T, V)
    ways = {"dynamic": _dynamic(work.model, prompt, chain)}
    if work.module is not work.model.module:
        ways["plain weights"] = _uncached(work.module, work.model.device, prompt, chain)
    for batch in BATCHES:
        ways[f"engine, {batch} rows"] = _engine(work.model, prompt, chain, batch)
    return {
        "steps": path_of(work.model).text,
        "dtype": work.model.dtype_name,
        "tokens": work.tokens,
        "ways": {name: _quantiles((found - reference).abs()[reference > LEAST_LOG_P]) for name, found in ways.items()},
    }


def _quantiles(differences: Tensor) -> dict[str, float]:
    values = differences.double().numpy()
    named = {"median": 0.5, "p99": 0.99, "p99.99": 0.9999, "max": 1.0}
    return {name: float(f"{np.quantile(values, share):.3g}") for name, share in named.items()}


def _log_p(logits: Tensor) -> Tensor:
    return torch.log_softmax(logits.float(), dim=-1).cpu()


@torch.inference_mode()
def _uncached(module: Any, device: torch.device, prompt: tuple[int, ...], chain: list[int]) -> Tensor:
    found = []
    for step in range(len(chain)):
        ids = torch.tensor([[*prompt, *chain[:step]]], device=device)
        found.append(_log_p(module(input_ids=ids, use_cache=False, logits_to_keep=1).logits[0, -1]))
    return torch.stack(found)


@torch.inference_mode()
def _dynamic(model: LanguageModel, prompt: tuple[int, ...], chain: list[int]) -> Tensor:
    cache, ids, found = DynamicCache(), torch.tensor([prompt], device=model.device), []
    for token in chain:
        output = model.module(input_ids=ids, past_key_values=cache, use_cache=True, logits_to_keep=1)
        found.append(_log_p(output.logits[0, -1]))
        ids = torch.tensor([[token]], device=model.device)
    return torch.stack(found)


def _engine(model: LanguageModel, prompt: tuple[int, ...], chain: list[int], batch: int) -> Tensor:
    group = BranchGroup({"base": model}, [BranchSpec(str(row), prompt) for row in range(batch)])
    found = []
    try:
        for token in chain:
            found.append(_log_p(group.logits()[0]))
            group.append(torch.full((batch,), token))
    finally:
        group.close()
    return torch.stack(found)
