"""Results as a log of Inspect, which its viewer shows and its data frames read."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any

from app.shared.errors import ServiceError
from app.shared.results.record import Result, Results, Sample

PROVIDER = "coft"


def inspect_logs() -> ModuleType:
    """Inspect's module of logs, loaded when it is asked for: nothing else of the program needs it."""
    try:
        import inspect_ai.log as logs
    except ImportError as error:
        raise ServiceError(
            f"A log of Inspect needs the package inspect-ai, which cannot be imported ({error}); run pip install "
            "inspect-ai, or choose another format."
        ) from error
    return logs


def inspect_results(results: Results) -> bytes:
    """An ``.eval`` file: a score for each suite and method, and a sample for each item that is kept."""
    logs, samples, moment = inspect_logs(), [_sample(one, results.model) for one in results.samples], results.created
    log = logs.EvalLog(
        status="success",
        eval=logs.EvalSpec(
            created=as_written(moment),
            task=encodable(results.name),
            dataset=logs.EvalDataset(
                name=", ".join(data.title for data in results.datasets),
                samples=len(samples),
                sample_ids=[sample.id for sample in samples],
            ),
            model=f"{PROVIDER}/{results.model}",
            config=logs.EvalConfig(),
            model_args={"weights_digest": results.weights_digest, "methods": results.methods},
            metadata={"program": "coft-audit", "kind": results.kind},
        ),
        results=logs.EvalResults(
            total_samples=len(samples), completed_samples=len(samples), scores=eval_scores(results.results)
        ),
        stats=logs.EvalStats(started_at=as_written(moment), completed_at=as_written(moment)),
        samples=samples,
    )
    return eval_file(log)


def eval_scores(results: Sequence[Result]) -> list[Any]:
    """Figures as Inspect lists them: a suite under a method is a scorer."""
    logs = inspect_logs()
    by_scorer: dict[tuple[str, str], dict[str, Any]] = {}
    for one in results:
        told = {"low": one.low, "high": one.high, "level": one.level, "error": one.error, "n": one.n, "of": one.what}
        metric = logs.EvalMetric(name=one.metric, value=one.value, metadata=told)
        by_scorer.setdefault((one.suite, one.method), {})[one.metric] = metric
    return [
        logs.EvalScore(name="/".join(filter(None, place)), scorer=place[1] or place[0], metrics=metrics)
        for place, metrics in by_scorer.items()
    ]


def eval_file(log: Any) -> bytes:
    """A log as the content of an ``.eval`` file."""
    with tempfile.TemporaryDirectory(prefix="coft-inspect-") as folder:
        path = Path(folder) / "log.eval"
        inspect_logs().write_eval_log(log, str(path))
        return path.read_bytes()


def as_written(when: datetime) -> str:
    """As Inspect writes times; the store's are of the universal time."""
    return (when if when.tzinfo else when.replace(tzinfo=UTC)).astimezone(UTC).isoformat()


def encodable(text: str) -> str:
    """A text without lone surrogates, which have no UTF-8."""
    return text.encode("utf-8", "replace").decode()


def _sample(one: Sample, model: str) -> Any:
    from inspect_ai.model import ModelOutput
    from inspect_ai.scorer import Score

    return inspect_logs().EvalSample(
        id=encodable("/".join(filter(None, (one.suite, one.item, one.method)))),
        epoch=one.seed + 1,
        input=encodable(one.prompt),
        target="",
        output=ModelOutput.from_content(model, encodable(one.answer)),
        scores={name: Score(value=value) for name, value in one.scores.items()},
        metadata={"suite": one.suite, "method": one.method, "seed": one.seed, **one.facts},
    )
