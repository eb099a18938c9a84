"""What happens at one step: from the branches' logits to the steps of one chain or of several."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from coft_core.decode.keep import Keeper, fusion_weight
from coft_core.decode.plan import Plan
from coft_core.decode.prepared import (
    Circumstances,
    Numbers,
    StepContext,
    prepared_steps,
    step_tensors,
    unpack_step,
)
from coft_core.errors import InvalidInputError
from coft_core.model.branches import BranchSpec
from coft_core.model.group import score_branches
from coft_core.policies.base import Past, Policy, Remembering, Views
from coft_core.policies.coft import CoftPolicy
from coft_core.policies.vanilla import VanillaPolicy
from coft_core.types import CertificateState, Step


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
    keeper = keeper_of(plan, moment.branches, logits)
    found = _numbers(plan, logits, moment, draws, (past,), keeper)
    return step_of(plan, moment, found.views, found.rows[0], keeper, found.kept[0] if found.kept else b"")


def keeper_of(plan: Plan, branches: tuple[str, ...], logits: Tensor) -> Keeper | None:
    """How the logits of a step, ``(G, B, V)``, are kept; None where they are not."""
    if not plan.keep_logits or fusion_weight(plan.policy) is None:
        return None
    return Keeper.of(plan.policy, branches, logits[0], plan.full_bytes, plan.head_tokens)


def step_of(plan: Plan, moment: Moment, views: Views, row: list[float], keeper: Keeper | None, kept: bytes) -> Step:
    """A step from its numbers, which are on the host already.

    Args:
        plan: What is decoded.
        moment: Where the chain stands.
        views: The step's views, for thresholds and families.
        row: What :func:`coft_core.decode.prepared.pack_step` packed.
        keeper: How the logits were kept; None where they were not.
        kept: What it kept.

    Raises:
        CoftError: The model returned NaN.
    """
    context = StepContext(moment.index, moment.forced is not None, plan.certificate.mismatched, plan.noise.nats)
    step = unpack_step(row, plan.model.token_text, views, context)
    return step if keeper is None else replace(step, logits=keeper.unpack(kept))


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
    context = StepContext(index, False, first.certificate.mismatched, first.noise.nats)
    return [unpack_step(row, first.model.token_text, found.views, context) for row in found.rows]


def _numbers(
    plan: Plan, logits: Tensor, moment: Moment, draws: Tensor, pasts: Sequence[Past], keeper: Keeper | None
) -> Numbers:
    """All numbers of a step, which cross to the host at once."""
    circumstances = Circumstances(plan.policy, moment.index, moment.branches, moment.greedy, keeper, plan.noise.nats)
    if (prepared := prepared_steps(plan.model)) is not None:
        found = prepared.numbers(circumstances, logits, draws, moment.forced)
        if found is not None:
            return found
    with torch.inference_mode():
        views = plan.policy.views(logits, moment.index, moment.branches, pasts)
        forced = None if moment.forced is None else torch.full(draws.shape, moment.forced, device=logits.device)
        packed, kept = step_tensors(circumstances, logits, draws, forced, views)
        return crossed(views, packed, kept)


def crossed(views: Views, packed: Tensor, kept: Tensor | None) -> Numbers:
    """What a step's tensors say, on the host; they cross as one, since two transfers would wait for the device twice.

    Args:
        views: The step's views.
        packed: Packed rows, ``(G, N)`` float64.
        kept: Kept logits, ``(G, M)`` bytes; None where they are not kept.
    """
    if kept is None:
        return Numbers(views, packed.tolist())
    size = packed.shape[-1] * packed.element_size()
    data = torch.cat([packed.contiguous().view(torch.uint8), kept], dim=-1).cpu().numpy()  # (G, 8 N + M)
    rows = [np.frombuffer(own[:size].tobytes()).tolist() for own in data]
    return Numbers(views, rows, tuple(own[size:].tobytes() for own in data))


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


@dataclass(frozen=True, slots=True)
class NextStep:
    """What a chain's next step depends on besides its logits; a :class:`coft_core.model.group.Sequel`.

    Attributes:
        plan: What is decoded.
        moment: Where the chain stands.
        past: What it has written.
    """

    plan: Plan
    moment: Moment
    past: Past

    @property
    def key(self) -> Hashable | None:
        """Equal where two steps are one function of logits, draws and thresholds; None where this one is not.

        Steps of COFT with a joint mask and of vanilla decoding are, at any position and with any calibration. Forced
        tokens, policies that look back and factorized masks, whose families differ between prompts, are decided alone.
        """
        plan, moment, policy = self.plan, self.moment, self.plan.policy
        if moment.forced is not None or type(policy) not in (CoftPolicy, VanillaPolicy):
            return None
        certifies = isinstance(policy, CoftPolicy) and policy.calibration is not None
        kept = (plan.full_bytes, plan.head_tokens) if plan.keep_logits else None
        return (type(policy), fusion_weight(policy), policy.sampling, certifies, moment.branches, moment.greedy, kept)

    @property
    def threshold(self) -> tuple[float, CertificateState]:
        """Log-threshold of the step and what it rests on."""
        policy = self.plan.policy
        return policy.threshold(self.moment.index) if isinstance(policy, CoftPolicy) else (-math.inf, "none")

    def alone(self, logits: Tensor) -> Step:
        """The step from its own logits, ``(B, V)``.

        Raises:
            InvalidInputError: The forced token is not in the vocabulary.
            CoftError: The model returned NaN.
        """
        return decide(self.plan, logits[None], self.moment, self.past)

    def together(self, logits: Sequence[Tensor], sequels: Sequence[NextStep]) -> list[Callable[[], Step]]:
        """Several steps at once, and one transfer to the host for all of them.

        Args:
            logits: ``(B, V)`` of each.
            sequels: The steps; their keys are equal.

        Returns:
            For each, what builds it from its numbers. A step whose model returned NaN raises there, and no other.
        """
        stacked = torch.stack(list(logits))  # (G, B, V)
        keeper = keeper_of(self.plan, self.moment.branches, stacked)
        plan, moment = self.plan, self.moment
        how = Circumstances(plan.policy, moment.index, moment.branches, moment.greedy, keeper, plan.noise.nats)
        uniforms = [own.moment.uniform for own in sequels]
        draws = torch.tensor(uniforms, dtype=torch.float64, device=stacked.device)  # (G,)
        with torch.inference_mode():
            views = _views(stacked, sequels)
            found = crossed(views, *step_tensors(how, stacked, draws, None, views))
        kept = found.kept or (b"",) * len(sequels)
        return [
            partial(step_of, own.plan, own.moment, _own_views(views, own), row, keeper, bytes_)
            for own, row, bytes_ in zip(sequels, found.rows, kept, strict=True)
        ]


def _views(logits: Tensor, steps: Sequence[NextStep]) -> Views:
    """The views of all steps, each at the threshold of its own calibration and position."""
    first = steps[0]
    policy = first.plan.policy
    if not isinstance(policy, CoftPolicy):
        return policy.views(logits, first.moment.index, first.moment.branches)
    thresholds = [[own.threshold[0]] for own in steps]
    # Log-probabilities are float32, and a number is compared with them in their type.
    log_tau = torch.tensor(thresholds, dtype=torch.float32, device=logits.device)  # (G, 1)
    return policy.views_at(logits, log_tau, "none")


def _own_views(views: Views, step: NextStep) -> Views:
    log_tau, state = step.threshold
    return replace(views, log_tau=log_tau, state=state)
