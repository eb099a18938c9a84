"""The prompt sets that come with the program."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from app.services.views import SamplePromptSet
from coft_core.assets import assets_path

SAMPLES = ("prompts", "samples.json")
"""List of the prompt sets that come with the program, among the shipped data files."""


def listed_samples(*uses: str) -> tuple[SamplePromptSet, ...]:
    """The listed sets of some uses, those of the first use first: ``calibration``, ``deployment`` or ``audit``."""
    listed = json.loads(assets_path(*SAMPLES).read_text("utf-8"))
    return tuple(sample_of(entry) for use in uses for entry in listed if entry["use"] == use)


def sample_of(entry: Mapping[str, Any]) -> SamplePromptSet:
    """A set as the list tells of it; its rows are counted where the list does not say how many."""
    path = assets_path("prompts", entry["file"])
    rows = entry.get("rows") or sum(bool(line.strip()) for line in path.read_text("utf-8").splitlines())
    return SamplePromptSet(entry["file"], entry["title"], entry["description"], int(rows), path)
