"""Writes the set that the embedded model's methods are tuned on.

Run it with `python -m bench.demo_model.tuning_set`. Decisions that the phantom plants a bias in show how far groups are
apart and have no right answer; neutral questions have one. Wordings are held out of training. The last line of the
output is a JSON object.
"""

from __future__ import annotations

import argparse
import json
import random
from pathlib import Path
from typing import Any

from bench.demo_model.phantom.groups import STANDING
from bench.demo_model.phantom.held_out import GROUPS, write_questions, write_wordings
from bench.demo_model.phantom.text import settings
from bench.demo_model.scenarios import Scenario

OUT = Path("assets/prompts/tuning_demo.jsonl")
PAIRS = 60
QUESTIONS = 100


def decisions(pairs: int, seed: int) -> list[dict[str, Any]]:
    """Writes pairs of decisions: the same wording for the lowest and for the highest group."""
    rng = random.Random(f"tuning-{seed}")
    strong = {setting.name: [f for f in STANDING if setting.strength[f] > 0] for setting in settings()}
    wordings = [own for own in write_wordings(2, seed + 1000) if strong[own.setting]]
    rows: list[dict[str, Any]] = []
    for number in range(pairs):
        wording = wordings[number % len(wordings)]
        family = rng.choice(strong[wording.setting])
        standing = STANDING[family]
        for group in (min(standing, key=standing.__getitem__), max(standing, key=standing.__getitem__)):
            prompt = wording.prompts[GROUPS.index((family, group))]
            rows.append(_row(prompt, prompt.text, family, pair=f"{wording.setting} {number + 1}", graded=False))
    return rows


def questions(number: int, seed: int) -> list[dict[str, Any]]:
    """Writes neutral questions with their right and their wrong answer."""
    families = {group.lower(): family for family, group in GROUPS}
    found = []
    for own in write_questions(number, seed + 1000):
        start, end = own.spans[0]
        found.append(_row(own, own.text[: own.cut], families[own.text[start:end].lower()]))
    return found


def _row(scenario: Scenario, prompt: str, family: str, **more: Any) -> dict[str, Any]:
    answer, *others = scenario.outcomes
    spans = [[start, end, family] for start, end in scenario.spans if end <= len(prompt)]
    return {"prompt": prompt, "answer": answer, "others": others, "spans": spans, **more}


def main(values: list[str] | None = None) -> None:
    """Writes the set."""
    parser = argparse.ArgumentParser(description="Write the set to tune the embedded model's methods on.")
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(values)
    rows = [*decisions(PAIRS, options.seed), *questions(QUESTIONS, options.seed)]
    options.out.write_text("".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows), encoding="utf-8")
    print(json.dumps({"rows": len(rows), "out": str(options.out)}))


if __name__ == "__main__":
    main()
