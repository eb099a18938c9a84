"""Sampled paths from the command line, as a program that calls operations has them, and past runs."""

import csv
import json

from app.paths.operations import list_paths, open_path, sample_paths, sampled_paths
from app.shared.jobs import JobService

PATHS = ("paths", "--prompt", "He is a nurse", "--model", "tiny", "--steps", "3", "--paths", "12", "--top-p", "1")


def test_the_result_comes_first_and_the_tables_are_written(command, tmp_path):
    asked = ("--pronouns", "she", "--yes", "[a-m]", "--no", "[n-z]", "--regex", "--called", "early")
    code, shown, error = command(*PATHS, *asked, "--out", str(tmp_path))
    assert code == 0, error
    lines = shown.splitlines()
    assert lines[1].startswith("“as typed” ")
    assert "points [" in lines[1]
    assert "decided after" in lines[1]
    assert "she: " in shown
    for name, rows in (("paths", 36), ("estimates", 3)):
        with (tmp_path / f"{name}.csv").open(encoding="utf-8", newline="") as file:
            assert len(list(csv.DictReader(file))) == rows
    code, listed, _ = command("trees")
    assert "12 of 12 paths in each of as typed, masked, she; done" in listed


def test_json_has_every_path_and_past_runs_are_shown_alike(command):
    code, text, error = command(*PATHS, "--without-masked", "--json")
    assert code == 0, error
    made = json.loads(text)
    assert [world["label"] for world in made["worlds"]] == ["as typed"]
    assert [len(path["tokens"]) <= 3 for path in made["worlds"][0]["drawn"]] == [True] * 12
    assert made["question"] is None
    _, again, _ = command("trees", str(made["id"]), "--json")
    assert json.loads(again) == made


def test_what_cannot_be_sampled_is_one_sentence(command):
    code, _, error = command(*PATHS, "--pronouns", "it")
    assert code == 1
    assert "There are no pronouns 'it'" in error


def test_programs_begin_a_run_ask_for_it_and_open_a_path(wired):
    sampling = {"paths": 6, "tokens": 2, "masked": False}
    values = sample_paths.checked(["He is a nurse", sampling, None, {"model": "tiny", "top_p": 1.0}])
    job = wired[JobService].wait(sample_paths.call(wired, **values).id)
    found = sampled_paths.json(sampled_paths.call(wired, job.id))
    assert [len(path["tokens"]) for path in found["worlds"][0]["drawn"]] == [2] * 6
    assert [run["id"] for run in list_paths.json(list_paths.call(wired))] == [job.id]
    opened = open_path.json(open_path.call(wired, job.id, 1, 6))
    assert (opened["tokens"], opened["same"]) == (2, 2)
