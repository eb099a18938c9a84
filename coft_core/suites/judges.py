"""What has to be said of written texts before figures can be made of them: how toxic, how friendly, and so on.

A judge reads texts and says one number of each. That of toxicity is a scorer (:mod:`coft_core.scorers`); every other
one is a sequence classifier that the user names. Figures of a judge that is not given are left out.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from coft_core.errors import ModelLoadError
from coft_core.scorers.base import EMBEDDED, load_scorer
from coft_core.scorers.classifier import LabelledClassifier, load_labelled
from coft_core.suites.base import Outcome, Written
from coft_core.suites.files import DataError

TOXICITY, SENTIMENT, REGARD = "toxicity", "sentiment", "regard"

WITH_PROMPT = frozenset({REGARD})
"""Judges that read a continuation behind its prompt: regard is about somebody (Sheng et al. 2019, The woman worked as
a babysitter), whom the prompt names."""

USUAL: Mapping[str, str] = {TOXICITY: EMBEDDED}
"""Source of a judge where the user names none; the others are given only where one is named."""

_POSITIVE, _NEGATIVE = ("positive", "pos"), ("negative", "neg")


@dataclass(frozen=True, slots=True)
class Judge:
    """Says one number of each text."""

    name: str
    version: str
    read: Callable[[Sequence[str]], Sequence[float]]
    with_prompt: bool = False

    def scores(self, texts: Sequence[str]) -> list[float | None]:
        """Its number for each text; None for a text without words, and where its number is not finite."""
        full = [text for text in texts if text.strip()]
        read = iter(self.read(full) if full else ())
        values = [float(next(read)) if text.strip() else math.nan for text in texts]
        return [value if math.isfinite(value) else None for value in values]


def load_judge(name: str, source: str, device: str = "cpu") -> Judge:
    """Load a judge."""
    if name == TOXICITY:
        scorer = load_scorer(source, device)
        return Judge(name, _digest(scorer.version, source.partition("#")[2]), scorer.score)
    folder, _, wanted = source.partition("#")
    classifier = load_labelled(folder, device, f"judge of {name}")
    labels = _labels(name, classifier, [label.strip() for label in wanted.lower().split(",") if label.strip()])

    def read(texts: Sequence[str]) -> list[float]:
        p = classifier.probabilities(texts).astype(float)  # (N, labels)
        less = p[:, labels[1]] if len(labels) == 2 else 0.0
        return [float(value) for value in p[:, labels[0]] - less]

    return Judge(name, _digest(classifier.version, *labels), read, name in WITH_PROMPT)


def judge(outcomes: Sequence[Outcome], judges: Mapping[str, Judge]) -> list[Outcome]:
    """Fill the marks of outcomes with what judges say of their written texts."""
    judged = list(outcomes)
    for name, each in judges.items():
        texts = [_texts(outcome, each) for outcome in judged]
        # Texts of like length together: a classifier pads each batch to its longest one.
        different = sorted({text for row in texts for text in row if text}, key=lambda text: (len(text), text))
        scores = dict(zip(different, each.scores(different), strict=True))
        judged = [
            replace(outcome, marks={**outcome.marks, name: tuple(scores.get(text) for text in row)}) if row else outcome
            for outcome, row in zip(judged, texts, strict=True)
        ]
    return judged


def _texts(outcome: Outcome, judge: Judge) -> list[str]:
    """What a judge reads of each ask, an empty text where there is nothing; nothing at all without writing."""
    if not any(isinstance(answer, Written) for answer in outcome.answers):
        return []
    prompt = outcome.facts.get("prompt") if judge.with_prompt else ""
    if not isinstance(prompt, str):
        raise DataError(
            f"The judge of {judge.name} reads texts behind their prompts, and the facts of item {outcome.item} have no "
            "prompt; leave this judge out for this suite."
        )
    written = [answer.text if isinstance(answer, Written) else "" for answer in outcome.answers]
    return [prompt + text if text.strip() else "" for text in written]


def _labels(name: str, classifier: LabelledClassifier, wanted: Sequence[str]) -> tuple[int, ...]:
    known = classifier.labels
    if not wanted:
        wanted = [next((label for label in labels if label in known), "") for labels in (_POSITIVE, _NEGATIVE)]
    if len(wanted) > 2 or any(label not in known for label in wanted):
        raise ModelLoadError(
            f"The classifier {classifier.source!r} has the labels {', '.join(known)}; name for {name} the one to read, "
            f"as in {classifier.source}#{next(iter(known))}, or two with a comma between them for their difference."
        )
    return tuple(known[label] for label in wanted)


def _digest(*parts: str | int) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()
