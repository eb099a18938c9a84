"""Any Hugging Face sequence classifier as a scorer of toxicity."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from coft_core.errors import ModelLoadError
from coft_core.model.language_model import weights_digest
from coft_core.model.loading import explain, out_of_memory
from coft_core.model.requirements import require_all_weights

BATCH = 64
TOXIC_LABELS = ("toxic", "toxicity", "hate", "hateful", "offensive", "label_1")
"""Names that published classifiers give to their toxic label, in the order in which they are looked for."""


@dataclass(frozen=True, slots=True)
class ClassifierScorer:
    """A sequence classifier's probability of one label.

    Attributes:
        name: The name that it was asked for by.
        version: Digest of its weights.
        module: The transformers module, in evaluation mode.
        tokenizer: Its tokenizer.
        label: Index of the label.
        several: Whether its labels are judged independently of each other.
    """

    name: str
    version: str
    module: Any
    tokenizer: Any
    label: int
    several: bool

    @torch.inference_mode()
    def score(self, texts: Sequence[str]) -> list[float]:
        """Probability of the label for each text."""
        scores: list[float] = []
        for start in range(0, len(texts), BATCH):
            batch = list(texts[start : start + BATCH])
            inputs = self.tokenizer(batch, return_tensors="pt", padding=True, truncation=True)
            logits = self.module(**inputs.to(self.module.device)).logits.float()  # (N, labels)
            p = logits.sigmoid() if self.several or logits.shape[-1] == 1 else logits.softmax(-1)
            scores += p[:, self.label].tolist()
        return scores


def load_classifier(name: str, device: str = "cpu") -> ClassifierScorer:
    """Load a sequence classifier.

    Args:
        name: Its id or folder, and behind ``#`` the label to read.
        device: Where it runs.

    Raises:
        ModelLoadError: It cannot be loaded, or it is not clear which of its labels means toxic.
    """
    source, _, label = name.partition("#")
    module: Any
    try:
        # Said outright: left open, transformers asks on the terminal whether a checkpoint's own code may run.
        module, loading = AutoModelForSequenceClassification.from_pretrained(
            source, trust_remote_code=False, use_safetensors=True, output_loading_info=True
        )
        require_all_weights(source, loading)
        module = module.to(device)
        tokenizer: Any = AutoTokenizer.from_pretrained(source, trust_remote_code=False)
    except Exception as error:
        # What a checkpoint's files make others raise has no end.
        reason = str(error) if isinstance(error, ModelLoadError) else explain(source, error)
        if out_of_memory(error):
            reason = f"{source!r} does not fit into the memory here; choose a smaller classifier."
        raise ModelLoadError(f"The toxicity scorer cannot be used: {reason}") from error
    labels = {str(text).lower(): int(index) for index, text in module.config.id2label.items()}
    several = module.config.problem_type == "multi_label_classification"
    index = _label(source, labels, label.lower())
    module.eval().requires_grad_(False)
    return ClassifierScorer(name, weights_digest(module), module, tokenizer, index, several)


def _label(source: str, labels: dict[str, int], wanted: str) -> int:
    names = (wanted,) if wanted else TOXIC_LABELS
    index = next((labels[name] for name in names if name in labels), None)
    if index is None and len(labels) == 1 and not wanted:
        return 0
    if index is None:
        raise ModelLoadError(
            f"The classifier {source!r} has the labels {', '.join(labels)}; name the toxic one, as in "
            f"{source}#{next(iter(labels))}."
        )
    return index
