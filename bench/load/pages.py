"""What the server does for each page, over a store of many sessions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import psutil

from bench.load.figures import percentiles, told
from bench.load.visitor import Times, Visitor

LARGEST_MS = 300.0
"""Milliseconds of server time that a page's requests may take together at the 95th percentile."""

QUERY = {"text": "", "archived": "no", "judged": "any", "order": "updated", "down": True, "page": 1, "size": 50}


@dataclass(frozen=True, slots=True)
class PageView:
    """A page as it is opened."""

    name: str
    path: str
    query: str = ""
    event: tuple[str, str, dict[str, Any]] | None = None


def _library(name: str, **changes: Any) -> PageView:
    return PageView(name, "sessions", event=("library", "find", {"query": {**QUERY, **changes}}))


def asked_session(session: int | None) -> dict[str, Any]:
    """What the audit page asks for when it is opened."""
    empty = dict.fromkeys(("branch", "calibration", "duplicate", "policy", "values"))
    return {"session": session, **empty}


def page_views(session: int, batch: int) -> list[PageView]:
    """Every page, and the views of those that list sessions."""
    rows = {"batch": batch, "order": "line", "down": False, "page": 1, "size": 50}
    reviewer = {"reviewer": "Dana"}
    whole_sheet = {"session": session, "reveal": True, **reviewer}
    return [
        PageView("Audit, blank", "", event=("transcript-wire", "open", asked_session(None))),
        PageView(
            "Audit, a stored session", "", f"?session={session}", ("transcript-wire", "open", asked_session(session))
        ),
        PageView("Calibrate", "calibrate"),
        PageView("Compare", "compare", event=("comparison", "menu", {})),
        PageView("Compare, sessions to choose from", "compare", event=("comparison", "find", {"text": "nurse"})),
        PageView("Compare, prompt sets", "compare", event=("compared-set", "listed", {})),
        PageView("Tune", "tune"),
        PageView("Evaluate", "evaluate"),
        PageView("Swap", "swap", event=("swap-wire", "open", dict.fromkeys(("session", "result", "token", "values")))),
        PageView("Paths", "paths", event=("paths-wire", "open", {"session": None})),
        PageView("Batches, the list", "batches", event=("batch", "listed", {})),
        PageView("Batches, one of 50 rows", "batches", f"?batch={batch}", ("batch", "find", {"query": rows})),
        _library("Sessions, last changed first"),
        _library("Sessions, the last page", page=10**6),
        _library("Sessions, with a text", text="nurse"),
        _library("Sessions, by strongest sensitivity", order="strongest"),
        _library("Sessions, by steps", order="steps"),
        _library("Sessions, by name", order="name", down=False),
        _library("Sessions, judged ones", judged="yes"),
        _library("Sessions, with a tag", tag="kept"),
        _library("Sessions, 200 on a page", size=200),
        PageView(
            "Review, the choice", "review", event=("review-pick", "find", {"text": "", "whole": True, **reviewer})
        ),
        PageView("Review, where reviewers differ", "review", event=("review-pick", "differ", reviewer)),
        PageView("Review, a session", "review", f"?session={session}", ("review-sheet", "read", whole_sheet)),
        PageView("Word lists", "lists"),
        PageView("Models", "models"),
    ]


def view_page(visitor: Visitor, view: PageView) -> None:
    """Open a page with all that comes with it: its events, the first of its script, and the bell."""
    page = visitor.open(view.path, view.query)
    visitor.load(f"/{view.path}", page)
    if view.event is not None:
        component, name, data = view.event
        visitor.trigger(f"/{view.path} {name}", page, component, name, **data)
    visitor.get("bell", "/jobs")


def measure_pages(
    url: str, process: psutil.Process, views: list[PageView], times: int, tell: Callable[[str], None]
) -> dict[str, Any]:
    """Open every page so often, one request after another, after once unmeasured."""
    found: dict[str, Any] = {}
    for view in views:
        opened, spent = zip(*[_once(url, process, view) for _ in range(times + 1)][1:], strict=True)
        server = percentiles([sum(sum(values) for values in one.server.values()) for one in opened])
        kinds = {kind: percentiles([sum(one.server[kind]) for one in opened]) for kind in opened[0].server}
        slowest = max(kinds, key=lambda kind: kinds[kind]["p95_ms"])
        processor = percentiles(spent)
        elapsed = percentiles([sum(sum(values) for values in one.seconds.values()) for one in opened])
        found[view.name] = {
            "server": server, "processor": processor, "elapsed": elapsed, "kinds": kinds,
            "within": server["p95_ms"] <= LARGEST_MS,
        }  # fmt: skip
        tell(
            f"{view.name}: {told(server)} of the server, most of it {slowest} ({told(kinds[slowest])}); processors "
            f"{told(processor)}; elapsed {told(elapsed)}"
        )
    return found


def _once(url: str, process: psutil.Process, view: PageView) -> tuple[Times, float]:
    """What the requests of a page took, and the seconds that processors spent in the server meanwhile."""
    times, before = Times(), _spent(process)
    visitor = Visitor(url, times)
    try:
        view_page(visitor, view)
    finally:
        visitor.close()
    return times, _spent(process) - before


def _spent(process: psutil.Process) -> float:
    used = process.cpu_times()
    return float(used.user + used.system)
