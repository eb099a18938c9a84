"""From one step's tensors to a :class:`Step`, with a single device-to-host transfer."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from coft_core.certify import (
    conditional_total_variation,
    entropy,
    kl_divergence,
    total_variation_bound,
)
from coft_core.engine.model import LanguageModel
from coft_core.errors import CoftError
from coft_core.policies.base import Views
from coft_core.sampling import Choice
from coft_core.types import Candidate, CertificateState, Diagnostics, Step

CANDIDATE_ROWS = 24
"""Rows of the candidate table: the likeliest tokens by their largest probability in any view."""

SCALARS = (
    "emitted",
    "chosen",
    "fallback",
    "broken",
    "set_size",
    "certified_mass",
    "entropy_factual",
    "entropy_masked",
    "entropy_fused",
    "kl",
    "tv",
    "sensitivity",
)


@dataclass(frozen=True, slots=True)
class StepContext:
    """What a step is, besides its numbers: position, whether a person forced it, and what its threshold rests on."""

    index: int
    forced: bool
    mismatched: bool


def pack_step(views: Views, choice: Choice, emitted: Tensor) -> Tensor:
    """Gather all that an audit shows of a step into one tensor on the logits' device.

    Args:
        views: The step's views, ``(G, V)`` each.
        choice: What the policy chose.
        emitted: Tokens that are appended, ``(G,)``.

    Returns:
        ``(G, len(SCALARS) + 5 * rows)`` float64: the scalars, then per row token id, the three log-probabilities and
        membership. Float64 holds token ids and float32 values exactly.
    """
    members = torch.zeros_like(views.log_p_fused, dtype=torch.bool) if views.certified is None else views.certified
    ids = _rows(views, choice.token_ids, emitted)  # (G, K)
    factual, masked, fused = views.log_p_factual, views.log_p_masked, views.log_p_fused  # (G, V)
    gap = (views.logits_factual - views.logits_masked).gather(-1, emitted[:, None])[:, 0]  # (G,)
    scalars = [
        emitted,
        choice.token_ids,
        choice.fallback,
        torch.isnan(factual).any(-1) | torch.isnan(masked).any(-1),
        members.sum(-1),
        (fused.exp() * members).sum(-1),
        entropy(factual),
        entropy(masked),
        entropy(fused),
        kl_divergence(fused, masked),
        conditional_total_variation(fused, masked, members),
        gap,
    ]
    rows = [ids, *(view.gather(-1, ids) for view in (factual, masked, fused)), members.gather(-1, ids)]
    head = torch.stack([s.double() for s in scalars], dim=-1)  # (G, S)
    table = torch.stack([r.double() for r in rows], dim=-1)  # (G, K, 5)
    return torch.cat([head, table.flatten(1)], dim=-1)


def unpack_step(
    packed: list[float], model: LanguageModel, log_tau: float, state: CertificateState, context: StepContext
) -> Step:
    """Build the step from one row of :func:`pack_step`, already on the host.

    Raises:
        CoftError: The model returned NaN.
    """
    scalar = dict(zip(SCALARS, packed, strict=False))
    if scalar["broken"]:
        raise CoftError(
            f"The model returned NaN at step {context.index + 1}; load it in float32, or check its weights."
        )
    emitted, chosen = int(scalar["emitted"]), int(scalar["chosen"])
    state = "mismatch" if context.mismatched and state != "none" else state
    table = _table(packed[len(SCALARS) :], model)
    own = table[emitted]
    valid = state not in ("mismatch", "none")
    candidates = sorted(table.values(), key=lambda c: (-c.log_p_factual, c.token_id))
    return Step(
        index=context.index,
        token_id=emitted,
        token=own.token,
        log_p_factual=own.log_p_factual,
        log_p_masked=own.log_p_masked,
        log_p_fused=own.log_p_fused,
        log_tau=log_tau,
        certified=own.certified and valid,
        set_size=int(scalar["set_size"]),
        certified_mass=min(scalar["certified_mass"], 1.0),
        fallback=bool(scalar["fallback"]),
        forced=context.forced,
        policy_token_id=chosen,
        policy_token=model.token_text(chosen),
        state=state,
        candidates=tuple(candidates),
        diagnostics=_diagnostics(scalar, own, log_tau, state),
    )


def _rows(views: Views, chosen: Tensor, emitted: Tensor) -> Tensor:
    best = torch.maximum(torch.maximum(views.log_p_factual, views.log_p_masked), views.log_p_fused)  # (G, V)
    top = best.topk(min(CANDIDATE_ROWS, best.shape[-1]), dim=-1).indices  # (G, K)
    return torch.cat([top, chosen[:, None], emitted[:, None]], dim=-1)


def _table(values: list[float], model: LanguageModel) -> dict[int, Candidate]:
    rows: dict[int, Candidate] = {}
    for start in range(0, len(values), 5):
        token_id = int(values[start])
        if token_id not in rows:
            factual, masked, fused, member = values[start + 1 : start + 5]
            rows[token_id] = Candidate(token_id, model.token_text(token_id), factual, masked, fused, bool(member))
    return rows


def _diagnostics(scalar: dict[str, float], own: Candidate, log_tau: float, state: CertificateState) -> Diagnostics:
    bound = float(total_variation_bound(torch.tensor(scalar["kl"], dtype=torch.float64), log_tau))
    return Diagnostics(
        entropy_factual=scalar["entropy_factual"],
        entropy_masked=scalar["entropy_masked"],
        entropy_fused=scalar["entropy_fused"],
        kl_fused_masked=scalar["kl"],
        tv_on_set=None if math.isnan(scalar["tv"]) else scalar["tv"],
        tv_bound=bound if math.isfinite(bound) and state != "none" else None,
        sensitivity=scalar["sensitivity"],
        log_ratio=_difference(own.log_p_factual, own.log_p_masked),
        margin=_difference(own.log_joint, log_tau),
    )


def _difference(a: float, b: float) -> float:
    """``a - b`` where two equal infinities differ by nothing."""
    return 0.0 if a == b else a - b
