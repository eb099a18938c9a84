"""Results for a model's repository on the Hugging Face Hub: a file of ``.eval_results``, and a section of its card."""

from __future__ import annotations

import base64

import yaml

from app.shared.results.publication import Publication
from app.shared.results.record import Result, Results

TASK = "text-generation"


def eval_results_yaml(results: Results, told: Publication, digest: str) -> str:
    """A file for ``.eval_results``, with one result; its notes name the signed bundle."""
    from huggingface_hub import EvalResultEntry, eval_result_entries_to_yaml

    told.require("hub", "dataset", "task")
    one = told.chosen(results)
    entry = EvalResultEntry(
        dataset_id=told.dataset,
        task_id=told.task,
        value=one.value,
        date=results.created.isoformat(),
        source_url=told.source_url or None,
        source_name="Signed bundle of COFT Audit" if told.source_url else None,
        notes="; ".join(filter(None, (one.key, one.interval, f"{one.n} {one.what}", _signed(digest)))),
    )
    return yaml.safe_dump(eval_result_entries_to_yaml([entry]), sort_keys=False, allow_unicode=True)


def model_card(results: Results, told: Publication, digest: str) -> str:
    """Metadata and a section for a model card; the source is where the signed bundle is, or else its digest."""
    from huggingface_hub import EvalResult, ModelCardData

    listed = [
        EvalResult(
            task_type=TASK,
            dataset_type=one.suite,
            dataset_name=results.titled(one.suite),
            metric_type=one.metric,
            metric_name=one.key,
            metric_value=one.value,
            metric_args={"low": one.low, "high": one.high, "level": one.level, "n": one.n},
            source_name=_signed(digest),
            source_url=told.source_url or named_by(digest),
        )
        for one in results.results
    ]
    data = ModelCardData(model_name=results.model, eval_results=listed)
    rows = [_row(one, results.titled(one.suite)) for one in results.results]
    weights = f" Digest of the weights: `{results.weights_digest}`." if results.weights_digest else ""
    lines = [
        "---", data.to_yaml(), "---", "", "## Bias audit", "",
        f"{results.name}, {results.created:%Y-%m-%d}, measured with COFT Audit.{weights}", "",
        "| Suite | Metric | Method | Value | Interval | n |", "| --- | --- | --- | ---: | --- | ---: |", *rows, "",
        f"Source: signed bundle, SHA-256 of its manifest `{digest}`"
        + (f", [{told.source_url}]({told.source_url})" if told.source_url else "")
        + ". Check it with `python -m app verify FILE --key KEY`.", "",
    ]  # fmt: skip
    return "\n".join(lines)


def named_by(digest: str) -> str:
    """The address of something by its digest (RFC 6920)."""
    return f"ni:///sha-256;{base64.urlsafe_b64encode(bytes.fromhex(digest)).decode('ascii').rstrip('=')}"


def _signed(digest: str) -> str:
    return f"Signed bundle, SHA-256 {digest}"


def _row(one: Result, title: str) -> str:
    told = (title, one.metric, one.method, f"{one.value:.4f}", one.interval, f"{one.n} {one.what}")
    cells = (cell.replace("|", r"\|").replace("\n", " ") for cell in told)
    return f"| {' | '.join(cells)} |"
