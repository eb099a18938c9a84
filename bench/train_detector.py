"""Trains and exports the embedded span detector.

Run it with `python -m bench.train_detector --data DIR`, where DIR (or `COFT_DATA_DIR`) has the folders `ner`, `names`,
`corpus`, `crows_pairs` and `wikitext2`. Training takes the minutes given by `--minutes` (40 unless told) on one core,
reading and export another four, and the measurements for the model card a few minutes more. The best epoch on the
development texts is kept. With `--card-only` the pipeline in the folder is measured and its card written, nothing is
trained. The last line of the output is a JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import time
from pathlib import Path
from typing import Any

import spacy
from spacy.language import Language

from bench.detector.ambiguous import read_sentences
from bench.detector.card import write_card
from bench.detector.contextual import contextual_sentences
from bench.detector.corpora import read_corpora
from bench.detector.export import export
from bench.detector.families import NONE
from bench.detector.generated import generate, read_fillers, with_other_names
from bench.detector.labels import LABELS, Labelled, Labeller
from bench.detector.measure import measure_detector
from bench.detector.scoring import counts, summary
from bench.detector.stories import story_sentences
from bench.detector.temperature import fit_temperature, set_temperature
from bench.detector.training import (
    FAMILY_LABELS,
    Settings,
    add_families,
    build_pipeline,
    example,
    family_of_words,
    train,
)
from coft_core.text.pipeline import FAMILIES_PIPE

VERSION = "2.0.0"

GENERATED = 12_000
GENERATED_DEV = 600
CONTEXTS = 45_000
CONTEXTS_DEV = 1_500
STORIES = 10_000
PER_TERM = 250
WATCHED = 1_500


def arguments(values: list[str] | None = None) -> argparse.Namespace:
    """Parses the command line."""
    parser = argparse.ArgumentParser(description="Train and export the embedded span detector.")
    data = os.environ.get("COFT_DATA_DIR")
    parser.add_argument("--data", type=Path, default=data, required=data is None, help="folder with ner/ and names/")
    parser.add_argument("--out", type=Path, default=Path("assets/pipelines/en_coft_ner"), help="folder of the pipeline")
    parser.add_argument("--minutes", type=float, default=40.0, help="training time")
    parser.add_argument("--epochs", type=int, default=30, help="most epochs")
    parser.add_argument("--rate", type=float, default=0.001, help="learning rate")
    parser.add_argument("--start", type=Path, help="go on from the pipeline in this folder")
    parser.add_argument("--share", type=float, default=1.0, help="share of the corpora's training sentences")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--card-only", action="store_true", help="measure the pipeline in the folder, train nothing")
    parser.add_argument("--no-card", action="store_true", help="train only; measure and write the card later")
    return parser.parse_args(values)


def read_texts(data: Path, seed: int, share: float = 1.0) -> dict[str, list[Labelled]]:
    """Corpora, stories and generated sentences, by split; generated ones and stories have no test part."""
    labeller = Labeller()
    texts: dict[str, list[Labelled]] = {"train": [], "dev": [], "test": []}
    for sentence in read_corpora(data / "ner"):
        texts[sentence.split].append(labeller.label(sentence))
    fillers = read_fillers(data / "names")
    texts["train"] += with_other_names(texts["train"], fillers, seed)
    texts["train"] = random.Random(f"{seed} share").sample(texts["train"], round(share * len(texts["train"])))
    texts["train"] += generate(GENERATED, fillers, seed, "train")
    texts["dev"] += generate(GENERATED_DEV, fillers, seed, "dev")
    stories, families = story_sentences(data / "corpus", STORIES, PER_TERM, seed)
    texts = {split: [families.label(text) for text in labelled] for split, labelled in texts.items()}
    texts["train"] += stories
    texts["train"] += contextual_sentences(fillers, families, CONTEXTS, seed, "train")
    texts["dev"] += contextual_sentences(fillers, families, CONTEXTS_DEV, seed, "dev")
    return texts


def measure(nlp: Language, texts: list[Labelled]) -> dict[str, dict[str, Any]]:
    """Precision, recall and F1 of exact spans: all labels together, and each."""
    found = [
        [(span.start_char, span.end_char, span.label_) for span in document.ents]
        for document in nlp.pipe((text.text for text in texts), batch_size=256)
    ]
    rows = {label: [counts(t, f, label) for t, f in zip(texts, found, strict=True)] for label in LABELS}
    rows["all"] = [tuple(map(sum, zip(*row, strict=True))) for row in zip(*rows.values(), strict=True)]  # type: ignore[misc]
    return {label: summary(values) for label, values in rows.items()}


def families_f1(nlp: Language, texts: list[Labelled]) -> float:
    """F1 of single words whose family is known, over all families."""
    right = found = wanted = 0
    for text, document in zip(texts, nlp.pipe((text.text for text in texts), batch_size=256), strict=True):
        for token, label in zip(document, family_of_words(document, text), strict=True):
            if label and text.source != "stories":
                right += label != NONE and token.tag_ == label
                found += token.tag_ != NONE
                wanted += label != NONE
    return 2 * right / max(found + wanted, 1)


def train_pipeline(options: argparse.Namespace) -> dict[str, Any]:
    """Trains and exports the pipeline; returns what the training did."""
    started = time.monotonic()
    settings = Settings(minutes=options.minutes, epochs=options.epochs, rate=options.rate, seed=options.seed)
    texts = read_texts(options.data, options.seed, options.share)
    nlp = spacy.load(options.start) if options.start else build_pipeline(settings, "coft_ner", VERSION)
    nlp.meta["version"] = VERSION
    course = list(nlp.meta["training"]["course"]) if options.start else []
    done, spent = (course[-1]["epoch"], course[-1]["minutes"]) if course else (0, 0.0)
    examples = [example(nlp, text) for text in texts["train"]]
    if FAMILIES_PIPE not in nlp.pipe_names:
        add_families(nlp, settings.width)
        nlp.get_pipe(FAMILIES_PIPE).initialize(lambda: examples[:500], nlp=nlp, labels=FAMILY_LABELS)  # type: ignore[attr-defined]
    words = sum(len(item.reference) for item in examples)
    print(f"{len(examples)} texts, {words} words, ready after {time.monotonic() - started:.0f} s", flush=True)

    watched = random.Random(f"{options.seed} watched").sample(texts["dev"], min(WATCHED, len(texts["dev"])))

    def score(pipeline: Language) -> float:
        names = float(measure(pipeline, watched)["all"]["f1"]["value"])
        families = families_f1(pipeline, watched)
        print(json.dumps({"names": names, "families": families}), flush=True)
        return (names + families) / 2

    for stage in train(nlp, examples, settings, score, resume=options.start is not None):
        row = {**stage, "epoch": stage["epoch"] + done, "minutes": stage["minutes"] + spent}
        course.append(row)
        print(json.dumps(row), flush=True)
    temperature = fit_temperature(nlp, read_sentences("dev"))
    set_temperature(nlp, temperature)
    facts = {
        "settings": settings.to_dict(),
        "texts": len(examples),
        "words": words,
        "course": course,
        "temperature": round(temperature, 3),
        "dev": measure(nlp, texts["dev"]),
    }
    export(nlp, facts, options.out)
    return facts


def main(values: list[str] | None = None) -> None:
    """Trains, exports and measures as the command line says."""
    options = arguments(values)
    if options.card_only:
        facts = json.loads((options.out / "meta.json").read_text(encoding="utf-8"))["training"]
    else:
        facts = train_pipeline(options)
    if options.no_card:
        return
    measured = measure_detector(options.data, str(options.out))
    write_card(options.out, measured, {"generated": GENERATED, "contexts": CONTEXTS, "stories": STORIES})
    print(json.dumps({"dev": facts["dev"], "test": measured}))


if __name__ == "__main__":
    main()
