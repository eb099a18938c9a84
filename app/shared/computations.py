"""How a session's steps were computed: noted with the session, and read from it."""

from __future__ import annotations

from dataclasses import asdict, replace

from app.shared.audits import Computation, KeptMemory
from coft_core.decode.captured import path_text
from coft_core.decode.loop import Rollout
from coft_core.model.noise import NumericNoise, noise_of
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
    """The bound on numeric noise for a session's model at its temperature, the largest of all ways it was computed.

    Sessions of earlier versions stored the bound of the number type at temperature 1; what that type has at the
    session's temperature is said in its place.
    """
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
