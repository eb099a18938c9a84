"""What a model will need of a processor, told from its configuration before its weights are read."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import cache
from typing import Any

import torch
from torch import nn
from transformers.pytorch_utils import Conv1D

from coft_core.model.int_weights import HEAD_BITS, IntQuantizer, int_bytes
from coft_core.model.loading import Needs
from coft_core.model.packed import LEAST_WEIGHTS
from coft_core.model.placement import why_not_packed
from coft_core.model.requirements import loader_of
from coft_core.model.slots import token_numbers

READ_BYTES, READS = 1 << 27, 5
"""Memory that is read to measure the bandwidth, more than caches hold, and how often; it takes some hundredths of a
second."""


def needs_of(config: Any, placed: Mapping[str, Any], packed_bytes: int, bandwidth: float) -> Needs:
    """The needs of a configuration's model for arguments of ``from_pretrained``; no weights are read or allocated."""
    held, read = _bytes(config, placed, packed_bytes)
    return Needs(held, token_numbers(config) * placed["dtype"].itemsize, read / bandwidth)


def _bytes(config: Any, placed: Mapping[str, Any], packed_bytes: int) -> tuple[int, int]:
    """Bytes of weights that are held, and of those that every token reads."""
    with torch.device("meta"):
        module: Any = loader_of(config).from_config(config, dtype=placed["dtype"])
    head, embedding = module.get_output_embeddings(), module.get_input_embeddings()
    tied = head is not None and head.weight is embedding.weight
    held = sum(parameter.nbytes for parameter in module.parameters())
    read = held - (0 if tied else embedding.weight.nbytes)
    linears = {path: part for path, part in module.named_modules() if type(part) in (nn.Linear, Conv1D)}
    if "quantization_config" not in placed:
        plain = [part.weight for part in linears.values() if type(part) is nn.Linear]
        twice = sum(weight.nbytes for weight in plain if weight.numel() >= LEAST_WEIGHTS)
        packs = twice <= packed_bytes and not why_not_packed(placed["dtype"])
        return held + (twice if packs else 0), read
    quantizer = IntQuantizer(placed["quantization_config"])
    for path, part in linears.items():
        if quantizer.param_needs_quantization(module, f"{path}.weight") or part is head:
            bits = HEAD_BITS if part is head else quantizer.quantization_config.bits
            integers = int_bytes(part.weight, bits)
            held += integers - (0 if part is head and tied else part.weight.nbytes)
            read += integers - part.weight.nbytes
    return held, read


@cache
def read_bandwidth() -> float:
    """Bytes of memory that are read in a second by all threads; the best of a few readings."""
    memory = torch.ones(READ_BYTES // 4)
    best = float("inf")
    for _ in range(READS):
        began = time.perf_counter()
        memory.sum()
        best = min(best, time.perf_counter() - began)
    return READ_BYTES / best
