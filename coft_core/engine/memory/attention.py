"""Attention over rows that stand in several places: each part's own keys, and a prefix that its rows share.

The linear layers of a model take all rows at once; only attention has to know whose keys are whose. Transformers calls
an attention function by name with the keyword arguments of the model's forward, so that this one is told its parts.
"""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

SLOT_ATTENTION = "coft_slots"
"""Name under which transformers knows :func:`slot_attention`; without parts it is ``sdpa``, bit for bit."""


class AttentionParts(Protocol):
    """The rows of one forward, part by part."""

    def attend(self, module: Any, query: Tensor, scaling: float, arguments: dict[str, Any]) -> Tensor:
        """Attention of all rows, ``(R, q, heads, width)``."""


def slot_attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    slot_parts: AttentionParts | None = None,
    **arguments: Any,
) -> tuple[Tensor, None]:
    """What transformers calls in every attention layer.

    Args:
        module: The attention layer.
        query: ``(R, heads, q, width)``.
        key: ``(R, key heads, k, width)``; with parts those of the new tokens alone, which are in memory by then.
        value: ``(R, key heads, k, value width)``.
        attention_mask: The model's mask; parts have their own.
        scaling: Factor of the scores; None is one over the root of the width.
        slot_parts: Whose rows these are; None where the model runs for anybody else.
        arguments: Whatever else the architecture hands on.

    Returns:
        ``(R, q, heads, value width)``, and no weights.
    """
    if slot_parts is None:
        output: tuple[Tensor, None] = sdpa_attention_forward(
            module, query, key, value, attention_mask, scaling=scaling, **arguments
        )
        return output
    return slot_parts.attend(module, query, query.shape[-1] ** -0.5 if scaling is None else scaling, arguments), None


AttentionInterface.register(SLOT_ATTENTION, slot_attention)
AttentionMaskInterface.register(SLOT_ATTENTION, sdpa_mask)


def attend_rows(
    module: Any, query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, scaling: float, **arguments: Any
) -> Tensor:
    """Attention of rows over keys of their own, ``(R, q, heads, value width)``."""
    output: Tensor = sdpa_attention_forward(module, query, keys, values, mask, scaling=scaling, **arguments)[0]
    return output


def attend_with_prefix(
    query: Tensor, prefix: tuple[Tensor, Tensor], own: tuple[Tensor, Tensor], mask: Tensor | None, scaling: float
) -> Tensor:
    """Attention of one new token a row over a prefix that all rows share and over keys of their own.

    The prefix's keys are read once: the queries of all rows are folded into one matrix. Both parts are softmaxes of
    their own scores and are merged by the mass of each, ``exp(logsumexp)`` (Juravsky et al. 2024, Hydragen).

    Args:
        query: ``(R, heads, 1, width)``.
        prefix: Keys and values, ``(1, key heads, P, width)``.
        own: Keys and values, ``(R, key heads, W, width)``.
        mask: Which of the own keys count, boolean ``(R or 1, 1, 1, W)``; None counts all.
        scaling: Factor of the scores.

    Returns:
        ``(R, 1, heads, value width)`` in the query's type; scores and merging are in float32.
    """
    rows, heads, _, width = query.shape
    groups = own[0].shape[1]
    folded = query.view(rows, groups, heads // groups, width) * scaling  # (R, G, n, D): heads that share keys together
    mine, mass = _softmax_part(folded, own[0], own[1], mask)  # (R, G, n, D'), (R, G, n, 1)
    together = folded.transpose(0, 1).reshape(1, groups, -1, width)  # (1, G, R * n, D)
    shared, shared_mass = (
        part.view(groups, rows, heads // groups, -1).transpose(0, 1)
        for part in _softmax_part(together, prefix[0], prefix[1], None)
    )  # (R, G, n, D'), (R, G, n, 1)
    merged = torch.lerp(mine, shared, torch.sigmoid(shared_mass - mass))
    return merged.reshape(rows, 1, heads, -1).to(query.dtype)


def _softmax_part(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """Weighted values and the logarithm of the mass of the scores, float32."""
    scores = (query @ keys.transpose(-1, -2)).float()  # (R, G, n, K)
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    mass = scores.logsumexp(-1, keepdim=True)  # (R, G, n, 1)
    return ((scores - mass).exp().to(values.dtype) @ values).float(), mass
