"""What happens at one step: from the branches' logits to the steps of one chain or of several."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from coft_core.engine.branches import BranchSpec
from coft_core.engine.group import score_branches
from coft_core.errors import InvalidInputError
from coft_core.keeping import Keeper, fusion_weight
from coft_core.planning import Plan
from coft_core.policies.base import Past, Policy, Remembering
from coft_core.prepared import Circumstances, Numbers, prepared_steps, step_tensors
from coft_core.steps import StepContext, unpack_step
from coft_core.types import Step


@dataclass(frozen=True, slots=True)
class Moment:
    """Where a chain stands when it takes a step.

    Attributes:
        index: Position of the step, 0-based.
        branches: Names of the policy's branches.
        uniform: The step's keyed draw, in [0, 1).
        greedy: Take the likeliest token instead of drawing.
        forced: A token to write whatever the policy would choose; None leaves it to the policy.
    """

    index: int
    branches: tuple[str, ...]
    uniform: float
    greedy: bool
    forced: int | None = None


def decide(plan: Plan, logits: Tensor, moment: Moment, past: Past) -> Step:
    """One step of one chain; its numbers cross to the host once.

    Args:
        plan: What is decoded.
        logits: ``(1, B, V)``.
        moment: Where the chain stands.
        past: What it has written.

    Raises:
        InvalidInputError: The forced token is not in the vocabulary.
        CoftError: The model returned NaN.
    """
    if moment.forced is not None and not 0 <= moment.forced < logits.shape[-1]:
        raise InvalidInputError(f"There is no token {moment.forced}; the vocabulary has {logits.shape[-1]:,}.")
    draws = torch.full((1,), moment.uniform, dtype=torch.float64, device=logits.device)
    keeper = None
    if plan.keep_logits and fusion_weight(plan.policy) is not None:
        keeper = Keeper.of(plan.policy, moment.branches, logits[0], plan.full_bytes, plan.head_tokens)
    found = _numbers(plan, logits, moment, draws, (past,), keeper)
    context = StepContext(moment.index, moment.forced is not None, plan.certificate.mismatched)
    step = unpack_step(found.rows[0], plan.model.token_text, found.views, context)
    return step if keeper is None else replace(step, logits=keeper.unpack(found.kept))


def decide_together(
    plans: Sequence[Plan], logits: Tensor, index: int, branches: tuple[str, ...], draws: Tensor, pasts: Sequence[Past]
) -> list[Step]:
    """One step of several chains under one policy; all their numbers cross to the host at once.

    Args:
        plans: What is decoded, one plan a chain, with the same policy and branches.
        logits: ``(G, B, V)``.
        index: Position of the step, 0-based.
        branches: Names of the policy's branches.
        draws: Keyed draws, ``(G,)`` float64 on the logits' device.
        pasts: What each chain has written.

    Raises:
        CoftError: The model returned NaN.
    """
    first = plans[0]
    found = _numbers(first, logits, Moment(index, branches, 0.0, first.greedy), draws, pasts, None)
    context = StepContext(index, False, first.certificate.mismatched)
    return [unpack_step(row, first.model.token_text, found.views, context) for row in found.rows]


def _numbers(
    plan: Plan, logits: Tensor, moment: Moment, draws: Tensor, pasts: Sequence[Past], keeper: Keeper | None
) -> Numbers:
    """All numbers of a step, which cross to the host at once."""
    circumstances = Circumstances(plan.policy, moment.index, moment.branches, moment.greedy, keeper)
    if (prepared := prepared_steps(plan.model)) is not None:
        found = prepared.numbers(circumstances, logits, draws, moment.forced)
        if found is not None:
            return found
    with torch.inference_mode():
        views = plan.policy.views(logits, moment.index, moment.branches, pasts)
        forced = None if moment.forced is None else torch.full(draws.shape, moment.forced, device=logits.device)
        packed, kept = step_tensors(circumstances, logits, draws, forced, views)
        if kept is None:
            return Numbers(views, packed.tolist())
        # Step and logits cross to the host as one run of bytes: two transfers would wait for the device twice.
        crossed = torch.cat([packed.flatten().view(torch.uint8), kept]).cpu().numpy().tobytes()
    size = packed.numel() * packed.element_size()
    return Numbers(views, [np.frombuffer(crossed[:size]).tolist()], crossed[size:])


def remember(policy: Policy, memory: Any, logits: Tensor, token_id: int, branches: tuple[str, ...]) -> Any:
    """What a policy carries to its next step; None for policies that do not look back. ``logits`` is ``(B, V)``."""
    if not isinstance(policy, Remembering):
        return None
    with torch.inference_mode():
        return policy.remember(memory, logits, token_id, branches)


def remembered(plan: Plan, branches: Sequence[BranchSpec], tokens: Sequence[int]) -> list[Any]:
    """What a policy would have carried along a chain that was written earlier: before each token and after the last."""
    if not tokens or not isinstance(plan.policy, Remembering):
        return [None] * (len(tokens) + 1)
    logits = score_branches(plan.all_models, branches, tokens)  # (C, B, V)
    names = tuple(branch.name for branch in branches)
    memories: list[Any] = [None]
    for own, token_id in zip(logits, tokens, strict=True):
        memories.append(remember(plan.policy, memories[-1], own, token_id, names))
    return memories
