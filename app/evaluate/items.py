"""Which items take part, on which of them thresholds are fitted, in which batches they are read, and how they are kept.

Everything here is a function of items and request, so that a run that was killed goes on as if nothing had happened.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from pydantic import TypeAdapter, ValidationError

from coft_core.suites.base import Answer, Ask, Choices, Encoding, Item, Outcome
from coft_core.text.detection import SpanDetector
from coft_core.text.merging import resolve_spans
from coft_core.types import Span
from db.types import JsonObject

KEY_VERSION = 3
"""Part of every key; raised when asks are read otherwise, so that what was kept before is not taken for the same."""

BATCH_COST = 128
"""Most that the asks of one batch cost together; one item may cost more."""

WRITING_COST = 2
"""What an ask for a continuation costs where one of choices costs 1."""


def digest_of(content: Any) -> str:
    """SHA-256 of plain JSON, 64 hexadecimal digits."""
    text = json.dumps(content, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def item_json(item: Item) -> dict[str, Any]:
    """An item as plain JSON, which says of each ask what kind it is."""
    return {**asdict(item), "asks": [{"kind": type(ask).__name__, **asdict(ask)} for ask in item.asks]}


def items_digest(items: Iterable[Item]) -> str:
    """Digest of items in their order."""
    return digest_of([digest_of(item_json(item)) for item in items])


def _drawn(*parts: object) -> str:
    """Says in which order things are drawn: what is drawn of fewer is a part of what is drawn of more."""
    return hashlib.sha256("|".join(str(part) for part in parts).encode()).hexdigest()


def _first_units(items: Sequence[Item], enough: Callable[[int], bool], *draw: object) -> set[str]:
    """Units in the order of a draw until their items are enough."""
    sizes: dict[str, int] = {}
    for item in items:
        sizes[item.unit] = sizes.get(item.unit, 0) + 1
    chosen: set[str] = set()
    count = 0
    for unit in sorted(sizes, key=lambda unit: (_drawn(*draw, unit), unit)):
        if enough(count):
            break
        chosen.add(unit)
        count += sizes[unit]
    return chosen


def sampled(suite: str, items: Sequence[Item], limit: int | None) -> list[Item]:
    """Whole units, drawn until there are at least ``limit`` items, in the suite's order; None takes all."""
    if limit is None:
        return list(items)
    chosen = _first_units(items, lambda count: count >= limit, "sample", suite)
    return [item for item in items if item.unit in chosen]


@dataclass(frozen=True, slots=True)
class Split:
    """How the items of a suite are shared out under a seed."""

    apart: frozenset[int]
    evaluated: tuple[int, ...]


def split(suite: str, items: Sequence[Item], seed: int, share: float) -> Split:
    """Keep whole units apart until they are a share of the items; at least one unit is left to be evaluated."""
    chosen = _first_units(items, lambda count: count >= share * len(items), "calibration", suite, seed)
    if len(chosen) == len({item.unit for item in items}):
        chosen -= {max(chosen, key=lambda unit: (_drawn("calibration", suite, seed, unit), unit))}
    apart = frozenset(place for place, item in enumerate(items) if item.unit in chosen)
    return Split(apart, tuple(place for place in range(len(items)) if place not in apart))


def batches(items: Sequence[Item]) -> list[tuple[int, ...]]:
    """Places of the items of each batch, those of like length together and the longest first.

    They are formed of all items, whether they have to be read or not: an item has the same neighbours in every run.
    """
    order = sorted(range(len(items)), key=lambda place: (-size_of(items[place]), place))
    formed: list[tuple[int, ...]] = []
    batch: list[int] = []
    cost = 0
    for place in order:
        own = sum(1 if isinstance(ask, Choices) else WRITING_COST for ask in items[place].asks)
        if batch and cost + own > BATCH_COST:
            formed.append(tuple(batch))
            batch, cost = [], 0
        batch.append(place)
        cost += own
    return [*formed, tuple(batch)] if batch else formed


CHARACTERS_A_TOKEN = 4
COST_OF_A_TOKEN = 4
"""A token written one by one takes about so many times as long as one that is read with many others."""


def size_of(item: Item) -> int:
    """How much there is to read and to write, in characters that are read."""
    return sum(_ask_size(ask) for ask in item.asks)


def _ask_size(ask: Ask) -> int:
    if isinstance(ask, Choices):
        return len(ask.prompt) + sum(len(text) for text in ask.texts)
    return len(ask.prompt) + CHARACTERS_A_TOKEN * COST_OF_A_TOKEN * ask.most_tokens


def ask_seed(seed: int, suite: str, item: str, place: int) -> int:
    """Seed of the draws of one ask, apart from those of every other one; 32 bits, which any reader of JSON keeps."""
    return int(_drawn("ask", seed, suite, item, place)[:8], 16)


def thinned(item: Item, detector: SpanDetector, share: float) -> Item:
    """The item with a share of its masked spans left out, as if they had not been detected.

    Whether a span is left out depends only on the item and the span: the same ones under every seed, and of a smaller
    share no others than of a larger one.
    """
    if not share:
        return item
    asks = []
    for place, ask in enumerate(item.asks):
        found = spans_of(ask, detector)
        left = tuple(span for span in found if not _left_out(item.id, place, span, share))
        asks.append(replace(ask, spans=left, also=()))
    return replace(item, asks=tuple(asks))


def spans_of(ask: Ask, detector: SpanDetector) -> tuple[Span, ...]:
    """The spans of an ask's prompt, with those that its data set points out, sorted and disjoint."""
    found: Sequence[Span] = ask.spans or ()
    if ask.spans is None and ask.prompt.strip():
        found = detector.detect(ask.prompt)
    return resolve_spans((*found, *ask.also))


def _left_out(item: str, place: int, span: Span, share: float) -> bool:
    return span.masked and int(_drawn("span", item, place, span.start, span.end)[:8], 16) < share * 2**32


def asks_of(suite: str, items: Iterable[Item], seed: int) -> tuple[list[Ask], list[int]]:
    """All asks of items, and the seed of each."""
    pairs = [(ask, ask_seed(seed, suite, item.id, place)) for item in items for place, ask in enumerate(item.asks)]
    return [ask for ask, _ in pairs], [own for _, own in pairs]


def outcomes_of(items: Iterable[Item], answers: Iterable[Answer], seed: int) -> list[Outcome]:
    """Items with the answers to their asks, which are given one after the other."""
    following = iter(answers)
    return [
        Outcome(item.id, item.unit, item.facts, tuple(next(following) for _ in item.asks), seed=seed) for item in items
    ]


def method_digest(policy: str, further: Mapping[str, str], calibration: str = "") -> str:
    """Digest of all that a method's answers depend on besides the item."""
    return digest_of([policy, dict(further), calibration])


def item_parts(
    suite: str, item: Item, seed: int, judges: Mapping[str, str], encoding: Encoding = "together"
) -> tuple[str, JsonObject]:
    """All that an outcome depends on besides the method; ``judges`` are versions by name."""
    drawn: JsonObject = {}
    if any(not isinstance(ask, Choices) for ask in item.asks):
        drawn["seed"] = seed
    if drawn or judges:
        drawn["judges"] = dict(judges)
    if encoding != "apart" and any(isinstance(ask, Choices) for ask in item.asks):
        drawn["encoding"] = encoding
    return digest_of([suite, item_json(item)]), drawn


def outcome_key(method: str, parts: tuple[str, JsonObject]) -> str:
    """What the outcome of an item under a method, by its digest, is kept under."""
    return digest_of([KEY_VERSION, method, *parts])


_OUTCOME = TypeAdapter(Outcome)


def outcome_bytes(outcome: Outcome) -> bytes:
    """An outcome as it is kept: JSON without its seed, under which it may be one of several runs."""
    content = {name: value for name, value in asdict(outcome).items() if name != "seed"}
    return json.dumps(content, sort_keys=True, ensure_ascii=True, separators=(",", ":")).encode()


def outcome_from(content: bytes, seed: int) -> Outcome:
    """The inverse of :func:`outcome_bytes`, for a run."""
    try:
        outcome = _OUTCOME.validate_json(content)
    except ValidationError:
        # Half of a character, which a data set may hold, only Python's own reader reads.
        outcome = _OUTCOME.validate_python(json.loads(content))
    return replace(outcome, seed=seed) if seed else outcome
