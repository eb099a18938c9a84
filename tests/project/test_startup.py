"""A command loads no library that it has no use for; those that run models or draw pages take seconds."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

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
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    code, modules = json.loads(done.stdout.splitlines()[-1])
    assert code == 0
    return set(modules)


@pytest.mark.parametrize("arguments", [("--help",), ("sessions",), ("sessions", "--help"), ("sessions", "--json")])
def test_help_and_past_audits_wait_for_no_model_and_no_page(tmp_path, arguments):
    assert loaded(tmp_path, *arguments) & HEAVY == set()


def test_help_reads_no_settings_and_opens_no_store(tmp_path):
    assert loaded(tmp_path, "--help") & {"pydantic_settings", "sqlalchemy", "alembic", "numpy"} == set()
    assert not (tmp_path / "store.sqlite3").exists()
