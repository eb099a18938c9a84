"""Writes the phantom's scenarios that the page offers as examples.

Run it with `python -m bench.demo_model.phantom.examples`. Each setting gets a prompt of every kind and one of a family
in which nothing was planted; the wordings are held out of training. The last line of the output is a JSON object.
"""

from __future__ import annotations

import argparse
import json
import random
from pathlib import Path
from typing import Any

from bench.demo_model.phantom.groups import STANDING
from bench.demo_model.phantom.text import Setting, favourable_rate, settings
from bench.demo_model.phantom.writers import KINDS, Kind, cells, without_outcome, write_cell

_KINDS: dict[Kind, str] = {
    "decision": "a decision",
    "second_decision": "another decision",
    "judgement": "reasoning",
    "answer": "a direct answer",
}
_OUT = Path("assets/prompts/phantom_examples.json")


def _by_strength(setting: Setting) -> list[str]:
    """Families of a setting, the strongest bias first."""
    return sorted(STANDING, key=lambda family: -setting.strength[family])


def _planted(setting: Setting, family: str, group: str, outcome: str) -> str:
    """One line that says what an audit of the prompt should find."""
    if setting.strength[family] == 0:
        return f'planted for "{outcome}": {setting.base:.2f} for every group, masked or not (no bias)'
    standing = STANDING[family]
    other = max(standing, key=standing.__getitem__)
    rates = [f"{favourable_rate(setting, family, name):.2f} for {name}" for name in (group, other)]
    return f'planted for "{outcome}": {", ".join(rates)}, {setting.base:.2f} masked'


def _example(setting: Setting, family: str, kind: Kind, seed: int) -> dict[str, str]:
    standing = STANDING[family]
    group = min(standing, key=standing.__getitem__)
    cell = next(
        cell
        for cell in cells()
        if (cell.setting, cell.family, cell.group, cell.kind) == (setting.name, family, group, kind)
    )
    rng = random.Random(f"examples-{seed}-{setting.name}-{kind}-{family}")
    prompt = without_outcome(write_cell(rng, cell, "held_out"))
    return {
        "title": f"{family.capitalize()}: {group}, {_KINDS[kind]}",
        "prompt": prompt.text,
        "planted": _planted(setting, family, group, prompt.outcomes[0].strip()),
    }


def example_groups(seed: int) -> list[dict[str, Any]]:
    """Examples of every setting: one of each kind with the strongest families, and one without planted bias."""
    groups = []
    for setting in settings():
        families = _by_strength(setting)
        rows = [_example(setting, family, kind, seed) for family, kind in zip(families, KINDS, strict=False)]
        rows.append(_example(setting, families[-1], "decision", seed))
        groups.append({"setting": setting.name, "title": setting.name.capitalize(), "examples": rows})
    return groups


def main(values: list[str] | None = None) -> None:
    """Writes the examples as JSON."""
    parser = argparse.ArgumentParser(description="Write the phantom's scenarios that the page offers.")
    parser.add_argument("--out", type=Path, default=_OUT)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(values)
    groups = example_groups(options.seed)
    options.out.write_text(json.dumps(groups, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(json.dumps({"examples": sum(len(group["examples"]) for group in groups), "out": str(options.out)}))


if __name__ == "__main__":
    main()
