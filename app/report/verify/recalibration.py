"""The check of a calibration: made again on the model, from the prompts that are in the bundle."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace

import numpy as np

from app.calibrate.service import calibrated_again
from app.report.bundle import CALIBRATION, PROMPTS_FILE, CalibrationSource, prompts_from
from app.report.verify.findings import Check, Findings, failed, is_near, skipped
from app.report.verify.loaded import Loaded
from app.report.verify.replay import COARSE_TOLERANCE, TOLERANCES
from app.shared.errors import ServiceError
from app.shared.fingerprints import detector_parts
from app.shared.model_host import ModelHost
from coft_core.conformal.calibration import Calibration
from coft_core.errors import CoftError
from coft_core.fingerprint import same_digests
from coft_core.model.language_model import LanguageModel
from coft_core.text.detection import SpanDetector

CALIBRATION_CHECK = "Calibration from its prompts"
Detector = Callable[[], SpanDetector]

_NOT_COMPUTED = ("name", "created", "fingerprint")
"""What a calibration has beside what is computed; fingerprints are compared by themselves."""


def check_calibration(loaded: Loaded, host: ModelHost | None, detector: Detector) -> Check:
    """Every value of the calibration comes out again from the prompts in the bundle."""
    files = loaded.files or {}
    if CALIBRATION not in files:
        return skipped(CALIBRATION_CHECK, "there is no calibration in the bundle")
    if PROMPTS_FILE not in files:
        return skipped(CALIBRATION_CHECK, "the bundle was exported without the calibration's prompts")
    try:
        made_of = prompts_from(files[PROMPTS_FILE])
    except (CoftError, ServiceError) as error:
        return failed(CALIBRATION_CHECK, str(error))
    if (stated := loaded.stated) is None:
        return failed(CALIBRATION_CHECK, loaded.calibration_problem)
    if host is None:
        return skipped(CALIBRATION_CHECK, "not asked for; --replay loads the model and calibrates again")
    try:
        model = host.get(made_of.request.model)
        chosen = _detector(made_of, stated, detector)
        if (why := _other_detector(stated, made_of, chosen)) is not None:
            return skipped(CALIBRATION_CHECK, why)
        with host.turn():
            fresh = calibrated_again(model, chosen, made_of.rows, made_of.request, host.memory.room())
    except (CoftError, ServiceError) as error:
        return failed(CALIBRATION_CHECK, f"The calibration cannot be made again: {error}")
    return _compared(stated, fresh, made_of, model)


def _detector(made_of: CalibrationSource, stated: Calibration, detector: Detector) -> SpanDetector:
    parts = detector_parts(stated.fingerprint.detector)
    families = made_of.request.masked_families if parts is None else parts.masked_families
    return detector().adapted(families, made_of.user_list)


def _other_detector(stated: Calibration, made_of: CalibrationSource, chosen: SpanDetector) -> str | None:
    """Why spans cannot be found again; None where they are given, or the detector is the same."""
    if same_digests(chosen.version, stated.fingerprint.detector):
        return None
    if all(row.example.spans is not None for row in made_of.rows):
        return None
    return (
        f"spans of its prompts were found by another detector ({stated.fingerprint.detector}) than there is here "
        f"({chosen.version})"
    )


def _compared(stated: Calibration, fresh: Calibration, made_of: CalibrationSource, model: LanguageModel) -> Check:
    findings = Findings(CALIBRATION_CHECK)
    findings.same("Calibration", "its kind", type(stated).__name__, type(fresh).__name__)
    # Spans that are given need no detector, so that its version may be another one here.
    fingerprint = replace(stated.fingerprint, detector=fresh.fingerprint.detector)
    for name, one, other in fingerprint.differences(fresh.fingerprint):
        findings.expect(False, f"The calibration's fingerprint says {name} {one}, and calibrating again gives {other}.")
    tolerance = TOLERANCES.get(model.dtype_name, COARSE_TOLERANCE)
    if type(stated) is type(fresh):
        _compare(findings, "", stated, fresh, tolerance)
    return findings.check(f"{len(made_of.rows)} prompts; values within {tolerance:g}")


def _compare(findings: Findings, place: str, stated: object, fresh: object, tolerance: float) -> None:
    """Expect two values to be equal: numbers within the tolerance, and parts of parts one by one."""
    if is_dataclass(stated) and type(stated) is type(fresh):
        for field in fields(stated):
            if field.compare and field.name not in _NOT_COMPUTED:
                part = f"{place}.{field.name}" if place else field.name
                _compare(findings, part, getattr(stated, field.name), getattr(fresh, field.name), tolerance)
    elif isinstance(stated, np.ndarray) and isinstance(fresh, np.ndarray):
        _compare_arrays(findings, place, stated, fresh, tolerance)
    elif isinstance(stated, tuple) and isinstance(fresh, tuple) and len(stated) == len(fresh):
        for index, (given, other) in enumerate(zip(stated, fresh, strict=True), 1):
            _compare(findings, f"{place} {index}", given, other, tolerance)
    elif isinstance(stated, float) and isinstance(fresh, float):
        near = is_near(stated, fresh, tolerance)
        findings.expect(near, f"Calibration: {place} is stated as {stated:.9g} and computed as {fresh:.9g}.")
    else:
        findings.same("Calibration", place, stated, fresh)


def _compare_arrays(findings: Findings, place: str, stated: np.ndarray, fresh: np.ndarray, tolerance: float) -> None:
    if not findings.expect(
        stated.shape == fresh.shape, f"Calibration: {place} has {stated.size} entries, and {fresh.size} are computed."
    ):
        return
    with np.errstate(invalid="ignore"):
        # Infinities differ by NaN, and are equal to themselves alone.
        near = (stated == fresh) | (np.abs(stated - fresh) <= (tolerance if stated.dtype.kind == "f" else 0))
    wrong = np.flatnonzero(~near.reshape(-1))
    first = int(wrong[0]) if wrong.size else 0
    findings.expect(
        not wrong.size,
        f"Calibration: {wrong.size} of {stated.size} entries of {place} are not those that are computed; the first is "
        f"{_entry(stated, first)} instead of {_entry(fresh, first)}.",
    )


def _entry(values: np.ndarray, index: int) -> str:
    return f"{values.reshape(-1)[index]:.9g}" if values.size else "none"
