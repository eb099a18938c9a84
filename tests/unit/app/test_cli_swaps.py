"""Attribute swaps from the command line under other methods than COFT."""

import functools
import json

import pytest

import app.swap.operations
from app.bootstrap import services
from app.cli import main
from tests.conftest import load_tiny

SWAP = ("swap", "--prompt", "He is a nurse", "--pronouns", "she", "--model", "tiny", "--steps", "2")


@pytest.fixture(autouse=True)
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("COFT_DATABASE_URL", f"sqlite:///{tmp_path / 'store.sqlite3'}")
    monkeypatch.setenv("COFT_PIPELINE", "none")
    monkeypatch.setattr(app.swap.operations, "services", functools.partial(services, loader=load_tiny))


def test_a_swap_is_compared_under_any_method_and_the_output_names_it(capsys):
    assert main([*SWAP, "--policy", "sdd", "--set", "decay=20"]) == 0
    shown = capsys.readouterr().out
    assert "Self-debiasing (uncertified:" in shown
    assert main([*SWAP, "--policy", "sdd", "--set", "decay=20", "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert len(made["variants"]) == 2
    assert made["variants"][0]["policy"]["text"] != ""


def test_a_policy_that_does_not_exist_is_refused_with_those_that_do(capsys):
    with pytest.raises(SystemExit):
        main([*SWAP, "--policy", "other"])
    assert "'sdd'" in capsys.readouterr().err
