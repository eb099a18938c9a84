"""An experiment runs from the terminal to its tables, says what takes no part, and refuses what it says itself."""

from __future__ import annotations

import json

import pytest

from app.bootstrap import services
from app.evaluate.experiment_service import ExperimentRequest, ExperimentService
from app.settings import Settings
from app.shared.errors import ServiceError
from tests.conftest import load_tiny

MINE = """
title: Mine
source: Table 9
shows: Accuracy.
differs: [It is small.]
suites: [phantom_questions, stereoset]
methods:
  - method: Vanilla=vanilla
  - method: Ours=coft:lam=0.4
  - method: CDA=cda
    needs: {checkpoint: a trained model}
averages:
  utility: [{suite: phantom_questions}]
run: {seeds: [0, 1]}
tables:
  - kind: methods
    title: Accuracy
    columns:
      - {title: Right, suite: phantom_questions}
      - {title: Change, average: utility, against: Vanilla}
    paper:
      - {model: other, source: Table 9, rows: {Ours: [70.0, -1.0]}}
  - {kind: speed, title: Speed, methods: [Vanilla, Ours], batches: [2], lengths: [40], prompt: 30, repeats: 1}
  - {kind: speed, title: Lengths, rows: lengths, methods: [Vanilla, Ours], batches: [1], lengths: [36, 99999],
     prompt: 30, repeats: 1}
"""


@pytest.fixture
def mine(tmp_path, monkeypatch):
    (tmp_path / "data").mkdir()
    monkeypatch.setenv("COFT_DATA", str(tmp_path / "data"))
    path = tmp_path / "mine.yaml"
    path.write_text(MINE)
    return path


def test_an_experiment_of_ones_own_is_evaluated_timed_and_printed_with_figures_from_elsewhere_beside(command, mine):
    asked = ("evaluate", "--experiment", mine, "--model", "tiny", "--limit", "6")
    code, said, errors = command(*asked, "--json")
    assert code == 0, errors
    found = json.loads(said)
    assert found["suites"] == {"phantom_questions": "phantom_questions"}
    assert found["methods"] == ["Vanilla", "Ours"]
    assert any("CDA is left out, since it needs --set cda.checkpoint" in told for told in found["left_out"])
    assert any("StereoSet is left out: There is no file dev.json" in told for told in found["left_out"])
    accuracy, speed, lengths = found["tables"]
    assert [(row["head"], row["source"]) for row in accuracy["rows"]] == [
        ("Vanilla", ""), ("Ours", ""), ("Ours", "paper, other"),
    ]  # fmt: skip
    assert accuracy["rows"][2]["cells"][0]["text"] == "70.0"
    assert accuracy["rows"][0]["cells"][1]["value"] == 0.0
    assert [row["head"] for row in speed["rows"]] == ["Vanilla", "Ours"]
    assert speed["rows"][0]["cells"][0]["value"] > 0
    assert speed["rows"][1]["cells"][2] is None  # only CUDA tells
    assert [row["head"] for row in lengths["rows"]] == ["36"]
    assert any("Left out: 99999" in note for note in lengths["notes"])
    code, said, errors = command(*asked)
    assert code == 0, errors
    assert "Mine (Table 9), tiny" in said
    assert "Not as in the paper:\n- It is small." in said
    # What was kept is read again, and not the model.
    listed = json.loads(command("evaluations", "list", "--json")[1])
    assert [item["done"] for item in listed] == [24, 24]


def test_what_an_experiment_says_itself_is_refused_beside_it(command, mine):
    for arguments, said in (
        (("--experiment", mine, "--suite", "piqa"), "leave --suite out"),
        (("--experiment", mine, "--top-p", "0.5", "--policy", "coft"), "leave --policies and --top-p out"),
        (("--suite", "phantom_questions", "--set", "cda.checkpoint=x"), "name it with --experiment"),
        (("--experiment", "table9"), "no experiment 'table9'"),
        (("--experiment", mine, "--model", "tiny", "--set", "gedi.discriminator=x"), "No method of this experiment"),
    ):
        code, _, errors = command("evaluate", *arguments)
        assert code != 0
        assert said in errors
        assert errors.count("\n") == 1


def test_the_named_experiments_are_listed_with_their_tables(command):
    code, said, _ = command("evaluations", "experiments", "--json")
    assert code == 0
    listed = {item["name"]: item for item in json.loads(said)}
    assert listed["table1"]["source"] == "Table 1"
    assert listed["table1"]["methods"] == ["Vanilla", "SDD", "DExperts", "DT-CD", "COFT"]
    assert "table1" in command("evaluations", "experiments")[1]


@pytest.fixture
def experiments(tmp_path, mine):
    settings = Settings(database_url=f"sqlite:///{tmp_path / 'store.sqlite3'}", pipeline="none")
    with services(settings, loader=load_tiny) as wired:
        yield wired[ExperimentService]


def test_a_suite_without_files_is_replaced_by_the_one_that_stands_in_for_it(experiments, mine):
    text = MINE.replace("phantom_questions", "arc_easy").replace(
        "source: Table 9\n", "source: Table 9\ninstead: {arc_easy: phantom_questions}\n", 1
    )
    mine.write_text(text)
    plan = experiments.plan(ExperimentRequest(str(mine), "tiny", 6))
    assert plan.suites == {"arc_easy": "phantom_questions"}
    assert plan.request.suites == ("phantom_questions",)
    assert plan.request.seeds == (0, 1)


def test_given_parameters_reach_the_method_and_one_that_cannot_be_loaded_is_left_out_with_its_reason(experiments, mine):
    plan = experiments.plan(ExperimentRequest(str(mine), "tiny", 6, given=(("cda.checkpoint", "trained"),)))
    (cda,) = (method for method in plan.methods if method.label == "CDA")
    assert dict(cda.settings.parameters) == {"checkpoint": "trained"}
    mine.write_text(MINE.replace("CDA=cda", "Tops=coft:lam=0.4,sentinel=two words"))
    mine.write_text(mine.read_text().replace("\n    needs: {checkpoint: a trained model}", ""))
    plan = experiments.plan(ExperimentRequest(str(mine), "tiny", 6))
    assert [method.label for method in plan.methods] == ["Vanilla", "Ours"]
    assert any(told.startswith("Tops is left out: ") for told in plan.left_out)


def test_an_experiment_none_of_whose_suites_can_be_read_is_refused(experiments, mine):
    mine.write_text(
        MINE.replace("[phantom_questions, stereoset]", "[stereoset]").replace("phantom_questions", "stereoset")
    )
    with pytest.raises(ServiceError, match=r"No suite of this experiment can be read\. StereoSet is left out"):
        experiments.plan(ExperimentRequest(str(mine), "tiny", 6))
