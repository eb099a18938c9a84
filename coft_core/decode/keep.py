"""Laying out the logits of a step as an audit keeps them: their type, the head, and the figures of its tail."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from coft_core.policies.base import Policy
from coft_core.policies.fusion import fuse_logits
from coft_core.stored_logits import DTYPES, StoredLogits, Tail

FULL_BYTES = 512 * 1024
"""Logits of a step that take more bytes than this, before compression, are kept as heads."""

HEAD_TOKENS = 1024
"""Likeliest tokens of each branch that a head keeps."""

LAMS = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Lambdas at which the fused tail is measured, besides the policy's own."""


@dataclass(frozen=True, slots=True)
class Keeper:
    """How the logits of one step are laid out."""

    branches: tuple[str, ...]
    vocabulary_size: int
    dtype: str
    temperature: float
    lams: tuple[float, ...]
    head_tokens: int | None

    @classmethod
    def of(cls, policy: Policy, branches: tuple[str, ...], logits: Tensor, full_bytes: int, head_tokens: int) -> Keeper:
        """Choose the layout for a step with logits ``(B, V)``: a head, where all of them take more bytes than that."""
        name = str(logits.dtype).removeprefix("torch.")
        # Policies read float64 logits as float32, so nothing that decides is lost.
        dtype = name if name in DTYPES else "float32"
        vocabulary = int(logits.shape[-1])
        size = len(branches) * vocabulary * DTYPES[dtype][0].itemsize
        return cls(
            branches=branches,
            vocabulary_size=vocabulary,
            dtype=dtype,
            temperature=policy.sampling.temperature,
            lams=tuple(sorted({*LAMS, *(() if policy.fusion_weight is None else (float(policy.fusion_weight),))})),
            head_tokens=None if size <= full_bytes or head_tokens >= vocabulary else head_tokens,
        )

    def pack(self, logits: Tensor, needed: Tensor) -> Tensor:
        """Lay the logits out as bytes on their device."""
        kept = logits.to(DTYPES[self.dtype][0])  # (..., B, V)
        if self.head_tokens is None:
            return _bytes(kept.flatten(-2))
        likeliest = kept.topk(self.head_tokens, dim=-1).indices  # (..., B, K)
        ids = torch.cat([likeliest.flatten(-2), needed], dim=-1)  # (..., J), a token can come twice
        values = kept.gather(-1, ids.unsqueeze(-2).expand(*kept.shape[:-1], -1))  # (..., B, J)
        return torch.cat([_bytes(ids.int()), _bytes(values.flatten(-2)), _bytes(self._tail(kept, ids))], dim=-1)

    def unpack(self, data: bytes) -> StoredLogits:
        """The logits from the bytes of :meth:`pack`, on the host."""
        kind = DTYPES[self.dtype][0]
        rows = len(self.branches)
        if self.head_tokens is None:
            return self._stored(_little_endian(data, kind.itemsize), None)
        figures = 2 * rows + 3 * len(self.lams)
        count = (len(data) - 8 * figures) // (4 + rows * kind.itemsize)
        ids = np.frombuffer(data, dtype=np.int32, count=count)
        unique, first = np.unique(ids, return_index=True)  # (n,)
        values = np.frombuffer(data[4 * count : -8 * figures], dtype=f"V{kind.itemsize}").reshape(rows, count)
        numbers = np.frombuffer(data[-8 * figures :], dtype=np.float64).tolist()
        by_branch, fused = numbers[: 2 * rows], numbers[2 * rows :]
        points = len(self.lams)
        tail = Tail(
            token_ids=unique.astype("<i4").tobytes(),
            log_mass=tuple(by_branch[:rows]),
            largest=tuple(by_branch[rows:]),
            lams=self.lams,
            fused_log_mass=tuple(fused[:points]),
            fused_slope=tuple(fused[points : 2 * points]),
            fused_largest=tuple(fused[2 * points :]),
        )
        return self._stored(_little_endian(values[:, first].tobytes(), kind.itemsize), tail)

    def _stored(self, values: bytes, tail: Tail | None) -> StoredLogits:
        if tail is not None and len(tail.token_ids) // 4 == self.vocabulary_size:
            tail = None
        return StoredLogits(self.branches, self.vocabulary_size, self.temperature, self.dtype, values, tail)

    def _tail(self, kept: Tensor, ids: Tensor) -> Tensor:
        """Figures of all tokens but ``ids``, ``(..., 2 B + 3 L)`` float64, in the order of :class:`Tail`'s fields."""
        everywhere = torch.ones_like(kept[..., 0, :], dtype=torch.bool)  # (..., V)
        outside = everywhere.scatter(-1, ids, torch.zeros_like(ids, dtype=torch.bool))  # (..., V)
        scaled = kept.float().double() / self.temperature  # (..., B, V)
        factual = scaled[..., 0, :]  # (..., V)
        masked = scaled[..., 1:, :].mean(-2) if len(self.branches) > 1 else factual  # (..., V)
        by_branch = torch.where(outside.unsqueeze(-2), scaled, -torch.inf)  # (..., B, V)
        figures = [_fused_tail(factual, masked, outside, lam) for lam in self.lams]
        log_mass, slope, largest = (torch.stack(column, dim=-1) for column in zip(*figures, strict=True))  # (..., L)
        return torch.cat(
            [
                torch.logsumexp(by_branch, dim=-1),
                by_branch.amax(-1) * self.temperature,
                log_mass,
                slope,
                largest * self.temperature,
            ],
            dim=-1,
        )


def _fused_tail(factual: Tensor, masked: Tensor, outside: Tensor, lam: float) -> tuple[Tensor, Tensor, Tensor]:
    """Log-mass, its derivative by lambda and the largest value of the fused logits outside the head, ``(...)`` each."""
    fused = torch.where(outside, fuse_logits(factual, masked, lam), -torch.inf)  # (..., V)
    log_mass = torch.logsumexp(fused, dim=-1)  # (...)
    share = (fused - log_mass.unsqueeze(-1)).exp()  # (..., V)
    gap = masked - factual  # (..., V)
    # A token that one branch forbids and the other allows has an infinite slope even where its share rounds to 0.
    terms = torch.where(gap.isinf(), gap, share * gap)
    return log_mass, torch.where(fused > -torch.inf, terms, 0.0).sum(-1), fused.amax(-1)


def _bytes(numbers: Tensor) -> Tensor:
    """The bytes of the last axis."""
    return numbers.contiguous().view(torch.uint8)


def _little_endian(data: bytes, width: int) -> bytes:
    return np.frombuffer(data, dtype=f"=u{width}").astype(f"<u{width}").tobytes()
