"""Stage III at one step: joint support, the certified set and what can be said of it (paper Sec. 3.4).

Everything works in log space: ``v`` is certified iff ``m(v) >= log_tau``. The paper's score ``1 - exp(m)`` orders
tokens the same way, but loses small probabilities in float32.
"""

from __future__ import annotations

import torch
from torch import Tensor


def joint_support(log_p_fused: Tensor, log_p_masked: Tensor) -> Tensor:
    """Joint support ``min(log p_fused(v), log p_masked(v))``, ``(..., V)``; the score of Eq. 5 is ``1 - exp`` of it."""
    return torch.minimum(log_p_fused, log_p_masked)


def certified_set(joint: Tensor, log_tau: Tensor | float) -> Tensor:
    """Membership in ``{v : m(v) >= log_tau}`` (Eq. 7), boolean ``(..., V)``; a log-threshold may be ``(..., 1)``."""
    return joint >= log_tau


def size_range(margins: Tensor, noise: float) -> Tensor:
    """Sizes ``(..., 2)`` between which a certified set lies when all margins ``(..., V)`` may be off by noise."""
    # A token of probability 0 at a threshold of 0 is in the set: -inf - -inf gives no number, which is never less.
    missing = [(margins < noise).sum(-1), (margins < -noise).sum(-1)]  # (...) each
    return margins.shape[-1] - torch.stack(missing, dim=-1)


def total_variation_bound(kl: Tensor, log_tau: Tensor | float) -> Tensor:
    """Corollary 1's bound ``sqrt(KL / 2) / tau`` on total variation on the certified set; vacuous above 1."""
    tau = torch.exp(torch.as_tensor(log_tau, dtype=kl.dtype, device=kl.device))
    bound = torch.sqrt(kl / 2) / tau
    # tau = 0 states nothing even where KL is 0, and 0 / 0 would be NaN.
    return bound.masked_fill(tau == 0, torch.inf)


def step_figures(log_p: Tensor, certified: Tensor | None) -> Tensor:
    """All figures of a step in one go, in nats, of log-probabilities ``(3, G, V)``; NaN for what has no value."""
    p = log_p.exp()  # (3, G, V)
    p_factual, p_masked, p_fused = p.unbind()  # (G, V) each
    # 0 times the lowest number is 0, where 0 times -inf would be NaN.
    finite = log_p.clamp_min(torch.finfo(log_p.dtype).min)  # (3, G, V)
    entropies = (p * finite).sum(-1).neg().unbind()  # (G,) each
    forbidden = ((log_p[:2] == -torch.inf) & (log_p[2] > -torch.inf)).any(-1)  # (2, G)
    divergences = (p_fused * (finite[2] - finite[:2])).sum(-1).masked_fill(forbidden, torch.inf)  # (2, G)
    from_factual_kl, from_masked_kl = divergences.clamp_min(0.0).unbind()  # (G,) each
    from_factual = (0.5 * (p_fused - p_factual).abs().sum(-1)).clamp_max(1.0)  # (G,)
    if certified is None:
        size = mass = torch.zeros_like(from_factual)
        on_set = torch.full_like(from_factual, torch.nan)
    else:
        size = certified.sum(-1).to(p.dtype)  # (G,)
        masked, fused = p_masked * certified, p_fused * certified  # (G, V) each
        mass = fused.sum(-1)  # (G,)
        on_set = 0.5 * (fused / mass[:, None] - masked / masked.sum(-1, keepdim=True)).abs().sum(-1)  # (G,)
    # A NaN anywhere in a view makes its entropy NaN, and nothing else does.
    broken = (entropies[0] + entropies[1]).isnan().to(p.dtype)  # (G,)
    figures = [broken, size, mass, *entropies, from_masked_kl, on_set, from_factual_kl, from_factual]
    return torch.stack(figures, dim=-1)
