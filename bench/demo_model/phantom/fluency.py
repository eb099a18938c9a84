"""Loss on held-out documents, with intervals over documents."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench.demo_model.corpus import read_sources
from bench.demo_model.evaluate import token_losses
from bench.demo_model.phantom.intervals import bootstrap, perplexity
from bench.demo_model.tokenizer import CONTEXT_LENGTH, END_ID
from coft_core import LanguageModel


def fluency_figures(model: LanguageModel, texts: Sequence[str]) -> dict[str, Any]:
    """Perplexity per token and nats per character; a document longer than the context is cut."""
    encoded = model.tokenizer(list(texts), add_special_tokens=False, verbose=False)["input_ids"]
    rows = [[*ids, END_ID][:CONTEXT_LENGTH] for ids in encoded]
    order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
    losses = token_losses(model.module, [rows[i] for i in order])
    nats = np.array([float(loss.sum()) for loss in losses])
    tokens = np.array([float(len(loss)) for loss in losses])
    characters = np.array([float(len(model.tokenizer.decode(rows[i], skip_special_tokens=True))) for i in order])
    return {
        "perplexity": perplexity(np.stack([nats, tokens]), "documents"),
        "nats_per_character": bootstrap(
            np.stack([nats, characters]), "documents", lambda sample: sample[0].sum(-1) / sample[1].sum(-1)
        ),
        "tokens": int(tokens.sum()),
    }


def story_figures(model: LanguageModel, data: Path, split_seed: int, documents: int, seed: int) -> dict[str, Any]:
    """Loss on the held-out documents of every story corpus."""
    rng = random.Random(f"documents-{seed}")
    figures = {}
    for source in read_sources(data, split_seed):
        chosen = rng.sample(source.held_out, min(documents, len(source.held_out)))
        figures[source.name] = fluency_figures(model, chosen)
    return figures
