"""Writes the calibration prompts of the embedded model.

Run it with `python -m bench.demo_model.calibration_prompts`. The prompts come from a seed that the training
texts do not use and no text of the training scenarios is repeated; two fifths are story openings, whose
continuations are long enough to calibrate the later steps. The last
line of the output is a JSON object.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterator
from pathlib import Path

from tokenizers import Tokenizer

from bench.demo_model.scenarios import generate
from bench.demo_model.stories import write_opening
from bench.train_demo_model import SCENARIOS

PROMPTS = 480
STORY_SHARE = 0.4
SHORTEST, LONGEST = 15, 110


def _scenario_pairs(seed: int, training_seed: int) -> Iterator[tuple[str, str]]:
    seen = {scenario.text for scenario in generate(SCENARIOS, training_seed)}
    for scenario in generate(20 * PROMPTS, seed):
        if scenario.text not in seen:
            yield scenario.text[: scenario.cut], scenario.text[scenario.cut :]


def _story_pairs(seed: int) -> Iterator[tuple[str, str]]:
    rng = random.Random(f"story-openings-{seed}")
    while True:
        opening = write_opening(rng)
        yield opening.prompt, opening.reference


def _take(pairs: Iterator[tuple[str, str]], number: int, tokenizer: Tokenizer) -> list[tuple[str, str]]:
    """Takes pairs without repeating one, with a reference of 15 to 110 tokens."""
    taken: dict[tuple[str, str], None] = {}
    for pair in pairs:
        if SHORTEST <= len(tokenizer.encode(pair[1]).ids) <= LONGEST:
            taken[pair] = None
        if len(taken) == number:
            return list(taken)
    raise ValueError(f"only {len(taken)} of {number} calibration prompts could be drawn")


def calibration_rows(tokenizer: Tokenizer, seed: int, training_seed: int = 0) -> list[dict[str, str]]:
    """Draws the calibration prompts in random order.

    Args:
        tokenizer: Tokenizer that measures the references.
        seed: Seed of the draws; it must differ from the training seed.
        training_seed: Seed of the training scenarios, whose texts are left out.

    Returns:
        Rows with `prompt` and `reference`.

    Raises:
        ValueError: If the two seeds are equal.
    """
    if seed == training_seed:
        raise ValueError("the calibration seed must differ from the training seed, choose another --seed")
    stories = round(STORY_SHARE * PROMPTS)
    pairs = _take(_scenario_pairs(seed, training_seed), PROMPTS - stories, tokenizer)
    pairs += _take(_story_pairs(seed), stories, tokenizer)
    random.Random(seed).shuffle(pairs)
    return [{"prompt": prompt, "reference": reference} for prompt, reference in pairs]


def main(values: list[str] | None = None) -> None:
    """Writes the prompts as JSON lines."""
    parser = argparse.ArgumentParser(description="Write the calibration prompts of the embedded model.")
    parser.add_argument("--tokenizer", type=Path, default=Path("assets/models/demo/tokenizer.json"))
    parser.add_argument("--out", type=Path, default=Path("assets/prompts/calibration_demo.jsonl"))
    parser.add_argument("--seed", type=int, default=20_011)
    options = parser.parse_args(values)
    rows = calibration_rows(Tokenizer.from_file(str(options.tokenizer)), options.seed)
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    options.out.write_text(lines, encoding="utf-8")
    print(json.dumps({"prompts": len(rows), "out": str(options.out)}))


if __name__ == "__main__":
    main()
