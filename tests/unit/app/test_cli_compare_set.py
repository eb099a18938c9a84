"""Comparing policies over a prompt set from the command line."""

import csv
import functools
import json

import pytest

import app.compare.commands
from app.bootstrap import services
from app.cli import main
from tests.conftest import load_tiny


@pytest.fixture(autouse=True)
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("COFT_DATABASE_URL", f"sqlite:///{tmp_path / 'store.sqlite3'}")
    monkeypatch.setenv("COFT_PIPELINE", "none")
    monkeypatch.setattr(app.compare.commands, "services", functools.partial(services, loader=load_tiny))


@pytest.fixture
def prompts(tmp_path):
    path = tmp_path / "people.csv"
    path.write_text("question,group\nThe nurse said he,men\nThe nurse said she,women\n")
    return path


def run(capsys, *arguments):
    code = main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def compare(prompts, *more):
    shared = ("--columns", "prompt=question", "--model", "tiny", "--steps", 4, "--calibration", "none")
    return ("compare-set", "run", "--prompts", prompts, *shared, *more)


def test_a_set_is_run_shown_again_and_deleted(prompts, tmp_path, capsys):
    out = tmp_path / "tables"
    code, text, _ = run(
        capsys, *compare(prompts, "--policy", "vanilla,coft,sdd", "--set", "sdd.decay=20", "--out", out, "--json")
    )
    assert code == 0
    found = json.loads(text)
    assert [own["settings"]["policy"] for own in found["columns"]] == ["vanilla", "coft", "sdd"]
    assert found["columns"][2]["settings"]["parameters"] == {"decay": 20.0}
    assert found["columns"][0]["means"]["mean_tv_factual"]["mean"] == 0
    assert found["columns"][1]["means"]["mean_tv_factual"]["mean"] > 0
    tables = sorted(out.iterdir())
    assert [len(list(csv.DictReader(path.open(newline="", encoding="utf-8")))) for path in tables][1] == 6
    _, text, _ = run(capsys, "compare-set", "show", found["comparison_id"], "--json")
    assert json.loads(text) == found
    _, text, _ = run(capsys, "compare-set", "show", found["comparison_id"])
    assert "2: COFT, batch 2, 2 of 2 finished" in text
    assert "from vanilla, total variation" in text
    assert "n = 2" in text
    _, text, _ = run(capsys, "compare-set", "list")
    assert "people  2 prompts  vanilla, coft, sdd" in text
    _, text, _ = run(capsys, "compare-set", "delete", found["comparison_id"])
    assert "deleted; its sessions stay" in text


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (("--policy", "vanilla"), "choose 2 to 8"),
        (("--policy", "vanilla,guess"), "There is no policy 'guess'"),
    ],
)
def test_what_cannot_be_compared_is_one_sentence(prompts, capsys, more, sentence):
    code, _, error = run(capsys, *compare(prompts, *more))
    assert code == 1
    assert sentence in error
