"""GSM8K is asked, read and scored as lm-evaluation-harness does it, and says what it could not read."""

import pytest

from coft_core.suites.base import Writing
from coft_core.suites.files import DataError, Line
from coft_core.suites.gsm8k import Gsm8k, Gsm8kFiveShot, last_number, marked_number, plain
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


def test_examples_keep_to_their_number_of_characters_and_are_the_same_every_time(data, items):
    before = (
        items[0].asks[0].prompt.removesuffix("Question: Bo has 1,200 coins and spends 18. How many are left?\nAnswer:")
    )
    assert 0 < len(before) <= SUITE.characters
    assert items[1].asks[0].prompt.startswith(before)
    assert SUITE.items(data) == items


def test_fewer_examples_are_shown_where_five_are_too_long(tmp_path):
    long = [{**row, "question": row["question"] + " Tell." * 30} for row in TRAIN]
    [item, _] = SUITE.items(folder(tmp_path, "gsm8k", train__jsonl=long, test__jsonl=TEST))
    # Each takes 267 characters or a few more, so that two fit into 650.
    assert item.facts["examples"] == 2
    [item, _] = Gsm8kFiveShot().items(folder(tmp_path, "gsm8k", train__jsonl=long, test__jsonl=TEST))
    assert item.facts["examples"] == 5


@pytest.mark.parametrize(("name", "read"), [("flexible-extract", last_number), ("strict-match", marked_number)])
def test_numbers_are_read_as_the_filters_of_the_harness_read_them(task, name, read):
    theirs = filtered(task, TEXTS, name)
    for text, found in zip(TEXTS, theirs, strict=True):
        assert read(text) == (found if any(letter.isdigit() for letter in found) else None), text


@pytest.mark.parametrize("name", ["flexible-extract", "strict-match"])
@pytest.mark.parametrize("row", TEST)
def test_right_answers_are_those_of_the_harness_where_unscored_ones_are_wrong(tmp_path, task, name, row):
    item = SUITE.items(folder(tmp_path, "gsm8k", train__jsonl=TRAIN, test__jsonl=[row]))[0]
    key = "accuracy_unscored_wrong" if name == "flexible-extract" else "accuracy_strict_unscored_wrong"
    for text, found in zip(TEXTS, filtered(task, TEXTS, name), strict=True):
        figures = by_key(SUITE.figures([written(item, text)]))
        assert figures[key].value == 100.0 * task.process_results(row, [found])["exact_match"], text


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


def test_numbers_are_compared_without_commas_signs_of_money_and_a_last_dot():
    assert plain("so 3\n#### $1,182.") == plain("1182") == "1182"
    assert plain("12.50") != plain("12.5")


def test_an_answer_without_its_number_is_an_error_with_its_line(tmp_path):
    with pytest.raises(DataError, match=r"test\.jsonl, line 2: the field 'answer' is '12' and has no number"):
        SUITE.items(folder(tmp_path, "gsm8k", train__jsonl=TRAIN, test__jsonl=[TEST[0], {**TEST[1], "answer": "12"}]))


def test_without_examples_there_is_an_error_and_no_other_prompt(tmp_path):
    with pytest.raises(DataError, match=r"There is no file train\.jsonl"):
        SUITE.items(folder(tmp_path, "gsm8k", test__jsonl=TEST))


def test_records_of_a_hub_give_the_same_items(items, monkeypatch):
    rows = {"test": TEST, "train": TRAIN}
    monkeypatch.setattr(
        "coft_core.suites.gsm8k.hub_lines",
        lambda part: [Line("hub", number, row) for number, row in enumerate(rows[part.split], 1)],
    )
    assert SUITE.items_from_hub() == items
