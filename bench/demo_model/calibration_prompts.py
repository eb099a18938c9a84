"""Writes the calibration prompts of the embedded model.

Run it with `python -m bench.demo_model.calibration_prompts`. The prompts come from a seed that the training
texts do not use and no training text is repeated. They are what an audit of the model is likely to read: decisions
and reasoning of the phantom, its pronouns and neutral questions, the freer scenarios, and story openings, whose
continuations are long enough to calibrate the later steps. The last line of the output is a JSON object.
"""

from __future__ import annotations

import argparse
import json
import random
import re
from collections.abc import Iterator
from pathlib import Path

from tokenizers import Tokenizer

from bench.demo_model.phantom.generate import generate_texts, seen_in_training
from bench.demo_model.scenarios import Scenario
from bench.demo_model.stories import write_opening
from bench.demo_model.workplaces import CLOSINGS

PROMPTS = 480
SHARES: dict[str, float] = {"phantom": 0.35, "neutral": 0.1, "scenarios": 0.2}
"""Share of the prompts of each kind; the others are story openings."""
SHORTEST, LONGEST = 15, 110
_DRAWN = 60 * PROMPTS
_AT_DECISION = 0.8
_SENTENCE_END = re.compile(r"[.?](?= )")
_WORD_END = re.compile(r" \w+")


def _kind(scenario: Scenario) -> str:
    """Which share of the prompts a text belongs to."""
    if scenario.template.startswith("neutral/"):
        return "neutral"
    return "phantom" if "/" in scenario.template or scenario.template == "resolution" else "scenarios"


def _earlier_cuts(scenario: Scenario) -> list[int]:
    """Ends of sentences behind the group and before the outcome, and the end of the word behind the group."""
    group_end = min((end for _, end in scenario.spans), default=0)
    word = _WORD_END.search(scenario.text, group_end)
    cuts = [match.end() for match in _SENTENCE_END.finditer(scenario.text, group_end, scenario.cut)]
    return [*cuts, *([word.end()] if word and word.end() < scenario.cut else [])]


def _pair(rng: random.Random, scenario: Scenario) -> tuple[str, str]:
    """Prompt and reference of a text.

    A short story ends where its outcome is chosen, as an audited prompt does, and goes on with closing sentences.
    Other prompts of the phantom now and then, those with a short answer always, end earlier, behind the group, so that
    what follows is long enough and still a text as the model writes it.
    """
    kind = scenario.template.rpartition("/")[2]
    if kind in ("decision", "second_decision") and rng.random() < _AT_DECISION:
        end = "".join(f" {sentence}" for sentence in rng.sample(CLOSINGS["group"], rng.choice((1, 2))))
        return scenario.text[: scenario.cut], scenario.text[scenario.cut :] + end
    early = [] if _kind(scenario) == "scenarios" or kind == "judgement" else _earlier_cuts(scenario)
    cut = rng.choice(early) if early else scenario.cut
    return scenario.text[:cut], scenario.text[cut:]


def _text_pairs(seed: int, training_seed: int) -> dict[str, list[tuple[str, str]]]:
    """Pairs of every kind from texts that training does not contain."""
    rng = random.Random(f"calibration-{seed}")
    seen = seen_in_training(training_seed)
    pairs: dict[str, list[tuple[str, str]]] = {kind: [] for kind in SHARES}
    for scenario in generate_texts(_DRAWN, seed):
        if scenario.text not in seen:
            pairs[_kind(scenario)].append(_pair(rng, scenario))
    return pairs


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
    """Draws the calibration prompts in random order."""
    if seed == training_seed:
        raise ValueError("the calibration seed must differ from the training seed, choose another --seed")
    drawn = _text_pairs(seed, training_seed)
    pairs: list[tuple[str, str]] = []
    for kind, part in SHARES.items():
        pairs += _take(iter(drawn[kind]), round(part * PROMPTS), tokenizer)
    pairs += _take(_story_pairs(seed), PROMPTS - len(pairs), tokenizer)
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
