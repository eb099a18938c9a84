"""One label set for all corpora: people, groups (nationality, ethnicity, religion), and places (states and cities).

Words about which a corpus says nothing reliable (a place that may be a hill, a user's handle) have no label: they
count neither in training nor in measurements.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.detector.corpora import TaggedSentence
from bench.detector.running_text import running_text, word_lists
from coft_core.text.lexicon import Lexicons
from coft_core.text.matching import LexiconMatcher

PERSON, GROUP, PLACE = LABELS = ("PERSON", "NORP", "GPE")
GROUP_DETAILS = frozenset(
    ("demonyms", "religious groups", "ethnic groups", "Indigenous peoples", "hyphenated ethnicities")
)
_PEOPLE = frozenset(("PER", "Person", "person", "politician", "writer", "musicalartist", "scientist", "researcher"))
_PLACES = frozenset(("LOC", "Location", "location", "GPE", "country"))
_MIXED = frozenset(("OTH", "misc", "MISC", "Nationality"))


@dataclass(frozen=True, slots=True)
class Labelled:
    """A text with its entities."""

    text: str
    entities: tuple[tuple[int, int, str], ...]
    unknown: tuple[tuple[int, int], ...]
    source: str
    split: str
    families: tuple[tuple[int, int, str], ...] = ()
    undecided: tuple[tuple[int, int], ...] = ()


def read_places() -> frozenset[str]:
    """Lower-case names of countries, states, provinces and cities: the lexicon's countries and ``places.txt``."""
    lines = Path(__file__).with_name("places.txt").read_text(encoding="utf-8").splitlines()
    listed = {name.strip().lower() for line in lines if not line.startswith("#") for name in line.split(",")}
    countries = {entry.term.lower() for entry in Lexicons.load().entries if entry.detail == "countries"}
    return frozenset((listed | countries) - {""})


class Labeller:
    """Maps the tags of any of the corpora to :data:`LABELS`; unchanging after construction."""

    def __init__(self) -> None:
        """Load the shipped lexicons and the list of places."""
        self._matcher = LexiconMatcher(Lexicons.load())
        self._places = read_places()

    def label(self, sentence: TaggedSentence) -> Labelled:
        """Map one sentence."""
        text, starts, ends = running_text(sentence)
        tags: list[str] = ["O"] * len(sentence.words)
        blocked = set[int]()
        for start, end, kind in sorted(_spans(sentence), key=lambda span: span[0] - span[1]):
            self._apply(sentence, start, end, kind, tags, blocked)
        entities = [(starts[a], ends[b - 1], label) for a, b, label in _runs(tags)]
        unknown = [(starts[i], ends[i]) for i, tag in enumerate(tags) if tag == "?"]
        taken = [(starts[i], ends[i]) for i, tag in enumerate(tags) if i in blocked or tag not in ("O", "?")]
        for start, end in self.groups(text):
            if any(a < end and start < b for a, b in taken):
                continue
            if text[start].isupper():
                entities.append((start, end, GROUP))
                unknown = [(a, b) for a, b in unknown if b <= start or end <= a]
            else:
                unknown.append((start, end))
        return Labelled(text, tuple(sorted(entities)), tuple(sorted(unknown)), sentence.source, sentence.split)

    def groups(self, text: str) -> Iterator[tuple[int, int]]:
        """Where the lexicons find nationalities, ethnic and religious groups."""
        matches = self._matcher.match(text)
        for hit in matches.hits:
            if hit.record.detail in GROUP_DETAILS:
                yield matches.view.starts[hit.start], matches.view.ends[hit.end - 1]

    def _apply(
        self, sentence: TaggedSentence, start: int, end: int, kind: str, tags: list[str], blocked: set[int]
    ) -> None:
        words = sentence.words
        if kind in _PEOPLE:
            self._apply_person(sentence, start, end, tags)
        elif kind in _PLACES:
            while end - start > 1 and words[start].lower() == "the":
                start += 1
            named = kind == "country" or (sentence.source == "litbank" and kind == "GPE")
            known = " ".join(words[start:end]).lower().replace(" , ", ", ") in self._places
            if known or (named and _is_name(words[start:end]) and not any(self.groups(" ".join(words[start:end])))):
                _mark(tags, start, end, PLACE)
            elif any(word[:1].isupper() for word in words[start:end]) or sentence.source != "litbank":
                tags[start:end] = ["?"] * (end - start)
        elif kind in _MIXED or self._names_place(words[start:end], kind):
            tags[start:end] = ["?"] * (end - start)
        else:
            blocked.update(range(start, end))

    def _names_place(self, words: tuple[str, ...], kind: str) -> bool:
        """Whether an organisation is called as a place, as states and sports teams are."""
        lowers = [word.lower() for word in words]
        return " ".join(lowers) in self._places or (kind == "Organisation" and any(w in self._places for w in lowers))

    def _apply_person(self, sentence: TaggedSentence, start: int, end: int, tags: list[str]) -> None:
        words = sentence.words
        if words[start].startswith("@") or words[max(start - 1, 0)] == "@":
            tags[max(start - 1, 0) : end] = ["?"] * (end - max(start - 1, 0))
            return
        while end > start and words[end - 1] in ("'s", "\u2019s", "'", "."):
            end -= 1
        while start < end and words[start].lower().rstrip(".") in word_lists()["titles"] | {""}:
            start += 1
        if start == end or all(word.lower() in word_lists()["contract_roles"] for word in words[start:end]):
            return
        if words[start] == "of" or (sentence.source in ("litbank", "re3d") and not _is_name(words[start:end])):
            for index in range(start, end):
                if words[index][:1].isupper() and tags[index] == "O":
                    tags[index] = "?"
            return
        _mark(tags, start, end, PERSON)


def _is_name(words: tuple[str, ...]) -> bool:
    named = [word[:1].isupper() for word in words if word.lower() not in word_lists()["name_particles"]]
    return bool(named) and all(named) and words[0].lower() not in word_lists()["pronouns"]


def _mark(tags: list[str], start: int, end: int, label: str) -> None:
    if any(tag not in ("O", "?") for tag in tags[start:end]):
        return
    tags[start:end] = [f"B-{label}", *[f"I-{label}"] * (end - start - 1)]


def _spans(sentence: TaggedSentence) -> Iterator[tuple[int, int, str]]:
    for layer in sentence.layers:
        start = 0
        for index in range(1, len(layer) + 1):
            follows = index < len(layer) and layer[index].startswith("I-") and layer[index][2:] == layer[start][2:]
            if follows and layer[start] != "O":
                continue
            if layer[start][:2] in ("B-", "I-") and layer[start][2:] != "O":
                yield start, index, layer[start][2:]
            start = index


def _runs(tags: list[str]) -> Iterator[tuple[int, int, str]]:
    start = None
    for index, tag in enumerate([*tags, "O"]):
        if start is not None and tag != f"I-{tags[start][2:]}":
            yield start, index, tags[start][2:]
            start = None
        if tag.startswith("B-"):
            start = index
