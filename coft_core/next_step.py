"""The next step of a rollout, decided by itself or at once with those of others whose forward it shared."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from coft_core.deciding import Moment, crossed, decide, keeper_of, step_of
from coft_core.keeping import fusion_weight
from coft_core.planning import Plan
from coft_core.policies.base import Past, Views
from coft_core.policies.coft import CoftPolicy
from coft_core.policies.vanilla import VanillaPolicy
from coft_core.prepared import Circumstances, step_tensors
from coft_core.types import CertificateState, Step


@dataclass(frozen=True, slots=True)
class NextStep:
    """What a chain's next step depends on besides its logits; a :class:`coft_core.engine.forwards.Sequel`.

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
