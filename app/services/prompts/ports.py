"""Prompt sets as pages and commands see them; see :mod:`app.services.ports`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from app.services.views import ParsedPromptSet, SamplePromptSet


class PromptSets(Protocol):
    """What every service offers that works on prompt sets."""

    def parse(
        self, path: Path, filename: str | None = None, columns: Mapping[str, str] | None = None
    ) -> ParsedPromptSet:
        """Read a prompt set, see :meth:`app.services.prompts.reading.PromptSetReader.parse`."""

    def samples(self) -> tuple[SamplePromptSet, ...]:
        """Prompt sets that come with the program and suit the service."""
