"""Requests to calibrate: checked before a job is made of them, and kept with the job so that it can be resumed."""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import Any, get_args

from app.services.errors import ServiceError
from app.services.views import CalibrationRequest
from coft_core.calibrating.run import SOURCES
from coft_core.conformal.density_ratio import LEAST_PROMPTS
from coft_core.conformal.options import CalibrationSettings
from coft_core.conformal.quantile import check_alpha, check_estimator
from coft_core.conformal.shares import split_alpha
from coft_core.conformal.shift import Shift
from coft_core.conformal.stepwise import check_spacing
from coft_core.fusion import check_lambda
from coft_core.masking.masker import MaskMode
from coft_core.masking.partial import check_families
from coft_core.masking.settings import MaskLayout
from db.records import JsonObject

WEIGHTINGS = ("none", "column", "estimated")
"""Where shift weights can come from."""


READINGS = ("both", "factual")
"""Readings whose probabilities thresholds can bound."""


BEFORE: JsonObject = {"bin_spacing": "even"}
"""What requests asked for before they could say it, where that is no longer the default."""


def check_request(request: CalibrationRequest) -> None:
    """Refuse settings that cannot be used, whatever the prompts.

    Raises:
        ServiceError: A choice does not exist, or two choices exclude each other.
        InvalidInputError: A number is outside its range, or a family is unknown.
    """
    if not request.name.strip():
        raise ServiceError("The calibration has no name; give it one.")
    _one_of("context source", request.source, SOURCES)
    _one_of("mask layout", request.mask_layout, get_args(MaskLayout))
    _one_of("mask mode", request.mask_mode, get_args(MaskMode))
    _one_of("weighting", request.weighting, WEIGHTINGS)
    _one_of("choice of readings", request.certified_in, READINGS)
    check_lambda(request.lam)
    check_alpha(request.alpha)
    check_estimator(request.estimator)
    Shift.bounded(request.rho)
    # Made for its checks alone.
    CalibrationSettings(
        temperature=request.temperature,
        top_p=request.top_p,
        top_k=request.top_k,
        bin_width=request.bin_width,
        max_position=request.max_position,
        bin_spacing=check_spacing(request.bin_spacing),
        verification_share=request.verification_share,
        seed=request.seed,
        draws=request.draws,
        max_new_tokens=request.max_new_tokens,
        tolerance=request.tolerance,
        max_iterations=request.max_iterations,
    )
    _check_layout(request)
    _check_shift(request)
    _check_readings(request)


def request_to_json(request: CalibrationRequest) -> JsonObject:
    """A request as a job keeps it."""
    return asdict(request)


def request_from_json(data: JsonObject) -> CalibrationRequest:
    """A request as a job kept it; what an older version did not know is what it did, which the default is unless said.

    Raises:
        ServiceError: It was written by a newer version, or is damaged.
    """
    known = {field.name for field in fields(CalibrationRequest)}
    if unknown := sorted(data.keys() - known):
        raise ServiceError(
            f"The job was made by another version of the program (it has the setting “{unknown[0]}”), so it cannot be "
            "resumed here; start the calibration anew."
        )
    try:
        request = CalibrationRequest(**{name: _tuples(value) for name, value in (BEFORE | data).items()})
    except TypeError as error:
        raise ServiceError("The job lacks its settings and cannot be resumed; start the calibration anew.") from error
    return request


def _tuples(value: Any) -> Any:
    """JSON knows lists alone; a request holds tuples."""
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value


def _one_of(what: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ServiceError(f"There is no {what} {value!r}; choose one of {', '.join(choices)}.")


def _check_layout(request: CalibrationRequest) -> None:
    if request.mask_layout == "joint":
        if request.alpha_by_family is not None:
            raise ServiceError("Shares of alpha by family need factorized masks; choose these, or give one alpha.")
        return
    if request.alpha_by_family is not None:
        named = [name for name, _ in request.alpha_by_family]
        if doubled := next((name for name in named if named.count(name) > 1), None):
            raise ServiceError(f"The family “{doubled}” has two shares of alpha; give one.")
        check_families(named)
        split_alpha(request.alpha, named, dict(request.alpha_by_family))


def _check_readings(request: CalibrationRequest) -> None:
    """Thresholds of the factual reading alone are read off references; nothing is masked for them."""
    if request.certified_in == "both":
        return
    if request.mask_layout != "joint":
        raise ServiceError("Thresholds of the factual reading alone have no masks; choose the joint mask for them.")
    if request.source != "reference":
        raise ServiceError(
            "Thresholds of the factual reading alone are calibrated on references; choose these, or both readings."
        )
    if request.record_chains:
        raise ServiceError("Drift is measured for both readings together; leave chains out, or calibrate both.")


def _check_shift(request: CalibrationRequest) -> None:
    if request.weighting != "none" and request.rho != 1:
        raise ServiceError("A bound rho and weights exclude each other; choose one of them.")
    if request.weighting != "none" and request.record_chains:
        raise ServiceError(
            "Chains cannot be recorded under weights, since drift is measured without them; leave one of them out."
        )
    given = len([prompt for prompt in request.deployment if prompt.strip()])
    if request.weighting == "estimated" and given < LEAST_PROMPTS:
        raise ServiceError(
            f"There are {given} prompts of the deployment and estimating weights needs at least {LEAST_PROMPTS}; "
            "give more."
        )
