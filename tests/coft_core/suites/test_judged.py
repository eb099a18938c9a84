"""What judges say of written texts, vectors of texts, and the figures of BOLD and toxicity made of them."""

from __future__ import annotations

import json
import math

import pytest
import torch
from transformers import BertConfig, BertForSequenceClassification

from coft_core.errors import ModelLoadError
from coft_core.model.fake import byte_tokenizer
from coft_core.scorers.base import load_scorer
from coft_core.suites import bold
from coft_core.suites.base import Outcome, Writing, Written
from coft_core.suites.bold import DOMAINS, Bold, polarity
from coft_core.suites.files import DataError, DataFolder, Line
from coft_core.suites.judges import Judge, judge, load_judge
from coft_core.suites.statistics import Sample
from coft_core.suites.written import empty_set_figures
from tests.coft_core.suites.by_hand import by_key, scored, wrote


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


def sample(*outcomes):
    return Sample(outcomes, outcomes, "continuations")


def toxic(value, **more):
    return wrote("text", marks={"toxicity": (value,)}, **more)


def test_continuations_with_an_empty_set_stand_beside_the_others():
    outcomes = [
        toxic(0.8, unit="a", empty=(0, 3), tokens=4), toxic(0.2, unit="b", empty=(1,), tokens=2),
        toxic(0.3, unit="c", tokens=6), toxic(0.6, unit="d", tokens=4), toxic(0.0, unit="e", tokens=4),
    ]  # fmt: skip
    figures = by_key(empty_set_figures(sample(*outcomes)))
    expected = {
        "empty_prompts": (40.0, 5), "empty_steps": (100 * 3 / 20, 20), "toxicity_with_empty": (0.5, 2),
        "toxicity_rate_with_empty": (50.0, 2), "toxicity_without_empty": (0.3, 3),
        "toxicity_rate_without_empty": (100 / 3, 3),
    }  # fmt: skip
    assert {key: (pytest.approx(f.value), f.n) for key, f in figures.items()} == expected


def test_empty_sets_have_figures_only_where_a_policy_certifies():
    assert list(empty_set_figures(sample(toxic(0.8, unit="a", certified=None)))) == []
    figures = by_key(empty_set_figures(sample(toxic(0.2, unit="a"), toxic(0.4, unit="b"))))
    for key in ("toxicity_with_empty", "toxicity_rate_with_empty"):
        assert (figures[key].value, figures[key].n) == (None, 0)
    assert figures["toxicity_without_empty"].value == pytest.approx(0.3)
    assert figures["empty_steps"].value == 0.0


PROMPTS = {
    "gender": {"American_actors": {"Al_Able": ["Al Able is an actor who ", "Once, Al Able "]}},
    "political_ideology": {"populism": {"Populism": ["", "Populism is "]}},
    "profession": {"sewing_occupations": {"Tailor": ["A tailor is "]}, "dance_occupations": {"Dancer": ["A dancer "]}},
    "race": {"Asian_Americans": {"Bo_Bee": ["Bo Bee was "]}},
    "religious_ideology": {"judaism": {"Judaism": ["Judaism is "]}},
}


def prompts_of(folder, prompts=PROMPTS, wiki=None):
    (folder / "bold" / "prompts").mkdir(parents=True)
    (folder / "bold" / "wikipedia").mkdir()
    for domain in DOMAINS:
        (folder / "bold" / "prompts" / f"{domain}_prompt.json").write_text(json.dumps(prompts[domain]))
    for domain, content in (wiki or {}).items():
        (folder / "bold" / "wikipedia" / f"{domain}_wiki.json").write_text(json.dumps(content))
    return DataFolder(folder)


def test_prompts_of_all_domains_are_read_without_the_space_at_their_end(tmp_path):
    items = Bold().items(prompts_of(tmp_path))
    assert [item.id for item in items] == [
        "gender/American_actors/Al_Able/1", "gender/American_actors/Al_Able/2",
        "political_ideology/populism/Populism/2", "profession/sewing_occupations/Tailor/1",
        "profession/dance_occupations/Dancer/1", "race/Asian_Americans/Bo_Bee/1",
        "religious_ideology/judaism/Judaism/1",
    ]  # fmt: skip
    assert items[1].asks == (Writing("Once, Al Able", 50),)
    assert items[0].unit == items[1].unit
    assert [item.unit for item in items[2:4]] == ["political_ideology/populism/Populism", items[3].id[:-2]]
    assert Bold().reference(items[0]) is None


def test_the_reference_is_the_rest_of_the_sentence_where_it_begins_with_the_prompt(tmp_path):
    wiki = {
        "gender": {"American_actors": {"Al_Able": ["Al Able is an actor who sings.", "Then Al Able sang."]}},
        "race": {"Asian_Americans": {"Bo_Bee": ["Bo Bee was born.", "Bo Bee ran."]}},
    }
    items = Bold().items(prompts_of(tmp_path, wiki=wiki))
    references = {item.id: Bold().reference(item) for item in items if item.facts["domain"] in wiki}
    assert references == {
        "gender/American_actors/Al_Able/1": " sings.",
        "gender/American_actors/Al_Able/2": None,
        "race/Asian_Americans/Bo_Bee/1": None,
    }


@pytest.mark.parametrize("broken", [[], {"judaism": []}, {"judaism": {"Judaism": "Judaism is "}}])
def test_a_file_of_another_form_is_refused_with_the_place(tmp_path, broken):
    data = prompts_of(tmp_path, PROMPTS | {"religious_ideology": broken})
    with pytest.raises(DataError, match=r"religious_ideology_prompt.json: religious_ideology"):
        Bold().items(data)


def test_the_hub_s_records_give_the_same_items(tmp_path, monkeypatch):
    wiki = {"gender": {"American_actors": {"Al_Able": ["Al Able is an actor who sings.", "Once, Al Able sang."]}}}
    records = [
        {
            "domain": domain, "category": group, "name": entity, "prompts": prompts,
            "wikipedia": wiki.get(domain, {}).get(group, {}).get(entity, []),
        }
        for domain in DOMAINS
        for group, entities in PROMPTS[domain].items()
        for entity, prompts in entities.items()
    ]  # fmt: skip
    monkeypatch.setattr(
        "coft_core.suites.base.hub_lines", lambda _: [Line("hub", n, record) for n, record in enumerate(records, 1)]
    )
    assert Bold().items_from_hub() == Bold().items(prompts_of(tmp_path, wiki=wiki))


def test_the_polarity_is_that_of_the_more_frequent_gender_s_words():
    for text, expected in (
        ("He gave her HIS book.", 1.0), ("She’s here, he's not, and women are", -1.0), ("The heat of she and he", 0.0),
        ("The human mankind", 0.0),
    ):  # fmt: skip
        assert polarity(text) == expected


def continued(place, text, group, domain, entity, **more):
    marks = {name: (value,) for name, value in more.items()}
    facts = {"domain": domain, "group": group, "prompt": "It is", "reference": None}
    return Outcome(str(place), f"{domain}/{group}/{entity}", facts, (Written(text, 5, "length"),), marks)


def test_figures_are_those_worked_out_by_hand(monkeypatch):
    monkeypatch.setattr(bold, "LEAST", 2)
    rows = [
        (" he", "tailors", "profession", "a", 0.2, 0.5), (" he and her", "tailors", "profession", "b", 0.6, -0.5),
        (" she", "dancers", "profession", "a", 0.0, 0.0), (" she", "dancers", "profession", "b", 0.2, 0.9),
        ("", "dancers", "profession", "b", None, None), (" x", "Asian_Americans", "race", "a", 0.8, 0.1),
        (" y", "African_Americans", "race", "a", 0.0, 0.1), (" y", "African_Americans", "race", "b", 0.1, 0.1),
        (" y", "European_Americans", "race", "a", 0.3, 0.3), (" y", "European_Americans", "race", "b", 0.4, 0.5),
    ]  # fmt: skip
    outcomes = [continued(place, *row[:4], toxicity=row[4], sentiment=row[5]) for place, row in enumerate(rows)]
    figures = by_key(Bold().figures(outcomes))
    expected = {
        "toxicity": (2.6 / 9, 9, 1),
        "toxicity_rate": (200 / 9, 9, 1),
        # Tailors 0.4 and dancers 0.1; of the races, 0.05 and 0.35: one of two articles alone is not compared.
        "toxicity_gap": (0.3, 8, 2),
        "toxicity_rate_gap": (50.0, 8, 2),
        "sentiment": (2.0 / 9, 9, 1),
        # Tailors 0 and dancers 0.45; races 0.1 and 0.4.
        "sentiment_gap": (0.45, 8, 2),
        "gender_polarity": (100 * (1 + 0 - 1 - 1) / 4, 4, 1),
        "toxicity/profession": (0.25, 4, 1),
        "toxicity_gap/race": (0.3, 4, 1),
        "toxicity/race: Asian_Americans": (0.8, 1, 0),
        "toxicity_rate/race: Asian_Americans": (100.0, 1, 0),
        "gender_polarity/profession: dancers": (-100.0, 2, 1),
    }
    got = {key: (pytest.approx(figures[key].value), figures[key].n, figures[key].unscored) for key in expected}
    assert got == expected
    assert not [key for key in figures if key.startswith(("regard", "empty"))]
    assert Bold.main in figures


def test_without_judges_or_of_one_domain_only_those_figures_are_left():
    outcomes = [
        continued(0, " he", "tailors", "profession", "a"),
        continued(1, " x", "judaism", "religious_ideology", "a"),
    ]
    figures = by_key(Bold().figures(outcomes))
    assert set(figures) == {"gender_polarity", "gender_polarity/profession: tailors"}
    outcomes = [continued(n, " x", "judaism", "religious_ideology", "a", toxicity=0.1 * n) for n in (1, 2)]
    figures = by_key(Bold().figures(outcomes))
    assert figures["toxicity/religious_ideology: judaism"].value == pytest.approx(0.15)
    assert figures["toxicity_gap"].value is None
    assert not [f for f in figures.values() if f.key == "gender_polarity" or "race" in f.part]
