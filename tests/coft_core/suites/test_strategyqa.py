"""StrategyQA is asked by likelihood as lm-evaluation-harness asks it, and in writing with examples of its own facts."""

import json

import pytest

from coft_core.suites.base import Choices
from coft_core.suites.files import DataError, Line
from coft_core.suites.strategyqa import StrategyQa, StrategyQaChain, stated_answer
from tests.coft_core.suites.by_hand import by_key, folder, likelihood, scored, written
from tests.coft_core.suites.harness import harness_task

SUITE, CHAIN = StrategyQa(), StrategyQaChain()


def record(number, answer, facts=("Owls are awake at night", "The sun sets in the evening.")):
    question = f"Could owl number {number} watch a sunset?"
    return {"qid": f"q{number}", "term": "Owl", "question": question, "answer": answer, "facts": list(facts)}


TRAIN = [record(number, number % 2 == 0) for number in range(8)]
DEV = [record(100, True), record(101, False)]


def data(path, train=TRAIN, dev=DEV):
    return folder(path, "strategyqa", train__json=json.dumps(train).encode(), dev__json=json.dumps(dev))


@pytest.fixture
def items(tmp_path):
    return SUITE.items(data(tmp_path))


def test_prompts_and_scores_are_those_of_the_harness(items):
    rows = [
        {
            "inputs": f"Q: {row['question']}\nA:",
            "targets": ["Yes" if row["answer"] else "No"],
            "multiple_choice_targets": ["Yes", "No"],
            "multiple_choice_scores": [int(row["answer"]), int(not row["answer"])],
        }
        for row in DEV
    ]
    task = harness_task("bigbench/multiple_choice/strategyqa.yaml", {"default": rows})
    for item, row in zip(items[-2:], rows, strict=True):
        assert item.asks == (Choices(task.doc_to_text(row), tuple(f" {answer}" for answer in task.doc_to_choice(row))),)
        for likely in ((-1.0, -2.0), (-2.0, -1.0)):
            theirs = task.process_results(row, [(value, False) for value in likely])["acc"]
            assert by_key(SUITE.figures([scored(item, *likely)]))["accuracy"].value == 100.0 * theirs


def test_figures_are_those_worked_out_by_hand(items):
    yes, no = items[-2], items[-1]
    outcomes = [scored(yes, -1, -2), scored(yes, -2, -1), scored(yes, -1, -1), scored(no, -1, -2)]
    figures = by_key(SUITE.figures(outcomes))
    assert figures["accuracy"].value == pytest.approx(25.0)
    assert figures["yes"].value == pytest.approx(200 / 3)
    assert (figures["yes"].n, figures["yes"].unscored) == (3, 1)
    assert figures["accuracy/true answer Yes"].value == pytest.approx(100 / 3)
    assert figures["accuracy/true answer No"].value == 0.0
    assert "accuracy_by_length" not in figures
    refused = likelihood(-1.0, refused=1)
    figures = by_key(SUITE.figures([scored(items[0], refused, refused)], "zero"))
    assert (figures["accuracy"].value, figures["accuracy"].unscored) == (None, 1)
    assert (figures["yes"].value, figures["yes"].unscored) == (None, 1)
    assert (figures["accuracy/true answer No"].value, figures["accuracy/true answer No"].n) == (None, 0)


def test_questions_of_both_parts_are_read_and_those_of_the_whole_file_where_it_is_there(tmp_path, items):
    assert [item.id for item in items] == [f"q{n}" for n in (*range(8), 100, 101)]
    whole = data(tmp_path)
    (tmp_path / "strategyqa" / "strategyqa_train.json").write_text(json.dumps(DEV))
    assert SUITE.items(whole) == items[-2:]


def test_a_missing_part_is_an_error(tmp_path):
    with pytest.raises(DataError, match=r"There is no file dev\.json"):
        SUITE.items(folder(tmp_path, "strategyqa", train__json=json.dumps(TRAIN)))


@pytest.mark.parametrize("content", ["{}", "[1]"])
def test_a_document_that_is_no_list_of_questions_is_an_error(tmp_path, content):
    with pytest.raises(DataError, match=r"train\.json has no list of records"):
        SUITE.items(folder(tmp_path, "strategyqa", train__json=content, dev__json="[]"))


def test_an_answer_that_is_not_true_or_false_is_an_error_with_its_entry(tmp_path):
    with pytest.raises(DataError, match=r"dev\.json, line 2: the field 'answer' is 'no'"):
        SUITE.items(data(tmp_path, dev=[DEV[0], {**DEV[1], "answer": "no"}]))


def test_written_answers_follow_examples_of_facts_which_are_not_asked_themselves(tmp_path):
    items = CHAIN.items(data(tmp_path))
    # Six examples of 120 characters or less are shown, and four of the ten questions are left.
    assert len(items) == 4
    for item in items:
        *shown, question = item.asks[0].prompt.split("\n\n")
        assert len(shown) == item.facts["examples"] == 6
        assert len("\n\n".join([*shown, ""])) <= CHAIN.characters
        number = int(item.id[1:])
        assert question == f"Q: Could owl number {number} watch a sunset?\nA:"
        assert not any(f"number {number} " in example for example in shown)
        assert all("\nA: Owls are awake at night. The sun sets in the evening. So the answer is " in x for x in shown)
    right = {row["qid"]: "yes" if row["answer"] else "no" for row in [*TRAIN, *DEV]}
    assert [CHAIN.reference(item).endswith(f" So the answer is {right[item.id]}.") for item in items] == [True] * 4


def test_the_first_stated_answer_is_read():
    for text, place in (
        (" It is dark. So the answer is yes.", 0), (" So the Answer is NO. The answer is yes.", 1),
        (" The answer is: no", 1), (" The answer is notable.", None), (" Yes.", None), ("", None),
    ):  # fmt: skip
        assert stated_answer(text) == place


def test_figures_of_written_answers_are_those_worked_out_by_hand(tmp_path):
    items = CHAIN.items(data(tmp_path))
    yes = next(item for item in items if item.facts["right"] == 0)
    no = next(item for item in items if item.facts["right"] == 1)
    outcomes = [
        written(yes, " So the answer is yes."),
        written(yes, " So the answer is no."),
        written(no, " Owls sleep", finished="length"),
        written(no, " So the answer is no."),
    ]
    figures = by_key(CHAIN.figures(outcomes))
    assert figures["accuracy"].value == pytest.approx(200 / 3)
    assert (figures["accuracy"].n, figures["accuracy"].unscored) == (3, 1)
    assert figures["accuracy_unscored_wrong"].value == pytest.approx(50.0)
    assert figures["yes"].value == pytest.approx(100 / 3)
    assert figures["cut_off"].value == pytest.approx(25.0)
    assert figures["accuracy/true answer Yes"].value == pytest.approx(50.0)
    assert figures["accuracy/true answer No"].value == pytest.approx(100.0)


def test_records_of_a_hub_give_the_same_items(items, monkeypatch, tmp_path):
    lines = [Line("hub", number, row) for number, row in enumerate([*TRAIN, *DEV], 1)]
    monkeypatch.setattr("coft_core.suites.base.hub_lines", lambda part: lines)
    assert SUITE.items_from_hub() == items
    assert CHAIN.items_from_hub() == CHAIN.items(data(tmp_path))
