"""GSM8K is asked, read and scored as lm-evaluation-harness does it, and says what it could not read."""

import pytest

from coft_core.suites.base import Writing
from coft_core.suites.files import DataError, Line
from coft_core.suites.gsm8k import Gsm8k, Gsm8kFiveShot
from coft_core.suites.written import fitting
from tests.coft_core.suites.by_hand import by_key, folder, written
from tests.coft_core.suites.harness import filtered, harness_task

SUITE = Gsm8k()
TRAIN = [
    {
        "question": f"Ann has {n} pears and buys 1. How many?",
        "answer": f"She has {n}+1=<<{n}+1={n + 1}>>.\n#### {n + 1}",
    }
    for n in range(40)
]
TEST = [
    {"question": "Bo has 1,200 coins and spends 18. How many are left?", "answer": "1,200 - 18 = 1,182\n#### 1,182"},
    {"question": "A tie costs $4. What do 3 cost?", "answer": "3 * 4 = $12\n#### 12"},
]
TEXTS = [
    " 1200 - 18 is 1182.\n#### 1182", " It is $1,182.00 or so.\n#### 1,182", " Three ties: $12.",
    " The answer is 12 dollars. #### 13", " I do not know", " Twelve...", " #### .", "", " 12 and then -5",
    " #### -12.\n#### 12",
]  # fmt: skip


@pytest.fixture
def data(tmp_path):
    return folder(tmp_path, "gsm8k", train__jsonl=TRAIN, test__jsonl=TEST)


@pytest.fixture
def items(data):
    return SUITE.items(data)


@pytest.fixture
def task():
    return harness_task("gsm8k/gsm8k.yaml", {"train": TRAIN, "test": TEST})


def test_prompts_are_those_of_the_harness_for_the_same_examples(items, task):
    for item, row in zip(items, TEST, strict=True):
        (ask,) = item.asks
        assert isinstance(ask, Writing)
        *shown, question = ask.prompt.split("\n\n")
        assert question == task.doc_to_text(row)
        assert list(ask.stops) == task.config.generation_kwargs["until"]
        assert len(shown) == item.facts["examples"] == 5
        known = {f"{task.doc_to_text(row)} {task.doc_to_target(row)}" for row in TRAIN}
        assert len(set(shown)) == 5
        assert set(shown) <= known
    shown = items[0].asks[0].prompt.split("\n\n")[:-1]
    chosen = [row for text in shown for row in TRAIN if text == f"{task.doc_to_text(row)} {task.doc_to_target(row)}"]

    class Chosen:
        def sample(self, n, eval_doc=None):
            return chosen[:n]

    task.sampler = Chosen()
    assert task.fewshot_context(TEST[0], 5) == items[0].asks[0].prompt


def test_fewer_examples_are_shown_where_five_are_too_long(tmp_path):
    long = [{**row, "question": row["question"] + " Tell." * 30} for row in TRAIN]
    [item, _] = SUITE.items(folder(tmp_path, "gsm8k", train__jsonl=long, test__jsonl=TEST))
    # Each takes 267 characters or a few more, so that two fit into 650.
    assert item.facts["examples"] == 2
    [item, _] = Gsm8kFiveShot().items(folder(tmp_path, "gsm8k", train__jsonl=long, test__jsonl=TEST))
    assert item.facts["examples"] == 5


def test_numbers_are_read_and_judged_as_by_the_harness_where_unscored_ones_are_wrong(task, items):
    for name, key in (("flexible-extract", "accuracy"), ("strict-match", "accuracy_strict")):
        for text, found in zip(TEXTS, filtered(task, TEXTS, name), strict=True):
            for item, row in zip(items, TEST, strict=True):
                figures = by_key(SUITE.figures([written(item, text)]))
                theirs = 100.0 * task.process_results(row, [found])["exact_match"]
                assert figures[f"{key}_unscored_wrong"].value == theirs, text
                assert (figures[key].n == 1) is any(letter.isdigit() for letter in found), text


def test_figures_and_references_are_those_worked_out_by_hand(items):
    # Of 1182: right, right, no number; of 12: right by the last number but unmarked, marked and wrong.
    outcomes = [
        written(items[0], " 1182\n#### 1182"),
        written(items[0], " so #### 1,182."),
        written(items[0], " no idea", finished="length"),
        written(items[1], " It is $12."),
        written(items[1], " 12 #### 13", finished="context"),
    ]
    figures = by_key(SUITE.figures(outcomes))
    assert figures["accuracy"].value == pytest.approx(75.0)
    assert (figures["accuracy"].n, figures["accuracy"].unscored) == (4, 1)
    assert figures["accuracy_unscored_wrong"].value == pytest.approx(60.0)
    assert figures["accuracy_strict"].value == pytest.approx(200 / 3)
    assert (figures["accuracy_strict"].n, figures["accuracy_strict"].unscored) == (3, 2)
    assert figures["accuracy_strict_unscored_wrong"].value == pytest.approx(40.0)
    assert figures["cut_off"].value == pytest.approx(40.0)
    assert SUITE.main in figures
    figures = by_key(SUITE.figures([written(items[0], "none"), written(items[1], "")]))
    assert (figures["accuracy"].value, figures["accuracy"].unscored) == (None, 2)
    assert figures["accuracy_unscored_wrong"].value == 0.0
    assert SUITE.reference(items[1]) == " 3 * 4 = $12\n#### 12"


def test_no_more_and_no_longer_examples_are_taken_than_allowed_and_all_that_fit():
    texts = ["x" * length for length in (10, 40, 25, 90, 5, 60, 30, 15)]
    for most in (1, 3, 8):
        for characters in (0, 4, 20, 100, 1000):
            chosen = fitting(texts, most, characters)
            assert len(set(chosen)) == len(chosen) <= most
            left = characters - sum(len(texts[place]) for place in chosen)
            rest = [text for place, text in enumerate(texts) if place not in chosen]
            assert left >= 0
            assert len(chosen) == most or all(len(text) > left for text in rest)


def test_an_answer_without_its_number_is_an_error_with_its_line(tmp_path):
    with pytest.raises(DataError, match=r"test\.jsonl, line 2: the field 'answer' is '12' and has no number"):
        SUITE.items(folder(tmp_path, "gsm8k", train__jsonl=TRAIN, test__jsonl=[TEST[0], {**TEST[1], "answer": "12"}]))


def test_records_of_a_hub_give_the_same_items(items, monkeypatch):
    rows = {"test": TEST, "train": TRAIN}
    monkeypatch.setattr(
        "coft_core.suites.gsm8k.hub_lines",
        lambda part: [Line("hub", number, row) for number, row in enumerate(rows[part.split], 1)],
    )
    assert SUITE.items_from_hub() == items
