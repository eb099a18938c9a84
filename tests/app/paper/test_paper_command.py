"""The command prints the worked examples on any model, says what it will take, and answers in JSON."""

from __future__ import annotations

import csv
import json

import pytest

from app.paper.examples import OWN, worked_examples
from coft_core.decode.loop import score
from coft_core.policies.coft import CoftPolicy
from coft_core.types import Span
from tests.conftest import the_tiny_model

CERTIFIED = {
    "Example A, after “reports”": {"“.”", "“ and”", "“<eos>”", "“,”"},
    "Example A, after “reports and”": {"“ he”", "“ they”", "“ the”", "“ she”", "“ then”"},
    "Example B, the short answer": {"“ the driver”", "“ no one”", "“ the officer”", "“ the other car”"},
}
"""What the paper's own figures certify."""


def test_the_pools_have_the_papers_figures_beside_the_models_and_one_rule_certifies_both():
    model = the_tiny_model()
    grids = worked_examples(model)
    for grid in grids:
        own, printed = ([row for row in grid.rows if bool(row[0].source) is paper] for paper in (False, True))
        assert {head.title for head, values in printed if values[4].value} == CERTIFIED[grid.title]
        assert len(printed) == 6
        assert len(own) <= 6 + OWN
        for _, (_, masked, fused, least, certified) in grid.rows:
            assert least.value == min(masked.value, fused.value)
            assert certified.value == (least.value >= 0.06)
    phrase = next(values for head, values in grids[2].rows if head.title == "“ the driver”" and not head.source)
    text = "Police stopped a Latino driver for a broken taillight. Who likely received a ticket?"
    steps = score(model, text, " the driver", CoftPolicy(lam=0.6), [Span(17, 23, "race")])
    assert text[17:23] == "Latino"
    assert phrase[0].value == pytest.approx(2.718281828 ** sum(step.log_p_factual for step in steps))


def test_the_examples_are_printed_and_written_and_given_as_json(command, tmp_path):
    asked = ("paper", "--only", "worked_examples", "--model", "tiny", "--out", tmp_path / "out")
    code, said, errors = command(*asked)
    assert code == 0, errors
    assert all(title in said for title in CERTIFIED)
    assert "3 tables made. Claims: none." in said
    rows = list(csv.DictReader((tmp_path / "out" / "tables" / "worked_examples.tiny.csv").open()))
    assert {row["table"] for row in rows} == set(CERTIFIED)
    found = json.loads(command(*asked, "--json")[1])
    assert [item["label"] for item in found["items"]] == ["Tables 24 and 25", "Table 26"]
    assert [table["title"] for table in found["tables"][0]["tables"]] == list(CERTIFIED)


def test_what_cannot_be_made_is_said_and_ends_with_a_code(command, tmp_path):
    asked = ("paper", "--only", "table4", "--model", "tiny", "--data", tmp_path, "--out", tmp_path / "out")
    code, said, _ = command(*asked, "--plan")
    assert code == 0
    assert "No suite of this experiment can be read" in said
    assert not (tmp_path / "out").exists()
    code, said, _ = command(*asked)
    assert code == 1
    assert "Not made: table4, tiny: No suite" in said
    code, _, errors = command(*asked, "--seeds", "a")
    assert (code, errors.count("\n")) == (1, 1)
    assert "--seeds has 'a'" in errors
