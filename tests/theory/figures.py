"""The figures of a step by name, as the program computes them."""

from __future__ import annotations

import torch
from torch import Tensor

from coft_core.policies.certify import step_figures


def kl_divergence(log_p: Tensor, log_q: Tensor) -> Tensor:
    """``KL(p || q)`` in nats; both ``(S, V)``, the result ``(S,)``."""
    return step_figures(torch.stack([log_q, log_q, log_p]), None)[:, 6]


def distance_on(members: Tensor, log_p: Tensor, log_q: Tensor) -> Tensor:
    """Total variation of two distributions conditioned on a set; all ``(S, V)``, the result ``(S,)``."""
    return step_figures(torch.stack([log_q, log_q, log_p]), members)[:, 7]
