"""Writes the trained pipeline without the words of the training texts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from spacy.language import Language
from spacy.util import load_model_from_config

from bench.detector.sources import SOURCES

LICENCE = "CC BY-SA 4.0"


def export(nlp: Language, facts: dict[str, Any], out: Path) -> None:
    """Write the pipeline.

    Training leaves every word of the texts in the vocabulary, which the hashed encoder does not need: the weights
    are put into a pipeline with an empty vocabulary first.
    """
    packed = load_model_from_config(nlp.config, meta={"name": nlp.meta["name"], "version": nlp.meta["version"]})
    packed.from_bytes(nlp.to_bytes(exclude=["vocab", "meta.json"]), exclude=["vocab", "meta.json"])
    packed.meta.update(
        description="People, groups, places, and words that name or reveal an attribute in context, for COFT Audit.",
        license=LICENCE,
        sources=[source.to_dict() for source in SOURCES],
        training=facts,
    )
    packed.to_disk(out)
