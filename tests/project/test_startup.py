"""A command loads no library that it has no use for; those that run models or draw pages take seconds."""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HEAVY = {"torch", "transformers", "gradio", "spacy", "plotly", "scipy", "sklearn"}
PROGRAM = """
import json, sys
from app.cli import main
code = main(sys.argv[1:])
print(json.dumps([code, sorted({name.partition(".")[0] for name in sys.modules})]))
"""


def loaded(tmp_path, *arguments):
    """The packages that are loaded once a command has ended."""
    environment = {**os.environ, "COFT_DATABASE_URL": f"sqlite:///{tmp_path / 'store.sqlite3'}"}
    words = [sys.executable, "-c", PROGRAM, *arguments]
    done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    code, modules = json.loads(done.stdout.splitlines()[-1])
    assert code == 0
    return set(modules)


def test_past_audits_wait_for_no_model_and_no_page(tmp_path):
    # The store's module of sessions is among what is loaded: it knows the core's types and nothing else of it.
    found = loaded(tmp_path, "sessions", "--json")
    assert "db" in found
    assert found & {*HEAVY, "numpy"} == set()


def test_help_reads_no_settings_and_opens_no_store(tmp_path):
    unneeded = HEAVY | {"pydantic_settings", "sqlalchemy", "numpy"}
    assert loaded(tmp_path, "--help") & unneeded == set()
    assert not (tmp_path / "store.sqlite3").exists()
