"""The measurements as Markdown tables."""

from __future__ import annotations

from typing import Any

_SYSTEMS = {"lexicon": "lexicon alone", "pipeline": "pipeline alone", "both": "both, as shipped"}


def tables(measured: dict[str, Any]) -> str:
    """Write the tables of the model card.

    Args:
        measured: Result of :func:`bench.detector.measure.measure_detector`.

    Returns:
        Markdown.
    """
    parts = [_corpora(measured["ner"]["all"]), _by_corpus(measured["ner"]), _pairs(measured["crows_pairs"])]
    return "\n\n".join([*parts, _ordinary(measured)])


def cell(share: dict[str, Any], digits: int = 3) -> str:
    """A value with its interval."""
    if share["value"] is None:
        return "-"
    low, high = share["interval"]
    return f"{share['value']:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"


def _corpora(scores: dict[str, Any]) -> str:
    lines = [
        "| label | system | n | precision | recall | F1 | F1 of words |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for label in next(iter(scores.values())):
        for system, name in _SYSTEMS.items():
            spans, words = scores[system][label]["spans"], scores[system][label]["words"]
            lines.append(
                f"| {label} | {name} | {spans['f1']['n']:,} | {cell(spans['precision'])} | {cell(spans['recall'])} "
                f"| {cell(spans['f1'])} | {cell(words['f1'])} |"
            )
    return "\n".join(lines)


def _by_corpus(scores: dict[str, Any]) -> str:
    corpora = [name for name in scores if name != "all"]
    labels = list(scores["all"]["both"])
    lines = ["| corpus | " + " | ".join(f"{label} (n)" for label in labels) + " |", "| --- |" + " --- |" * len(labels)]
    for corpus in corpora:
        values = [scores[corpus]["both"][label]["spans"]["f1"] for label in labels]
        cells = [f"{cell(value, 2)} ({value['n']:,})" if value["n"] else "-" for value in values]
        lines.append(f"| {corpus} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _pairs(measured: dict[str, Any]) -> str:
    lines = ["| bias type | words (n) | lexicon alone | both, as shipped |", "| --- | --- | --- | --- |"]
    for kind, share in measured["both"]["recall"].items():
        lines.append(f"| {kind} | {share['n']:,} | {cell(measured['lexicon']['recall'][kind])} | {cell(share)} |")
    others = [measured[system]["others"] for system in ("lexicon", "both")]
    lines.append(f"| *other words, marked* | {others[1]['n']:,} | {cell(others[0])} | {cell(others[1])} |")
    return "\n".join(lines)


def _ordinary(measured: dict[str, Any]) -> str:
    lines = ["| encyclopedia text | words (n) | marked | words per second |", "| --- | --- | --- | --- |"]
    for system, row in measured["ordinary_text"].items():
        share = row["flagged"]
        lines.append(f"| {_SYSTEMS[system]} | {share['n']:,} | {cell(share, 4)} | {row['words_per_second']:,} |")
    return "\n".join(lines)
