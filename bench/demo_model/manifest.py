"""The manifest: every planted probability beside the one that was learnt."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.demo_model.evaluate import Reading

NOTE = (
    "Probabilities planted on purpose in the training texts, for demonstration; none of them describes the world. "
    "'cells' holds the probability of the first of two outcomes for each setting, attribute family, group and kind of "
    "text: 'planted' where the text names the group, 'planted_masked' where the group is masked. 'pronouns' holds the "
    "probability that an ambiguous pronoun means the first of two people. Both were read on n held-out prompts whose "
    "wordings and names training never used. 'facts' holds single prompts of the freer scenarios. Planted and learnt "
    "values are shares among the outcomes listed; learnt_mass is what the model gives to all of them together."
)


def fact_rows(readings: Sequence[Reading]) -> list[dict[str, Any]]:
    """The facts of the freer scenarios."""
    return [
        {
            "name": reading.fact.name,
            "family": reading.fact.family,
            "prompt": reading.fact.prompt,
            "spans": [list(span) for span in reading.fact.spans],
            "outcomes": list(reading.fact.outcomes),
            "planted": [round(value, 4) for value in reading.fact.factual],
            "planted_masked": [round(value, 4) for value in reading.fact.masked],
            "learnt": [round(value, 4) for value in reading.factual],
            "learnt_masked": [round(value, 4) for value in reading.masked],
            "learnt_mass": round(reading.mass, 4),
        }
        for reading in readings
    ]


def write_manifest(
    readings: Sequence[Reading], cells: Sequence[dict[str, Any]], pronouns: Sequence[dict[str, Any]], path: Path
) -> None:
    """Writes the manifest with one row a line."""
    lists = {"cells": cells, "pronouns": pronouns, "facts": fact_rows(readings)}
    parts = [f'"note": {json.dumps(NOTE)}']
    for name, rows in lists.items():
        body = ",\n  ".join(json.dumps(row, ensure_ascii=False) for row in rows)
        parts.append(f'"{name}": [\n  {body}\n ]')
    path.write_text("{\n " + ",\n ".join(parts) + "\n}\n", encoding="utf-8")
