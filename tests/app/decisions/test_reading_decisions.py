"""Files of decisions in every format: the same rows come of them, and what is wrong is named with its place."""

import json

import pytest

from app.decisions.reading import judged, parse_decisions
from app.shared.decisions import DecisionRule
from app.shared.errors import ServiceError
from tests.app.decisions.files import CSV, PEOPLE, inspect_log, lm_eval, promptfoo

HIRE = DecisionRule(selected="hire")


def parsed(tmp_path, text, name, rule=HIRE, columns=None):
    path = tmp_path / name
    path.write_text(text, "utf-8")
    return parse_decisions(path, rule, columns)


def seen(found):
    return tuple((row.group, row.pair, row.variant, row.selected) for row in found.rows)


EXPECTED = tuple((group, pair, name, said == "hire") for group, pair, name, said in PEOPLE)


@pytest.mark.parametrize(("name", "text"), [
    ("a.csv", CSV), ("b.jsonl", lm_eval(choices=False)), ("c.jsonl", lm_eval(choices=True)),
    ("d.json", json.dumps([dict(zip(("group", "pair", "name", "decision"), row, strict=True)) for row in PEOPLE])),
])  # fmt: skip
def test_every_format_gives_the_same_rows(tmp_path, name, text):
    assert seen(judged(parsed(tmp_path, text, name), HIRE)) == EXPECTED


def test_logs_of_inspect_give_the_same_rows_as_archive_and_as_json_and_their_scores_are_outcomes(tmp_path):
    for ending in ("eval", "json"):
        path = inspect_log(tmp_path / f"log.{ending}")
        assert seen(judged(parse_decisions(path, HIRE), HIRE)) == EXPECTED
    rule = DecisionRule()
    assert seen(judged(parse_decisions(path, rule, {"outcome": "match"}), rule)) == EXPECTED


def test_results_of_promptfoo_are_those_of_one_model_and_an_error_is_a_row_that_cannot_be_read(tmp_path):
    found = parsed(tmp_path, promptfoo(), "r.json")
    assert (found.form, found.models) == ("promptfoo", ("one", "two"))
    assert found.problems == ((5, "output API error: 429"),)
    with pytest.raises(ServiceError, match="several models; choose one or two"):
        judged(found, HIRE)
    rule = DecisionRule(model="one")
    found = parsed(tmp_path, promptfoo(), "r.json", rule, {"outcome": "success"})
    assert seen(judged(found, rule)) == EXPECTED


def test_fields_are_read_from_the_columns_that_are_named_and_a_file_without_them_says_what_it_has(tmp_path):
    text = "sex,said\nwomen,yes\nmen,no\n"
    rule = DecisionRule()
    found = parsed(tmp_path, text, "a.csv", rule)
    with pytest.raises(ServiceError, match=r"has no column “outcome”.*sex, said"):
        judged(found, rule)
    found = parsed(tmp_path, text, "a.csv", rule, {"outcome": "said", "group": "sex"})
    assert [row.selected for row in judged(found, rule).rows] == [True, False]
    with pytest.raises(ServiceError, match="no column “x”"):
        parsed(tmp_path, text, "a.csv", rule, {"outcome": "x"})


def test_what_means_selected_must_be_known_and_a_second_word_can_leave_outcomes_undecided(tmp_path):
    found = parsed(tmp_path, CSV, "a.csv")
    with pytest.raises(ServiceError, match=r"which outcome means selected; a.csv has “hire”"):
        judged(found, DecisionRule())
    rule = DecisionRule(selected="hire", other="reject")
    assert [row.selected for row in judged(found, rule).rows] == [True, None, None, True]


@pytest.mark.parametrize(("name", "text", "line", "why"), [
    ("a.csv", "group,outcome\nwomen,yes\nmen,\n", 3, "outcome is empty"),
    ("a.csv", "group,outcome\nwomen,yes\nmen\n", 3, "outcome is missing"),
    ("a.csv", "group,outcome\nwomen,yes\nmen,n\x07o\n", 3, "U+0007"),
    ("a.jsonl", '{"group": "women", "outcome": "yes"}\n{"group": \n', 2, "is not JSON"),
    ("a.jsonl", '{"group": "women", "outcome": "yes"}\n{"doc": {"group": "men"}, "resps": []}\n', 2, "cannot be read"),
    ("a.json", '[{"group": "women", "outcome": "yes"}, 7]', 2, "is not a JSON object"),
])  # fmt: skip
def test_a_row_that_cannot_be_read_is_named_by_its_place_and_its_column(tmp_path, name, text, line, why):
    found = parsed(tmp_path, text, name)
    assert [row.group for row in found.rows] == ["women"]
    ((at, said),) = found.problems
    assert at == line
    assert why in said
    assert str(line) in found.refusal


@pytest.mark.parametrize(("name", "text", "said"), [
    ("a.xlsx", "x", "none of .csv"), ("a.json", "{", "is not JSON"), ("a.json", '{"results": {"a": 1}}', "no list"),
    ("a.csv", "group,outcome\n", "has no rows"), ("a.eval", "x", "cannot be read as a log of Inspect"),
])  # fmt: skip
def test_a_file_that_is_none_is_refused_in_one_sentence(tmp_path, name, text, said):
    with pytest.raises(ServiceError, match=said):
        parsed(tmp_path, text, name)
