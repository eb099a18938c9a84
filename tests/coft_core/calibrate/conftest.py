"""A detector of few words, so that tests choose which families a prompt has."""

from __future__ import annotations

import coft_core as cc

SPANS = {"old": "age", "man": "gender", "nurse": "gender"}


class PlainDetector:
    """Finds the words of :data:`SPANS`."""

    version = "none"

    def detect(self, text):
        return [
            cc.Span(text.index(word), text.index(word) + len(word), family)
            for word, family in SPANS.items()
            if word in text
        ]
