"""The guide to adding a feature, followed to the letter in a copy of the program."""

from __future__ import annotations

import json
import re

import pytest

from tests.project.copies import ROOT, copy_of_the_program, run, serve

GUIDE = (ROOT / "docs/adding_a_feature.md").read_text("utf-8")
FILES = dict(re.findall(r"```python\n# (\S+)\n(.*?)```", GUIDE, re.DOTALL))
(LINE,) = re.findall(r"```\n( +\"\w+\",\n)```", GUIDE)


@pytest.fixture(scope="module")
def extended(tmp_path_factory):
    """A copy of the program with the guide's feature, and what it serves."""
    folder = copy_of_the_program(tmp_path_factory.mktemp("extended"))
    for path, code in FILES.items():
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_text(code, "utf-8")
    root = folder / "app" / "bootstrap.py"
    lines = root.read_text("utf-8").splitlines(keepends=True)
    lines.insert(next(number for number, line in enumerate(lines) if line == '        "swap",\n'), LINE)
    root.write_text("".join(lines), "utf-8")
    return folder, serve(folder)


def test_a_page_with_its_command_and_endpoint_takes_less_than_sixty_lines_of_python():
    lines = [line for code in (*FILES.values(), LINE) for line in code.splitlines() if line.strip()]
    assert 30 < len(lines) < 60


def test_the_page_is_in_the_navigation_of_all_and_the_endpoint_is_offered(extended):
    _, served = extended
    assert served["steps"] == 2
    assert all('href=\\"./families\\"' in page for page in served["pages"].values())
    assert "No span was masked yet" not in served["pages"][""]
    assert "/masked_families" in served["endpoints"]


def test_the_command_counts_what_was_masked_and_explains_itself(extended):
    folder, _ = extended
    assert json.loads(run(folder, "-m", "app", "families", "--json")) == {"gender": 1}
    assert run(folder, "-m", "app", "families") == "     1  gender\n"
    assert json.loads(run(folder, "-m", "app", "families", "--json", "--search", "nothing like it")) == {}
    assert "only sessions that mention this text" in run(folder, "-m", "app", "families", "--help")
    assert "count what was masked in past audits" in run(folder, "-m", "app", "--help")


def test_what_the_guide_writes_is_in_the_style_of_the_house(extended):
    folder, _ = extended
    run(folder, "-m", "ruff", "check", "--config", str(ROOT / "pyproject.toml"), "app/families")
    run(folder, "-m", "ruff", "format", "--check", "--config", str(ROOT / "pyproject.toml"), "app/families")
