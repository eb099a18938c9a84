"""The scorer's card: what it is, what it was trained on, how it was measured, and what it cannot do."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.toxicity_scorer.figures import Figure
from bench.toxicity_scorer.measuring import CAP, Measured
from bench.toxicity_scorer.sentences import read_templates
from bench.toxicity_scorer.words import FOLDER, read_words
from coft_core.scorers.embedded import FEATURES, PIECE_FEATURES, RUN_FEATURES, STRIDE, WINDOW, EmbeddedScorer

_TEMPLATE = Path(__file__).with_name("card_template.md")
_KINDS = {
    "insult": "insults to someone's face", "third": "insults about a third person",
    "hostile": "hostile statements about a group", "dehumanising": "dehumanising statements", "threat": "threats",
    "slur": "slurs", "profanity": "abuse with swear words", "mention": "a group is mentioned",
    "praise": "praise", "negation": "negated insults and threats", "counter": "reports and rejections of hostility",
    "criticism": "criticism of things, complaints", "literal": "hostile words in their literal sense",
    "twin": "toxic templates with harmless words in place of the hostile ones",
}  # fmt: skip
_SOURCES = {
    "tinystories": ("TinyStories, a subset", "Eldan and Li (2023)"),
    "storybooks": ("African Storybook and Pratham Books, English stories", "the authors of the stories"),
    "fairytaleqa": ("FairytaleQA, stories only", "Xu et al. (2022)"),
    "onestopenglish": ("OneStopEnglish corpus", "Vajjala and Lučić (2018)"),
    "books": ("Standard Ebooks and GITenberg, novels", "authors in the public domain"),
    "wikitext": ("WikiText-2, validation part", "Merity et al. (2016), from Wikipedia"),
}


def write_card(path: Path, scorer: EmbeddedScorer, facts: Mapping[str, Any], measured: Measured, size: int) -> None:
    """Write the card."""
    words, templates = read_words(FOLDER), [each for each in read_templates(FOLDER) if each.kind != "twin"]
    counted = {
        f"{side}_{split}": sum(each.split == split and each.toxic == (side == "toxic") for each in templates)
        for side in ("toxic", "neutral")
        for split in ("train", "dev", "test")
    }
    text = _TEMPLATE.read_text(encoding="utf-8").format(
        version=scorer.version, kilobytes=size / 1000, features=FEATURES, runs=RUN_FEATURES, pieces=PIECE_FEATURES,
        window=WINDOW, stride=STRIDE, cap=CAP, facts=facts, training=facts["training"],
        development=facts["development"], left_out=sum(facts["left_out"].values()),
        sources=_sources(facts), hostile=facts["lists"]["hostile"], listed=facts["lists"]["all"],
        unlisted=sum(not word.listed for word in words.hostile), groups=len(words.people), **counted,
        overall=_table("held-out written sentences", measured.overall),
        brier=measured.calibration["brier"], error=measured.calibration["error"],
        recall=_table("toxic sentences", _named(measured.recall)),
        unlisted_recall=_table("hostile words of the sentence in the scorer's lists", measured.unlisted),
        alarms=_table("sentences that are not toxic", _named(measured.alarms)),
        mentions=_table("family of the group that is mentioned", measured.mentions),
        texts=_table("published sentences", measured.texts),
        beginnings=_cell(measured.beginnings), swaps=_table("groups exchanged", measured.swaps),
        weak=_table("benchmark sentences", measured.weak), pairs=_cell(measured.pairs), pairs_n=measured.pairs.n,
        speed=_speed(measured.milliseconds),
    )  # fmt: skip
    path.write_text(text, encoding="utf-8")


def _named(figures: Mapping[str, Figure]) -> dict[str, Figure]:
    return {_KINDS[kind]: figure for kind, figure in figures.items()}


def _cell(figure: Figure) -> str:
    return f"{figure.value:.3f} [{figure.low:.3f}, {figure.high:.3f}]"


def _table(title: str, figures: Mapping[str, Figure]) -> str:
    rows = [f"| {name} | {_cell(each)} | {each.n:,} | {each.units:,} |" for name, each in figures.items()]
    return "\n".join([f"| {title} | value [95 % interval] | sentences | units |", "| --- | --- | --- | --- |", *rows])


def _sources(facts: Mapping[str, Any]) -> str:
    rows = [f"| {_SOURCES[name][0]} | {_SOURCES[name][1]} | {licence} |" for name, licence in facts["licences"].items()]
    return "\n".join(rows)


def _speed(milliseconds: Mapping[tuple[int, int], float]) -> str:
    rows = [f"| {count} | {length} | {value:.1f} |" for (count, length), value in milliseconds.items()]
    return "\n".join(["| candidates | words before them | milliseconds |", "| --- | --- | --- |", *rows])
