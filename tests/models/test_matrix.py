"""A sample of the matrix: one class of each way in which models keep what they have read, and the sentences of others.

``make matrix`` tries all classes that transformers maps.
"""

import re

import pytest
import transformers

import coft_core as cc
from coft_core.model.fake import byte_tokenizer
from tests.models.matrix import architecture_of, configurations, examined, require_equal, with_images
from tests.models.table import DOCUMENT
from tests.models.tiny import random_module, tiny_config

WORKS = {
    "llama": "slots", "gemma2": "growing", "bloom": "growing", "roberta": "states", "deepseek_v32": "states",
    "qwen3_5_text": "states", "lfm2": "states", "jamba": "states", "falcon_h1": "states", "nemotron_h": "states",
    "llama4": "growing", "gemma3": "growing", "gemma4_text": "growing",
}  # fmt: skip
EACH_WAY = ("llama", "gemma2", "roberta", "qwen3_5_text", "llama4")
REFUSED = {
    "openai-gpt": "its forward takes nothing of earlier tokens",
    "xlnet": "looks at later tokens",
    "prophetnet": "only supported for `decoder_input_ids` of length 1",
    "blt": "fails when it goes on from what it keeps",
    "recurrent_gemma": "gives other logits than from the whole text",
}


@pytest.mark.parametrize(
    "kind", [kind if kind in EACH_WAY else pytest.param(kind, marks=pytest.mark.slow) for kind in WORKS]
)
def test_a_class_steps_goes_back_forks_scores_and_calibrates_as_without_a_cache(kind):
    outcome = examined(configurations()[kind])
    assert (outcome.refusal, outcome.memory) == ("", WORKS[kind])


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=pytest.mark.slow if kind == "prophetnet" else ()) for kind in REFUSED]
)
def test_a_class_that_cannot_is_refused_in_one_true_sentence(kind):
    assert REFUSED[kind] in examined(configurations()[kind]).refusal


def test_the_document_names_every_class_of_the_installed_transformers_or_is_of_another_one():
    text = DOCUMENT.read_text(encoding="utf-8")
    stated = re.search(r"with transformers (\S+) and", text)
    assert stated is not None
    if stated.group(1) != transformers.__version__:
        pytest.fail(f"{DOCUMENT.name} is of transformers {stated.group(1)}: write it again by 'make matrix'.")
    rows = set(re.findall(r"^\| (\S+) \| (\S+) \|", text, re.MULTILINE))
    known = configurations() | with_images()
    assert {(kind, architecture_of(each)) for kind, each in known.items()} <= rows


def test_a_saved_model_that_reads_images_is_loaded_whole_and_given_text(tmp_path):
    config = tiny_config(with_images()["mistral3"])
    random_module(config).save_pretrained(tmp_path)
    byte_tokenizer().save_pretrained(tmp_path)
    model = cc.load_model(str(tmp_path), device="cpu")
    assert type(model.module).__name__ == "Mistral3ForConditionalGeneration"
    require_equal(model)
    assert len(cc.generate(model, "She was", cc.CoftPolicy(), spans=[], max_new_tokens=3).steps) == 3
