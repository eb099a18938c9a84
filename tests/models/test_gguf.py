"""A GGUF file is a model by itself where the package that reads it is installed, and else the sentence names it."""

import numpy as np
import pytest
import torch

import coft_core as cc
from coft_core.errors import ModelLoadError
from coft_core.model.fake import byte_tokenizer

WIDTH, HEADS, KEY_HEADS, INNER = 32, 4, 2, 64


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    gguf = pytest.importorskip("gguf")
    path = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_context_length(128)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(1)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KEY_HEADS)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(10000.0)
    vocabulary = sorted(byte_tokenizer().get_vocab().items(), key=lambda item: item[1])
    vocabulary.append(("Ġt", len(vocabulary)))
    writer.add_vocab_size(len(vocabulary))
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list([token for token, _ in vocabulary])
    writer.add_token_types([3 if token.startswith("<") and len(token) > 1 else 1 for token, _ in vocabulary])
    writer.add_token_merges(["Ġ t"])
    writer.add_eos_token_id(dict(vocabulary)["<eos>"])
    draw = np.random.default_rng(0)
    narrow = WIDTH * KEY_HEADS // HEADS
    shapes = {
        "token_embd": (len(vocabulary), WIDTH), "output": (len(vocabulary), WIDTH),
        "blk.0.attn_q": (WIDTH, WIDTH), "blk.0.attn_k": (narrow, WIDTH), "blk.0.attn_v": (narrow, WIDTH),
        "blk.0.attn_output": (WIDTH, WIDTH), "blk.0.ffn_gate": (INNER, WIDTH), "blk.0.ffn_up": (INNER, WIDTH),
        "blk.0.ffn_down": (WIDTH, INNER),
    }  # fmt: skip
    for name, shape in shapes.items():
        writer.add_tensor(f"{name}.weight", draw.normal(0, 0.3, shape).astype(np.float32))
    for name in ("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"):
        writer.add_tensor(f"{name}.weight", np.ones(WIDTH, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_a_gguf_file_is_loaded_and_decoded(file):
    model = cc.load_model(str(file), device="cpu")
    assert model.context_length == 128
    assert model.dtype == torch.float32
    run = cc.generate(model, "She was", cc.CoftPolicy(), spans=[], max_new_tokens=3)
    assert len(run.steps) == 3


def test_without_the_package_that_reads_it_the_sentence_names_the_package(file, monkeypatch):
    monkeypatch.setattr("coft_core.model.load.is_gguf_available", lambda: False)
    with pytest.raises(ModelLoadError, match=r"needs the package gguf .* install it \(pip install gguf\)\.$"):
        cc.load_model(str(file), device="cpu")


def test_a_damaged_file_and_one_that_is_not_there_are_one_sentence(file, tmp_path):
    for content in (b"GGUF", file.read_bytes()[:3000]):
        damaged = tmp_path / "m.gguf"
        damaged.write_bytes(content)
        with pytest.raises(ModelLoadError) as caught:
            cc.load_model(str(damaged), device="cpu")
        assert "\n" not in str(caught.value)
    with pytest.raises(ModelLoadError, match="holds no model that can be read here"):
        cc.load_model(str(tmp_path / "none.gguf"), device="cpu")
