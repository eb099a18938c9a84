"""The layers hold: every import of the project points in the allowed direction."""

import ast
import importlib
import sys

import pytest

import coft_core as cc
from tests.project.parsed import ROOT, modules, statements

FEATURES = (
    "audit", "batch", "calibrate", "compare", "completions", "evaluate", "gate", "lists", "models", "paths", "report",
    "review", "sessions", "swap", "tune",
)  # fmt: skip
ROOMS = ("shared", "jobs", "prompts", "hosting")
"""Folders that features use and that use none of them."""
FORBIDDEN = {
    "coft_core": ("gradio", "sqlalchemy", "app", "db", "plotly", "bench", "tests"),
    "db": ("app", "gradio", "torch", "transformers", "bench", "tests"),
    "app": ("sqlalchemy", "bench", "tests"),
}
CORE_LEVELS = (
    ("types", "errors", "assets", "fingerprint", "stored_logits"), ("text", "model", "conformal", "scorers"),
    ("policies",), ("decode",), ("controls",), ("calibrate", "tuning", "suites", "paths"),
    ("experiments", "adapters"),
)  # fmt: skip
PUBLIC = ("service", "operations", "panel")
"""Modules of a feature that others may use: what it does, how programs ask for it, and what other pages place of it."""
DELETABLE = ("compare", "paths", "swap")
"""Features that no other one uses, so that nothing but their folder and their line in the bootstrap names them."""


def named(node):
    """What a statement imports."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
        yield node.module
        yield from (f"{node.module}.{alias.name}" for alias in node.names)


def imports(path):
    return (name for node in statements(path) for name in named(node))


def is_under(module, package):
    return module == package or module.startswith(f"{package}.")


def test_no_layer_imports_what_lies_above_it():
    found = [
        f"{path.relative_to(ROOT)} imports {module}"
        for folder, packages in FORBIDDEN.items()
        for path in modules(folder)
        for module in imports(path)
        if any(is_under(module, package) for package in packages)
    ]
    assert found == []


def test_the_store_knows_the_cores_types_and_nothing_else_of_it():
    found = {module for path in modules("db") for module in imports(path) if is_under(module, "coft_core")}
    assert {module for module in found if not is_under(module, "coft_core.types")} == set()


@pytest.mark.slow
def test_the_core_gives_its_public_names_whatever_of_it_was_imported_before():
    importlib.import_module("coft_core.calibrate.run")
    assert [name for name in cc.__all__ if not hasattr(cc, name)] == []
    assert callable(cc.calibrate)


def level(name):
    return next((i for i, names in enumerate(CORE_LEVELS) if name in names), None)


def core_imports_upwards():
    for path in modules("coft_core"):
        relative = path.relative_to(ROOT)
        here = level(relative.parts[1].removesuffix(".py"))
        for module in imports(path):
            parts = module.split(".")
            there = level(parts[1]) if parts[0] == "coft_core" and len(parts) > 1 else None
            if here is not None and there is not None and there > here:
                yield f"{relative} imports {module}"


def test_the_core_imports_only_downwards():
    assert list(core_imports_upwards()) == []


def runtime_imports(path):
    """Imports that are carried out: those under TYPE_CHECKING are for readers and type checkers."""
    unread = {
        id(inner)
        for node in statements(path)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inside in node.body
        for inner in ast.walk(inside)
    }
    for node in statements(path):
        if isinstance(node, ast.Import) and id(node) not in unread:
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and id(node) not in unread:
            yield str(node.module)


def test_the_statistics_stand_on_numpy_alone():
    """No torch, no model and no policy is reached from them, since the modules below import nothing else either."""
    below = ("coft_core.types", "coft_core.errors", "coft_core.fingerprint")
    allowed = {"numpy", "scipy", "sklearn", "coft_core.conformal", *below, *sys.stdlib_module_names}
    paths = [*modules("coft_core/conformal"), *(ROOT / f"{name.replace('.', '/')}.py" for name in below)]
    found = [
        f"{path.relative_to(ROOT)} imports {module}"
        for path in paths
        for module in runtime_imports(path)
        if not any(is_under(module, package) for package in allowed)
    ]
    assert found == []


def across():
    """Every import of a feature's module by another folder: the file, its folder, the feature and the module."""
    for room in (*FEATURES, *ROOMS):
        for path in modules(f"app/{room}"):
            for module in imports(path):
                package, _, inner = module.removeprefix("app.").partition(".")
                if module.startswith("app.") and inner and package in FEATURES and package != room:
                    yield path.relative_to(ROOT), room, package, inner.split(".")[0]


def test_features_use_each_other_through_what_is_public_and_the_deletable_ones_not_at_all():
    assert [found for found in across() if found[1] in ROOMS or found[3] not in PUBLIC] == []
    assert [found for found in across() if found[2] in DELETABLE] == []


def test_what_wires_the_features_is_imported_by_none_of_them():
    rooms = [path for room in (*FEATURES, *ROOMS) for path in modules(f"app/{room}")]
    above = ("app.bootstrap", "app.serving")
    assert [path for path in rooms if any(is_under(found, name) for found in imports(path) for name in above)] == []


def test_services_are_built_on_the_one_open_database():
    found = {path for path in modules("app") if any(module == "db.database.Database" for module in imports(path))}
    assert found <= {
        ROOT / f"app/{name}.py" for name in ("serving/monitoring", "jobs/service", "hosting/limits", "shared/wiring")
    }


def loaded_with(module):
    """All that comes with importing a module of the program; what functions import, and type checkers, does not."""
    seen, left = set(), [module]
    while left:
        name = left.pop()
        if name in seen:
            continue
        seen.add(name)
        for path in (ROOT / f"{name.replace('.', '/')}.py", ROOT / name.replace(".", "/") / "__init__.py"):
            if name.startswith("app.") and path.is_file():
                left += [
                    found for node in statements(path) if getattr(node, "col_offset", 1) == 0 for found in named(node)
                ]
    return seen


def test_what_services_and_commands_need_does_without_gradio():
    wanted = [
        f"app.{feature}.{path.stem}"
        for feature in FEATURES
        for path in modules(f"app/{feature}")
        if path.stem in ("operations", "service")
    ]
    assert len(wanted) > 20
    assert [name for name in wanted if any(is_under(found, "gradio") for found in loaded_with(name))] == []


def test_nothing_keeps_process_wide_mutable_state():
    paths = [path for folder in ("coft_core", "db", "app") for path in modules(folder)]
    assert [path for path in paths if any(isinstance(node, ast.Global) for node in statements(path))] == []
