"""A small model of random weights for any configuration that transformers has, by making its numbers small."""

from __future__ import annotations

from typing import Any

import torch
from transformers import CONFIG_MAPPING, PreTrainedConfig

from coft_core.model.requirements import loader_of

VOCABULARY = 258
CONTEXT = 96
WINDOW = 6

NUMBERS: dict[int, str] = {
    VOCABULARY: "vocab_size n_vocab vocab_size_per_layer_input",
    32: """hidden_size n_embd d_model dim embedding_dim emb_dim embedding_size word_embed_proj_dim attention_hidden_size
        lru_width mamba_d_ssm hidden_dim""",
    64: """intermediate_size ffn_dim d_ff n_inner d_inner decoder_ffn_dim encoder_ffn_dim ffn_hidden_size block_ff_dim
        shared_intermediate_size intermediate_size_mlp dense_intermediate_size mlp_dim expert_ffn_hidden_size""",
    16: """moe_intermediate_size shared_expert_intermediate_size moe_shared_expert_intermediate_size mamba_d_head
        mamba_head_dim index_head_dim moe_latent_size expert_intermediate_size""",
    8: """head_dim attention_head_dim global_head_dim swa_head_dim qk_nope_head_dim v_head_dim q_lora_rank kv_lora_rank
        o_lora_rank linear_key_head_dim linear_value_head_dim mamba_d_state ssm_state_size state_size d_kv kv_channels
        hidden_size_per_layer_input laurel_rank chunk_size mamba_chunk_size swa_v_head_dim time_step_rank mamba_dt_rank
        router_hidden_size block_multiple_of block_size""",
    4: """num_attention_heads n_head n_heads num_heads decoder_attention_heads encoder_attention_heads num_experts
        num_local_experts n_routed_experts moe_num_experts mamba_num_heads mamba_n_heads linear_num_value_heads
        qk_rope_head_dim mamba_d_conv conv_kernel linear_conv_kernel_dim rotary_dim swa_num_attention_heads
        index_n_heads n_mamba_heads""",
    2: """num_key_value_heads num_hidden_layers n_layer n_layers num_layers decoder_layers encoder_layers
        num_experts_per_tok moe_k moe_topk num_experts_per_token top_k_experts linear_num_key_heads mamba_n_groups
        n_groups index_topk swa_num_key_value_heads num_global_key_value_heads top_k moe_router_topk num_hidden_groups
        mamba_ngroups""",
    1: """n_group topk_group n_shared_experts first_k_dense_replace num_shared_experts num_codebooks
        num_nextn_predict_layers""",
    CONTEXT: """max_position_embeddings n_positions n_ctx max_seq_len seq_length context_length max_target_positions
        max_source_positions""",
    WINDOW: "sliding_window attention_window_size attention_chunk_size sliding_window_size window_size",
}
"""What each setting of a configuration becomes, where the configuration has it as a whole number."""

SMALL = {name: number for number, names in NUMBERS.items() for name in names.split()}
SPREAD = ("initializer_range", "init_std", "initializer_std")
"""Standard deviations of random weights: large, so that wrong keys and states are seen in the logits."""

AXES = {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 1, 1]}}
ZAMBA = {"attention_hidden_size": 64, "attention_head_dim": 16}
HYBRID = {"layer_types": ["linear_attention", "full_attention"]}
MAMBA = {"mamba_n_heads": 4, "mamba_d_head": 16, "mamba_n_groups": 1}

OVERRIDES: dict[str, dict[str, Any]] = {
    "axk2": {"head_dim": 4},
    "bailing_hybrid": {"linear_head_dim": 8, "linear_num_heads": 4, "num_expert_group": 1, "qk_head_dim": 12, **HYBRID,
                       "first_k_dense_replace": 1, "mlp_layer_types": ["dense", "sparse"]},
    "blt": {"encoder_hash_byte_group_vocab": 64, "encoder_hash_byte_group_size": [2, 3]},
    "blt_local_decoder": {"hidden_size_global": 32},
    "blt_local_encoder": {"hidden_size_global": 32},
    "bamba": {"attn_layer_indices": [1], **MAMBA},
    "cohere_compass_text": {"rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 10000.0}}},
    "cpmant": {"dim_head": 8, "dim_ff": 64, "prompt_types": 8, "prompt_length": 2, "segment_types": 32},
    "ctrl": {"dff": 64},
    "dbrx": {"rope_theta": 10000.0, "attn_config": {"kv_n_heads": 2, "rope_theta": 10000.0, "clip_qkv": 8.0},
             "ffn_config": {"hidden_size": 32, "ffn_hidden_size": 32, "moe_num_experts": 4, "moe_top_k": 2}},
    "deepseek_v2": {"num_experts_per_tok": 2, "n_shared_experts": 1, "qk_head_dim": 12},
    "deepseek_v32": {"index_topk": 4, "head_dim": 4},
    "dots1": {"n_shared_experts": 1, "n_routed_experts": 4, "num_experts_per_tok": 2},
    "dots3_note_audio_encoder": {"adapter_input_size": 32, "adapter_out_dim": 32, "downsample_hidden_size": 8},
    "dots3_note_vision_encoder": {"adapter_in_dim": 32, "adapter_out_dim": 32},
    "falcon_h1": {"mamba_d_ssm": 64, "mamba_d_head": 16, "mamba_n_groups": 1},
    "gemma3n_text": {"num_kv_shared_layers": 0, "altup_num_inputs": 2, "activation_sparsity_pattern": None},
    **dict.fromkeys(
        ("glm4v_text", "glm_ocr_text", "glmga_text", "paddleocr_vl_text", "qwen2_5_omni_text", "qwen2_5_vl_text",
         "qwen2_vl_text"), AXES),
    "glm4v_moe_text": {"rope_parameters": {**AXES["rope_parameters"], "mrope_section": [1, 1, 0]}},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]]},
    "granitemoehybrid": {"layer_types": ["mamba", "attention"], **MAMBA},
    "hunyuan_v1_dense": {"head_dim": 8},
    "hunyuan_v1_moe": {"head_dim": 8, "moe_topk": 1},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1, "mamba_dt_rank": 4},
    "kimi_linear": {"linear_head_dim": 8, "linear_num_heads": 4, "qk_head_dim": 12, **HYBRID,
                    "mlp_layer_types": ["dense", "sparse"]},
    "lfm2": {"layer_types": ["conv", "full_attention"]},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"]},
    "longcat_flash": {"expert_ffn_hidden_size": 16, "zero_expert_num": 2},
    "mamba2": {"num_heads": 4, "head_dim": 16, "n_groups": 1},
    "ministral": {"head_dim": 8},
    "nemotron": {"num_key_value_heads": 2, "head_dim": 8},
    "qwen4_exp_text": {"indexer_n_heads": 2, "indexer_kv_heads": 1, "indexer_head_dim": 8, "indexer_budget": 8,
                       "indexer_compress_ratio": 2, "layer_types": ["linear_attention", "indexed_attention"],
                       "hc_count": 2, "hc_lowrank": 8, "ple_layer_ids": [1], "ple_embed_dim": 32, "heads_per_ngram": 2,
                       "ngram_vocab_size_base": 50, "make_ngram_vocab_size_divisible_by": 8, "split_ngram_parts": 1},
    "recurrent_gemma": {"block_types": ["recurrent", "attention"], "num_key_value_heads": 2, "head_dim": 8},
    "reformer": {"is_decoder": True, "axial_pos_embds": False, "attn_layers": ["local", "local"],
                 "local_attn_chunk_length": 8, "attention_head_size": 8, "feed_forward_size": 64},
    "roc_bert": {"pronunciation_vocab_size": 16, "shape_vocab_size": 16},
    "xlstm": {"chunk_size": 8, "num_blocks": 2, "hidden_size": 128, "embedding_dim": 128},
    "xmod": {"languages": ["en_XX"], "default_language": "en_XX"},
    "zamba": {"layers_block_type": ["linear_attention", "hybrid", "hybrid"], "num_hidden_layers": 3, **ZAMBA,
              "mamba_dt_rank": 4, "n_mamba_heads": 2},
    "zamba2": {"layers_block_type": ["linear_attention", "hybrid"], "hybrid_layer_ids": [1], **ZAMBA,
               "mamba_headdim": 16, "n_mamba_heads": 4, "num_key_value_heads": 4, "initializer_range": 0.1},
}  # fmt: skip
"""What a kind of model needs besides, by its ``model_type``."""


UNWRITTEN = "no small configuration of it was written"
NOT_MADE = {
    **dict.fromkeys(
        [
            "chameleon",
            "deepseek_ocr2",
            "diffusion_gemma",
            "ernie4_5_vl_moe",
            "evolla",
            "exaone4_5",
            "glm5_next",
            "granite4_vision",
            "granite_docling",
            "hunyuan_vl",
            "inkling2",
            "kosmos-2.5",
            "mistral4",
            "mistral_large4",
            "molmo2",
            "muse_spark",
            "nemotron_h_omni",
            "step3p7",
            "t5gemma2",
        ],
        UNWRITTEN,
    ),
    **dict.fromkeys(
        ["gemma4_assistant", "gemma4_unified_assistant"],
        "it drafts tokens for another model, with that model's keys and values",
    ),
}
"""Kinds of which no small model is made here, and why."""


def tiny_config(config_class: type[PreTrainedConfig], **changes: Any) -> PreTrainedConfig:
    """A configuration of a class with small numbers, but for what is said."""
    return config_class(**{**_small(config_class()), **changes})


def tiny_module(model_type: str, seed: int = 1, **changes: Any) -> Any:
    """A causal model of random weights of a kind, by the name that transformers gives it."""
    return random_module(tiny_config(CONFIG_MAPPING[model_type], **changes), seed)


def random_module(config: PreTrainedConfig, seed: int = 1) -> Any:
    """A causal model of random weights, in evaluation mode."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        module: Any = loader_of(config).from_config(config)
    return module.eval().requires_grad_(False)


def _small(config: PreTrainedConfig) -> dict[str, Any]:
    held = config.to_dict()
    depth = held.get("num_hidden_layers")
    small: dict[str, Any] = {}
    kinds = list(dict.fromkeys(held.get("layer_types") or ()))
    layers = kinds * 2 if len(kinds) == 1 else kinds
    for name, value in held.items():
        if name in SMALL and isinstance(value, int) and not isinstance(value, bool):
            small[name] = min(value, SMALL[name]) if SMALL[name] < 8 and value > 0 else SMALL[name]
        elif name in SPREAD and isinstance(value, float):
            small[name] = 0.3
        elif isinstance(value, dict) and "mrope_section" in value:
            small[name] = {**value, "mrope_section": [2, 1, 1]}
        elif isinstance(value, list) and depth and len(value) == depth and name != "layer_types":
            # A setting of each layer: its first and its last values.
            small[name] = [SMALL.get(name, each) for each in (*value[: max(len(layers), 2) - 1], value[-1])]
    if layers:
        small |= {"layer_types": layers, "num_hidden_layers": len(layers)}
    if "qk_rope_head_dim" in held:
        small |= {"head_dim": 4, "num_key_value_heads": 4} if "head_dim" in held else {"num_key_value_heads": 4}
    if held.get("is_decoder") is False or held.get("is_encoder_decoder"):
        # Of these the decoder alone is a causal model, and says so.
        small |= {"is_decoder": True, "is_encoder_decoder": False}
    for name in config.sub_configs:
        if isinstance(part := getattr(config, name, None), PreTrainedConfig):
            small[name] = _small(part)
    small |= {"bos_token_id": 1, "eos_token_id": 0, "pad_token_id": 0}
    return {**small, **OVERRIDES.get(config.model_type, {})}
