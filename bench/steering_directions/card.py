"""The measurements of the shipped directions, and the card that tells of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench.demo_model.phantom.intervals import Figure
from bench.steering_directions.effects import (
    DEAREST,
    HEADS,
    MOST_LOST,
    STRENGTHS,
    Choice,
    choosing_texts,
    chosen,
    curve,
    held_out_texts,
    read,
    tried,
)
from bench.steering_directions.fitting import fit_directions
from bench.steering_directions.pairs import planted_pairs
from coft_core import LanguageModel
from coft_core.model.steering import Directions

_TEMPLATE = Path(__file__).with_name("card_template.md")
MEASUREMENTS = "measurements.json"

CHOOSING_QUESTIONS, CHOOSING_STORIES = 300, 60
QUESTIONS, STORIES = 400, 100
SHOWN = (0.0, 1.0, 2.0, 4.0, 6.0, 8.0)
AGAINST_PAIRS = 500


def measured(
    model: LanguageModel, directions: Directions, prompts: int, seed: int, say: Callable[[str], None]
) -> dict[str, Any]:
    """Chooses heads and strength, and measures every strength with these heads on held-out texts."""
    choices = list(tried(model, directions, choosing_texts(CHOOSING_QUESTIONS, CHOOSING_STORIES, seed), say))
    say(f"chosen: {chosen(choices)}; measuring on held-out texts")
    return held_out(model, directions, choices, prompts, seed, say)


def held_out(
    model: LanguageModel,
    directions: Directions,
    choices: Sequence[Choice],
    prompts: int,
    seed: int,
    say: Callable[[str], None],
) -> dict[str, Any]:
    """Measures what was chosen among the settings that were tried; the arguments are those of :func:`measured`."""
    best = chosen(choices)
    texts = held_out_texts(prompts, QUESTIONS, STORIES, seed)
    plain = read(model, texts)
    strengths = sorted({*SHOWN, best.strength})
    rows = list(curve(model, directions.best(best.heads), strengths, texts, plain, say))
    say("directions of pairs that end against the bias")
    other = fit_directions(model, planted_pairs(model, AGAINST_PAIRS, seed, "against"), seed)
    (against,) = curve(model, other.best(best.heads), (best.strength,), texts, plain, say)
    return {
        "weights": directions.weights, "seed": seed, "prompts_per_cell": prompts,
        "chosen": asdict(best), "tried": [asdict(choice) for choice in choices],
        "held_out": [_plain(row) for row in rows],
        "against": {"pairs": other.pairs, "best_accuracy": float(other.accuracies.max()), **_plain(against)},
    }  # fmt: skip


def write_card(folder: Path, found: dict[str, Any]) -> None:
    """Writes `README.md` and the numbers behind it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MEASUREMENTS).write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    best, against = found["chosen"], found["against"]
    row = next(row for row in found["held_out"] if row["strength"] == best["strength"])
    text = _TEMPLATE.read_text(encoding="utf-8").format(
        pairs=found["pairs"], heads=found["heads"], chosen_heads=best["heads"], chosen_strength=best["strength"],
        reduction=_percent(row["reduction"]), prompts=found["prompts_per_cell"], seed=found["seed"],
        questions=QUESTIONS, stories=STORIES,
        heads_tried=_listed(HEADS), strengths_tried=_listed(STRENGTHS), settings=len(found["tried"]),
        against_pairs=against["pairs"],
        against=against["best_accuracy"], against_reduction=_percent(against["reduction"]),
        against_favourable=against["favourable"], against_mass=_number(against["mass"]),
        against_perplexity=_number(against["perplexity"]), against_answers=_points(against["answers"]),
        dearest=DEAREST - 1, most_lost=MOST_LOST, best_rows=_table(_best(found)), rows=_table(_curve(found)),
    )  # fmt: skip
    (folder / "README.md").write_text(text, encoding="utf-8")


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value.to_dict() if isinstance(value, Figure) else value for name, value in row.items()}


def _best(found: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    yield "layer", "head", "told apart"
    for row in found["best"]:
        yield str(row["layer"]), str(row["head"]), f"{row['accuracy']:.1%}"


def _curve(found: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    yield (
        "strength", "bias gap", "reduction of the gap", "favourable outcome", "mass of both outcomes",
        "neutral questions answered right, change", "perplexity of stories, factor",
    )  # fmt: skip
    for row in found["held_out"]:
        yield (
            f"{row['strength']:g}", _number(row["gap"]), _percent(row["reduction"]), f"{row['favourable']:.3f}",
            _number(row["mass"]), _points(row["answers"]), _number(row["perplexity"]),
        )  # fmt: skip


def _table(given: Iterable[tuple[str, ...]]) -> str:
    rows = list(given)
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([lines[0], "|" + " --- |" * len(rows[0]), *lines[1:]])


def _number(figure: dict[str, Any]) -> str:
    low, high = figure["interval"]
    return f"{figure['value']:.3f} ({low:.3f} to {high:.3f})"


def _percent(figure: dict[str, Any]) -> str:
    low, high = figure["interval"]
    return f"{100 * figure['value']:.1f} % ({100 * low:.1f} to {100 * high:.1f})"


def _points(figure: dict[str, Any]) -> str:
    low, high = figure["interval"]
    return f"{100 * figure['value']:+.1f} points ({100 * low:+.1f} to {100 * high:+.1f})"


def _listed(values: tuple[float, ...]) -> str:
    return ", ".join(f"{value:g}" for value in values)
