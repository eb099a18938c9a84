"""The layers hold: every import of the project points in the allowed direction."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
FORBIDDEN = {
    "coft_core": ("gradio", "sqlalchemy", "alembic", "app", "db", "plotly", "bench", "tests"),
    "db": ("coft_core", "app", "gradio", "torch", "transformers", "bench", "tests"),
    "app/services": ("gradio", "app.ui", "app.cli", "sqlalchemy", "bench", "tests"),
    "app/jobs": ("gradio", "app.ui", "app.cli", "app.services", "coft_core", "sqlalchemy", "bench", "tests"),
    "app/ui": ("coft_core", "db", "app.cli", "app.bootstrap", "sqlalchemy", "torch", "bench", "tests"),
}
CORE_LEVELS = (
    ("types", "errors", "assets", "stored"),
    ("fusion", "certify", "fingerprint", "sampling", "masking", "rewording", "conformal", "engine"),
    ("policies",),
    ("keeping", "planning", "steps", "decode", "reread_types", "heads", "reread"),
    ("calibrating", "contributions", "overhead", "tuning"),
)
WITHIN_LEVEL_EXCEPTIONS = {
    (
        "coft_core/conformal/calibrator.py",
        "policies",
    ),  # needs the fingerprint of the policy it calibrates for
}


def modules(folder):
    return [p for p in sorted((ROOT / folder).rglob("*.py")) if "__pycache__" not in p.parts]


def imports(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def is_under(module, package):
    return module == package or module.startswith(f"{package}.")


@pytest.mark.parametrize("folder", FORBIDDEN)
def test_no_layer_imports_what_lies_above_it(folder):
    found = [
        f"{path.relative_to(ROOT)} imports {module}"
        for path in modules(folder)
        for module in imports(path)
        for package in FORBIDDEN[folder]
        if is_under(module, package)
    ]
    assert found == []


def level(name):
    return next((i for i, names in enumerate(CORE_LEVELS) if name in names), None)


def test_the_core_imports_only_downwards():
    found = []
    for path in modules("coft_core"):
        relative = path.relative_to(ROOT)
        own = level(relative.parts[1].removesuffix(".py"))
        for module in imports(path):
            parts = module.split(".")
            if own is None or parts[0] != "coft_core" or len(parts) < 2:
                continue
            other = level(parts[1])
            if other is not None and other > own and (str(relative), parts[1]) not in WITHIN_LEVEL_EXCEPTIONS:
                found.append(f"{relative} imports {module}")
    assert found == []


def test_only_the_composition_root_builds_repositories_and_databases():
    allowed = {"app/bootstrap.py"}
    found = [
        str(path.relative_to(ROOT))
        for path in modules("app")
        if any(module == "db.database.Database" for module in imports(path))
        and not str(path.relative_to(ROOT)).startswith("app/jobs")
    ]
    assert set(found) <= allowed


def test_nothing_keeps_process_wide_mutable_state():
    found = []
    for folder in ("coft_core", "db", "app"):
        for path in modules(folder):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Global):
                    found.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert found == []
