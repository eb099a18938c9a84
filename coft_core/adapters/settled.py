"""The text of a chain as it is handed out while it is written."""

from __future__ import annotations

from collections.abc import Sequence

from coft_core.model.language_model import LanguageModel

UNFINISHED = "\ufffd"
"""What a tokenizer gives for a character of which not all tokens are written yet."""


class SettledText:
    """Text up to a stop, as far as no later token can change it.

    Attributes:
        stopped: Whether a stop was written; the text then ends before it.
    """

    def __init__(self, model: LanguageModel, stops: Sequence[str]) -> None:
        """Nothing is written yet."""
        self._model, self._stops = model, tuple(stop for stop in stops if stop)
        self._text, self._given, self.stopped = "", 0, False

    def more(self, token_ids: Sequence[int]) -> str:
        """What has become settled, of all tokens that are written so far."""
        self._text = self._model.continuation_text(token_ids)
        found = [place for stop in self._stops if (place := self._text.find(stop)) >= 0]
        if found:
            self.stopped, self._text = True, self._text[: min(found)]
            return self._out(len(self._text))
        settled = len(self._text.rstrip(UNFINISHED))
        return self._out(min([settled, *(self._open(stop) for stop in self._stops)]))

    def rest(self) -> str:
        """What was held back; the chain has ended."""
        return self._out(len(self._text))

    def _open(self, stop: str) -> int:
        """Where an unfinished stop begins at the end of the text; its end where there is none."""
        text = self._text
        lengths = range(min(len(stop) - 1, len(text)), 0, -1)
        return len(text) - next((length for length in lengths if text.endswith(stop[:length])), 0)

    def _out(self, end: int) -> str:
        given, self._given = self._text[self._given : end], max(self._given, end)
        return given
