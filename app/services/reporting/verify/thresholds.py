"""Checks of thresholds: recomputed from the calibration's own values, and compared with every step."""

from __future__ import annotations

import math

from app.services.reporting.bundle import CALIBRATION
from app.services.reporting.document import thresholds_of
from app.services.reporting.verify.findings import Findings, failed, is_near, skipped
from app.services.reporting.verify.loaded import Loaded
from app.services.views import Step
from app.services.views.verification import Check
from coft_core.conformal.calibration import Calibration
from coft_core.errors import CalibrationFormatError
from coft_core.fingerprint import Fingerprint
from coft_core.policies.base import compared_certificate
from coft_core.types import CertificateState

THRESHOLDS = "Thresholds by step"
CERTIFICATE = "Calibration and certificate"
TOLERANCE = 1e-12
"""Thresholds are read off the same values by the same rule, so that only their printing may differ."""

_WORST_FIRST: tuple[CertificateState, ...] = ("none", "uninformative", "inherited", "calibrated")


def check_certificate(loaded: Loaded) -> Check:
    """The calibration belongs to the policy, or the certificate says that it does not."""
    session, stated = loaded.report.session, loaded.report.thresholds
    if stated is None:
        if session.calibration_label:
            why = f"the calibration “{session.calibration_label}” had been deleted before the export"
            return skipped(CERTIFICATE, why)
        found = Findings(CERTIFICATE)
        claims = session.certificate == "certified"
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
    expected = compared_certificate(loaded.calibration.fingerprint, used, accept_mismatch=True).text
    found.same("Session", "the certificate", session.certificate, expected)
    found.same("Session", "the risk level", session.alpha, loaded.calibration.alpha)
    return found.check("fingerprints of calibration and policy")


def check_thresholds(loaded: Loaded) -> Check:
    """Thresholds are those of the calibration's values, in the report's list and at every step."""
    stated = loaded.report.thresholds
    if stated is not None and loaded.calibration is None:
        return _without(loaded, THRESHOLDS)
    if stated is None and loaded.report.session.calibration_label:
        return skipped(THRESHOLDS, "the calibration had been deleted before the export")
    found = Findings(THRESHOLDS)
    if stated is not None and loaded.calibration is not None and loaded.files is not None:
        settings = loaded.settings
        fresh = thresholds_of(loaded.calibration, loaded.files[CALIBRATION], settings.mask_layout, settings.group)
        found.same("report.json", "the risk level of the thresholds", stated.alpha, fresh.alpha)
        for own, other in zip(stated.families, fresh.families, strict=False):
            for index, (listed, computed) in enumerate(zip(own.bins, other.bins, strict=False)):
                found.same(f"report.json, bin {index + 1}", "the threshold", listed, computed)
        sizes = [len(family.bins) for family in stated.families]
        found.same("report.json", "the number of bins", sizes, [len(family.bins) for family in fresh.families])
    steps = 0
    for branch, step in loaded.own_steps():
        steps += 1
        place = f"Branch {branch.path}, step {step.index + 1}"
        if step.families and loaded.applied is not None:
            _check_families(found, loaded, place, step)
        log_tau, state = _expected(loaded, step)
        found.near(place, "the log-threshold", step.log_tau, log_tau, TOLERANCE)
        found.same(place, "what the threshold rests on", step.state, state)
    contexts = "" if loaded.calibration is None else f" from {loaded.calibration.context_count} contexts"
    return found.check(f"{steps:,} steps{contexts}")


def check_chains(loaded: Loaded) -> Check:
    """What the summary claims of chains as a whole follows from the calibration."""
    name = "Certificates of whole chains"
    if loaded.report.thresholds is not None and loaded.calibration is None:
        return _without(loaded, name)
    from app.services.plain import chain_json

    found = Findings(name)
    summaries = {item.branch: item for item in loaded.report.summary}
    for path, steps in loaded.chains().items():
        expected = chain_json(loaded.chain_certificate(steps))
        summary = summaries.get(path)
        found.same(
            f"Branch {path}", "the certificate of its chain", None if summary is None else summary.chain, expected
        )
    return found.check()


def _without(loaded: Loaded, name: str) -> Check:
    if loaded.calibration_problem:
        return failed(name, f"{CALIBRATION} cannot be used: {loaded.calibration_problem}")
    return skipped(name, "the calibration's values are not with the report; they are in its bundle")


def _expected(loaded: Loaded, step: Step) -> tuple[float, CertificateState]:
    """Log-threshold and state that a step should have, given the families that it names."""
    calibration = loaded.applied
    if calibration is None:
        return -math.inf, "none"
    log_tau, state = -math.inf, "uninformative"
    if isinstance(calibration, Calibration):
        log_tau, state = calibration.threshold(step.index), calibration.state(step.index)
    elif step.families:
        parts = [calibration.threshold(part.family, step.index) for part in step.families]
        log_tau = min(value for value, _ in parts)
        state = min((own for _, own in parts), key=_WORST_FIRST.index)
    return log_tau, "mismatch" if loaded.mismatched else state


def _check_families(found: Findings, loaded: Loaded, place: str, step: Step) -> None:
    calibration = loaded.applied
    if calibration is None or isinstance(calibration, Calibration):
        found.expect(False, f"{place}: it names attribute families, and the calibration has none.")
        return
    for part in step.families:
        log_tau, state = calibration.threshold(part.family, step.index)
        fits = is_near(part.log_tau, log_tau, TOLERANCE)
        fits = fits and part.state == ("mismatch" if loaded.mismatched else state)
        found.expect(fits, f"{place}: the threshold of the family {part.family} is not that of its calibration.")
