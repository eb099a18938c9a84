"""Runs of sampled paths: how they are stored with their jobs, what is computed of them, and how both are exported."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from pydantic import TypeAdapter

from app.audit.operations import controls_json
from app.paths.types import Analysis, Apart, PathsRequest, PathsView, World, WorldPaths
from app.shared.files import to_csv
from app.shared.json import settings_json
from app.shared.kept_controls import CONTROLS, control_cells
from coft_core.controls.result import Controls
from coft_core.paths.parting import Difference, beginnings_by_depth, partings, parts_at
from coft_core.paths.question import Comparison, compare, estimate
from coft_core.paths.sample import Path
from coft_core.paths.tree import PathTree, merge_paths
from coft_core.text.thinking import Part
from db.jobs import JobRecord
from db.types import JsonObject

PARTED = 0.05
"""Worlds are said to part behind a beginning whose adjusted p-value is no larger."""

THE_END = " (end)"
"""Stands in a tree for the model's own end token."""

LEAST_SHARE = 0.01
"""Beginnings that fewer of every world's paths have are left out of a tree in JSON."""


def payload_of(request: PathsRequest, worlds: Sequence[World]) -> JsonObject:
    """What a job is asked, enough to start it again."""
    return {"request": asdict(request), "worlds": [asdict(world) for world in worlds]}


def request_from(payload: Mapping[str, Any]) -> PathsRequest:
    """The request of a job."""
    return TypeAdapter(PathsRequest).validate_python(payload["request"])


def worlds_from(payload: Mapping[str, Any]) -> tuple[World, ...]:
    """The worlds of a job."""
    return TypeAdapter(tuple[World, ...]).validate_python(payload["worlds"])


def result_of(drawn: Sequence[WorldPaths], controls: Controls | None = None) -> JsonObject:
    """What was drawn and compared, as it is stored; the payload has the worlds."""
    return {
        "controls": None if controls is None else json.loads(controls.to_json()),
        "worlds": [
            {
                "certificate": item.certificate,
                "warnings": list(item.warnings),
                "paths": [asdict(path) for path in item.paths],
                "outcomes": list(item.outcomes),
            }
            for item in drawn
        ],
    }


def view_of(job: JobRecord) -> PathsView:
    """A run that has drawn something."""
    result = job.result or {}
    stored, kept_controls = result["worlds"], result.get("controls")
    worlds = tuple(
        WorldPaths(
            world,
            str(kept["certificate"]),
            tuple(kept["warnings"]),
            TypeAdapter(tuple[Path, ...]).validate_python(kept["paths"]),
            tuple(kept["outcomes"]),
        )
        for world, kept in zip(worlds_from(job.payload), stored, strict=True)
    )
    controls = None if kept_controls is None else TypeAdapter(Controls).validate_python(kept_controls)
    return PathsView(job.id, job.title, job.status, job.created_at, request_from(job.payload), worlds, controls)


def analysis_of(view: PathsView) -> Analysis:
    """Merge a run's paths, compare how its worlds go on, and answer its question."""
    worlds = [[path.token_ids for path in item.paths] for item in view.worlds]
    tree = merge_paths(worlds)
    seed = view.request.settings.seed
    outcomes = [item.outcomes for item in view.worlds] if view.asked else []
    return Analysis(
        view=view,
        tree=tree,
        tokens=_tokens(view, tree),
        apart=tuple(
            Apart(
                other,
                partings(tree, 0, other, seed),
                beginnings_by_depth(tree, 0, other, seed),
                # Runs of earlier versions drew worlds independently.
                tuple(map(parts_at, worlds[0], worlds[other])) if view.request.settings.shared_noise else (),
            )
            for other in range(1, len(view.worlds))
        ),
        estimates=tuple(estimate(item) for item in outcomes),
        comparisons=compare(outcomes, view.request.alpha) if outcomes else (),
        thought=_thought(view, tree),
    )


def _tokens(view: PathsView, tree: PathTree) -> tuple[str, ...]:
    """Text of each node's last token, as the first path that has it continues the sentence."""
    texts: dict[tuple[int, ...], str] = {}
    for item in view.worlds:
        for path in item.paths:
            for depth, token in enumerate(path.tokens):
                ended = path.finished == "end" and depth + 1 == len(path.tokens)
                texts.setdefault(path.token_ids[: depth + 1], THE_END if ended else token)
    return tuple(texts.get(tree.beginning(number), "") for number in range(len(tree.nodes)))


def _thought(view: PathsView, tree: PathTree) -> frozenset[int]:
    """Nodes whose last token is thinking, in the first path that has them."""
    parts: dict[tuple[int, ...], Part] = {}
    for path in (path for item in view.worlds if item.thinks for path in item.paths):
        for depth, part in enumerate(path.parts, start=1):
            parts.setdefault(path.token_ids[:depth], part)
    return frozenset(node for node in range(len(tree.nodes)) if parts.get(tree.beginning(node)) == "thinking")


def view_json(analysis: Analysis) -> dict[str, Any]:
    """A run with all that is computed of it, as plain JSON; shares are probabilities."""
    view, first = analysis.view, analysis.labels[0]
    return {
        "id": view.id,
        "name": view.name,
        "status": view.status,
        "created_at": view.created_at.isoformat(),
        "prompt": view.request.prompt,
        "settings": settings_json(view.request.settings),
        "question": asdict(view.request.question) if view.asked else None,
        "alpha": view.request.alpha,
        "paths_asked": view.request.paths,
        "paths_drawn": view.drawn,
        "worlds": [_world_json(item) for item in view.worlds],
        "controls": controls_json(view.controls),
        "estimates": [
            {"world": label, "share": item.share, **asdict(item)}
            for label, item in zip(analysis.labels, analysis.estimates, strict=False)
        ],
        "comparisons": [_comparison_json(analysis, item) for item in analysis.comparisons],
        "partings": _partings(analysis),
        "twins": [
            {
                "first": first,
                "second": analysis.labels[apart.world],
                "twins": len(apart.twins),
                "part": apart.parted_at.total(),
                "part_at": {str(token): twins for token, twins in sorted(apart.parted_at.items())},
            }
            for apart in analysis.apart
            if apart.twins
        ],
        "depths": [
            {"first": first, "second": analysis.labels[apart.world], "depth": depth, **_difference(found)}
            for apart in analysis.apart
            for depth, found in enumerate(apart.depths, start=1)
        ],
        "tree": [
            {
                "node": number,
                "parent": None if node.parent < 0 else node.parent,
                "depth": node.depth,
                "token": analysis.tokens[number],
                "shares": analysis.shares(number),
            }
            for number, node in enumerate(analysis.tree.nodes)
            if max(analysis.shares(number)) >= LEAST_SHARE
        ],
    }


def _world_json(item: WorldPaths) -> dict[str, Any]:
    world = item.world
    return {
        "label": world.label,
        "prompt": world.prompt,
        "policy": world.settings.policy,
        "certificate": item.claim.text,
        "notes": [*world.notes, *item.warnings],
        "paths": len(item.paths),
        "thresholds_held": item.held if item.has_thresholds else None,
        "drawn": [
            {name: getattr(path, name) for name in ("seed", "text", "tokens", "finished", "thresholds")}
            | {"outcome": item.outcomes[number] if item.outcomes else None}
            | ({"thinking": _thinking(path), "answer": path.answer} if item.thinks else {})
            for number, path in enumerate(item.paths)
        ],
    }


def _comparison_json(analysis: Analysis, item: Comparison) -> dict[str, Any]:
    return {
        "first": analysis.labels[item.first],
        "second": analysis.labels[item.second],
        "difference": analysis.difference(item),
        "paired_difference": item.bet.difference,
        "low": item.bet.low,
        "high": item.bet.high,
        "alpha": item.alpha,
        "p_value": item.bet.p_value,
        "pairs": item.bet.pairs,
        "decided_after": item.decided_after,
    }


def _partings(analysis: Analysis) -> list[dict[str, Any]]:
    return [
        {
            "first": analysis.labels[0],
            "second": analysis.labels[apart.world],
            "node": item.node,
            "beginning": analysis.beginning(item.node),
            "next_token": analysis.tree.nodes[item.node].depth + 1,
            "paths": list(item.visits),
            **_difference(item.difference),
            "adjusted_p": item.adjusted,
            "parts": item.adjusted <= PARTED,
        }
        for apart in analysis.apart
        for item in apart.partings
    ]


def _difference(found: Difference) -> dict[str, float]:
    fields = asdict(found)
    return {"total_variation": fields.pop("distance"), **fields}


PATH_COLUMNS = ("world", "path", "seed", "text", "tokens", "finished", "thresholds", "held", "outcome", "parts_at")
THINKING_COLUMNS = ("thinking", "answer")
ESTIMATE_COLUMNS = (
    "world", "paths", "yes", "no", "unscored", "share", "low", "high", "against", "difference", "difference_low",
    "difference_high", "alpha", "p_value", "decided_after", "run", *CONTROLS,
)  # fmt: skip
PARTING_COLUMNS = (
    "first", "second", "beginning", "next_token", "paths_first", "paths_second", "total_variation", "low", "high",
    "by_chance", "p_value", "adjusted_p", "parts",
)  # fmt: skip
OUTCOMES = {True: "yes", False: "no", None: "unscored"}


def _thinking(path: Path) -> str:
    return "" if path.divided is None else path.divided.thinking


def paths_csv(analysis: Analysis) -> str:
    """Every path of a run; thinking and answer apart where there is any thinking."""
    view, twins = analysis.view, {apart.world: apart.twins for apart in analysis.apart if apart.twins}
    thinks = any(item.thinks for item in view.worlds)
    return to_csv(
        (*PATH_COLUMNS, *(THINKING_COLUMNS if thinks else ())),
        (
            {
                "world": item.world.label,
                "path": number + 1,
                "seed": path.seed,
                "text": path.text,
                "tokens": len(path.tokens),
                "finished": path.finished,
                "thresholds": " ".join(path.thresholds),
                "held": path.held if item.has_thresholds else None,
                "outcome": OUTCOMES[item.outcomes[number]] if item.outcomes else None,
                "parts_at": twins[place][number] if number < len(twins.get(place, ())) else None,
                "thinking": _thinking(path),
                "answer": path.answer,
            }
            for place, item in enumerate(view.worlds)
            for number, path in enumerate(item.paths)
        ),
    )


def estimates_csv(analysis: Analysis) -> str:
    """The share of each world, and its difference from the first world's; each row says how the run stands."""
    rows = []
    against = {item.second: _comparison_json(analysis, item) for item in analysis.comparisons}
    for number, (item, found) in enumerate(zip(analysis.view.worlds, analysis.estimates, strict=False)):
        compared_with = control_cells(analysis.view.controls if not number else None, 0)
        own = {
            "world": item.world.label,
            **compared_with,
            "paths": len(item.paths),
            "share": found.share,
            "run": analysis.view.status,
        }
        rows.append(dict.fromkeys(ESTIMATE_COLUMNS) | asdict(found) | own)
        if (compared := against.get(number)) is not None:
            rows[-1] |= {name: compared[name] for name in ("difference", "alpha", "p_value", "decided_after")}
            rows[-1] |= {"against": compared["first"]}
            rows[-1] |= {f"difference_{end}": compared[end] for end in ("low", "high")}
    return to_csv(ESTIMATE_COLUMNS, rows)


def partings_csv(analysis: Analysis) -> str:
    """How the worlds go on behind every beginning that was tested."""
    rows = _partings(analysis)
    return to_csv(
        PARTING_COLUMNS,
        ({**row, "paths_first": row["paths"][0], "paths_second": row["paths"][1]} for row in rows),
    )
