"""Digests that identify weights and tokenizers across machines."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from transformers import PreTrainedTokenizerFast
from transformers.integrations.accelerate import load_offloaded_parameter

FULL_DIGEST_BYTES = 512 * 1024 * 1024
SAMPLED_ELEMENTS = 4096


def weights_digest(module: nn.Module) -> str:
    """Digest of a module's parameters: name, shape, type and bytes of each.

    Up to 512 MB of weights every byte counts. Above, hashing would take minutes, so 4,096 evenly spaced elements of
    each parameter count instead, and the digest says so (``sampled:``).

    It does not matter where the weights are: a model that is spread over devices, kept on the disk or split over
    processes has the digest that it has on one device (all processes must ask for it together). Quantised weights are
    other numbers, of another type, and have another digest.

    Returns:
        ``"sha256:<64 hex digits>"`` or ``"sampled:<64 hex digits>"``.
    """
    parameters = sorted(module.state_dict().items())
    sampled = sum(p.numel() * p.element_size() for _, p in parameters) > FULL_DIGEST_BYTES
    digest = hashlib.sha256()
    for name, parameter in parameters:
        for part, tensor in _plain(name, _held(module, name, parameter)):
            digest.update(f"{part}|{tuple(tensor.shape)}|{tensor.dtype}|".encode())
            digest.update(_bytes(_spaced(tensor) if sampled else tensor))
    return f"{'sampled' if sampled else 'sha256'}:{digest.hexdigest()}"


def tokenizer_digest(tokenizer: PreTrainedTokenizerFast) -> str:
    """Digest of a fast tokenizer's complete definition, ``"sha256:<64 hex digits>"``."""
    backend: Any = tokenizer.backend_tokenizer
    # Truncation and padding are left behind by earlier calls and change no token of a prompt.
    definition = backend.from_str(backend.to_str())
    definition.no_truncation()
    definition.no_padding()
    return f"sha256:{hashlib.sha256(definition.to_str().encode()).hexdigest()}"


def _held(module: Any, name: str, parameter: Tensor) -> Tensor:
    """A parameter with its values: those that are kept elsewhere are read, those that are split are put together."""
    if parameter.is_meta:
        return load_offloaded_parameter(module, name).to(parameter.dtype)
    return parameter.full_tensor() if isinstance(parameter, DTensor) else parameter


def _plain(name: str, tensor: Tensor) -> Iterator[tuple[str, Tensor]]:
    """A tensor by itself, or the plain tensors of which a quantised one is made."""
    flatten = getattr(tensor, "__tensor_flatten__", None)
    if flatten is None:
        yield name, tensor
        return
    for part in sorted(flatten()[0]):
        if (inner := getattr(tensor, part)) is not None:
            yield f"{name}.{part}", inner


def _spaced(parameter: Tensor) -> Tensor:
    flat = parameter.detach().reshape(-1)
    count = min(SAMPLED_ELEMENTS, flat.numel())
    if count == 0:
        return flat
    index = torch.linspace(0, flat.numel() - 1, count, dtype=torch.float64).long()
    return flat[index.to(flat.device)]


def _bytes(tensor: Tensor) -> bytes:
    contiguous = tensor.detach().cpu().contiguous()
    return contiguous.reshape(-1).view(torch.uint8).numpy().tobytes() if contiguous.numel() else b""
