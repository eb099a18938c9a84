"""Which memory fits a model, found out once: by its layers and its forward, and then by a probe."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.cache_utils import get_layer_types_and_kwargs

from coft_core.model.attention import SLOT_ATTENTION, Part, Prefix, forward
from coft_core.model.language_model import LanguageModel
from coft_core.model.loading import out_of_memory
from coft_core.model.slots import Slots

MemoryKind = Literal["slots", "growing"]
"""Preallocated rows of their own lengths, or tensors that grow by concatenation with padding on the left."""

_NEEDED = frozenset({"position_ids", "attention_mask", "past_key_values"})
_KEPT_AS = "memory fit"


@dataclass(frozen=True, slots=True)
class Fit:
    """How a model's keys and values are kept.

    Attributes:
        kind: The memory that fits.
        reason: Why it is not slots, as half a sentence; empty where it is.
        joins: Whether rows of several memories may share a forward, and a prefix may be held once.
        layers: Layers of the model; 0 where it is not slots.
        accepts: Names of the parameters of the model's forward.
    """

    kind: MemoryKind
    reason: str
    joins: bool
    layers: int
    accepts: frozenset[str]


def fit_of(model: LanguageModel) -> Fit:
    """Which memory fits a model; looked at once, with a few forwards over a few tokens."""
    fit: Fit | None = model.finding(_KEPT_AS)
    if fit is None:
        model.keep_finding(_KEPT_AS, fit := _examined(model))
    return fit


def fit_is_known(model: LanguageModel) -> bool:
    """Whether a model was looked at already, so that :func:`fit_of` runs nothing."""
    return model.finding(_KEPT_AS) is not None


def accepted_arguments(forward: Any) -> frozenset[str]:
    """Names of a forward's parameters."""
    return frozenset(inspect.signature(forward).parameters)


def _examined(model: LanguageModel) -> Fit:
    module, accepts = model.module, accepted_arguments(model.module.forward)
    if reason := _misfit(module, accepts):
        return Fit("growing", reason, False, 0, accepts)
    fit = Fit("slots", "", _takes_slot_attention(module), len(_layer_types(module)), accepts)
    if model.context_length <= _PROBE_TOKENS or not _agrees(_probe_rows, model, fit):
        reason = "its logits differ from plain recomputation when rows have lengths of their own"
        return Fit("growing", reason, False, 0, accepts)
    return replace(fit, joins=fit.joins and _agrees(_probe_parts, model, fit))


def _misfit(module: Any, accepts: frozenset[str]) -> str:
    """Why rows of their own lengths do not fit a module; empty if they may."""
    if not isinstance(module, PreTrainedModel):
        return "it is not a transformers model"
    if missing := sorted(_NEEDED - accepts):
        return f"its forward takes no {missing[0]}"
    if others := sorted(set(_layer_types(module)) - {"full_attention"}):
        return f"it has layers of {others[0].replace('_', ' ')}"
    if not module._supports_attention_backend:
        return "its attention is not open to other functions"
    used = module.config._attn_implementation
    return "" if used in ("sdpa", "eager", SLOT_ATTENTION) else f"its attention is {used}"


def _layer_types(module: Any) -> list[str]:
    types: list[str] = get_layer_types_and_kwargs(module.config.get_text_config(decoder=True))[0]
    return types


def _takes_slot_attention(module: Any) -> bool:
    """Have the module call our attention function, which is ``sdpa`` for everybody who does not ask for parts."""
    if module.config._attn_implementation == "sdpa":
        module.set_attn_implementation(SLOT_ATTENTION)
    return bool(module.config._attn_implementation == SLOT_ATTENTION)


_PROBE_TOKENS = 9


def _probe_rows(model: LanguageModel, fit: Fit) -> tuple[Tensor, Tensor]:
    """Logits of two rows of unequal lengths, and what they must be."""
    first, second = model.arbitrary_tokens(2, _PROBE_TOKENS).tolist()
    rows = [first[:7], second[:4]]
    slots = Slots(2, model.context_length, model.device)
    slots.reserve(_PROBE_TOKENS)
    _run(model, fit, [Part(slots, _tensor(model, [first[:6], [*second[:3], 0, 0, 0]]))])
    slots.settle([6, 3])
    logits = _run(model, fit, [Part(slots, _tensor(model, [[row[-1]] for row in rows]))])
    return logits, _plain(model, rows)


def _probe_parts(model: LanguageModel, fit: Fit) -> tuple[Tensor, Tensor]:
    """Logits of a row behind a prefix that is held apart beside a row of another memory, and what they must be."""
    first, second = model.arbitrary_tokens(2, _PROBE_TOKENS).tolist()
    rows = [first[:7], second[:4]]
    before, behind, other = (Slots(1, model.context_length, model.device) for _ in range(3))
    for slots, ids in ((before, first[:3]), (other, second[:3])):
        slots.reserve(len(ids))
        _run(model, fit, [Part(slots, _tensor(model, [ids]))])
        slots.advance(len(ids))
    prefix = Prefix(tuple(before.read(index, 3) for index in range(fit.layers)))
    behind.reserve(_PROBE_TOKENS)
    other.reserve(_PROBE_TOKENS)
    _run(model, fit, [Part(behind, _tensor(model, [first[3:6]]), prefix)])
    behind.advance(3)
    parts = [Part(behind, _tensor(model, [first[6:7]]), prefix), Part(other, _tensor(model, [second[3:4]]))]
    return _run(model, fit, parts), _plain(model, rows)


def _agrees(probe: Callable[[LanguageModel, Fit], tuple[Tensor, Tensor]], model: LanguageModel, fit: Fit) -> bool:
    """Whether a probe gives what it must; an architecture that reads its memory otherwise may also fail in it."""
    try:
        return _close(*probe(model, fit))
    except (AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        if out_of_memory(error):
            raise
        return False


def _run(model: LanguageModel, fit: Fit, parts: Sequence[Part]) -> Tensor:
    return forward(model.module, parts, fit.layers, fit.accepts)


def _plain(model: LanguageModel, rows: Sequence[Sequence[int]]) -> Tensor:
    return torch.stack([model.plain_logits(torch.tensor([row]))[0, -1] for row in rows])  # (R, V)


def _tensor(model: LanguageModel, ids: Sequence[Sequence[int]]) -> Tensor:
    return torch.tensor(ids, device=model.device)


def _close(logits: Tensor, expected: Tensor) -> bool:
    """Whether logits agree as far as sums in another order do."""
    tolerance = 1e-3 if logits.dtype == torch.float32 else 0.1
    logits, expected = logits.float(), expected.float()
    return bool((logits - expected).abs().max() <= tolerance * (expected.max() - expected.min()))
