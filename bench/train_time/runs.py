"""The two trainings, from a base model to a checkpoint in a folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from bench.train_time.adversary import AdversarialObjective, Adversary, frequent_terms, label, release_head
from bench.train_time.checkpoints import require_free, write_checkpoint
from bench.train_time.texts import MarkedText, augment
from bench.train_time.training import Schedule, encode, language_objective, train_epoch
from coft_core import LanguageModel
from coft_core.errors import InvalidInputError

REPORTS = 10


@dataclass(frozen=True)
class AdversarialSettings:
    """What the paper leaves open."""

    strength: float = 1.0
    learning_rate: float = 1e-3


@dataclass
class _Course:
    """Says how a training goes, ten times, and keeps what it says."""

    batches: int
    say: Callable[[str], None]
    rows: list[dict[str, float]] = field(default_factory=list)

    def follow(self, losses: Iterator[float], more: Callable[[], dict[str, float]] = dict) -> None:
        recent: list[float] = []
        for step, loss in enumerate(losses, start=1):
            recent.append(loss)
            if step * REPORTS // self.batches > (step - 1) * REPORTS // self.batches:
                row = {"step": step, "loss": round(sum(recent) / len(recent), 4)} | more()
                self.rows.append(row)
                self.say(f"step {step} of {self.batches}: " + ", ".join(f"{k} {v:g}" for k, v in list(row.items())[1:]))
                recent = []


def train_augmented(
    model: LanguageModel, texts: Sequence[MarkedText], out: Path, schedule: Schedule, say: Callable[[str], None]
) -> dict[str, Any]:
    """Trains all weights on every text and its counterpart (counterfactual data augmentation)."""
    require_free(out)
    augmented = augment(texts, schedule.seed)
    if not augmented.swapped:
        raise InvalidInputError("None of the texts has an attribute that can be swapped; give texts that name some.")
    say(f"{len(texts):,} texts: {augmented.swapped:,} with their counterpart, {augmented.unmarked:,} without anything "
        f"sensitive, {augmented.unknown:,} whose words have no known counterpart")  # fmt: skip
    documents = [found for text in augmented.texts if (found := encode(model, text)) is not None]
    with _training(model, schedule.seed):
        model.module.requires_grad_(True)
        optimizer = torch.optim.AdamW(model.module.parameters(), lr=schedule.learning_rate)
        course = _Course(-(-len(documents) // schedule.batch), say)
        course.follow(train_epoch(documents, language_objective(model.module), optimizer, schedule, model.device))
    counts = {name: getattr(augmented, name) for name in ("swapped", "unmarked", "unknown")}
    return _written(model, out, "counterfactual data augmentation", schedule, course, counts)


def train_adversarial(
    model: LanguageModel,
    texts: Sequence[MarkedText],
    out: Path,
    schedule: Schedule,
    settings: AdversarialSettings,
    say: Callable[[str], None],
) -> dict[str, Any]:
    """Trains the head alone against an adversary that reads the newest sensitive word off the logits."""
    require_free(out)
    classes = frequent_terms(texts)
    if len(classes) < 2:
        raise InvalidInputError("The texts name fewer than two sensitive words, so there is nothing to tell apart.")
    documents = [found for text in texts if (found := label(model, text, classes)) is not None]
    say(f"{len(documents):,} texts; the adversary tells {len(classes)} sensitive words apart")
    with _training(model, schedule.seed):
        weights = release_head(model.module)
        adversary = Adversary(weights.shape[0], len(classes)).to(model.device)
        objective = AdversarialObjective(model.module, adversary, settings.strength)
        optimizer = torch.optim.AdamW([
            {"params": [weights], "lr": schedule.learning_rate},
            {"params": list(adversary.parameters()), "lr": settings.learning_rate},
        ])  # fmt: skip
        course = _Course(-(-len(documents) // schedule.batch), say)
        course.follow(
            train_epoch(documents, objective, optimizer, schedule, model.device),
            lambda: {"adversary": round(objective.take_accuracy(), 4)},
        )
    more = {"classes": classes, **{f"adversary_{name}": value for name, value in asdict(settings).items()}}
    return _written(model, out, "adversarial head", schedule, course, more)


@contextmanager
def _training(model: LanguageModel, seed: int) -> Iterator[None]:
    """The module in training mode with seeded draws; afterwards frozen in evaluation mode, the draws as they were."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model.module.train()
        try:
            yield
        finally:
            model.module.eval().requires_grad_(False)


def _written(
    model: LanguageModel, out: Path, method: str, schedule: Schedule, course: _Course, more: dict[str, Any]
) -> dict[str, Any]:
    facts = {
        "method": method, "base": model.name, "base_weights": model.weights_digest,
        "tokenizer": model.tokenizer_digest, **asdict(schedule), **more, "course": course.rows,
    }  # fmt: skip
    write_checkpoint(model, out, facts)
    return facts
