"""Comparing policies over a prompt set from the command line."""

import csv
import json

import pytest


@pytest.fixture
def prompts(tmp_path, command):
    path = tmp_path / "people.csv"
    path.write_text("question,group\nThe nurse said he,men\nThe nurse said she,women\n")
    return path


def compare(prompts, *more):
    shared = ("--columns", "prompt=question", "--model", "tiny", "--steps", 4, "--calibration", "none")
    return ("compare-set", "run", "--prompts", prompts, *shared, *more)


def test_a_set_is_run_shown_again_and_deleted(prompts, tmp_path, command):
    out = tmp_path / "tables"
    code, text, _ = command(
        *compare(prompts, "--policy", "vanilla,coft,sdd", "--set", "sdd.decay=20", "--out", out, "--json")
    )
    assert code == 0
    found = json.loads(text)
    assert [own["settings"]["policy"] for own in found["columns"]] == ["vanilla", "coft", "sdd"]
    assert found["columns"][2]["settings"]["parameters"] == {"decay": 20.0}
    assert found["columns"][0]["means"]["mean_tv_factual"]["mean"] == 0
    assert found["columns"][1]["means"]["mean_tv_factual"]["mean"] > 0
    tables = sorted(out.iterdir())
    assert [len(list(csv.DictReader(path.open(newline="", encoding="utf-8")))) for path in tables][1] == 6
    _, text, _ = command("compare-set", "show", found["comparison_id"], "--json")
    assert json.loads(text) == found
    _, text, _ = command("compare-set", "show", found["comparison_id"])
    assert "2: COFT, batch 2, 2 of 2 finished" in text
    assert "From vanilla, total variation" in text
    assert "n = 2" in text
    _, text, _ = command("compare-set", "list")
    assert "people  2 prompts  vanilla, coft, sdd" in text
    _, text, _ = command("compare-set", "delete", found["comparison_id"])
    assert "deleted; its sessions stay" in text


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (("--policy", "vanilla"), "choose 2 to 8"),
        (("--policy", "vanilla,guess"), "There is no policy 'guess'"),
    ],
)
def test_what_cannot_be_compared_is_one_sentence(prompts, command, more, sentence):
    code, _, error = command(*compare(prompts, *more))
    assert code == 1
    assert sentence in error
