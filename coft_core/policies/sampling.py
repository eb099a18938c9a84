"""Choosing a token: certified set, then top-k, then top-p, then the keyed draw (paper Eq. 8).

A draw is made from its keyed number in one of two ways. Audits go up the cumulative probabilities to that number. With
shared noise it is the seed of one Gumbel number for each token, and the token with the largest sum of log-probability
and noise is taken. That is a draw of the same law (Maddison, Tarlow and Minka, NeurIPS 2014), and under similar
distributions it is mostly the same token.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from coft_core.types import Sampling

HEADS = (256, 2048)
"""How many of the likeliest tokens are put in order before all are; on a CPU each is far cheaper than the next."""


def keyed_uniform(seed: int, path: str, step: int) -> float:
    """A uniform number that depends only on its key, so that pausing, replaying and forking reproduce their draws."""
    key = f"{int(seed)}|{path}|{int(step)}".encode()
    return (int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "big") >> 11) / float(1 << 53)


_GAMMA = 0x9E3779B97F4A7C15 - 2**64
_MIX = ((30, 0xBF58476D1CE4E5B9 - 2**64), (27, 0x94D049BB133111EB - 2**64), (31, 1))
"""SplitMix64 (Steele, Lea and Flood, OOPSLA 2014), as signed numbers, whose products wrap around."""


def gumbel_noise(uniform: Tensor, token_ids: Tensor) -> Tensor:
    """A Gumbel number for each keyed draw ``(G,)`` and each of its tokens ``(G, S)``, whatever others there are."""
    state = (uniform.double() * 2**53).long()[:, None] + (token_ids + 1) * _GAMMA  # (G, S)
    for shift, factor in _MIX:
        state = (state ^ _right(state, shift)) * factor
    # With 52 bits and a half it is never 0 or 1.
    return -((_right(state, 12).double() + 0.5) * 2**-52).log().neg().log()


def _right(number: Tensor, bits: int) -> Tensor:
    """Shifted as an unsigned number."""
    return (number >> bits) & ((1 << (64 - bits)) - 1)


@dataclass(frozen=True, slots=True)
class Choice:
    """Tokens chosen for G prompts; all tensors live on the logits' device.

    Where only the most likely tokens are known, ``exact`` says whether all tokens would give the same ones.
    """

    token_ids: Tensor
    fallback: Tensor
    exact: Tensor | None = None


def choose(
    log_p: Tensor, certified: Tensor | None, sampling: Sampling, uniform: Tensor, greedy: bool = False
) -> Choice:
    """Choose one token a row: restrict to the certified set, cut by top-k, then by top-p, then draw by ``uniform``.

    An empty set gives ``argmax`` of the unrestricted distribution. Ties go to the smaller token id. On a CPU only the
    likeliest tokens are put in order wherever they settle the draw; the token is the same. Elsewhere every token is
    sorted, since to ask whether some were enough would wait for the device.
    """
    if certified is None:
        restricted, empty = log_p, torch.zeros(log_p.shape[:-1], dtype=torch.bool, device=log_p.device)
    else:
        empty = ~certified.any(-1)  # (G,)
        # In an empty set every token is as far outside as the others, and none is taken out.
        restricted = log_p.masked_fill(certified == empty[:, None], -torch.inf)  # (G, V)
    if greedy:
        return Choice(restricted.argmax(-1), empty)
    first, *further = _sizes(restricted, sampling)
    token_ids, settled = _draw(restricted, empty, sampling, uniform, first)
    for size in further:
        # Further sizes are a CPU's alone, where this reads memory and waits for nothing.
        if settled.numpy().all():
            break
        left = torch.from_numpy(np.flatnonzero(~settled.numpy()))
        token_ids[left], settled[left] = _draw(restricted[left], empty[left], sampling, uniform[left], size)
    return Choice(token_ids, empty)


def _sizes(log_p: Tensor, sampling: Sampling) -> list[int]:
    """How many of the likeliest tokens to put in order, one size after the other until the draw is settled."""
    vocabulary = log_p.shape[-1]
    cut = 0 < sampling.top_k < vocabulary
    if torch.compiler.is_compiling() or log_p.device.type != "cpu" or not (cut or sampling.top_p < 1):
        return [vocabulary]
    least = sampling.top_k if cut else 1
    return [*(size for size in HEADS if least <= size < vocabulary), vocabulary]


def _draw(log_p: Tensor, empty: Tensor, sampling: Sampling, uniform: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Draw a token a row with only ``size`` tokens in order, and whether all in order would give the same one."""
    vocabulary = log_p.shape[-1]
    ordered, token_ids = _likeliest(log_p, size)  # (G, S)
    least = ordered[:, -1:]  # (G, 1)
    if 0 < sampling.top_k < vocabulary:
        ordered, token_ids = ordered[:, : sampling.top_k], token_ids[:, : sampling.top_k]
        p = torch.softmax(ordered.double(), dim=-1)  # (G, S)
    else:
        p = torch.softmax(log_p.double(), dim=-1).gather(-1, token_ids)  # (G, S)
    cumulative = p.cumsum(-1)  # (G, S)
    kept = p > 0
    if sampling.top_p < 1:
        kept &= cumulative - p < sampling.top_p  # the mass of the likelier tokens
    # Those that are kept come first; of a model that returns NaN there is none.
    last = (kept.sum(-1, keepdim=True) - 1).clamp_min(0)  # (G, 1)
    if sampling.shared_noise:
        noisy = ordered.double() + gumbel_noise(uniform, token_ids)  # (G, S)
        rank, furthest = noisy.masked_fill(~kept, -torch.inf).argmax(-1, keepdim=True), last  # (G, 1) each
    else:
        target = uniform.to(p)[:, None] * cumulative.gather(-1, last)  # (G, 1)
        # right=True so that a draw of exactly 0 cannot land on a token of probability 0.
        rank = furthest = torch.minimum(torch.searchsorted(cumulative, target, right=True), last)  # (G, 1)
    rank = rank.masked_fill(empty[:, None], 0)
    drawn = token_ids.gather(-1, rank)[:, 0]
    if size == vocabulary:
        return drawn, torch.ones_like(empty)
    # Where a cut ends is known once a token is outside it. Of the tokens that are as likely as the last in order, some
    # may be missing, so which of them has which rank is not known; noise asks that of all that are kept.
    ended = empty | ~kept[:, -1] if ordered.shape[-1] == size else torch.ones_like(empty)
    return drawn, ended & (ordered.gather(-1, furthest) > least)[:, 0]


def _likeliest(log_p: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """The likeliest tokens' values and ids in falling order, the smaller id first among equals, ``(G, size)`` each."""
    if size == log_p.shape[-1]:
        return log_p.sort(dim=-1, descending=True, stable=True)
    by_id = log_p.topk(size, dim=-1, sorted=False).indices.sort(dim=-1).values  # (G, S)
    values, places = log_p.gather(-1, by_id).sort(dim=-1, descending=True, stable=True)
    return values, by_id.gather(-1, places)


def nucleus(log_p: Tensor, mass: float) -> Tensor:
    """Membership in the smallest set of likeliest tokens that has a mass, never an empty one; ``(..., V)``."""
    if mass >= 1:
        return torch.ones_like(log_p, dtype=torch.bool)
    ordered, order = log_p.sort(dim=-1, descending=True, stable=True)
    p = ordered.double().exp()
    inside = p.cumsum(-1) - p < mass  # (..., V), by rank
    return torch.zeros_like(inside).scatter(-1, order, inside)
