"""WikiText-2: how likely articles of Wikipedia are to a model (Merity et al. 2016)."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from coft_core.suites.base import Choices, Figure, Item, Outcome, Outside, Suite
from coft_core.suites.files import DataError, DataFolder, Line, Row
from coft_core.suites.statistics import Floats, Sample

FOLDERS, FILE = ("wikitext", "wikitext2"), "wiki.test.raw"
WORD = re.compile(r"\S+")
SPACED = tuple((f" {mark} ", f"{mark} ") for mark in ":;.!?,")
BEFORE_BRACKETS = (("s '", "s'"), (" @-@ ", "-"), (" @,@ ", ","), (" @.@ ", "."), *SPACED)
BRACKETS = (
    (re.compile(r"\(\s*([^)]*?)\s*\)"), r"(\1)"),
    (re.compile(r"\[\s*([^\]]*?)\s*\]"), r"[\1]"),
    (re.compile(r"{\s*([^}]*?)\s*}"), r"{\1}"),
    (re.compile(r'"\s*([^"]*?)\s*"'), r'"\1"'),
    (re.compile(r"'\s*([^']*?)\s*'"), r"'\1'"),
)
AFTER_BRACKETS = (
    ("= = = =", "===="), ("= = =", "==="), ("= =", "=="), (" ° ", "°"), (" \n", "\n"), ("\n ", "\n"), (" N ", " 1 "),
    (" 's", "'s"),
)  # fmt: skip


Statistic = Callable[[Floats], Floats]


class Words(Row):
    """A line of an article."""

    text: str


@dataclass(frozen=True, slots=True)
class Window:
    """Words of an article with those before them."""

    before: str
    text: str
    end: int


class WikiText(Suite):
    """Perplexity by word, by byte and by token of the test set, read in windows of words.

    Articles, their detokenised text, and the words and bytes that are counted (those of the text before it is
    detokenised) are as in lm-evaluation-harness. Windows are not: the harness reads disjoint windows as long as the
    model's context, each after one token. A suite knows no tokens and no context, so that windows are so many words,
    each after the last words of the former one. Every word is read once, with less context than there, and perplexities
    are higher; those of methods compare with each other.
    """

    key = "wikitext"
    kind = "quality"
    main = "word_perplexity"

    words: ClassVar[int] = 100
    """Words of a window: with those before it they fit into 512 tokens, as of a small model."""

    words_before: ClassVar[int] = 50

    def items(self, data: DataFolder) -> list[Item]:
        """Windows of ``wiki.test.raw``."""
        folder = next((name for name in FOLDERS if data.find(name, FILE)), FOLDERS[0])
        name, text = data.content(folder, FILE)
        if "<unk>" in text:
            raise DataError(f"{name} has words replaced by <unk>; take the raw version of WikiText-2.")
        return self._items(text)

    def made(self, lines: Iterable[Line]) -> list[Item]:
        """The same from a hub, whose records are the lines, without the space of empty ones."""
        return self._items("".join(line.read(Words).text or " \n" for line in lines))

    def figures(self, outcomes: Sequence[Outcome], outside: Outside = "floor") -> Iterator[Figure]:
        """Perplexities, bits a byte, and refused tokens.

        With ``zero``, one refused token makes an article impossible and perplexities infinite: they have no value then,
        and what is unscored counts the words, bytes or tokens of the windows with one.
        """
        read = [outcome.scored().likelihoods[0] for outcome in outcomes]
        log_p = [likelihood.of(outside) for likelihood in read]
        words, size = ([int(outcome.facts[fact]) for outcome in outcomes] for fact in ("words", "bytes"))
        tokens = [likelihood.tokens for likelihood in read]

        def of(key: str, title: str, what: str, counts: Sequence[int], statistic: Statistic) -> Figure:
            """A function of the sums of log-likelihoods and of what is counted in each window."""
            scored = sum(count for count, value in zip(counts, log_p, strict=True) if math.isfinite(value))
            rows, unscored = list(zip(log_p, counts, strict=True)), sum(counts) - scored
            return Sample(outcomes, read, what).drawn(key, title, rows, statistic, scored, "lower", unscored)

        yield of("word_perplexity", "Perplexity by word", "words", words, _perplexity)
        yield of("byte_perplexity", "Perplexity by byte", "bytes", size, _perplexity)
        yield of("bits_per_byte", "Bits a byte", "bytes", size, _bits)
        yield of("token_perplexity", "Perplexity by token", "tokens", tokens, _perplexity)
        refused = [(likelihood.refused, likelihood.tokens) for likelihood in read]
        sample = Sample(outcomes, read, "tokens")
        yield sample.drawn("refused", "Tokens refused", refused, _percent, sum(tokens), "lower", unscored=0)

    def reference(self, item: Item) -> str | None:
        """The window's words."""
        ask = item.asks[0]
        return ask.texts[0] if isinstance(ask, Choices) else None

    def _items(self, text: str) -> list[Item]:
        return [item for number, page in enumerate(pages(text), 1) for item in self._page(number, page)]

    def _page(self, number: int, page: str) -> list[Item]:
        text = detokenised(page)
        words, size = len(re.split(r"\s+", page)), len(page.encode())
        items, start = [], 0
        for place, window in enumerate(windows(text, self.words, self.words_before), 1):
            # The counts belong to the article; a window has its share by length, and shares sum up to the whole.
            facts = {
                "article": page.strip().split("\n")[0].strip(" ="),
                "words": _share(words, start, window.end, len(text)),
                "bytes": _share(size, start, window.end, len(text)),
            }
            items.append(Item(f"{number}-{place}", str(number), (Choices(window.before, (window.text,)),), facts))
            start = window.end
        return items


class WikiTextLong(WikiText):
    """The same in windows of 500 words after 500, for models with 2,048 tokens of context or more."""

    key = "wikitext_long"
    words = 500
    words_before = 500


def pages(text: str) -> list[str]:
    """The articles of a file, each from its title on, as in lm-evaluation-harness.

    As there, the two lines of formulas in the test set that look like titles begin articles too.
    """
    found: list[str] = []
    lines: list[str] = []
    for line in text.split("\n"):
        if _is_title(line.strip()):
            found.append("\n".join(lines))
            lines = []
        lines.append(line)
    return [page for page in [*found, "\n".join(lines)] if page.strip()]


def detokenised(page: str) -> str:
    """Running text of an article in which marks stand apart, as lm-evaluation-harness makes it.

    Left out is a rule of it that was meant for years and matches nothing.
    """
    for old, new in BEFORE_BRACKETS:
        page = page.replace(old, new)
    for pattern, plain in BRACKETS:
        page = pattern.sub(plain, page)
    for old, new in AFTER_BRACKETS:
        page = page.replace(old, new)
    return page


def windows(text: str, words: int, words_before: int) -> list[Window]:
    """A text in pieces of so many words, which make up all of it; the last one has what is left."""
    places = [match.span() for match in WORD.finditer(text)]
    found = []
    for first in range(0, len(places), words):
        start = places[first - 1][1] if first else 0
        end = places[first + words - 1][1] if first + words < len(places) else len(text)
        before = text[places[max(first - words_before, 0)][0] : start] if first else ""
        found.append(Window(before, text[start:end], end))
    return found


def _is_title(line: str) -> bool:
    return line.startswith("= ") and not line.startswith("= =") and line.endswith(" =")


def _share(count: int, start: int, end: int, length: int) -> int:
    return count * end // length - count * start // length


def _perplexity(sums: Floats) -> Floats:
    """Of sums ``(R, 2)`` of log-likelihoods and counts."""
    return np.exp(-sums[:, 0] / sums[:, 1])


def _bits(sums: Floats) -> Floats:
    return -sums[:, 0] / sums[:, 1] / math.log(2)


def _percent(sums: Floats) -> Floats:
    return 100.0 * sums[:, 0] / sums[:, 1]
