"""Words are explained once, and a label on a page opens what is said of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import expect

from app.shared.glossary import GLOSSARY, explained, explained_titles, term
from app.shared.markup import table
from tests.app.shared.test_accessibility import broken

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


def test_no_name_stands_for_two_words():
    names = [name for entry in GLOSSARY for name in entry.names]
    assert sorted(names) == sorted(set(names))


def test_entries_stand_in_the_order_of_the_alphabet_and_are_whole_sentences_a_reader_can_take_in_at_once():
    names = [entry.name.lower() for entry in GLOSSARY]
    assert names == sorted(names)
    for entry in GLOSSARY:
        assert entry.says.endswith(".")
        assert len(entry.says) <= 240, entry.name


@pytest.mark.parametrize("name", [name for entry in GLOSSARY for name in entry.names])
def test_every_name_is_one_that_the_program_shows(name: str):
    assert name in SHOWN


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


@pytest.mark.parametrize(
    "word",
    ["F1", "kappa", "κ", "Krippendorff's alpha", "alpha", "impact ratio", "selection rate", "scoring rate", "coverage",
     "total variation", "betting test", "95 % interval", "accuracy"],
)  # fmt: skip
def test_the_words_of_statistics_are_explained(word: str):
    assert str(explained_titles((word, "what it has not"))).count("data-explains") == 1


def test_a_column_title_opens_its_explanation_by_key_and_gives_the_focus_back(audit):
    page = audit("?session=1")
    opener = page.locator(".cand thead").get_by_role("button", name="Fused")
    opener.focus()
    page.keyboard.press("Enter")
    explained = page.get_by_role("dialog", name="Fused")
    expect(explained).to_contain_text("The factual and the masked reading blended.")
    assert broken(page) == []
    page.keyboard.press("Escape")
    expect(explained).to_be_hidden()
    expect(opener).to_be_focused()
    opener.click()
    explained.get_by_role("button", name="All words").click()
    words = page.get_by_role("dialog", name="What the words mean")
    expect(words.locator("[data-entry]:visible")).to_have_count(len(GLOSSARY))
    assert broken(page) == []
    page.keyboard.type("four-fifths")
    expect(words.locator("[data-entry]:visible dt")).to_have_text(["Impact ratio"])
    page.keyboard.press("Enter")
    expect(words).to_be_visible()
    page.keyboard.type("?")
    expect(words.locator(".none")).to_be_visible()


def test_a_field_s_label_opens_its_explanation_at_a_click_and_by_a_key_within_the_field(audit):
    page = audit()
    explained = page.locator("#explains")
    page.locator("#alpha [data-testid=block-info]").click()
    expect(explained).to_contain_text("The risk that is taken")
    page.keyboard.press("Escape")
    page.get_by_label("number input for Lambda").focus()
    page.keyboard.press("F1")
    expect(explained).to_contain_text("How far the blend leans")
    page.keyboard.press("Escape")
    page.locator("#prompt").focus()
    page.keyboard.press("F1")
    expect(page.get_by_role("dialog", name="What the words mean")).to_be_visible()


def test_the_word_of_a_column_that_sorts_is_explained_under_its_table(visit):
    page = visit("/sessions")
    heads = page.get_by_role("columnheader", name="Strongest sensitivity")
    expect(heads.get_by_role("button")).to_have_count(1)
    page.get_by_role("button", name="Strongest sensitivity, what it means").press("Enter")
    expect(page.get_by_role("dialog", name="Sensitivity")).to_be_visible()
    assert broken(page) == []
