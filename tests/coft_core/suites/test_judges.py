"""Judges: what they read, what they leave open, and that their numbers are those of the named classifier's labels."""

from __future__ import annotations

import math

import pytest
import torch
from transformers import BertConfig, BertForSequenceClassification

from coft_core.errors import ModelLoadError
from coft_core.model.fake import byte_tokenizer
from coft_core.scorers.base import load_scorer
from coft_core.suites.base import Outcome, Written
from coft_core.suites.files import DataError
from coft_core.suites.judges import Judge, judge, load_judge
from tests.coft_core.suites.answered import scored, wrote


def lengths(name="toxicity", with_prompt=False):
    """A judge whose number is the length of what it reads, and what it has read so far."""
    read = []

    def length(texts):
        read.append(list(texts))
        return [float(len(text)) for text in texts]

    return Judge(name, "1", length, with_prompt), read


def test_judges_read_each_text_once_and_prompts_from_the_facts():
    counting, read = lengths()
    twice = Outcome("a", "a", {}, (Written("four", 1, "end"), scored(0.0), Written(" \n", 1, "end")))
    outcomes = [twice, wrote("four", unit="b"), wrote("two", unit="c", marks={"regard": (0.5,)})]
    judged = judge(outcomes, {"toxicity": counting})
    assert [outcome.marks for outcome in judged] == [
        {"toxicity": (4.0, None, None)},
        {"toxicity": (4.0,)},
        {"regard": (0.5,), "toxicity": (3.0,)},
    ]
    assert read == [["two", "four"]]
    assert [outcome.answers for outcome in judged] == [outcome.answers for outcome in outcomes]
    counting, read = lengths()
    outcome = Outcome("a", "a", {}, (scored(0.0, -1.0),))
    assert judge([outcome], {"toxicity": counting}) == [outcome]
    assert read == []
    assert Judge("x", "1", lambda _: [math.nan, 1.0, math.inf]).scores(["a", "b", " ", "c"]) == [None, 1.0, None, None]
    texts = ["You are an idiot.", "The nurse went home."]
    found = load_judge("toxicity", "embedded")
    assert found.scores(texts) == load_scorer("embedded").score(texts)
    assert not found.with_prompt
    counting, read = lengths("regard", with_prompt=True)
    told = wrote(" ran", unit="a", facts={"prompt": "She"})
    empty = wrote(" ", unit="b", facts={"prompt": "She"})
    assert [outcome.marks for outcome in judge([told, empty], {"regard": counting})] == [
        {"regard": (7.0,)},
        {"regard": (None,)},
    ]
    assert read == [["She ran"]]
    with pytest.raises(
        DataError, match="regard reads texts behind their prompts, and the facts of item c have no prompt"
    ):
        judge([wrote("x", unit="c")], {"regard": counting})


def saved(folder, pad):
    tokenizer = byte_tokenizer()
    tokenizer.pad_token = tokenizer.eos_token if pad else None
    torch.manual_seed(1)
    size = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    config = BertConfig(
        **size, vocab_size=len(tokenizer), initializer_range=0.5, id2label={0: "Negative", 1: "neutral", 2: "POSITIVE"}
    )
    BertForSequenceClassification(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    return saved(tmp_path_factory.mktemp("classifier"), pad=True)


def test_a_classifier_says_what_its_labels_mean_and_its_version_what_is_read(classifier, tmp_path):
    texts = ["good", "bad, very bad"]
    negative, neutral, positive = (
        load_judge("sentiment", f"{classifier}#{label}").scores(texts) for label in ("negative", "neutral", "positive")
    )
    assert [sum(p) for p in zip(negative, neutral, positive, strict=True)] == pytest.approx([1.0, 1.0])
    less = [more - fewer for more, fewer in zip(positive, negative, strict=True)]
    assert load_judge("sentiment", classifier).scores(texts) == pytest.approx(less)
    assert load_judge("sentiment", f"{classifier}#neutral, negative").scores(texts) == pytest.approx(
        [more - fewer for more, fewer in zip(neutral, negative, strict=True)]
    )
    texts = ["good", "bad, very bad", "so"]
    alone = load_judge("sentiment", saved(tmp_path, pad=False)).scores(texts)
    assert alone == pytest.approx(load_judge("sentiment", classifier).scores(texts), abs=1e-6)
    sources = [classifier, f"{classifier}#neutral", f"{classifier}#positive", f"{classifier}#neutral,positive"]
    versions = [load_judge("sentiment", source).version for source in sources]
    versions += [load_judge("toxicity", source).version for source in sources[1:3]]
    assert len(set(versions[:4])) == 4
    assert versions[4] != versions[5]
    assert load_judge("sentiment", f"{classifier}#Positive,Negative").version == versions[0]
    assert [load_judge(name, classifier).with_prompt for name in ("regard", "sentiment")] == [True, False]


def test_labels_that_are_not_there_are_refused_with_those_that_are(classifier):
    for wanted in ("#happy", "#positive,happy", "#negative,neutral,positive"):
        with pytest.raises(
            ModelLoadError, match="has the labels negative, neutral, positive; name for sentiment the one"
        ):
            load_judge("sentiment", classifier + wanted)


def test_a_classifier_that_cannot_be_loaded_is_called_a_judge(tmp_path):
    with pytest.raises(ModelLoadError, match="The judge of sentiment cannot be used: "):
        load_judge("sentiment", str(tmp_path))
