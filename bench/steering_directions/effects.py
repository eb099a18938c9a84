"""What steering does to the embedded model: to its bias gaps, its answers to neutral questions and its stories."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from bench.demo_model.phantom.held_out import Wording, planted, write_questions, write_wordings
from bench.demo_model.phantom.intervals import Figure, paired_difference
from bench.demo_model.phantom.one_reading import GapReading, answers_right, gap_row, read_gaps
from bench.demo_model.phantom.writers import without_outcome, write_cell
from bench.demo_model.scenarios import Scenario
from bench.demo_model.stories import write_opening
from bench.document_losses import document_losses, perplexity_ratio
from coft_core import LanguageModel
from coft_core.model.branches import Hook
from coft_core.model.steering import Directions, SteeringHook

HEADS = (1, 2, 3, 4, 6, 8, 12)
STRENGTHS = (1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0)
DEAREST = 1.05
"""Settings that make stories more perplexing than this factor are not chosen."""
MOST_LOST = 0.02
"""Neither are those that answer more than this share of the neutral questions wrong that were right before."""


@dataclass(frozen=True)
class Texts:
    """What is read under every setting."""

    wordings: Sequence[Wording]
    questions: Sequence[Scenario]
    stories: Sequence[str]


@dataclass(frozen=True)
class Reading:
    """A model on these texts, under one setting."""

    gaps: GapReading
    right: npt.NDArray[np.bool_]
    losses: npt.NDArray[np.float64]


@dataclass(frozen=True)
class Choice:
    """A setting that was tried, and what it did on the texts that choose among them; shares to three places."""

    heads: int
    strength: float
    reduction: float
    perplexity: float
    lost: float

    @property
    def affordable(self) -> bool:
        """Whether it costs no more than is accepted."""
        return self.perplexity <= DEAREST and self.lost <= MOST_LOST


def held_out_texts(prompts: int, questions: int, stories: int, seed: int) -> Texts:
    """Texts whose wordings and names neither the training nor the pairs have."""
    return Texts(write_wordings(prompts, seed), write_questions(questions, seed), _stories(stories, f"measured-{seed}"))


def choosing_texts(questions: int, stories: int, seed: int) -> Texts:
    """Texts in wordings of the training, from draws of their own: settings are chosen without the held-out wordings."""
    wordings = [
        Wording(
            setting,
            row[0].kind,
            tuple(
                without_outcome(write_cell(random.Random(f"choosing-{seed}-{setting}-{kind}"), cell, "training"))
                for cell in row
            ),
        )
        for (setting, kind), row in planted().items()
    ]
    return Texts(wordings, write_questions(questions, seed + 1), _stories(stories, f"choosing-{seed}"))


def read(model: LanguageModel, texts: Texts, hooks: Sequence[Hook] = ()) -> Reading:
    """Reads everything under some hooks."""
    return Reading(
        read_gaps(model, texts.wordings, hooks),
        answers_right(model, texts.questions, hooks),
        document_losses(model, texts.stories, hooks),
    )


def tried(model: LanguageModel, directions: Directions, texts: Texts, say: Callable[[str], None]) -> Iterator[Choice]:
    """Tries settings, the weakest first; with some heads no more is tried once stories are too dear."""
    plain = read(model, texts)
    for heads in HEADS:
        for strength in STRENGTHS:
            hooks = (SteeringHook(directions.best(heads), strength),)
            ratio = perplexity_ratio(plain.losses, document_losses(model, texts.stories, hooks)).value
            if ratio > DEAREST:
                say(f"{heads:3} heads, strength {strength:4.1f}: stories {ratio:.3f} times as perplexing, too dear")
                break
            gaps = read_gaps(model, texts.wordings, hooks).gaps
            lost = float(plain.right.mean() - answers_right(model, texts.questions, hooks).mean())
            reduction = float(1 - gaps.mean() / plain.gaps.gaps.mean())
            choice = Choice(heads, strength, round(reduction, 3), round(ratio, 3), round(lost, 3))
            say(f"{heads:3} heads, strength {strength:4.1f}: gap {-choice.reduction:+.1%}, stories {ratio:.3f} times "
                f"as perplexing, questions lost {lost:+.3f}")  # fmt: skip
            yield choice


def chosen(choices: Sequence[Choice]) -> Choice:
    """The affordable setting that takes most off the gap."""
    useful = [choice for choice in choices if choice.affordable and choice.reduction > 0]
    if not useful:
        raise ValueError("no setting lowers the gap at an acceptable cost; fit directions on other pairs")
    return max(useful, key=lambda choice: choice.reduction)


def curve(
    model: LanguageModel,
    directions: Directions,
    strengths: Sequence[float],
    texts: Texts,
    plain: Reading,
    say: Callable[[str], None],
) -> Iterator[dict[str, Any]]:
    """What each strength does on the held-out texts, with intervals."""
    for strength in strengths:
        say(f"strength {strength:g}")
        now = read(model, texts, (SteeringHook(directions, strength),)) if strength else plain
        yield {"strength": strength, "favourable": now.gaps.favourable, **figures(plain, now)}


def figures(before: Reading, after: Reading) -> dict[str, Figure]:
    """A reading against another one of the same texts."""
    return {
        **gap_row(before.gaps, after.gaps),
        "answers": paired_difference(before.right, after.right, "questions"),
        "perplexity": perplexity_ratio(before.losses, after.losses, "stories"),
    }


def _stories(number: int, seed: str) -> list[str]:
    rng = random.Random(f"stories-{seed}")
    openings = (write_opening(rng) for _ in range(number))
    return [opening.prompt + opening.reference for opening in openings]
