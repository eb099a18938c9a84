"""The decoding policy that an audit's settings describe."""

from __future__ import annotations

from typing import TypedDict, cast

from app.services.calibration.store import AnyCalibration
from app.services.calibration.thresholds import layout_of
from app.services.errors import ServiceError
from app.services.known_policies import FACTORIZED, policy_info
from app.services.views import AuditSettings
from coft_core.errors import CalibrationMismatch
from coft_core.masking.masker import DEFAULT_HINT, MaskMode
from coft_core.policies import Certificate, Policy
from coft_core.policies.registry import method

LAYOUTS = ("joint", "factorized")
MODES = ("hard", "soft")


class Controls(TypedDict):
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
        InvalidInputError: A parameter is unknown, or outside its range.
    """
    controls = controls_of(settings)
    if settings.mask_layout not in LAYOUTS:
        raise ServiceError(f"There is no mask layout {settings.mask_layout!r}; choose {' or '.join(LAYOUTS)}.")
    info = policy_info(settings.policy)
    if settings.mask_layout not in info.layouts:
        raise ServiceError(f"{info.name} has one masked reading only; choose the joint mask for it.")
    chosen = method(FACTORIZED if settings.mask_layout == "factorized" else info.key)
    own = {"lam": settings.lam} if info.fuses else {}
    thresholds = {"calibration": calibration, "accept_mismatch": settings.proceed_uncertified}
    return chosen.build(dict(settings.parameters), **own, **(thresholds if info.certifies else {}), **controls)


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


def controls_of(settings: AuditSettings) -> Controls:
    """What all policies of the settings have in common.

    Raises:
        ServiceError: There is no such mask mode.
    """
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
