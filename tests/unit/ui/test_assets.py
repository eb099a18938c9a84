"""The pages' sheets and scripts: all of them are served, and none uses what is not there."""

from __future__ import annotations

import re

import pytest

from app.shared.web import ASSETS, SCRIPTS, STYLES, styles

GRADIO_SETS = {"range_progress"}
"""Custom properties that Gradio's own sliders set."""


@pytest.mark.parametrize(("folder", "names"), [("css", STYLES), ("js", SCRIPTS)])
def test_every_file_is_served_once(folder: str, names: tuple[str, ...]) -> None:
    assert sorted(names) == sorted(path.stem for path in (ASSETS / folder).glob(f"*.{folder}"))


def test_no_rule_uses_a_custom_property_that_nothing_sets() -> None:
    code = [*(ASSETS / "js").glob("*.js"), *(ASSETS.parent / "app" / "ui").rglob("*.py")]
    scripted = " ".join(path.read_text("utf-8") for path in code)
    used = set(re.findall(r"var\(--([a-z0-9_-]+)", styles()))
    known = set(re.findall(r"--([a-z0-9_-]+)\s*:", styles())) | set(re.findall(r"--([a-z0-9_-]+)", scripted))
    assert used - known - GRADIO_SETS == set()


def test_every_rule_is_closed() -> None:
    for name in STYLES:
        sheet = (ASSETS / "css" / f"{name}.css").read_text("utf-8")
        assert sheet.count("{") == sheet.count("}"), name


def test_a_module_that_another_takes_apart_while_it_is_loaded_comes_before_it() -> None:
    texts = {name: (ASSETS / "js" / f"{name}.js").read_text("utf-8") for name in SCRIPTS}
    defined = {
        made: place
        for place, name in enumerate(SCRIPTS)
        for made in re.findall(r"^  coft\.(\w+) = ", texts[name], re.MULTILINE)
    }
    taken = [
        (name, part, place)
        for place, name in enumerate(SCRIPTS)
        for part in re.findall(r"^  const (?:\{[^}]*\}|\w+) = coft\.(\w+);", texts[name], re.MULTILINE)
    ]
    assert taken
    assert [(name, part) for name, part, place in taken if defined.get(part, len(SCRIPTS)) >= place] == []
