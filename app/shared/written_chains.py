"""Chains that are written whole by somebody who has no store, and what is stored of them afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass

from app.shared.computations import computation_json
from app.shared.model_host import ModelHost
from coft_core.decode.cost import StepCost, measured
from coft_core.decode.loop import Rollout
from coft_core.decode.plan import Plan
from coft_core.types import Step
from db.types import JsonObject


@dataclass(frozen=True, slots=True)
class WrittenStep:
    """A step that was written elsewhere."""

    step: Step
    cost: StepCost
    computed: JsonObject | None


@dataclass(frozen=True, slots=True)
class WrittenChain:
    """The rest of a chain that was written elsewhere, and how it ended."""

    steps: tuple[WrittenStep, ...]
    finished: str | None


def write_chain(host: ModelHost, plan: Plan, path: str, steps: Sequence[Step]) -> WrittenChain:
    """Write the rest of a chain; nothing is stored."""
    written: list[WrittenStep] = []
    computed: JsonObject | None = None
    with closing(Rollout(plan, path, steps, host.forwards)) as rollout:
        while rollout.finished is None:
            for attempt in host.memory.attempts():
                with attempt, measured(rollout, host.memory.peaks) as cost:
                    step = rollout.step()
            now = computation_json(rollout)
            written.append(WrittenStep(step, cost(), None if now == computed else now))
            computed = now
            rollout.release_logits()
        return WrittenChain(tuple(written), rollout.finished)
