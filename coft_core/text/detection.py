"""Detection of sensitive spans: protected-attribute lexicons, a trained spaCy pipeline, and a reviewer's own list.

The paper obtains spans from user lists and named-entity recognition (App. "Span Acquisition") and masks
demographic markers and proxy cues, not downstream labels such as occupations.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import replace
from functools import lru_cache
from threading import RLock

from cachetools import LRUCache

from coft_core.errors import InvalidInputError
from coft_core.text.language import other_language
from coft_core.text.lexicon import Lexicons
from coft_core.text.matching import LexicalMatches, LexiconMatcher
from coft_core.text.merging import cut_spans, merge_spans, only_hints, settle_hints
from coft_core.text.pipeline import AUTO, Entity, EntityPipeline
from coft_core.text.tokens import HYPHENS, is_hyphen
from coft_core.text.turns import outside_lines
from coft_core.text.user_list import UserList
from coft_core.types import FAMILIES, PROXY_FAMILIES, Span

BESIDE_NAMED = " beside named attributes"
"""What a version says where hints are suggested only in texts that name an attribute outright."""

_GROUP_FAMILIES = ("religion", "nationality", "race")


RECENT_TEXTS = 1024
"""Texts whose spans a detector remembers."""


class SpanDetector:
    """Finds the spans of a text that name or reveal a protected attribute; unchanging after construction."""

    __slots__ = ("_found_by", "_masked", "_matcher", "_pipeline", "_recent", "_turn", "_user_list")

    def __init__(
        self,
        lexicons: Lexicons | None = None,
        pipeline: str | None = AUTO,
        masked_families: Iterable[str] | None = None,
        user_list: UserList | None = None,
    ) -> None:
        """Build a detector."""
        terms, self._matcher = _shipped() if lexicons is None else (lexicons, LexiconMatcher(lexicons))
        self._pipeline = EntityPipeline.choose(pipeline)
        named = self._pipeline.version if self._pipeline else "no pipeline"
        self._found_by = f"lexicon {terms.version}+{terms.digest}, {named}"
        self._masked = _known_families(masked_families)
        self._user_list = user_list
        self._recent: LRUCache[str, list[Span]] = LRUCache(RECENT_TEXTS)
        self._turn = RLock()

    def adapted(self, masked_families: Iterable[str] | None = None, user_list: UserList | None = None) -> SpanDetector:
        """A detector with the same lexicons and pipeline, and other choices of the reviewer, as for a new one."""
        other = copy(self)
        other._masked = _known_families(masked_families)
        other._user_list = user_list
        other._recent = LRUCache(RECENT_TEXTS)
        return other

    @property
    def version(self) -> str:
        """What finds spans and what becomes of them.

        Version and content digest of the lexicons, the pipeline or ``"no pipeline"``, the families that are only
        suggested, with :data:`BESIDE_NAMED` if some of their spans are masked after all, and the name and content
        digest of the user list if there is one.
        """
        suggested = [family for family in FAMILIES if family not in self._masked]
        parts = [self._found_by, f"suggestions of {'+'.join(suggested)}" if suggested else "no suggestions"]
        if self._settles_hints:
            parts[-1] += BESIDE_NAMED
        if self._user_list is not None:
            parts.append(self._user_list.label)
        return ", ".join(parts)

    @property
    def masked_families(self) -> tuple[str, ...]:
        """Families whose spans are masked, in the order of :data:`coft_core.types.FAMILIES`."""
        return tuple(family for family in FAMILIES if family in self._masked)

    @property
    def user_list(self) -> UserList | None:
        """The reviewer's own terms."""
        return self._user_list

    def detect(self, text: str) -> list[Span]:
        """Find the sensitive spans of a text, which is taken as typed and not normalised; disjoint and in order.

        Spans of families that are not masked are suggested, but for the hints of a text that names no attribute
        outright. Possessive endings stay outside; parts of one family joined by a hyphen are one span. What the user
        list finds takes its characters from the others.
        """
        # A text is asked for again by every method and seed, and whenever something else on a page changes.
        with self._turn:
            spans = self._recent.get(text)
        if spans is None:
            spans = outside_lines(text, self._detect(text))
            with self._turn:
                self._recent[text] = spans
        return list(spans)

    def _detect(self, text: str) -> list[Span]:
        reading = self._pipeline.read(text) if self._pipeline else None
        judge = reading.probability if self._pipeline and reading and self._pipeline.judges else None
        english = not other_language(text)
        matches = self._matcher.match(text if english else "", judge)
        spans = self._uncovered([self._offered(span) for span in _lexicon_spans(matches, text)], text)
        for entity in reading.entities if reading else ():
            unlisted = entity.label.lower() in FAMILIES
            if not _shielded(entity, matches) and (english or not unlisted):
                span = self._offered(self._entity_span(entity, text))
                spans = _with_entity(spans, span, text, unlisted)
        if self._settles_hints:
            spans = settle_hints(spans, text)
        if self._user_list is None:
            return spans
        listed = self._user_list.find(text)
        return sorted((*listed, *cut_spans(spans, listed, text)))

    @property
    def _settles_hints(self) -> bool:
        """Whether the masked families are the protected ones, and so hints are looked at one by one."""
        return self._masked == _known_families(None)

    def _is_masked(self, family: str, detail: str) -> bool:
        return family in self._masked and not (self._settles_hints and only_hints(family, detail))

    def _offered(self, span: Span) -> Span:
        return span if self._is_masked(span.category, span.detail) else replace(span, suggested=True)

    def _uncovered(self, spans: list[Span], text: str) -> list[Span]:
        """The spans, and masked terms that lie within a suggested one, such as the man in "homeless man"."""
        offered = [span for span in spans if span.suggested]
        if all(text[span.start : span.end].isalpha() for span in offered):
            return spans
        read = self._matcher.candidates(text)
        hits = (hit for hit in read.hits if hit.in_rule and self._is_masked(hit.record.family, hit.record.detail))
        sure = _lexicon_spans(replace(read, hits=tuple(hits)), text)
        within = [s for s in sure if any(outer.start <= s.start and s.end <= outer.end for outer in offered)]
        masked = [span for span in spans if span.masked]
        offers = (_without_hyphens(span, text) for span in cut_spans(offered, within, text))
        return sorted((*masked, *merge_spans(within), *(span for span in offers if span.start < span.end)))

    def _entity_span(self, entity: Entity, text: str) -> Span:
        label = entity.label.lower()
        category = label if label in FAMILIES else "name" if label == "person" else "nationality"
        if label == "norp":
            hits = self._matcher.match(text[entity.start : entity.end]).hits
            families = (hit.record.family for hit in hits)
            category = next((family for family in families if family in _GROUP_FAMILIES), category)
        return Span(entity.start, entity.end, category, "pipeline", entity.label, score=entity.score)


@lru_cache(maxsize=1)
def _shipped() -> tuple[Lexicons, LexiconMatcher]:
    """The shipped lexicons and what finds them; neither changes, and compiling them takes a second."""
    terms = Lexicons.load()
    return terms, LexiconMatcher(terms)


@lru_cache(maxsize=1)
def default_detector() -> SpanDetector:
    """The detector of the shipped lexicons and the ``"auto"`` pipeline, which suggests proxies; built once."""
    return SpanDetector()


def detect_spans(text: str, detector: SpanDetector | None = None) -> list[Span]:
    """The sensitive spans of a text, as :meth:`SpanDetector.detect` gives them; None takes the default detector."""
    return (detector or default_detector()).detect(text)


def _known_families(families: Iterable[str] | None) -> frozenset[str]:
    if families is None:
        return frozenset(FAMILIES).difference(PROXY_FAMILIES)
    chosen = frozenset(families)
    if unknown := sorted(chosen.difference(FAMILIES)):
        raise InvalidInputError(
            f"There is no attribute family {unknown[0]!r} that could be masked; use some of {', '.join(FAMILIES)}."
        )
    return chosen


def _lexicon_spans(matches: LexicalMatches, text: str) -> list[Span]:
    view = matches.view
    spans: list[Span] = []
    for hit in matches.hits:
        start, end = view.starts[hit.start], view.ends[hit.end - 1]
        span = Span(start, end, hit.record.family, "lexicon", hit.record.detail, score=hit.score)
        if spans and spans[-1].category == span.category and is_hyphen(text[spans[-1].end : start]):
            surer = max(spans[-1], span, key=lambda part: part.score or 0.0)
            spans[-1] = replace(spans[-1], end=end, score=surer.score)
        else:
            spans.append(span)
    return spans


def _without_hyphens(span: Span, text: str) -> Span:
    start, words = span.start, text[span.start : span.end]
    end = start + len(words.rstrip(HYPHENS))
    return replace(span, start=min(start + len(words) - len(words.lstrip(HYPHENS)), end), end=end)


def _shielded(entity: Entity, matches: LexicalMatches) -> bool:
    view = matches.view
    return any(view.starts[a] <= entity.start and entity.end <= view.ends[b - 1] for a, b in matches.shielded)


def _with_entity(spans: Sequence[Span], entity: Span, text: str, unlisted: bool) -> list[Span]:
    """Add an entity: it widens a span of its own family, and gives way to spans of another.

    A masked entity does not give way to suggestions; they give way to it. What is marked only because no lexicon lists
    it (``unlisted``) leaves every word that one does list to the lexicon.
    """
    if unlisted:
        return sorted((*spans, *cut_spans([entity], spans, text)))
    same = [span for span in spans if span.category == entity.category]
    others = [span for span in spans if span.category != entity.category]
    if not entity.suggested:
        others = [*(s for s in others if s.masked), *cut_spans((s for s in others if s.suggested), [entity], text)]
    return sorted((*others, *merge_spans((*same, *cut_spans([entity], others, text)))))
