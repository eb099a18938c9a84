"""The map from the paper to the code names files that exist, and every theory test."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NAMED = set(re.findall(r"`((?:coft_core|tests)/[\w/]+\.py)`", (ROOT / "docs/paper_to_code.md").read_text("utf-8")))


def test_every_named_module_and_test_exists():
    assert len(NAMED) > 20
    assert sorted(path for path in NAMED if not (ROOT / path).is_file()) == []


def test_every_theory_test_is_on_the_map():
    present = {f"tests/theory/{path.name}" for path in Path(__file__).parent.glob("test_*.py")}
    assert sorted(present - NAMED - {"tests/theory/test_paper_map.py"}) == []
