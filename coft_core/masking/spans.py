"""Detection of sensitive spans: protected-attribute lexicons, and a trained spaCy pipeline if there is one.

The paper obtains spans from user lists and named-entity recognition (App. "Span Acquisition") and masks
demographic markers and proxy cues, not downstream labels such as occupations.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from coft_core.masking.lexicon import Lexicons
from coft_core.masking.lexicon_matcher import LexicalMatches, LexiconMatcher
from coft_core.masking.merge import cut_spans, merge_spans
from coft_core.masking.pipeline import AUTO, Entity, EntityPipeline
from coft_core.masking.tokens import is_hyphen
from coft_core.types import Span

_GROUP_FAMILIES = ("religion", "nationality", "race")


class SpanDetector:
    """Finds the spans of a text that name or reveal a protected attribute; unchanging after construction."""

    __slots__ = ("_matcher", "_pipeline", "_version")

    def __init__(self, lexicons: Lexicons | None = None, pipeline: str | None = AUTO) -> None:
        """Build a detector.

        Args:
            lexicons: Lexicons to match; None loads the shipped ones.
            pipeline: A trained spaCy pipeline by package name or folder; ``"auto"`` takes an installed
                English one if there is any, ``"embedded"`` the one that comes with the program; None matches the
                lexicons alone.

        Raises:
            LexiconError: The shipped lexicons are damaged.
            InvalidInputError: The chosen pipeline cannot be loaded.
        """
        terms = Lexicons.load() if lexicons is None else lexicons
        self._matcher = LexiconMatcher(terms)
        self._pipeline = EntityPipeline.choose(pipeline)
        named = self._pipeline.version if self._pipeline else "no pipeline"
        self._version = f"lexicon {terms.version}+{terms.digest[:12]}, {named}"

    @property
    def version(self) -> str:
        """Version and content digest of the lexicons, and of the pipeline or ``"no pipeline"``."""
        return self._version

    def detect(self, text: str) -> list[Span]:
        """Find the sensitive spans of a text.

        Args:
            text: The text exactly as typed; it is not normalised.

        Returns:
            Disjoint spans in character offsets into ``text``, sorted by their start. Possessive endings stay
            outside; parts of one family joined by a hyphen are one span.

        Raises:
            InvalidInputError: The text is longer than the trained pipeline takes.
        """
        matches = self._matcher.match(text)
        spans = _lexicon_spans(matches, text)
        if self._pipeline is None:
            return spans
        for entity in self._pipeline.entities(text):
            if not _shielded(entity, matches):
                spans = _with_entity(spans, self._entity_span(entity, text), text)
        return spans

    def _entity_span(self, entity: Entity, text: str) -> Span:
        category = "name" if entity.label == "PERSON" else "nationality"
        if entity.label == "NORP":
            hits = self._matcher.match(text[entity.start : entity.end]).hits
            families = [hit.record.family for hit in hits]
            category = next((family for family in families if family in _GROUP_FAMILIES), category)
        return Span(entity.start, entity.end, category, "pipeline", entity.label)


@lru_cache(maxsize=1)
def default_detector() -> SpanDetector:
    """The detector of the shipped lexicons and the ``"auto"`` pipeline, built once per process."""
    return SpanDetector()


def detect_spans(text: str, detector: SpanDetector | None = None) -> list[Span]:
    """Find the sensitive spans of a text.

    Args:
        text: The text exactly as typed.
        detector: The detector; None takes :func:`default_detector`.

    Returns:
        Disjoint spans sorted by their start; an empty list when there is nothing sensitive.

    Raises:
        InvalidInputError: The text is longer than the detector's trained pipeline takes.
    """
    return (detector or default_detector()).detect(text)


def _lexicon_spans(matches: LexicalMatches, text: str) -> list[Span]:
    view = matches.view
    spans: list[Span] = []
    for hit in matches.hits:
        start, end = view.starts[hit.start], view.ends[hit.end - 1]
        span = Span(start, end, hit.record.family, "lexicon", hit.record.detail)
        if spans and spans[-1].category == span.category and is_hyphen(text[spans[-1].end : start]):
            spans[-1] = replace(spans[-1], end=end)
        else:
            spans.append(span)
    return spans


def _shielded(entity: Entity, matches: LexicalMatches) -> bool:
    view = matches.view
    return any(view.starts[a] <= entity.start and entity.end <= view.ends[b - 1] for a, b in matches.shielded)


def _with_entity(spans: list[Span], entity: Span, text: str) -> list[Span]:
    """Add an entity: it widens a span of its own family, and gives way to spans of another."""
    others = [span for span in spans if span.category != entity.category]
    same = [span for span in spans if span.category == entity.category]
    return sorted((*others, *merge_spans((*same, *cut_spans([entity], others, text)))))
