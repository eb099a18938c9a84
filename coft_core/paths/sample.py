"""Drawing paths: every path has its seed, so that it is the same in whatever batch it is written.

The paths of one number have one seed in all worlds. Under a policy with shared noise they are twins: they differ only
where their worlds do.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from coft_core.conformal.informative import certifies
from coft_core.decode.cost import reserved_bytes
from coft_core.decode.loop import generate_together
from coft_core.decode.plan import Plan
from coft_core.errors import InvalidInputError
from coft_core.model.forced import Room
from coft_core.text.thinking import ChainThinking, Divided, Part, ThinkingMarks, thinking_of
from coft_core.types import Run, Step

BATCH_ROWS = 64
"""Branches of all paths of a batch together."""

ThresholdMark = Literal["held", "borrowed", "missed", "weak", "none"]
"""What a step's threshold did: the token reaches the step's own or a borrowed one, misses it, or it says nothing; none
where there is no threshold that belongs to the policy."""


@dataclass(frozen=True, slots=True)
class Path:
    """One sampled continuation."""

    seed: int
    token_ids: tuple[int, ...]
    tokens: tuple[str, ...]
    text: str
    finished: str
    thresholds: tuple[ThresholdMark, ...]
    parts: tuple[Part, ...] = ()
    divided: Divided | None = None

    @property
    def answer(self) -> str | None:
        """The continuation without its thinking; None where the thinking has not ended, so that there is none."""
        if self.divided is None:
            return self.text
        return self.divided.answer if self.divided.ended else None

    @property
    def held(self) -> bool:
        """Whether the thresholds held at every step, borrowed ones included."""
        return bool(self.thresholds) and all(mark in ("held", "borrowed") for mark in self.thresholds)


def path_seed(seed: int, number: int) -> int:
    """Seed of the paths of a number, one in each world.

    It depends on nothing else, so that neither further worlds nor more paths change a path.
    """
    digest = hashlib.blake2b(f"{seed}|path|{number}".encode(), digest_size=6).digest()
    return int.from_bytes(digest, "big")


def batch_paths(planned: Plan, most_bytes: int | None) -> int:
    """Paths of one batch: at least one, and no more than a batch's rows and memory hold."""
    rows = max(BATCH_ROWS // len(planned.policy.branches(planned.prompt)), 1)
    size = reserved_bytes(planned, planned.max_new_tokens)
    return rows if most_bytes is None or not size else max(min(rows, most_bytes // size), 1)


def sample_paths(planned: Plan, seeds: Sequence[int], room: Room, marks: ThinkingMarks | None = None) -> list[Path]:
    """Continue one prompt once for each seed, all in one batch."""
    if planned.greedy:
        raise InvalidInputError("The likeliest token is taken at every step, so all paths are the same; draw instead.")
    plans = [replace(planned, seed=seed) for seed in seeds]
    size = len(plans) * reserved_bytes(planned, planned.max_new_tokens)
    thinking = thinking_of(planned.model.tokenizer, planned.prompt.factual_ids, marks)
    return [_path(planned, run, thinking) for run in room.run(size, lambda: generate_together(plans))]


def threshold_mark(step: Step) -> ThresholdMark:
    """What a step's threshold did."""
    if step.state in ("mismatch", "none"):
        return "none"
    if not certifies(step.state):
        return "weak"
    if not step.certified:
        return "missed"
    return "borrowed" if step.state == "inherited" else "held"


def _path(planned: Plan, run: Run, thinking: ChainThinking | None) -> Path:
    ids = tuple(step.token_id for step in run.steps)
    path = Path(run.seed, ids, run.tokens, run.text, run.finished, tuple(threshold_mark(step) for step in run.steps))
    parts = () if thinking is None else thinking.parts(run.tokens)
    if thinking is None or "thinking" not in parts:
        return path
    return replace(path, parts=parts, divided=thinking.divided(ids, run.tokens, planned.model.continuation_text))
