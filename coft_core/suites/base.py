"""What a suite is: items that ask a model something, and figures that are made of the answers."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from coft_core.suites.files import DataError, DataFolder, Release
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
    """Asks how likely each of several texts is after a prompt.

    Attributes:
        prompt: The prompt; empty where the texts begin a document, which models read from their start token on.
        texts: The texts, taken literally (a leading space counts), at least one.
        spans: Sensitive spans of the prompt; None lets the detector find them.
        also: Sensitive spans beside these, which the data set itself points out.
        tokens: Tokens of each text, where another program has decided on them; None tokenizes the texts.
    """

    prompt: str
    texts: tuple[str, ...]
    spans: tuple[Span, ...] | None = None
    also: tuple[Span, ...] = ()
    tokens: tuple[tuple[int, ...], ...] | None = None


@dataclass(frozen=True, slots=True)
class Writing:
    """Asks for a continuation.

    Attributes:
        prompt: The prompt.
        most_tokens: Tokens at most.
        stops: Texts before which the continuation ends; they are not part of it.
        spans: Sensitive spans of the prompt; None lets the detector find them.
        also: Sensitive spans beside these, which the data set itself points out.
        greedy: Whether the likeliest token is taken each time instead of being drawn.
    """

    prompt: str
    most_tokens: int
    stops: tuple[str, ...] = ()
    spans: tuple[Span, ...] | None = None
    also: tuple[Span, ...] = ()
    greedy: bool = False


Ask = Choices | Writing


@dataclass(frozen=True, slots=True)
class Likelihood:
    """How likely a policy finds a text, in nats; sums over its tokens.

    Attributes:
        tokens: Its tokens.
        log_p: Log-probability in the distribution that the policy draws from before certification and truncation.
        floored: The same, with every refused token at its step's threshold.
        log_mass: Sum of the log-masses of the certified sets; 0 for a policy that certifies nothing.
        refused: Tokens outside a certified set that is not empty. Where a set is empty, decoding falls back to all
            tokens, and nothing is refused.
        empty: Steps at which the certified set is empty.
        greedy: Whether every token is the policy's greedy choice.
    """

    tokens: int
    log_p: float
    floored: float
    log_mass: float = 0.0
    refused: int = 0
    empty: int = 0
    greedy: bool = False

    def of(self, outside: Outside) -> float:
        """The log-likelihood; with ``zero`` that of the certified sets' own distribution, ``-inf`` if one refuses."""
        if outside == "floor":
            return self.floored
        return -math.inf if self.refused else self.log_p - self.log_mass


@dataclass(frozen=True, slots=True)
class Scored:
    """The answer to :class:`Choices`.

    Attributes:
        likelihoods: One a text.
        masked: Tokens of the prompt that the masked branch does not see.
    """

    likelihoods: tuple[Likelihood, ...]
    masked: int = 0

    def values(self, outside: Outside) -> npt.NDArray[np.float64]:
        """Log-likelihoods, ``(C,)``."""
        return np.array(self.log_likelihoods(outside))

    def log_likelihoods(self, outside: Outside) -> list[float]:
        """The same as plain numbers, which are compared many times as fast where there are few."""
        return [likelihood.of(outside) for likelihood in self.likelihoods]


@dataclass(frozen=True, slots=True)
class Written:
    """The answer to :class:`Writing`.

    Attributes:
        text: The continuation, up to a stop.
        tokens: Tokens that were written.
        finished: ``"stop"``, ``"end"``, ``"length"`` or ``"context"``.
        empty: Steps at which the certified set was empty, so that the likeliest fused token was written, 0-based.
        certified: Mean share of the vocabulary in the certified sets; None for a policy that certifies nothing.
        masked: Tokens of the prompt that the masked branch does not see.
        thinking: What the model wrote between the marks of its thinking: no part of ``text``, and in no figure.
    """

    text: str
    tokens: int
    finished: str
    empty: tuple[int, ...] = ()
    certified: float | None = None
    masked: int = 0
    thinking: str = ""


@dataclass(frozen=True, slots=True)
class Unread:
    """The answer to an ask that could not be read, or that the model did not answer.

    Attributes:
        reason: Why, as a sentence: it does not fit into the model's context, or the thinking did not end.
        thinking: The thinking that did not end.
    """

    reason: str
    thinking: str = ""


Answer = Scored | Written | Unread


@dataclass(frozen=True, slots=True)
class Item:
    """One item of a suite.

    Attributes:
        id: Its id, as the data set has it, unique in the suite.
        unit: What is drawn anew for intervals: items of one template, target or question stand and fall together.
        asks: What it asks.
        facts: What figures need to know of it besides the answers, as plain JSON.
    """

    id: str
    unit: str
    asks: tuple[Ask, ...]
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Outcome:
    """An item with its answers: all that a table is made of, so that none needs a model.

    Attributes:
        item: Its id.
        unit: See :class:`Item`.
        facts: See :class:`Item`.
        answers: One an ask.
        marks: What judges said of written texts, by name, one value an ask; None where one could not say anything.
        seed: Seed of the draws.
        vectors: What judges made of texts that is no single number, by name, one vector an ask: see ``features.py``.
    """

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
class Figure:
    """One number of a table.

    Attributes:
        key: Stable name, in lower case with underscores.
        title: Its name for people.
        value: The number; None where nothing could be scored.
        low: Lower end of its 95 % interval; None without one.
        high: Upper end.
        n: What was counted, without the unscored.
        what: What is counted, in the plural: ``"pairs"``.
        unscored: What could not be scored, for instance answers that cannot be read: in no share.
        better: Which values are good.
        part: Category or group that it is of; empty for the whole suite.
        draws: The figure over units drawn anew, ``(R,)``; equal places of two methods are of the same units, so that
            their differences have an interval too. None without an interval.
        percent: Whether it is a share in percent; files for programs have such figures from 0 to 1.
    """

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


@dataclass(frozen=True, slots=True)
class Card:
    """What a suite says to somebody who is no programmer.

    Attributes:
        measures: What it measures, and how.
        leaves_out: What it does not measure.
        criticism: Known criticism, with its source.
        sizes: How many items an interval of a given width needs.
    """

    measures: str
    leaves_out: str
    criticism: str
    sizes: str


class Suite(ABC):
    """A benchmark.

    A suite reads its items from the original files, says what is asked of a model, and makes figures of the answers.
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

    releases: ClassVar[tuple[Release, ...]] = ()
    """Known states of its files."""

    judges: ClassVar[tuple[str, ...]] = ()
    """Names of what has to be said of its written texts before figures can be made: see ``judges.py``."""

    @abstractmethod
    def items(self, data: DataFolder) -> list[Item]:
        """All items, in a fixed order.

        Raises:
            coft_core.suites.files.DataError: A file is missing or damaged.
        """

    @abstractmethod
    def figures(self, outcomes: Sequence[Outcome], outside: Outside = "floor") -> list[Figure]:
        """The figures, the main one among them; those of parts after those of the whole. All outcomes were read."""

    def main_figure(self, outcomes: Sequence[Outcome], outside: Outside = "floor") -> Figure | None:
        """The main figure of the whole suite, the same as among :meth:`figures`; None where there is none.

        A table of many suites needs no more. Suites whose other figures take long make this one alone.
        """
        return next((own for own in self.figures(outcomes, outside) if own.key == self.main and not own.part), None)

    def reference(self, item: Item) -> str | None:
        """A text that truly follows the prompt of the item's first ask, to calibrate on; None where there is none."""
        return None

    def items_from_hub(self) -> list[Item]:
        """The items of a data set on a hub.

        Raises:
            coft_core.suites.files.DataError: There is none that is known, or it cannot be reached.
        """
        raise DataError(f"{self.title} is read from files alone; name the folder that has them (--data, or COFT_DATA).")
