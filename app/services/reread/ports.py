"""Readings at another lambda or alpha as pages and commands see them; see :mod:`app.services.ports`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from app.services.views.rereading import Departure, Rereading, RereadRequest


class Rereads(Protocol):
    """Audits read at another lambda or alpha from what was stored."""

    def read(self, request: RereadRequest) -> Rereading:
        """Every step of a chain as it reads at a lambda and an alpha, its prefix being as it was; needs no model."""

    def depart(self, request: RereadRequest) -> Iterator[Departure]:
        """Begin an audit with the settings of a reading and run it to the first step that differs."""
