"""Everything that is measured of the detector: alone, and beside the lexicons."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from itertools import starmap
from pathlib import Path
from typing import Any

from bench.detector.ambiguous import measure_scores, measure_sentences, read_sentences
from bench.detector.corpora import read_corpora
from bench.detector.crows import measure_pairs
from bench.detector.labels import GROUP, GROUP_DETAILS, LABELS, PERSON, PLACE, Labelled, Labeller
from bench.detector.scoring import WORD, Entities, Share, counts, summary, touches, word_counts
from coft_core.text.detection import SpanDetector
from coft_core.text.pipeline import EntityPipeline
from coft_core.types import Span

PARAGRAPHS = 1_500

Find = Callable[[str], Entities]


def measure_detector(data: Path, pipeline: str) -> dict[str, Any]:
    """Measure a pipeline, the lexicons and both together."""
    started = time.process_time()
    entities = EntityPipeline(pipeline)
    load = time.process_time() - started
    lexicon, both = SpanDetector(pipeline=None), SpanDetector(pipeline=pipeline)
    sentences = read_sentences("test")
    systems: dict[str, Find] = {
        "lexicon": lambda text: labelled_spans(lexicon.detect(text)),
        "pipeline": lambda text: [(e.start, e.end, e.label) for e in entities.read(text).entities if e.label in LABELS],
        "both": lambda text: labelled_spans(both.detect(text)),
    }
    detectors = {"lexicon": lexicon.detect, "both": both.detect}
    pairs = data / "crows_pairs" / "crows_pairs_anonymized.csv"
    return {
        "version": both.version,
        "load_seconds": round(load, 2),
        "ner": measure_corpora(data / "ner", systems),
        "crows_pairs": {name: measure_pairs(pairs, detect) for name, detect in detectors.items()},
        "ambiguous": {name: measure_sentences(detect, sentences) for name, detect in detectors.items()},
        "scores": measure_scores(entities, sentences) if entities.judges else None,
        "ordinary_text": measure_text(data / "wikitext2" / "wiki.test.raw", detectors),
    }


def labelled_spans(spans: Sequence[Span]) -> list[tuple[int, int, str]]:
    """The detector's spans as entities; families without a label of the corpora are left out."""
    entities = []
    for span in spans:
        label = _pipeline_label(span) if span.source == "pipeline" else _lexicon_label(span)
        if label:
            entities.append((span.start, span.end, label))
    return entities


def measure_corpora(folder: Path, systems: dict[str, Find]) -> dict[str, Any]:
    """Exact spans and single words on the test parts, for all corpora together and for each."""
    labeller = Labeller()
    texts = [labeller.label(sentence) for sentence in read_corpora(folder) if sentence.split == "test"]
    found = {name: [find(text.text) for text in texts] for name, find in systems.items()}
    result: dict[str, Any] = {}
    for source in ["all", *sorted({text.source for text in texts})]:
        chosen = [i for i, text in enumerate(texts) if source in ("all", text.source)]
        result[source] = {
            name: {label: _scores([texts[i] for i in chosen], [spans[i] for i in chosen], label) for label in LABELS}
            for name, spans in found.items()
        }
    return result


def measure_text(path: Path, detectors: Mapping[str, Callable[[str], list[Span]]]) -> dict[str, Any]:
    """Share of words marked and masked in the first paragraphs of articles, and words per second of processor time."""
    lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines() if line.strip()][:PARAGRAPHS]
    words = [list(WORD.finditer(line)) for line in lines]
    result = {}
    for name, detect in detectors.items():
        started = time.process_time()
        found = [detect(line) for line in lines]
        seconds = time.process_time() - started
        shares = {}
        for measure, chosen in (("flagged", lambda span: True), ("masked", lambda span: span.masked)):
            ranges = [[(span.start, span.end) for span in spans if chosen(span)] for spans in found]
            hits = sum(sum(touches(word, row) for word in line) for line, row in zip(words, ranges, strict=True))
            shares[measure] = Share(hits, sum(map(len, words))).to_dict()
        result[name] = {**shares, "words_per_second": round(sum(map(len, words)) / seconds)}
    return result


def _scores(texts: Sequence[Labelled], found: Sequence[Entities], label: str) -> dict[str, Any]:
    cases = [(text, spans, label) for text, spans in zip(texts, found, strict=True)]
    return {"spans": summary(list(starmap(counts, cases))), "words": summary(list(starmap(word_counts, cases)))}


def _pipeline_label(span: Span) -> str:
    """The label of the corpora; families that the pipeline finds by words alone have none."""
    return span.detail if span.detail in LABELS else ""


def _lexicon_label(span: Span) -> str:
    if span.category == "name":
        return PERSON
    if span.detail in GROUP_DETAILS:
        return GROUP
    return PLACE if span.detail == "countries" else ""
