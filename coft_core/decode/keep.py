"""Laying out the logits of a step as an audit keeps them, in the model's own type."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from coft_core.policies.base import Policy
from coft_core.stored_logits import DTYPES, StoredLogits

FULL_BYTES = 512 * 1024
"""Logits of a step that take more bytes than this, before compression, are not kept."""


@dataclass(frozen=True, slots=True)
class Keeper:
    """How the logits of one step are laid out."""

    branches: tuple[str, ...]
    vocabulary_size: int
    dtype: str
    temperature: float

    @classmethod
    def of(cls, policy: Policy, branches: tuple[str, ...], logits: Tensor) -> Keeper:
        """The layout for steps with logits ``(B, V)``."""
        name = str(logits.dtype).removeprefix("torch.")
        # Policies read float64 logits as float32, so nothing that decides is lost.
        dtype = name if name in DTYPES else "float32"
        return cls(branches, int(logits.shape[-1]), dtype, policy.sampling.temperature)

    @property
    def size(self) -> int:
        """Bytes of a step's logits before they are compressed."""
        return len(self.branches) * self.vocabulary_size * DTYPES[self.dtype][0].itemsize

    def pack(self, logits: Tensor) -> Tensor:
        """Lay the logits out as bytes on their device."""
        return logits.to(DTYPES[self.dtype][0]).flatten(-2).contiguous().view(torch.uint8)

    def unpack(self, data: bytes) -> StoredLogits:
        """The logits from the bytes of :meth:`pack`, on the host."""
        width = DTYPES[self.dtype][0].itemsize
        values = np.frombuffer(data, dtype=f"=u{width}").astype(f"<u{width}").tobytes()
        return StoredLogits(self.branches, self.vocabulary_size, self.temperature, self.dtype, values)
