"""Evaluations from the terminal, and from programs, on what comes with the program."""

from __future__ import annotations

import csv
import io
import json

import pytest

from app.evaluate.items import sampled
from app.evaluate.operations import evaluation_outcomes, evaluation_request, run_evaluation
from app.evaluate.runs import EvaluationMethod
from app.jobs.service import JobService
from app.shared.audits import AuditSettings
from app.shared.errors import ServiceError
from coft_core.suites.files import DataFolder
from coft_core.suites.phantom import PhantomQuestions

ASKED = ("evaluate", "--suite", "phantom_questions", "--model", "tiny", "--limit", "6", "--seeds", "0,1")


def test_a_command_evaluates_to_the_end_and_is_listed_shown_exported_opened_and_deleted(command, tmp_path):
    code, said, errors = command(*ASKED, "--method", "vanilla", "--method", "ours=coft:lam=0.4", "--json")
    assert code == 0, errors
    view = json.loads(said)
    assert (view["name"], view["done"], view["planned"], view["job"]["status"]) == ("phantom_questions", 24, 24, "done")
    assert [method["label"] for method in view["settings"]["methods"]] == ["Vanilla", "ours"]
    assert view["suites"][0]["release"] == "comes with the program"
    code, said, _ = command("evaluations", "list", "--json")
    assert [item["evaluation_id"] for item in json.loads(said)] == [view["evaluation_id"]]
    code, said, _ = command("evaluations", "show", view["evaluation_id"])
    assert "seed 0: 6 of 6, seed 1: 6 of 6" in said
    code, _, errors = command("evaluations", "resume", view["evaluation_id"])
    assert code != 0
    assert "nothing to resume" in errors
    table = json.loads(command("evaluations", "table", 1, "--json")[1])
    assert (table["reference"], table["seeds"]) == ("Vanilla", [0, 1])
    assert [row["cells"]["phantom_questions"]["n"] for row in table["rows"]] == [12, 12]
    assert any("comes with the program" in note for note in table["notes"])
    code, said, _ = command("evaluations", "table", 1, "--suite", "phantom_questions", "--reference", "")
    assert (code, "by likelihood per character" in said, "Δ" in said) == (0, True, False)
    path = tmp_path / "other.json"
    code, said, errors = command("evaluations", "export", 1, "--format", "json", "--samples", "--out", path)
    assert code == 0, errors
    samples = json.loads(path.read_text("utf-8"))["samples"]["phantom_questions"]
    assert (len(samples), all(sample["arguments"] for sample in samples)) == (24, True)
    said = command("evaluations", "export", 1, "--beside", path)[1]
    rows = [row for row in csv.DictReader(io.StringIO(said, newline="")) if row["figure"] == "accuracy"]
    assert [row["published in other.json"] for row in rows] == [row["value"] for row in rows]
    said = command("evaluations", "export", 1, "--format", "every-eval-ever")[2]
    assert "organization" in said
    publisher = ("--organization", "Lab", "--relationship", "other")
    said = command("evaluations", "export", 1, "--format", "every-eval-ever", *publisher)[1]
    record = json.loads(said)
    assert len(record["model_info"]["additional_details"]["weights_digest"]) >= 64
    told = {entry["evaluation_name"]: entry["score_details"]["score"] for entry in record["evaluation_results"]}
    accuracy = {row["method"]: row["cells"]["phantom_questions"]["value"] / 100 for row in table["rows"]}
    assert {own: told[f"phantom_questions/accuracy/{own}"] for own in accuracy} == pytest.approx(accuracy)
    assert command("evaluations", "export", 1, "--format", "inspect")[0] == 1
    assert command("evaluations", "export", 1, "--format", "signed", "--out", tmp_path / "signed.zip")[0] == 0
    assert command("verify", tmp_path / "signed.zip", "--require-signature")[0] == 0
    item = sampled("phantom_questions", PhantomQuestions().items(DataFolder(tmp_path)), 6)[0]
    code, said, errors = command("evaluations", "open", view["evaluation_id"], "phantom_questions", "ours", item.id)
    assert code == 0, errors
    assert said.startswith("Session 1, branch ")
    assert command("evaluations", "delete", view["evaluation_id"])[0] == 0
    assert json.loads(command("evaluations", "list", "--json")[1]) == []


def test_results_and_samples_are_written_and_a_folder_is_gone_on_with(command, tmp_path):
    out = tmp_path / "out"
    code, said, errors = command(*ASKED, "--policy", "vanilla,coft", "--out", out, "--json")
    assert code == 0, errors
    printed, results = json.loads(said), json.loads((out / "results.json").read_text("utf-8"))
    assert [method["label"] for method in printed["settings"]["methods"]] == ["vanilla", "coft"]
    assert printed["settings"]["encoding"] == "together"
    figure = results["results"]["phantom_questions"]["coft"]["accuracy"]
    assert set(figure) == {"value", "low", "high", "n", "unscored"}
    assert figure["n"] + figure["unscored"] == 12
    assert 0.0 <= figure["low"] <= figure["value"] <= figure["high"] <= 1.0
    assert (printed["results"], printed["settings"]) == (results["results"], results["settings"])
    samples = [json.loads(line) for line in (out / "samples.jsonl").read_text("utf-8").splitlines()]
    assert len(samples) == 24
    first = next(sample for sample in samples if sample["policy"] == "coft")
    assert all(text in first["prompt"] for text in first["masked"])
    assert first["masked"]
    assert first["score"] in (0.0, 1.0)
    assert len(first["answer"]) == len(first["texts"])
    (out / "results.json").unlink()
    code, said, errors = command("evaluate", "--resume", out, "--json")
    assert code == 0, errors
    assert json.loads((out / "results.json").read_text("utf-8")) == results
    assert json.loads(said)["evaluation_id"] == printed["evaluation_id"]
    code, _, errors = command("evaluate", "--resume", tmp_path)
    assert code != 0
    assert "is not the folder of an evaluation" in errors


def test_what_cannot_be_asked_for_is_said_in_one_line(command):
    suites = {suite["key"]: suite for suite in json.loads(command("evaluations", "suites", "--json")[1])}
    assert suites["phantom_gaps"]["items"]
    assert suites["arc_easy"]["source"] == "hub"
    sets = json.loads(command("evaluations", "sets", "--json")[1])
    assert sets["methods"]["table1"][-1] == "coft:calibrated"
    assert "arc_easy" in sets["suites"]["all"]
    code, said, _ = command("evaluations", "estimate", *ASKED[1:], "--method", "coft:calibrated")
    assert code == 0
    assert "(1 of 9)" in said
    for arguments, said in (
        (("evaluate",), "Name at least one suite"),
        ((*ASKED, "--method", "nobody"), "no policy 'nobody'"),
        ((*ASKED, "--judges", "toxicity=embedded"), "wants the judgement 'toxicity'"),
        (("evaluations", "show", "7"), "no evaluation with the id 7"),
    ):
        code, _, errors = command(*arguments)
        assert code != 0
        assert said in errors
        assert errors.count("\n") == 1


def test_programs_name_methods_shortly_or_by_their_settings(wired):
    given = {
        "name": "both",
        "suites": ["phantom_questions"],
        "methods": ["vanilla", {"label": "mine", "settings": {"policy": "gedi", "parameters": {"omega": 3}}}],
        "model": "tiny",
        "seeds": [3],
        "limit": 2,
    }
    request = evaluation_request(wired, given)
    own = AuditSettings(policy="gedi", parameters=(("omega", 3.0),))
    assert request.methods[1] == EvaluationMethod("mine", own)
    view = run_evaluation.call(wired, given)
    assert wired[JobService].wait(view.job.id).status == "done"
    found = evaluation_outcomes.json(evaluation_outcomes.call(wired, view.id, "phantom_questions", "mine"))
    assert [outcome["seed"] for outcome in found["outcomes"]] == [3, 3]
    assert json.dumps(found, allow_nan=False)
    for wrong, said in (({"methods": "vanilla"}, "must be a list"), ({"hat": 1}, "no setting 'hat'")):
        with pytest.raises(ServiceError, match=said):
            evaluation_request(wired, given | wrong)
