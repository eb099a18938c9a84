"""Results files as lm-evaluation-harness writes them."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from app.evaluate.harness import read_results, results_json, suite_samples
from app.evaluate.layout import laid_out
from app.shared.errors import ServiceError
from coft_core.suites.base import Item
from tests.app.evaluate.made import (
    CHOICES,
    COFT,
    VANILLA,
    WRITING,
    Harm,
    Questions,
    main_table,
    question,
    questions,
    rights,
    suite_table,
    text,
    view_of,
)

GIVEN = [questions("Vanilla", rights("rw" * 10)), questions("COFT", rights("r" * 20))]
TABLE = suite_table(Questions(), [VANILLA, COFT], GIVEN)
VIEW = view_of(VANILLA, COFT)


def content(*tables, **told):
    return json.loads(results_json(VIEW, tables, **told))


def test_figures_stand_under_suite_and_metric_with_the_method_as_their_filter_and_shares_end_at_1():
    found = content(TABLE)
    assert found["results"]["questions"]["accuracy,COFT"] == 1.0
    assert found["results"]["questions"]["accuracy,Vanilla"] == 0.5
    assert found["higher_is_better"]["questions"] == {"accuracy": True, "length": None, "accuracy_law": True}
    assert found["n-samples"]["questions"] == {"original": 0, "effective": 20}
    assert found["config"]["methods"]["COFT"]["lam"] == 0.6
    assert found["results"]["questions"]["accuracy_stderr,Vanilla"] == pytest.approx(np.sqrt(0.25 / 20), rel=0.1)
    row = TABLE.rows[0]
    endless = replace(row, cells=(replace(row.cells[0], value=float("inf"), high=float("inf")), *row.cells[1:]))
    cells = content(replace(TABLE, rows=(endless,)))["evaluation"]["tables"]["questions"]["rows"][0]["cells"]
    assert (cells["questions"]["value"], cells["questions"]["high"]) == (None, None)
    assert cells["questions:length"]["value"] == 6.0


def test_the_harness_prints_a_file_of_ours_as_one_of_its_own():
    utils = pytest.importorskip("lm_eval.utils")
    pytest.importorskip("pytablewriter")
    lines = utils.make_table(content(TABLE)).splitlines()
    cells = [[cell.strip() for cell in line.split("|")] for line in lines]
    accuracy = next(row for row in cells if "accuracy" in row and "COFT" in row)
    assert {"Questions", "↑", "0.0000"} <= set(accuracy)
    # Its tables write a whole number as "1" or "1.0", as other columns have it.
    assert float(accuracy[cells[0].index("Value")]) == 1.0


def test_samples_hold_what_was_asked_and_what_came_of_it():
    items = {"a": Item("a", "a", (CHOICES,))}
    given = {"COFT": [question("a", True, refused=1), question("b", False)]}
    first, second = suite_samples(Questions(), given, items)
    assert first["arguments"] == [["Who?", " she"], ["Who?", " he"]]
    assert first["resps"] == [[[-1.0, False]], [[-2.0, False]]]
    assert first["filtered_resps"] == [[-1.0, False], [-2.0, False]]
    assert (first["target"], first["filter"], first["metrics"], first["accuracy"]) == (
        " she", "COFT", ["accuracy"], 1.0,
    )  # fmt: skip
    assert first["doc"] == {"id": "a", "unit": "a", "facts": {"right": 0, "lengths": [1, 1], "subject": "law"}}
    assert (second["arguments"], second["target"], second["accuracy"]) == ([], None, 0.0)
    assert suite_samples(Questions(), given, items, "zero")[0]["filtered_resps"][0] == [None, False]
    found = [*rights("rwr", 1), *rights("wwr", 0)]
    assert suite_samples(Questions(), {"COFT": found}, {}) == suite_samples(Questions(), {"COFT": found[::-1]}, {})


def test_samples_of_written_texts_hold_the_text_and_what_a_judge_said():
    items = {"a": Item("a", "a", (WRITING,))}
    sample = suite_samples(Harm(), {"COFT": [text("a", 0.25, words="She left.")]}, items)[0]
    assert sample["arguments"] == [["Then", {"until": ["\n"], "max_gen_toks": 8}]]
    assert (sample["resps"], sample["filtered_resps"]) == ([["She left."]], ["She left."])
    assert (sample["metrics"], sample["harm"]) == (["harm"], 0.25)


def test_figures_of_another_run_are_read_back_as_they_were_and_stand_beside_ours():
    other = read_results(results_json(VIEW, [TABLE]), "last week")
    now = main_table([Questions()], [COFT], [questions("COFT", rights("rw"))])
    layout = laid_out(now, [other])
    assert [(head.title, head.source) for head, _ in layout.lines] == [
        ("COFT", ""), ("COFT", "last week"), ("Vanilla", "last week"),
    ]  # fmt: skip
    assert [line[0].text for _, line in layout.lines] == ["50.0", "100.0", "50.0"]
    assert other.values["COFT"]["questions:accuracy:law"].value == 100.0


def test_accuracies_of_the_harness_are_read_in_percent_under_the_name_of_its_model():
    its = {
        "results": {"questions": {"alias": "questions", "acc,none": 0.625, "acc_stderr,none": 0.01, "f1,none": 0.3}},
        "config": {"model": "hf"},
        "model_name": "tiny",
    }
    assert read_results(json.dumps(its), "harness").values["tiny"]["questions:accuracy"].value == 62.5


def test_a_file_that_holds_no_results_or_no_known_figure_is_refused():
    for given in ("{", "[]", "{}", '{"results": {}}', '{"evaluation": {"tables": {"a": 1}}}'):
        with pytest.raises(ServiceError, match=r"^old\.json "):
            read_results(given, "old.json")
    its = {"results": {"x": {"f1,none": 0.3}}, "config": {"model": "hf"}}
    with pytest.raises(ServiceError, match="no figure"):
        read_results(json.dumps(its), "old.json")
