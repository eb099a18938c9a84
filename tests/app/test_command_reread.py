"""The command ``reread``: a stored audit at another lambda, from the command line."""

import json

import pytest

from app.cli import main

PROMPT = "The nurse finished rounds and then he prepared the reports"


@pytest.fixture(autouse=True)
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("COFT_DATABASE_URL", f"sqlite:///{tmp_path / 'store.sqlite3'}")


def run(capsys, *arguments):
    code = main(list(arguments))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_a_stored_audit_is_read_at_another_lambda_and_alpha_and_says_what_it_may_claim(capsys):
    _, text, _ = run(capsys, "audit", "--prompt", PROMPT, "--steps", "6", "--seed", "5", "--json")
    audit = json.loads(text)
    number = str(audit["session_id"])
    _, text, _ = run(capsys, "reread", number, "--json")
    own = json.loads(text)
    assert own["certificate"] == f"certified at {own['certified']} of {len(own['steps'])} steps" == audit["certificate"]
    assert [s["policy_token_id"] for s in own["steps"]] == [s["token_id"] for s in audit["steps"]]
    assert [s["set_size"] for s in own["steps"]] == [s["set_size"] for s in audit["steps"]]
    code, text, _ = run(capsys, "reread", number, "--lam", "0.1", "--alpha", "0.2")
    assert code == 0
    assert "read at lambda 0.1, alpha 0.2" in text
    assert "Uncertified at this lambda" in text
    assert len([line for line in text.splitlines() if line.strip()[:1].isdigit()]) >= 6
    code, _, error = run(capsys, "reread", number, "--lam", "2")
    assert code == 1
    assert "ambda" in error
