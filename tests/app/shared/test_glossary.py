"""Words are explained once, and a label on a page opens what is said of it."""

from __future__ import annotations

import re
from pathlib import Path

from app.shared.glossary import GLOSSARY, explained, term

ROOT = Path(__file__).resolve().parents[3]
SHOWN = "\n".join(
    path.read_text("utf-8")
    for folder, kind in (
        ("app", "py"),
        ("coft_core/suites", "py"),
        ("assets/templates", "html"),
        ("assets/pages", "js"),
        ("assets/base", "js"),
    )
    for path in sorted((ROOT / folder).rglob(f"*.{kind}"))
    if path.name not in ("glossary.py", "glossary.js")
).lower()


def test_entries_stand_in_the_order_of_the_alphabet_and_are_whole_sentences_a_reader_can_take_in_at_once():
    names = [entry.name.lower() for entry in GLOSSARY]
    assert names == sorted(names)
    for entry in GLOSSARY:
        assert entry.says.endswith(".")
        assert len(entry.says) <= 240, entry.name


def test_every_name_is_one_that_the_program_shows():
    assert [name for entry in GLOSSARY for name in entry.names if name not in SHOWN] == []


def test_a_known_label_and_the_first_mention_of_a_word_of_several_parts_open_their_explanations_and_texts_are_escaped():
    assert 'data-explains="fused"' in term("fused")
    assert term("a < b") == "a &lt; b"
    said = explained("Impact ratio 0.5 <b>; the impact ratio and the total variation")
    assert re.findall(r'data-explains="([\w-]+)"', said) == ["impact-ratio", "total-variation"]
    assert said.striptags() == "Impact ratio 0.5 <b>; the impact ratio and the total variation"
    assert "0.5 &lt;b&gt;;" in said
