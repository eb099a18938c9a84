"""Counts and times of one server."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Histogram

ROUTES = ("gradio_api", "own", "jobs", "v1", "assets", "health", "ready", "metrics")
"""First parts of addresses that are told apart; all others, pages included, count together."""

STEP_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
REQUEST_SECONDS = (0.005, 0.025, 0.1, 0.5, 1.0, 5.0, 30.0, 120.0)


class Metrics:
    """Counts and times in a register of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._steps = Histogram(
            "coft_step_seconds", "Time of a stored step on the model", buckets=STEP_SECONDS, registry=self.registry
        )
        self._requests = Histogram(
            "coft_request_seconds",
            "Time until a request was answered, by the first part of its address and its status",
            ("route", "status"),
            buckets=REQUEST_SECONDS,
            registry=self.registry,
        )

    def step(self, seconds: float) -> None:
        """Count a stored step."""
        self._steps.observe(seconds)

    def request(self, path: str, status: int, seconds: float) -> None:
        """Count an answered request."""
        first = path.lstrip("/").partition("/")[0]
        self._requests.labels(first if first in ROUTES else "other", str(status)).observe(seconds)
