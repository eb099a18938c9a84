"""What the page of paths shows: the result first, the picture with its numbers, and the paths behind a beginning."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from app.jobs.service import ENDED
from app.paths import sentences
from app.paths.drawing import LEAST_HEIGHT, Cell, cells_of
from app.paths.runs import PARTED
from app.paths.sentences import called, distance, interval, parting_sentence, percent, twins_sentence
from app.paths.types import Analysis, OpenedPath, PathsView, WorldPaths
from app.paths.worlds import shown_prompt
from app.shared.format import plural, quoted
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


def result_html(analysis: Analysis) -> str:
    """The result in sentences, what must be said with it, and each world's share."""
    return laid_out(
        "paths/result.html",
        analysis=analysis,
        view=analysis.view,
        compared={item.second: item for item in analysis.comparisons},
        called=called(analysis.view) if analysis.view.asked else "",
        prompt=shown_prompt,
        said=sentences,
    )


def tree_html(analysis: Analysis) -> str:
    """The merged tree, where its worlds part, and each world's own tree."""
    numbers = range(len(analysis.labels))
    return laid_out(
        "paths/tree.html",
        analysis=analysis,
        picture=_picture(analysis, cells_of(analysis, numbers), "All worlds together"),
        alone=[
            (label, _picture(analysis, cells_of(analysis, [number]), label))
            for number, label in enumerate(analysis.labels)
        ],
        partings=[f"{parting_sentence(analysis, apart)} {twins_sentence(apart)}" for apart in analysis.apart],
        least=f"{LEAST_HEIGHT:.0%}",
    )


def numbers_html(analysis: Analysis) -> str:
    """The picture's numbers, and how far apart whole beginnings are."""
    cells = cells_of(analysis, range(len(analysis.labels)))
    return laid_out(
        "paths/numbers.html",
        analysis=analysis,
        rows=[_row(analysis, cell, cell.node) for cell in cells if cell.node],
        least_visits=LEAST_VISITS,
        level=PARTED,
    )


def _picture(analysis: Analysis, cells: Sequence[Cell], name: str) -> Markup:
    return laid_out(
        "paths/picture.html",
        cells=[(cell, _said(analysis, cell), analysis.shares(cell.node) if cell.node else []) for cell in cells],
        columns=1 + max(cell.column for cell in cells),
        name=name,
        many=sum(cell.node is not None for cell in cells),
    )


def _said(analysis: Analysis, cell: Cell) -> str:
    """A cell for a screen reader, and where the pointer rests."""
    if cell.node is None:
        return f"{plural(cell.others, 'other beginning')}, {100 * cell.height:.0f} % together"
    shares = zip(analysis.labels, analysis.shares(cell.node), strict=True)
    listed = ", ".join(f"{label} {100 * share:.0f} %" for label, share in shares)
    said = f"{quoted(analysis.beginning(cell.node))}: {listed}" if cell.node else "The prompt"
    said = f"Thinking, {said}" if cell.thought else said
    if cell.parting is None:
        return said
    other, item = cell.parting
    return f"{said}; “{analysis.labels[other]}” parts here, total variation {distance(item)}"


def _row(analysis: Analysis, cell: Cell, node: int) -> dict[str, object]:
    tested = [item for apart in analysis.apart for item in apart.partings if item.node == node]
    furthest = max(tested, key=lambda item: item.difference.distance, default=None)
    return {
        "node": node,
        "text": analysis.beginning(node),
        "shares": analysis.shares(node),
        "distance": distance(furthest) if furthest else "–",
        "chance": f"{furthest.difference.by_chance:.2f}" if furthest else "–",
        "parts": cell.parting is not None,
    }


def beginning_html(analysis: Analysis, node: int | None) -> str:
    """The paths behind a beginning, each of which opens as an audit."""
    if node is None or node >= len(analysis.tree.nodes):
        return '<p class="hint">Choose a beginning in the picture or the table to read its paths.</p>'
    start, labels = analysis.tree.beginning(node), analysis.labels
    return laid_out(
        "paths/beginning.html",
        text=analysis.beginning(node),
        worlds=[_behind(number, item, start) for number, item in enumerate(analysis.view.worlds)],
        parted=[
            (labels[apart.world], item) for apart in analysis.apart for item in apart.partings if item.node == node
        ],
        distance=distance,
        first=labels[0],
        level=PARTED,
        asked=analysis.view.asked,
    )


def _behind(number: int, item: WorldPaths, start: tuple[int, ...]) -> dict[str, object]:
    """A world's paths that begin so."""
    begins = [path.token_ids[: len(start)] == start for path in item.paths]
    members, share = [place for place, here in enumerate(begins) if here], estimate(begins)
    return {
        "label": item.world.label,
        "share": f"{percent(share)} {interval(share)}",
        "count": len(members),
        "paths": [
            {
                "id": number * PLACES + place,
                "number": place + 1,
                "path": item.paths[place],
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
