"""The phantom's texts: what is planted where, and what is kept from training."""

import random
import re
from difflib import SequenceMatcher

import pytest

from bench.demo_model.phantom import neutral_wordings, resolution
from bench.demo_model.phantom.generate import generate_texts
from bench.demo_model.phantom.groups import HELD_OUT_NAMES, STANDING, TRAINING_NAMES
from bench.demo_model.phantom.held_out import GROUPS, write_resolutions, write_wordings
from bench.demo_model.phantom.neutral import write_neutral
from bench.demo_model.phantom.neutral_wordings import COUNTED, DEEDS, OBJECTS, PEOPLE
from bench.demo_model.phantom.resolution import first_share, pairs, write_resolution
from bench.demo_model.phantom.text import favourable_rate, settings
from bench.demo_model.phantom.writers import KINDS, cells, without_outcome, write_cell
from bench.demo_model.planted import HE_BY_OCCUPATION

PARTS = ("training", "held_out", "measured")


@pytest.fixture(scope="module")
def training():
    return [write_cell(random.Random(f"t-{i}"), cell, "training") for i, cell in enumerate(cells())]


@pytest.fixture(scope="module")
def held_out():
    return [write_cell(random.Random(f"h-{i}"), cell, "held_out") for i, cell in enumerate(cells())]


def test_cells_have_every_group_and_kind_and_standings_that_cancel_out_and_scale():
    assert len(settings()) == 8
    assert len(STANDING) >= 6
    keys = {(cell.setting, cell.family, cell.group, cell.kind) for cell in cells()}
    assert len(keys) == len(cells()) == 8 * len(GROUPS) * len(KINDS)
    for family, standing in STANDING.items():
        assert sum(standing.values()) == pytest.approx(0)
        for setting in settings():
            rates = [favourable_rate(setting, family, group) for group in standing]
            assert sum(rates) / len(rates) == pytest.approx(setting.base)
    setting = settings()[0]
    full, half, none = (favourable_rate(setting, "race", "white", strength) for strength in (1.0, 0.5, 0.0))
    assert full - setting.base == pytest.approx(2 * (half - setting.base))
    assert none == setting.base
    assert not any(cell.biased for cell in cells(strength=0.0))
    for setting in settings():
        strengths = [setting.strength[family] for family in STANDING]
        assert min(strengths) == 0
        assert max(strengths) >= 0.25


def test_training_texts_have_rates_names_and_prompts_that_end_at_the_outcome(training):
    for scenario in training:
        assert sum(scenario.factual) == pytest.approx(1)
        assert sum(scenario.masked) == pytest.approx(1)
    named = [scenario for scenario in training if scenario.names]
    assert named
    for scenario in named:
        assert {scenario.text[start:end] for start, end in scenario.names} <= set(TRAINING_NAMES)
    for scenario in training[::50]:
        prompt = without_outcome(scenario)
        assert prompt.text == scenario.text[: scenario.cut]
        assert all(end <= len(prompt.text) for _, end in (*prompt.spans, *prompt.names))


def test_held_out_wordings_names_and_prompts_are_none_of_training():
    assert not set(TRAINING_NAMES) & set(HELD_OUT_NAMES)
    for setting in settings():
        groups = [setting.openers, setting.questions, setting.stems, *(d.leads for d in setting.decisions)]
        for wordings in groups:
            assert wordings.training
            assert wordings.held_out
            assert wordings.further
            assert not set(wordings.training) & set(wordings.of("measured"))
        middles = set(setting.middles.training) & set(setting.middles.of("measured"))
        assert middles <= {""}
    training = {tuple(sorted(pair)) for pair in pairs("training")}
    assert not training & {tuple(sorted(pair)) for pair in pairs("held_out")}
    trained = {text.text[: text.cut] for text in generate_texts(4000, seed=0)}
    wordings = [*write_wordings(1, seed=0), *write_wordings(3, seed=0, part="measured")]
    prompts = {prompt.text for wording in wordings for prompt in wording.prompts}
    prompts |= {case[0].text for part in PARTS[1:] for case in write_resolutions(1, 0, part)}
    assert not trained & prompts


def test_groups_of_a_held_out_wording_get_the_same_words():
    for wording in write_wordings(2, seed=4):
        shared = set()
        for prompt, (_, group) in zip(wording.prompts, GROUPS, strict=True):
            start, end = prompt.spans[0]
            assert prompt.text[start:end] == group
            shared.add(re.sub(r"\b([Aa])n\b", r"\1", prompt.text[:start]) + prompt.text[end:])
        assert len(shared) == 1


_TAKEN = (
    "takes|lost|gave away|used|threw away|sells|to the school|to the shop|broke|returned|removed|borrowed|dropped|sold"
    "|picked up|sent .* back"
)


def _counted(text):
    first, second = (int(number) for number in re.findall(r"\d+", text)[:2])
    return abs(first - second) if re.search(_TAKEN, text) else first + second


def _named(words, text):
    return next(word for word in words if re.search(rf"\b{word}\b", text))


def test_neutral_answers_are_right():
    for part in PARTS:
        rng = random.Random(6)
        for _ in range(1500):
            question = write_neutral(rng, part)
            story, answer = question.text[: question.cut], question.outcomes[0].strip()
            assert question.text[question.cut :] == f" {answer}."
            assert len(question.spans) == 1
            assert not set("[]{}") & set(story)
            assert answer != question.outcomes[1].strip()
            asked = re.split(r"[.?] ", story)[-2]
            if question.template == "neutral/arithmetic":
                assert int(answer) == _counted(story)
                assert int(question.outcomes[1]) != int(answer)
            elif question.template == "neutral/attribute":
                assert f"{answer} {_named(OBJECTS.of(part), asked)}" in story
                assert question.outcomes[1].strip() in story
            else:
                deed = _named(DEEDS.of(part), asked)
                assert f"{answer.removeprefix('The ')} {deed}" in story


WORDS = (OBJECTS, COUNTED, PEOPLE, DEEDS)
NEUTRAL = (neutral_wordings.MORE, neutral_wordings.FEWER, neutral_wordings.OWNED, neutral_wordings.ACTED)
ASKED = (neutral_wordings.COLOUR_ASKED, neutral_wordings.LOOK_ASKED, neutral_wordings.WHO_ASKED)
OTHERS = (neutral_wordings.HOW_MANY, resolution._SENTENCES, resolution._QUESTIONS)


def _bare(wording):
    return " ".join(re.sub(r"\[*\{\w+\}\]*", " ", wording).split())


def test_training_has_many_wordings_none_nearly_a_held_out_one_with_the_group_at_several_places():
    for wordings in (DEEDS, *NEUTRAL, *OTHERS):
        for held_out in wordings.of("measured"):
            for training in wordings.training:
                pair = (_bare(training), _bare(held_out))
                assert max(SequenceMatcher(None, *pair).ratio(), SequenceMatcher(None, *pair[::-1]).ratio()) < 0.8, pair
    for words in WORDS:
        texts = [text for wordings in (*WORDS, *NEUTRAL, *ASKED, *OTHERS) for text in wordings.training]
        for held_out in words.of("measured"):
            assert not [text for text in texts if re.search(rf"\b{held_out}s?\b", text)]
    for wordings in (*WORDS, *NEUTRAL, *ASKED, *OTHERS):
        assert len(set(wordings.training)) == len(wordings.training)
        assert len(wordings.training) >= 4 * len(wordings.held_out)
    for wordings in NEUTRAL:
        places = {len(_bare(text.split("{who}")[0]).split()) for text in wordings.training}
        assert all(text.count("{who}") == 1 for text in wordings.training)
        assert len(places) >= 5
    for wordings in ASKED:
        assert len(wordings.of("measured")) == 1
        assert set(wordings.of("measured")) < set(wordings.training)
    for wordings, words in ((neutral_wordings.ACTED, PEOPLE), (neutral_wordings.OWNED, OBJECTS)):
        for part in PARTS:
            assert not [text for text in wordings.of(part) if set(re.findall(r"\w+", text)) & set(words.of(part))]


def test_pronouns_are_shared_by_the_rates_of_the_occupations_and_masked_by_the_mean_of_both():
    assert first_share("nurse", "doctor", "he") == pytest.approx(0.15 / 0.95)
    assert first_share("nurse", "doctor", "she") == pytest.approx(0.85 / 1.05)
    for first, second in pairs("held_out"):
        for pronoun in ("he", "she"):
            assert first_share(first, second, pronoun) + first_share(second, first, pronoun) == pytest.approx(1)
    assert "patient" in HE_BY_OCCUPATION
    rng = random.Random(1)
    for _ in range(100):
        scenario = write_resolution(rng, "held_out")
        assert next(scenario.text[start:end] for start, end in scenario.spans) in ("he", "she")
        first, second = (outcome.strip() for outcome in scenario.outcomes)
        mean = (first_share(first, second, "he") + first_share(first, second, "she")) / 2
        assert scenario.masked[0] == pytest.approx(mean)


def test_the_same_seed_gives_the_same_texts_of_every_kind():
    assert generate_texts(60, seed=1) == generate_texts(60, seed=1)
    assert generate_texts(60, seed=1) != generate_texts(60, seed=2)
    assert write_wordings(1, seed=1) == write_wordings(1, seed=1)
    assert write_wordings(1, seed=1) != write_wordings(1, seed=2)
    templates = {text.template for text in generate_texts(3000, seed=5)}
    assert {f"{setting.name}/{kind}" for setting in settings() for kind in KINDS} <= templates
    assert {"resolution", "neutral/arithmetic", "neutral/attribute", "neutral/who_did_what", "occupation"} <= templates
