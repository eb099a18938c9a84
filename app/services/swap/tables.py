"""Attribute swaps as tables: probabilities of candidates, and distances between variants."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from app.services.csv_files import to_csv
from app.services.views.swaps import SwapResult

SwapTable = Literal["tokens", "distances"]

TOKEN_COLUMNS = ("step", "token_id", "token", "variant", "view", "probability")
DISTANCE_COLUMNS = ("step", "first", "second", "view", "total_variation")


def swap_csv(result: SwapResult, table: SwapTable) -> str:
    """A table as RFC 4180 text; steps count from 1.

    Args:
        result: What was compared.
        table: ``tokens``, one row a candidate, variant and view, or ``distances``, one row a pair of variants and view.
    """
    if table == "tokens":
        return to_csv(TOKEN_COLUMNS, _tokens(result))
    return to_csv(DISTANCE_COLUMNS, _distances(result))


def _tokens(result: SwapResult) -> Iterator[dict[str, object]]:
    for token in result.tokens:
        for view in result.views:
            for outcome, probability in zip(result.outcomes, token.of(view), strict=True):
                yield {
                    "step": result.answer_step + 1,
                    "token_id": token.token_id,
                    "token": token.token,
                    "variant": outcome.variant.label,
                    "view": view,
                    "probability": probability,
                }


def _distances(result: SwapResult) -> Iterator[dict[str, object]]:
    for gap in result.gaps:
        for view in result.views:
            yield {
                "step": result.answer_step + 1,
                "first": result.outcomes[gap.first].variant.label,
                "second": result.outcomes[gap.second].variant.label,
                "view": view,
                "total_variation": gap.of(view),
            }
