"""Training of the demonstration model with checkpoints from which it resumes."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch.nn import functional
from transformers import LlamaConfig, LlamaForCausalLM

from bench.demo_model.dataset import Batches
from bench.demo_model.tokenizer import CONTEXT_LENGTH, END_ID, MASK_ID, PAD_ID


@dataclass(frozen=True)
class Stage:
    """A part of the run with its own mixture of texts.

    Attributes:
        share: Share of the run.
        rates: Learning rate at the beginning and at the end of the stage, linear between.
        story_weights: Relative number of tokens from TinyStories, storybooks and fairy tales.
        scenario_share: Share of tokens from the scenarios.
        focus: Weight of the first tokens of planted continuations; other tokens weigh 1.
    """

    share: float
    rates: tuple[float, float]
    story_weights: tuple[float, float, float]
    scenario_share: float
    focus: float


STAGES: tuple[Stage, ...] = (
    Stage(0.5, (2e-3, 1e-3), (0.76, 0.13, 0.11), 0.38, 1.0),
    Stage(0.5, (1e-3, 0.0), (0.76, 0.13, 0.11), 0.38, 8.0),
)
"""The planted decisions are rare tokens, so they weigh more once the model writes sentences.

A third stage with more passes over TinyStories was tried: its held-out loss rose while the training loss fell.
"""


def stage_at(progress: float) -> tuple[Stage, float]:
    """Returns the stage at a share of the run between 0 and 1, and its learning rate there."""
    begin = 0.0
    for stage in STAGES:
        inside = (progress - begin) / stage.share
        if inside < 1.0:
            return stage, stage.rates[0] + (stage.rates[1] - stage.rates[0]) * inside
        begin += stage.share
    return STAGES[-1], STAGES[-1].rates[1]


@dataclass(frozen=True)
class Settings:
    """What a training run depends on.

    Attributes:
        seed: Seed of initialisation and batches.
        minutes: Training time, evaluation not counted.
        steps: Number of steps instead of a time; with it a run is reproducible.
        vocabulary: Size of the vocabulary.
        width: Hidden size.
        layers: Number of layers.
        heads: Number of attention heads.
        rows: Windows in a batch of 256 tokens each; every eighth batch has half as many of 512 tokens.
        warm_up: Steps over which the learning rate first rises.
        bfloat16: Whether matrix products are computed in bfloat16.
    """

    seed: int = 0
    minutes: float = 50.0
    steps: int | None = None
    vocabulary: int = 4096
    width: int = 256
    layers: int = 5
    heads: int = 8
    rows: int = 16
    warm_up: int = 150
    bfloat16: bool = True


def make_model(settings: Settings) -> LlamaForCausalLM:
    """Makes an untrained model of the Llama architecture, with tied embeddings."""
    torch.manual_seed(settings.seed)
    config = LlamaConfig(
        vocab_size=settings.vocabulary,
        hidden_size=settings.width,
        intermediate_size=round(settings.width * 8 / 3 / 16) * 16,
        num_hidden_layers=settings.layers,
        num_attention_heads=settings.heads,
        num_key_value_heads=settings.heads,
        max_position_embeddings=CONTEXT_LENGTH,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=END_ID,
        pad_token_id=PAD_ID,
    )
    return LlamaForCausalLM(config)


def next_token_loss(
    model: LlamaForCausalLM, ids: torch.Tensor, weights: torch.Tensor, bfloat16: bool = False
) -> torch.Tensor:
    """Weighted mean cross-entropy of the next token in nats, where the target is not the sentinel.

    Args:
        model: The model.
        ids: Token ids, shape (rows, length).
        weights: Weight of each token as a target, shape (rows, length).
        bfloat16: Whether to compute matrix products in bfloat16.

    Returns:
        A scalar.
    """
    with torch.autocast("cpu", torch.bfloat16, enabled=bfloat16):
        logits = model(input_ids=ids, use_cache=False).logits  # (B, T, V)
    losses = functional.cross_entropy(
        logits[:, :-1].float().flatten(0, 1), ids[:, 1:].flatten(), reduction="none"
    )  # (B * (T - 1),)
    kept = weights[:, 1:].masked_fill(ids[:, 1:] == MASK_ID, 0.0).flatten()  # (B * (T - 1),)
    return (losses * kept).sum() / kept.sum()


class Trainer:
    """Runs the optimisation and keeps its checkpoint."""

    def __init__(self, settings: Settings, batches: Batches, checkpoint: Path) -> None:
        """Starts afresh, or from the checkpoint where one exists."""
        self.settings, self.batches, self.checkpoint = settings, batches, checkpoint
        self.model = make_model(settings)
        decayed = [p for p in self.model.parameters() if p.ndim > 1]
        others = [p for p in self.model.parameters() if p.ndim == 1]
        groups = [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
        self.optimizer = torch.optim.AdamW(groups, lr=STAGES[0].rates[0], betas=(0.9, 0.95), fused=True)
        self.step, self.seconds = 0, 0.0
        if checkpoint.exists():
            self._load()

    def _load(self) -> None:
        state = torch.load(self.checkpoint, weights_only=True)
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.step, self.seconds = state["step"], state["seconds"]

    def save(self) -> None:
        """Writes the checkpoint; a reader never sees half of one."""
        partial = self.checkpoint.with_suffix(".partial")
        state = {
            "model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(),
            "step": self.step, "seconds": self.seconds, "settings": asdict(self.settings),
        }  # fmt: skip
        torch.save(state, partial)
        partial.replace(self.checkpoint)

    def progress(self) -> float:
        """Share of the run that is done, between 0 and 1."""
        if self.settings.steps is not None:
            return min(1.0, self.step / self.settings.steps)
        return min(1.0, self.seconds / (60 * self.settings.minutes))

    def advance(self) -> float:
        """Makes one step and returns its loss in nats per token."""
        started = time.monotonic()
        settings = self.settings
        long = self.step % 8 == 7
        rows, length = (settings.rows // 2, 512) if long else (settings.rows, 256)
        stage, rate = stage_at(self.progress())
        mixture = (*(w * (1 - stage.scenario_share) for w in stage.story_weights), stage.scenario_share)
        batch = self.batches.batch(self.step, rows, length, mixture, stage.focus)
        ids, weights = torch.from_numpy(batch[0]), torch.from_numpy(batch[1])
        for group in self.optimizer.param_groups:
            group["lr"] = rate * min(1.0, (self.step + 1) / settings.warm_up)
        loss = next_token_loss(self.model, ids, weights, settings.bfloat16)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.step += 1
        self.seconds += time.monotonic() - started
        return loss.item()

    def run(self, save_every: float = 180.0, report_every: int = 100) -> None:
        """Trains to the end with progress lines and a checkpoint every `save_every` seconds."""
        saved = time.monotonic()
        recent: list[float] = []
        while self.progress() < 1.0:
            recent.append(self.advance())
            if self.step % report_every == 0:
                minutes, loss = self.seconds / 60, sum(recent) / len(recent)
                print(f"step {self.step}  {minutes:.1f} min  {self.progress():.0%}  loss {loss:.3f}", flush=True)
                recent = []
            if time.monotonic() - saved > save_every:
                self.save()
                saved = time.monotonic()
        self.save()
