"""Training of the demonstration model with checkpoints from which it resumes.

A run starts either from random weights or from those of an exported model, which it then trains on with the shorter
list of stages, lower learning rates and fresh optimisers.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file
from transformers import LlamaConfig, LlamaForCausalLM

from bench.demo_model.dataset import Batch, Batches
from bench.demo_model.stages import stage_at, stages_of
from bench.demo_model.tokenizer import CONTEXT_LENGTH, END_ID, MASK_ID, PAD_ID


@dataclass(frozen=True)
class Settings:
    """What a training run depends on."""

    seed: int = 0
    minutes: float = 100.0
    steps: int | None = None
    vocabulary: int = 6144
    width: int = 320
    layers: int = 6
    heads: int = 5
    rows: int = 20
    warm_up: int = 60
    matrix_rate: float = 0.02
    other_rate: float = 3e-3
    bfloat16: bool = True
    compiled: bool = False
    device: str = "cpu"
    continued: bool = False


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


def load_exported_weights(model: LlamaForCausalLM, folder: Path) -> None:
    """Fills a model with the weights of an exported one, in the precision of the model."""
    path = folder / "model.safetensors"
    if not path.is_file():
        raise FileNotFoundError(f"there are no weights to start from at {path}; give the folder of an exported model")
    weights = load_file(path)
    expected = {name: tensor.shape for name, tensor in model.state_dict().items() if name != "lm_head.weight"}
    if {name: tensor.shape for name, tensor in weights.items()} != expected:
        raise ValueError(f"the weights in {path} do not fit the model that is trained; export it from the same sizes")
    # The output layer is the embedding itself, so the file does not hold it a second time.
    model.load_state_dict(weights, strict=False)


@dataclass(frozen=True)
class Targets:
    """A batch as tensors; see :class:`bench.demo_model.dataset.Batch`."""

    ids: torch.Tensor  # (B, T)
    weights: torch.Tensor  # (B, T)
    soft_ids: torch.Tensor  # (B, T, 3)
    soft_shares: torch.Tensor  # (B, T, 3)

    @classmethod
    def of(cls, batch: Batch, device: str) -> Targets:
        """Copies a batch to the device."""
        arrays = (batch.ids, batch.weights, batch.soft_ids, batch.soft_shares)
        return cls(*(torch.from_numpy(array).to(device) for array in arrays))


def next_token_loss(
    model: LlamaForCausalLM,
    ids: torch.Tensor,
    weights: torch.Tensor,
    soft_ids: torch.Tensor,
    soft_shares: torch.Tensor,
    bfloat16: bool = False,
) -> torch.Tensor:
    """Weighted mean cross-entropy of the next token in nats, where the target is not the sentinel."""
    with torch.autocast(ids.device.type, torch.bfloat16, enabled=bfloat16):
        logits = model(input_ids=ids, use_cache=False).logits[:, :-1].float()  # (B, T - 1, V)
    picked = (logits.gather(-1, soft_ids[:, 1:]) * soft_shares[:, 1:]).sum(-1)  # (B, T - 1)
    losses = logits.logsumexp(-1) - picked  # (B, T - 1)
    kept = weights[:, 1:].masked_fill(ids[:, 1:] == MASK_ID, 0.0)  # (B, T - 1)
    return (losses * kept).sum() / kept.sum()


def make_optimizers(model: LlamaForCausalLM, settings: Settings) -> tuple[torch.optim.Optimizer, ...]:
    """Makes Muon for the matrices of the layers, which learns much in few steps, and AdamW for the rest."""
    matrices = [p for name, p in model.named_parameters() if p.ndim == 2 and ".layers." in name]
    chosen = {id(p) for p in matrices}
    others = [p for p in model.parameters() if id(p) not in chosen]
    return (
        torch.optim.Muon(matrices, lr=settings.matrix_rate, weight_decay=0.05, momentum=0.95),
        torch.optim.AdamW(others, lr=settings.other_rate, betas=(0.9, 0.95), weight_decay=0.0, fused=True),
    )


class Trainer:
    """Runs the optimisation and keeps its checkpoint."""

    def __init__(self, settings: Settings, batches: Batches, checkpoint: Path, start_from: Path | None = None) -> None:
        """Starts from the checkpoint where one exists, otherwise from an exported model or afresh."""
        if settings.continued != (start_from is not None):
            raise ValueError("a continued run, and no other, starts from an exported model; give both or neither")
        self.settings, self.batches, self.checkpoint = settings, batches, checkpoint
        self.stages = stages_of(settings.continued)
        self.model = make_model(settings).to(settings.device)
        self.optimizers = make_optimizers(self.model, settings)
        self.rates = [optimizer.param_groups[0]["lr"] for optimizer in self.optimizers]
        self.loss = torch.compile(next_token_loss, dynamic=False) if settings.compiled else next_token_loss
        self.step, self.seconds = 0, 0.0
        if checkpoint.exists():
            self._load()
        elif start_from is not None:
            load_exported_weights(self.model, start_from)

    def _load(self) -> None:
        state = torch.load(self.checkpoint, weights_only=True, map_location=self.settings.device)
        if state["settings"].get("continued", False) != self.settings.continued:
            raise ValueError(
                f"the checkpoint {self.checkpoint} and this run do not both start from an exported model; "
                "take another work folder"
            )
        self.model.load_state_dict(state["model"])
        for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        self.step, self.seconds = state["step"], state["seconds"]

    def save(self) -> None:
        """Writes the checkpoint; a reader never sees half of one."""
        partial = self.checkpoint.with_suffix(".partial")
        state = {
            "model": self.model.state_dict(), "optimizers": [part.state_dict() for part in self.optimizers],
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
        stage, share = stage_at(self.progress(), self.stages)
        mixture = (*(w * (1 - stage.scenario_share) for w in stage.story_weights), stage.scenario_share)
        batch = self.batches.batch(self.step, rows, length, mixture, stage.focus, stage.amplified)
        targets = Targets.of(batch, settings.device)
        warm = min(1.0, (self.step + 1) / settings.warm_up)
        for optimizer, full in zip(self.optimizers, self.rates, strict=True):
            optimizer.param_groups[0]["lr"] = full * share * warm
        loss = self.loss(
            self.model, targets.ids, targets.weights, targets.soft_ids, targets.soft_shares, settings.bfloat16
        )
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        for optimizer in self.optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        self.step += 1
        self.seconds += time.monotonic() - started
        return loss.item()

    def run(self, save_every: float = 180.0, report_every: int = 100) -> None:
        """Trains to the end with progress lines and a checkpoint every `save_every` seconds."""
        saved = time.monotonic()
        recent: list[float] = []
        while self.progress() < 1.0:
            recent.append(self.advance())
            if self.step % report_every == 0 or self.progress() == 1.0:
                minutes, loss = self.seconds / 60, sum(recent) / len(recent)
                print(f"step {self.step}  {minutes:.1f} min  {self.progress():.0%}  loss {loss:.3f}", flush=True)
                recent = []
            if time.monotonic() - saved > save_every:
                self.save()
                saved = time.monotonic()
        self.save()
