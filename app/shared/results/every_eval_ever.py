"""Results in the schema of Every Eval Ever (EvalEval coalition), version 0.2.0."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from app.shared.errors import ServiceError
from app.shared.results.publication import Publication
from app.shared.results.record import Dataset, Result, Results

FORM, SCHEMA = "every-eval-ever", "0.2.0"
BEST = {"near the middle": 0.5, "near zero": 0.0}
GENERATION = {"temperature": "temperature", "top_p": "top_p", "top_k": "top_k", "max_new_tokens": "max_tokens"}


def every_eval_ever_json(results: Results, told: Publication, version: str, now: datetime) -> dict[str, Any]:
    """A record of the schema; figures that it has no place for are named in ``left_out`` of the model's details."""
    told.require(FORM, "organization", "relationship")
    found = [(one, directed(one)) for one in results.results]
    left_out = [f"{one.key}: {own}" for one, own in found if isinstance(own, str)]
    if len(left_out) == len(found):
        raise ServiceError(f"The schema of Every Eval Ever has no place for any figure here ({left_out[0]}).")
    stamp = str(now.timestamp())
    details = {"weights_digest": results.weights_digest, "left_out": "; ".join(left_out)}
    return {
        "schema_version": SCHEMA,
        "evaluation_id": f"{results.name}/{results.model}/{stamp}",
        "evaluation_timestamp": results.created.isoformat(),
        "retrieved_timestamp": stamp,
        "source_metadata": {
            "source_name": "COFT Audit",
            "source_type": "evaluation_run",
            "source_organization_name": told.organization,
            "evaluator_relationship": told.relationship,
        },
        "eval_library": {"name": "coft-audit", "version": version},
        "model_info": {
            "name": results.model,
            "id": results.model,
            "additional_details": {name: text for name, text in details.items() if text},
        },
        "evaluation_results": [_entry(own, results) for _, own in found if isinstance(own, Result)],
    }


def directed(one: Result) -> Result | str:
    """A figure of which less or more is better, as the schema needs it, or why there is none.

    One that is best at a value in between becomes its distance from there.
    """
    if one.better == "none":
        return "no value of it is better than another"
    if one.bounds is None:
        return "it has no bounds"
    if (best := BEST.get(one.better)) is None:
        return one
    low = high = None
    if one.ends is not None:
        near, high = sorted(abs(end - best) for end in one.ends)
        low = 0.0 if one.ends[0] <= best <= one.ends[1] else near
    return replace(
        one, metric=f"{one.metric}_distance_from_{best:g}", value=abs(one.value - best), low=low, high=high,
        error=None, better="lower", bounds=(0.0, max(abs(end - best) for end in one.bounds)),
    )  # fmt: skip


def _entry(one: Result, results: Results) -> dict[str, Any]:
    data = next((own for own in results.datasets if own.key == one.suite), Dataset(one.suite, one.suite))
    least, most = one.bounds or (0.0, 1.0)
    uncertainty: dict[str, Any] = {"num_samples": one.n}
    if one.error is not None:
        uncertainty["standard_error"] = {"value": one.error, "method": "bootstrap"}
    if one.ends is not None:
        low, high = one.ends
        uncertainty["confidence_interval"] = {"lower": low, "upper": high, "confidence_level": one.level}
    of_data = {"version": data.version, "digest": data.digest, "items": str(data.items or "")}
    return {
        "evaluation_name": one.key,
        "source_data": {
            "dataset_name": data.title,
            "source_type": "other",
            "additional_details": {name: text for name, text in of_data.items() if text},
        },
        "metric_config": {
            "evaluation_description": f"{one.metric} of {data.title}, over {one.what}",
            "lower_is_better": one.better == "lower",
            "score_type": "continuous",
            "min_score": least,
            "max_score": most,
        },
        "score_details": {
            "score": one.value,
            "details": {"metric": one.metric, "method": one.method, "counted": one.what},
            "uncertainty": uncertainty,
        },
        **_generation(results.methods.get(one.method, {})),
    }


def _generation(settings: Mapping[str, Any]) -> dict[str, Any]:
    if not settings:
        return {}
    given = {theirs: settings[ours] for ours, theirs in GENERATION.items() if settings.get(ours) is not None}
    others = {name: str(own) for name, own in settings.items() if name not in GENERATION and own is not None}
    return {"generation_config": {"generation_args": given, "additional_details": others}}
