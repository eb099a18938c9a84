"""How the steps of an audit were computed: what can make equal settings differ in a number's last bits."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KeptMemory:
    """How the keys and values of one model are kept.

    Attributes:
        model: The name under which the policy asks for it; ``"base"`` is the audited one.
        kind: ``"slots"`` (preallocated) or ``"growing"``.
        reason: Why it is not preallocated, as half a sentence; empty where it is.
        held_once: Tokens of the readings' common beginning that are held once; 0 where each reading holds its own.
        joins: Whether steps may share forwards with those of other sessions.
    """

    model: str
    kind: str
    reason: str
    held_once: int
    joins: bool

    @property
    def text(self) -> str:
        """In words: ``"preallocated memory, 812 tokens held once, may share forwards with other sessions"``."""
        parts = ["preallocated memory" if self.kind == "slots" else f"growing memory ({self.reason})"]
        if self.held_once:
            parts.append(f"{self.held_once:,} tokens held once")
        parts.append("may share forwards with other sessions" if self.joins else "forwards of its own")
        return ", ".join(parts)


@dataclass(frozen=True, slots=True)
class Computation:
    """One way in which steps of a session were computed.

    Attributes:
        dtype: Number type that the model computed in.
        quantization: Form of its weights, ``"none"`` where they are whole.
        steps: Path of its steps: ``"traced"``, ``"CUDA graph"``, or ``"eager"`` with why it is no other. Forwards that
            sessions share are eager on every path.
        memory: How keys and values were kept, the audited model's first.
        numeric_noise: Nats within which log-probabilities of this model agree between such ways.
        temperature: The temperature for which they do; None in sessions of earlier versions, whose bound is that of the
            number type at temperature 1.
    """

    dtype: str
    quantization: str
    steps: str
    memory: tuple[KeptMemory, ...]
    numeric_noise: float
    temperature: float | None = None

    @property
    def sentence(self) -> str:
        """In words: ``"float32, steps traced; preallocated memory, forwards of its own"``."""
        weights = "" if self.quantization == "none" else f" with {self.quantization} weights"
        own = [item.text if not place else f"{item.model}: {item.text}" for place, item in enumerate(self.memory)]
        return "; ".join([f"{self.dtype}{weights}, steps {self.steps}", *own])
