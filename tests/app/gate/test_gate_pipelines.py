"""The action and the example for a pipeline are valid, and their shell gives the verdict on."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[3]
ACTION, JOB = ROOT / "action.yml", ROOT / "docs" / "examples" / "gitlab-ci.yml"


@pytest.mark.parametrize(("schema", "file"), [("github-actions", ACTION), ("gitlab-ci", JOB)])
def test_they_follow_the_schemas_of_their_servers(schema, file):
    check = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}", str(file)]
    checked = subprocess.run(check, capture_output=True, text=True, timeout=60)
    assert checked.returncode == 0, checked.stdout


@pytest.fixture
def program(tmp_path):
    """A stand-in for the program, which writes what it was asked and ends with a code."""
    file = tmp_path / "bin" / "coft-audit"
    file.parent.mkdir()
    file.write_text('#!/bin/bash\necho "$@" > asked\necho "# table" > coft-audit.md\nexit "$CODE"\n')
    file.chmod(0o755)
    return file.parent


@pytest.mark.parametrize(("code", "verdict"), [(0, "pass"), (1, "fail"), (2, "undecided"), (3, "")])
def test_the_shell_of_the_action_ends_with_the_checks_code_and_names_the_verdict(tmp_path, program, code, verdict):
    (step,) = yaml.safe_load(ACTION.read_text())["runs"]["steps"]
    given = {"CHECK_FILE": "a b.yaml", "CHECK_BASELINE": "old.json", "CHECK_PACKAGE": "", "CODE": str(code)}
    given |= {"GITHUB_STEP_SUMMARY": str(tmp_path / "summary"), "GITHUB_OUTPUT": str(tmp_path / "output")}
    path = {"PATH": f"{program}:{os.environ['PATH']}"}
    ended = subprocess.run(
        ["bash", "-eo", "pipefail", "-c", step["run"]], cwd=tmp_path, env={**path, **given}, timeout=60
    )
    assert ended.returncode == code
    assert (tmp_path / "output").read_text() == f"verdict={verdict}\n"
    assert (tmp_path / "summary").read_text() == "# table\n"
    assert "check a b.yaml" in (tmp_path / "asked").read_text()
    assert "--baseline old.json" in (tmp_path / "asked").read_text()


def test_the_shell_of_the_job_asks_as_the_action_does_and_fails_where_the_check_does(tmp_path, program):
    job, action = yaml.safe_load(JOB.read_text())["coft-audit"], yaml.safe_load(ACTION.read_text())
    given = {f"CHECK_{name.upper()}": own["default"] for name, own in action["inputs"].items()}
    assert job["variables"] == given
    (step,) = action["runs"]["steps"]
    for code in (0, 1, 2):
        asked = []
        for shell in ("\n".join(job["script"]), step["run"]):
            ended = subprocess.run(
                ["bash", "-eo", "pipefail", "-c", shell],
                cwd=tmp_path,
                env={"PATH": f"{program}:{os.environ['PATH']}", "CODE": str(code), **given, "CHECK_PACKAGE": ""}
                | {"CHECK_BASELINE": "an old.json", "GITHUB_STEP_SUMMARY": "/dev/null", "GITHUB_OUTPUT": "/dev/null"},
                timeout=60,
            )
            assert ended.returncode == code
            asked.append((tmp_path / "asked").read_text())
        assert asked[0] == asked[1]


def test_the_release_is_built_tried_in_a_fresh_environment_and_published_without_a_password():
    file = ROOT / ".github" / "workflows" / "release.yml"
    check = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows", str(file)]
    checked = subprocess.run(check, capture_output=True, text=True, timeout=60)
    assert checked.returncode == 0, checked.stdout
    jobs = yaml.safe_load(file.read_text())["jobs"]
    assert jobs["publish"]["needs"] == ["build", "try"]
    assert jobs["publish"]["permissions"] == {"id-token": "write"}
    assert "secrets" not in file.read_text()
    assert re.findall("https?://(?!127.0.0.1)", file.read_text()) == []
