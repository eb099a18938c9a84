"""What cannot be audited is refused when it is loaded, in one true sentence, and nothing of its own is run."""

import io
import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertForSequenceClassification,
    T5Config,
)

import coft_core as cc
from coft_core.errors import ModelLoadError
from coft_core.model.fake import byte_tokenizer
from coft_core.model.load import wrap_model
from coft_core.model.memory_fit import fit_of
from coft_core.scorers.classifier import load_classifier
from tests.models.tiny import tiny_config, tiny_module


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved")
    tiny_module("llama").save_pretrained(folder)
    byte_tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture
def folder(saved, tmp_path):
    """A model's folder, to be damaged."""
    return shutil.copytree(saved, tmp_path / "m")


def configured(folder, **changes):
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def weights(folder, change):
    path = folder / "model.safetensors"
    held = load_file(path)
    change(held)
    save_file(held, path, metadata={"format": "pt"})


def refusal(source):
    with pytest.raises(ModelLoadError) as caught:
        cc.load_model(str(source), device="cpu")
    said = str(caught.value)
    assert "\n" not in said
    return said


def test_a_model_without_keys_and_values_is_refused_at_load():
    with pytest.raises(ModelLoadError, match="takes nothing of earlier tokens"):
        wrap_model(tiny_module("openai-gpt"), byte_tokenizer(), "gpt")


@pytest.mark.parametrize("fault", ["wrong", "fails"])
def test_a_model_whose_cached_path_is_not_the_uncached_one_is_refused_whatever_it_calls_itself(fault):
    module = tiny_module("mistral")
    plain = module.forward

    def forward(input_ids, past_key_values=None, **others):
        if past_key_values is None or past_key_values.get_seq_length() == 0:
            return plain(input_ids, past_key_values=past_key_values, **others)
        if fault == "fails":
            raise IndexError("list index out of range")
        return plain((input_ids + 1) % 258, past_key_values=past_key_values, **others)

    module.forward = forward
    expected = {"wrong": "other logits than from the whole text", "fails": "IndexError: list index out of range"}
    with pytest.raises(ModelLoadError, match=rf"'m' cannot be decoded step by step: .*{expected[fault]}"):
        wrap_model(module, byte_tokenizer(), "m")


def test_a_model_that_keeps_other_tensors_than_it_attends_to_shares_no_forwards():
    model = wrap_model(tiny_module("deepseek_v3"), byte_tokenizer(), "mla")
    assert not fit_of(model).joins
    assert len(cc.generate(model, "She was", cc.CoftPolicy(), spans=[], max_new_tokens=3).steps) == 3


def test_weights_of_other_shapes_are_one_sentence_that_names_no_option_that_is_not_there(folder):
    configured(folder, hidden_size=16)
    said = refusal(folder)
    assert "other shapes than its config.json says" in said
    assert "ignore_mismatched_sizes" not in said


def test_weights_that_are_missing_are_never_made_up(folder):
    weights(folder, lambda held: held.pop("model.norm.weight"))
    assert "lack 1 of its weights, such as 'model.norm.weight'" in refusal(folder)


def test_weights_that_are_no_numbers_are_not_called_a_model_that_looks_ahead(folder):
    weights(folder, lambda held: held["model.norm.weight"].fill_(float("nan")))
    assert "no numbers: its weights are damaged" in refusal(folder)


def test_pickled_weights_are_not_read(folder):
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    assert "no weights in safetensors files" in refusal(folder)


def test_a_configuration_that_makes_no_model_is_one_sentence(folder):
    for changes in ({"hidden_size": "many"}, {"num_attention_heads": 3}, {"num_hidden_layers": -1}):
        configured(folder, **changes)
        assert "cannot be loaded" in refusal(folder)


@pytest.mark.parametrize("error", [MemoryError(), OSError(12, "Cannot allocate memory")])
def test_memory_that_runs_out_is_one_sentence(folder, monkeypatch, error):
    def full(*_, **__):
        raise error

    monkeypatch.setattr("coft_core.model.load.weights_digest", full)
    assert "does not fit into the memory" in refusal(folder)


def test_a_single_file_is_called_a_file(tmp_path):
    (tmp_path / "m.ggml").write_bytes(b"ggml")
    assert "names a file" in refusal(tmp_path / "m.ggml")


def test_what_a_configuration_names_is_refused_for_what_it_is(folder):
    for architecture, model_type, said in (
        ("Qwen2VLForConditionalGeneration", "qwen2_vl_text", "reads images or sound besides text"),
        ("NobodysForCausalLM", "vit", "does not have"),
        ("LlamaForSequenceClassification", "llama", "not a causal language model"),
        ("NobodysForCausalLM", "nobodys", "does not have"),
    ):
        (folder / "config.json").write_text(json.dumps({"architectures": [architecture], "model_type": model_type}))
        assert said in refusal(folder)


def test_an_encoder_with_a_decoder_is_called_that(folder):
    T5Config(architectures=["T5ForConditionalGeneration"]).save_pretrained(folder)
    assert "T5ForConditionalGeneration, an encoder with a decoder" in refusal(folder)


@pytest.mark.parametrize("kind", ["model", "scorer"])
def test_a_folder_s_own_code_never_runs_even_if_the_terminal_says_yes(saved, folder, tmp_path, monkeypatch, kind):
    ran = tmp_path / "ran"
    (folder / "own.py").write_text(f"open({str(ran)!r}, 'w').write('x')\n")
    own = dict.fromkeys(("AutoConfig", "AutoModelForCausalLM", "AutoModelForSequenceClassification"), "own.Own")
    configured(folder, model_type="own", architectures=["OwnForCausalLM"], auto_map=own)
    (folder / "tokenizer_config.json").write_text(json.dumps({"auto_map": {"AutoTokenizer": ["own.Own", "own.Own"]}}))
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n" * 20))
    with pytest.raises(ModelLoadError, match="code of its own"):
        cc.load_model(str(folder), device="cpu") if kind == "model" else load_classifier(str(folder))
    assert not ran.exists()
    cc.load_model(str(saved), device="cpu")


def rounding(of_the_batch):
    """A model whose linear layers round their inputs to 8 bits, by one scale for the batch or by one for each token."""
    module = tiny_module("llama")

    def rounded(_, inputs):
        (states,) = inputs
        largest = states.abs().max() if of_the_batch else states.abs().amax(-1, keepdim=True)
        scale = largest / 127
        return ((states / scale).round() * scale,)

    for part in module.modules():
        if isinstance(part, torch.nn.Linear):
            part.register_forward_pre_hook(rounded)
    module.config.quantization_config = {"quant_method": "fp8"}
    return module


def test_quantised_weights_that_let_the_rows_of_a_batch_feel_each_other_are_refused():
    with pytest.raises(ModelLoadError, match=r"'m' cannot be audited with fp8 weights: what else is in a batch moved"):
        wrap_model(rounding(of_the_batch=True), byte_tokenizer(), "m")
    assert wrap_model(rounding(of_the_batch=False), byte_tokenizer(), "m").quantization == "fp8"


OWN_CODE = """
import pathlib
from transformers import LlamaConfig, LlamaForCausalLM

pathlib.Path({ran!r}).write_text("x")


class OwnConfig(LlamaConfig):
    model_type = "own"


class OwnForCausalLM(LlamaForCausalLM):
    config_class = OwnConfig
"""


def test_the_code_of_a_model_that_the_owner_trusts_by_name_runs(folder, tmp_path, monkeypatch):
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    ran = tmp_path / "ran"
    (folder / "own.py").write_text(OWN_CODE.format(ran=str(ran)))
    own = {"AutoConfig": "own.OwnConfig", "AutoModelForCausalLM": "own.OwnForCausalLM"}
    configured(folder, model_type="own", architectures=["OwnForCausalLM"], auto_map=own)
    with pytest.raises(ModelLoadError, match=r"have the program's owner trust it \(COFT_TRUST_REMOTE_CODE\)\.$"):
        cc.load_model(str(folder), device="cpu", trusted=["another"])
    assert not ran.exists()
    model = cc.load_model(str(folder), device="cpu", trusted=[str(folder)])
    assert ran.exists()
    assert type(model.module).__name__ == "OwnForCausalLM"


def test_a_classifier_without_its_own_head_is_refused_rather_than_given_a_random_one(tmp_path):
    config = tiny_config(BertConfig)
    BertForMaskedLM(config).save_pretrained(tmp_path)
    byte_tokenizer().save_pretrained(tmp_path)
    with pytest.raises(ModelLoadError, match=r"toxicity scorer cannot be used: .*lack .* of its weights"):
        load_classifier(f"{tmp_path}#label_1")
    BertForSequenceClassification(config).save_pretrained(tmp_path)
    assert load_classifier(f"{tmp_path}#label_1", "cpu").label == 1
    path = tmp_path / "model.safetensors"
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(ModelLoadError, match=r"toxicity scorer cannot be used: .*damaged"):
        load_classifier(f"{tmp_path}#label_1")
