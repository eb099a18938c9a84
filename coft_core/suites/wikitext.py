"""WikiText-2: how likely articles of Wikipedia are to a model (Merity et al. 2016)."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from coft_core.suites.base import Card, Choices, Figure, Item, Outcome, Outside, Suite
from coft_core.suites.files import DataError, DataFolder, HubSplit, Release, hub_lines
from coft_core.suites.statistics import Floats, drawn_figure

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
    title = "WikiText-2"
    kind = "quality"
    citation = "Merity et al. 2016, Pointer sentinel mixture models"
    licence = "CC BY-SA 3.0"
    main = "word_perplexity"

    words: ClassVar[int] = 100
    """Words of a window: with those before it they fit into 512 tokens, as of a small model."""

    words_before: ClassVar[int] = 50

    hub: ClassVar[HubSplit] = HubSplit("Salesforce/wikitext", "wikitext-2-raw-v1", "test")
    releases = (
        Release("WikiText-2, raw test set", "173c87a53759e0201f33e0ccf978e510c2042d7f2cb78229d9a50d79b9e7dd08"),
    )
    card = Card(
        "How well the model foretells articles of Wikipedia, word by word, seeing the 50 to 150 words before. A "
        "perplexity of 20 means that it is as unsure as if it chose each word among 20 equally likely ones. Where a "
        "method certifies its tokens, the share of the articles' tokens that it refuses is a figure of its own.",
        "How good the text is that the model writes, and anything about bias: it shows what a method costs. It does "
        "not compare with published perplexities, for which models see thousands of words; wikitext_long comes nearer.",
        "Wikipedia is part of what nearly all models were trained on. Perplexities by token depend on the tokenizer; "
        "those by word and by byte do not.",
        "As articles differ, all 62 of the test set give an interval of a third of the value with the embedded model, "
        "and a narrower one with better ones. The difference of two methods on the same articles is known far better.",
    )

    def items(self, data: DataFolder) -> list[Item]:
        """Windows of ``wiki.test.raw``."""
        folder = next((name for name in FOLDERS if data.find(name, FILE)), FOLDERS[0])
        name, text = data.content(folder, FILE)
        if "<unk>" in text:
            raise DataError(f"{name} has words replaced by <unk>; take the raw version of WikiText-2.")
        return self._items(text)

    def items_from_hub(self) -> list[Item]:
        """The same from a hub, whose records are the lines, without the space of empty ones."""
        return self._items("".join(line.text("text") or " \n" for line in hub_lines(self.hub)))

    def figures(self, outcomes: Sequence[Outcome], outside: Outside = "floor") -> list[Figure]:
        """Perplexities, bits a byte, and refused tokens.

        With ``zero``, one refused token makes an article impossible and perplexities infinite: they have no value then,
        and what is unscored counts the words, bytes or tokens of the windows with one.
        """
        units = [outcome.unit for outcome in outcomes]
        read = [outcome.scored().likelihoods[0] for outcome in outcomes]
        tokens = [likelihood.tokens for likelihood in read]

        def of(key: str, title: str, what: str, counts: Sequence[int], bits: bool = False) -> Figure:
            return _figure(key, title, outcomes, outside, what, counts, _bits if bits else _perplexity)

        size = [int(outcome.facts["bytes"]) for outcome in outcomes]
        refused = [(likelihood.refused, likelihood.tokens) for likelihood in read]
        return [
            _by_word(outcomes, outside),
            of("byte_perplexity", "Perplexity by byte", "bytes", size),
            of("bits_per_byte", "Bits a byte", "bytes", size, bits=True),
            of("token_perplexity", "Perplexity by token", "tokens", tokens),
            drawn_figure(
                "refused", "Tokens refused", units, refused, _percent, sum(tokens), what="tokens", better="lower"
            ),
        ]

    def main_figure(self, outcomes: Sequence[Outcome], outside: Outside = "floor") -> Figure:
        """Perplexity by word."""
        return _by_word(outcomes, outside)

    def reference(self, item: Item) -> str | None:
        """The window's words."""
        ask = item.asks[0]
        assert isinstance(ask, Choices)
        return ask.texts[0]

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
    title = "WikiText-2, long windows"
    words = 500
    words_before = 500
    card = Card(
        "The articles of WikiText-2 with 500 to 1,000 words seen before each word, which comes nearer to published "
        "perplexities. Windows that do not fit into a model's context are left out and counted; with 2,048 tokens of "
        "context nearly all fit.",
        "How good the text is that the model writes, and anything about bias: it shows what a method costs.",
        WikiText.card.criticism,
        WikiText.card.sizes,
    )


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


def _by_word(outcomes: Sequence[Outcome], outside: Outside) -> Figure:
    words = [int(outcome.facts["words"]) for outcome in outcomes]
    return _figure("word_perplexity", "Perplexity by word", outcomes, outside, "words", words, _perplexity)


def _figure(
    key: str,
    title: str,
    outcomes: Sequence[Outcome],
    outside: Outside,
    what: str,
    counts: Sequence[int],
    statistic: Callable[[Floats], Floats],
) -> Figure:
    """A function of the sums of log-likelihoods and of what is counted in each window."""
    log_p = [outcome.scored().likelihoods[0].of(outside) for outcome in outcomes]
    scored = sum(count for count, value in zip(counts, log_p, strict=True) if math.isfinite(value))
    return drawn_figure(
        key, title, [outcome.unit for outcome in outcomes], list(zip(log_p, counts, strict=True)), statistic, scored,
        what=what, unscored=sum(counts) - scored, better="lower",
    )  # fmt: skip


def _perplexity(sums: Floats) -> Floats:
    """Of sums ``(R, 2)`` of log-likelihoods and counts."""
    return np.exp(-sums[:, 0] / sums[:, 1])


def _bits(sums: Floats) -> Floats:
    return -sums[:, 0] / sums[:, 1] / math.log(2)


def _percent(sums: Floats) -> Floats:
    return 100.0 * sums[:, 0] / sums[:, 1]
