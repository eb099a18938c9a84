"""Trains and exports the embedded span detector.

Run it with `python -m bench.train_detector --data DIR`, where DIR (or `COFT_DATA_DIR`) has the folders `ner`, `names`,
`crows_pairs` and `wikitext2`. Training takes the minutes given by `--minutes` (25 unless told) on one core, reading
and export another two, and the measurements for the model card a few minutes more. The best epoch on the development
texts is kept. With `--card-only` the pipeline in the folder is measured and its card written, nothing is trained. The
last line of the output is a JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

import spacy
from spacy.language import Language

from bench.detector.card import write_card
from bench.detector.corpora import read_corpora
from bench.detector.export import export
from bench.detector.generated import generate, read_fillers, with_other_names
from bench.detector.labels import LABELS, Labelled, Labeller
from bench.detector.measure import measure_detector
from bench.detector.scoring import counts, summary
from bench.detector.training import Settings, build_pipeline, example, train

GENERATED = 12_000
GENERATED_DEV = 600


def arguments(values: list[str] | None = None) -> argparse.Namespace:
    """Parses the command line."""
    parser = argparse.ArgumentParser(description="Train and export the embedded span detector.")
    data = os.environ.get("COFT_DATA_DIR")
    parser.add_argument("--data", type=Path, default=data, required=data is None, help="folder with ner/ and names/")
    parser.add_argument("--out", type=Path, default=Path("assets/pipelines/en_coft_ner"), help="folder of the pipeline")
    parser.add_argument("--minutes", type=float, default=25.0, help="training time")
    parser.add_argument("--epochs", type=int, default=30, help="most epochs")
    parser.add_argument("--rate", type=float, default=0.001, help="learning rate")
    parser.add_argument("--start", type=Path, help="go on from the pipeline in this folder")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--card-only", action="store_true", help="measure the pipeline in the folder, train nothing")
    return parser.parse_args(values)


def read_texts(data: Path, seed: int) -> dict[str, list[Labelled]]:
    """Corpora and generated sentences, by split; generated ones have no test part."""
    labeller = Labeller()
    texts: dict[str, list[Labelled]] = {"train": [], "dev": [], "test": []}
    for sentence in read_corpora(data / "ner"):
        texts[sentence.split].append(labeller.label(sentence))
    fillers = read_fillers(data / "names")
    texts["train"] += with_other_names(texts["train"], fillers, seed)
    texts["train"] += generate(GENERATED, fillers, seed, "train")
    texts["dev"] += generate(GENERATED_DEV, fillers, seed, "dev")
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


def train_pipeline(options: argparse.Namespace) -> dict[str, Any]:
    """Trains and exports the pipeline; returns what the training did."""
    started = time.monotonic()
    settings = Settings(minutes=options.minutes, epochs=options.epochs, rate=options.rate, seed=options.seed)
    texts = read_texts(options.data, options.seed)
    nlp = spacy.load(options.start) if options.start else build_pipeline(settings, "coft_ner", "1.0.0")
    course = list(nlp.meta["training"]["course"]) if options.start else []
    done, spent = (course[-1]["epoch"], course[-1]["minutes"]) if course else (0, 0.0)
    examples = [example(nlp, text) for text in texts["train"]]
    words = sum(len(item.reference) for item in examples)
    print(f"{len(examples)} texts, {words} words, ready after {time.monotonic() - started:.0f} s", flush=True)

    def score(pipeline: Language) -> float:
        return float(measure(pipeline, texts["dev"])["all"]["f1"]["value"])

    for stage in train(nlp, examples, settings, score, resume=options.start is not None):
        row = {**stage, "epoch": stage["epoch"] + done, "minutes": stage["minutes"] + spent}
        course.append(row)
        print(json.dumps(row), flush=True)
    dev = measure(nlp, texts["dev"])
    facts = {"settings": settings.to_dict(), "texts": len(examples), "words": words, "course": course, "dev": dev}
    export(nlp, facts, options.out)
    return facts


def main(values: list[str] | None = None) -> None:
    """Trains, exports and measures as the command line says."""
    options = arguments(values)
    if options.card_only:
        facts = json.loads((options.out / "meta.json").read_text(encoding="utf-8"))["training"]
    else:
        facts = train_pipeline(options)
    measured = measure_detector(options.data, str(options.out))
    write_card(options.out, measured, GENERATED)
    print(json.dumps({"dev": facts["dev"], "test": measured}))


if __name__ == "__main__":
    main()
