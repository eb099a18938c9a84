"""The embedded model as a GGUF file, for tests and benchmarks of llama.cpp."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch

import coft_core as cc

TENSORS = {
    "model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output",
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
}  # fmt: skip
CONTROL, NORMAL = 3, 1
"""Kinds of tokens in GGUF."""


def write_gguf(path: Path, kind: str = "F32", model: Any = None) -> Path:
    """Write a Llama with a byte-level tokenizer to a file; matrices get the kind where their width allows it."""
    model = model or cc.load_model("demo", device="cpu", dtype="float32")
    config, tokenizer = model.module.config, json.loads(model.tokenizer.backend_tokenizer.to_str())
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_vocab_size(config.vocab_size)
    writer.add_file_type(gguf.LlamaFileType["ALL_F32" if kind == "F32" else f"MOSTLY_{kind}"])
    _tokens(writer, model, tokenizer)
    for name, weight in model.module.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        heads = {"q": config.num_attention_heads, "k": config.num_key_value_heads}.get(name.split("_proj")[0][-1])
        if "self_attn" in name and heads:
            weight = _interleaved(weight, heads)
        _add(writer, _name(name), weight.to(torch.float32).numpy(), kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _tokens(writer: gguf.GGUFWriter, model: Any, tokenizer: dict[str, Any]) -> None:
    names = {i: token for token, i in tokenizer["model"]["vocab"].items()}
    special = {token["id"]: token["content"] for token in tokenizer["added_tokens"]}
    tokens = [special.get(i, names.get(i, f"<unused{i}>")) for i in range(model.vocabulary_size)]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types([CONTROL if i in special or i not in names else NORMAL for i in range(len(tokens))])
    # llama.cpp refuses a vocabulary without merges.
    writer.add_token_merges([" ".join(pair) for pair in tokenizer["model"]["merges"]] or ["a b"])
    writer.add_eos_token_id(model.tokenizer.eos_token_id)
    writer.add_add_bos_token(False)


def _name(name: str) -> str:
    stem, _, suffix = name.rpartition(".")
    if not stem.startswith("model.layers."):
        return f"{TENSORS[stem]}.{suffix}"
    _, _, layer, part = stem.split(".", 3)
    return f"blk.{layer}.{TENSORS[part]}.{suffix}"


def _interleaved(weight: torch.Tensor, heads: int) -> torch.Tensor:
    """Rows of a projection in the order in which llama.cpp rotates pairs."""
    return weight.reshape(heads, 2, -1, weight.shape[1]).transpose(1, 2).reshape(weight.shape)


def _add(writer: gguf.GGUFWriter, name: str, weight: np.ndarray, kind: str) -> None:
    kind_of = gguf.GGMLQuantizationType[kind]
    block = gguf.GGML_QUANT_SIZES[kind_of][0]
    if weight.ndim < 2 or kind == "F32" or weight.shape[-1] % block:
        writer.add_tensor(name, weight)
        return
    writer.add_tensor(name, gguf.quantize(weight, kind_of), raw_dtype=kind_of)
