"""Checks of thresholds: read off the calibration's own values again, and compared with every step and claim."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import cast

from app.report.bundle import CALIBRATION
from app.report.document import ThresholdsPart, thresholds_of
from app.report.verify.findings import Findings, Skipped, check
from app.report.verify.loaded import Loaded
from app.shared.audits import AuditSettings
from app.shared.errors import ServiceError
from app.shared.json import chain_json
from app.shared.planning import other_layout, policy_of
from app.shared.policies import policy_info
from coft_core.conformal.calibration import Calibration
from coft_core.conformal.part import JOINT
from coft_core.errors import CoftError
from coft_core.fingerprint import Fingerprint
from coft_core.policies.ablations import factual_only
from coft_core.policies.base import compared_certificate
from coft_core.types import Certificate, CertificateState, Step

TOLERANCE = 1e-12
"""Thresholds are read off the same values by the same rule, so that only their printing may differ."""

_WORST_FIRST = ("none", "uninformative", "inherited", "calibrated")


def _require_usable(loaded: Loaded) -> None:
    if loaded.calibration_problem:
        raise ServiceError(f"{CALIBRATION} cannot be used: {loaded.calibration_problem}")


def _calibration(loaded: Loaded) -> Calibration:
    """The calibration with its values, for a check that can do nothing without."""
    _require_usable(loaded)
    if loaded.calibration is None:
        raise Skipped("the calibration's values are not with the report; they are in its bundle")
    return loaded.calibration


@check("Calibration and certificate")
def check_certificate(findings: Findings, loaded: Loaded) -> str:
    """The calibration belongs to the policy, or the certificate says that it does not."""
    session, stated = loaded.report.session, loaded.report.thresholds
    certificate = Certificate.read(session.certificate)
    if stated is None:
        if session.calibration_label:
            raise Skipped(f"the calibration “{session.calibration_label}” had been deleted before the export")
        findings.same("Session", "whether the certificate says “certified”", certificate.certified, False)
        return "no calibration was used"
    calibration = _calibration(loaded)
    if not stated.applied:
        findings.same("report.json", "whether thresholds are applied", stated.applied, loaded.applied is not None)
        refused = other_layout(replace(loaded.settings, proceed_uncertified=True), calibration)
        findings.same("Session", "the certificate", certificate, refused)
        return "thresholds of another mask layout, not applied"
    used = Fingerprint.from_dict(session.fingerprint)
    if policy_info(loaded.settings.policy).certified_in == "factual" and calibration.layout == "joint":
        used = factual_only(calibration, used)
    fitting = calibration.fingerprint
    expected = compared_certificate(fitting, used, accept_mismatch=True, silence=calibration.silence).text
    # Reports of earlier versions called a session certified although its thresholds say nothing.
    earlier = compared_certificate(fitting, used, accept_mismatch=True).text
    allowed = earlier if loaded.before_weakness and session.certificate == earlier else expected
    findings.same("Session", "the certificate", session.certificate, allowed)
    findings.same("Session", "the risk level", session.alpha, calibration.alpha)
    return "fingerprints of calibration and policy"


@check("Thresholds by step")
def check_thresholds(findings: Findings, loaded: Loaded) -> str:
    """Thresholds are those of the calibration's values, in the report's list and at every step."""
    stated = loaded.report.thresholds
    _require_usable(loaded)
    if stated is None and loaded.report.session.calibration_label:
        raise Skipped("the calibration had been deleted before the export")
    if stated is not None and loaded.calibration is not None and loaded.files is not None:
        settings = loaded.settings
        fresh = thresholds_of(loaded.calibration, loaded.files[CALIBRATION], settings.mask_layout, settings.group)
        _compare_lists(findings, stated, fresh, loaded.before_weakness)
    steps, uncalibrated = 0, _uncalibrated(loaded.settings)
    for place, _, step in loaded.own_steps():
        steps += 1
        _check_step(findings, loaded, place, step, uncalibrated)
    if stated is None:
        return f"{steps:,} steps without a threshold"
    if loaded.calibration is None:
        return f"{steps:,} steps, against the report's own list; the values behind it are in its bundle"
    return f"{steps:,} steps, from the values of {loaded.calibration.context_count} contexts"


@check("Certificates of whole chains")
def check_chains(findings: Findings, loaded: Loaded) -> None:
    """What the summary claims of chains as a whole follows from the calibration."""
    if loaded.report.thresholds is not None and loaded.lacks_calibration:
        _calibration(loaded)
    if loaded.vocabulary is None:
        raise Skipped(
            "the session was stored without the size of the vocabulary, by a version that claimed more of whole "
            "chains; run the audit again"
        )
    finished = {branch.path: branch.finished for branch in loaded.report.branches}
    stated = {item.branch: item.chain for item in loaded.report.summary}
    for path, steps in loaded.chains().items():
        expected = chain_json(loaded.chain_certificate(steps, finished[path]))
        findings.same(f"Branch {path}", "the certificate of its chain", stated.get(path), expected)


def _uncalibrated(settings: AuditSettings) -> float:
    """The log-threshold that the settings' method applies where it reads no calibration; most methods apply none.

    Settings from which no policy can be built have none either; that they are damaged is a finding of its own.
    """
    try:
        return policy_of(settings, None).threshold(0)[0]
    except (CoftError, ServiceError):
        return -math.inf


def _compare_lists(findings: Findings, stated: ThresholdsPart, fresh: ThresholdsPart, earlier: bool) -> None:
    """Compare the listed thresholds; an ``earlier`` report did not know which of them are too weak to say anything."""
    place = "report.json"
    for name in ("calibration", "alpha", "group", "layout", "applied"):
        findings.same(place, f"{name} of the thresholds", getattr(stated, name), getattr(fresh, name))
    if stated.uneven is not None:
        findings.same(place, "the bins whose steps differ", stated.uneven, fresh.uneven)
    sizes, counted = ([(part.family, part.alpha, len(part.bins)) for part in one.families] for one in (stated, fresh))
    findings.same(place, "the list of families and bins", sizes, counted)
    for given, other in zip(stated.families, fresh.families, strict=False):
        family = "" if given.family is None else f", family {given.family}"
        for index, (listed, computed) in enumerate(zip(given.bins, other.bins, strict=False)):
            if earlier and computed.state == "uninformative" and computed.log_tau > -math.inf:
                computed = replace(computed, state=listed.state)
            findings.same(f"{place}, bin {index + 1}{family}", "the threshold", listed, computed)


def _check_step(findings: Findings, loaded: Loaded, place: str, step: Step, uncalibrated: float) -> None:
    families = []
    for part in step.families:
        log_tau, state = _threshold(loaded, part.family, step.index)
        family = f"{place}, family {part.family}"
        findings.same(family, "the log-threshold", part.log_tau, log_tau, TOLERANCE)
        findings.same(family, "what the threshold rests on", part.state, _effective(loaded, state))
        families.append((log_tau, state))
    if not _is_applied(loaded):
        log_tau, state = uncalibrated, "none"
    elif loaded.settings.mask_layout == "joint":
        log_tau, state = _threshold(loaded, None, step.index)
    else:
        log_tau = min((value for value, _ in families), default=-math.inf)
        state = min((state for _, state in families), key=_WORST_FIRST.index, default="uninformative")
    findings.same(place, "the log-threshold", step.log_tau, log_tau, TOLERANCE)
    expected = _effective(loaded, loaded.judged(cast(CertificateState, state), step, log_tau))
    findings.same(place, "what the threshold rests on", step.state, expected)


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
    return loaded.applied.bound(step, family or JOINT)


def _listed(thresholds: ThresholdsPart | None, family: str | None, step: int) -> tuple[float, str]:
    for part in () if thresholds is None else thresholds.families:
        if part.family == family:
            for entry in part.bins:
                if entry.first_step <= step and (entry.last_step is None or step <= entry.last_step):
                    return entry.log_tau, entry.state
    # A family that was never calibrated refuses nothing.
    return -math.inf, "uninformative"
