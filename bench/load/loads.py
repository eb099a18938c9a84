"""The memory of a process that loads models again and again, more of them than are held at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from app.audit.service import AuditService
from app.bootstrap import services
from app.hosting.model_host import ModelHost
from app.settings import Settings
from app.shared.audits import AuditSettings, StartAudit
from app.shared.wiring import Services
from bench.load.figures import PROMPTS, slope
from coft_core.model.fake import byte_tokenizer
from coft_core.model.load import DEMO

WARM_UP = 2
"""Rounds over all models before memory is judged."""
STEPS = 8
MEGABYTE = 2**20


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of a model of random weights."""

    hidden: int
    inner: int
    layers: int
    heads: int
    vocabulary: int


TINY = Shape(48, 96, 2, 3, 512)
MIDDLE = Shape(576, 1536, 30, 9, 49152)
"""As SmolLM2-135M is shaped; its output layer is its embedding."""


def write_model(folder: Path, shape: Shape) -> str:
    """Write a model of random weights with a tokenizer of bytes into a folder, and return its name."""
    config = LlamaConfig(
        vocab_size=shape.vocabulary,
        hidden_size=shape.hidden,
        intermediate_size=shape.inner,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.heads // 3,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=0,
        pad_token_id=0,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer: Any = byte_tokenizer()
    tokenizer.add_tokens([f"<{number}>" for number in range(shape.vocabulary - len(tokenizer))])
    tokenizer.save_pretrained(folder)
    return str(folder)


def resident_mb() -> float:
    """Megabytes of this process that are in memory."""
    return float(psutil.Process().memory_info().rss) / MEGABYTE


def after_loads(wired: Services, names: Sequence[str], loads: int, audits: bool) -> Iterator[tuple[str, float]]:
    """Load models in turn, and tell of each its name and the resident megabytes after it."""
    for number in range(loads):
        name = names[number % len(names)]
        wired[ModelHost].get(name)
        if audits:
            settings = AuditSettings(model=name, max_new_tokens=STEPS)
            session = wired[AuditService].start(StartAudit(PROMPTS[number % len(PROMPTS)], settings)).session_id
            for _ in wired[AuditService].run(session):
                pass
        yield name, resident_mb()


def measure_loads(
    folder: Path,
    loads: int,
    audits: bool,
    shapes: Sequence[Shape] = (TINY, MIDDLE),
    tell: Callable[[str], None] = print,
) -> dict[str, Any]:
    """The memory after each load of the embedded model and of models of random weights, in turn, in this process."""
    names = [DEMO, *(write_model(folder / f"model{number}", shape) for number, shape in enumerate(shapes))]
    with services(Settings(database_url=f"sqlite:///{folder / 'loads.sqlite3'}")) as wired:
        found = []
        for name, megabytes in after_loads(wired, names, loads, audits):
            found.append(round(megabytes, 1))
            tell(f"load {len(found)}, {Path(name).name}: {megabytes:.0f} MB")
    rounds = [sum(found[start : start + len(names)]) / len(names) for start in range(0, loads, len(names))]
    rounds = rounds[WARM_UP : loads // len(names)]
    per_round = slope(range(len(rounds)), rounds) if len(rounds) > 2 else None
    return {"loads": loads, "audits": audits, "resident_mb": found, "mb_per_round": per_round, "models": len(names)}
