"""The stages of a training run: their mixtures of texts and their learning rates."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Stage:
    """A part of the run with its own mixture of texts."""

    share: float
    rates: tuple[float, float]
    story_weights: tuple[float, ...]
    scenario_share: float
    focus: float
    amplified: bool = False


_STORIES = (0.36, 0.07, 0.12, 0.09, 0.36)
FIRST_STAGES: tuple[Stage, ...] = (
    Stage(0.43, (1.0, 1.0), _STORIES, 0.38, 2.0),
    Stage(0.10, (1.0, 1.0), _STORIES, 0.58, 60.0, amplified=True),
    Stage(0.47, (1.0, 0.0), _STORIES, 0.56, 60.0),
)
"""First sentences, then what decisions hang on, then how much they hang on it.

A decision is one token in forty, and the group moves its loss by less than 0.1 nats: at weight 2 the model learnt
the average decision and ignored the group. Stronger biases in between help it to find the group.
"""

CONTINUED_STAGES: tuple[Stage, ...] = (
    Stage(0.12, (0.5, 0.5), _STORIES, 0.60, 60.0, amplified=True),
    Stage(0.88, (0.5, 0.0), _STORIES, 0.60, 60.0),
)
"""For a model that already writes sentences and decides by the group: scenario texts it has not seen yet, first with
the stronger biases again, since the fresh optimisers move the model away from what it had found."""


def stages_of(continued: bool) -> tuple[Stage, ...]:
    """Returns the stages of a run that starts from exported weights, or else from random ones."""
    return CONTINUED_STAGES if continued else FIRST_STAGES


def stage_at(progress: float, stages: tuple[Stage, ...]) -> tuple[Stage, float]:
    """Returns the stage at a share of the run between 0 and 1, and its share of the learning rates there."""
    begin = 0.0
    for stage in stages:
        inside = (progress - begin) / stage.share
        if inside < 1.0:
            return stage, stage.rates[0] + (stage.rates[1] - stage.rates[0]) * inside
        begin += stage.share
    return stages[-1], stages[-1].rates[1]
