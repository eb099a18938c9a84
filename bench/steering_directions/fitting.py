"""Fitting directions of attention heads from labelled pairs of texts.

Li, Patel, Viegas, Pfister and Wattenberg, "Inference-Time Intervention: Eliciting Truthful Answers from a Language
Model", NeurIPS 2023, sections 3 and 4.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from coft_core.errors import InvalidInputError
from coft_core.model.branches import attached
from coft_core.model.language_model import LanguageModel
from coft_core.model.steering import AttachedHooks, Directions, head_geometry
from coft_core.text.tokens import require_encodable

HELD_OUT = 0.2
FEWEST_PAIRS = 10


@dataclass(frozen=True, slots=True)
class LabelledPair:
    """A text that the model is to be moved towards, e.g. a fair answer after its question, and the other one."""

    wanted: str
    unwanted: str


def fit_directions(model: LanguageModel, pairs: Sequence[LabelledPair], seed: int = 0) -> Directions:
    """Fit one direction a head: from the mean output on unwanted texts to that on wanted ones, at their last token.

    The paper finds this mass mean shift better than a probe's weights. A fifth of the pairs is held out; a head's
    accuracy there is the share of texts on the right side of the midpoint. The spread is that of all outputs of the
    other pairs along the direction.
    """
    if len(pairs) < FEWEST_PAIRS:
        raise InvalidInputError(f"There are {len(pairs)} labelled pairs; give at least {FEWEST_PAIRS}.")
    wanted = _outputs(model, [pair.wanted for pair in pairs])  # (P, L, H, W)
    unwanted = _outputs(model, [pair.unwanted for pair in pairs])  # (P, L, H, W)
    order = np.random.default_rng(seed).permutation(len(pairs))
    held = order[: max(2, round(HELD_OUT * len(pairs)))]
    own = order[len(held) :]
    up, down = wanted[own].mean(0), unwanted[own].mean(0)  # (L, H, W)
    length = np.linalg.norm(up - down, axis=-1, keepdims=True)
    vectors = (up - down) / np.maximum(length, 1e-12)  # (L, H, W)
    middle = ((up + down) / 2 * vectors).sum(-1)  # (L, H)
    both = np.concatenate([wanted[own], unwanted[own]])
    spreads = (both * vectors).sum(-1).std(0)  # (L, H)
    right = ((wanted[held] * vectors).sum(-1) > middle).mean(0) + ((unwanted[held] * vectors).sum(-1) < middle).mean(0)
    layers, heads = np.meshgrid(*(np.arange(size) for size in spreads.shape), indexing="ij")
    return Directions(
        model=model.name,
        weights=(model.weights_digest,),
        layers=layers.ravel().astype(np.int64),
        heads=heads.ravel().astype(np.int64),
        vectors=vectors.reshape(-1, vectors.shape[-1]).astype(np.float32),
        spreads=spreads.ravel().astype(np.float32),
        accuracies=(right / 2).ravel().astype(np.float32),
        pairs=len(pairs),
    )


@torch.inference_mode()
def _outputs(model: LanguageModel, texts: Sequence[str]) -> npt.NDArray[np.float64]:
    """Outputs of every head at the last token of each text, ``(P, L, H, W)``."""
    geometry = head_geometry(model.module)
    seen: list[Tensor] = []

    def watching(module: Any) -> AttachedHooks:
        handles = AttachedHooks()
        for projection in geometry.projections:
            handles.callback(
                projection.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0][0, -1])).remove
            )
        return handles

    rows = []
    for text in texts:
        require_encodable(text, "A labelled text")
        ids = model.tokenizer.encode(text)
        if not ids:
            raise InvalidInputError("A labelled text is empty; give at least one word each.")
        if len(ids) > model.context_length:
            raise InvalidInputError(
                f"A labelled text has {len(ids):,} tokens and the model takes {model.context_length:,}; shorten it: "
                f"{text[:60]!r}."
            )
        seen.clear()
        with attached(model.module, (watching,)):
            model.module(input_ids=torch.tensor([ids], device=model.device), use_cache=False)
        rows.append(torch.stack(seen).double().cpu().view(geometry.layers, geometry.heads, geometry.width).numpy())
    return np.stack(rows)
