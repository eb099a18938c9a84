"""Batches from the command line: run, listed, shown, read by group, resumed and deleted."""

import csv
import json

import pytest

import app.shared.terminal
from app.shared.commands import STOPPED

SET = "text,who,context\nHe is a nurse,men,1\nShe is a nurse,women,1\nHe left,men,2\n ,men,3\n"
COLUMNS = ("--columns", "prompt=text,group=who")
POLICY = ("--model", "tiny", "--top-p", "1", "--steps", "3", "--calibration", "none", "--controls", "0")


@pytest.fixture
def run(command):
    return lambda *arguments: command("batch", *arguments)


@pytest.fixture
def prompts(tmp_path):
    path = tmp_path / "jobs.csv"
    path.write_text(SET)
    return path


def test_a_batch_is_run_shown_read_by_group_reported_and_deleted(run, prompts, tmp_path, monkeypatch):
    code, text, _ = run("run", "--prompts", prompts, *COLUMNS, "--accept-errors", *POLICY[:-1], "2", "--json")
    made = json.loads(text)
    assert code == 0
    assert (made["controls"]["asked"], made["controls"]["others"]) == (2, 3)
    assert [row["controls"] for row in made["rows"]] == [3, 3, 1]
    rows = [(row["line"], row["state"], row["steps"]) for row in made["rows"]]
    assert rows == [(line, "finished", 3) for line in (2, 3, 4)]
    assert [group["group"] for group in made["groups"]] == ["men", "women"]
    listed = json.loads(run("list", "--json")[1])
    assert [(item["batch_id"], item["name"], item["prompts"]) for item in listed] == [(1, "jobs", 3)]
    _, shown, _ = run("show", 1, "--out", tmp_path / "out")
    assert "She is a nurse" in shown
    assert "women: 1 rows, 1 contexts" in shown
    with (tmp_path / "out/coft-audit-batch-1.csv").open(newline="") as file:
        assert len(list(csv.DictReader(file))) == 3
    letter = made["rows"][0]["text"].strip()[0]
    _, text, _ = run("impact", 1, "--selected", letter, "--regex", "--out", tmp_path / "impact.csv", "--json")
    table = json.loads(text)
    assert [(row["group"], row["total"]) for row in table["groups"]] == [("men", 2), ("women", 1)]
    assert table["compared"] is None or table["compared"]["contexts"] == 1
    assert table["rule"]["selected"] == letter
    assert (tmp_path / "impact.csv").read_text().startswith("group,total,selected")
    assert "most selected" in run("impact", 1, "--selected", letter, "--regex")[1]
    # Laying out pages takes long, and has tests of its own.
    monkeypatch.setattr("app.report.service.pdf_of", lambda *_: b"%PDF")
    out = tmp_path / "report.pdf"
    assert run("report", 1, "--auditor", "A", "--selected", "hired", "--out", out)[0] == 0
    assert out.read_bytes().startswith(b"%PDF")
    shared = tmp_path / "card.md"
    assert run("report", 1, "--format", "card", "--selected", "he", "--out", shared)[0] == 0
    rates = [line for line in shared.read_text().splitlines() if line.startswith("| jobs.csv | selection_rate(")]
    assert len(rates) == 2
    code, _, errors = run("report", 1, "--score", "number(", "--out", out)
    assert (code, "is not a regular expression" in errors) == (1, True)
    assert run("delete", 1)[0] == 0
    assert run("list")[1].startswith("No batches yet.")


def test_a_batch_takes_any_method_with_its_parameters_and_refuses_others(run, prompts):
    arguments = ("run", "--prompts", prompts, *COLUMNS, "--accept-errors", *POLICY, "--policy", "sdd")
    code, text, _ = run(*arguments, "--set", "decay=20", "--json")
    settings = json.loads(text)["settings"]
    assert (code, settings["policy"], settings["parameters"]) == (0, "sdd", {"decay": 20.0})
    code, _, errors = run(*arguments, "--set", "decay=many")
    assert code == 1
    assert "'many'" in errors


def test_bad_rows_are_named_and_refused_unless_they_are_accepted(run, prompts):
    code, _, errors = run("run", "--prompts", prompts, *COLUMNS, *POLICY)
    assert code == 1
    assert "line 5: prompt" in errors
    assert "1 of 4 rows cannot be used" in errors
    assert json.loads(run("list", "--json")[1]) == []


def test_an_interrupted_batch_says_how_it_is_resumed_and_goes_on(run, prompts, monkeypatch):
    def interrupted(*_arguments, **_options):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(app.shared.terminal, "wait_for", interrupted)
        code, _, errors = run("run", "--prompts", prompts, *COLUMNS, "--accept-errors", *POLICY)
    assert code == STOPPED
    assert "python -m app batch resume 1" in errors
    # The run may have ended before it was interrupted; then nothing is left to resume.
    code, _, errors = run("resume", 1, "--json")
    assert code == 0 or "nothing to resume" in errors
    assert {row["state"] for row in json.loads(run("show", 1, "--json")[1])["rows"]} == {"finished"}
