"""Whole distributions at a step of planned prompts, and how far apart they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import chain, combinations, product
from typing import Literal

import torch
from torch import Tensor

from app.shared.files import to_csv
from app.swap.types import (
    CONTROL_VIEWS,
    VIEWS,
    SwapControls,
    SwapDifference,
    SwapGap,
    SwapGroup,
    SwapResult,
    SwapRow,
    SwapToken,
)
from app.swap.variants import ControlVariant
from coft_core.controls.result import LEVEL
from coft_core.controls.statistics import GroupDifference, between_groups
from coft_core.decode.plan import Plan
from coft_core.model.group import score_branches
from coft_core.model.language_model import LanguageModel
from coft_core.policies.base import Past

Distributions = Mapping[str, Tensor]
"""Probabilities of every token by view, ``(V,)`` float64 on the host."""


@torch.inference_mode()
def distributions_at(plans: Sequence[Plan], tokens: Sequence[int]) -> list[dict[str, Tensor]]:
    """Each plan's views of the token that follows its prompt and a text, before top-k and top-p.

    The plans have one policy and its models; rows that several have in common are run once.
    """
    policy = plans[0].policy
    plans[0].model.require_all_tokens("A swap of names")
    back, before = (tuple(tokens), ()) if policy.looks_back else ((), tuple(tokens))
    branches = [
        [replace(branch, input_ids=(*branch.input_ids, *before)) for branch in plan.policy.branches(plan.prompt)]
        for plan in plans
    ]
    places = {row: place for place, row in enumerate(dict.fromkeys(chain.from_iterable(branches)))}
    logits = score_branches(plans[0].all_models, tuple(places), (*back, 0))  # (C, R, V)
    return [
        _views(plan, logits[:, [places[row] for row in rows]], tuple(row.name for row in rows), tokens, back)
        for plan, rows in zip(plans, branches, strict=True)
    ]


def _views(
    plan: Plan, logits: Tensor, names: tuple[str, ...], tokens: Sequence[int], back: Sequence[int]
) -> dict[str, Tensor]:
    """The views of a plan's last step, ``(C, B, V)``; policies that look back remember the steps before it."""
    memory = None
    for token_id, row in zip(back, logits, strict=False):
        memory = plan.policy.remember(memory, row, token_id, names)
    past = Past(plan.model, plan.prompt, tuple(tokens), memory)
    views = plan.policy.views(logits[-1:], len(tokens), names, [past])
    log_p = {"factual": views.log_p_factual, "fused": views.log_p_fused, "masked": views.log_p_masked}  # (1, V)
    if views.certified is not None:
        log_p["drawn"] = _restricted(views.log_p_fused, views.certified)
    return {name: values[0].double().cpu().softmax(-1) for name, values in log_p.items()}  # (V,)


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


def controls_of(
    names: Sequence[str],
    rows: Sequence[ControlVariant],
    found: Sequence[Distributions],
    candidates: Sequence[SwapToken],
) -> SwapControls:
    """Groups, by their names, beside their words and wordings, from each row's probabilities of the candidates."""
    model = torch.stack([row["factual"] for row in found])  # (R, C)
    policy = torch.stack([row.get("drawn", row["fused"]) for row in found])  # (R, C)
    varying = model[[not row.is_wording for row in rows]].std(0, correction=0)  # (C,)
    chosen = varying.argsort(descending=True, stable=True)[:COMPARED].tolist()
    values = zip(rows, model[:, chosen].tolist(), policy[:, chosen].tolist(), strict=True)
    shown = [(row, SwapRow(row.word, tuple(alone), tuple(guided))) for row, alone, guided in values]

    def of(place: int, is_wording: bool) -> tuple[SwapRow, ...]:
        return tuple(one for row, one in shown if (row.group, row.is_wording) == (place, is_wording))

    groups = tuple(SwapGroup(name, of(place, False), of(place, True)) for place, name in enumerate(names))

    def apart(a: int, b: int, view: str) -> GroupDifference:
        first, second = ([getattr(row, view)[0] for row in groups[place].members] for place in (a, b))
        return between_groups([first], [second], level=1 - LEVEL / max(1, pairs))

    several = sum(len(group.members) > 1 for group in groups)
    # Intervals hold for all pairs that are tested together, as the p-values do.
    pairs = several * (several - 1) // 2
    return SwapControls(
        tuple(candidates[place].token_id for place in chosen),
        tuple(candidates[place].token for place in chosen),
        groups,
        tuple(
            SwapDifference(a, b, apart(a, b, "factual"), apart(a, b, "policy"))
            for a, b in combinations(range(len(groups)), 2)
        ),
    )


COMPARED = 2
"""Tokens whose probabilities are kept for every word; the first is tested."""

SwapTable = Literal["tokens", "distances", "words", "groups"]

COLUMNS: Mapping[SwapTable, tuple[str, ...]] = {
    "tokens": ("step", "token_id", "token", "variant", "view", "probability"),
    "distances": ("step", "first", "second", "view", "total_variation"),
    "words": ("step", "token_id", "token", "group", "kind", "word", "view", "probability"),
    "groups": ("step", "token_id", "token", "first", "second", "view", "difference", "low", "high", "within",
               "between_wordings", "p_value", "ways", "exact", "found"),
}  # fmt: skip


def swap_csv(result: SwapResult, table: SwapTable) -> str:
    """A table as RFC 4180 text; steps count from 1. Without controls their tables have no rows."""
    rows = (dict(zip(COLUMNS[table], (result.answer_step + 1, *row), strict=True)) for row in _ROWS[table](result))
    return to_csv(COLUMNS[table], rows)


def _token_rows(result: SwapResult) -> Iterator[tuple[object, ...]]:
    for token in result.tokens:
        for view in result.views:
            for outcome, probability in zip(result.outcomes, token.probabilities[view], strict=True):
                yield token.token_id, token.token, outcome.variant.label, view, probability


def _distance_rows(result: SwapResult) -> Iterator[tuple[object, ...]]:
    labels = [outcome.variant.label for outcome in result.outcomes]
    for gap in result.gaps:
        for view in result.views:
            yield labels[gap.first], labels[gap.second], view, gap.distances[view]


def _word_rows(result: SwapResult) -> Iterator[tuple[object, ...]]:
    if (controls := result.controls) is None:
        return
    for group in controls.groups:
        kinds = [*(("word", row) for row in group.members), *(("wording", row) for row in group.wordings)]
        for (kind, row), view in product(kinds, CONTROL_VIEWS):
            for token_id, token, p in zip(controls.token_ids, controls.tokens, getattr(row, view), strict=True):
                yield token_id, token, group.name, kind, row.word, view, p


def _group_rows(result: SwapResult) -> Iterator[tuple[object, ...]]:
    if (controls := result.controls) is not None:
        for item, view in product(controls.differences, CONTROL_VIEWS):
            numbers = difference_numbers(controls, item, view)
            yield tuple(numbers[column] for column in COLUMNS["groups"][1:])


def difference_numbers(controls: SwapControls, item: SwapDifference, view: str) -> dict[str, object]:
    """A difference between groups with everything that it is compared with; what was not tested is None."""
    numbers, p_value = asdict(getattr(item, view)), controls.p_value(item, view)
    if p_value is None:
        numbers |= dict.fromkeys(("low", "high", "within", "ways", "exact"))
    first, second = (controls.groups[place].name for place in (item.first, item.second))
    return {
        "token_id": controls.token_ids[0], "token": controls.tokens[0], "first": first, "second": second, "view": view,
        **numbers, "p_value": p_value, "between_wordings": controls.between_wordings(item, view),
        "found": controls.state(item, view),
    }  # fmt: skip


_ROWS: Mapping[SwapTable, Callable[[SwapResult], Iterator[tuple[object, ...]]]] = {
    "tokens": _token_rows,
    "distances": _distance_rows,
    "words": _word_rows,
    "groups": _group_rows,
}
