"""The program's modules, each parsed once for all tests that look at them."""

import ast
import functools
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
WANTED = (ast.Import, ast.ImportFrom, ast.If, ast.Global, ast.Call)


def modules(folder: str) -> list[Path]:
    return [path for path in sorted((ROOT / folder).rglob("*.py")) if "__pycache__" not in path.parts]


@functools.cache
def statements(path: Path) -> list[ast.AST]:
    """Imports of a module, its blocks under a condition, what it makes global, and its calls."""
    return [node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, WANTED)]
