"""The items of a suite with what every method made of each, the largest figure or disagreement first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from coft_core.suites.base import Item, Outcome, Outside, Scored, Suite, Written
from coft_core.suites.statistics import made_with

SHOWN_PROMPT = 160


@dataclass(frozen=True, slots=True)
class ItemRow:
    """An item; ``place`` is its place among the outcomes of the chosen method, ``values`` are figures by method."""

    place: int
    item: str
    seed: int
    prompt: str
    answer: str
    values: tuple[float | None, ...]

    @property
    def gap(self) -> float:
        """How far the methods' figures lie apart."""
        known = [value for value in self.values if value is not None]
        return max(known) - min(known) if known else 0.0


def item_rows(
    suite: Suite, chosen: Sequence[Outcome], others: Sequence[Sequence[Outcome]], items: Mapping[str, Item],
    outside: Outside,
) -> list[ItemRow]:  # fmt: skip
    """Rows of the chosen method's outcomes: of a suite of bias by its own figure, of others by the disagreement."""
    by_item = [{(own.item, own.seed): own for own in outcomes} for outcomes in others]
    rows = []
    with made_with("value"):
        for place, own in enumerate(chosen):
            together = (own, *(each.get((own.item, own.seed)) for each in by_item))
            values = tuple(_value(suite, one, outside) for one in together)
            rows.append(ItemRow(place, own.item, own.seed, _prompt(items.get(own.item)), _answer(own), values))
    if suite.kind == "bias":
        return sorted(rows, key=lambda row: abs(row.values[0] or 0.0), reverse=True)
    return sorted(rows, key=lambda row: row.gap, reverse=True)


def _value(suite: Suite, outcome: Outcome | None, outside: Outside) -> float | None:
    """The suite's main figure of one item; None where a single item has none."""
    if outcome is None or outcome.unread:
        return None
    main = suite.main_figure([outcome], outside)
    return None if main is None else main.value


def _prompt(item: Item | None) -> str:
    """The beginning of what was asked; empty where the data is not there any more."""
    text = "" if item is None or not item.asks else item.asks[0].prompt
    return text if len(text) <= SHOWN_PROMPT else f"… {text[-SHOWN_PROMPT:]}"


def _answer(outcome: Outcome) -> str:
    if outcome.unread:
        return f"no answer: {outcome.unread}"
    answer = outcome.answers[0]
    if isinstance(answer, Scored):
        return f"log-likelihoods {', '.join(f'{own.floored:.2f}' for own in answer.likelihoods)}"
    return (isinstance(answer, Written) and answer.text.strip()) or "nothing was written"
