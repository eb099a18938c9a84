"""Checks of thresholds: recomputed from the calibration's own values, and compared with every step."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from typing import cast

import numpy as np

from app.calibrate.run import CalibrationWork, calibrated, with_chains
from app.report.bundle import CALIBRATION, PROMPTS_FILE, CalibrationPrompts, prompts_from
from app.report.document import ThresholdsPart, thresholds_of
from app.report.verify.loaded import Check, Findings, Loaded, failed, is_near, skipped
from app.report.verify.numbers import uncalibrated_threshold
from app.report.verify.replay import COARSE_TOLERANCE, TOLERANCES
from app.shared.errors import ServiceError
from app.shared.fingerprints import detector_parts
from app.shared.json import chain_json
from app.shared.model_host import ModelHost
from app.shared.policies import policy_info
from coft_core.conformal import informative
from coft_core.conformal.families import AnyCalibration, load_calibration
from coft_core.errors import CalibrationFormatError, CoftError
from coft_core.fingerprint import Fingerprint, same_digests
from coft_core.model.language_model import LanguageModel
from coft_core.policies.ablations import factual_only
from coft_core.policies.base import compared_certificate
from coft_core.text.detection import SpanDetector
from coft_core.types import Certificate, CertificateState, Step

NAME = "Calibration from its prompts"
Detector = Callable[[], SpanDetector]

_OWN = ("name", "created", "fingerprint")
"""What a calibration has beside what is computed; fingerprints are compared by themselves."""


def check_calibration(loaded: Loaded, host: ModelHost | None, detector: Detector) -> Check:
    """Every value of the calibration comes out again from the prompts in the bundle.

    Args:
        loaded: The report.
        host: Loads the model; None if a replay was not asked for.
        detector: The program's own span detector, for prompts whose spans are not given.
    """
    files = loaded.files or {}
    if CALIBRATION not in files:
        return skipped(NAME, "there is no calibration in the bundle")
    if PROMPTS_FILE not in files:
        return skipped(NAME, "the bundle was exported without the calibration's prompts")
    try:
        made_of = prompts_from(files[PROMPTS_FILE])
        stated = load_calibration(files[CALIBRATION])
    except (CoftError, ServiceError) as error:
        return failed(NAME, str(error))
    if host is None:
        return skipped(NAME, "not asked for; --replay loads the model and calibrates again")
    try:
        model = host.get(made_of.request.model)
        chosen = _detector(made_of, stated, detector)
        work = CalibrationWork(model, chosen, made_of.rows, made_of.request, host.memory.room())
        if (why := _other_detector(stated, work)) is not None:
            return skipped(NAME, why)
        with host.turn():
            fresh = calibrated(work)
            fresh = with_chains(work, fresh) if work.records_chains else fresh
    except (CoftError, ServiceError) as error:
        return failed(NAME, f"The calibration cannot be made again: {error}")
    return _compared(stated, fresh, made_of, model)


def _detector(made_of: CalibrationPrompts, stated: AnyCalibration, detector: Detector) -> SpanDetector:
    parts = detector_parts(stated.fingerprint.detector)
    families = made_of.request.masked_families if parts is None else parts.masked_families
    return detector().adapted(families, made_of.user_list)


def _other_detector(stated: AnyCalibration, work: CalibrationWork) -> str | None:
    """Why spans cannot be found again; None where they are given, or the detector is the same."""
    if same_digests(work.detector.version, stated.fingerprint.detector):
        return None
    if all(row.example.spans is not None for row in work.rows):
        return None
    return (
        f"spans of its prompts were found by another detector ({stated.fingerprint.detector}) than there is here "
        f"({work.detector.version})"
    )


def _compared(
    stated: AnyCalibration, fresh: AnyCalibration, made_of: CalibrationPrompts, model: LanguageModel
) -> Check:
    found = Findings(NAME)
    found.same("Calibration", "its kind", type(stated).__name__, type(fresh).__name__)
    # Spans that are given need no detector, so that its version may be another one here.
    own = replace(stated.fingerprint, detector=fresh.fingerprint.detector)
    for name, one, other in own.differences(fresh.fingerprint):
        found.expect(False, f"The calibration's fingerprint says {name} {one}, and calibrating again gives {other}.")
    tolerance = TOLERANCES.get(model.dtype_name, COARSE_TOLERANCE)
    if type(stated) is type(fresh):
        _compare(found, "", stated, fresh, tolerance)
    return found.check(f"{len(made_of.rows)} prompts; values within {tolerance:g}")


def _compare(found: Findings, place: str, stated: object, fresh: object, tolerance: float) -> None:
    """Expect two values to be equal: numbers within the tolerance, and parts of parts one by one."""
    if is_dataclass(stated) and type(stated) is type(fresh):
        for field in fields(stated):
            if field.compare and field.name not in _OWN:
                part = f"{place}.{field.name}" if place else field.name
                _compare(found, part, getattr(stated, field.name), getattr(fresh, field.name), tolerance)
    elif isinstance(stated, np.ndarray) and isinstance(fresh, np.ndarray):
        _compare_arrays(found, place, stated, fresh, tolerance)
    elif isinstance(stated, tuple) and isinstance(fresh, tuple) and len(stated) == len(fresh):
        for index, (own, other) in enumerate(zip(stated, fresh, strict=True), 1):
            _compare(found, f"{place} {index}", own, other, tolerance)
    elif isinstance(stated, float) and isinstance(fresh, float):
        near = is_near(stated, fresh, tolerance)
        found.expect(near, f"Calibration: {place} is stated as {stated:.9g} and computed as {fresh:.9g}.")
    else:
        found.same("Calibration", place, stated, fresh)


def _compare_arrays(found: Findings, place: str, stated: np.ndarray, fresh: np.ndarray, tolerance: float) -> None:
    if not found.expect(
        stated.shape == fresh.shape, f"Calibration: {place} has {stated.size} entries, and {fresh.size} are computed."
    ):
        return
    with np.errstate(invalid="ignore"):
        # Infinities differ by NaN, and are equal to themselves alone.
        near = (stated == fresh) | (np.abs(stated - fresh) <= (tolerance if stated.dtype.kind == "f" else 0))
    wrong = np.flatnonzero(~near.reshape(-1))
    first = int(wrong[0]) if wrong.size else 0
    found.expect(
        not wrong.size,
        f"Calibration: {wrong.size} of {stated.size} entries of {place} are not those that are computed; the first is "
        f"{_entry(stated, first)} instead of {_entry(fresh, first)}.",
    )


def _entry(values: np.ndarray, index: int) -> str:
    return f"{values.reshape(-1)[index]:.9g}" if values.size else "none"


THRESHOLDS = "Thresholds by step"
CERTIFICATE = "Calibration and certificate"
TOLERANCE = 1e-12
"""Thresholds are read off the same values by the same rule, so that only their printing may differ."""

_WORST_FIRST = ("none", "uninformative", "inherited", "calibrated")


def check_certificate(loaded: Loaded) -> Check:
    """The calibration belongs to the policy, or the certificate says that it does not."""
    session, stated = loaded.report.session, loaded.report.thresholds
    if stated is None:
        if session.calibration_label:
            why = f"the calibration “{session.calibration_label}” had been deleted before the export"
            return skipped(CERTIFICATE, why)
        found = Findings(CERTIFICATE)
        claims = Certificate.read(session.certificate).certified
        found.expect(not claims, "The certificate says “certified”, and there is no calibration.")
        return found.check("no calibration was used")
    if loaded.calibration is None:
        return _without(loaded, CERTIFICATE)
    found = Findings(CERTIFICATE)
    if not stated.applied:
        found.expect(loaded.applied is None, "The thresholds are said not to be applied, and their mask layout fits.")
        says = session.certificate.startswith("uncertified: policy mismatch (mask_layout")
        found.expect(says, "The certificate does not say that the thresholds are those of another mask layout.")
        return found.check("thresholds of another mask layout, not applied")
    try:
        used = Fingerprint.from_dict(session.fingerprint)
    except CalibrationFormatError as error:
        return failed(CERTIFICATE, str(error))
    if policy_info(loaded.settings.policy).certified_in == "factual" and loaded.calibration.layout == "joint":
        used = factual_only(loaded.calibration, used)
    own = loaded.calibration
    expected = compared_certificate(own.fingerprint, used, accept_mismatch=True, silence=own.silence).text
    # Reports of earlier versions called a session certified although its thresholds say nothing.
    earlier = compared_certificate(own.fingerprint, used, accept_mismatch=True).text
    allowed = earlier if loaded.before_weakness and session.certificate == earlier else expected
    found.same("Session", "the certificate", session.certificate, allowed)
    found.same("Session", "the risk level", session.alpha, loaded.calibration.alpha)
    return found.check("fingerprints of calibration and policy")


def check_thresholds(loaded: Loaded) -> Check:
    """Thresholds are those of the calibration's values, in the report's list and at every step."""
    stated = loaded.report.thresholds
    if loaded.calibration_problem:
        return _without(loaded, THRESHOLDS)
    if stated is None and loaded.report.session.calibration_label:
        return skipped(THRESHOLDS, "the calibration had been deleted before the export")
    found = Findings(THRESHOLDS)
    if stated is not None and loaded.calibration is not None and loaded.files is not None:
        settings = loaded.settings
        fresh = thresholds_of(loaded.calibration, loaded.files[CALIBRATION], settings.mask_layout, settings.group)
        _compare_lists(found, stated, fresh, loaded.before_weakness)
    steps, uncalibrated = 0, uncalibrated_threshold(loaded.settings)
    for branch, step in loaded.own_steps():
        steps += 1
        place = f"Branch {branch.path}, step {step.index + 1}"
        _check_step(found, loaded, place, step, uncalibrated)
    if stated is None:
        return found.check(f"{steps:,} steps without a threshold")
    if loaded.calibration is None:
        return found.check(f"{steps:,} steps, against the report's own list; the values behind it are in its bundle")
    return found.check(f"{steps:,} steps, from the values of {loaded.calibration.context_count} contexts")


def check_chains(loaded: Loaded) -> Check:
    """What the summary claims of chains as a whole follows from the calibration."""
    name = "Certificates of whole chains"
    if loaded.report.thresholds is not None and loaded.lacks_calibration:
        return _without(loaded, name)
    if loaded.claims_longest_chain:
        why = (
            "the report was written when they were claimed for every chain up to the longest calibrated one, which "
            "chains cut short do not support; export it again"
        )
        return skipped(name, why)
    found = Findings(name)
    finished = {branch.path: branch.finished for branch in loaded.report.branches}
    summaries = {item.branch: item for item in loaded.report.summary}
    for path, steps in loaded.chains().items():
        expected = chain_json(loaded.chain_certificate(steps, finished[path]))
        summary = summaries.get(path)
        found.same(
            f"Branch {path}", "the certificate of its chain", None if summary is None else summary.chain, expected
        )
    return found.check()


def _without(loaded: Loaded, name: str) -> Check:
    if loaded.calibration_problem:
        return failed(name, f"{CALIBRATION} cannot be used: {loaded.calibration_problem}")
    return skipped(name, "the calibration's values are not with the report; they are in its bundle")


def _compare_lists(found: Findings, stated: ThresholdsPart, fresh: ThresholdsPart, earlier: bool) -> None:
    """Compare the listed thresholds; an ``earlier`` report did not know which of them are too weak to say anything."""
    place = "report.json"
    for name in ("calibration", "alpha", "group", "layout", "applied"):
        found.same(place, f"{name} of the thresholds", getattr(stated, name), getattr(fresh, name))
    if stated.uneven is not None:
        found.same(place, "the bins whose steps differ", stated.uneven, fresh.uneven)
    sizes, counted = ([(part.family, part.alpha, len(part.bins)) for part in one.families] for one in (stated, fresh))
    found.same(place, "the list of families and bins", sizes, counted)
    for own, other in zip(stated.families, fresh.families, strict=False):
        family = "" if own.family is None else f", family {own.family}"
        for index, (listed, computed) in enumerate(zip(own.bins, other.bins, strict=False)):
            if earlier and computed.state == "uninformative" and computed.log_tau > -math.inf:
                computed = computed.model_copy(update={"state": listed.state})
            found.same(f"{place}, bin {index + 1}{family}", "the threshold", listed, computed)


def _check_step(found: Findings, loaded: Loaded, place: str, step: Step, uncalibrated: float) -> None:
    families = []
    for part in step.families:
        log_tau, state = _threshold(loaded, part.family, step.index)
        fits = is_near(part.log_tau, log_tau, TOLERANCE) and part.state == _effective(loaded, state)
        found.expect(fits, f"{place}: the threshold of the family {part.family} is not that of its calibration.")
        families.append((log_tau, state))
    if not _is_applied(loaded):
        log_tau, state = uncalibrated, "none"
    elif loaded.settings.mask_layout == "joint":
        log_tau, state = _threshold(loaded, None, step.index)
    else:
        log_tau = min((value for value, _ in families), default=-math.inf)
        state = min((own for _, own in families), key=_WORST_FIRST.index, default="uninformative")
    found.near(place, "the log-threshold", step.log_tau, log_tau, TOLERANCE)
    expected = _effective(
        loaded, informative.stated(cast(CertificateState, state), log_tau, step.set_size, step.certified_mass)
    )
    found.same(place, "what the threshold rests on", step.state, expected)


def _is_applied(loaded: Loaded) -> bool:
    return loaded.report.thresholds is not None and loaded.report.thresholds.applied


def _effective(loaded: Loaded, state: str) -> str:
    return "mismatch" if loaded.mismatched and state != "none" else state


def _threshold(loaded: Loaded, family: str | None, step: int) -> tuple[float, str]:
    """Log-threshold and state of a family (None: of the joint mask) at a step, from the values if they are there."""
    if not _is_applied(loaded):
        return -math.inf, "none"
    if loaded.applied is None:
        return _listed(loaded.report.thresholds, family, step)
    part = loaded.applied.part(family)
    return (-math.inf, "uninformative") if part is None else (part.threshold(step), part.state(step))


def _listed(thresholds: ThresholdsPart | None, family: str | None, step: int) -> tuple[float, str]:
    for part in () if thresholds is None else thresholds.families:
        if part.family == family:
            for entry in part.bins:
                if entry.first_step <= step and (entry.last_step is None or step <= entry.last_step):
                    return entry.log_tau, entry.state
    # A family that was never calibrated refuses nothing.
    return -math.inf, "uninformative"
