"""Results as lm-evaluation-harness writes them (Gao et al. 2024): a suite is a task, a method a metric's filter."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from app.shared.results.record import HIGHER, Result, Results


def lm_eval_json(results: Results) -> dict[str, Any]:
    """A results file; what has no place there, as intervals, is under ``coft_audit``."""
    own = {data.key: [one for one in results.results if one.suite == data.key] for data in results.datasets}
    return {
        "results": {data.key: {"alias": data.title, **_values(own[data.key])} for data in results.datasets},
        "configs": {data.key: {"task": data.key, "metadata": asdict(data)} for data in results.datasets},
        "versions": {data.key: data.version for data in results.datasets if data.version},
        "higher_is_better": {key: {_name(one): HIGHER.get(one.better) for one in found} for key, found in own.items()},
        "n-samples": {data.key: {"original": data.items, "effective": data.effective} for data in results.datasets},
        "config": {"model": results.model, "methods": results.methods},
        "model_name": results.model,
        "date": results.created.timestamp(),
        "coft_audit": {
            "kind": results.kind,
            "name": results.name,
            "weights_digest": results.weights_digest,
            "results": [asdict(one) for one in results.results],
        },
    }


def _values(found: list[Result]) -> dict[str, float | str]:
    values: dict[str, float | str] = {}
    for one in found:
        chosen = one.method or "none"
        values[f"{_name(one)},{chosen}"] = one.value
        values[f"{_name(one)}_stderr,{chosen}"] = "N/A" if one.error is None else one.error
    return values


def _name(one: Result) -> str:
    """A metric without the comma that divides it from its filter."""
    return one.metric.replace(",", ";")
