"""PIQA is asked and scored as lm-evaluation-harness asks and scores it."""

import pytest

from coft_core.suites.base import Choices
from coft_core.suites.files import DataError, Line
from coft_core.suites.piqa import Piqa
from tests.coft_core.suites.by_hand import by_key, folder, scored
from tests.coft_core.suites.harness import harness_task

SUITE = Piqa()
ROWS = [
    {"goal": "Keep a door open", "sol1": "wedge it", "sol2": "paint the wedge blue and wait"},
    {"goal": "Dry a cup", "sol1": "fill it with more water", "sol2": "wipe it "},
    {"goal": "Boil an egg", "sol1": "use a cold pan", "sol2": "use hot water"},
]
LABELS = [0, 1, 1]


def data(path, rows=ROWS, labels="0\n1\n1\n"):
    return folder(path, "piqa", valid__jsonl=rows, valid_labels__lst=labels)


@pytest.fixture
def items(tmp_path):
    return SUITE.items(data(tmp_path))


def test_prompts_answers_and_scores_are_those_of_the_harness(items):
    rows = [{**row, "label": label} for row, label in zip(ROWS, LABELS, strict=True)]
    task = harness_task("piqa/piqa.yaml", {"train": rows, "validation": rows})
    likely = [(-9.0, -12.0), (-8.0, -9.0), (-6.0, -7.0)]
    theirs = []
    for item, row, values in zip(items, rows, likely, strict=True):
        answers = tuple(f" {answer}" for answer in task.doc_to_choice(row))
        assert item.asks == (Choices(task.doc_to_text(row), answers),)
        assert item.facts["right"] == task.doc_to_target(row)
        theirs.append(task.process_results(row, [(value, False) for value in values]))
    figures = by_key(SUITE.figures([scored(item, *values) for item, values in zip(items, likely, strict=True)]))
    assert figures["accuracy"].value == pytest.approx(100 * sum(row["acc"] for row in theirs) / 3)
    assert figures["accuracy_by_length"].value == pytest.approx(100 * sum(row["acc_norm"] for row in theirs) / 3)


def test_accuracies_and_references_are_those_worked_out_by_hand(items):
    # By character -9/8 < -12/29 is wrong, -8/23 > -9/8 is wrong, -6/14 > -7/13 is wrong.
    figures = by_key(SUITE.figures([scored(items[0], -9, -12), scored(items[1], -8, -9), scored(items[2], -6, -7)]))
    assert figures["accuracy"].value == pytest.approx(100 / 3)
    assert figures["accuracy_by_length"].value == 0.0
    assert figures["accuracy"].what == "goals"
    assert [SUITE.reference(item) for item in items] == [" wedge it", " wipe it ", " use hot water"]


def test_another_number_of_labels_than_of_questions_is_an_error_that_names_both(tmp_path):
    with pytest.raises(DataError, match=r"valid\.jsonl has 3 questions and valid-labels\.lst has 2 labels"):
        SUITE.items(data(tmp_path, labels="0\n1\n"))


def test_records_of_a_hub_give_the_same_items(items, monkeypatch):
    rows = [{**row, "label": label} for row, label in zip(ROWS, LABELS, strict=True)]
    lines = [Line("hub", number, row) for number, row in enumerate(rows, 1)]
    monkeypatch.setattr("coft_core.suites.base.hub_lines", lambda part: lines)
    assert SUITE.items_from_hub() == items
    lines[1] = Line("hub", 2, {**rows[1], "label": -1})
    with pytest.raises(DataError, match="hub, line 2: the field 'label' is -1"):
        SUITE.items_from_hub()
