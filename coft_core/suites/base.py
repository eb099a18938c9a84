"""What a suite is: items that ask a model something, and figures that are made of the answers."""

from __future__ import annotations

import math
import tomllib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from coft_core.suites.files import DataError, DataFolder, Line, Row, hub_lines
from coft_core.suites.sources import SOURCES, Source
from coft_core.types import Span

Kind = Literal["bias", "utility", "quality", "long form"]

Better = Literal["lower", "higher", "near the middle", "near zero", "none"]
"""Which values of a figure are good: ``near the middle`` of a share in percent is 50; ``none`` judges nothing."""

Outside = Literal["floor", "zero"]
"""What a token that a certified set refuses counts as in the likelihood of a given text, while the set is not empty:
the step's threshold itself, or nothing, so that the whole text is impossible."""


Encoding = Literal["together", "apart"]
"""How a text is tokenized behind its prompt: ``together`` with it, as lm-evaluation-harness does, or ``apart`` wherever
a token would reach over the border."""


@dataclass(frozen=True, slots=True)
class Choices:
    """Asks how likely each of several texts is after a prompt."""

    prompt: str
    texts: tuple[str, ...]
    spans: tuple[Span, ...] | None = None
    also: tuple[Span, ...] = ()
    tokens: tuple[tuple[int, ...], ...] | None = None


@dataclass(frozen=True, slots=True)
class Writing:
    """Asks for a continuation; ``cuts`` are numbers of tokens at which it is wanted to be cut too."""

    prompt: str
    most_tokens: int
    stops: tuple[str, ...] = ()
    spans: tuple[Span, ...] | None = None
    also: tuple[Span, ...] = ()
    greedy: bool = False
    cuts: tuple[int, ...] = ()


Ask = Choices | Writing


@dataclass(frozen=True, slots=True)
class Likelihood:
    """How likely a policy finds a text, in nats; sums over its tokens.

    ``fallbacks`` has, for each token at which nothing was certified, the text before it, and that text with the
    likeliest fused token, which would have been written there.
    """

    tokens: int
    log_p: float
    floored: float
    log_mass: float = 0.0
    refused: int = 0
    empty: int = 0
    greedy: bool = False
    fallbacks: tuple[tuple[str, str], ...] = ()

    def of(self, outside: Outside) -> float:
        """The log-likelihood; with ``zero`` that of the certified sets' own distribution, ``-inf`` if one refuses."""
        if outside == "floor":
            return self.floored
        return -math.inf if self.refused else self.log_p - self.log_mass


@dataclass(frozen=True, slots=True)
class Scored:
    """The answer to :class:`Choices`."""

    likelihoods: tuple[Likelihood, ...]
    masked: int = 0

    def log_likelihoods(self, outside: Outside) -> list[float]:
        """Of each text; plain numbers, which are compared many times as fast as an array where there are few."""
        return [likelihood.of(outside) for likelihood in self.likelihoods]


@dataclass(frozen=True, slots=True)
class Written:
    """The answer to :class:`Writing`.

    ``fallbacks`` are the ends of the characters of each token without a certificate, ``cuts`` numbers of tokens with
    the characters of the text that so many make.
    """

    text: str
    tokens: int
    finished: str
    empty: tuple[int, ...] = ()
    certified: float | None = None
    masked: int = 0
    thinking: str = ""
    fallbacks: tuple[tuple[int, int], ...] = ()
    cuts: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Unread:
    """The answer to an ask that could not be read, or that the model did not answer."""

    reason: str
    thinking: str = ""


Answer = Scored | Written | Unread


@dataclass(frozen=True, slots=True)
class Item:
    """One item of a suite."""

    id: str
    unit: str
    asks: tuple[Ask, ...]
    facts: Mapping[str, Any] = field(default_factory=dict)


class Record(Row, ABC):
    """A record that is an item."""

    @abstractmethod
    def item(self, line: Line) -> Item:
        """The item; the line names the record and its place."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """An item with its answers: all that a table is made of, so that none needs a model."""

    item: str
    unit: str
    facts: Mapping[str, Any]
    answers: tuple[Answer, ...]
    marks: Mapping[str, tuple[float | None, ...]] = field(default_factory=dict)
    seed: int = 0
    vectors: Mapping[str, tuple[tuple[float, ...] | None, ...]] = field(default_factory=dict)

    @property
    def unread(self) -> str:
        """Why an ask could not be read; empty where all were. Such an outcome is counted, and in no figure."""
        return next((answer.reason for answer in self.answers if isinstance(answer, Unread)), "")

    def scored(self, place: int = 0) -> Scored:
        """The answer to an ask of choices."""
        answer = self.answers[place]
        assert isinstance(answer, Scored)
        return answer

    def written(self, place: int = 0) -> Written:
        """The answer to an ask for a continuation."""
        answer = self.answers[place]
        assert isinstance(answer, Written)
        return answer


@dataclass(frozen=True, slots=True)
class Mean:
    """What a figure is the mean of: values by item, None where there is none, between two bounds."""

    values: Mapping[str, float | None]
    least: float
    most: float


@dataclass(frozen=True, slots=True)
class Figure:
    """One number of a table."""

    key: str
    title: str
    value: float | None
    low: float | None = None
    high: float | None = None
    n: int = 0
    what: str = "items"
    unscored: int = 0
    better: Better = "none"
    part: str = ""
    draws: npt.NDArray[np.float64] | None = field(default=None, compare=False, repr=False)
    percent: bool = False
    mean_of: Mean | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Card:
    """What a suite says to somebody who is no programmer."""

    measures: str
    leaves_out: str
    criticism: str
    sizes: str


CARDS: Mapping[str, Mapping[str, str]] = tomllib.loads(Path(__file__).with_name("cards.toml").read_text("utf-8"))
"""Title, citation, licence and card of each suite of the program, by its key."""


class Suite(ABC):
    """A benchmark.

    A suite reads its items from the original files, says what is asked of a model, and makes figures of the answers.
    What it says of itself is in ``cards.toml``, under its key.
    """

    key: ClassVar[str]
    """Its name in commands and files."""

    title: ClassVar[str]
    kind: ClassVar[Kind]
    citation: ClassVar[str]
    licence: ClassVar[str]

    main: ClassVar[str]
    """Key of the figure that stands for the suite where there is room for one, as in the paper's tables."""

    card: ClassVar[Card]

    folder: ClassVar[str]
    """Name of the folder with its files; the key unless told."""

    files: ClassVar[tuple[str, ...]] = ()
    """Names of the file with its records, a table or one JSON object a line; the first one that is there is read."""

    record: ClassVar[type[Record]]
    """What a record is read as, where each is one item."""

    source: ClassVar[Source] = Source()
    """Where its files are published, as ``sources.toml`` has it under its key."""

    judges: ClassVar[tuple[str, ...]] = ()
    """Names of what has to be said of its written texts before figures can be made: see ``judges.py``."""

    def __init_subclass__(cls, **more: Any) -> None:
        """Take over what the cards say of the key."""
        super().__init_subclass__(**more)
        key = cls.__dict__.get("key", "")
        if key and not hasattr(cls, "folder"):
            cls.folder = key
        if key in SOURCES:
            cls.source = SOURCES[key]
        if said := dict(CARDS.get(key, {})):
            cls.title, cls.citation, cls.licence = (said.pop(name) for name in ("title", "citation", "licence"))
            cls.card = Card(**said)

    def items(self, data: DataFolder) -> list[Item]:
        """All items, in a fixed order."""
        read = data.table if self.files[0].endswith(".csv") else data.json_lines
        return self.made(read(self.folder, *self.files))

    def items_from_hub(self) -> list[Item]:
        """The items of a data set on a hub."""
        if not self.source.hub:
            raise DataError(
                f"{self.title} is read from files only; name the folder that has them (--data, or COFT_DATA)."
            )
        return self.made(line for part in self.source.hub for line in hub_lines(part))

    def made(self, lines: Iterable[Line]) -> list[Item]:
        """The items of records."""
        return [line.read(self.record).item(line) for line in lines]

    @abstractmethod
    def figures(self, outcomes: Sequence[Outcome], outside: Outside = "floor") -> Iterable[Figure]:
        """The figures, those of parts after those of the whole. All outcomes were read.

        They are made one by one, and none behind the main one where no other is asked for.
        """

    def main_figure(self, outcomes: Sequence[Outcome], outside: Outside = "floor") -> Figure | None:
        """The main figure of the whole suite; None where there is none."""
        return next((own for own in self.figures(outcomes, outside) if own.key == self.main and not own.part), None)

    def reference(self, item: Item) -> str | None:
        """A text that truly follows the prompt of the item's first ask, to calibrate on; None where there is none.

        Of choices with a right one, that one.
        """
        ask, right = item.asks[0], item.facts.get("right")
        return ask.texts[right] if isinstance(ask, Choices) and right is not None else None
