"""The shipped lexicons are complete and clean, and damaged files are refused with a clear sentence."""

import json
from bisect import bisect
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from coft_core.assets import assets_path
from coft_core.errors import LexiconError
from coft_core.text.detection import SpanDetector
from coft_core.text.lexicon import CLASSES, FALSE_FRIEND, Lexicons
from coft_core.types import FAMILIES


@pytest.fixture(scope="module")
def shipped() -> Lexicons:
    return Lexicons.load()


@pytest.fixture(scope="module")
def detector(shipped: Lexicons) -> SpanDetector:
    return SpanDetector(shipped, pipeline=None)


def test_the_shipped_lexicons_are_complete_clean_and_of_their_manifests_version(shipped: Lexicons) -> None:
    least = {
        "gender": 350, "race": 150, "nationality": 200, "religion": 150, "age": 100, "disability": 150,
        "appearance": 200, "orientation": 60, "socioeconomic": 150, "family": 80, "name": 500,
    }  # fmt: skip
    records = (*shipped.entries, *shipped.patterns)
    counts = Counter(record.family for record in records)
    assert counts.keys() - {FALSE_FRIEND} == set(FAMILIES) == least.keys()
    assert all(counts[family] >= least[family] for family in FAMILIES)
    assert sum(counts[family] for family in FAMILIES) >= 4000
    assert all(record.detail and record.source in ("curated", "US SSA, public domain") for record in records)
    keys = Counter((e.term.lower(), e.case, e.context) for e in shipped.entries if e.family != FALSE_FRIEND)
    assert [key for key, count in keys.items() if count > 1] == []
    assert 0 < sum(entry.detail == "slur" for entry in shipped.entries) <= 30
    terms = {entry.term.lower() for entry in shipped.entries}
    assert terms.isdisjoint({"nurse", "engineer", "doctor", "teacher", "it", "they", "them", "their"})
    names = [entry for entry in shipped.entries if entry.family == "name"]
    assert all(entry.case == "capital" and entry.term[0].isupper() for entry in names)
    assert {name for record in records for name in record.context} == set(shipped.rules.rules)
    conditions = [each for rule in shipped.rules.rules.values() for each in (*rule.any, *rule.none)]
    named = {name for each in conditions for item in (*each.before, *each.after) for name in item.classes}
    assert named <= CLASSES | shipped.rules.word_lists.keys()
    manifest = json.loads(assets_path("lexicons", "lexicons.json").read_text(encoding="utf-8"))
    assert shipped.version == manifest["version"]


def write(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)
    return path


def found(detector: SpanDetector, terms: list[str]) -> set[str]:
    """The terms that hold a span where each is in a paragraph of its own."""
    text, starts = "", []
    for term in terms:
        starts.append(len(text) + len("This is about "))
        text += f"This is about {term}\n\n"
    spans = detector.detect(text)
    places = [bisect(starts, span.start) - 1 for span in spans]
    return {terms[place] for place in places}


@pytest.mark.parametrize("every", [4, pytest.param(1, marks=pytest.mark.slow)])
def test_unconditional_terms_and_inflections_are_found_by_themselves_and_no_false_friend_is(
    shipped: Lexicons, detector: SpanDetector, every: int
) -> None:
    surfaces = [
        surface
        for entry in shipped.entries
        if entry.family != FALSE_FRIEND and not entry.context
        for surface in (entry.term, *entry.inflections)
    ][::every]
    assert found(detector, surfaces) == set(surfaces)
    friends = [entry.term for entry in shipped.entries if entry.family == FALSE_FRIEND]
    assert len(friends) > 100
    assert found(detector, friends) == set()


@pytest.mark.slow
def test_every_false_friend_shields_a_listed_term(shipped: Lexicons) -> None:
    terms = [replace(entry, context=()) for entry in shipped.entries if entry.family != FALSE_FRIEND]
    bare = SpanDetector(Lexicons(tuple(terms)), pipeline=None)
    friends = [entry.term for entry in shipped.entries if entry.family == FALSE_FRIEND]
    shielded = found(bare, friends) | {term.lower() for term in found(bare, [term.title() for term in friends])}
    assert [term for term in friends if not {term, term.lower()} & shielded] == []


def test_a_reviewers_csv_adds_terms_to_the_shipped_ones(shipped: Lexicons, tmp_path: Path) -> None:
    path = write(tmp_path, "mine.csv", "\ufeffterm,family,match\r\nzorblax,race,lemma\r\n")
    entries = Lexicons.load([path]).entries
    (own,) = [entry for entry in entries if entry.term == "zorblax"]
    assert [entry for entry in entries if entry != own] == list(shipped.entries)
    text = "Two Zorblaxes met."
    assert [text[s.start : s.end] for s in SpanDetector(Lexicons((own,)), pipeline=None).detect(text)] == ["Zorblaxes"]


def test_a_reviewers_jsonl_alone_matches_only_its_own_terms_and_patterns(tmp_path: Path) -> None:
    lines = [
        {"term": "zorblax", "family": "race", "detail": "invented"},
        {"pattern": [{"LOWER": "grade"}, {"IS_DIGIT": True}], "family": "age"},
        {"term": "zorblax tea", "family": "none"},
    ]
    path = write(tmp_path, "mine.jsonl", "\n".join(map(json.dumps, lines)))
    lexicons = Lexicons.load([path], shipped=False)
    assert lexicons.version == "custom"
    text = "A zorblax in grade 7 drank zorblax tea with a Muslim."
    found = SpanDetector(lexicons, pipeline=None).detect(text)
    assert [(text[s.start : s.end], s.category) for s in found] == [("zorblax", "race"), ("grade 7", "age")]


@pytest.mark.parametrize(("name", "content", "said"), [
    ("a.csv", "term,family\nfoo,race\nbar,colour\n", "a.csv, line 3, field 'family': 'colour' is unknown"),
    ("a.csv", "term,family\n,race\n", "a.csv, line 2, field 'term': "),
    ("a.csv", "term,detail\nfoo,bar\n", "a.csv, line 1, field 'family': missing"),
    ("a.csv", "", "a.csv, line 1, field 'term': missing"),
    ("a.csv", "term,family,colour\nfoo,race,x\n", "a.csv, line 2, field 'colour': "),
    ("a.csv", "term,family\nfoo,race,x\n", "a.csv, line 2, field 'behind the last column': "),
    ("a.csv", "term,family,case\nfoo,race,upper\n", "a.csv, line 2, field 'case': "),
    ("a.csv", "term,family,context\nfoo,race,moon\n", "a.csv, line 2, field 'context': 'moon' is unknown"),
    ("a.csv", 'term,family\n"foo,race\n', "a.csv, line 2: not valid CSV"),
    ("a.csv", b"term,family\nfoo,race\nb\xe4r,race\n", "a.csv, line 3: the text is not UTF-8"),
    ("a.jsonl", '{"term": "foo", "family": "race"}\n{"term"\n', "a.jsonl, line 2: not valid JSON"),
    ("a.jsonl", "[1]\n", "a.jsonl, line 1: expected a JSON object"),
    ("a.jsonl", '{"term": 3, "family": "race"}\n', "a.jsonl, line 1, field 'term': "),
    ("a.jsonl", '{"pattern": [], "family": "age"}\n', "a.jsonl, line 1, field 'pattern': not a token pattern"),
    ("a.jsonl", '{"pattern": [{"COLOUR": 1}], "family": "age"}\n', "a.jsonl, line 1, field 'pattern'"),
    ("a.txt", "foo\n", "a.txt: "), ("nowhere.csv", None, "nowhere.csv: "),
])  # fmt: skip
def test_a_damaged_file_is_refused_naming_file_line_and_field(
    tmp_path: Path, name: str, content: str | bytes | None, said: str
) -> None:
    path = tmp_path / name if content is None else write(tmp_path, name, content)
    with pytest.raises(LexiconError) as caught:
        Lexicons.load([path], shipped=False)
    assert said in str(caught.value)
