"""What an audit shows of a step: packed into one tensor on the device, unpacked into a step on the host."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from coft_core.conformal.informative import certifies, stated
from coft_core.errors import CoftError
from coft_core.policies.base import FamilyView, Views
from coft_core.policies.certify import size_range, step_figures, total_variation_bound
from coft_core.policies.sampling import Choice
from coft_core.types import Candidate, CertificateState, Diagnostics, FamilyStep, Step

CANDIDATE_ROWS = 24
"""Rows of the candidate table: the likeliest tokens by their largest probability in any view."""

TextOf = Callable[[int], str]
"""A token's text as it continues a sentence, by its id."""

SCALARS = (
    "emitted",
    "chosen",
    "fallback",
    "set_size_low",
    "set_size_high",
    "broken",
    "set_size",
    "certified_mass",
    "entropy_factual",
    "entropy_masked",
    "entropy_fused",
    "kl",
    "tv",
    "kl_factual",
    "tv_factual",
    "sensitivity",
)


@dataclass(frozen=True, slots=True)
class StepContext:
    """What a step is, besides its numbers: position, whether a person forced it, and what its threshold rests on.

    ``vocabulary`` is V, and ``noise`` the bound with which its set size became a range, nats.
    """

    index: int
    forced: bool
    mismatched: bool
    vocabulary: int
    noise: float = 0.0


def pack_step(views: Views, choice: Choice, emitted: Tensor, noise: float = 0.0) -> Tensor:
    """Gather all that an audit shows of a step into one tensor on the logits' device.

    Args:
        views: The step's views, ``(G, V)`` each.
        choice: What the policy chose.
        emitted: Tokens that are appended, ``(G,)``.
        noise: Nats by which log-probabilities may differ between ways of running the model.

    Returns:
        ``(G, len(SCALARS) + F + columns * rows)`` float64 for F families (none with one masked branch): the scalars,
        the emitted token's log-probability in each family's branch, then per row token id, the three
        log-probabilities, membership and, with families, which of them refuse the token, as the bits of a number.
        Float64 holds token ids and float32 values exactly.
    """
    log_p = torch.stack([views.log_p_factual, views.log_p_masked, views.log_p_fused])  # (3, G, V)
    factual = views.logits_factual.gather(-1, emitted[:, None])[:, 0]  # (G,)
    masked = views.logits_masked.gather(-1, emitted[:, None])[:, 0]  # (G,)
    # A token that both branches forbid is no more sensitive than any other, and -inf - -inf would be NaN.
    gap = torch.where(factual == masked, 0.0, factual - masked)  # (G,)
    further = [gap, *(view.log_p.gather(-1, emitted[:, None])[:, 0] for view in views.families)]
    head = [
        torch.stack([emitted, choice.token_ids, choice.fallback], dim=-1),  # (G, 3)
        _sizes(views, noise),  # (G, 2)
        step_figures(log_p, views.certified),  # (G, 10)
        torch.stack(further, dim=-1),  # (G, 1 + F)
    ]
    table = _candidate_rows(views, log_p, torch.stack([choice.token_ids, emitted], dim=-1))  # (G, K, 5 or 6)
    return torch.cat([*(part.double() for part in head), table.flatten(1)], dim=-1)


def unpack_step(packed: list[float], text_of: TextOf, views: Views, context: StepContext) -> Step:
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
    log_tau, set_size, mass = views.log_tau, int(scalar["set_size"]), min(scalar["certified_mass"], 1.0)
    state = effective_state(stated(views.state, log_tau, set_size, mass, context.vocabulary), context.mismatched)
    rest = packed[len(SCALARS) :]
    table = _table(rest[len(views.families) :], text_of, tuple(view.family for view in views.families))
    row = table[emitted]
    families = tuple(_family_step(view, row, log_p, context) for view, log_p in zip(views.families, rest, strict=False))
    candidates = sorted(table.values(), key=lambda c: (-c.log_p_factual, c.token_id))
    return Step(
        index=context.index,
        token_id=emitted,
        token=row.token,
        log_p_factual=row.log_p_factual,
        log_p_masked=row.log_p_masked,
        log_p_fused=row.log_p_fused,
        log_tau=log_tau,
        certified=row.certified and certifies(state),
        set_size=set_size,
        certified_mass=mass,
        fallback=bool(scalar["fallback"]),
        forced=context.forced,
        policy_token_id=chosen,
        policy_token=text_of(chosen),
        state=state,
        candidates=tuple(candidates),
        diagnostics=_diagnostics(scalar, row, views, state, families),
        families=families,
        certified_in=views.certified_in,
        **({} if views.margins is None else _range(scalar, context.noise)),
    )


def _sizes(views: Views, noise: float) -> Tensor:
    """Between which sizes the certified set lies, ``(G, 2)``; zeros where there is none."""
    if views.margins is None:
        return torch.zeros(len(views.log_p_fused), 2, device=views.log_p_fused.device)
    return size_range(views.margins, noise)


def _candidate_rows(views: Views, log_p: Tensor, needed: Tensor) -> Tensor:
    """The candidate table, ``(G, K, 5)`` or, with families, ``(G, K, 6)``; ``needed`` tokens ``(G, 2)`` come last."""
    best = log_p.amax(0)  # (G, V)
    ids = torch.cat([best.topk(min(CANDIDATE_ROWS, best.shape[-1]), dim=-1).indices, needed], dim=-1)  # (G, K)
    columns = [ids, *log_p.gather(-1, ids.expand(3, -1, -1))]  # (G, K) each
    columns.append(torch.zeros_like(ids) if views.certified is None else views.certified.gather(-1, ids))
    if views.families:
        columns.append(_refusals(views.families, ids))
    return torch.stack([column.double() for column in columns], dim=-1)


def _refusals(families: tuple[FamilyView, ...], ids: Tensor) -> Tensor:
    """Bit f is set where family f does not certify the token, ``(G, K)``."""
    bits = torch.zeros(ids.shape, dtype=torch.float64, device=ids.device)
    for index, view in enumerate(families):
        if view.certified is not None:
            bits += (~view.certified.gather(-1, ids)).double() * 2.0**index
    return bits


def _range(scalar: dict[str, float], noise: float) -> dict[str, Any]:
    return {
        "set_size_low": int(scalar["set_size_low"]),
        "set_size_high": int(scalar["set_size_high"]),
        "noise": noise,
    }


def _table(values: list[float], text_of: TextOf, families: tuple[str, ...]) -> dict[int, Candidate]:
    rows: dict[int, Candidate] = {}
    width = 6 if families else 5
    for start in range(0, len(values), width):
        token_id = int(values[start])
        if token_id not in rows:
            factual, masked, fused, member = values[start + 1 : start + 5]
            bits = int(values[start + 5]) if families else 0
            refused_by = tuple(name for index, name in enumerate(families) if bits >> index & 1)
            rows[token_id] = Candidate(token_id, text_of(token_id), factual, masked, fused, bool(member), refused_by)
    return rows


def effective_state(state: CertificateState, mismatched: bool) -> CertificateState:
    """What a threshold may be said to rest on when its calibration may belong to another policy."""
    return "mismatch" if mismatched and state != "none" else state


def _family_step(view: FamilyView, row: Candidate, log_p_masked: float, context: StepContext) -> FamilyStep:
    state = effective_state(view.state, context.mismatched)
    return FamilyStep(
        family=view.family,
        log_p_masked=log_p_masked,
        log_joint=min(row.log_p_fused, log_p_masked),
        log_tau=view.log_tau,
        certified=view.family not in row.refused_by and state not in ("mismatch", "none"),
        state=state,
    )


def _diagnostics(
    scalar: dict[str, float],
    row: Candidate,
    views: Views,
    state: CertificateState,
    families: tuple[FamilyStep, ...],
) -> Diagnostics:
    log_tau, support = views.log_tau, row.log_support(views.certified_in)
    margins = [difference(f.log_joint, f.log_tau) for f in families] or [difference(support, log_tau)]
    # Without a threshold there is no bound, and a tensor of one number costs more than the rest of this function. The
    # bound needs a set with mass tau in the fused and the masked reading, which the factual one alone cannot give it.
    informative = state != "none" and log_tau > -math.inf and views.certified_in == "both"
    bound = (
        float(total_variation_bound(torch.tensor(scalar["kl"], dtype=torch.float64), log_tau))
        if informative
        else math.inf
    )
    return Diagnostics(
        entropy_factual=scalar["entropy_factual"],
        entropy_masked=scalar["entropy_masked"],
        entropy_fused=scalar["entropy_fused"],
        kl_fused_masked=scalar["kl"],
        tv_on_set=None if math.isnan(scalar["tv"]) else scalar["tv"],
        tv_bound=bound if math.isfinite(bound) else None,
        sensitivity=scalar["sensitivity"],
        log_ratio=difference(row.log_p_factual, row.log_p_masked),
        margin=min(margins),
        kl_fused_factual=scalar["kl_factual"],
        tv_fused_factual=scalar["tv_factual"],
    )


def difference(a: float, b: float) -> float:
    """``a - b`` where two equal infinities differ by nothing."""
    return 0.0 if a == b else a - b
