"""The decoding policy that an audit's settings describe."""

from __future__ import annotations

from typing import TypedDict, cast

from app.services.calibration.store import AnyCalibration
from app.services.calibration.thresholds import layout_of
from app.services.errors import ServiceError
from app.services.known_policies import policy_info
from app.services.views import AuditSettings
from coft_core.conformal.calibration import Calibration
from coft_core.conformal.factorized import FactorizedCalibration
from coft_core.errors import CalibrationMismatch
from coft_core.masking.masker import DEFAULT_HINT, MaskMode
from coft_core.policies import Certificate, CoftPolicy, FactorizedCoftPolicy, Policy, VanillaPolicy

LAYOUTS = ("joint", "factorized")
MODES = ("hard", "soft")


class _Controls(TypedDict):
    """What all policies have in common."""

    temperature: float
    top_p: float
    top_k: int
    sentinel: str | None
    mask_mode: MaskMode
    mask_hint: str
    whitelist: tuple[str, ...]


def policy_of(settings: AuditSettings, calibration: AnyCalibration | None) -> Policy:
    """The policy of the settings.

    Families that are masked are the detector's affair and so part of its version; the policy masks whatever the spans
    say. Audits and calibrations hold this alike, and their fingerprints therefore agree.

    Args:
        settings: The settings.
        calibration: Thresholds of the settings' mask layout; None certifies nothing.

    Raises:
        ServiceError: There is no such policy, layout or mode, or a layout that the policy does not have.
        InvalidInputError: A parameter is outside its range.
    """
    controls = _controls(settings)
    if settings.mask_layout not in LAYOUTS:
        raise ServiceError(f"There is no mask layout {settings.mask_layout!r}; choose {' or '.join(LAYOUTS)}.")
    if settings.policy == "vanilla":
        if settings.mask_layout != "joint":
            raise ServiceError("Vanilla decoding only watches one masked reading; choose the joint mask for it.")
        return VanillaPolicy(**controls)
    if settings.policy != "coft":
        policy_info(settings.policy)
        raise ServiceError(f"The policy {settings.policy!r} cannot be decoded with here; choose another one.")
    accept = settings.proceed_uncertified
    if settings.mask_layout == "factorized":
        own = cast(FactorizedCalibration | None, calibration)
        return FactorizedCoftPolicy(lam=settings.lam, calibration=own, accept_mismatch=accept, **controls)
    joint = cast(Calibration | None, calibration)
    return CoftPolicy(lam=settings.lam, calibration=joint, accept_mismatch=accept, **controls)


def other_layout(settings: AuditSettings, calibration: AnyCalibration) -> Certificate | None:
    """What may be claimed with thresholds of another mask layout: nothing, and only if that was allowed.

    Thresholds of one masked branch say nothing of several, and the other way round, so they cannot even be used
    uncertified. None where the layouts agree.

    Raises:
        CalibrationMismatch: They differ and going on was not allowed.
    """
    made, used = layout_of(calibration), settings.mask_layout
    if made == used:
        return None
    if not settings.proceed_uncertified:
        raise CalibrationMismatch([("mask_layout", made, used)])
    return Certificate(
        f"uncertified: policy mismatch (mask_layout: calibrated {made}, used {used}, so no threshold is applied)"
    )


def _controls(settings: AuditSettings) -> _Controls:
    if settings.mask_mode not in MODES:
        raise ServiceError(f"There is no mask mode {settings.mask_mode!r}; choose {' or '.join(MODES)}.")
    return {
        "temperature": settings.temperature,
        "top_p": settings.top_p,
        "top_k": settings.top_k,
        "sentinel": settings.sentinel or None,
        "mask_mode": cast(MaskMode, settings.mask_mode),
        "mask_hint": (settings.mask_hint or "").strip() or DEFAULT_HINT,
        "whitelist": settings.whitelist,
    }
