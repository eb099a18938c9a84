"""A tree of paths as cells: columns are tokens, heights are probabilities, and what no cell could hold is summed up."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from app.paths.runs import PARTED
from app.paths.types import Analysis
from coft_core.paths.parting import Parting

LEAST_HEIGHT = 0.03
"""Beginnings that a smaller share has are summed up, because their words could not be read."""

MOST_COLUMNS = 6


@dataclass(frozen=True, slots=True)
class Cell:
    """A part of the picture."""

    node: int | None
    text: str
    column: int
    top: float
    height: float
    parting: tuple[int, Parting] | None = None
    others: int = 0
    thought: bool = False


def cells_of(analysis: Analysis, worlds: Sequence[int]) -> list[Cell]:
    """The cells of some worlds' paths merged, heights being the mean of the worlds' shares.

    All pictures of a run have the same branches above each other, so that they can be compared.
    """
    partings = strongest_partings(analysis)
    root = Cell(0, "", 0, 0.0, 1.0, partings.get(0) if len(worlds) > 1 else None)
    return [root, *_behind(analysis, worlds, partings if len(worlds) > 1 else {}, root)]


def strongest_partings(analysis: Analysis) -> dict[int, tuple[int, Parting]]:
    """The parting behind each beginning where worlds part; of several, that of the world furthest from the first."""
    found: dict[int, tuple[int, Parting]] = {}
    for apart in analysis.apart:
        for item in apart.partings:
            before = found.get(item.node)
            further = before is None or item.difference.distance > before[1].difference.distance
            if item.adjusted <= PARTED and further:
                found[item.node] = (apart.world, item)
    return found


def _behind(
    analysis: Analysis, worlds: Sequence[int], partings: dict[int, tuple[int, Parting]], cell: Cell
) -> Iterator[Cell]:
    """The cells behind a cell, each followed by those behind it."""
    if cell.node is None or cell.column == MOST_COLUMNS:
        return
    top, small, others = cell.top, 0.0, 0
    for child in analysis.tree.nodes[cell.node].children:
        height = _height(analysis, worlds, child)
        if height < LEAST_HEIGHT:
            small, others = small + height, others + (height > 0)
            continue
        last = _only_way(analysis, child, partings)
        text = analysis.beginning(last).removeprefix(analysis.beginning(cell.node))
        # What stands at the end of a run is thinking only if all before it is, but for a second thinking.
        thought = last in analysis.thought and child in analysis.thought
        following = Cell(last, text, cell.column + 1, top, height, partings.get(last), thought=thought)
        yield following
        yield from _behind(analysis, worlds, partings, following)
        top += height
    if others and small >= LEAST_HEIGHT / 2:
        yield Cell(None, "", cell.column + 1, top, small, None, others)


def _only_way(analysis: Analysis, node: int, partings: dict[int, tuple[int, Parting]]) -> int:
    """The end of the beginnings behind a node that every path goes along, in every world."""
    nodes = analysis.tree.nodes
    while len(nodes[node].children) == 1 and not any(nodes[node].ends) and node not in partings:
        (node,) = nodes[node].children
    return node


def _height(analysis: Analysis, worlds: Sequence[int], node: int) -> float:
    return sum(analysis.tree.share(node, world) for world in worlds) / len(worlds)
