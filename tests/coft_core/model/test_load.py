"""Loading: what is refused, and in which words."""

import json

import pytest
import torch

import coft_core as cc
from coft_core.errors import ModelLoadError
from coft_core.model.fake import byte_tokenizer, tiny_model
from coft_core.model.language_model import weights_digest
from coft_core.model.load import wrap_model
from coft_core.model.loading import LoadingPhase
from tests.models.tiny import tiny_module


def llama(vocabulary):
    return tiny_module("llama", vocab_size=vocabulary)


def save(folder, module, tokenizer=None):
    module.save_pretrained(folder)
    (tokenizer or byte_tokenizer()).save_pretrained(folder)
    return str(folder)


def test_a_saved_model_loads_frozen_in_float32_or_in_the_dtype_asked_for(tmp_path):
    model = cc.load_model(save(tmp_path, llama(258)), device="cpu")
    assert model.dtype is torch.float32
    assert not any(p.requires_grad for p in model.module.parameters())
    assert model.context_length == 96
    assert cc.load_model(save(tmp_path, llama(258)), device="cpu", dtype="bfloat16").dtype is torch.bfloat16
    with pytest.raises(ModelLoadError, match="no floating type"):
        cc.load_model(str(tmp_path), dtype="int8")


def test_a_name_that_leads_nowhere_is_refused_in_one_sentence():
    for name, message in (
        ("", "model name is empty"), ("/no/such/folder", "holds no model that can be read"),
        ("./neither/this", "holds no model that can be read"), ("l" * 300, "There is no model"),
        ("l" * 5000, "has 5,000 characters"),
    ):  # fmt: skip
        with pytest.raises(ModelLoadError, match=message) as caught:
            cc.load_model(name)
        assert "\n" not in str(caught.value)


OTHERS = {"list": "[1]", "program": '{"name": "x", "version": 1}', "text": "config", "deep": "[" * 100_000}
"""What stands in a config.json of other programs."""
NOWHERE = ("folder", "file", "forbidden", "nowhere", "~nobody-of-this-name", "a\0b", "l" * 300, "up", *OTHERS)


@pytest.mark.parametrize("there", NOWHERE)
def test_what_is_there_without_being_a_model_answers_as_what_is_not_there(tmp_path, there):
    path = str(tmp_path / there)
    if there == "folder":
        (tmp_path / there).mkdir()
    elif there == "file":
        (tmp_path / there).write_text("{}")
    elif there == "forbidden":
        (tmp_path / there).mkdir(mode=0)
    elif there.startswith("~"):
        path = there
    elif there == "up":
        path = "tests/.."
    elif there in OTHERS:
        (tmp_path / there).mkdir()
        (tmp_path / there / "config.json").write_text(OTHERS[there])
    with pytest.raises(ModelLoadError) as caught:
        cc.load_model(path)
    with pytest.raises(ModelLoadError) as other:
        cc.load_model("/nonexistent")
    assert str(caught.value).replace(repr(path), "") == str(other.value).replace("'/nonexistent'", "")


@pytest.mark.parametrize(
    ("field", "value"),
    [("num_hidden_layers", 1_000_000), ("hidden_size", 1 << 40), ("vocab_size", 1 << 60), ("num_attention_heads", -4)],
)
def test_a_configuration_of_an_absurd_size_is_refused_before_anything_is_built(tmp_path, monkeypatch, field, value):
    folder = save(tmp_path, llama(258))
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {field: value}))
    monkeypatch.setattr(
        "coft_core.model.requirements.AutoModelForCausalLM.from_pretrained",
        lambda *_, **__: pytest.fail("it was built"),
    )
    with pytest.raises(ModelLoadError, match="cannot be loaded"):
        cc.load_model(folder, device="cpu")


def test_a_cut_file_of_weights_is_refused_before_another_model_has_to_go(tmp_path):
    folder = save(tmp_path, llama(258))
    (weights,) = tmp_path.glob("*.safetensors")
    weights.write_bytes(weights.read_bytes()[:-100])
    phases = []
    with pytest.raises(ModelLoadError, match="are damaged"):
        cc.load_model(folder, device="cpu", progress=phases.append)
    assert LoadingPhase.WEIGHTS not in phases


def test_a_hub_id_that_cannot_be_had_is_refused_in_one_sentence(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(ModelLoadError) as caught:
        cc.load_model("nobody-here/no-such-model")
    assert "nobody-here/no-such-model" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_bidirectional_model_is_refused_by_its_behaviour():
    with pytest.raises(ModelLoadError, match="looks at later tokens"):
        wrap_model(tiny_module("bert", is_decoder=False), byte_tokenizer(), "bert")


@pytest.mark.parametrize("vocabulary", [200, 400])
def test_a_vocabulary_that_differs_between_tokenizer_and_model_is_refused(vocabulary):
    with pytest.raises(ModelLoadError, match=r"tokenizer of 258 tokens and a model of"):
        wrap_model(llama(vocabulary), byte_tokenizer(), "odd")


def test_a_padded_embedding_is_accepted_and_slow_tokenizers_and_missing_templates_are_not():
    assert wrap_model(llama(264), byte_tokenizer(), "padded").vocabulary_size == 264

    class Slow:
        is_fast = False

    with pytest.raises(ModelLoadError, match="slow tokenizer"):
        wrap_model(llama(258), Slow(), "slow")
    with pytest.raises(ModelLoadError, match="no chat template"):
        wrap_model(llama(258), byte_tokenizer(), "plain", chat=True)


def test_texts_of_tokens_and_digests_of_weights_tell_what_they_should():
    first, second = llama(258), llama(258)
    assert weights_digest(first) == weights_digest(second)
    with torch.no_grad():
        second.model.embed_tokens.weight[3, 3] += 1e-3
    assert weights_digest(first) != weights_digest(second)
    model = tiny_model()
    ids = model.tokenizer.encode(" he said")
    assert "".join(model.token_text(i) for i in ids) == " he said"
    assert model.continuation_text(ids) == " he said"
    assert model.continuation_text(model.tokenizer.encode("naïve")) == "naïve"
    model = tiny_model()
    assert model.token_text(model.single_token("x")) == "x"
    assert model.single_token("xy") is None
    assert model.single_token("") is None


def test_a_folder_whose_tokenizer_is_broken_is_refused(tmp_path):
    folder = save(tmp_path, llama(258))
    (tmp_path / "tokenizer.json").write_text(json.dumps({"not": "a tokenizer"}))
    with pytest.raises(ModelLoadError):
        cc.load_model(folder)
