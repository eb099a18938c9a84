"""Whole chains sampled under a policy, many prompts in one batch."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from bench.demo_model.phantom.gap_figures import SETTINGS, UNIT
from bench.demo_model.phantom.gaps import FAMILIES, GROUP_INDICES
from bench.demo_model.phantom.groups import STANDING
from bench.demo_model.phantom.held_out import GROUPS, write_wordings
from bench.demo_model.phantom.intervals import cluster_share, jackknife, reduction
from bench.demo_model.phantom.outcomes import Policies, masked_prompt
from bench.demo_model.phantom.text import settings
from bench.demo_model.scenarios import Scenario
from bench.demo_model.stories import write_opening
from coft_core import LanguageModel, MaskedPrompt, detect_spans, mask_prompt
from coft_core.decode.loop import ROOT_PATH
from coft_core.model.branches import BranchBatch
from coft_core.policies.base import Policy
from coft_core.policies.sampling import choose, keyed_uniform

_BATCH = 48
_ANSWER = re.compile(r"\b(?:Answer|A): (Yes|No)\b")
_REASONING_TOKENS = 32
_MOST_EMPTY = 0.01
_STANDING = [STANDING[family][group] for family, group in GROUPS]
EXTREMES: tuple[tuple[int, int], ...] = tuple(
    (max(places, key=_STANDING.__getitem__), min(places, key=_STANDING.__getitem__)) for places in GROUP_INDICES
)
"""Places of the most and the least favoured group of each family in `held_out.GROUPS`."""


@dataclass(frozen=True)
class Chain:
    """A sampled continuation."""

    tokens: tuple[int, ...]
    fallbacks: int


def sample_chains(
    model: LanguageModel, policy: Policy, prompts: Sequence[MaskedPrompt], seed: int, length: int
) -> list[Chain]:
    """Samples one continuation of every prompt.

    The draws are those of `coft_core.generate` with the seed `seed + i` for prompt i.
    """
    chains: dict[int, Chain] = {}
    order = sorted(range(len(prompts)), key=lambda i: len(prompts[i].factual_ids))
    for begin in range(0, len(order), _BATCH):
        part = order[begin : begin + _BATCH]
        sampled = _sample(model, policy, [prompts[i] for i in part], [seed + i for i in part], length)
        chains |= dict(zip(part, sampled, strict=True))
    return [chains[i] for i in range(len(prompts))]


def _sample(
    model: LanguageModel, policy: Policy, prompts: list[MaskedPrompt], seeds: list[int], length: int
) -> list[Chain]:
    rows = [branch.input_ids for prompt in prompts for branch in policy.branches(prompt)]
    width = len(rows) // len(prompts)
    batch = BranchBatch(model, rows)
    drawn: list[list[int]] = [[] for _ in prompts]
    empty = [0] * len(prompts)
    going = list(range(len(prompts)))
    for step in range(length):
        logits = batch.logits().unflatten(0, (len(prompts), width))  # (G, B, V)
        uniform = torch.tensor([keyed_uniform(seed, ROOT_PATH, step) for seed in seeds], device=logits.device)  # (G,)
        with torch.inference_mode():
            views = policy.views(logits, step)
            choice = choose(views.log_p_fused, views.certified, policy.sampling, uniform.double())
        ids, fallback = choice.token_ids.tolist(), choice.fallback.tolist()
        for i in going:
            drawn[i].append(ids[i])
            empty[i] += fallback[i]
        going = [i for i in going if ids[i] not in model.end_token_ids]
        if not going or batch.room <= 1:
            break
        batch.append(choice.token_ids.repeat_interleave(width))
    batch.close()
    return [Chain(tuple(tokens), count) for tokens, count in zip(drawn, empty, strict=True)]


def answer_of(text: str) -> bool | None:
    """Whether the answer at the end of a reasoning chain is yes; None where there is none."""
    found = _ANSWER.search(text)
    return None if found is None else found.group(1) == "Yes"


def answer_gaps(model: LanguageModel, policies: Policies, prompts: int, seed: int) -> dict[str, Any]:
    """Samples whole reasoning chains and compares how often they end in "Yes".

    In every setting the most and the least favoured group of each family get the same wordings. The gap of a pair
    of a setting and a family is the difference of their rates of "Yes", with its sign, so that chance adds nothing
    on average. A chain without an answer counts as one without "Yes". The families of a setting are one cluster.
    """
    wordings = write_wordings(prompts, seed, kinds=("judgement",), part="measured")
    chosen = [[wording.prompts[place] for pair in EXTREMES for place in pair] for wording in wordings]
    masked = [masked_prompt(model, prompt) for row in chosen for prompt in row]
    shape = (len(settings()), prompts, len(FAMILIES), 2)
    setting = np.indices(shape[::2])[0]  # (S, F)
    biased = np.array([[setting.strength[family] != 0 for family in FAMILIES] for setting in settings()])
    planted = np.array([[_planted_gap(row, f) for f in range(len(FAMILIES))] for row in chosen[::prompts]])
    gaps, answered = {}, {}
    for name, policy in policies.named():
        chains = sample_chains(model, policy, masked, seed, _REASONING_TOKENS)
        answers = [answer_of(model.continuation_text(chain.tokens)) for chain in chains]
        said = np.array([answer is not None for answer in answers]).reshape(shape[0], -1)  # (S, chains of a setting)
        sizes = np.full(shape[0], said.shape[1])
        answered[name] = cluster_share(said.sum(1), sizes, f"{SETTINGS} ({said.size:,} chains)")
        said_yes = np.array([answer is True for answer in answers], dtype=float).reshape(shape)
        gaps[name] = (said_yes[..., 0] - said_yes[..., 1]).mean(axis=1)  # (S, F)
    both = np.stack([gaps["vanilla"], gaps["coft"]])  # (2, S, F)
    own, others = (f"{SETTINGS} ({number} {UNIT})" for number in (biased.sum(), (~biased).sum()))
    return {
        "vanilla": jackknife(both[0][biased], setting[biased], own),
        "coft": jackknife(both[1][biased], setting[biased], own),
        "reduction": jackknife(both[:, biased], setting[biased], own, reduction),
        "planted": float(planted[biased].mean()),
        "unbiased_vanilla": jackknife(both[0][~biased], setting[~biased], others),
        "unbiased_coft": jackknife(both[1][~biased], setting[~biased], others),
        "answered": answered, "chains_per_policy": len(masked),
    }  # fmt: skip


def _planted_gap(row: list[Scenario], family: int) -> float:
    return row[2 * family].factual[0] - row[2 * family + 1].factual[0]


def empty_sets(model: LanguageModel, policies: Policies, prompts: int, length: int, seed: int) -> dict[str, Any]:
    """Samples under COFT and counts the steps at which no token was certified; the steps of a chain are one cluster."""
    rng = random.Random(f"empty-sets-{seed}")
    wordings = write_wordings(max(1, prompts // (2 * 8 * 4)), seed + 1, part="measured")
    cells = [masked_prompt(model, rng.choice(wording.prompts)) for wording in wordings]
    openings = [write_opening(rng).prompt for _ in range(prompts - len(cells))]
    stories = [mask_prompt(model.tokenizer, text, detect_spans(text), chat=model.chat) for text in openings]
    chains = sample_chains(model, policies.coft, [*cells, *stories], seed, length)
    lengths, empty = [len(chain.tokens) for chain in chains], [chain.fallbacks for chain in chains]
    rate = cluster_share(empty, lengths, f"chains ({sum(lengths):,} steps)")
    touched = [chain.fallbacks > 0 for chain in chains]
    return {
        "steps": rate.aimed("under 1 % of steps", most=_MOST_EMPTY),
        "chains_with_an_empty_set": cluster_share(touched, np.ones(len(chains)), "chains"),
        "longest_chain": max(len(chain.tokens) for chain in chains),
    }
