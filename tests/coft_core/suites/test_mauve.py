"""MAUVE is that of the package mauve-text, with an interval over items, and reads every form of its records."""

import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from mauve.compute_mauve import compute_mauve, get_divergence_curve_for_multinomials
from sklearn.metrics import auc

from coft_core.model.fake import tiny_model
from coft_core.policies.vanilla import VanillaPolicy
from coft_core.suites.base import Choices, Item, Outcome, Writing
from coft_core.suites.features import Featuriser, with_features
from coft_core.suites.files import DataError, Line
from coft_core.suites.mauve import (
    FEATURES,
    HUMAN_FEATURES,
    LENGTHS,
    CnnDailyMailLengths,
    Mauve,
    area,
    buckets,
    features_at,
)
from coft_core.suites.reading import Reader
from tests.coft_core.suites.by_hand import by_key, chosen, folder, written

SUITE = Mauve()
POST = {"subreddit": "cooking", "title": "Soup", "post": "My soup was too salty, so I added potatoes."}
PROMPT = "SUBREDDIT: r/cooking\n\nTITLE: Soup\n\nPOST: My soup was too salty, so I added potatoes.\n\nTL;DR:"


def comparison(identity, *summaries, **info):
    texts = [{"text": text, "policy": policy, "note": ""} for text, policy in summaries]
    return {"info": {"id": identity, **POST, **info}, "summaries": texts, "choice": 0}


def vectors(seed, shift, rows=70, width=6):
    return np.random.default_rng(seed).normal(shift, 1.0, (rows, width)) + 3.0


def outcomes(tmp_path, writing, human, seeds=(0,)):
    rows = [{"prompt": f"Post {n}.", "reference": f"Summary {n}."} for n in range(len(writing))]
    items = SUITE.items(folder(tmp_path, "mauve", summaries__jsonl=rows))
    return [
        written(
            item, "text", seed=seed, vectors={FEATURES: (tuple(first),), HUMAN_FEATURES: (tuple(second),)}
        )
        for seed in seeds
        for item, first, second in zip(items, writing.tolist(), human.tolist(), strict=True)
    ]  # fmt: skip


def package_area(first, second):
    """The package's own steps from two histograms on."""
    x, y = get_divergence_curve_for_multinomials(first, second, np.linspace(1e-6, 1 - 1e-6, 25), 5).T
    return 0.5 * (auc(x[np.argsort(x)], y[np.argsort(x)]) + auc(y[np.argsort(y)], x[np.argsort(y)]))


def test_the_area_is_the_packages_one_of_like_histograms_and_nearly_none_of_others():
    for seed in range(5):
        counts = np.random.default_rng(seed).integers(0, 9, (4, 14)).astype(float)
        theirs = [package_area(row[:7] / row[:7].sum(), row[7:] / row[7:].sum()) for row in counts]
        assert area(counts) == pytest.approx(theirs, abs=1e-9)
    like, different = area(np.array([[3.0, 1.0, 6.0, 2.0], [4.0, 0.0, 0.0, 7.0]]))
    assert like == pytest.approx(1.0)
    # With nothing in common the curve is ((1 - w)^5, w^5), under which 5 B(6, 5) = 0.00397 lie.
    assert different == pytest.approx(0.00397, abs=1e-3)


@pytest.mark.parametrize("shift", [0.0, 0.7])
def test_the_value_is_the_packages_for_the_same_vectors(tmp_path, shift):
    writing, human = vectors(1, shift), vectors(2, 0.0)
    figure = by_key(SUITE.figures(outcomes(tmp_path, writing, human)))["mauve"]
    assert figure.value == pytest.approx(compute_mauve(p_features=writing, q_features=human).mauve, abs=1e-9)
    assert figure.n == 70
    assert figure.low <= figure.value + 0.05
    assert figure.low < figure.high


def test_an_empty_continuation_is_unscored_and_outcomes_without_vectors_give_no_value(tmp_path):
    rows = outcomes(tmp_path, vectors(1, 0.5), vectors(2, 0.0))
    bare = written(SUITE.items(folder(tmp_path, "mauve"))[0], "")
    figure = by_key(SUITE.figures([*rows, bare]))["mauve"]
    assert (figure.n, figure.unscored) == (70, 1)
    figure = by_key(SUITE.figures([bare]))["mauve"]
    assert (figure.value, figure.n, figure.unscored) == (None, 0, 1)
    assert next(SUITE.figures([])).value is None


def test_ten_pairs_make_a_bucket_and_without_the_clustering_package_an_error_says_what_to_install(monkeypatch):
    rows = list(zip(vectors(1, 0.5).tolist(), vectors(2, 0.0).tolist(), strict=True))
    assert buckets(rows)[0] == 7
    count, first, second = buckets(rows[:4])
    assert count == 2
    assert len(first) == len(second) == 4
    assert set(first) | set(second) <= {0, 1}
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(DataError, match=r"install requirements-evaluation\.txt"):
        buckets([((0.0, 1.0), (1.0, 0.0))])


def test_every_form_of_record_is_asked_as_openai_asked_it_and_a_compared_post_once(tmp_path, monkeypatch):
    rows = [{"prompt": "Tell it briefly: ", "reference": " It rained."}, {"id": "b", "prompt": "P", "reference": "R"}]
    first, second = SUITE.items(folder(tmp_path, "mauve", summaries__jsonl=rows))
    assert first.asks == (Writing("Tell it briefly:", 48, ("\n\n",)),)
    assert first.facts == {"reference": "It rained."}
    assert SUITE.reference(first) == " It rained."
    assert (first.id, second.id) == ("1", "b")
    rows = [{"id": "t1", **POST, "summary": " Potatoes helped."}]
    [item] = SUITE.items(folder(tmp_path / "posts", "mauve", test__jsonl=rows))
    assert item.asks[0].prompt == PROMPT
    assert (item.id, item.facts["reference"]) == ("t1", "Potatoes helped.")
    rows = [
        comparison("a", ("By machine.", "sup4"), ("By machine too.", "sup2")),
        comparison("a", ("By machine.", "sup4"), (" By a human.", "ref")),
        comparison("b", ("Human.", "ref"), ("Machine.", "sup4"), title="Bread"),
        comparison("a", ("Another human text.", "ref"), ("Machine.", "sup4")),
        comparison("c", ("Machine.", "sup4"), ("Machine.", "sup2")),
    ]
    items = SUITE.items(folder(tmp_path / "compared", "mauve", comparisons__jsonl=rows))
    assert [(item.id, item.facts["reference"]) for item in items] == [("a", "By a human."), ("b", "Human.")]
    assert items[0].asks[0].prompt == PROMPT
    lines = [Line("hub", 1, {"prompt": f"{PROMPT} ", "label": " Potatoes helped."})]
    monkeypatch.setattr("coft_core.suites.base.hub_lines", lambda part: lines)
    [item] = SUITE.items_from_hub()
    assert (item.asks[0].prompt, item.facts["reference"]) == (PROMPT, "Potatoes helped.")


WRITING = Item("1", "1", (Writing("Post.", 8),), {"reference": "It rained."})


@pytest.fixture(scope="module")
def tiny():
    return tiny_model(context_length=64)


@pytest.fixture
def featuriser(tiny):
    return Featuriser(tiny)


def mean_of(tiny, text):
    """The mean of what the head reads, without the featuriser's own way to it."""
    ids = torch.tensor([tiny.tokenizer.encode(text)])
    return tiny.module.model(input_ids=ids).last_hidden_state[0].mean(0).tolist()


def test_a_vector_is_the_mean_of_the_last_hidden_states_of_a_text_alone(tiny, featuriser):
    [vector] = featuriser.vectors(["A dry day"])
    assert vector == pytest.approx(mean_of(tiny, "A dry day"), rel=1e-4, abs=1e-6)
    alone = Featuriser(tiny).vectors(["A dry day"])
    together = featuriser.vectors(["Much longer than the others, it is read too", " A dry day \n", "x"])
    assert together[1] == alone[0]
    assert len({*together}) == 3
    assert featuriser.vectors(["", " \n"]) == [None, None]
    assert featuriser.vectors(["ab" * 100]) == featuriser.vectors(["ab" * 32])
    assert featuriser.version == Featuriser(tiny_model(context_length=64)).version
    assert featuriser.version != Featuriser(tiny_model(seed=1, context_length=64)).version


def test_a_text_is_written_once_and_read_at_each_length(tmp_path, tiny, featuriser):
    rows = [{"article": "It rained.", "highlights": "Rain."}]
    (item,) = CnnDailyMailLengths().items(folder(tmp_path, "cnn_dailymail", test__jsonl=rows))
    (ask,) = item.asks
    assert (ask.most_tokens, ask.stops, ask.cuts) == (1024, (), LENGTHS)
    short = replace(ask, prompt="It rained", most_tokens=6, cuts=(2, 4, 6))
    ((told,),) = Reader(tiny).read([short], [VanillaPolicy()], [0])
    again = [Reader(tiny).read([replace(short, most_tokens=tokens)], [VanillaPolicy()], [0])[0][0] for tokens in (2, 4)]
    assert [told.text[:end] for _, end in told.cuts] == [*(each.text for each in again), told.text]
    (outcome,) = with_features([Outcome("1", "1", {"reference": "Rain."}, (told,))], featuriser)
    assert outcome.vectors["features_4"] == tuple(featuriser.vectors([again[1].text]))


def test_mauve_at_each_length_is_that_of_the_texts_cut_there(tmp_path):
    rows = [{"id": str(n), "article": "It rained.", "highlights": "Rain."} for n in range(70)]
    items = CnnDailyMailLengths().items(folder(tmp_path, "cnn_dailymail", test__jsonl=rows))
    human, far = vectors(0, 0.0), vectors(1, 9.0)
    named = {features_at(tokens): far if tokens > 256 else human for tokens in LENGTHS}
    named[HUMAN_FEATURES] = human
    of_each = [{name: (tuple(rows[n]),) for name, rows in named.items()} for n in range(len(items))]
    told = [written(item, "text", vectors=own) for item, own in zip(items, of_each, strict=True)]
    figures = by_key(CnnDailyMailLengths().figures(told))
    assert figures["mauve_256"].value == pytest.approx(1.0)
    assert figures["mauve_512"].value < 0.1
    assert CnnDailyMailLengths().main_figure(told).value == figures["mauve_1024"].value


def test_what_was_written_and_the_human_text_get_their_vectors_and_others_none(featuriser):
    [outcome] = with_features([written(WRITING, " A dry day")], featuriser)
    assert outcome.vectors == {
        FEATURES: tuple(featuriser.vectors(["A dry day"])),
        HUMAN_FEATURES: tuple(featuriser.vectors(["It rained."])),
    }
    [empty] = with_features([written(WRITING, "")], featuriser)
    assert empty.vectors[FEATURES] == (None,)
    assert empty.vectors[HUMAN_FEATURES] != (None,)
    choices = chosen(Item("1", "1", (Choices("P", (" a",)),), {"reference": "x"}), -1.0)
    bare: Outcome = written(Item("2", "2", (Writing("P", 3),)), "text")
    assert with_features([choices, bare], featuriser) == [choices, bare]
