"""Random changes of lines: each is found again, changes that line alone, and is traced to the tests that reach it."""

from __future__ import annotations

import ast
import builtins
from pathlib import Path

import pytest

from bench.mutants import PROBE, Mutant, located, traced, with_change

SOURCE = """
def larger(one, two):
    \"\"\"The larger of two.\"\"\"
    if one > two:
        return one
    elif one == two:
        return two
    return two
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for folder in ("coft_core", "db", "app"):
        (tmp_path / folder).mkdir()
    (tmp_path / "coft_core" / "compare.py").write_text(SOURCE, "utf-8")
    return tmp_path


def functions_of(source: str) -> dict[str, object]:
    names: dict[str, object] = {}
    exec(compile(source, "compare", "exec"), names)
    return names


def test_a_line_is_found_by_its_text_and_its_function(root: Path):
    path = root / "coft_core" / "compare.py"
    assert located(Mutant("larger", "if one > two:", 0), root) == (path, 4)
    assert located(Mutant("smaller", "if one > two:", 0), root) is None


def test_a_change_changes_its_line_alone(root: Path):
    mutant = Mutant("larger", "if one > two:", 0)
    where = located(mutant, root)
    assert where
    after = with_change(mutant, *where)
    assert after == ast.unparse(ast.parse(SOURCE)).replace("one > two", "one >= two")


def test_a_traced_line_tells_when_it_is_reached_and_the_program_stays_the_same(root: Path, monkeypatch):
    reached: list[int] = []
    monkeypatch.setattr(builtins, PROBE, reached.append, raising=False)
    larger = functions_of(traced(root / "coft_core" / "compare.py", {4: [0], 5: [1], 6: [2, 3]}))["larger"]
    assert larger(2, 1) == 2  # type: ignore[operator]
    assert reached == [0, 1]
    reached.clear()
    assert larger(1, 2) == 2  # type: ignore[operator]
    assert sorted(reached) == [0, 2, 3]
