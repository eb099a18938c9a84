"""One epoch over texts: batches by accumulation, and the objective as a function of a part of a batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from bench.batching import batches
from coft_core import LanguageModel

UNLABELLED = -100
"""What stands where a token is no target, or has no label."""


@dataclass(frozen=True)
class Schedule:
    """How long and how fast a model is trained; the paper's values for both references (its appendix on train time)."""

    learning_rate: float = 1e-5
    batch: int = 128
    part_tokens: int = 4096
    seed: int = 0


@dataclass(frozen=True)
class Document:
    """A tokenized text."""

    ids: tuple[int, ...]
    labels: tuple[int, ...]

    @property
    def labelled(self) -> int:
        """Number of labelled tokens."""
        return sum(label != UNLABELLED for label in self.labels)


@dataclass(frozen=True)
class Part:
    """Some texts of a batch, padded on the right."""

    ids: Tensor
    targets: Tensor
    labels: Tensor
    tokens: int
    labelled: int
    progress: float


Objective = Callable[[Part], Tensor]
"""Share of a part in the mean loss of its batch."""


def encode(model: LanguageModel, text: str) -> Document | None:
    """Tokenizes a text and cuts it to the context; None if there is nothing to predict in it."""
    end = model.tokenizer.eos_token_id
    ids = model.tokenizer.encode(text)
    if end is not None and ids[-1:] != [end]:
        ids.append(end)
    ids = ids[: model.context_length]
    return Document(tuple(ids), (UNLABELLED,) * len(ids)) if len(ids) > 1 else None


def language_loss(logits: Tensor, part: Part) -> Tensor:
    """Cross-entropy of the next token in nats, its share in the mean over the batch."""
    loss = functional.cross_entropy(
        logits.flatten(0, 1).float(), part.targets.flatten(), ignore_index=UNLABELLED, reduction="sum"
    )
    return loss / part.tokens


def language_objective(module: Any) -> Objective:
    """The language-model objective of a transformers module."""
    return lambda part: language_loss(module(input_ids=part.ids, use_cache=False).logits, part)


def train_epoch(
    documents: Sequence[Document],
    objective: Objective,
    optimizer: torch.optim.Optimizer,
    schedule: Schedule,
    device: torch.device,
) -> Iterator[float]:
    """Goes through all texts once in random order."""
    order = torch.randperm(len(documents), generator=torch.Generator().manual_seed(schedule.seed)).tolist()
    for begin in range(0, len(order), schedule.batch):
        chosen = [documents[i] for i in order[begin : begin + schedule.batch]]
        optimizer.zero_grad(set_to_none=True)
        loss = 0.0
        for part in parts(chosen, schedule.part_tokens, begin / len(order), device):
            share = objective(part)
            share.backward()  # type: ignore[no-untyped-call]
            loss += share.item()
        optimizer.step()
        yield loss


def parts(documents: Sequence[Document], budget: int, progress: float, device: torch.device) -> Iterator[Part]:
    """The parts of a batch, texts of similar lengths together."""
    tokens = sum(len(document.ids) - 1 for document in documents)
    labelled = sum(document.labelled for document in documents)
    for chosen in batches([len(document.ids) for document in documents], budget):
        own = [documents[i] for i in chosen]
        longest = max(len(document.ids) for document in own)
        ids = _padded([document.ids for document in own], longest, 0)
        targets = _padded([(*document.ids[1:], UNLABELLED) for document in own], longest, UNLABELLED)
        labels = _padded([document.labels for document in own], longest, UNLABELLED)
        yield Part(ids.to(device), targets.to(device), labels.to(device), tokens, labelled, progress)


def _padded(rows: Sequence[Sequence[int]], length: int, filler: int) -> Tensor:
    # A causal model's outputs at a token do not depend on what stands right of it, so padding needs no mask.
    return torch.tensor([[*row, *[filler] * (length - len(row))] for row in rows])
