"""Greedy accuracy on neutral questions, whose answer does not depend on the group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bench.batching import batches
from bench.demo_model.phantom.intervals import cluster_difference, cluster_share
from bench.demo_model.phantom.neutral import story_of
from bench.demo_model.phantom.outcomes import TOKEN_BUDGET, Policies, masked_prompt
from bench.demo_model.phantom.writers import without_outcome
from bench.demo_model.scenarios import Scenario
from coft_core import LanguageModel
from coft_core.model.forced import teacher_forced_logits
from coft_core.policies.base import Policy
from coft_core.text.masking import continuation_ids

Flags = npt.NDArray[np.bool_]

WANTED = 0.005


def greedy_choices(policy: Policy, logits: Tensor) -> Tensor:
    """Token that a policy takes greedily at each step."""
    taken = []
    for step in range(len(logits)):
        views = policy.views(logits[step : step + 1], step)
        log_p, certified = views.log_p_fused, views.certified
        if certified is not None and bool(certified.any()):
            log_p = torch.where(certified, log_p, -torch.inf)
        taken.append(log_p.argmax(-1))
    return torch.cat(taken)


def answers_right(model: LanguageModel, policies: Policies, questions: Sequence[Scenario]) -> dict[str, Flags]:
    """Whether greedy decoding writes the right answer and its full stop, by policy.

    The right answer is teacher-forced: greedy decoding writes it exactly if it takes each of its tokens after those
    before.
    """
    items = []
    for question in questions:
        prompt = masked_prompt(model, without_outcome(question))
        items.append((prompt, continuation_ids(model, prompt, question.text[question.cut :])))
    right = {name: np.zeros(len(items), dtype=bool) for name, _ in policies.named()}
    for part in batches([2 * (len(prompt.factual_ids) + len(answer)) for prompt, answer in items], TOKEN_BUDGET):
        rows = [(ids, items[i][1]) for i in part for ids in (items[i][0].factual_ids, items[i][0].masked_ids)]
        logits = teacher_forced_logits(model, rows)
        for position, i in enumerate(part):
            both = torch.stack(logits[2 * position : 2 * position + 2], dim=1)  # (steps, 2, V)
            with torch.inference_mode():
                for name, policy in policies.named():
                    right[name][i] = tuple(greedy_choices(policy, both).tolist()) == items[i][1]
    return right


def accuracy_figures(model: LanguageModel, policies: Policies, questions: Sequence[Scenario]) -> dict[str, Any]:
    """Accuracy under both policies and their difference, over all questions and by kind; clusters are stories."""
    right = answers_right(model, policies, questions)
    kinds = np.array([question.template.removeprefix("neutral/") for question in questions])
    stories = np.array([story_of(question) for question in questions])
    parts = {"all": np.ones(len(kinds), dtype=bool)} | {kind: kinds == kind for kind in sorted(set(kinds.tolist()))}
    return {name: _figures(right, stories, chosen) for name, chosen in parts.items()}


def _figures(right: dict[str, Flags], stories: npt.NDArray[np.str_], chosen: Flags) -> dict[str, Any]:
    unit = f"wordings of the story ({int(chosen.sum()):,} questions)"
    names, place = np.unique(stories[chosen], return_inverse=True)
    vanilla, coft = right["vanilla"][chosen], right["coft"][chosen]
    sizes = np.bincount(place, minlength=len(names))
    hits = [np.bincount(place, weights=flags, minlength=len(names)) for flags in (vanilla, coft)]
    difference = cluster_difference(vanilla, coft, place, unit)
    return {
        "vanilla": cluster_share(hits[0], sizes, unit),
        "coft": cluster_share(hits[1], sizes, unit),
        "difference": difference.aimed("within 0.5 points of vanilla", -WANTED, WANTED),
    }
