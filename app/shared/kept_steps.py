"""How steps were computed, as a session keeps it, and texts that are written whole without a store."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace

from app.hosting.model_host import ModelHost
from app.shared.audits import Computation, KeptMemory
from coft_core.controls.measure import controls_of
from coft_core.controls.result import Controls
from coft_core.controls.words import NeutralWords
from coft_core.decode.captured import path_text
from coft_core.decode.cost import StepCost, measured
from coft_core.decode.loop import Rollout
from coft_core.decode.plan import Plan
from coft_core.model.noise import NumericNoise, noise_of
from coft_core.types import Step
from db.audits import SessionRecord
from db.types import JsonObject

STORED_AS = "computed"
"""Key in a session's settings: the ways in which its steps were computed, in the order in which they came."""


def computation_json(rollout: Rollout) -> JsonObject:
    """How a rollout's newest step was computed, as the store gives it back, where lists are all that there is."""
    model, noise = rollout.plan.model, rollout.plan.noise
    memory = tuple(
        KeptMemory(name, use.kind, use.reason, use.held_once, use.joins) for name, use in rollout.memory_uses.items()
    )
    way = Computation(model.dtype_name, model.quantization, path_text(model), memory, noise.nats, noise.temperature)
    return {**asdict(way), "memory": [asdict(item) for item in memory]}


def computations_of(record: SessionRecord) -> tuple[Computation, ...]:
    """How a session's steps were computed; empty before its first step, and for sessions stored without it."""
    return tuple(
        Computation(**way | {"memory": tuple(KeptMemory(**item) for item in way["memory"])})
        for way in record.policy_settings.get(STORED_AS, ())
    )


def session_noise(record: SessionRecord) -> NumericNoise:
    """The bound on numeric noise for a session's model at its temperature, the largest of all ways it was computed."""
    stated = stated_noise(record)
    usual = noise_of(record.fingerprint.get("dtype"), record.temperature)
    return stated if stated.nats >= usual.nats else usual


def stated_noise(record: SessionRecord) -> NumericNoise:
    """The bound that a session was stored with, which tables of it repeat."""
    usual = noise_of(record.fingerprint.get("dtype"))
    largest = max(computations_of(record), key=lambda way: way.numeric_noise, default=None)
    if largest is None or largest.temperature is None:
        return usual
    return replace(usual, nats=largest.numeric_noise, temperature=largest.temperature)


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
    controls: Controls | None = None


def write_chain(
    host: ModelHost, plan: Plan, path: str, steps: Sequence[Step], compared: int, words: NeutralWords
) -> WrittenChain:
    """Write the rest of a chain and compare its marked words with so many others; nothing is stored."""
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
        tokens = [step.token_id for step in rollout.steps]
    controls = None
    if compared and tokens:
        controls = controls_of(plan, tokens, neutral=compared, words=words, room=host.memory.room())
    return WrittenChain(tuple(written), rollout.finished, controls)
