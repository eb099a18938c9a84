"""What a policy says of the tokens of a prompt itself, for programs that score texts by echoing them."""

from __future__ import annotations

import torch
from torch import Tensor

from coft_core.decode.plan import Plan
from coft_core.errors import InvalidInputError
from coft_core.model.branches import attached
from coft_core.model.forced import teacher_forced_logits
from coft_core.policies.base import Past

VIEWED = 64
"""Positions from which views are made at a time."""


@torch.inference_mode()
def prompt_log_probabilities(plan: Plan) -> Tensor:
    """Log-probabilities of what follows each token of a prompt but the last, ``(L - 1, V)``.

    Every reading goes on with its own tokens, so a word that is masked is masked for all that stands behind it. No
    threshold applies, since a prompt's tokens are no steps.

    Args:
        plan: The prompt and the policy, with its branches.

    Raises:
        InvalidInputError: The policy has readings of other lengths, whose positions cannot be compared, looks back at
            what it wrote, or the prompt is a single token.
    """
    branches = plan.policy.branches(plan.prompt)
    lengths = {len(branch.input_ids) for branch in branches}
    if len(lengths) > 1 or plan.policy.looks_back:
        raise InvalidInputError(
            f"The policy {plan.policy.title} cannot score a prompt's own tokens, since its readings differ in length "
            "or in what came before; ask for a continuation instead."
        )
    if lengths == {1}:
        raise InvalidInputError("The prompt is a single token, of which nothing can be said; give a longer one.")
    by_branch = []
    for branch in branches:
        model = plan.all_models[branch.model]
        with attached(model.module, branch.hooks):
            (logits,) = teacher_forced_logits(model, [(branch.input_ids[:1], branch.input_ids[1:])])
        by_branch.append(logits)  # (L - 1, V)
    width = min(logits.shape[-1] for logits in by_branch)
    stacked = torch.stack([logits[:, :width].to(by_branch[0].device).float() for logits in by_branch], dim=1)
    names = tuple(branch.name for branch in branches)
    past = Past(plan.model, plan.prompt)
    parts = [
        plan.policy.views(rows, 0, names, [past] * len(rows)).log_p_fused for rows in torch.split(stacked, VIEWED)
    ]  # of (n, V)
    return torch.cat(parts)
