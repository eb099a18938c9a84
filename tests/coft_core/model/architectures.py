"""Small random models of many architectures, over bytes."""

from collections.abc import Callable
from typing import Any

import torch
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
    OPTConfig,
    OPTForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from coft_core.model.fake import byte_tokenizer
from coft_core.model.load import wrap_model

CONTEXT = 320
SIZE: dict[str, Any] = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
LONG: dict[str, Any] = {**SIZE, "max_position_embeddings": CONTEXT, "initializer_range": 0.3}
GROUPED: dict[str, Any] = {**LONG, "num_key_value_heads": 2}
EAGER: dict[str, Any] = {**GROUPED, "attn_implementation": "eager"}

BUILDERS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "llama": lambda common: LlamaForCausalLM(LlamaConfig(**GROUPED, **common)),
    "llama eager": lambda common: LlamaForCausalLM(LlamaConfig(**EAGER, **common)),
    "mistral": lambda common: MistralForCausalLM(MistralConfig(**GROUPED, sliding_window=None, **common)),
    "mistral sliding": lambda common: MistralForCausalLM(MistralConfig(**GROUPED, sliding_window=6, **common)),
    "mixtral": lambda common: MixtralForCausalLM(
        MixtralConfig(**GROUPED, num_local_experts=4, num_experts_per_tok=2, sliding_window=None, **common)
    ),
    "qwen2": lambda common: Qwen2ForCausalLM(Qwen2Config(**GROUPED, **common)),
    "gpt2": lambda common: GPT2LMHeadModel(
        GPT2Config(n_embd=32, n_layer=2, n_head=4, n_positions=CONTEXT, initializer_range=0.3, **common)
    ),
    "gpt-neox": lambda common: GPTNeoXForCausalLM(GPTNeoXConfig(**LONG, **common)),
    "opt": lambda common: OPTForCausalLM(
        OPTConfig(
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=4,
            ffn_dim=64,
            word_embed_proj_dim=32,
            max_position_embeddings=CONTEXT,
            init_std=0.3,
            **common,
        )
    ),
}
"""How each is built."""

GROWING = ("mistral sliding",)
"""Those that preallocated rows do not fit."""

SLOTTED = tuple(name for name in BUILDERS if name not in GROWING)
"""Those that they fit."""

JOINING = tuple(name for name in SLOTTED if name != "llama eager")
"""Those whose rows may share a forward with rows of another memory."""


def random_model(name):
    """A model of random weights; its logits spread over several units, so that wrong keys are seen."""
    tokenizer = byte_tokenizer()
    common = {"vocab_size": len(tokenizer), "bos_token_id": None, "eos_token_id": 0, "pad_token_id": 0}
    with torch.random.fork_rng():
        torch.manual_seed(1)
        module = BUILDERS[name](common).eval().requires_grad_(False)
    return wrap_model(module, tokenizer, name)
