"""The measurements as Markdown tables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bench.detector.crows import CHOOSING, UNTOUCHED

_PARTS = {CHOOSING: "by whose totals this was settled", UNTOUCHED: "that were measured only then"}
_SYSTEMS = {"lexicon": "lexicon alone", "pipeline": "pipeline alone", "both": "both, as shipped"}


def tables(measured: dict[str, Any]) -> str:
    """Write the tables of the model card."""
    pairs = measured["crows_pairs"]
    parts = [
        _corpora(measured["ner"]["all"]),
        _by_corpus(measured["ner"]),
        _pairs(pairs),
        _parts(pairs),
        _others(pairs),
    ]
    return "\n\n".join([*parts, _ambiguous(measured["ambiguous"]), _ordinary(measured)])


def overview(measured: dict[str, Any]) -> str:
    """Write the short table of the README."""
    pairs, lexicon, ner = measured["crows_pairs"]["both"], measured["crows_pairs"]["lexicon"], measured["ner"]["all"]
    kinds = ("gender", "race-color", "religion", "nationality")
    rows = [
        ("differing words of CrowS-Pairs marked", lexicon["recall"]["all"], pairs["recall"]["all"]),
        ("differing words masked by default", lexicon["masked_recall"]["all"], pairs["masked_recall"]["all"]),
        *_in_parts("masked_recall", "differing words masked by default", lexicon, pairs),
        ("marked, without function words", lexicon["content_recall"]["all"], pairs["content_recall"]["all"]),
        *(
            (f"explicit {kind} markers among them marked", lexicon["explicit"][kind], pairs["explicit"][kind])
            for kind in kinds
        ),
        ("other words marked", lexicon["others"], pairs["others"]),
        ("other words marked, explicit markers left out", lexicon["others_unmarked"], pairs["others_unmarked"]),
        ("other words masked by default", lexicon["others_masked"], pairs["others_masked"]),
        *_in_parts("others_masked", "other words masked by default", lexicon, pairs),
        *(
            (f"F1 of words, {label}", ner["lexicon"][label]["words"]["f1"], ner["both"][label]["words"]["f1"])
            for label in next(iter(ner.values()))
        ),
        *(
            (f"ambiguous words, {name}", measured["ambiguous"]["lexicon"][key], measured["ambiguous"]["both"][key])
            for key, name in (("recall", "marked where they describe a person"), ("false_alarms", "marked elsewhere"))
        ),
    ]
    lines = ["| measure | n | lexicon alone | lexicon and pipeline |", "| --- | --- | --- | --- |"]
    lines += [f"| {name} | {second['n']:,} | {cell(first)} | {cell(second)} |" for name, first, second in rows]
    speeds = [measured["ordinary_text"][system]["words_per_second"] for system in ("lexicon", "both")]
    lines.append(f"| words per second on one core | | {speeds[0]:,} | {speeds[1]:,} |")
    return "\n".join(lines)


def _in_parts(
    measure: str, name: str, lexicon: dict[str, Any], both: dict[str, Any]
) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """A row for either part of the pairs."""
    for part, said in _PARTS.items():
        first, second = lexicon["parts"][part], both["parts"][part]
        yield f"{name}, {second['pairs']:,} pairs {said}", first[measure], second[measure]


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
    lexicon, both = measured["lexicon"], measured["both"]
    lines = [
        "| bias type | words (n) | lexicon alone | both, as shipped | masked by default | without function words "
        "| explicit markers (n) | both, as shipped |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for kind, share in both["recall"].items():
        marker = both["explicit"][kind]
        lines.append(
            f"| {kind} | {share['n']:,} | {cell(lexicon['recall'][kind])} | {cell(share)} "
            f"| {cell(both['masked_recall'][kind])} "
            f"| {cell(both['content_recall'][kind])} | {marker['n']:,} "
            f"| {cell(marker)} |"
        )
    return "\n".join(lines)


def _parts(measured: dict[str, Any]) -> str:
    lines = [
        "| CrowS-Pairs, masked by default | words (n) | lexicon alone | both, as shipped |",
        "| --- | --- | --- | --- |",
    ]
    rows = [
        row
        for measure, name in (("masked_recall", "differing words"), ("others_masked", "other words"))
        for row in _in_parts(measure, name, measured["lexicon"], measured["both"])
    ]
    lines += [f"| {name} | {second['n']:,} | {cell(first)} | {cell(second)} |" for name, first, second in rows]
    return "\n".join(lines)


def _others(measured: dict[str, Any]) -> str:
    rows = {
        "others": "marked",
        "others_unmarked": "marked, explicit markers left out",
        "others_masked": "masked by default (without suggestions)",
        "others_masked_unmarked": "masked by default, explicit markers left out",
    }
    lines = ["| words common to both sentences | words (n) | lexicon alone | both, as shipped |"]
    lines.append("| --- | --- | --- | --- |")
    for key, name in rows.items():
        first, second = measured["lexicon"][key], measured["both"][key]
        lines.append(f"| {name} | {second['n']:,} | {cell(first)} | {cell(second)} |")
    return "\n".join(lines)


def _ambiguous(measured: dict[str, Any]) -> str:
    lines = ["| system | n | recall | marked though harmless | accuracy |", "| --- | --- | --- | --- | --- |"]
    for system, row in measured.items():
        cells = " | ".join(cell(row[key]) for key in ("recall", "false_alarms", "accuracy"))
        lines.append(f"| {_SYSTEMS[system]} | {row['accuracy']['n']:,} | {cells} |")
    return "\n".join(lines)


def _ordinary(measured: dict[str, Any]) -> str:
    lines = ["| encyclopedia text | words (n) | marked | masked by default | words per second |"]
    lines.append("| --- | --- | --- | --- | --- |")
    for system, row in measured["ordinary_text"].items():
        share = row["flagged"]
        lines.append(
            f"| {_SYSTEMS[system]} | {share['n']:,} | {cell(share, 4)} | {cell(row['masked'], 4)} "
            f"| {row['words_per_second']:,} |"
        )
    return "\n".join(lines)
