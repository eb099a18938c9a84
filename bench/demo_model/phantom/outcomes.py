"""Probabilities of the planted outcomes, as the model gives them and as a policy draws them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bench.batching import batches
from bench.demo_model.scenarios import Scenario
from coft_core import CoftPolicy, LanguageModel, MaskedPrompt, Span, VanillaPolicy, mask_prompt
from coft_core.model.forced import teacher_forced_logits
from coft_core.policies.base import Policy, Views
from coft_core.types import Sampling

Array = npt.NDArray[np.float64]

TOKEN_BUDGET = 4096


@dataclass(frozen=True)
class Policies:
    """The two ways of decoding that are compared, with the same sampling controls."""

    vanilla: VanillaPolicy
    coft: CoftPolicy

    def named(self) -> tuple[tuple[str, Policy], ...]:
        """Name and policy, vanilla first."""
        return ("vanilla", self.vanilla), ("coft", self.coft)


@dataclass(frozen=True)
class Decision:
    """What happens where an outcome is chosen; each field has a probability for each outcome."""

    factual: Array
    masked: Array
    vanilla: Array
    coft: Array


def planted_spans(scenario: Scenario) -> tuple[Span, ...]:
    """The attribute words of a scenario as spans of a reviewer."""
    return tuple(Span(start, end) for start, end in scenario.spans)


def masked_prompt(model: LanguageModel, scenario: Scenario) -> MaskedPrompt:
    """Masks a prompt where the scenario names the attribute."""
    return mask_prompt(model.tokenizer, scenario.text, planted_spans(scenario), chat=model.chat)


def outcome_tokens(model: LanguageModel, scenario: Scenario) -> list[int]:
    """First token of each outcome, where the choice falls."""
    ids = [model.tokenizer.encode(outcome, add_special_tokens=False)[0] for outcome in scenario.outcomes]
    if len(set(ids)) < len(ids):
        raise ValueError(f"the outcomes {scenario.outcomes} begin with the same token, which no choice can tell apart")
    return ids


def final_distribution(views: Views, sampling: Sampling) -> Tensor:
    """The distribution that a policy's draw follows: certified set, top-k and top-p applied, renormalised.

    The draw itself is `coft_core.policies.sampling.choose`; this is the law that it inverts.
    """
    log_p = views.log_p_fused
    members = torch.ones_like(log_p, dtype=torch.bool) if views.certified is None else views.certified  # (G, V)
    empty = ~members.any(-1, keepdim=True)  # (G, 1)
    restricted = torch.where(members | empty, log_p, -torch.inf)  # (G, V)
    ordered, order = restricted.sort(dim=-1, descending=True, stable=True)  # (G, V)
    if 0 < sampling.top_k < ordered.shape[-1]:
        ordered[:, sampling.top_k :] = -torch.inf
    p = torch.softmax(ordered.double(), dim=-1)  # (G, V)
    if sampling.top_p < 1:
        p = torch.where(p.cumsum(-1) - p < sampling.top_p, p, 0.0)
    p[:, 1:] = torch.where(empty, 0.0, p[:, 1:])
    return torch.zeros_like(p).scatter(-1, order, p / p.sum(-1, keepdim=True))


def read_decisions(
    model: LanguageModel, policies: Policies, scenarios: Sequence[Scenario], token_budget: int = TOKEN_BUDGET
) -> Decision:
    """Reads the probabilities of the outcomes of many prompts; equal masked prompts are computed once."""
    prompts = [masked_prompt(model, scenario) for scenario in scenarios]
    tokens = torch.tensor([outcome_tokens(model, scenario) for scenario in scenarios])  # (P, O)
    read = torch.zeros(4, *tokens.shape, dtype=torch.float64)  # (4, P, O)
    for part in batches([len(prompt.factual_ids) for prompt in prompts], token_budget):
        read[:, part] = _read(model, policies, [prompts[i] for i in part], tokens[part])
    return Decision(*read.numpy())


def _read(model: LanguageModel, policies: Policies, prompts: list[MaskedPrompt], tokens: Tensor) -> Tensor:
    """Probabilities of `tokens` (G, O) in the four senses of :class:`Decision`, (4, G, O)."""
    rows = dict.fromkeys(ids for prompt in prompts for ids in (prompt.factual_ids, prompt.masked_ids))
    last = teacher_forced_logits(model, [(ids, (0,)) for ids in rows])
    place = {ids: index for index, ids in enumerate(rows)}
    both = torch.stack(
        [torch.stack([last[place[p.factual_ids]][0], last[place[p.masked_ids]][0]]) for p in prompts]
    ).cpu()  # (G, 2, V)
    with torch.inference_mode():
        plain = torch.softmax(both.double(), -1)  # (G, 2, V)
        final = [final_distribution(policy.views(both, 0), policy.sampling) for _, policy in policies.named()]
        return torch.stack([p.cpu().gather(-1, tokens) for p in (plain[:, 0], plain[:, 1], *final)])
