"""What the pictures of an experiment's tables show, as numbers: the same that stand in the tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from app.evaluate.experiment_figures import Value


@dataclass(frozen=True, slots=True)
class SweptPoint:
    """A swept value on units of validation."""

    value: float
    bias: Value
    utility: Value
    on_front: bool
    eligible: bool


@dataclass(frozen=True, slots=True)
class FrontPicture:
    """Bias against utility of swept values."""

    knob: str
    points: tuple[SweptPoint, ...]
    knee: float | None
    chosen: float | None


@dataclass(frozen=True, slots=True)
class LevelPoint:
    """Miscoverage at a risk level."""

    alpha: float
    missed: Value


@dataclass(frozen=True, slots=True)
class LevelsPicture:
    """Miscoverage against the risk level that was asked for."""

    points: tuple[LevelPoint, ...]
    published: tuple[LevelPoint, ...] = ()
    source: str = ""


@dataclass(frozen=True, slots=True)
class ChainPoint:
    """Miscoverage of whole chains of a length, and the most that thresholds of single steps would leave open."""

    steps: int
    missed: Value | None
    union: float | None


@dataclass(frozen=True, slots=True)
class ChainsPicture:
    """Miscoverage of whole chains against their length, by risk level."""

    levels: Mapping[float, tuple[ChainPoint, ...]]


@dataclass(frozen=True, slots=True)
class SpeedPoint:
    """A speed in tokens a second, and in percent how much slower that is than what it is compared with."""

    name: str
    speed: Value
    overhead: Value | None = None


@dataclass(frozen=True, slots=True)
class SpeedPicture:
    """Tokens a second, the range over rounds in the place of an interval."""

    size: str
    series: Mapping[str, tuple[SpeedPoint, ...]]


Picture = FrontPicture | LevelsPicture | ChainsPicture | SpeedPicture
