"""Vectors of texts are means of a model's last hidden states, whatever else is read."""

import pytest
import torch

from coft_core.model.fake import tiny_model
from coft_core.suites.base import Choices, Item, Outcome, Writing
from coft_core.suites.features import Featuriser, with_features
from coft_core.suites.mauve import FEATURES, HUMAN_FEATURES
from tests.coft_core.suites.by_hand import scored, written

WRITING = Item("1", "1", (Writing("Post.", 8),), {"reference": "It rained."})


@pytest.fixture(scope="module")
def model():
    return tiny_model(context_length=64)


@pytest.fixture
def featuriser(model):
    return Featuriser(model)


def mean_of(model, text):
    """The mean of what the head reads, without the featuriser's own way to it."""
    ids = torch.tensor([model.tokenizer.encode(text)])
    return model.module.model(input_ids=ids).last_hidden_state[0].mean(0).tolist()


def test_a_vector_is_the_mean_of_the_last_hidden_states_of_a_text_alone(model, featuriser):
    [vector] = featuriser.vectors(["A dry day"])
    assert vector == pytest.approx(mean_of(model, "A dry day"), rel=1e-4, abs=1e-6)
    alone = Featuriser(model).vectors(["A dry day"])
    together = featuriser.vectors(["Much longer than the others, it is read too", " A dry day \n", "x"])
    assert together[1] == alone[0]
    assert len({*together}) == 3
    assert featuriser.vectors(["", " \n"]) == [None, None]
    assert featuriser.vectors(["ab" * 100]) == featuriser.vectors(["ab" * 32])
    assert featuriser.version == Featuriser(tiny_model(context_length=64)).version
    assert featuriser.version != Featuriser(tiny_model(seed=1, context_length=64)).version


def test_what_was_written_and_the_human_text_get_their_vectors_and_others_none(featuriser):
    [outcome] = with_features([written(WRITING, " A dry day")], featuriser)
    assert outcome.vectors == {
        FEATURES: tuple(featuriser.vectors(["A dry day"])),
        HUMAN_FEATURES: tuple(featuriser.vectors(["It rained."])),
    }
    [empty] = with_features([written(WRITING, "")], featuriser)
    assert empty.vectors[FEATURES] == (None,)
    assert empty.vectors[HUMAN_FEATURES] != (None,)
    choices = scored(Item("1", "1", (Choices("P", (" a",)),), {"reference": "x"}), -1.0)
    bare: Outcome = written(Item("2", "2", (Writing("P", 3),)), "text")
    assert with_features([choices, bare], featuriser) == [choices, bare]
