"""Words are explained once, and a label on a page opens what is said of it."""

from __future__ import annotations

from pathlib import Path

from app.shared.glossary import GLOSSARY, explained, term
from app.shared.markup import table

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


def test_a_known_label_becomes_an_opener_that_reads_as_before_and_another_stays_itself():
    assert term("fused") == '<button type="button" class="term" data-explains="fused">fused</button>'
    assert term("Its lower probability").striptags() == "Its lower probability"
    assert term("a < b") == "a &lt; b"
    head = table([("Coverage", "n"), ('<span class="vh">Why</span>', "")], [])
    assert (
        '<th scope="col" class="n"><button type="button" class="term" data-explains="coverage">Coverage</button>'
        in head
    )
    assert '<th scope="col" class=""><span class="vh">Why</span></th>' in head


def test_a_sentence_opens_the_first_mention_of_each_word_of_several_parts_and_is_escaped():
    said = explained("Impact ratio 0.5 <b>; the impact ratio and the total variation, at alpha 0.1")
    assert str(said) == (
        '<button type="button" class="term" data-explains="impact-ratio">Impact ratio</button> 0.5 &lt;b&gt;; the '
        'impact ratio and the <button type="button" class="term" data-explains="total-variation">total '
        "variation</button>, at alpha 0.1"
    )
    assert 'data-explains="krippendorffs-alpha"' in explained("Krippendorff's alpha of 3 reviewers is 0.61")
