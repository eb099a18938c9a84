"""An experiment runs from the terminal to its tables, says what takes no part, and refuses what it says itself."""

from __future__ import annotations

import csv
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from app.bootstrap import services
from app.evaluate.experiments.figures import INSTEAD, Experiment
from app.evaluate.experiments.grid import Paper, Value
from app.evaluate.experiments.named import EXPERIMENTS
from app.evaluate.experiments.page import ExperimentHandlers
from app.evaluate.experiments.service import ExperimentRequest, ExperimentService
from app.evaluate.experiments.speed import SpeedRun, SpeedTable
from app.evaluate.experiments.tables import Column, FiguresTable
from app.evaluate.operations import estimate_evaluation, evaluation_request
from app.evaluate.runs import AskedExperiment
from app.evaluate.service import EvaluationService
from app.jobs.service import JobService
from app.settings import Settings
from app.shared.errors import JobCancelled, ServiceError
from coft_core.experiments.averages import Part
from coft_core.experiments.choice import Averaged
from tests.conftest import load_tiny

MINE = Experiment(
    "mine",
    "Mine",
    "Table 9",
    "Accuracy.",
    ("It is small.",),
    (
        FiguresTable(
            "Accuracy",
            (Paper("other", "Table 9", {"Ours": (Value(70.0), Value(-1.0))}),),
            (
                Column("Right", Part("phantom_questions")),
                Column("Change", average="utility", against="Vanilla"),
            ),
        ),
        SpeedTable("Speed", (), methods=("Vanilla", "Ours"), batches=(2,), lengths=(40,), prompt=30, repeats=1),
        SpeedTable("Lengths", (), "lengths", ("Vanilla", "Ours"), (1,), (36, 99999), prompt=30, repeats=1),
    ),
    suites=("phantom_questions", "stereoset"),
    methods=("Vanilla=vanilla", "Ours=coft:lam=0.4", "CDA=cda"),
    needs={"CDA": ("checkpoint", "a trained model")},
    averaged=Averaged(utility=(Part("phantom_questions"),)),
    seeds=(0, 1),
)
"""Small enough for a test."""


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """The small experiment among the named ones, with an empty folder of data."""
    (tmp_path / "data").mkdir()
    monkeypatch.setenv("COFT_DATA", str(tmp_path / "data"))
    monkeypatch.setitem(EXPERIMENTS, "mine", MINE)
    return lambda **changes: monkeypatch.setitem(EXPERIMENTS, "mine", replace(MINE, **changes))


@pytest.mark.slow
def test_an_experiment_is_evaluated_timed_and_printed_with_the_papers_figures_beside(command, mine):
    asked = ("evaluate", "--experiment", "mine", "--model", "tiny", "--limit", "6")
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
    assert speed["rows"][1]["cells"][2]["value"] > 0
    assert [row["head"] for row in lengths["rows"]] == ["36"]
    assert any("Left out: 99999" in note for note in lengths["notes"])
    # The tables of what was kept are the same, speed included.
    number = found["evaluation_id"]
    again = json.loads(command("evaluations", "table", number, "--experiment", "--json")[1])
    assert again == found
    assert "Mine (Table 9), tiny" in command("evaluations", "table", number, "--experiment")[1]
    assert f"evaluations table {number} --experiment" in command("evaluations", "table", number)[1]
    rows = list(csv.DictReader(command("evaluations", "export", number, "--experiment")[1].splitlines()))
    (papers,) = [row for row in rows if row["source"] and row["column"] == "Right"]
    assert (papers["row"], papers["source"], papers["value"]) == ("Ours", "paper, other", "70.0")
    measured = speed["rows"][0]["numbers"][0]
    (own,) = [row for row in rows if row["row"] == "Vanilla" and row["column"] == "Tokens a second"]
    assert [float(own[name]) for name in ("value", "low", "high")] == [measured[name] for name in
                                                                       ("value", "low", "high")]  # fmt: skip
    for form, mark in (("latex", r"\emph{Ours (paper, other)}"), ("html", '<h2 id="h-3">Lengths</h2>')):
        assert mark in command("evaluations", "export", number, "--experiment", "--format", form)[1]
    assert json.loads(command("evaluations", "export", number, "--experiment", "--format", "json")[1]) == found


def test_what_an_experiment_says_itself_is_refused_beside_it(command, mine):
    for arguments, said in (
        (("--experiment", "mine", "--suite", "piqa"), "leave --suite out"),
        (("--experiment", "mine", "--top-p", "0.5", "--policy", "coft"), "leave --policies and --top-p out"),
        (("--suite", "phantom_questions", "--set", "cda.checkpoint=x"), "name it with --experiment"),
        (("--experiment", "table9"), "no experiment 'table9'"),
        (("--experiment", "mine", "--model", "tiny", "--set", "gedi.discriminator=x"), "No method of this experiment"),
    ):
        code, _, errors = command("evaluate", *arguments)
        assert code != 0
        assert said in errors
        assert errors.count("\n") == 1
    for arguments, said in (
        (("table", "1", "--experiment", "--suite", "piqa"), "leave suite out"),
        (("export", "1", "--experiment", "--format", "json", "--samples"), "leave samples out"),
    ):
        code, _, errors = command("evaluations", *arguments)
        assert code != 0
        assert said in errors
    listed = {item["name"]: item for item in json.loads(command("evaluations", "experiments", "--json")[1])}
    assert listed["table1"]["methods"] == ["Vanilla", "SDD", "DExperts", "DT-CD", "COFT"]


@pytest.fixture
def wired(tmp_path, mine):
    settings = Settings(database_url=f"sqlite:///{tmp_path / 'store.sqlite3'}", pipeline="none")
    with services(settings, loader=load_tiny) as found:
        yield found


@pytest.fixture
def experiments(wired):
    return wired[ExperimentService]


def test_a_suite_without_files_is_replaced_by_the_one_that_stands_in_for_it(wired, experiments, mine, monkeypatch):
    monkeypatch.setitem(INSTEAD, "arc_easy", "phantom_questions")
    mine(suites=("arc_easy", "stereoset"))
    card = experiments.card("mine")
    assert [suite.key for suite in card.suites] == ["phantom_questions"]
    assert card.stand_ins == ("Phantom questions stands in for arc_easy, of which there is no file.",)
    assert [said.split(" is left out")[0] for said in card.lacking] == ["CDA", "StereoSet"]
    asked = experiments.request(ExperimentRequest("mine", "tiny", 6))
    evaluations = wired[EvaluationService]
    view = evaluations.view(evaluations.submit(asked))
    assert experiments.shown(view.id).suites == {"arc_easy": "phantom_questions"}
    assert asked.suites == ("phantom_questions",)
    assert asked.seeds == (0, 1)


def test_given_parameters_reach_the_method_and_one_that_cannot_be_loaded_is_left_out_with_its_reason(experiments, mine):
    asked = experiments.request(ExperimentRequest("mine", "tiny", 6, given=(("cda.checkpoint", "trained"),)))
    (cda,) = (method for method in asked.methods if method.label == "CDA")
    assert dict(cda.settings.parameters) == {"checkpoint": "trained"}
    mine(methods=(*MINE.methods[:2], "Tops=coft:lam=0.4,sentinel=two words"))
    asked = experiments.request(ExperimentRequest("mine", "tiny", 6))
    assert [method.label for method in asked.methods] == ["Vanilla", "Ours"]
    assert any(told.startswith("Tops is left out: ") for told in asked.experiment.left_out)
    mine(suites=("stereoset",))
    with pytest.raises(ServiceError, match=r"No suite of this experiment can be read\. StereoSet is left out"):
        experiments.request(ExperimentRequest("mine", "tiny", 6))
    for name in ("checkpoint", "cda.expert", "gedi.discriminator"):
        with pytest.raises(ServiceError, match=r"policy\.parameter"):
            experiments.request(ExperimentRequest("mine", "tiny", given=((name, "folder"),)))


def test_speed_alone_is_measured_by_a_run_that_goes_on_where_it_was_stopped(wired, experiments, mine, monkeypatch):
    alone = SpeedTable("Speed", (), batches=(1,), lengths=(34,), prompt=30, repeats=1)
    mine(suites=(), methods=("Vanilla=vanilla", "Ours=coft"), tables=(alone,))
    asked = experiments.request(ExperimentRequest("mine", "tiny"))
    assert asked.suites == ()
    # Two methods, two rounds, four tokens.
    evaluations, jobs = wired[EvaluationService], wired[JobService]
    assert any("will write about 16 tokens to measure speed" in said for said in evaluations.estimate(asked).missing)

    def stopped(*given):
        raise JobCancelled

    with monkeypatch.context() as patch:
        patch.setattr(SpeedRun, "measured", stopped)
        number = evaluations.submit(asked)
        assert jobs.wait(evaluations.view(number).job.id).status == "interrupted"
    assert evaluations.view(number).resumable
    (table,) = experiments.shown(number).tables
    assert table.notes[0].startswith("Speed is not measured yet")
    assert jobs.wait(evaluations.resume(number)).status == "done"
    assert not evaluations.view(number).resumable
    (table,) = experiments.shown(number).tables
    assert [head.title for head, _ in table.layout.lines] == ["Vanilla", "Ours"]
    with pytest.raises(ServiceError, match="nothing to resume"):
        evaluations.resume(number)
    handlers = ExperimentHandlers(wired)
    assert ("Mine (Table 9)", "mine") in handlers.choices()
    pickers = handlers.chosen("mine", "")[:3]
    assert not any(column.visible for column in pickers)
    assert "It is small." in handlers.chosen("mine", "")[3].value
    assert [part.visible for part in handlers.opened(number)[::2]] == [True, False]
    shown, picture, notes = handlers.table(number, 0, "floor")
    assert ("Vanilla" in shown, picture.visible, "Measured on" in notes) == (True, True, True)
    assert handlers.table(None, 0, "floor")[0] == ""
    assert Path(handlers.export(number, "floor", "csv")).read_text("utf-8").startswith("table,row,source")
    (told,) = json.loads(Path(handlers.export(number, "floor", "json")).read_text("utf-8"))["tables"]
    assert (told["columns"][0], told["rows"][1]["head"], told["rows"][1]["source"]) == ("Tokens a second", "Ours", "")
    speed = told["rows"][1]["numbers"][0]
    assert 0 < speed["low"] <= speed["value"] <= speed["high"]
    assert told["notes"] == list(table.notes)


def test_programs_name_a_shipped_experiment_in_place_of_suites_and_methods(wired, experiments):
    asked = {"experiment": "scaling", "model": "tiny", "seeds": [4], "name": "Ours"}
    request = evaluation_request(wired, asked)
    evaluations = wired[EvaluationService]
    own = {"name": "Own", "suites": ["phantom_questions"], "methods": ["vanilla"], "model": "tiny", "limit": 2}
    # Experiments were once read from files too, of which an evaluation kept all.
    told = AskedExperiment("mine.yaml", {"title": "Mine", "source": "our own", "tables": [{"kind": "methods"}]})
    for experiment, said in ((None, "is of no experiment"), (told, r"'mine\.yaml', which this version does not know")):
        number = evaluations.submit(replace(evaluation_request(wired, own), experiment=experiment))
        with pytest.raises(ServiceError, match=said):
            experiments.shown(number)
    assert any("to measure speed" in said for said in estimate_evaluation.call(wired, asked).missing)
    assert (request.name, request.seeds, request.suites) == ("Ours", (4,), ())
    missing = estimate_evaluation.call(wired, {"experiment": "mine", "model": "tiny", "limit": 6}).missing
    begun = ("CDA is left out", "StereoSet is left out", "Speed: 2 methods in 2 rounds will write about 80 tokens")
    assert all(any(told.startswith(own) for told in missing) for own in begun)
    assert request.experiment.name == "scaling"
    assert [method.label for method in request.methods] == ["Vanilla", "COFT"]
    for change, said in (
        ({"suites": ["piqa"], "methods": []}, "leave suites and methods out"),
        ({"experiment": "/etc/passwd.yaml"}, "no experiment '/etc/passwd.yaml'"),
        ({"given": {"cda.checkpoint": "x"}}, "No method of this experiment has 'cda.checkpoint'"),
        ({"alpha": 0.1}, "no setting 'alpha'"),
    ):
        with pytest.raises(ServiceError, match=re.escape(said)):
            evaluation_request(wired, asked | change)
