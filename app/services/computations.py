"""How the steps of stored sessions were computed: noted when it changes, and read for pages and reports."""

from __future__ import annotations

from dataclasses import asdict, replace
from weakref import WeakKeyDictionary

from app.services.views.computing import Computation, KeptMemory
from coft_core.decode import Rollout
from coft_core.engine.compiled import StepPath, path_of
from coft_core.engine.model import LanguageModel
from coft_core.numeric_noise import NumericNoise, noise_of
from coft_core.prepared import path_text, prepared_steps
from db.records import JsonObject, SessionRecord
from db.repositories import SessionsRepository

STORED_AS = "computed"
"""Key in a session's settings: the ways in which its steps were computed, in the order in which they came."""


class Computations:
    """Notes with a session how its steps are computed."""

    def __init__(self, sessions: SessionsRepository) -> None:
        """Wire to the store."""
        self._sessions = sessions
        self._noted: WeakKeyDictionary[Rollout, tuple[StepPath, str, str]] = WeakKeyDictionary()

    def note(self, session_id: int, rollout: Rollout) -> None:
        """Note how a rollout's newest step was computed, unless that is known.

        Args:
            session_id: The session.
            rollout: One of its rollouts.
        """
        model = rollout.plan.model
        prepared, way = prepared_steps(model), path_of(model)
        # What the path's words are made of: to find the words looks through the whole model, and every step asks.
        state = (way, "" if way.steps is None else way.steps.failure, "" if prepared is None else prepared.failure)
        # A model's path changes at most once or twice in its life, and a rollout's memory never.
        if not rollout.steps or self._noted.get(rollout) == state:
            return
        self._sessions.add_computation(session_id, _to_json(_computation(rollout, path_text(model))))
        self._noted[rollout] = state


def computations_of(record: SessionRecord) -> tuple[Computation, ...]:
    """How a session's steps were computed; empty before its first step, and for sessions stored without it."""
    return tuple(_from_json(item) for item in record.policy_settings.get(STORED_AS, ()))


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
    told = computations_of(record)
    usual = noise_of(record.fingerprint.get("dtype"))
    largest = max(told, key=lambda item: item.numeric_noise, default=None)
    if largest is None or largest.temperature is None:
        return usual
    return replace(usual, nats=largest.numeric_noise, temperature=largest.temperature)


def memory_of(rollout: Rollout) -> tuple[KeptMemory, ...]:
    """How a rollout's keys and values are kept, by model."""
    return tuple(
        KeptMemory(name, use.kind, use.reason, use.held_once, use.joins) for name, use in rollout.memory_uses.items()
    )


def _computation(rollout: Rollout, path: str) -> Computation:
    model: LanguageModel = rollout.plan.model
    noise = rollout.plan.noise
    memory = memory_of(rollout)
    return Computation(model.dtype_name, model.quantization, path, memory, noise.nats, noise.temperature)


def _to_json(computation: Computation) -> JsonObject:
    """As the store gives it back, where lists are all that there is."""
    return {**asdict(computation), "memory": [asdict(item) for item in computation.memory]}


def _from_json(data: JsonObject) -> Computation:
    return Computation(**{**data, "memory": tuple(KeptMemory(**item) for item in data["memory"])})
