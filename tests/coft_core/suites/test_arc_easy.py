"""ARC-easy is asked and scored as lm-evaluation-harness asks and scores it, but for ties."""

import pytest

from coft_core.suites.arc_easy import ArcEasy
from coft_core.suites.base import Choices
from coft_core.suites.files import DataError, Line
from tests.coft_core.suites.by_hand import by_key, folder, likelihood, scored
from tests.coft_core.suites.harness import harness_task

SUITE = ArcEasy()


def record(stem, answers, right, labels="ABCDE", **more):
    choices = [{"text": text, "label": label} for text, label in zip(answers, labels, strict=False)]
    return {"question": {"stem": stem, "choices": choices}, "answerKey": right, **more}


RECORDS = [
    record("What do bees collect?", ["sand", "nectar and pollen", "snow"], "B", id="q1"),
    record("Which is the hottest?", ["ice", "a candle flame", "rain", "fog"], "2", labels="1234", id="q2"),
    record("What falls?", ["an apple", "a cloud"], "A"),
]


@pytest.fixture
def items(tmp_path):
    return SUITE.items(folder(tmp_path, "arc_easy", test__jsonl=RECORDS))


def test_prompts_answers_and_right_places_are_those_of_the_harness(items):
    rows = [
        {
            "id": row.get("id", "3"),
            "question": row["question"]["stem"],
            "choices": {
                "text": [choice["text"] for choice in row["question"]["choices"]],
                "label": [choice["label"] for choice in row["question"]["choices"]],
            },
            "answerKey": row["answerKey"],
        }
        for row in RECORDS
    ]
    task = harness_task("arc/arc_easy.yaml", {"train": rows, "validation": rows, "test": rows})
    assert task.config.target_delimiter == " "
    for item, row in zip(items, rows, strict=True):
        assert item.asks == (Choices(task.doc_to_text(row), tuple(f" {answer}" for answer in task.doc_to_choice(row))),)
        assert item.facts["right"] == int(task.doc_to_target(row))
        assert SUITE.reference(item) == f" {task.doc_to_choice(row)[item.facts['right']]}"
    # The second answer is likelier by character alone in the first question, right in both ways in the second.
    likely = [(-4.0, -6.0, -9.0), (-3.0, -1.0, -5.0, -7.0), (-2.0, -1.5)]
    results = [[(value, False) for value in values] for values in likely]
    theirs = [task.process_results(row, result) for row, result in zip(rows, results, strict=True)]
    figures = by_key(SUITE.figures([scored(item, *values) for item, values in zip(items, likely, strict=True)]))
    assert figures["accuracy"].value == pytest.approx(100 * sum(row["acc"] for row in theirs) / 3)
    assert figures["accuracy_by_length"].value == pytest.approx(100 * sum(row["acc_norm"] for row in theirs) / 3)


def test_accuracies_are_those_worked_out_by_hand(items):
    # By character: -4/4 = -1, -6/17, -9/4 is right; -3/3 = -1, -1/14, ... is right; -2/8 = -0.25, -1.5/7 = -0.21 wrong.
    outcomes = [scored(items[0], -4, -6, -9), scored(items[1], -3, -1, -5, -7), scored(items[2], -2, -1.5)]
    figures = by_key(SUITE.figures(outcomes))
    assert figures["accuracy"].value == pytest.approx(100 / 3)
    assert figures["accuracy_by_length"].value == pytest.approx(200 / 3)
    assert (figures["accuracy"].n, figures["accuracy"].unscored) == (3, 0)
    assert SUITE.main in figures
    figures = by_key(SUITE.figures([scored(items[2], -1.0, -1.0)]))
    assert figures["accuracy"].value == 0.0
    refused = likelihood(-1.0, refused=1)
    outcomes = [scored(items[2], refused, refused), scored(items[2], likelihood(-5.0), refused)]
    figures = by_key(SUITE.figures(outcomes, "zero"))
    assert (figures["accuracy"].value, figures["accuracy"].n, figures["accuracy"].unscored) == (100.0, 1, 1)
    assert by_key(SUITE.figures(outcomes))["accuracy"].unscored == 0
    assert [item.id for item in items] == ["q1", "q2", "3"]
    assert all(item.unit == item.id for item in items)


@pytest.mark.parametrize("row", [
    record("Q", ["a", "b"], "C"), record("Q", ["a"], "A"), record("Q", ["a", ""], "A"),
    {"question": {"stem": "Q"}, "answerKey": "A"}, {"question": "Q", "answerKey": "A"}, {"answerKey": "A", "id": "x"},
])  # fmt: skip
def test_a_damaged_record_is_named_with_its_line(tmp_path, row):
    with pytest.raises(DataError, match=r"test\.jsonl, line 2: "):
        SUITE.items(folder(tmp_path, "arc_easy", test__jsonl=[RECORDS[0], row]))


def test_records_of_a_hub_give_the_same_items(items, monkeypatch):
    rows = [
        {"id": "q1", "question": "What do bees collect?", "answerKey": "B"}
        | {"choices": {"text": ["sand", "nectar and pollen", "snow"], "label": ["A", "B", "C"]}}
    ]
    lines = [Line("hub", number, row) for number, row in enumerate(rows, 1)]
    monkeypatch.setattr("coft_core.suites.base.hub_lines", lambda part: lines)
    assert SUITE.items_from_hub() == items[:1]
    lines[0] = Line("hub", 1, {**rows[0], "choices": {"text": ["a"], "label": ["A", "B"]}})
    with pytest.raises(DataError, match="hub, line 1: the field 'choices'"):
        SUITE.items_from_hub()
