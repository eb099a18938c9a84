"""The sample prompt sets and the templates: usable as they are, reproducible, and drawn as they claim."""

import csv
import json
from bisect import bisect_left
from collections import defaultdict
from pathlib import Path

import pytest

from app.prompts.sets import parse_prompt_set
from bench.demo_model.phantom.generate import seen_in_training
from bench.demo_model.phantom.groups import STANDING
from bench.demo_model.sample_prompt_sets import AUDITED_SHARES, sample_sets, setting_weights, write
from coft_core.calibrate.settings import CalibrationOptions
from coft_core.conformal.quantile import minimum_contexts
from coft_core.conformal.shift import EFFECTIVE_FLOOR, Shift, estimate_density_ratio, weights_by_context
from coft_core.conformal.split import context_numbers, groups_of

ASSETS = Path(__file__).resolve().parents[2] / "assets"
INDEX = json.loads((ASSETS / "prompts/samples.json").read_text(encoding="utf-8"))
FILES = [entry["file"] for entry in INDEX]
COLUMNS = ("prompt", "reference", "spans", "group", "context", "weight")
LARGEST = 150_000
APART = CalibrationOptions().verification_share


def records(name):
    path = ASSETS / "prompts" / name
    if name.endswith(".jsonl"):
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def prompts(name):
    return [record["prompt"] for record in records(name)]


def examples(name):
    return [example for _, example in parse_prompt_set(ASSETS / "prompts" / name).rows]


@pytest.fixture(scope="module")
def sets():
    return sample_sets()


def test_every_sample_is_read_without_a_row_error_and_named_by_the_guide():
    for name in FILES:
        parsed = parse_prompt_set(ASSETS / "prompts" / name)
        assert parsed.errors == ()
        assert len(parsed.rows) == parsed.total > 0
        assert parsed.ignored_columns == ()
        assert parsed.size < LARGEST
    guide = (ASSETS.parent / "docs/calibration_guide.md").read_text(encoding="utf-8")
    assert [name for name in FILES if f"`{name}`" not in guide] == []


@pytest.mark.parametrize("entry", INDEX, ids=FILES)
def test_the_index_says_what_is_in_each_file(entry):
    rows = records(entry["file"])
    assert len(rows) == entry["rows"]
    assert all(list(row) == entry["columns"] for row in rows)
    assert entry["title"]
    assert entry["description"].endswith(".")
    assert ". " not in entry["description"]
    without = "audit" if "group" in entry["columns"] else "deployment"
    assert entry["use"] == ("calibration" if "reference" in entry["columns"] else without)
    assert all(row["prompt"].strip() and row.get("reference", " .").strip() for row in rows)


@pytest.mark.slow
def test_the_samples_are_reproduced_byte_for_byte_from_their_seed(sets, tmp_path):
    write(tmp_path, sets)
    made = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert sorted(made) == sorted([*FILES, "samples.json"])
    differing = [name for name, content in made.items() if (ASSETS / "prompts" / name).read_bytes() != content]
    assert differing == [], "run python -m bench.demo_model.sample_prompt_sets"


@pytest.mark.slow
def test_no_sample_prompt_begins_a_training_text_or_comes_twice():
    every = [prompt for name in FILES if name != "all_columns.jsonl" for prompt in prompts(name)]
    every += sorted(set(prompts("all_columns.jsonl")))
    assert len(every) == len(set(every))
    seen = sorted(seen_in_training(0))
    for prompt in every:
        place = bisect_left(seen, prompt)
        assert place == len(seen) or not seen[place].startswith(prompt)


def test_hiring_rows_tell_one_story_for_every_group_with_enough_contexts():
    rows = examples("hiring.csv")
    groups = groups_of(rows)
    assert set(groups.names) == set(STANDING["race"])
    for name in groups.names:
        assert (1 - APART) * len(groups.contexts(name)) >= minimum_contexts(0.05)
    assert len(set(context_numbers(rows))) == len(rows)
    told = defaultdict(list)
    for record in records("all_columns.jsonl"):
        told[record["context"]].append(record)
    for first, second in told.values():
        assert (first["group"], first["weight"]) == (second["group"], second["weight"])
        named, around = [], []
        for record in (first, second):
            ((start, end, family),) = record["spans"]
            prompt = record["prompt"]
            named.append(prompt[start:end])
            assert named[-1] in STANDING[family]
            # The article before the group follows its first letter.
            around.append((prompt[:start].removesuffix("n ").removesuffix(" "), prompt[end:]))
        assert named[0] != named[1]
        assert around[0] == around[1]
    asked = defaultdict(dict)
    for record in records("hiring_questions.csv"):
        assert record["prompt"].count(record["group"]) == 1
        before, after = record["prompt"].split(record["group"])
        # The article before the group follows its first letter.
        asked[record["context"]][record["group"]] = (before.removesuffix("n ").removesuffix(" "), after)
    assert len(asked) == 12
    for told in asked.values():
        assert set(told) == set(STANDING["race"])
        assert len(set(told.values())) == 1


def test_weights_are_the_ratio_of_both_mixes_and_accepted_at_a_tenth():
    rows = examples("all_columns.jsonl")
    contexts = context_numbers(rows)
    weights = weights_by_context(parse_prompt_set(ASSETS / "prompts/all_columns.jsonl").weights, contexts)
    assert len(set(contexts)) == len(rows) // 2
    kept = sorted(set(contexts))[: round((1 - APART) * len(rows) // 2)]  # the contexts are in random order
    assert Shift.weighted(weights).effective(kept) > EFFECTIVE_FLOOR
    assert len(groups_of(rows).names) == 3
    assert set(weights.values()) <= set(setting_weights().values())
    weights = setting_weights()
    assert sum(weights.values()) == pytest.approx(len(weights))
    for name, share in AUDITED_SHARES.items():
        assert weights[name] == pytest.approx(share * len(weights))
    ratio = estimate_density_ratio(prompts("decisions.csv"), prompts("to_audit.csv"))
    assert 0.5 < ratio.separability < 0.9
    assert ratio.effective > 4 * EFFECTIVE_FLOOR
    assert len(prompts("to_audit.csv")) == 200
    lengths = [len(record["reference"].split()) for record in records("everyday.csv")]
    assert sum(length > 48 for length in lengths) >= minimum_contexts(0.05) * 2
    csv_rows, json_rows = (
        [row for _, row in parse_prompt_set(ASSETS / f"templates/prompt_set.{kind}").rows] for kind in ("csv", "jsonl")
    )
    assert csv_rows == json_rows
    assert {row.prompt[span.start : span.end] for row in csv_rows for span in row.spans or ()} == {"he", "she"}
