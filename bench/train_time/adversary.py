"""The adversarial head: an adversary reads the attribute off the logits, and its reversed gradient trains the head.

Ganin et al., "Domain-Adversarial Training of Neural Networks", JMLR 2016. The paper names no adversary and no labels;
what is chosen here is said with each part.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from bench.train_time.texts import MarkedText
from bench.train_time.training import UNLABELLED, Document, Part, encode, language_loss
from coft_core import LanguageModel

CLASSES = 64
WIDTH = 64
STEEPNESS = 10.0


class _Reversal(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, strength: float) -> Tensor:
        ctx.strength = strength
        return values.view_as(values)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return -ctx.strength * gradients[0], None


def reverse_gradient(values: Tensor, strength: float) -> Tensor:
    """The values themselves, whose gradient is multiplied by minus the strength on its way back."""
    reversed_: Tensor = _Reversal.apply(values, strength)  # type: ignore[no-untyped-call]
    return reversed_


def ramp(progress: float) -> float:
    """How much of the full strength the reversal has, from 0 at the start towards 1 at the end (Ganin et al.)."""
    return 2.0 / (1.0 + math.exp(-STEEPNESS * progress)) - 1.0


class Adversary(nn.Module):
    """Reads the class of the newest sensitive span off the logits at a token: two layers, 64 units between them."""

    def __init__(self, vocabulary: int, classes: int) -> None:
        """Random weights."""
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(vocabulary, WIDTH), nn.ReLU(), nn.Linear(WIDTH, classes))

    def forward(self, logits: Tensor) -> Tensor:
        """Scores of the classes, ``(N, K)``, from logits ``(N, V)``; what all tokens have in common says nothing."""
        scores: Tensor = self.layers(logits - logits.mean(-1, keepdim=True))
        return scores


@dataclass
class AdversarialObjective:
    """The language-model loss, and the adversary's loss behind the reversal."""

    module: Any
    adversary: Adversary
    strength: float
    right: tuple[int, int] = (0, 0)

    def __call__(self, part: Part) -> Tensor:
        """Both losses of a part, each its share in the batch's mean."""
        logits = self.module(input_ids=part.ids, use_cache=False).logits  # (R, L, V)
        loss = language_loss(logits, part)
        labelled = part.labels != UNLABELLED  # (R, L)
        if not bool(labelled.any()):
            return loss
        wanted = part.labels[labelled]  # (N,)
        scores = self.adversary(reverse_gradient(logits[labelled].float(), self.strength * ramp(part.progress)))
        self.right = (self.right[0] + int((scores.argmax(-1) == wanted).sum()), self.right[1] + len(wanted))
        return loss + functional.cross_entropy(scores, wanted, reduction="sum") / part.labelled

    def take_accuracy(self) -> float:
        """The adversary's accuracy since this was last asked."""
        (right, of), self.right = self.right, (0, 0)
        return right / max(of, 1)


def frequent_terms(texts: Sequence[MarkedText], most: int = CLASSES) -> tuple[str, ...]:
    """The proxy's classes: the most frequent sensitive words that the detector finds, in lower case."""
    counted = Counter(item.text[span.start : span.end].lower() for item in texts for span in item.masked)
    return tuple(sorted(term for term, _ in counted.most_common(most)))


def label(model: LanguageModel, item: MarkedText, classes: Sequence[str]) -> Document | None:
    """Tokenizes a text; from the end of each sensitive span to the next one, tokens have the span's class."""
    document = encode(model, item.text)
    if document is None:
        return None
    offsets = model.tokenizer(item.text, return_offsets_mapping=True)["offset_mapping"]
    labels = [UNLABELLED] * len(document.ids)
    for span in item.masked:
        term = item.text[span.start : span.end].lower()
        own = classes.index(term) if term in classes else UNLABELLED
        for place in range(len(labels)):
            # The logits at the span's last token are the first that have read all of it; the end token has no offset.
            if place >= len(offsets) or offsets[place][1] >= span.end:
                labels[place] = own
    return Document(document.ids, tuple(labels))


def release_head(module: Any) -> nn.Parameter:
    """Freezes a model but for its head, which gets weights of its own where it shares those of the embeddings."""
    module.requires_grad_(False)
    head = module.get_output_embeddings()
    if head.weight is module.get_input_embeddings().weight:
        head.weight = nn.Parameter(head.weight.detach().clone())
        module.config.tie_word_embeddings = False
        module.config.get_text_config(decoder=True).tie_word_embeddings = False
    head.weight.requires_grad_(True)
    weights: nn.Parameter = head.weight
    return weights
