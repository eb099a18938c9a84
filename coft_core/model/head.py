"""A model taken apart into base and head, so that logits need never be held for a whole batch."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from coft_core.model.language_model import LanguageModel

LOGIT_SETTINGS = (
    "final_logit_softcapping",
    "final_logit_soft_cap",
    "logit_scale",
    "logits_scaling",
    "lm_head_multiplier",
    "output_multiplier",
    "output_multiplier_scale",
    "mup_width_scale",
    "attention_logit_scale",
)
"""Configuration entries with which known architectures change the logits after their head."""

NEUTRAL = (None, False, 0, 1, 1.0)
"""Values of such an entry that change nothing; a true change that hides behind one is found by the probe."""

_PROBE_TOKENS = 8
_KEPT_AS = "parts"


@dataclass(frozen=True, slots=True)
class SplitModel:
    """The base model, which returns hidden states, and the head, whose output is the model's logits.

    Attributes:
        base: Transformer without its head; ``last_hidden_state`` of its output is what the head reads.
        head: Maps hidden states ``(..., H)`` to logits ``(..., V)``.
    """

    base: nn.Module
    head: nn.Module


def split_model(model: LanguageModel) -> SplitModel | None:
    """Take a model apart, if its logits are its head's output and nothing else.

    Models that cap or scale their logits after the head (Gemma 2 and 3, Granite, Cohere, Falcon H1 and others) are not
    taken apart: their own forward must have the last word. They are told by the entries :data:`LOGIT_SETTINGS` of
    their configuration, and whatever these miss by a probe: on random tokens, base and head must give the very bits
    that the model's own forward gives. What is found is remembered with the model. While a hook is attached to the
    module itself, base and head would pass it by.

    Args:
        model: Any transformers causal language model.

    Returns:
        The parts; None if the model's own forward has to be used.
    """
    module = model.module
    if getattr(module, "_forward_hooks", None) or getattr(module, "_forward_pre_hooks", None):
        return None
    kept = model.findings.get(_KEPT_AS)
    if kept is None or kept[0] is not module:
        kept = model.findings[_KEPT_AS] = (module, _parts(model))
    found: SplitModel | None = kept[1]
    return found


def _parts(model: LanguageModel) -> SplitModel | None:
    module = model.module
    base, head = getattr(module, "base_model", None), module.get_output_embeddings()
    if not (isinstance(base, nn.Module) and isinstance(head, nn.Module)) or base is module:
        return None
    settings = module.config.get_text_config(decoder=True)
    if any(getattr(settings, name, None) not in NEUTRAL for name in LOGIT_SETTINGS):
        return None
    parts = SplitModel(base, head)
    return parts if _same_bits(model, parts) else None


def accepted_arguments(forward: Any) -> frozenset[str]:
    """Names of a forward's parameters."""
    return frozenset(inspect.signature(forward).parameters)


def _same_bits(model: LanguageModel, parts: SplitModel) -> bool:
    generator = torch.Generator().manual_seed(0)
    length = min(_PROBE_TOKENS, model.context_length - 1)
    ids = torch.randint(model.vocabulary_size, (2, length), generator=generator).to(model.device)  # (2, L)
    with torch.inference_mode():
        hidden = getattr(parts.base(input_ids=ids, use_cache=False), "last_hidden_state", None)
        width = getattr(parts.head, "in_features", None)
        if not isinstance(hidden, Tensor) or (width is not None and hidden.shape[-1] != width):
            return False
        own = model.module(input_ids=ids, use_cache=False).logits  # (2, L, V)
        return torch.equal(parts.head(hidden).float(), own.float())
