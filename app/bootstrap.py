"""The one place that says what the program consists of, and opens it."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from app.shared.wiring import Feature, Services

if TYPE_CHECKING:
    from app.settings import Settings

FEATURES: tuple[Feature, ...] = tuple(
    importlib.import_module(f"app.{name}").FEATURE
    for name in (
        "audit",
        "swap",
        "paths",
        "compare",
        "evaluate",
        "data",
        "paper",
        "batch",
        "decisions",
        "sessions",
        "review",
        "calibrate",
        "tune",
        "lists",
        "models",
        "gate",
        "report",
        "accounts",
    )
)
"""In the order of the navigation."""


@contextmanager
def services(
    settings: Settings, owns_store: bool = False, loader: Callable[..., Any] | None = None
) -> Iterator[Services]:
    """The services, all of which are closed at the end."""
    with ExitStack() as closing:
        wired = Services(settings, FEATURES, closing, owns_store, loader)
        if owns_store:
            from app.jobs.service import JobService
            from app.shared.calibrations import CalibrationStore

            wired[JobService], wired[CalibrationStore]
        yield wired
