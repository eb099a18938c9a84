"""How many faults the tests notice: random lines are changed one at a time, and the tests that run them are run.

    python -m bench.mutants choose --lines 200 --seed 0 --out lines.json
    python -m bench.mutants trace --chosen lines.json --out ran.json
    python -m bench.mutants run --chosen lines.json --ran ran.json

``choose`` draws lines of the core, the store and the services at random, with a change for each. ``trace`` runs the
tests of ``make test`` that need no browser once, in a copy of the tree in which each of these lines tells when it is
reached, and writes down which tests reach which line. ``run`` changes one line after the other and runs its tests.
Lines are looked up by their text and the name of their function, so that the same ones can be changed in a later
version of the program (``--root``); a line that is gone there is left out and counted.

The last line printed is JSON: lines changed, changes noticed, their share with its exact interval, lines not found.
"""

from __future__ import annotations

import argparse
import ast
import builtins
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest
from scipy.stats import binomtest

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("coft_core", "db", "app")
LEFT_OUT = ("page.py", "handlers.py", "parts.py", "words", "charts", "/ui/", "cli")
MOST_TESTS = 60
TESTS = "not ui and not slow"
SECONDS = 240
PROBE = "reached_changed_line"
"""Name among the builtins that a traced line calls, while the tests run."""

RAN = "COFT_MUTANTS_RAN"
"""Names the folder that each test process writes into what its tests reached."""

NOT_COPIED = shutil.ignore_patterns(".git", ".venv", "__pycache__")
COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Mutant:
    """A changed line."""

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


def located(mutant: Mutant, root: Path) -> tuple[Path, int] | None:
    """File and line of a mutant; None if the line is gone."""
    for path in sources(root):
        text = path.read_text("utf-8")
        if mutant.text not in text:
            continue
        lines = text.splitlines()
        for function in functions(ast.parse(text)):
            if function.name != mutant.function:
                continue
            for line in range(function.lineno, (function.end_lineno or 0) + 1):
                if lines[line - 1].strip() == mutant.text and places(function, line):
                    return path, line
    return None


def with_change(mutant: Mutant, path: Path, line: int) -> str:
    """A mutant's module with its change."""
    tree = ast.parse(path.read_text("utf-8"))
    function = next(
        node
        for node in functions(tree)
        if node.name == mutant.function and node.lineno <= line <= (node.end_lineno or 0) and places(node, line)
    )
    found = places(function, line)
    changed(found[min(mutant.place, len(found) - 1)])
    return ast.unparse(tree)


# Which tests reach a line.


def traced(path: Path, reached: Mapping[int, Sequence[int]]) -> str:
    """A module whose lines tell when they are reached: ``reached`` has the numbers of each line's mutants."""
    tree = ast.parse(path.read_text("utf-8"))
    blocks = [
        block
        for node in ast.walk(tree)
        for name in ("body", "orelse", "finalbody")
        if isinstance(block := getattr(node, name, None), list)
    ]
    told: dict[int, list[tuple[list[ast.stmt], ast.stmt]]] = defaultdict(list)
    for block in blocks:
        for statement in block:
            for line, numbers in reached.items():
                if statement.lineno <= line <= (statement.end_lineno or 0):
                    for number in numbers:
                        told[number].append((block, statement))
    for number, around in told.items():
        # The innermost statement is the last one that begins.
        block, statement = max(around, key=lambda pair: (pair[1].lineno, -(pair[1].end_lineno or 0)))
        call = f"getattr(__import__('builtins'), {PROBE!r}, str)({number})"
        block.insert(block.index(statement), ast.parse(call).body[0])
    return ast.unparse(ast.fix_missing_locations(tree))


class Tracer:
    """As a plugin of pytest: notes which tests reach a line, how long they take, and which fail without any change."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._test = ""
        self._reached: dict[int, set[str]] = defaultdict(set)
        self._seconds: dict[str, float] = defaultdict(float)
        self._failed: set[str] = set()
        setattr(builtins, PROBE, lambda number: self._reached[number].add(self._test))

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """A test begins."""
        self._test = nodeid

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A part of a test has ended."""
        self._seconds[report.nodeid] += report.duration
        if report.failed:
            self._failed.add(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        """Write down what was seen."""
        reached = {
            number: {test: self._seconds[test] for test in tests - self._failed if test}
            for number, tests in self._reached.items()
        }
        (self._folder / f"{os.getpid()}.json").write_text(json.dumps(reached), "utf-8")


def pytest_configure(config: pytest.Config) -> None:
    """With this module as a plugin (``-p bench.mutants``), every process that runs tests traces them."""
    if folder := os.environ.get(RAN):
        config.pluginmanager.register(Tracer(Path(folder)))


def trace(chosen: Path, out: Path, root: Path, workers: int) -> None:
    """Run the tests of `make test` that need no browser once, and write down which reach which line."""
    by_path: dict[Path, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for number, mutant in enumerate(read(chosen)):
        if where := located(mutant, root):
            by_path[where[0]][where[1]].append(number)
    with tempfile.TemporaryDirectory() as folder:
        tree, ran = Path(folder) / "tree", Path(folder) / "ran"
        shutil.copytree(root, tree, ignore=NOT_COPIED, symlinks=True)
        ran.mkdir()
        for path, reached in by_path.items():
            (tree / path.relative_to(root)).write_text(traced(path, reached), "utf-8")
        command = [sys.executable, "-m", "pytest", "-q", "-p", "bench.mutants", "-m", TESTS, f"-n{workers}"]
        environment = {**os.environ, RAN: str(ran), "OMP_NUM_THREADS": "1"}
        subprocess.run([*command, "tests"], cwd=tree, env=environment, check=False)
        merged: dict[str, dict[str, float]] = defaultdict(dict)
        for part in ran.iterdir():
            for number, tests in json.loads(part.read_text("utf-8")).items():
                merged[number] |= tests
    out.write_text(json.dumps(merged, indent=1), "utf-8")


def read(chosen: Path) -> list[Mutant]:
    """The lines that were chosen."""
    return [Mutant(**item) for item in json.loads(chosen.read_text("utf-8"))]


def noticed(mutant: Mutant, tests: Mapping[str, float], root: Path) -> bool | None:
    """Whether a test fails on the changed program; None where the line is gone."""
    where = located(mutant, root)
    if where is None:
        return None
    path, line = where
    if not tests:
        return False
    some = random.Random(line).sample(sorted(tests), min(MOST_TESTS, len(tests)))
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "tree"
        shutil.copytree(root, copy, ignore=NOT_COPIED, symlinks=True)
        (copy / path.relative_to(root)).write_text(with_change(mutant, path, line), "utf-8")
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-n0", "--timeout", "120"]
        command += sorted(some, key=lambda test: tests[test])
        try:
            environment = {**os.environ, "OMP_NUM_THREADS": "1"}
            done = subprocess.run(command, cwd=copy, env=environment, capture_output=True, timeout=SECONDS, check=False)
        except subprocess.TimeoutExpired:
            return True
    # Where tests cannot even be collected (2, 4), the change is noticed; a test that is gone is this script's fault.
    if done.returncode not in (0, 1, 2, 4) or b"ERROR: not found:" in done.stdout + done.stderr:
        raise RuntimeError(f"pytest ended with {done.returncode}: {done.stdout.decode()[-2000:]}")
    return done.returncode != 0


def run(chosen: Path, ran: Path, first: int | None, root: Path, workers: int) -> None:
    """Change the first lines, run the tests of each, and print what was noticed."""
    mutants = read(chosen)[:first]
    tests = json.loads(ran.read_text("utf-8"))
    outcomes: list[bool | None] = []
    with ThreadPoolExecutor(workers) as pool:
        tried_all = pool.map(lambda n: noticed(mutants[n], tests.get(str(n), {}), root), range(len(mutants)))
        for mutant, outcome in zip(mutants, tried_all, strict=True):
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
    tracer, runner = commands.add_parser("trace"), commands.add_parser("run")
    for command in (tracer, runner):
        command.add_argument("--chosen", type=Path, required=True)
        command.add_argument("--root", type=Path, default=ROOT, help="the tree whose lines are changed")
        command.add_argument("--workers", type=int, default=2)
    tracer.add_argument("--out", type=Path, required=True)
    runner.add_argument("--ran", type=Path, required=True)
    runner.add_argument("--first", type=int, default=None, help="only so many of the lines, from the first on")
    options = parser.parse_args(arguments)
    if options.command == "choose":
        mutants = [asdict(mutant) for mutant in choose(options.lines, options.seed)]
        options.out.write_text(json.dumps(mutants, indent=1), "utf-8")
    elif options.command == "trace":
        trace(options.chosen, options.out, options.root, options.workers)
    else:
        run(options.chosen, options.ran, options.first, options.root, options.workers)


if __name__ == "__main__":
    main()
