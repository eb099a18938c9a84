"""Choosing a token: certified set, then top-k, then top-p, then the keyed draw (paper Eq. 8)."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass

import torch
from torch import Tensor

from coft_core.errors import InvalidInputError
from coft_core.fusion import check_temperature


@dataclass(frozen=True, slots=True)
class Sampling:
    """Sampling controls, the same in every branch and at calibration.

    Attributes:
        temperature: Divides the logits.
        top_p: Smallest set of likeliest tokens whose mass reaches this; 1 is off.
        top_k: Number of likeliest tokens kept; 0 is off.
    """

    temperature: float = 1.0
    top_p: float = 0.9
    top_k: int = 0

    def __post_init__(self) -> None:
        """Refuse what cannot be sampled with.

        Raises:
            InvalidInputError: A control is outside its range.
        """
        check_temperature(self.temperature)
        if not (math.isfinite(self.top_p) and 0 < self.top_p <= 1):
            raise InvalidInputError(f"top-p is {self.top_p}; choose a number above 0 and at most 1 (1 is off).")
        if self.top_k < 0 or int(self.top_k) != self.top_k:
            raise InvalidInputError(f"top-k is {self.top_k}; choose a whole number, 0 is off.")


def keyed_uniform(seed: int, path: str, step: int) -> float:
    """A uniform number that depends on nothing but its key, on every machine.

    Pausing, resuming, replaying and forking therefore reproduce their draws.

    Args:
        seed: The session's seed.
        path: The branch's path in the session's tree.
        step: Step index, 0-based.

    Returns:
        A number in [0, 1) with 53 random bits.
    """
    key = f"{int(seed)}|{path}|{int(step)}".encode()
    return (int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "big") >> 11) / float(1 << 53)


@dataclass(frozen=True, slots=True)
class Choice:
    """Tokens chosen for G prompts; all tensors live on the logits' device.

    Attributes:
        token_ids: ``(G,)``.
        fallback: ``(G,)`` boolean; True where the certified set was empty and the argmax was taken.
    """

    token_ids: Tensor
    fallback: Tensor


def choose(
    log_p: Tensor, certified: Tensor | None, sampling: Sampling, uniform: Tensor, greedy: bool = False
) -> Choice:
    """Choose one token a row.

    The distribution is restricted to the certified set and renormalised, then cut by top-k, then by top-p, then drawn
    from by inverting its cumulative distribution at ``uniform``. An empty set gives ``argmax`` of the unrestricted
    distribution, also when sampling. Ties go to the smaller token id.

    Args:
        log_p: Log-probabilities to choose from (the fused ones for COFT), ``(G, V)``.
        certified: Boolean ``(G, V)``; None when the policy certifies nothing.
        sampling: The controls; the temperature is part of ``log_p`` already.
        uniform: ``(G,)`` numbers in [0, 1).
        greedy: Take the likeliest token of the set.

    Returns:
        The choice.
    """
    members = torch.ones_like(log_p, dtype=torch.bool) if certified is None else certified  # (G, V)
    empty = ~members.any(-1)  # (G,)
    restricted = torch.where(members | empty[:, None], log_p, -torch.inf)  # (G, V)
    ordered, order = restricted.sort(dim=-1, descending=True, stable=True)  # (G, V)
    if greedy:
        return Choice(order[:, 0], empty)
    if 0 < sampling.top_k < ordered.shape[-1]:
        ordered[:, sampling.top_k :] = -torch.inf
    p = torch.softmax(ordered.double(), dim=-1)  # (G, V)
    before = p.cumsum(-1) - p  # mass of the likelier tokens, (G, V)
    if sampling.top_p < 1:
        p = torch.where(before < sampling.top_p, p, 0.0)
    p[:, 1:] = torch.where(empty[:, None], 0.0, p[:, 1:])
    cumulative = p.cumsum(-1)  # (G, V)
    target = uniform.to(cumulative)[:, None] * cumulative[:, -1:]  # (G, 1)
    # right=True so that a draw of exactly 0 cannot land on a token of probability 0.
    rank = torch.searchsorted(cumulative, target, right=True).clamp_max(p.shape[-1] - 1)  # (G, 1)
    return Choice(order.gather(-1, rank)[:, 0], empty)


def nucleus(log_p: Tensor, mass: float) -> Tensor:
    """The smallest set of likeliest tokens whose probability reaches a mass.

    Args:
        log_p: Log-probabilities, ``(..., V)``.
        mass: The mass; 1 takes every token.

    Returns:
        Membership, ``(..., V)`` boolean; the likeliest token is always a member.
    """
    if mass >= 1:
        return torch.ones_like(log_p, dtype=torch.bool)
    ordered, order = log_p.sort(dim=-1, descending=True, stable=True)
    p = ordered.double().exp()
    inside = p.cumsum(-1) - p < mass  # (..., V), by rank
    return torch.zeros_like(inside).scatter(-1, order, inside)
