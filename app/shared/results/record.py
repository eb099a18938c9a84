"""What evaluations, batches and checks have found of a model, as one record that all formats are written from."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any, Literal

from coft_core.step_numbers import finite
from coft_core.suites.base import Better

HIGHER: Mapping[Better, bool | None] = {"higher": True, "lower": False}
"""Whether more is better; a figure that is best in between, or judges nothing, has no word for it."""


@dataclass(frozen=True, slots=True)
class Result:
    """One figure of a model; shares are from 0 to 1.

    Attributes:
        method: How the model decoded; empty where there is only one way.
        n: How many of ``what`` it rests on.
        level: Confidence of the interval.
        error: Standard error, where it is known.
        bounds: The least and the largest value that it can have; None where it has no bounds.
    """

    suite: str
    metric: str
    value: float
    n: int
    what: str = "items"
    method: str = ""
    low: float | None = None
    high: float | None = None
    level: float = 0.95
    error: float | None = None
    better: Better = "none"
    bounds: tuple[float, float] | None = None

    @property
    def key(self) -> str:
        """By which it is chosen."""
        return "/".join(filter(None, (self.suite, self.metric, self.method)))

    @property
    def ends(self) -> tuple[float, float] | None:
        """Both ends of the interval; None where they are not known or say nothing."""
        if self.low is None or self.high is None or not math.isfinite(self.low) or not math.isfinite(self.high):
            return None
        return self.low, self.high

    @property
    def interval(self) -> str:
        """The interval with its level; empty where there is none."""
        return "" if self.ends is None else f"{self.ends[0]:.4f} to {self.ends[1]:.4f} ({self.level:.0%})"


@dataclass(frozen=True, slots=True)
class Dataset:
    """What a suite was read from; ``effective`` is how much of it was read."""

    key: str
    title: str
    version: str = ""
    digest: str = ""
    items: int = 0
    effective: int = 0


@dataclass(frozen=True, slots=True)
class Sample:
    """What came of one item."""

    suite: str
    item: str
    prompt: str
    answer: str
    method: str = ""
    seed: int = 0
    scores: Mapping[str, float] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Results:
    """What was found of a model.

    Attributes:
        methods: The settings of each method.
        weights_digest: Digest of the model's weights; empty where it is not known.
    """

    kind: Literal["evaluation", "batch", "check"]
    name: str
    model: str
    created: datetime
    datasets: tuple[Dataset, ...]
    results: tuple[Result, ...]
    methods: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    weights_digest: str = ""
    samples: tuple[Sample, ...] = ()

    def titled(self, suite: str) -> str:
        """What a suite is called."""
        return next((own.title for own in self.datasets if own.key == suite), suite)

    def json(self) -> dict[str, Any]:
        """Everything as plain JSON."""
        return finite({**asdict(self), "created": self.created.isoformat()})


def metric_name(figure: str, part: str = "") -> str:
    """A figure's name as programs write it: ``ss``, and ``ss_intrasentence`` for a part."""
    return re.sub(r"[^\w]+", "_", f"{figure} {part}".strip().lower()).strip("_")
