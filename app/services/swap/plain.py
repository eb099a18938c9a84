"""Attribute swaps as plain JSON, for the endpoints and the command line; steps count from 1."""

from __future__ import annotations

from typing import Any

from app.services.plain import span_json, step_numbers
from app.services.views.swaps import SwapChain, SwapOutcome, SwapResult


def swap_json(result: SwapResult) -> dict[str, Any]:
    """A comparison: variants with their chains, candidates and distances of the compared token, and notes."""
    labels = [outcome.variant.label for outcome in result.outcomes]
    return {
        "step": result.answer_step + 1,
        "views": list(result.views),
        "variants": [_outcome(outcome) for outcome in result.outcomes],
        "tokens": [
            {
                "token_id": token.token_id,
                "token": token.token,
                "probabilities": {view: list(token.of(view)) for view in result.views},
            }
            for token in result.tokens
        ],
        "distances": [
            {"first": labels[gap.first], "second": labels[gap.second], "total_variation": dict(gap.distances)}
            for gap in result.gaps
        ],
        "largest": {view: result.largest(view) for view in result.views},
        "mean": {view: result.mean(view) for view in result.views},
        "notes": list(result.notes),
    }


def _outcome(outcome: SwapOutcome) -> dict[str, Any]:
    variant = outcome.variant
    return {
        "label": variant.label,
        "prompt": variant.prompt,
        "spans": [span_json(span) for span in variant.spans],
        "replacements": [
            {
                "start": change.start,
                "end": change.end,
                "before": change.before,
                "after": change.after,
                "kind": change.kind,
                "role": change.role,
                "sure": change.sure,
            }
            for change in variant.replacements
        ],
        "notes": list(variant.notes),
        "masked_like_first": outcome.masked_like_first,
        "vanilla": _chain(outcome.vanilla),
        "policy": _chain(outcome.policy),
    }


def _chain(chain: SwapChain) -> dict[str, Any]:
    return {
        "text": chain.text,
        "finished": chain.finished,
        "certificate": chain.certificate,
        "steps": [step_numbers(step) for step in chain.steps],
    }
