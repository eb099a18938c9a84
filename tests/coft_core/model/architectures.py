"""Small random models of many architectures, over bytes."""

from typing import Any

from coft_core.model.fake import byte_tokenizer
from coft_core.model.load import wrap_model
from tests.models.tiny import tiny_module

CONTEXT = 320
LONG: dict[str, Any] = {"max_position_embeddings": CONTEXT}

BUILDERS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", LONG),
    "llama eager": ("llama", {**LONG, "attn_implementation": "eager"}),
    "mistral": ("mistral", {**LONG, "sliding_window": None}),
    "mistral sliding": ("mistral", LONG),
    "mixtral": ("mixtral", {**LONG, "sliding_window": None}),
    "qwen2": ("qwen2", LONG),
    "gpt2": ("gpt2", {"n_positions": CONTEXT}),
    "gpt-neox": ("gpt_neox", LONG),
    "opt": ("opt", LONG),
}
"""The kind of each, and what is set besides."""

GROWING = ("mistral sliding",)
"""Those that preallocated rows do not fit."""

SLOTTED = tuple(name for name in BUILDERS if name not in GROWING)
"""Those that they fit."""

JOINING = tuple(name for name in SLOTTED if name != "llama eager")
"""Those whose rows may share a forward with rows of another memory."""


def random_model(name):
    """A model of random weights; its logits spread over several units, so that wrong keys are seen."""
    kind, changes = BUILDERS[name]
    return wrap_model(tiny_module(kind, **changes), byte_tokenizer(), name)
