"""Sampled paths as data: what is asked of a run, its worlds, and what was drawn in them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime

from app.shared.audits import AuditSettings
from coft_core.controls.result import Controls
from coft_core.paths.parting import Difference, Parting
from coft_core.paths.question import Comparison, ShareEstimate
from coft_core.paths.sample import Path
from coft_core.paths.tree import PathTree
from coft_core.types import Certificate, Span

MOST_PATHS = 2000
LONGEST = 256


@dataclass(frozen=True, slots=True)
class Question:
    """What paths are asked: which of two ways a continuation answers."""

    yes: str = ""
    no: str = ""
    regex: bool = False
    match_case: bool = False
    scorer: str = ""
    threshold: float = 0.5
    name: str = ""

    @property
    def asked(self) -> bool:
        """Whether there is a question at all."""
        return bool(self.yes.strip() or self.scorer.strip())

    @property
    def called(self) -> str:
        """What a yes is called in a sentence."""
        words = self.yes.strip()
        otherwise = words if words.isalpha() or not words else f"“{words}”"
        return self.name.strip() or otherwise or f"at least {self.threshold:g} by {self.scorer.strip()}"


@dataclass(frozen=True, slots=True)
class PathsRequest:
    """A request to sample paths."""

    prompt: str
    settings: AuditSettings = field(default_factory=lambda: AuditSettings(max_new_tokens=12))
    spans: tuple[Span, ...] | None = None
    as_typed: bool = True
    masked: bool = True
    pronouns: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    paths: int = 200
    question: Question = field(default_factory=Question)
    alpha: float = 0.05
    stop_early: bool = True
    name: str = ""


@dataclass(frozen=True, slots=True)
class World:
    """A prompt with the settings under which it is continued."""

    key: str
    label: str
    prompt: str
    spans: tuple[Span, ...]
    settings: AuditSettings
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class WorldPaths:
    """What was drawn in a world."""

    world: World
    certificate: str
    warnings: tuple[str, ...]
    paths: tuple[Path, ...]
    outcomes: tuple[bool | None, ...] = ()

    @property
    def held(self) -> int:
        """Paths whose thresholds held at every step."""
        return sum(path.held for path in self.paths)

    @property
    def claim(self) -> Certificate:
        """The certificate with the number of all paths' steps at which a token is certified."""
        marks = [mark for path in self.paths for mark in path.thresholds]
        return Certificate.read(self.certificate).at(sum(mark in ("held", "borrowed") for mark in marks), len(marks))

    @property
    def thinks(self) -> bool:
        """Whether any of its paths has thinking."""
        return any(path.divided is not None for path in self.paths)

    @property
    def unended(self) -> int:
        """Paths whose thinking has not ended, so that they have no answer."""
        return sum(path.answer is None for path in self.paths)

    @property
    def has_thresholds(self) -> bool:
        """Whether any step of its paths has a threshold that belongs to the policy."""
        return any(mark != "none" for path in self.paths for mark in path.thresholds)


@dataclass(frozen=True, slots=True)
class PathsView:
    """A run that has drawn something."""

    id: int
    name: str
    status: str
    created_at: datetime
    request: PathsRequest
    worlds: tuple[WorldPaths, ...]
    controls: Controls | None = None

    @property
    def drawn(self) -> int:
        """Paths of each world."""
        return min(len(item.paths) for item in self.worlds)

    @property
    def asked(self) -> bool:
        """Whether the paths were asked a question."""
        return self.request.question.asked


@dataclass(frozen=True, slots=True)
class Apart:
    """How far another world is from the first; ``twins`` has the token at which each path parts from its twin."""

    world: int
    partings: tuple[Parting, ...]
    depths: tuple[Difference, ...]
    twins: tuple[int | None, ...] = ()

    @property
    def parted_at(self) -> Counter[int]:
        """How many twins part at each token, counted from 1."""
        return Counter(at for at in self.twins if at is not None)


@dataclass(frozen=True, slots=True)
class Analysis:
    """A run with what is computed of it."""

    view: PathsView
    tree: PathTree
    tokens: tuple[str, ...]
    apart: tuple[Apart, ...]
    estimates: tuple[ShareEstimate, ...]
    comparisons: tuple[Comparison, ...]
    thought: frozenset[int] = frozenset()

    @property
    def labels(self) -> tuple[str, ...]:
        """The worlds' names in their order."""
        return tuple(item.world.label for item in self.view.worlds)

    def beginning(self, node: int) -> str:
        """The text of a beginning; empty for the root."""
        parts: list[str] = []
        while node > 0:
            parts.append(self.tokens[node])
            node = self.tree.nodes[node].parent
        return "".join(reversed(parts))

    def shares(self, node: int) -> list[float]:
        """The share of each world's paths that begin so."""
        return [self.tree.share(node, world) for world in range(len(self.view.worlds))]

    def difference(self, item: Comparison) -> float | None:
        """How much more often the first of two compared worlds answers yes; None where one has no scored path."""
        first, second = (self.estimates[world].share for world in (item.first, item.second))
        return None if first is None or second is None else first - second


@dataclass(frozen=True, slots=True)
class OpenedPath:
    """A path as an audit of its own."""

    session_id: int
    same: int
    tokens: int
