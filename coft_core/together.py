"""Several prompts continued at once under one policy, with the results that each would have alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import torch

from coft_core.deciding import decide_together, remember
from coft_core.decode import ROOT_PATH
from coft_core.engine.group import BranchGroup
from coft_core.informative import warning
from coft_core.planning import Plan
from coft_core.policies.base import Past
from coft_core.sampling import keyed_uniform
from coft_core.types import Run, Step


@dataclass
class _Chain:
    """One prompt on its way."""

    plan: Plan
    steps: list[Step] = field(default_factory=list)
    memory: Any = None
    finished: str = ""

    @property
    def past(self) -> Past:
        tokens = tuple(step.token_id for step in self.steps)
        return Past(self.plan.model, self.plan.prompt, tokens, self.memory)

    def end(self, room: int) -> None:
        """Say why nothing more is written, if nothing is."""
        if not self.finished and self.steps:
            if self.steps[-1].token_id in self.plan.model.end_token_ids:
                self.finished = "end"
            elif len(self.steps) >= self.plan.max_new_tokens:
                self.finished = "length"
            elif room <= 0:
                self.finished = "context"


def generate_together(plans: Sequence[Plan]) -> list[Run]:
    """Continue several prompts under one policy; prompts with the same branches share their forwards.

    A prompt gets the tokens that :func:`coft_core.generate` gives it alone, as far as floating-point sums in a larger
    batch agree; where the batch fills the context of its longest prompt, all of it ends there.

    Args:
        plans: What to decode: the same model, policy and sampling, each prompt with its own seed and length.

    Returns:
        One run a plan, in their order.
    """
    names = [tuple(branch.name for branch in own.policy.branches(own.prompt)) for own in plans]
    order = sorted(range(len(plans)), key=lambda place: names[place])
    found: dict[int, Run] = {}
    for branches, places in groupby(order, key=names.__getitem__):
        alike = list(places)
        found.update(zip(alike, _continue([plans[place] for place in alike], branches), strict=True))
    return [found[place] for place in range(len(plans))]


def _continue(plans: Sequence[Plan], branches: tuple[str, ...]) -> list[Run]:
    chains = [_Chain(own) for own in plans]
    specs = [branch for own in plans for branch in own.policy.branches(own.prompt)]
    group = BranchGroup(plans[0].all_models, specs)
    try:
        while any(not chain.finished for chain in chains):
            _advance(chains, group, branches)
    finally:
        group.close()
    return [_run(chain) for chain in chains]


def _advance(chains: Sequence[_Chain], group: BranchGroup, branches: tuple[str, ...]) -> None:
    """One step of every chain; a finished one is fed along, unseen, so that the rows stay together."""
    plans, index = [chain.plan for chain in chains], group.generated
    logits = group.logits().view(len(chains), len(branches), -1)  # (G, B, V)
    uniforms = [keyed_uniform(own.seed, ROOT_PATH, index) for own in plans]
    draws = torch.tensor(uniforms, dtype=torch.float64, device=logits.device)  # (G,)
    made = decide_together(plans, logits, index, branches, draws, [chain.past for chain in chains])
    for chain, step, own in zip(chains, made, logits, strict=True):
        if not chain.finished:
            chain.memory = remember(chain.plan.policy, chain.memory, own, step.token_id, branches)
            chain.steps.append(step)
    tokens = torch.tensor([step.token_id for step in made])  # (G,)
    group.append(tokens.repeat_interleave(len(branches)))
    for chain in chains:
        chain.end(group.room)


def _run(chain: _Chain) -> Run:
    plan = chain.plan
    return Run(
        prompt=plan.prompt.factual_text,
        text=plan.model.continuation_text([step.token_id for step in chain.steps]),
        tokens=tuple(step.token for step in chain.steps),
        steps=tuple(chain.steps),
        spans=plan.prompt.spans,
        seed=plan.seed,
        finished=chain.finished,
        certificate=plan.certificate.text,
        warnings=(*plan.warnings, *filter(None, [warning(chain.steps)])),
    )
