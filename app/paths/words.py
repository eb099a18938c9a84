"""What the page of paths shows: the result first, the picture with its numbers, and the paths behind a beginning."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from app.paths.drawing import LEAST_HEIGHT, Cell, cells_of
from app.paths.runs import PARTED, beginning_text
from app.paths.sentences import (
    called,
    decided_text,
    distance,
    interval,
    labels,
    parting_sentence,
    percent,
    points,
    reservations,
    result_sentences,
    threshold_sentence,
)
from app.paths.types import Analysis, OpenedPath, PathsView, WorldPaths
from app.paths.worlds import shown_prompt
from app.shared.format import plural, quoted
from app.shared.job_watch import ENDED
from app.shared.markup import laid_out
from coft_core.paths.parting import LEAST_VISITS
from coft_core.paths.question import estimate
from coft_core.paths.sample import Path

MOST_LISTED = 12
"""Paths of each world that are listed behind a beginning; the table of all paths has the rest."""

PLACES = 100_000
"""A path's number in a list of several worlds: so many for each world."""

OUTCOMES = {True: "yes", False: "no", None: "not scored"}

EMPTY = (
    '<p class="sub">Nothing is sampled yet. Type a prompt, choose its worlds, ask a question if you have one, and '
    "press <strong>Run</strong>.</p>"
)


def runs_list(runs: Sequence[PathsView], shown: int | None) -> str:
    """Runs that have ended, newest first."""
    return laid_out("paths/runs.html", runs=runs, shown=shown, ended=ENDED)


def result_html(view: PathsView, analysis: Analysis) -> str:
    """The result in sentences, what must be said with it, and each world's share."""
    compared = {item.second: item for item in analysis.comparisons}
    rows = [
        {
            "item": item,
            "prompt": shown_prompt(item.world),
            "share": analysis.estimates[number] if analysis.estimates else None,
            "comparison": compared.get(number),
            "thresholds": threshold_sentence(item),
        }
        for number, item in enumerate(view.worlds)
    ]
    return laid_out(
        "paths/result.html",
        view=view,
        sentences=result_sentences(view, analysis),
        notes=reservations(view, analysis),
        rows=rows,
        percent=percent,
        interval=interval,
        points=points,
        apart=lambda item: _apart(analysis, item.first, item.second),
        decided=lambda item: decided_text(view, item),
        called=called(view) if view.asked else "",
    )


def _apart(analysis: Analysis, first: int, second: int) -> float:
    one, other = analysis.estimates[first].share, analysis.estimates[second].share
    return (one or 0.0) - (other or 0.0)


def tree_html(view: PathsView, analysis: Analysis) -> str:
    """The merged tree, where its worlds part, and each world's own tree."""
    merged = cells_of(analysis, range(len(view.worlds)))
    return laid_out(
        "paths/tree.html",
        view=view,
        analysis=analysis,
        picture=_picture(view, analysis, merged, "All worlds together"),
        alone=[
            (item.world.label, _picture(view, analysis, cells_of(analysis, [number]), item.world.label))
            for number, item in enumerate(view.worlds)
        ],
        partings=[parting_sentence(view, analysis, apart) for apart in analysis.apart],
        order=", ".join(labels(view)),
        least=f"{LEAST_HEIGHT:.0%}",
    )


def numbers_html(view: PathsView, analysis: Analysis) -> str:
    """The picture's numbers, and how far apart whole beginnings are."""
    return laid_out(
        "paths/numbers.html",
        view=view,
        analysis=analysis,
        rows=[_row(view, analysis, cell) for cell in cells_of(analysis, range(len(view.worlds))) if cell.node],
        depths=[(view.worlds[apart.world].world.label, apart.depths) for apart in analysis.apart],
        first=view.worlds[0].world.label,
        least_visits=LEAST_VISITS,
        level=PARTED,
    )


def _picture(view: PathsView, analysis: Analysis, cells: Sequence[Cell], name: str) -> Markup:
    columns = 1 + max(cell.column for cell in cells)
    return laid_out(
        "paths/picture.html",
        cells=[(cell, _said(view, analysis, cell), _shares(view, analysis, cell)) for cell in cells],
        columns=columns,
        name=name,
        many=sum(cell.node is not None for cell in cells),
    )


def _shares(view: PathsView, analysis: Analysis, cell: Cell) -> str:
    if not cell.node:
        return ""
    shares = [f"{100 * analysis.tree.share(cell.node, world):.0f}" for world in range(len(view.worlds))]
    return f"{' | '.join(shares)} %"


def _said(view: PathsView, analysis: Analysis, cell: Cell) -> str:
    """A cell for a screen reader, and where the pointer rests."""
    if cell.node is None:
        return f"{plural(cell.others, 'other beginning')}, {100 * cell.height:.0f} % together"
    shares = ", ".join(
        f"{item.world.label} {100 * analysis.tree.share(cell.node, world):.0f} %"
        for world, item in enumerate(view.worlds)
    )
    said = f"{quoted(beginning_text(analysis, cell.node))}: {shares}" if cell.node else "The prompt"
    said = f"Thinking, {said}" if cell.thought else said
    if cell.parting is None:
        return said
    other, item = cell.parting
    return f"{said}; “{view.worlds[other].world.label}” parts here, total variation {distance(item)}"


def _row(view: PathsView, analysis: Analysis, cell: Cell) -> dict[str, object]:
    node = cell.node or 0
    tested = [item for apart in analysis.apart for item in apart.partings if item.node == node]
    furthest = max(tested, key=lambda item: item.difference.distance, default=None)
    return {
        "node": node,
        "text": beginning_text(analysis, node),
        "shares": [f"{100 * analysis.tree.share(node, world):.0f} %" for world in range(len(view.worlds))],
        "distance": distance(furthest) if furthest else "–",
        "chance": f"{furthest.difference.by_chance:.2f}" if furthest else "–",
        "parts": cell.parting is not None,
    }


def beginning_html(view: PathsView, analysis: Analysis, node: int | None) -> str:
    """The paths behind a beginning, each of which opens as an audit."""
    if node is None or node >= len(analysis.tree.nodes):
        return '<p class="hint">Choose a beginning in the picture or the table to read its paths.</p>'
    start = analysis.tree.beginning(node)
    worlds = [_behind(view, number, item, start) for number, item in enumerate(view.worlds)]
    parted = [
        (view.worlds[apart.world].world.label, item)
        for apart in analysis.apart
        for item in apart.partings
        if item.node == node
    ]
    return laid_out(
        "paths/beginning.html",
        text=beginning_text(analysis, node),
        worlds=worlds,
        parted=parted,
        distance=distance,
        first=view.worlds[0].world.label,
        level=PARTED,
        asked=view.asked,
    )


def _behind(view: PathsView, number: int, item: WorldPaths, start: tuple[int, ...]) -> dict[str, object]:
    """A world's paths that begin so."""
    members = [place for place, path in enumerate(item.paths) if path.token_ids[: len(start)] == start]
    share = estimate([place in set(members) for place in range(len(item.paths))])
    return {
        "label": item.world.label,
        "share": f"{percent(share)} {interval(share)}",
        "count": len(members),
        "paths": [
            {
                "id": number * PLACES + place,
                "number": place + 1,
                "text": item.paths[place].text,
                "divided": item.paths[place].divided,
                "outcome": OUTCOMES[item.outcomes[place]] if item.outcomes else "",
                "thresholds": path_thresholds(item.paths[place]),
            }
            for place in members[:MOST_LISTED]
        ],
        "left": len(members) - min(len(members), MOST_LISTED),
    }


def path_thresholds(path: Path) -> str:
    """What the thresholds of a path did, in words; empty without any."""
    marks = path.thresholds
    if not marks or all(mark == "none" for mark in marks):
        return ""
    if path.held:
        borrowed = marks.count("borrowed")
        return "thresholds held at every step" + (f", {borrowed} of them borrowed" if borrowed else "")
    missed, weak = marks.count("missed"), marks.count("weak")
    parts = [f"missed at {plural(missed, 'step')}"] if missed else []
    parts += [f"too weak to say anything at {plural(weak, 'step')}"] if weak else []
    return f"thresholds {' and '.join(parts)}" if parts else "thresholds at some steps only"


def opened_html(opened: OpenedPath) -> str:
    """A path that was drawn again as an audit."""
    return laid_out("paths/opened.html", opened=opened)
