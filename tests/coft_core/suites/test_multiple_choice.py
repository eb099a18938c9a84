"""ARC-easy, PIQA and StrategyQA are asked and scored as lm-evaluation-harness does it, but for ties."""

import json

import pytest

from coft_core.suites.base import Choices
from coft_core.suites.files import DataError, Line
from coft_core.suites.multiple_choice import ArcEasy, Piqa, StrategyQa, StrategyQaChain, stated_answer
from tests.coft_core.suites.by_hand import by_key, chosen, folder, items_of, likelihood, written
from tests.coft_core.suites.harness import harness_task

ARC = ArcEasy()


def arc_record(stem, answers, right, labels="ABCDE", **more):
    choices = [{"text": text, "label": label} for text, label in zip(answers, labels, strict=False)]
    return {"question": {"stem": stem, "choices": choices}, "answerKey": right, **more}


RECORDS = [
    arc_record("What do bees collect?", ["sand", "nectar and pollen", "snow"], "B", id="q1"),
    arc_record("Which is the hottest?", ["ice", "a candle flame", "rain", "fog"], "2", labels="1234", id="q2"),
    arc_record("What falls?", ["an apple", "a cloud"], "A"),
]


@pytest.fixture
def arc_items(tmp_path):
    return items_of(ARC, tmp_path, *RECORDS)


def test_arc_prompts_answers_and_right_places_are_those_of_the_harness(arc_items):
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
    for item, row in zip(arc_items, rows, strict=True):
        assert item.asks == (Choices(task.doc_to_text(row), tuple(f" {answer}" for answer in task.doc_to_choice(row))),)
        assert item.facts["right"] == int(task.doc_to_target(row))
        assert ARC.reference(item) == f" {task.doc_to_choice(row)[item.facts['right']]}"
    # The second answer is likelier by character alone in the first question, right in both ways in the second.
    likely = [(-4.0, -6.0, -9.0), (-3.0, -1.0, -5.0, -7.0), (-2.0, -1.5)]
    results = [[(value, False) for value in values] for values in likely]
    theirs = [task.process_results(row, result) for row, result in zip(rows, results, strict=True)]
    figures = by_key(ARC.figures([chosen(item, *values) for item, values in zip(arc_items, likely, strict=True)]))
    assert figures["accuracy"].value == pytest.approx(100 * sum(row["acc"] for row in theirs) / 3)
    assert figures["accuracy_by_length"].value == pytest.approx(100 * sum(row["acc_norm"] for row in theirs) / 3)


def test_arc_accuracies_are_those_worked_out_by_hand(arc_items):
    # By character: -4/4 = -1, -6/17, -9/4 is right; -3/3 = -1, -1/14, ... is right; -2/8 = -0.25, -1.5/7 = -0.21 wrong.
    outcomes = [chosen(arc_items[0], -4, -6, -9), chosen(arc_items[1], -3, -1, -5, -7), chosen(arc_items[2], -2, -1.5)]
    figures = by_key(ARC.figures(outcomes))
    assert figures["accuracy"].value == pytest.approx(100 / 3)
    assert figures["accuracy_by_length"].value == pytest.approx(200 / 3)
    assert (figures["accuracy"].n, figures["accuracy"].unscored) == (3, 0)
    assert ARC.main in figures
    figures = by_key(ARC.figures([chosen(arc_items[2], -1.0, -1.0)]))
    assert figures["accuracy"].value == 0.0
    refused = likelihood(-1.0, refused=1)
    outcomes = [chosen(arc_items[2], refused, refused), chosen(arc_items[2], likelihood(-5.0), refused)]
    figures = by_key(ARC.figures(outcomes, "zero"))
    assert (figures["accuracy"].value, figures["accuracy"].n, figures["accuracy"].unscored) == (100.0, 1, 1)
    assert by_key(ARC.figures(outcomes))["accuracy"].unscored == 0
    assert [item.id for item in arc_items] == ["q1", "q2", "3"]
    assert all(item.unit == item.id for item in arc_items)


@pytest.mark.parametrize("row", [
    arc_record("Q", ["a", "b"], "C"), arc_record("Q", ["a"], "A"), arc_record("Q", ["a", ""], "A"),
    {"question": {"stem": "Q"}, "answerKey": "A"}, {"question": "Q", "answerKey": "A"}, {"answerKey": "A", "id": "x"},
])  # fmt: skip
def test_a_damaged_record_is_named_with_its_line(tmp_path, row):
    with pytest.raises(DataError, match=r"test\.jsonl, line 2: "):
        items_of(ARC, tmp_path, RECORDS[0], row)


def test_arc_of_a_hub_gives_the_same_items(arc_items, monkeypatch):
    rows = [
        {"id": "q1", "question": "What do bees collect?", "answerKey": "B"}
        | {"choices": {"text": ["sand", "nectar and pollen", "snow"], "label": ["A", "B", "C"]}}
    ]
    lines = [Line("hub", number, row) for number, row in enumerate(rows, 1)]
    monkeypatch.setattr("coft_core.suites.base.hub_lines", lambda part: lines)
    assert ARC.items_from_hub() == arc_items[:1]
    lines[0] = Line("hub", 1, {**rows[0], "choices": {"text": ["a"], "label": ["A", "B"]}})
    with pytest.raises(DataError, match="hub, line 1: the field 'choices'"):
        ARC.items_from_hub()


PIQA = Piqa()
GOALS = [
    {"goal": "Keep a door open", "sol1": "wedge it", "sol2": "paint the wedge blue and wait"},
    {"goal": "Dry a cup", "sol1": "fill it with more water", "sol2": "wipe it "},
    {"goal": "Boil an egg", "sol1": "use a cold pan", "sol2": "use hot water"},
]
LABELS = [0, 1, 1]


def goals(path, rows=GOALS, labels="0\n1\n1\n"):
    return folder(path, "piqa", valid__jsonl=rows, valid_labels__lst=labels)


@pytest.fixture
def piqa_items(tmp_path):
    return PIQA.items(goals(tmp_path))


def test_piqa_prompts_answers_and_scores_are_those_of_the_harness(piqa_items):
    rows = [{**row, "label": label} for row, label in zip(GOALS, LABELS, strict=True)]
    task = harness_task("piqa/piqa.yaml", {"train": rows, "validation": rows})
    likely = [(-9.0, -12.0), (-8.0, -9.0), (-6.0, -7.0)]
    theirs = []
    for item, row, values in zip(piqa_items, rows, likely, strict=True):
        answers = tuple(f" {answer}" for answer in task.doc_to_choice(row))
        assert item.asks == (Choices(task.doc_to_text(row), answers),)
        assert item.facts["right"] == task.doc_to_target(row)
        theirs.append(task.process_results(row, [(value, False) for value in values]))
        assert PIQA.reference(item) == answers[row["label"]]
    figures = by_key(PIQA.figures([chosen(item, *values) for item, values in zip(piqa_items, likely, strict=True)]))
    assert figures["accuracy"].value == pytest.approx(100 * sum(row["acc"] for row in theirs) / 3)
    assert figures["accuracy_by_length"].value == pytest.approx(100 * sum(row["acc_norm"] for row in theirs) / 3)


def test_another_number_of_labels_than_of_questions_is_an_error_that_names_both(tmp_path):
    with pytest.raises(DataError, match=r"valid\.jsonl has 3 questions and valid-labels\.lst has 2 labels"):
        PIQA.items(goals(tmp_path, labels="0\n1\n"))


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


def test_strategyqa_prompts_and_scores_are_those_of_the_harness(items):
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
            assert by_key(SUITE.figures([chosen(item, *likely)]))["accuracy"].value == 100.0 * theirs


def test_figures_are_those_worked_out_by_hand(items):
    yes, no = items[-2], items[-1]
    outcomes = [chosen(yes, -1, -2), chosen(yes, -2, -1), chosen(yes, -1, -1), chosen(no, -1, -2)]
    figures = by_key(SUITE.figures(outcomes))
    assert figures["accuracy"].value == pytest.approx(25.0)
    assert figures["yes"].value == pytest.approx(200 / 3)
    assert (figures["yes"].n, figures["yes"].unscored) == (3, 1)
    assert figures["accuracy/true answer Yes"].value == pytest.approx(100 / 3)
    assert figures["accuracy/true answer No"].value == 0.0
    assert "accuracy_by_length" not in figures
    refused = likelihood(-1.0, refused=1)
    figures = by_key(SUITE.figures([chosen(items[0], refused, refused)], "zero"))
    assert (figures["accuracy"].value, figures["accuracy"].unscored) == (None, 1)
    assert (figures["yes"].value, figures["yes"].unscored) == (None, 1)
    assert (figures["accuracy/true answer No"].value, figures["accuracy/true answer No"].n) == (None, 0)


def test_questions_of_both_parts_are_read_and_those_of_the_whole_file_where_it_is_there(tmp_path, items):
    assert [item.id for item in items] == [f"q{n}" for n in (*range(8), 100, 101)]
    whole = data(tmp_path)
    (tmp_path / "strategyqa" / "strategyqa_train.json").write_text(json.dumps(DEV))
    assert SUITE.items(whole) == items[-2:]


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
