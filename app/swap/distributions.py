"""Whole distributions at a step of planned prompts, and how far apart they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Literal

import torch
from torch import Tensor

from app.shared.files import to_csv
from app.swap.types import VIEWS, SwapGap, SwapResult, SwapToken
from coft_core.decode.plan import Plan
from coft_core.model.branches import BranchBatch
from coft_core.model.language_model import LanguageModel

Distributions = Mapping[str, Tensor]
"""Probabilities of every token by view, ``(V,)`` float64 on the host."""


def distributions_at(prepared: Plan, tokens: Sequence[int]) -> dict[str, Tensor]:
    """The policy's views of the token that follows a chain, before top-k and top-p."""
    branches = prepared.policy.branches(prepared.prompt)
    batch = BranchBatch(prepared.model, [branch.input_ids for branch in branches])
    try:
        for token_id in tokens:
            batch.append(torch.full((batch.row_count,), token_id))
        with torch.inference_mode():
            logits = batch.logits()[None]  # (1, B, V)
            views = prepared.policy.views(logits, len(tokens), tuple(branch.name for branch in branches))
            views_of_step = {
                "factual": views.log_p_factual,
                "fused": views.log_p_fused,
                "masked": views.log_p_masked,
            }  # (1, V)
            if views.certified is not None:
                views_of_step["drawn"] = _restricted(views.log_p_fused, views.certified)
            return {name: log_p[0].double().cpu().softmax(-1) for name, log_p in views_of_step.items()}  # (V,)
    finally:
        batch.close()


def gaps_between(variants: Sequence[Distributions]) -> tuple[SwapGap, ...]:
    """Total variation ``sum |p - q| / 2`` of every pair of variants in every view that all have."""
    views = views_of(variants)
    return tuple(
        SwapGap(i, j, {view: float((variants[i][view] - variants[j][view]).abs().sum() / 2) for view in views})
        for i, j in combinations(range(len(variants)), 2)
    )


def candidates_of(variants: Sequence[Distributions], top: int, model: LanguageModel) -> tuple[SwapToken, ...]:
    """The ``top`` likeliest tokens of each variant, factual and fused, united; those that differ most come first."""
    views = views_of(variants)
    chosen: set[int] = set()
    for distributions in variants:
        for view in ("factual", "fused"):
            p = distributions[view]  # (V,)
            chosen.update(p.topk(min(top, p.shape[-1])).indices.tolist())
    rows = [
        SwapToken(
            token_id,
            model.token_text(token_id),
            {view: tuple(float(distributions[view][token_id]) for distributions in variants) for view in views},
        )
        for token_id in chosen
    ]
    return tuple(sorted(rows, key=lambda row: (-_spread(row.probabilities["factual"]), row.token_id)))


def views_of(variants: Sequence[Distributions]) -> tuple[str, ...]:
    """Views that all variants have, in the order of the tables."""
    return tuple(view for view in VIEWS if all(view in distributions for distributions in variants))


def _restricted(log_p: Tensor, certified: Tensor) -> Tensor:
    """The distribution on the certified set; on its likeliest token where the set is empty; ``(1, V)``."""
    likeliest = torch.zeros_like(certified).scatter(-1, log_p.argmax(-1, keepdim=True), True)
    members = torch.where(certified.any(-1, keepdim=True), certified, likeliest)
    return torch.where(members, log_p, -torch.inf)


def _spread(values: Sequence[float]) -> float:
    return max(values) - min(values)


SwapTable = Literal["tokens", "distances"]

TOKEN_COLUMNS = ("step", "token_id", "token", "variant", "view", "probability")
DISTANCE_COLUMNS = ("step", "first", "second", "view", "total_variation")


def swap_csv(result: SwapResult, table: SwapTable) -> str:
    """A table as RFC 4180 text; steps count from 1."""
    step, labels = result.answer_step + 1, [outcome.variant.label for outcome in result.outcomes]
    rows: list[tuple[object, ...]]
    if table == "tokens":
        columns: tuple[str, ...] = TOKEN_COLUMNS
        rows = [
            (step, token.token_id, token.token, label, view, probability)
            for token in result.tokens
            for view in result.views
            for label, probability in zip(labels, token.probabilities[view], strict=True)
        ]
    else:
        columns = DISTANCE_COLUMNS
        rows = [
            (step, labels[gap.first], labels[gap.second], view, gap.distances[view])
            for gap in result.gaps
            for view in result.views
        ]
    return to_csv(columns, (dict(zip(columns, row, strict=True)) for row in rows))
