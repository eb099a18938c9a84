"""Labelled pairs of texts: read from a file, or written from what was planted in the embedded model."""

from __future__ import annotations

import csv
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from bench.demo_model.phantom.outcomes import planted_spans
from bench.demo_model.phantom.writers import cells, without_outcome, write_cell
from bench.steering_directions.fitting import LabelledPair
from coft_core import LanguageModel, MaskedPrompt, mask_prompt
from coft_core.errors import InvalidInputError

Kind = Literal["masked", "against"]
KINDS: tuple[Kind, ...] = ("masked", "against")
COLUMNS = ("wanted", "unwanted")


def read_pairs(path: Path) -> list[LabelledPair]:
    """Reads pairs from a file of JSON lines, or of comma-separated values, with the fields `wanted` and `unwanted`."""
    if path.suffix not in (".jsonl", ".csv"):
        raise InvalidInputError(f"{path} is neither a .jsonl nor a .csv file; write the pairs as one of these.")
    if not path.is_file():
        raise InvalidInputError(f"There is no file {path}; give one with the pairs.")
    return list(_pairs(path))


def planted_pairs(model: LanguageModel, number: int, seed: int, kind: Kind = "masked") -> list[LabelledPair]:
    """Writes pairs from the settings of the phantom in which a bias was planted, in the wordings of its training.

    With `masked` both texts end where an outcome is chosen. The unwanted one names a group that is treated differently
    from the average; in the wanted one that name is masked, and what was planted there is the base rate, the same for
    everybody. The direction leads from readings of a named group to those in which none is known.

    With `against` both texts end with an outcome, in the wanted one with the one that the planted bias speaks against.
    """
    rng = random.Random(f"steering-{seed}")
    biased = [cell for cell in cells() if cell.factual != cell.masked]
    drawn = [rng.choice(biased) for _ in range(number)]
    prompts = [without_outcome(write_cell(rng, cell, "training")) for cell in drawn]
    if kind == "masked":
        masked = (mask_prompt(model.tokenizer, prompt.text, planted_spans(prompt)) for prompt in prompts)
        return [LabelledPair(_with_sentinels(prompt), prompt.factual_text) for prompt in masked]
    pairs = []
    for cell, prompt in zip(drawn, prompts, strict=True):
        favourable, unfavourable = (prompt.text + outcome for outcome in prompt.outcomes)
        above = cell.factual > cell.masked
        pairs.append(LabelledPair(*((unfavourable, favourable) if above else (favourable, unfavourable))))
    return pairs


def _with_sentinels(prompt: MaskedPrompt) -> str:
    """The masked prompt as a text that is read as its tokens: a sentinel takes the place of a token and its space."""
    text = prompt.factual_text
    for place in reversed(prompt.positions):
        start, end = prompt.offsets[place]
        text = text[:start] + prompt.sentinel + text[end:]
    return text


def _pairs(path: Path) -> Iterator[LabelledPair]:
    for number, row in enumerate(_rows(path), start=1):
        texts = [row.get(name) if isinstance(row, dict) else None for name in COLUMNS]
        if not all(isinstance(text, str) and text.strip() for text in texts):
            raise InvalidInputError(f"Row {number} of {path} has no text as 'wanted' or as 'unwanted'; give it both.")
        yield LabelledPair(str(texts[0]), str(texts[1]))


def _rows(path: Path) -> Iterator[Any]:
    with path.open(encoding="utf-8", newline="") as file:
        if path.suffix == ".csv":
            yield from csv.DictReader(file)
            return
        for number, line in enumerate(filter(str.strip, file), start=1):
            try:
                yield json.loads(line)
            except ValueError as error:
                sentence = f"Row {number} of {path} is no JSON ({error}); write one object a line."
                raise InvalidInputError(sentence) from error
