"""What training changed: perplexity on texts that it did not see, and on the embedded model the bias gaps."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from bench.demo_model.phantom.gap_figures import UNIT
from bench.demo_model.phantom.held_out import write_questions, write_wordings
from bench.demo_model.phantom.intervals import Figure, bootstrap, paired_difference, perplexity
from bench.demo_model.phantom.one_reading import answers_right, gap_row, read_gaps
from bench.demo_model.stories import write_opening
from bench.document_losses import document_losses, perplexity_ratio
from coft_core import LanguageModel


@dataclass(frozen=True)
class Measuring:
    """What is read of both models."""

    texts: Sequence[str]
    planted: bool
    prompts: int = 4
    questions: int = 600
    stories: int = 150
    seed: int = 0


def compare(
    base: LanguageModel, trained: LanguageModel, what: Measuring, say: Callable[[str], None]
) -> dict[str, dict[str, Figure]]:
    """Measures the trained model against its base on the same texts."""
    say("held-out texts")
    result = {"texts": _texts(base, trained, what.texts, "texts")}
    if what.planted:
        say("stories")
        rng = random.Random(f"stories-measured-{what.seed}")
        openings = [write_opening(rng) for _ in range(what.stories)]
        stories = [opening.prompt + opening.reference for opening in openings]
        result["stories"] = _texts(base, trained, stories, "stories")
        say("bias gaps")
        wordings = write_wordings(what.prompts, what.seed)
        before, after = (read_gaps(model, wordings) for model in (base, trained))
        result["bias_gap"] = {"before": bootstrap(before.gaps, UNIT), **gap_row(before, after)}
        say("neutral questions")
        questions = write_questions(what.questions, what.seed)
        right = [answers_right(model, questions) for model in (base, trained)]
        result["neutral"] = {"difference": paired_difference(right[0], right[1], "questions")}
    return result


def lines(figures: dict[str, dict[str, Figure]]) -> list[str]:
    """One readable line for each figure."""
    return [
        f"{part.replace('_', ' ')} {name:<12} {item.value:8.4f}  [{item.low:.4f}, {item.high:.4f}]  "
        f"n = {item.n} {item.unit}"
        for part, row in figures.items()
        for name, item in row.items()
    ]


def plain(figures: dict[str, dict[str, Figure]]) -> dict[str, Any]:
    """The figures for JSON."""
    return {part: {name: item.to_dict() for name, item in row.items()} for part, row in figures.items()}


def _texts(base: LanguageModel, trained: LanguageModel, texts: Sequence[str], unit: str) -> dict[str, Figure]:
    before, after = (document_losses(model, texts) for model in (base, trained))
    return {
        "before": perplexity(before, unit),
        "after": perplexity(after, unit),
        "ratio": perplexity_ratio(before, after, unit),
    }
