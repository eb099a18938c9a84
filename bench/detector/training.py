"""The detector's pipeline: one convolutional encoder of hashed words, read by two components.

``ner`` is a transition-based entity parser. ``families`` gives every word the probability of each attribute family.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass

import spacy
from spacy.language import Language
from spacy.tokens import Doc, Span
from spacy.training import Example
from spacy.util import fix_random_seed  # type: ignore[attr-defined]

from bench.detector.families import NONE
from bench.detector.labels import LABELS, Labelled
from coft_core.text.pipeline import FAMILIES_PIPE
from coft_core.types import FAMILIES

FAMILY_LABELS = (NONE, *(family.upper() for family in FAMILIES))


@dataclass(frozen=True, slots=True)
class Settings:
    """Size and course of a training."""

    width: int = 96
    depth: int = 4
    rows: int = 5000
    hidden: int = 64
    dropout: float = 0.3
    batch_words: int = 1500
    rate: float = 0.001
    minutes: float = 25.0
    epochs: int = 30
    seed: int = 0

    def to_dict(self) -> dict[str, float]:
        """Plain dictionary."""
        return asdict(self)


def build_pipeline(settings: Settings, name: str, version: str) -> Language:
    """An untrained pipeline."""
    fix_random_seed(settings.seed)
    nlp = spacy.blank("en", meta={"name": name, "version": version})
    encoder = {
        "@architectures": "spacy.HashEmbedCNN.v2", "pretrained_vectors": None, "width": settings.width,
        "depth": settings.depth, "embed_size": settings.rows, "window_size": 1, "maxout_pieces": 3,
        "subword_features": True,
    }  # fmt: skip
    nlp.add_pipe("tok2vec", config={"model": encoder})
    listener = {"@architectures": "spacy.Tok2VecListener.v1", "width": settings.width, "upstream": "tok2vec"}
    parser = {
        "@architectures": "spacy.TransitionBasedParser.v2", "state_type": "ner", "extra_state_tokens": False,
        "hidden_width": settings.hidden, "maxout_pieces": 2, "use_upper": True, "nO": None, "tok2vec": listener,
    }  # fmt: skip
    recogniser = nlp.add_pipe("ner", config={"model": parser})
    for label in LABELS:
        recogniser.add_label(label)  # type: ignore[attr-defined]
    add_families(nlp, settings.width)
    return nlp


def add_families(nlp: Language, width: int) -> None:
    """Add the component that classifies words, not yet initialised."""
    listener = {"@architectures": "spacy.Tok2VecListener.v1", "width": width, "upstream": "tok2vec"}
    model = {"@architectures": "spacy.Tagger.v2", "nO": None, "normalize": True, "tok2vec": listener}
    classifier = nlp.add_pipe("tagger", name=FAMILIES_PIPE, config={"model": model, "label_smoothing": 0.02})
    for label in FAMILY_LABELS:
        classifier.add_label(label)  # type: ignore[attr-defined]


def example(nlp: Language, labelled: Labelled) -> Example:
    """What the pipeline reads and should find; words that labels cut through have no label."""
    reference = nlp.make_doc(labelled.text)
    entities, unknown = list[Span](), set[int]()
    for start, end, label in labelled.entities:
        span = reference.char_span(start, end, label=label)
        if span is None:
            unknown |= _touched(reference, start, end)
        else:
            entities.append(span)
    for start, end in labelled.unknown:
        unknown |= _touched(reference, start, end)
    for token, label in zip(reference, family_of_words(reference, labelled), strict=True):
        token.tag_ = label
    taken = {index for span in entities for index in range(span.start, span.end)}
    missing = [reference[index : index + 1] for index in sorted(unknown - taken)]
    reference.set_ents(entities, missing=missing, default="outside")
    return Example(nlp.make_doc(labelled.text), reference)


def family_of_words(document: Doc, labelled: Labelled) -> list[str]:
    """The family of each word: :data:`FAMILY_LABELS`, empty where it is not known."""
    labels = [NONE] * len(document)
    for start, end in labelled.undecided:
        for index in _touched(document, start, end):
            labels[index] = ""
    for start, end, family in labelled.families:
        for index in _touched(document, start, end):
            labels[index] = family
    return labels


def _touched(document: Doc, start: int, end: int) -> set[int]:
    return {token.i for token in document if token.idx < end and start < token.idx + len(token)}


def train(
    nlp: Language,
    examples: Sequence[Example],
    settings: Settings,
    score: Callable[[Language], float],
    resume: bool = False,
) -> Iterator[dict[str, float]]:
    """Train until the time or the epochs are over; the weights of the best epoch stay."""
    started, rng = time.monotonic(), random.Random(settings.seed)
    if resume and not nlp.get_pipe(FAMILIES_PIPE).labels:  # type: ignore[attr-defined]
        raise ValueError("the pipeline to go on from has no families; add them first")
    optimizer = nlp.resume_training() if resume else nlp.initialize(lambda: examples[:2000])
    optimizer.learn_rate = settings.rate
    best, kept = -1.0, b""
    for epoch in range(1, settings.epochs + 1):
        losses: dict[str, float] = {}
        shuffled = rng.sample(list(examples), len(examples))
        out_of_time = False
        for batch in _batches(shuffled, settings.batch_words):
            nlp.update(batch, drop=settings.dropout, sgd=optimizer, losses=losses)
            if out_of_time := time.monotonic() - started > 60 * settings.minutes:
                break
        with nlp.use_params(optimizer.averages):
            value = score(nlp)
            if value > best:
                best, kept = value, nlp.to_bytes(exclude=["vocab"])
        minutes = (time.monotonic() - started) / 60
        yield {
            "epoch": epoch,
            "loss": float(losses["ner"]),
            "families_loss": float(losses[FAMILIES_PIPE]),
            "score": value,
            "minutes": minutes,
        }
        if out_of_time:
            break
    nlp.from_bytes(kept, exclude=["vocab"])


def _batches(examples: Sequence[Example], words: int) -> Iterator[list[Example]]:
    batch, size = list[Example](), 0
    for item in examples:
        batch.append(item)
        size += len(item.reference)
        if size >= words:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
