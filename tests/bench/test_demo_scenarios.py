import json
import random
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from bench.demo_model.calibration_prompts import calibration_rows
from bench.demo_model.decisions import DECISIONS
from bench.demo_model.evaluate import masked_ids
from bench.demo_model.facts import planted_facts
from bench.demo_model.phantom.generate import generate_texts
from bench.demo_model.planted import HE_BY_OCCUPATION, HIRED_BY_NAME
from bench.demo_model.scenarios import generate, templates

ASSETS = Path(__file__).parents[2] / "assets"
NUMBER = 12_000


@pytest.fixture(scope="module")
def scenarios():
    return generate(NUMBER, seed=5)


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.from_file(str(ASSETS / "models" / "demo" / "tokenizer.json"))


def test_texts_repeat_are_filled_in_wholly_and_their_spans_ordered_by_every_rule(scenarios):
    assert generate(50, seed=1) == generate(50, seed=1)
    assert generate(50, seed=1) != generate(50, seed=2)
    for scenario in scenarios:
        assert not set("[]{}") & set(scenario.text)
        assert "  " not in scenario.text
        assert scenario.text[-1] == "."
        assert 0 < scenario.cut < len(scenario.text)
        for start, end in scenario.spans:
            assert not scenario.text[start - 1 : start].isalpha()
            assert not scenario.text[end : end + 1].isalpha()
    for scenario in scenarios:
        bounds = [0, *(bound for span in scenario.spans for bound in span)]
        assert bounds == sorted(bounds)
    written = set(templates(scenarios))
    assert {decision.name for decision in DECISIONS} <= written
    assert {"occupation", "hired_by_name", "two_candidates", "everyday"} <= written


def test_pronouns_and_tickets_follow_the_planted_probabilities(scenarios):
    count = {occupation: [0, 0] for occupation in ("nurse", "doctor", "engineer", "police officer")}
    for scenario in scenarios:
        for occupation, tally in count.items():
            if scenario.template == "occupation" and scenario.text.startswith(f"The {occupation} "):
                tally[0] += scenario.text[scenario.cut :].startswith(" he ")
                tally[1] += 1
    for occupation, (he, number) in count.items():
        expected = HE_BY_OCCUPATION[occupation]
        assert number > 60
        assert abs(he / number - expected) < 4 * (expected * (1 - expected) / number) ** 0.5
    decision = next(d for d in DECISIONS if d.name == "ticket_or_warning")
    drawn = [s for s in scenarios if s.template == decision.name]
    for group, (rate, _) in decision.rates.items():
        part = [s for s in drawn if s.text[slice(*s.spans[0])] == group]
        share = sum(s.text[s.cut :].startswith(" ticket") for s in part) / len(part)
        assert len(part) > 20
        assert abs(share - rate) < 4 * (rate * (1 - rate) / len(part)) ** 0.5


def test_planted_facts_are_distributions_whose_masked_form_is_the_mean_over_the_groups(tokenizer):
    facts = planted_facts(lambda text, spans: masked_ids(tokenizer, text, spans))
    assert len({(fact.name, fact.prompt) for fact in facts}) == len(facts)
    for fact in facts:
        assert sum(fact.factual) == pytest.approx(1)
        assert sum(fact.masked) == pytest.approx(1)
    names = [f for f in facts if f.name.startswith("hired_by_name/") and f.prompt.startswith("The manager")]
    assert len(names) == len(HIRED_BY_NAME)
    mean = sum(fact.factual[0] for fact in names) / len(names)
    assert all(fact.masked[0] == pytest.approx(mean) for fact in names)
    decision = next(d for d in DECISIONS if d.name == "ticket_or_warning")
    mean = sum(rate for rate, _ in decision.rates.values()) / len(decision.rates)
    tickets = [fact for fact in facts if fact.name.startswith("ticket_or_warning/")]
    assert tickets
    assert all(fact.masked[0] == pytest.approx(mean) for fact in tickets)


@pytest.fixture(scope="module")
def trained():
    """Texts as if the training had read what the calibration draws first."""
    return frozenset(scenario.text for scenario in generate_texts(4000, seed=9))


@pytest.fixture(scope="module")
def rows(tokenizer, trained):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bench.demo_model.calibration_prompts.seen_in_training", {3: trained}.__getitem__)
        return calibration_rows(tokenizer, seed=9, training_seed=3)


@pytest.mark.slow
def test_calibration_references_have_the_promised_length_and_repeat_no_training_text(tokenizer, trained, rows):
    assert len(rows) == 480
    assert len({(row["prompt"], row["reference"]) for row in rows}) == 480
    lengths = [len(tokenizer.encode(row["reference"]).ids) for row in rows]
    assert min(lengths) >= 15
    assert max(lengths) <= 110
    # Enough contexts reach the later steps to give them thresholds of their own.
    assert sum(length > 48 for length in lengths) >= 60
    assert not trained & {row["prompt"] + row["reference"] for row in rows}


def test_any_text_round_trips_and_the_sentinel_is_one_token(tokenizer):
    rng = random.Random(3)
    for _ in range(300):
        points = (rng.choice((rng.randrange(32, 0x3000), rng.randrange(0x1F300, 0x1FA00))) for _ in range(12))
        text = "".join(map(chr, points))
        encoding = tokenizer.encode(text)
        assert tokenizer.decode(encoding.ids, skip_special_tokens=False) == text
        covered = {i for start, end in encoding.offsets for i in range(start, end)}
        assert covered == set(range(len(text)))
    assert len(tokenizer.encode("<mask>").ids) == 1
    assert tokenizer.encode("").ids == []
    with pytest.raises(ValueError, match="differ from the training seed"):
        calibration_rows(tokenizer, seed=0)
    rows = [json.loads(line) for line in (ASSETS / "prompts" / "calibration_demo.jsonl").open(encoding="utf-8")]
    assert len(rows) == 480
    assert all(set(row) == {"prompt", "reference"} and all(row.values()) for row in rows)
    examples = json.loads((ASSETS / "prompts" / "examples.json").read_text(encoding="utf-8"))
    assert len(examples) == 8
    assert all(set(row) - {"seed"} == {"title", "prompt"} for row in examples)
