"""What is measured on a session after the fact: contributions of spans, and what its policy costs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from app.services.detection import Detectors
from app.services.errors import ServiceError
from app.services.mapping import settings_from_json
from app.services.model_host import ModelHost
from app.services.rollouts import Rollouts
from coft_core.contributions import SPANS_AT_ONCE, LeaveOneOut, leave_one_out
from coft_core.decode import Plan
from coft_core.engine.memory.size import rows_size
from coft_core.footprint import reserved_bytes
from coft_core.masking.spans import SpanDetector
from coft_core.overhead import Overhead, measure_overhead
from coft_core.policies import VanillaPolicy
from db.records import SessionRecord

TIMED_TOKENS = 8
"""Steps that are timed; the first one, which reads the prompt, is not."""


class Measurements:
    """Runs the model again on stored sessions; nothing of it is stored."""

    def __init__(self, rollouts: Rollouts, detectors: Detectors, host: ModelHost) -> None:
        """Wire to the sessions' plans, their detectors and the models."""
        self._rollouts = rollouts
        self._detectors = detectors
        self._host = host

    def contributions(self, record: SessionRecord, tokens: Sequence[int]) -> LeaveOneOut:
        """What each masked span contributes to the sensitivity of each token of a chain.

        Args:
            record: The session.
            tokens: The chain.

        Raises:
            ServiceError: The model or the detector is no longer what it was.
            InvalidInputError: The chain has no token.
        """
        # Thresholds play no part in it, so that a deleted calibration is no obstacle.
        prepared = self._rollouts.plan(record, thresholds=False)
        detector, spans = self._detector(record), prepared.prompt.spans
        model, rows = prepared.model, min(len(spans), SPANS_AT_ONCE) + 2
        size = rows_size(model, rows, len(prepared.prompt.factual_ids) + len(tokens))
        work = partial(leave_one_out, model, record.prompt, prepared.policy, tokens, spans, detector=detector)
        return self._host.memory.run(size, work)

    def overhead(self, record: SessionRecord) -> Overhead:
        """Time per token of the session's policy against vanilla decoding, measured now.

        Raises:
            ServiceError: The session cannot be continued, or its prompt leaves no room to measure.
        """
        prepared = self._rollouts.plan(record)
        sampling, spans = prepared.policy.sampling, prepared.prompt.spans
        baseline = VanillaPolicy(sampling.temperature, sampling.top_p, sampling.top_k, observe_masked=False)
        tokens, detector = _room(prepared), self._detector(record)
        work = partial(
            measure_overhead,
            prepared.model,
            record.prompt,
            prepared.policy,
            baseline,
            spans,
            tokens,
            detector=detector,
            models=prepared.models,
            scorers=self._host.scorers(prepared.policy, prepared.model),
        )
        # The baseline runs no row beside the factual one, and both are decoded one after the other.
        return self._host.memory.run(reserved_bytes(prepared, tokens + 1), work)

    def _detector(self, record: SessionRecord) -> SpanDetector:
        return self._detectors.choose(settings_from_json(record.policy_settings["settings"]))


def _room(prepared: Plan) -> int:
    room = prepared.model.context_length - len(prepared.prompt.factual_ids) - 1
    if room < 1:
        raise ServiceError("The prompt fills the model's context, so that there is no step to time; shorten it.")
    return min(TIMED_TOKENS, room)
