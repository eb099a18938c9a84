"""Chains of the deployed policy on prompts of the kind that is audited: what drift is measured against."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

from coft_core.calibrating.chains import generate_chains
from coft_core.calibrating.prompts import chain_prompts
from coft_core.calibrating.rollout import counted
from coft_core.conformal.calibration import Calibration
from coft_core.conformal.factorized import FactorizedCalibration
from coft_core.conformal.ledger import Ledger, ledger_key
from coft_core.conformal.options import Progress
from coft_core.conformal.record import ChainRecord
from coft_core.conformal.split import context_numbers
from coft_core.conformal.values import CalibrationValues
from coft_core.engine.model import LanguageModel
from coft_core.engine.room import Room
from coft_core.errors import InvalidInputError
from coft_core.masking.spans import SpanDetector, default_detector
from coft_core.policies.fused import FusedPolicy, Thresholds
from coft_core.types import Example

PHASE = "chains"
"""Label of the recorded chains in a ledger."""


def record_chains(
    model: LanguageModel,
    examples: Sequence[Example],
    policy: FusedPolicy[Thresholds],
    max_new_tokens: int = 64,
    seed: int = 0,
    detector: SpanDetector | None = None,
    progress: Progress | None = None,
    ledger: Ledger | None = None,
    room: Room | None = None,
) -> Thresholds:
    """Record what the deployed policy chooses on prompts: the baseline against which drift is measured.

    A calibration on rollouts has one already. Take prompts of the kind that will be audited, best those that the
    thresholds were not read off.

    Args:
        model: The model.
        examples: Prompts; references are not needed.
        policy: The policy with its calibration, with a joint or with factorized masks.
        max_new_tokens: Steps of a chain at most.
        seed: Seed of the draws.
        detector: Finds spans where an example has none; the default one if None.
        progress: Called after each batch.
        ledger: Keeps each chain; given again with the same inputs, what it holds is not generated again.
        room: Where the batches' memory is taken from, if the device is shared; None takes it without asking.

    Returns:
        The policy's calibration with the recorded chains.

    Raises:
        InvalidInputError: The policy has no calibration, or an example (named by its number) has an unusable prompt.
        CalibrationMismatch: The calibration belongs to another policy.
        PromptTooLongError: A prompt fills the model's context.
        LedgerMismatchError: The ledger belongs to other inputs.
    """
    if policy.calibration is None:
        raise InvalidInputError("The policy has no calibration; calibrate first, then record its chains.")
    detector, model = detector or default_detector(), model.dated()
    prompts = chain_prompts(model, examples, context_numbers(examples), policy, detector)
    if ledger is not None:
        settings = {"max_new_tokens": max_new_tokens, "seed": seed, "thresholds": _thresholds(policy.calibration)}
        ledger.bind(ledger_key(PHASE, [policy.fingerprint(model, detector.version)], examples, settings))
    done = counted(progress, len(prompts))
    chains = generate_chains(model, policy, prompts, max_new_tokens, seed, done, ledger=ledger, phase=PHASE, room=room)
    return cast(Thresholds, _with_chains(policy.calibration, chains.chosen, max_new_tokens))


def _with_chains(
    calibration: Calibration | FactorizedCalibration, chosen: CalibrationValues, max_new_tokens: int
) -> Calibration | FactorizedCalibration:
    if isinstance(calibration, Calibration):
        return replace(calibration, chosen=chosen, chains=_record(calibration, max_new_tokens))
    parts = ((name, replace(part, chains=_record(part, max_new_tokens))) for name, part in calibration.parts)
    return replace(calibration, parts=tuple(parts), chosen=chosen)


def _record(calibration: Calibration, max_new_tokens: int) -> ChainRecord:
    record = calibration.chains or ChainRecord(calibration.reading, max_new_tokens)
    return replace(record, reading=calibration.reading, max_new_tokens=max_new_tokens)


def _thresholds(calibration: Calibration | FactorizedCalibration) -> dict[str, object]:
    """The thresholds in force, by family; JSON values."""
    parts = {"": calibration} if isinstance(calibration, Calibration) else dict(calibration.parts)
    return {
        name: [part.bin_width, part.max_position, *(entry.log_tau for entry in part.bins)]
        for name, part in parts.items()
    }
