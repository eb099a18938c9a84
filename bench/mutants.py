"""How many faults the tests notice: random lines are changed one at a time, and the tests that run them are run.

    python -m bench.mutants choose --lines 200 --seed 0 --out lines.json
    python -m bench.mutants run --chosen lines.json --coverage .coverage

``choose`` draws lines of the core, the store and the services at random, with a change for each. ``run`` looks each
line up by its text and the name of its function, so that the same lines can be changed in a later version of the
program; a line that is gone there is left out and counted. The tests that run a line are known from a coverage file
with contexts::

    python -m pytest tests --cov coft_core --cov db --cov app --cov-context test -m "not ui"

The last line printed is JSON: lines changed, changes noticed, their share with its exact interval, lines not found.
"""

from __future__ import annotations

import argparse
import ast
import json
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from scipy.stats import binomtest

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("coft_core", "db", "app")
LEFT_OUT = ("migrations", "page.py", "handlers.py", "parts.py", "words", "charts", "/ui/", "cli")
MOST_TESTS = 60
SECONDS = 240
COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Mutant:
    """A changed line.

    Attributes:
        function: Name of the function that it stands in.
        text: The line without its indentation.
        place: Which changeable place of the line is changed, 0-based.
    """

    function: str
    text: str
    place: int


def changed(node: ast.AST) -> bool:
    """Change a node in place, if it is of a kind that can be changed."""
    if isinstance(node, ast.Compare) and type(node.ops[0]) in COMPARISONS:
        node.ops[0] = COMPARISONS[type(node.ops[0])]()
    elif isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        node.op = OPERATORS[type(node.op)]()
    elif isinstance(node, ast.BoolOp):
        node.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        node.op, node.operand = ast.Not(), ast.UnaryOp(ast.Not(), node.operand)
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        node.value = not node.value
    elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        node.value = node.value + 1
    elif (isinstance(node, ast.Return) and node.value is not None and not isinstance(node.value, ast.Constant)) or (
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    ):
        node.value = ast.Constant(None)
    else:
        return False
    return True


def functions(tree: ast.Module) -> Iterator[ast.FunctionDef]:
    """All functions of a module, methods included."""
    yield from (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def places(function: ast.FunctionDef, line: int) -> list[ast.AST]:
    """The nodes of a line of a function that can be changed, outermost first."""
    probe = [node for node in ast.walk(function) if getattr(node, "lineno", None) == line]
    return [node for node in probe if changed(ast.parse(ast.unparse(node)).body[0] if _alone(node) else _copy(node))]


def _alone(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr)


def _copy(node: ast.AST) -> ast.AST:
    fields = {name: list(value) if isinstance(value, list) else value for name, value in ast.iter_fields(node)}
    return type(node)(**fields)


def sources(root: Path) -> Iterator[Path]:
    """The modules whose lines are drawn: the core, the store and the services, not what pages say."""
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*.py")):
            if not any(part in str(path.relative_to(root)) for part in LEFT_OUT):
                yield path


def choose(count: int, seed: int) -> list[Mutant]:
    """Lines drawn at random among all that can be changed, with one change each."""
    drawn = random.Random(seed)
    every: list[Mutant] = []
    for path in sources(ROOT):
        text = path.read_text("utf-8")
        lines = text.splitlines()
        for function in functions(ast.parse(text)):
            for line in range(function.body[0].lineno, (function.end_lineno or 0) + 1):
                if found := places(function, line):
                    every.append(Mutant(function.name, lines[line - 1].strip(), drawn.randrange(len(found))))
    return drawn.sample(list(dict.fromkeys(every)), count)


def located(mutant: Mutant, root: Path) -> tuple[Path, int, str] | None:
    """File, line and changed text of a mutant's module; None if the line is gone."""
    for path in sources(root):
        text = path.read_text("utf-8")
        if mutant.text not in text:
            continue
        lines, tree = text.splitlines(), ast.parse(text)
        for function in functions(tree):
            if function.name != mutant.function:
                continue
            for line in range(function.lineno, (function.end_lineno or 0) + 1):
                if lines[line - 1].strip() == mutant.text and (found := places(function, line)):
                    changed(found[min(mutant.place, len(found) - 1)])
                    return path, line, ast.unparse(tree)
    return None


def tests_of(coverage: Path, path: Path, line: int) -> list[str]:
    """Tests that run a line, those that run the fewest lines first."""
    with sqlite3.connect(coverage) as connection:
        rows = connection.execute(
            "SELECT context.context, line_bits.numbits FROM line_bits "
            "JOIN file ON file.id = line_bits.file_id JOIN context ON context.id = line_bits.context_id "
            "WHERE file.path LIKE ?",
            (f"%/{path.as_posix()}",),
        ).fetchall()
    ran = [
        context.partition("|")[0]
        for context, bits in rows
        if context and line // 8 < len(bits) and bits[line // 8] & (1 << line % 8)
    ]
    return sorted(dict.fromkeys(ran))


def noticed(mutant: Mutant, coverage: Path, root: Path) -> bool | None:
    """Whether a test fails on the changed program; None where the line is gone."""
    where = located(mutant, root)
    if where is None:
        return None
    path, line, text = where
    tests = tests_of(coverage, path.relative_to(root), line)
    if not tests:
        return False
    chosen = random.Random(line).sample(tests, min(MOST_TESTS, len(tests)))
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "tree"
        shutil.copytree(
            root, copy, ignore=shutil.ignore_patterns(".git", ".venv", "__pycache__", "docs"), symlinks=True
        )
        (copy / path.relative_to(root)).write_text(text, "utf-8")
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-n0", "--timeout", "120", *chosen]
        try:
            done = subprocess.run(command, cwd=copy, capture_output=True, timeout=SECONDS, check=False)
        except subprocess.TimeoutExpired:
            return True
    return done.returncode == 1


def run(chosen: Path, coverage: Path, root: Path, workers: int) -> None:
    """Change each line, run its tests, and print what was noticed."""
    mutants = [Mutant(**item) for item in json.loads(chosen.read_text("utf-8"))]
    outcomes: list[bool | None] = []
    with ThreadPoolExecutor(workers) as pool:
        for mutant, outcome in zip(mutants, pool.map(lambda m: noticed(m, coverage, root), mutants), strict=True):
            outcomes.append(outcome)
            word = {True: "noticed", False: "SURVIVED", None: "gone"}[outcome]
            print(f"{len(outcomes):4d} {word:9s} {mutant.function}: {mutant.text[:90]}", flush=True)
    tried = [outcome for outcome in outcomes if outcome is not None]
    interval = binomtest(sum(tried), len(tried)).proportion_ci(method="exact")
    print(
        json.dumps(
            {
                "changed": len(tried),
                "noticed": sum(tried),
                "share": round(sum(tried) / len(tried), 3),
                "interval": [round(interval.low, 3), round(interval.high, 3)],
                "gone": len(outcomes) - len(tried),
            }
        )
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Choose lines, or change them and run their tests."""
    parser = argparse.ArgumentParser(description="How many faults the tests notice.")
    commands = parser.add_subparsers(required=True, dest="command")
    chooser = commands.add_parser("choose")
    chooser.add_argument("--lines", type=int, default=200)
    chooser.add_argument("--seed", type=int, default=0)
    chooser.add_argument("--out", type=Path, required=True)
    runner = commands.add_parser("run")
    runner.add_argument("--chosen", type=Path, required=True)
    runner.add_argument("--coverage", type=Path, required=True)
    runner.add_argument("--root", type=Path, default=ROOT, help="the tree whose lines are changed")
    runner.add_argument("--workers", type=int, default=2)
    options = parser.parse_args(arguments)
    if options.command == "choose":
        mutants = [asdict(mutant) for mutant in choose(options.lines, options.seed)]
        options.out.write_text(json.dumps(mutants, indent=1), "utf-8")
    else:
        run(options.chosen, options.coverage, options.root, options.workers)


if __name__ == "__main__":
    main()
