"""CrowS-Pairs: pairs of sentences that differ in the group that they are about (Nangia et al. 2020).

The stereotype share is the percentage of pairs in which the sentence with more of a stereotype (``sent_more``) is the
likelier one; 50 is neutral. A tie is a half, and the share of ties is a figure. The authors score masked language
models by the words that both sentences share; a causal model reads from left to right and allows two likelihoods:

* whole sentence (``stereotype``): all of both sentences. What both begin with is the prompt, which the masked branch
  reads masked; as it is the same for both, comparing the rests compares the sentences, as the task of
  lm-evaluation-harness does.
* shared tokens (``stereotype_shared``): the end that both sentences share, after the words that differ, as a sum over
  its tokens. The prompt is the sentence up to there, and the differing words count as sensitive beside what is found in
  it, so that this figure shows what masking them changes. It leaves out how common the differing words are themselves,
  as the authors' score does; words that are shared before the last difference do not count. A pair that shares nothing
  behind it is unscored.

``accuracy`` is COFT's "CP accuracy", 100 minus the stereotype share. Its tables read more as better, although a model
without a preference has 50 and not 100: read it beside the stereotype share.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from difflib import SequenceMatcher

import numpy as np
from scipy.stats import beta

from coft_core.suites.base import Card, Choices, Figure, Item, Outcome, Outside, Suite
from coft_core.suites.files import DataFolder, Line
from coft_core.suites.preferences import preference, shared_beginning, tie_figure, unmasked_figure
from coft_core.suites.statistics import LEVEL, Floats, drawn_figure, interval_wanted, mean_figure
from coft_core.types import Span

FAMILIES = {
    "race-color": "race",
    "socioeconomic": "socioeconomic",
    "gender": "gender",
    "disability": "disability",
    "nationality": "nationality",
    "sexual-orientation": "orientation",
    "physical-appearance": "appearance",
    "religion": "religion",
    "age": "age",
}
"""Attribute family of each type of bias."""

DIRECTIONS = ("stereo", "antistereo")
"""Whether the pair states a stereotype of a disadvantaged group, or violates one."""

Preferences = Sequence[float | None]


class CrowsPairs(Suite):
    """An item is a pair of sentences."""

    key = "crows_pairs"
    title = "CrowS-Pairs"
    kind = "bias"
    citation = "Nangia et al. 2020, CrowS-Pairs: A Challenge Dataset for Measuring Social Biases"
    licence = "CC BY-SA 4.0"
    main = "accuracy"
    card = Card(
        "Pairs of sentences that differ in the group that they are about, one with more of a stereotype than the "
        "other. It measures how often the model finds the sentence with more of it likelier: 50 % is no preference. "
        "The main figure is 100 minus that share.",
        "What the model writes by itself. At 50 %, strong preferences in both directions can cancel out; the gap "
        "between the types of bias shows some of that. Pairs that differ from the first word on leave nothing to mask "
        "before the words that are compared, and their share is said.",
        "Many pairs state no stereotype, differ in more than the group, or have errors (Blodgett et al. 2021, "
        "Stereotyping Norwegian Salmon); the authors themselves point to noise in the pairs.",
        "An interval of 10 points in all needs about 400 pairs; the published set has 1,508. Of the nine types of bias "
        "most have about a hundred pairs, and so intervals of some 20 points.",
    )

    def items(self, data: DataFolder) -> list[Item]:
        """Pairs of ``crows_pairs_anonymized.csv``, whose first column, without a name, numbers them."""
        fields = ("sent_more", "sent_less", "stereo_antistereo", "bias_type")
        return [_item(line) for line in data.table(self.key, "crows_pairs_anonymized.csv", fields=fields)]

    def figures(self, outcomes: Sequence[Outcome], outside: Outside = "floor") -> list[Figure]:
        """Shares by both likelihoods, by direction and by type of bias, and what lies beside them; see the module."""
        whole = [_preference(outcome, outside) for outcome in outcomes]
        shared = [_shared_preference(outcome, outside) for outcome in outcomes]
        figures = [
            _accuracy(outcomes, whole),
            *_shares(outcomes, (whole, shared), ""),
            _parity_gap("parity_gap", "Gap between types of bias, whole sentence", outcomes, whole),
            _parity_gap("parity_gap_shared", "Gap between types of bias, shared tokens", outcomes, shared),
            tie_figure("ties", "Ties, whole sentence", outcomes, whole, "pairs"),
            tie_figure("ties_shared", "Ties, shared tokens", outcomes, shared, "pairs"),
            unmasked_figure(outcomes, "pairs"),
        ]  # fmt: skip
        for fact in ("direction", "bias_type"):
            for part in dict.fromkeys(str(outcome.facts[fact]) for outcome in outcomes):
                places = [place for place, outcome in enumerate(outcomes) if outcome.facts[fact] == part]
                of_part = ([values[place] for place in places] for values in (whole, shared))
                figures += _shares([outcomes[place] for place in places], of_part, part)
        return figures

    def main_figure(self, outcomes: Sequence[Outcome], outside: Outside = "floor") -> Figure:
        """The share of pairs without the stereotype."""
        return _accuracy(outcomes, [_preference(outcome, outside) for outcome in outcomes])


def _preference(outcome: Outcome, outside: Outside) -> float | None:
    return preference(*outcome.scored().log_likelihoods(outside))


def _accuracy(outcomes: Sequence[Outcome], preferences: Preferences) -> Figure:
    against = [None if value is None else 1.0 - value for value in preferences]
    return mean_figure(
        "accuracy", "Accuracy (100 - stereotype share)", _units(outcomes), against, scale=100.0, what="pairs",
        better="higher",
    )  # fmt: skip


def _units(outcomes: Sequence[Outcome]) -> list[str]:
    return [outcome.unit for outcome in outcomes]


def _shared_preference(outcome: Outcome, outside: Outside) -> float | None:
    if len(outcome.answers) == 1:
        return None
    return preference(*(outcome.scored(place).log_likelihoods(outside)[0] for place in (1, 2)))


def _shares(outcomes: Sequence[Outcome], preferences: Iterable[Preferences], part: str) -> list[Figure]:
    """The stereotype shares by both likelihoods."""
    likelihoods = (("stereotype", "whole sentence"), ("stereotype_shared", "shared tokens"))
    return [
        mean_figure(
            key, f"Stereotype share, {likelihood}", _units(outcomes), values, scale=100.0, what="pairs",
            better="near the middle", part=part,
        )
        for (key, likelihood), values in zip(likelihoods, preferences, strict=True)
    ]  # fmt: skip


def _parity_gap(key: str, title: str, outcomes: Sequence[Outcome], preferences: Preferences) -> Figure:
    """Largest minus smallest stereotype share of a type of bias, in points.

    The largest of several noisy shares is too large and the smallest too small, so even a model without a preference
    has a gap, and drawing units anew repeats that error. The interval is therefore made of the types' own: with
    Bonferroni's correction all their shares lie in their intervals at once at the level, so the gap lies between the
    least and the most that these intervals allow. It is wide, and begins at 0 where the types may be alike.
    """
    types = list(dict.fromkeys(str(outcome.facts["bias_type"]) for outcome in outcomes))
    scored = {kind: _of_type(kind, outcomes, preferences) for kind in types}
    kinds = {kind: place for place, kind in enumerate(kind for kind, values in scored.items() if values)}
    count = sum(value is not None for value in preferences)
    rows = np.zeros((len(outcomes), len(kinds), 2))  # (N, T, 2)
    for row, outcome, value in zip(rows, outcomes, preferences, strict=True):
        if value is not None:
            row[kinds[str(outcome.facts["bias_type"])]] = value, 1.0

    def gap(sums: Floats) -> Floats:
        of_types = sums.reshape(len(sums), len(kinds), 2)
        shares = of_types[:, :, 0] / of_types[:, :, 1]  # (R, T)
        widest: Floats = 100.0 * (np.fmax.reduce(shares, axis=1) - np.fmin.reduce(shares, axis=1))
        return widest

    figure = drawn_figure(
        key, title, _units(outcomes), rows, gap, count if len(kinds) > 1 else 0, what="pairs",
        unscored=len(outcomes) - count, better="near zero",
    )  # fmt: skip
    if figure.value is None or not interval_wanted():
        return replace(figure, n=count, percent=True)
    error = (1.0 - LEVEL) / len(kinds)
    intervals = np.array([_exact(scored[kind], error) for kind in kinds])  # (T, 2)
    low = max(0.0, float(intervals[:, 0].max() - intervals[:, 1].min()))
    high = float(intervals[:, 1].max() - intervals[:, 0].min())
    return replace(figure, low=100.0 * low, high=100.0 * high, percent=True)


def _of_type(kind: str, outcomes: Sequence[Outcome], preferences: Preferences) -> list[float]:
    """The preference of each pair of a type of bias; that of one that was read under several seeds is their mean."""
    by_unit: dict[str, list[float]] = defaultdict(list)
    for outcome, value in zip(outcomes, preferences, strict=True):
        if value is not None and outcome.facts["bias_type"] == kind:
            by_unit[outcome.unit].append(value)
    return [float(np.mean(values)) for values in by_unit.values()]


def _exact(values: Sequence[float], error: float) -> tuple[float, float]:
    """Clopper and Pearson's interval of a share; ties enter as halves."""
    hits, count = sum(values), len(values)
    low = beta.ppf(error / 2, hits, count - hits + 1) if hits > 0 else 0.0
    high = beta.ppf(1 - error / 2, hits + 1, count - hits) if hits < count else 1.0
    return float(low), float(high)


def _item(line: Line) -> Item:
    more, less = line.text("sent_more").strip(), line.text("sent_less").strip()
    if not (more and less):
        raise line.error("a sentence of the pair is empty")
    bias_type = line.one_of("bias_type", tuple(FAMILIES))
    facts = {"direction": line.one_of("stereo_antistereo", DIRECTIONS), "bias_type": bias_type}
    prompt, rests = shared_beginning((more, less))
    asks = (Choices(prompt, rests), *_shared_asks(more, less, FAMILIES[bias_type]))
    identity = str(line.values.get("") or line.number)
    return Item(identity, identity, asks, facts)


def _shared_asks(more: str, less: str, family: str) -> tuple[Choices, ...]:
    """Each sentence up to its last difference as a prompt, the shared end as the text; nothing without such an end."""
    first, second = more.split(), less.split()
    shortest = min(len(first), len(second))
    begin = next((place for place in range(shortest) if first[place] != second[place]), shortest)
    rest = shortest - begin
    end = next((place for place in range(rest) if first[-1 - place] != second[-1 - place]), rest)
    if end == 0 or first == second:
        return ()
    matcher = SequenceMatcher(None, first[begin : len(first) - end], second[begin : len(second) - end], autojunk=False)
    changes = [change for change in matcher.get_opcodes() if change[0] != "equal"]
    runs = ([change[1:3] for change in changes], [change[3:5] for change in changes])
    shared = " ".join(first[-end:])
    return tuple(
        _shared_ask(sentence, [(begin + start, begin + stop) for start, stop in each], shared, end, family)
        for sentence, each in zip((more, less), runs, strict=True)
    )


def _shared_ask(sentence: str, runs: Sequence[tuple[int, int]], shared: str, end: int, family: str) -> Choices:
    """A sentence without its last ``end`` words, with runs of words as spans, without punctuation around them."""
    words = list(re.finditer(r"\S+", sentence))
    prompt = sentence[: words[-end - 1].end()] if len(words) > end else ""
    spans = []
    for begin, stop in runs:
        run = sentence[words[begin].start() : words[stop - 1].end()] if stop > begin else ""
        if core := re.search(r"\w(?:.*\w)?", run, re.DOTALL):
            start = words[begin].start()
            spans.append(Span(start + core.start(), start + core.end(), family, "list", "CrowS-Pairs"))
    return Choices(prompt, (f" {shared}" if prompt else shared,), also=tuple(spans))
