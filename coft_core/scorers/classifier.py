"""Any Hugging Face sequence classifier as a scorer of toxicity, or of what else its labels say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from coft_core.errors import ModelLoadError
from coft_core.model.language_model import weights_digest
from coft_core.model.load import model_source
from coft_core.model.loading import explain, out_of_memory
from coft_core.model.requirements import require_all_weights

BATCH = 64
TOXIC_LABELS = ("toxic", "toxicity", "hate", "hateful", "offensive", "label_1")
"""Names that published classifiers give to their toxic label, in the order in which they are looked for."""


@dataclass(frozen=True, slots=True)
class LabelledClassifier:
    """A sequence classifier with the names of its labels."""

    source: str
    version: str
    module: Any
    tokenizer: Any
    labels: Mapping[str, int]
    several: bool

    @torch.inference_mode()
    def probabilities(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """Probability of each label for each text, ``(N, labels)``."""
        batches = [np.empty((0, len(self.labels)), np.float32)]
        # Without a token to pad with, texts of several lengths cannot be read at once.
        pads = self.tokenizer.pad_token is not None
        size = BATCH if pads else 1
        for start in range(0, len(texts), size):
            batch = list(texts[start : start + size])
            inputs = self.tokenizer(batch, return_tensors="pt", padding=pads, truncation=True)
            logits = self.module(**inputs.to(self.module.device)).logits.float()  # (N, labels)
            p = logits.sigmoid() if self.several or logits.shape[-1] == 1 else logits.softmax(-1)
            batches.append(p.cpu().numpy())
        return np.concatenate(batches)


@dataclass(frozen=True, slots=True)
class ClassifierScorer:
    """A sequence classifier's probability of one label."""

    name: str
    classifier: LabelledClassifier
    label: int

    @property
    def version(self) -> str:
        """Digest of its weights."""
        return self.classifier.version

    def score(self, texts: Sequence[str]) -> list[float]:
        """Probability of the label for each text."""
        return [float(p) for p in self.classifier.probabilities(texts)[:, self.label]]


def load_classifier(name: str, device: str = "cpu") -> ClassifierScorer:
    """Load a sequence classifier that says how toxic texts are."""
    source, _, label = name.partition("#")
    classifier = load_labelled(source, device, "toxicity scorer")
    return ClassifierScorer(name, classifier, _label(classifier, label.lower()))


def load_labelled(source: str, device: str, role: str) -> LabelledClassifier:
    """Load a sequence classifier with all its labels."""
    module: Any
    try:
        found = model_source(source)
        # Said outright: left open, transformers asks on the terminal whether a checkpoint's own code may run.
        module, loading = AutoModelForSequenceClassification.from_pretrained(
            found, trust_remote_code=False, use_safetensors=True, output_loading_info=True
        )
        require_all_weights(source, loading)
        module = module.to(device)
        tokenizer: Any = AutoTokenizer.from_pretrained(found, trust_remote_code=False)
    except Exception as error:
        # What a checkpoint's files make others raise has no end.
        reason = str(error) if isinstance(error, ModelLoadError) else explain(source, error)
        if out_of_memory(error):
            reason = f"{source!r} does not fit into the memory here; choose a smaller classifier."
        raise ModelLoadError(f"The {role} cannot be used: {reason}") from error
    labels = {str(text).lower(): int(index) for index, text in module.config.id2label.items()}
    several = module.config.problem_type == "multi_label_classification"
    module.eval().requires_grad_(False)
    return LabelledClassifier(source, weights_digest(module), module, tokenizer, labels, several)


def _label(classifier: LabelledClassifier, wanted: str) -> int:
    labels = classifier.labels
    names = (wanted,) if wanted else TOXIC_LABELS
    index = next((labels[name] for name in names if name in labels), None)
    if index is None and len(labels) == 1 and not wanted:
        return 0
    if index is None:
        raise ModelLoadError(
            f"The classifier {classifier.source!r} has the labels {', '.join(labels)}; name the toxic one, as in "
            f"{classifier.source}#{next(iter(labels))}."
        )
    return index
