"""Models to measure on: the embedded one, and random weights in the shapes of known architectures."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

import coft_core as cc
from coft_core.model.fake import byte_tokenizer
from coft_core.model.language_model import LanguageModel
from coft_core.model.load import wrap_model
from coft_core.model.packed import pack_linears, packed_bytes

DEMO = "demo"
CONTEXT = 8192
"""Positions of every random shape; weights do not depend on it."""

LOGIT_SPREAD = 3.5
"""Standard deviation of the logits of a random shape.

Weights as initialised give a nearly uniform distribution, which no trained model has and no one samples from. With this
spread a step over 32,000 tokens has an entropy of about five nats.
"""


@dataclass(frozen=True)
class Shape:
    """Sizes of a Llama-like model; ``dtype`` is that in which it is measured unless told otherwise."""

    layers: int
    hidden: int
    intermediate: int
    heads: int
    key_heads: int
    vocabulary: int
    dtype: str


SHAPES = {
    "tiny": Shape(2, 64, 128, 2, 1, 512, "float32"),
    "llama-134m": Shape(12, 768, 2048, 12, 12, 32_000, "float32"),
    "llama-7b": Shape(32, 4096, 11_008, 32, 32, 32_000, "bfloat16"),
    "llama-13b": Shape(40, 5120, 13_824, 40, 40, 32_000, "bfloat16"),
    "mistral-7b": Shape(32, 4096, 14_336, 32, 8, 32_000, "bfloat16"),
}
"""Llama 2 in 7B and 13B, Mistral 7B, a small Llama of 134 million parameters, and a toy for tests."""


def model_of(name: str, device: str, dtype: str | None = None) -> LanguageModel:
    """A model that never ends a text of its own accord."""
    if name == DEMO:
        model = cc.load_model(DEMO, device=device, dtype=dtype or "float32")
    else:
        model = _random(name, SHAPES[name], device, dtype)
    model.module.generation_config.eos_token_id = None
    pack_linears(model)
    return replace(model, end_token_ids=frozenset())


def as_transformers_has_it(model: LanguageModel) -> LanguageModel:
    """The model over the same weights, with nothing of what this engine prepares."""
    if not packed_bytes(model.module):
        return model
    module = copy.deepcopy(model.module, {id(tensor): tensor for tensor in model.module.parameters()})
    return replace(model, module=module, findings={})


def weight_bytes(model: LanguageModel) -> int:
    """Bytes of the weights that a step reads: all but the rows of an input embedding that is not the head, too."""
    embedding = model.module.get_input_embeddings().weight
    tied = embedding is model.module.get_output_embeddings().weight
    total = sum(int(p.nbytes) for p in model.module.parameters())
    return total if tied else total - int(embedding.nbytes)


def cell_bytes(model: LanguageModel) -> int:
    """Bytes of the keys and values of one token of one row."""
    config = model.module.config
    width = config.head_dim or config.hidden_size // config.num_attention_heads
    return int(2 * config.num_hidden_layers * config.num_key_value_heads * width * model.dtype.itemsize)


def _random(name: str, shape: Shape, device: str, dtype: str | None) -> LanguageModel:
    config = LlamaConfig(
        vocab_size=shape.vocabulary,
        hidden_size=shape.hidden,
        intermediate_size=shape.intermediate,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.key_heads,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=0,
        pad_token_id=0,
    )
    build: Any = LlamaForCausalLM._from_config
    with torch.random.fork_rng(), torch.device(device):
        torch.manual_seed(0)
        module: Any = build(config, dtype=getattr(torch, dtype or shape.dtype))
        # The state before the head has a root mean square of one, so the logits spread as its weights do.
        torch.nn.init.normal_(module.get_output_embeddings().weight, std=LOGIT_SPREAD * shape.hidden**-0.5)
    module = module.eval().requires_grad_(False)
    tokenizer: Any = byte_tokenizer()
    # The words play no part here; a tokenizer of the model's width, a byte a token, is all that the engine asks for.
    tokenizer.add_tokens([f"<{i}>" for i in range(shape.vocabulary - len(tokenizer))])
    return wrap_model(module, tokenizer, name=name)
