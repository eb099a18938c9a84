"""The text of a chain as it is handed out while it is written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from coft_core.model.language_model import LanguageModel
from coft_core.text.thinking import ChainThinking, Divided

UNFINISHED = "\ufffd"
"""What a tokenizer gives for a character of which not all tokens are written yet."""


@dataclass(frozen=True, slots=True)
class Settled:
    """What has become settled by a token.

    Attributes:
        answer: Of the answer.
        thinking: Of the thinking before it.
    """

    answer: str = ""
    thinking: str = ""


class SettledText:
    """Text up to a stop, as far as no later token can change it; thinking apart from the answer.

    Stops end an answer, not the thinking before it.

    Attributes:
        stopped: Whether a stop was written; the text then ends before it.
    """

    def __init__(self, model: LanguageModel, stops: Sequence[str], thinking: ChainThinking | None = None) -> None:
        """Nothing is written yet; without ``thinking`` all is the answer."""
        self._model, self._stops, self._chain = model, tuple(stop for stop in stops if stop), thinking
        self._text, self._given, self._thought, self._thought_given = "", 0, "", 0
        self.stopped = False

    def more(self, token_ids: Sequence[int]) -> Settled:
        """What has become settled, of all tokens that are written so far."""
        divided = self._divided(token_ids)
        self._text, self._thought = divided.answer, divided.thinking
        found = [place for stop in self._stops if (place := self._text.find(stop)) >= 0]
        if found:
            self.stopped, self._text = True, self._text[: min(found)]
            return self._out(len(self._text), len(self._thought))
        settled = min([self._whole(self._text), *(_open(self._text, stop) for stop in self._stops)])
        if self._chain is not None:
            settled = min(settled, _open(self._text, self._chain.marks.opens))
            # White space may turn out to stand between a thinking and the answer.
            settled = settled if self._text.strip() else 0
        thought = self._whole(self._thought)
        if self._chain is not None and not divided.ended:
            thought = min(thought, _open(self._thought, self._chain.marks.closes))
        return self._out(settled, thought)

    def rest(self) -> Settled:
        """What was held back; the chain has ended."""
        return self._out(len(self._text), len(self._thought))

    def _divided(self, token_ids: Sequence[int]) -> Divided:
        model = self._model
        if self._chain is None:
            return Divided("", model.continuation_text(token_ids), True)
        return self._chain.divided(token_ids, [model.token_text(token) for token in token_ids], model.continuation_text)

    @staticmethod
    def _whole(text: str) -> int:
        return len(text.rstrip(UNFINISHED))

    def _out(self, end: int, thought_end: int) -> Settled:
        answer, thinking = self._text[self._given : end], self._thought[self._thought_given : thought_end]
        self._given, self._thought_given = max(self._given, end), max(self._thought_given, thought_end)
        return Settled(answer, thinking)


def _open(text: str, mark: str) -> int:
    """Where an unfinished stop or mark begins at the end of a text; its end where there is none."""
    lengths = range(min(len(mark) - 1, len(text)), 0, -1)
    return len(text) - next((length for length in lengths if text.endswith(mark[:length])), 0)
