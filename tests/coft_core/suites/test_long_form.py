"""Long texts are asked and compared as elsewhere: ROUGE-L of the harness, F1 of SQuAD, toxic texts from one half on."""

import sys

import pytest
from lm_eval.tasks._yaml_loader import load_yaml
from lm_eval.tasks.cnn_dailymail import utils as cnn_of_harness
from lm_eval.utils import apply_template

from coft_core.suites import long_form
from coft_core.suites.base import Writing
from coft_core.suites.files import DataError
from coft_core.suites.long_form import CnnDailyMail, Eli5, GovReport, first_words, rouge_l, token_f1
from tests.coft_core.suites.by_hand import by_key, items_of, written
from tests.coft_core.suites.harness import TASKS, harness_task

ARTICLE = {"id": "n1", "article": "The bridge opened.\nMany people came to see it.", "highlights": "A bridge opened ."}
REPORT = {"report": "The agency spent more.\n\nIt plans to spend less.", "summary": "Spending rose and will fall."}
QUESTION = {
    "q_id": "e1",
    "title": "Why is the sky blue?",
    "answers": {"text": ["Air scatters blue light.", " ", "Because of the air"], "score": [3, 2, 1]},
}


def test_news_reports_and_questions_are_asked_as_elsewhere(tmp_path):
    [item] = items_of(CnnDailyMail(), tmp_path, ARTICLE)
    task = harness_task("cnn_dailymail/cnn_dailymail.yaml", {"test": [ARTICLE]})
    assert item.asks == (Writing(task.doc_to_text(ARTICLE), task.config.generation_kwargs["max_gen_toks"], ("\n\n",)),)
    assert task.config.generation_kwargs["until"] == ["\n\n"]
    assert item.facts == {"references": [task.doc_to_target(ARTICLE)], "left_out": 0}
    assert item.id == "n1"
    [item] = items_of(GovReport(), tmp_path, REPORT)
    # Its metric needs packages that are not here; its prompt does not.
    task = load_yaml(TASKS / "longbench/gov_report.yaml", resolve_func=False)
    prompt = apply_template(task["doc_to_text"], {"context": REPORT["report"]})
    assert item.asks == (Writing(prompt, task["generation_kwargs"]["max_gen_toks"]),)
    assert task["generation_kwargs"]["until"] == []
    assert item.facts["references"] == [REPORT["summary"]]
    assert GovReport().reference(item) == f" {REPORT['summary']}"
    listed = {**QUESTION, "q_id": "e2", "answers": ["One answer."]}
    first, second = items_of(Eli5(), tmp_path, QUESTION, listed)
    assert first.asks == (Writing("Question: Why is the sky blue?\nAnswer:", 1024, ("Question:",)),)
    assert first.facts["references"] == ["Air scatters blue light.", "Because of the air"]
    assert (second.id, second.facts["references"]) == ("e2", ["One answer."])
    rows = [{**QUESTION, "q_id": name, "subreddit": name} for name in ("askscience", "explainlikeimfive")]
    assert [item.id for item in items_of(Eli5(), tmp_path, *rows, QUESTION)] == ["explainlikeimfive", "e1"]


@pytest.mark.parametrize("answers", [[], {"text": []}, {"score": [1]}, [" "], "none"])
def test_a_question_without_any_answer_is_an_error_with_its_line(tmp_path, answers):
    with pytest.raises(DataError, match=r"test\.jsonl, line 2: the field 'answers' is "):
        items_of(Eli5(), tmp_path, QUESTION, {**QUESTION, "answers": answers})


def test_rouge_and_f1_are_those_of_the_harness_and_worked_out_by_hand():
    for text, reference in (
        ("A bridge opened", "The bridge was opened, and people came."),
        ("People came to see  the bridge.\nIt opened", "Bridges open when people are coming to see them"),
        ("", "Something"), ("wholly other words", "nothing in common"), ("the same", "the same"),
    ):  # fmt: skip
        theirs = cnn_of_harness.calculate_rouge_scores([text], [reference])["rougeL"]
        assert rouge_l(text, [reference]) == pytest.approx(theirs)
    # The longest common subsequence of "cats sleep all day" and "a cat sleeps all the long day", stemmed, is four words
    # of four and of seven: F = 2 * 1 * 4/7 / (1 + 4/7) = 8/11.
    assert rouge_l("Cats sleep all day", ["A cat sleeps all the long day"]) == pytest.approx(8 / 11)
    # F1 drops articles and stems nothing: "all" and "day" of four and of five words, 2 * 2 / 9.
    assert token_f1("Cats sleep all day.", ["A cat sleeps all the long day!"]) == pytest.approx(4 / 9)
    # A word counts as often as both have it: 2 * 1 / (3 + 1).
    assert token_f1("day day day", ["the day"]) == pytest.approx(0.5)
    assert token_f1("", ["the"]) == 1.0
    assert token_f1("", ["word"]) == 0.0
    assert token_f1("An answer", ["other", "answer"]) == 1.0
    assert rouge_l("An answer", ["other", "an answer"]) == 1.0


def test_figures_are_those_worked_out_by_hand(tmp_path):
    suite = Eli5()
    rows = [{**QUESTION, "q_id": str(n), "answers": ["blue light scatters"]} for n in range(3)]
    first, second, third = items_of(suite, tmp_path, *rows)
    outcomes = [
        written(first, " Blue light scatters.", tokens=4, marks={"toxicity": (0.5,)}),
        written(second, " red light", "length", tokens=1024, marks={"toxicity": (0.49,)}),
        written(third, "", tokens=1, marks={"toxicity": (None,)}),
    ]
    figures = by_key(suite.figures(outcomes))
    # Of "red light" one word of two and of three: 2/5 by both measures.
    assert figures["rouge_l"].value == pytest.approx(100 * (1 + 0.4 + 0) / 3)
    assert figures["token_f1"].value == pytest.approx(100 * (1 + 0.4 + 0) / 3)
    assert figures["toxicity_rate"].value == pytest.approx(50.0)
    assert (figures["toxicity_rate"].n, figures["toxicity_rate"].unscored) == (2, 1)
    assert figures["tokens"].value == pytest.approx(343.0)
    assert figures["cut_off"].value == pytest.approx(100 / 3)
    assert "shortened" not in figures
    assert suite.main in figures


def test_long_articles_are_shortened_and_counted(tmp_path):
    suite = CnnDailyMail()
    long = {**ARTICLE, "id": "n2", "article": "One  two\nthree " * 501}
    short, shortened = items_of(suite, tmp_path, ARTICLE, long)
    assert shortened.facts["left_out"] == 3
    body = shortened.asks[0].prompt.removeprefix("Summarize the following article:\n\n").removesuffix("\n\nSummary:")
    assert body == ("One  two\nthree " * 500).strip()
    figures = by_key(suite.figures([written(short, "A"), written(shortened, "B")]))
    assert figures["shortened"].value == pytest.approx(50.0)
    assert first_words(" a b  c \n", 3) == (" a b  c \n", 0)
    assert first_words(" a b  c \n", 2) == (" a b", 1)
    suite = CnnDailyMail()
    [item] = items_of(suite, tmp_path, ARTICLE)
    assert "toxicity_rate" not in by_key(suite.figures([written(item, "A bridge.")]))
    with pytest.raises(DataError, match=r"test\.jsonl, line 1: the field 'highlights' is missing"):
        items_of(CnnDailyMail(), tmp_path, {"id": "x", "article": "y"})


def test_without_the_package_for_rouge_an_error_names_the_file_that_installs_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "rouge_score.rouge_scorer", None)
    long_form._scorer.cache_clear()
    with pytest.raises(DataError, match=r"install requirements-evaluation\.txt"):
        rouge_l("never compared before", ["nor this"])
    long_form._scorer.cache_clear()
