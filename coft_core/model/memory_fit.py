"""Which memory fits a model, found out once: by its layers and its forward, and then by a probe."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.cache_utils import (
    DYNAMIC_LAYER_TYPE_MAPPING,
    DynamicCache,
    LinearAttentionCacheLayerMixin,
    get_layer_types_and_kwargs,
)

from coft_core.model.attention import SLOT_ATTENTION, Part, Prefix, forward
from coft_core.model.language_model import LanguageModel
from coft_core.model.loading import out_of_memory
from coft_core.model.slots import Slots

MemoryKind = Literal["slots", "growing", "states", "engine"]
"""Preallocated rows of their own lengths, tensors that grow by concatenation with padding on the left, states that are
copied at every step, or whatever an engine other than transformers does."""

_STATE_ARGUMENTS = ("past_key_values", "cache_params", "state")
"""Names under which models take what they keep of earlier tokens, and hand it back."""

_NEEDED = frozenset({"position_ids", "attention_mask", "past_key_values"})
_KEPT_AS = "memory fit"


@dataclass(frozen=True, slots=True)
class Fit:
    """How a model's keys and values are kept."""

    kind: MemoryKind
    reason: str
    joins: bool
    layers: int
    accepts: frozenset[str]
    state: str = "past_key_values"
    hands_back: bool = True
    pieces: bool = True
    positions: bool = False
    alone: bool = False


def fit_of(model: LanguageModel) -> Fit:
    """Which memory fits a model; looked at once, with a few forwards over a few tokens."""
    fit: Fit | None = model.finding(_KEPT_AS)
    if fit is None:
        model.keep_finding(_KEPT_AS, fit := _examined(model))
    return fit


def keep_fit(model: LanguageModel, fit: Fit) -> None:
    """Have a model use a memory from now on."""
    model.keep_finding(_KEPT_AS, fit)


def fit_is_known(model: LanguageModel) -> bool:
    """Whether a model was looked at already, so that :func:`fit_of` runs nothing."""
    return model.finding(_KEPT_AS) is not None


def accepted_arguments(forward: Any) -> frozenset[str]:
    """Names of a forward's parameters."""
    return frozenset(inspect.signature(forward).parameters)


def _examined(model: LanguageModel) -> Fit:
    if model.engine is not None:
        return Fit("engine", model.engine.title, False, 0, frozenset())
    module, accepts = model.module, accepted_arguments(model.module.forward)
    if reason := _state_of(module, accepts):
        return with_states(model, reason)
    if reason := _misfit(module, accepts):
        return Fit("growing", reason, False, 0, accepts)
    fit = Fit("slots", "", _takes_slot_attention(module), len(_layer_types(module)), accepts)
    if model.context_length <= _PROBE_TOKENS or not _agrees(lambda: _probe_rows(model, fit)):
        reason = "its logits differ from plain recomputation when rows have lengths of their own"
        return Fit("growing", reason, False, 0, accepts)
    return replace(fit, joins=fit.joins and _agrees(lambda: _probe_parts(model, fit)))


def with_states(model: LanguageModel, reason: str) -> Fit:
    """The fit of a model whose state is copied at every step, for a reason in half a sentence."""
    accepts = accepted_arguments(model.module.forward)
    state = next((name for name in _STATE_ARGUMENTS if name in accepts), "")
    fit = Fit("states", reason, False, 0, accepts, state, pieces=False)
    if not state:
        return fit
    fit = replace(fit, hands_back=_hands_back(model, fit))
    # Some count positions by themselves, also from another number than 0, and some start over unless they are told.
    placed = replace(fit, positions=True)
    steps, steps_if_told = (lambda: _continued(model, fit, -1)), (lambda: _continued(model, placed, -1))
    chosen = placed if "position_ids" in accepts and not _agrees(steps) and _agrees(steps_if_told) else fit
    return replace(chosen, pieces=_agrees(lambda: _continued(model, chosen, 3)))


def _hands_back(model: LanguageModel, fit: Fit) -> bool:
    """Whether a forward that is to keep something and is given nothing hands it back."""
    try:
        return run_with_state(model, fit, model.arbitrary_tokens(1, 2).to(model.device), None, 0)[1] is not None
    except Exception as error:
        if out_of_memory(error):
            raise
        return False


def _state_of(module: Any, accepts: frozenset[str]) -> str:
    """What layers keep of earlier tokens besides keys and values, as half a sentence; empty where it is nothing."""
    for kind in sorted(set(_layer_types(module))) if isinstance(module, PreTrainedModel) else ():
        kept = DYNAMIC_LAYER_TYPE_MAPPING.get(kind)
        if kept is not None and issubclass(kept, LinearAttentionCacheLayerMixin):
            return f"its layers of {kind.replace('_', ' ')} keep a state that cannot be cut"
    if getattr(module, "_is_stateful", False) or ("past_key_values" not in accepts and accepts & {*_STATE_ARGUMENTS}):
        return "it keeps a state that cannot be cut"
    return ""


def _misfit(module: Any, accepts: frozenset[str]) -> str:
    """Why rows of their own lengths do not fit a module; empty if they may."""
    if not isinstance(module, PreTrainedModel):
        return "it is not a transformers model"
    if missing := sorted(_NEEDED - accepts):
        return f"its forward takes no {missing[0]}"
    if not _layer_types(module):
        return "its configuration does not say which layers it has"
    if others := sorted(set(_layer_types(module)) - {"full_attention"}):
        return f"it has layers of {others[0].replace('_', ' ')}"
    if not module._supports_attention_backend:
        return "its attention is not open to other functions"
    used = module.config._attn_implementation
    return "" if used in ("sdpa", "eager", SLOT_ATTENTION) else f"its attention is {used}"


def _layer_types(module: Any) -> list[str]:
    """Kind of each layer; nothing where a model is made of parts that have layers of their own."""
    config = module.config.get_text_config(decoder=True)
    types: list[str] = get_layer_types_and_kwargs(config)[0] if hasattr(config, "num_hidden_layers") else []
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
    _run(model, fit, slots, [first[:6], [*second[:3], 0, 0, 0]])
    slots.settle([6, 3])
    return _run(model, fit, slots, [[row[-1]] for row in rows]), _plain(model, rows)


def _probe_parts(model: LanguageModel, fit: Fit) -> tuple[Tensor, Tensor]:
    """Logits of a row behind a prefix that is held apart beside a row of another memory, and what they must be."""
    first, second = model.arbitrary_tokens(2, _PROBE_TOKENS).tolist()
    before, behind, other = (Slots(1, model.context_length, model.device) for _ in range(3))
    for slots in (before, behind, other):
        slots.reserve(_PROBE_TOKENS)
    for slots, ids in ((before, first[:3]), (other, second[:3])):
        _run(model, fit, slots, [ids])
        slots.advance(3)
    prefix = Prefix(tuple(before.read(index, 3) for index in range(fit.layers)))
    _run(model, fit, behind, [first[3:6]], prefix)
    behind.advance(3)
    newest = torch.tensor([first[6:7], second[3:4]], device=model.device)
    parts = [Part(behind, newest[:1], prefix), Part(other, newest[1:])]
    return forward(model.module, parts, fit.layers, fit.accepts), _plain(model, [first[:7], second[:4]])


def run_with_state(model: LanguageModel, fit: Fit, ids: Tensor, state: Any, start: int) -> tuple[Tensor, Any]:
    """Read tokens ``(R, q)`` behind ``start`` others: logits after the last ones, ``(R, V)``, and the state then.

    A state of None begins a text; a model that keeps nothing gives None back.
    """
    arguments: dict[str, Any] = {"input_ids": ids, "use_cache": True}
    if state is None and not fit.hands_back:
        state = DynamicCache(config=model.module.config)
    if state is not None:
        arguments[fit.state] = state
    if "logits_to_keep" in fit.accepts:
        arguments["logits_to_keep"] = 1
    arguments |= told_positions(fit, ids, start)
    with torch.inference_mode():
        output = model.module(**arguments)
    return output.logits[:, -1], getattr(output, fit.state, state)


def told_positions(fit: Fit, ids: Tensor, start: int) -> dict[str, Tensor]:
    """Positions of tokens behind others, as an argument of a model that must be told them; nothing for others."""
    if not fit.positions:
        return {}
    return {"position_ids": torch.arange(start, start + ids.shape[1], device=ids.device)[None]}


def _continued(model: LanguageModel, fit: Fit, border: int) -> tuple[Tensor, Tensor]:
    """Logits of a text that is read in two pieces, and what they must be."""
    text = model.arbitrary_tokens(1, min(_PROBE_TOKENS, model.context_length - 1))
    ids = text.to(model.device)
    first, rest = ids[:, :border], ids[:, border:]
    _, state = run_with_state(model, fit, first, None, 0)
    return run_with_state(model, fit, rest, state, first.shape[1])[0], _plain(model, text.tolist())


def _agrees(probe: Callable[[], tuple[Tensor, Tensor]]) -> bool:
    """Whether a probe gives the logits that it must, as far as sums in another order do."""
    try:
        logits, expected = probe()
    except Exception as error:
        # What an architecture that was not made for it raises is known only by trying.
        if out_of_memory(error):
            raise
        return False
    tolerance = 1e-3 if logits.dtype == torch.float32 else 0.1
    logits, expected = logits.float(), expected.float()
    return bool((logits - expected).abs().max() <= tolerance * (expected.max() - expected.min()))


def _run(model: LanguageModel, fit: Fit, slots: Slots, ids: list[list[int]], prefix: Prefix | None = None) -> Tensor:
    part = Part(slots, torch.tensor(ids, device=model.device), prefix)
    return forward(model.module, [part], fit.layers, fit.accepts)


def _plain(model: LanguageModel, rows: Sequence[Sequence[int]]) -> Tensor:
    return torch.stack([model.plain_logits(torch.tensor([row]))[0, -1] for row in rows])  # (R, V)
