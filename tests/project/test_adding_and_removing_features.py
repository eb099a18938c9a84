"""Features come by the guide and go with their folder, script, style, store module and one line."""

from __future__ import annotations

import json
import re
import shutil

import pytest

from tests.project.copies import ROOT, copy_of_the_program, run, serve

GUIDE = (ROOT / "docs/adding_a_feature.md").read_text("utf-8")
FILES = dict(re.findall(r"```python\n# (\S+)\n(.*?)```", GUIDE, re.DOTALL))
(LINE,) = re.findall(r"```\n( +\"\w+\",\n)```", GUIDE)
# A program with a further feature, and without two others, is started for them.
pytestmark = pytest.mark.slow

STORES = {"compare": "comparisons", "swap": None}
"""The features that are removed, each with its module in the store."""
ENDPOINTS = {"compare": {"/compare_sessions", "/run_comparison", "/comparison_summary"}, "swap": {"/swap_attribute"}}


@pytest.fixture(scope="module")
def changed(tmp_path_factory):
    """A copy of the program with the guide's feature and without two others, and what it serves."""
    folder = copy_of_the_program(tmp_path_factory.mktemp("changed"))
    for path, code in FILES.items():
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_text(code, "utf-8")
    root = folder / "app" / "bootstrap.py"
    lines = root.read_text("utf-8").splitlines(keepends=True)
    lines.insert(next(number for number, line in enumerate(lines) if line == '        "calibrate",\n'), LINE)
    for name, store in STORES.items():
        shutil.rmtree(folder / "app" / name)
        shutil.rmtree(folder / "assets" / "templates" / name, ignore_errors=True)
        for path in (folder / "assets" / "pages").glob(f"{name}*"):
            path.unlink()
        if store is not None:
            (folder / "db" / f"{store}.py").unlink()
        left = [line for line in lines if line.strip() != f'"{name}",']
        assert len(left) == len(lines) - 1
        lines = left
    root.write_text("".join(lines), "utf-8")
    return folder, serve(folder)


def test_a_page_with_its_command_and_endpoint_takes_less_than_sixty_lines_of_python():
    lines = [line for code in (*FILES.values(), LINE) for line in code.splitlines() if line.strip()]
    assert 30 < len(lines) < 60


def test_all_other_pages_are_served_with_the_new_one_and_without_the_removed_ones(changed):
    folder, served = changed
    assert served["steps"] == 2
    assert len(served["pages"]) == 12
    assert [path for path, page in served["pages"].items() if 'href=\\"./families\\"' in page] == [
        page for page in served["pages"] if page in ("sessions", "review", "families")
    ]
    scripts = " ".join(path.read_text("utf-8") for path in (folder / "assets" / "pages").glob("*.js"))
    for name in STORES:
        # What scripts show where it leads somewhere begins hidden.
        link = rf'href=\\"\./{name}\\"(?! hidden)'
        assert not [path for path, page in served["pages"].items() if re.search(link, page)]
        assert f'offers("{name}")' in scripts or f"./{name}" not in scripts
    gone = set().union(*ENDPOINTS.values())
    assert gone & set(served["endpoints"]) == set()
    assert {"/start_audit", "/step", "/run_batch", "/calibrate", "/masked_families"} <= set(served["endpoints"])


def test_the_new_command_answers_the_removed_ones_are_gone_and_the_others_are_not(changed):
    folder, _ = changed
    told = run(folder, "-m", "app", "--help")
    assert [name for name in STORES if f"│ {name} " in told] == []
    assert "│ sessions " in told
    assert "count what was masked in past audits" in told
    assert "he said" in run(folder, "-m", "app", "sessions", "--json")
    assert json.loads(run(folder, "-m", "app", "families", "--json")) == {"gender": 1}
    assert json.loads(run(folder, "-m", "app", "families", "--json", "--search", "nothing like it")) == {}


def test_what_the_guide_writes_is_in_the_style_of_the_project(changed):
    folder, _ = changed
    run(folder, "-m", "ruff", "check", "--config", str(ROOT / "pyproject.toml"), "app/families")
    run(folder, "-m", "ruff", "format", "--check", "--config", str(ROOT / "pyproject.toml"), "app/families")
