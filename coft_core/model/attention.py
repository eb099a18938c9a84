"""One forward over rows of several memories: what transformers is given, and where keys and values go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface
from transformers.cache_utils import Cache, CacheLayerMixin
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

from coft_core.model.slots import LayerMemory, Slots

SLOT_ATTENTION = "coft_slots"
"""Name under which transformers knows :func:`slot_attention`; without parts it is ``sdpa``, bit for bit."""


def slot_attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    slot_parts: StepParts | None = None,
    **arguments: Any,
) -> tuple[Tensor, None]:
    """What transformers calls in every attention layer: ``(R, q, heads, value width)``, and no weights."""
    if slot_parts is None:
        output: tuple[Tensor, None] = sdpa_attention_forward(
            module, query, key, value, attention_mask, scaling=scaling, **arguments
        )
        return output
    return slot_parts.attend(module, query, query.shape[-1] ** -0.5 if scaling is None else scaling, arguments), None


AttentionInterface.register(SLOT_ATTENTION, slot_attention)
AttentionMaskInterface.register(SLOT_ATTENTION, sdpa_mask)


def attend_with_prefix(
    query: Tensor, prefix: tuple[Tensor, Tensor], suffix: tuple[Tensor, Tensor], mask: Tensor | None, scaling: float
) -> Tensor:
    """Attention of one new token a row over a prefix that all rows share, ``(1, G, P, D)``, and over their own keys.

    The prefix's keys are read once: the queries of all rows are folded into one matrix. Both parts are softmaxes of
    their own scores and are merged in float32 by the mass of each (Juravsky et al. 2024, Hydragen).
    """
    rows, heads, _, width = query.shape  # (R, H, 1, D)
    groups = suffix[0].shape[1]
    folded = query.view(rows, groups, heads // groups, width) * scaling  # (R, G, n, D): heads that share keys together
    mine, mass = _softmax_part(folded, suffix[0], suffix[1], mask)  # (R, G, n, D'), (R, G, n, 1)
    folded_rows = folded.transpose(0, 1).reshape(1, groups, -1, width)  # (1, G, R * n, D)
    shared, shared_mass = (
        part.view(groups, rows, heads // groups, -1).transpose(0, 1)
        for part in _softmax_part(folded_rows, prefix[0], prefix[1], None)
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


@dataclass(frozen=True, slots=True)
class Prefix:
    """Keys and values of tokens with which all rows begin; nothing changes them, so that forks share them."""

    layers: tuple[LayerMemory, ...]  # (1, heads, P, width) each

    @property
    def length(self) -> int:
        """P."""
        return self.layers[0].keys.shape[2]

    @property
    def size(self) -> int:
        """Bytes held."""
        return sum(layer.size for layer in self.layers)


@dataclass(frozen=True, slots=True)
class Part:
    """Rows of one memory with room for their next tokens, and these."""

    slots: Slots
    ids: Tensor  # (R, q)
    prefix: Prefix | None = None
    # Cells that attention looks at in place of those that the longest row has. Nothing then depends on numbers of the
    # host, and the forward can be captured as a graph.
    width: int | None = None

    @property
    def before(self) -> int:
        """Tokens that are held once, before every row."""
        return 0 if self.prefix is None else self.prefix.length

    @property
    def cells(self) -> int:
        """Cells that attention looks at."""
        return self.slots.longest + self.ids.shape[1] if self.width is None else self.width

    @property
    def positions(self) -> Tensor:
        """Positions of the tokens in their texts, ``(R, q)``."""
        return self.slots.places(self.ids.shape[1]) + self.before

    @property
    def cells_to_write(self) -> Tensor | None:
        """Cells of the new tokens, ``(R, q)``; None where they are behind one length that the host knows."""
        return None if self.slots.uniform and self.width is None else self.slots.places(self.ids.shape[1])

    @property
    def mask(self) -> Tensor | None:
        """Which cells each token may see, boolean ``(R, 1, q, cells)``; None where it is all of them."""
        if self.slots.uniform and self.ids.shape[1] == 1 and self.width is None:
            return None
        columns = torch.arange(self.cells, device=self.ids.device)  # (W,)
        return (columns <= self.slots.places(self.ids.shape[1])[:, :, None])[:, None]


class StepParts:
    """The parts of one forward: new states are written into their memories, and attention reads these."""

    def __init__(self, parts: Sequence[Part]) -> None:
        self._parts, first = tuple(parts), parts[0]
        self._cells = [part.cells_to_write for part in parts]
        # The rows of one part without a prefix can be read by any attention as they are.
        self.whole = len(parts) == 1 and first.prefix is None
        self.cells, self.held = first.cells, first.slots.longest
        self._masks = [] if self.whole else [part.mask for part in parts]
        # (R, 1, q, cells), where rows differ in length or the width is fixed.
        self.mask = first.mask if self.whole and not (first.slots.uniform and first.width is None) else None

    def put(self, index: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Write the new states of a layer; return what attention is to read, where the rows are one part."""
        if self.whole:
            slots = self._parts[0].slots
            slots.write(index, keys, values, self._cells[0])
            held = slots.read(index, self.cells)
            return held.keys, held.values
        start = 0
        for part, cells in zip(self._parts, self._cells, strict=True):
            end = start + part.slots.rows
            part.slots.write(index, keys[start:end], values[start:end], cells)
            start = end
        return keys, values

    def attend(self, module: Any, query: Tensor, scaling: float, arguments: dict[str, Any]) -> Tensor:
        """Attention part by part, ``(R, q, heads, width)``."""
        outputs, start = [], 0
        for part, mask in zip(self._parts, self._masks, strict=True):
            rows = query[start : start + part.slots.rows]
            outputs.append(_attend_part(module, rows, part, mask, scaling, arguments))
            start += part.slots.rows
        return _together(outputs)


class _StepLayer(CacheLayerMixin):
    """One layer of what a model takes for its cache during one forward."""

    is_sliding = False

    def __init__(self, parts: StepParts, index: int) -> None:
        super().__init__()
        self._parts, self._index = parts, index
        self.is_initialized = True

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Nothing is allocated here."""

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Write, and say what attention reads."""
        return self._parts.put(self._index, key_states, value_states)

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Length and offset of what attention reads; a model asks only where the rows are one part."""
        return self._parts.cells, 0

    def get_seq_length(self) -> int:
        """Tokens held of the first part's rows before this forward."""
        return self._parts.held

    def get_max_length(self) -> int:
        """No maximum that a model would have to know."""
        return -1


def forward(module: Any, parts: Sequence[Part], layers: int, accepts: frozenset[str]) -> Tensor:
    """Logits after each row's last token, ``(R, V)``, in the model's type; the rows' lengths stay as they are.

    All parts have one number of tokens q. Several parts, or a prefix, need :data:`SLOT_ATTENTION`.
    """
    taken = StepParts(parts)
    arguments: dict[str, Any] = {
        "input_ids": _together([part.ids for part in parts]),  # (R, q)
        "position_ids": _together([part.positions for part in parts]),  # (R, q)
        "past_key_values": Cache(layers=[_StepLayer(taken, index) for index in range(layers)]),
        "use_cache": True,
    }
    if "logits_to_keep" in accepts:
        arguments["logits_to_keep"] = 1
    if not taken.whole:
        # The parts have masks of their own; a mask of four dimensions keeps the model from making one.
        arguments["attention_mask"] = arguments["input_ids"].new_ones((1, 1, 1, 1), dtype=torch.bool)
        arguments["slot_parts"] = taken
    elif taken.mask is not None:
        arguments["attention_mask"] = _like_the_models(module, taken.mask)
    with torch.inference_mode():
        logits: Tensor = module(**arguments).logits[:, -1]  # (R, V)
    return logits


def _together(tensors: Sequence[Tensor]) -> Tensor:
    return torch.cat(list(tensors)) if len(tensors) > 1 else tensors[0]


def _like_the_models(module: Any, mask: Tensor) -> Tensor:
    """Eager attention adds its mask to the scores; all others take booleans."""
    if module.config._attn_implementation != "eager":
        return mask
    lowest = torch.finfo(module.dtype).min
    return torch.zeros(mask.shape, dtype=module.dtype, device=mask.device).masked_fill(~mask, lowest)


def _attend_part(
    module: Any, query: Tensor, part: Part, mask: Tensor | None, scaling: float, arguments: dict[str, Any]
) -> Tensor:
    own = part.slots.read(module.layer_idx, part.cells)
    keys, values, mask = own.keys, own.values, None if mask is None else mask.to(query.device)
    if part.prefix is not None:
        held = part.prefix.layers[module.layer_idx]
        if query.shape[2] == 1:
            return attend_with_prefix(query, (held.keys, held.values), (keys, values), mask, scaling)
        # Many new tokens are rare (the rest of a prompt), and their scores would be large: one kernel reads both parts.
        keys = torch.cat([held.keys.expand(len(query), -1, -1, -1), keys], dim=2)
        values = torch.cat([held.values.expand(len(query), -1, -1, -1), values], dim=2)
        if mask is not None:
            seen = torch.ones((*mask.shape[:3], part.before), dtype=torch.bool, device=query.device)
            mask = torch.cat([seen, mask], dim=-1)
    output: Tensor = sdpa_attention_forward(module, query, keys, values, mask, scaling=scaling, **arguments)[0]
    return output
