"""Stage II: counterfactual logit fusion (paper Sec. 3.3), as pure tensor functions."""

from __future__ import annotations

import torch
from torch import Tensor

from coft_core.errors import InvalidInputError
from coft_core.types import is_number


def check_lambda(lam: float) -> float:
    """Return ``lam`` if it is a fusion weight."""
    if not (is_number(lam) and 0.0 <= lam <= 1.0):
        raise InvalidInputError(f"lambda is {lam}; choose a number from 0 (factual only) to 1 (masked only).")
    return float(lam)


def fuse_logits(factual: Tensor, masked: Tensor, lam: float) -> Tensor:
    """Fuse two branches' logits: ``(1 - lam) * factual + lam * masked`` (Eq. 4).

    The softmax of the result is the normalised geometric mixture of the branches (Lemma 1), with log-odds that
    interpolate linearly (Proposition 1).

    Args:
        factual: Logits of the factual branch, ``(..., V)``, any floating dtype.
        masked: Logits of the masked branch, the same shape.
        lam: Fusion weight in [0, 1]; 0 is the factual branch, 1 the masked branch.

    Returns:
        Fused logits, ``(..., V)``, float32 whatever the inputs' dtype (float64 stays float64).

    Raises:
        InvalidInputError: ``lam`` is outside [0, 1], or the shapes differ.
    """
    check_lambda(lam)
    if factual.shape != masked.shape:
        raise InvalidInputError(
            f"The branches' logits differ in shape ({tuple(factual.shape)} and {tuple(masked.shape)}); "
            "both must come from one model and one step."
        )
    factual, masked = at_least_float32(factual), at_least_float32(masked)
    # The end points are returned as they are: 0 * inf is NaN, and a branch may forbid a token with -inf.
    if lam == 0.0:
        return factual
    if lam == 1.0:
        return masked
    return (1.0 - lam) * factual + lam * masked  # (..., V)


def at_least_float32(logits: Tensor) -> Tensor:
    """Return the logits in float32, or in float64 if they are float64 already."""
    return logits if logits.dtype in (torch.float32, torch.float64) else logits.float()


def log_probabilities(logits: Tensor, temperature: float = 1.0) -> Tensor:
    """Natural log-softmax of ``logits / temperature``, ``(..., V)``, over the last axis and in at least float32."""
    logits = at_least_float32(logits)
    return torch.log_softmax(logits if temperature == 1 else logits / temperature, dim=-1)
