"""How well a model foresees whole texts, and what a change of it costs, paired by text."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from torch.nn import functional

from bench.batching import batches
from bench.demo_model.phantom.intervals import Figure, bootstrap
from coft_core import LanguageModel
from coft_core.model.branches import Hook, attached
from coft_core.model.forced import teacher_forced_logits

Array = npt.NDArray[np.float64]

TOKEN_BUDGET = 4096


def document_losses(model: LanguageModel, texts: Sequence[str], hooks: Sequence[Hook] = ()) -> Array:
    """Cross-entropy of every text and the number of tokens that it is the sum over, shape (2, n).

    The first token is given. A text longer than the context is cut; one of a single token has no loss and is left out.
    """
    rows = [model.tokenizer.encode(text)[: model.context_length - 1] for text in texts]
    rows = [row for row in rows if len(row) > 1]
    found = np.zeros((2, len(rows)))
    with attached(model.module, hooks):
        for part in batches([len(row) for row in rows], TOKEN_BUDGET):
            logits = teacher_forced_logits(model, [(rows[i][:1], rows[i][1:]) for i in part])
            for i, given in zip(part, logits, strict=True):
                loss = functional.cross_entropy(given.float(), given.new_tensor(rows[i][1:]).long(), reduction="sum")
                found[:, i] = float(loss), len(rows[i]) - 1
    return found


def perplexity_ratio(before: Array, after: Array, unit: str = "texts") -> Figure:
    """Perplexity after a change over that before it, on the same texts, with its interval over texts."""
    rows = np.stack([after[0] - before[0], before[1]])  # (2, n)
    return bootstrap(rows, unit, lambda drawn: np.exp(drawn[0].sum(-1) / drawn[1].sum(-1)))
