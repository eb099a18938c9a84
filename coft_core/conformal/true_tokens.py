"""Joint support of given tokens for several fusion weights at once, without a distribution over the vocabulary.

Of each distribution only the logarithm of its normaliser and the given token's logit are needed. The arithmetic is in
float32 whatever the logits' type, over a few positions at a time.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from coft_core.fusion import at_least_float32

CPU_ELEMENTS = 1 << 18
"""Logits of one branch that are worked on at a time on a CPU: what its caches hold."""

SMALLEST_SUM = 1e-20
"""Below it a shifted sum of exponentials may have lost terms to underflow and is computed again with its own shift."""


def token_support(logits: Tensor, tokens: Tensor, lams: Sequence[float], temperature: float = 1.0) -> Tensor:
    """Joint support ``m(v) = min(log p_fused(v), log p_masked(v))`` of one token a position (Eq. 5, in log space).

    With several masked branches (factorized masks) the fused distribution is fused with the mean of their logits, and
    each has a support of its own.

    Args:
        logits: ``(n, B, V)``, the factual branch first, then the masked ones; any floating type.
        tokens: The token of each position, ``(n,)``.
        lams: Fusion weights in [0, 1], L of them.
        temperature: The policy's temperature.

    Returns:
        ``(n, L, B - 1)`` float32: by position, fusion weight and masked branch.
    """
    step = len(logits)
    if logits.device.type == "cpu":
        step = max(1, CPU_ELEMENTS // logits.shape[-1])
    pieces = [
        _support(logits[start : start + step], tokens[start : start + step], lams, temperature)
        for start in range(0, len(logits), max(step, 1))
    ]
    return torch.cat(pieces)


def _support(logits: Tensor, tokens: Tensor, lams: Sequence[float], temperature: float) -> Tensor:
    branches = [_shifted(logits[:, b], temperature) for b in range(logits.shape[1])]  # B of (n, V)
    own = [z.gather(-1, tokens[:, None])[:, 0] for z in branches]  # B of (n,)
    factual, masked = branches[0], branches[1:]
    mean, own_mean = _mean(masked), _mean(own[1:])  # (n, V), (n,)
    norms = _log_normalisers(factual, masked, mean, lams)  # (B - 1 + L, n)
    log_p_masked = torch.stack(own[1:]) - norms[: len(masked)]  # (B - 1, n)
    fused = torch.stack([_mixed(own[0], own_mean, lam) for lam in lams])  # (L, n)
    log_p_fused = fused - norms[len(masked) :]  # (L, n)
    return torch.minimum(log_p_fused.T[:, :, None], log_p_masked.T[:, None])  # (n, L, B - 1)


def _log_normalisers(factual: Tensor, masked: list[Tensor], mean: Tensor, lams: Sequence[float]) -> Tensor:
    """Log-sum-exp of each masked branch and of each fused distribution, ``(B - 1 + L, n)``.

    All branches are at most 0, and so is every mixture: exponentials cannot overflow, and the mixture's own maximum
    need not be looked for unless all of its terms are tiny.
    """
    buffer = torch.empty_like(mean)  # (n, V)
    sums = [torch.exp(z, out=buffer).sum(-1) for z in masked]
    sums += [_mixed(factual, mean, lam, buffer).exp_().sum(-1) for lam in lams]
    totals = torch.stack(sums)  # (B - 1 + L, n)
    if not bool((totals < SMALLEST_SUM).any()):
        return totals.log()
    exact = [torch.logsumexp(z, dim=-1) for z in masked]
    return torch.stack([*exact, *(torch.logsumexp(_mixed(factual, mean, lam), dim=-1) for lam in lams)])


def _mixed(factual: Tensor, masked: Tensor, lam: float, out: Tensor | None = None) -> Tensor:
    """``(1 - lam) * factual + lam * masked`` into a tensor of its own."""
    # An end point is one branch, whatever the other forbids: 0 * inf is NaN.
    if lam in (0.0, 1.0):
        end = factual if lam == 0.0 else masked
        return end.clone() if out is None else out.copy_(end)
    scaled = torch.mul(masked, lam, out=out)
    return scaled.add_(factual, alpha=1.0 - lam)


def _shifted(logits: Tensor, temperature: float) -> Tensor:
    """Logits over temperature with 0 as their maximum, ``(n, V)``; a fresh tensor in float32."""
    scaled = at_least_float32(logits) / temperature
    return scaled.sub_(scaled.amax(-1, keepdim=True))


def _mean(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.stack(parts).mean(0)
