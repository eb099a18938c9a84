"""What past audits say against the calibration that they used."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from app.services.calibration.store import AnyCalibration
from app.services.views import DriftReport, LeftOut
from coft_core.conformal.drift import WINDOW, chain_summary, drift_report
from db.records import SessionBeginning
from db.repositories import SessionsRepository

CERTIFIED = "certified"


def drift_since(calibration: AnyCalibration, calibration_id: int, sessions: SessionsRepository) -> DriftReport:
    """What the stored audits that used a calibration say against it."""
    # Without chains there is nothing to compare audits with, however many there are.
    audits = sessions.beginnings(calibration_id, WINDOW) if len(calibration.chosen) else ()
    return drift_of(calibration, audits)


def drift_of(calibration: AnyCalibration, audits: Sequence[SessionBeginning]) -> DriftReport:
    """Compare audits with the chains that the calibrated policy wrote itself.

    Audits count that are like those chains: certified by this very calibration, drawn and not greedy, with the
    thresholds of all contexts together at the risk level of the chains. A prompt that was audited several times counts
    once, with its first audit, since audits of one prompt depend on each other.

    Args:
        calibration: The calibration as it is stored.
        audits: How its audits began, oldest first.
    """
    chains = calibration.chains
    reading = calibration
    if chains is not None and not calibration.as_rolled_out:
        reading = calibration.read(alpha=chains.reading.alpha)
    counted, left_out = _counted(audits, reading.alpha)
    report = drift_report(reading, [_summary(audit) for audit in counted])
    told = [f"not counted: {count} {_audits(count)} {why}" for why, count in Counter(o.why for o in left_out).items()]
    return replace(report, reason="; ".join(part for part in (report.reason, *told) if part), left_out=left_out)


def _counted(audits: Sequence[SessionBeginning], alpha: float) -> tuple[list[SessionBeginning], tuple[LeftOut, ...]]:
    """The audits that count, oldest first, and the others with the first reason that holds."""
    counted: dict[str, SessionBeginning] = {}
    left_out = []
    for audit in sorted(audits, key=lambda own: own.session_id):
        why = _obstacle(audit, alpha)
        if not why and audit.prompt in counted:
            why = "of a prompt that was audited before"
        if why:
            left_out.append(LeftOut(audit.session_id, audit.prompt, why))
        else:
            counted[audit.prompt] = audit
    return list(counted.values()), tuple(left_out)


def _obstacle(audit: SessionBeginning, alpha: float) -> str:
    """Why an audit is not like the chains that the calibrated policy wrote; empty where it is."""
    if audit.certificate != CERTIFIED:
        return "not certified by it"
    if audit.alpha != alpha:
        return f"at another alpha than {alpha:g}"
    if audit.group is not None:
        return "with thresholds of one group"
    if audit.greedy:
        return "greedy"
    # Only an audit that is long enough can stand for its prompt.
    if len(audit.steps) < WINDOW or any(step.forced for step in audit.steps[:WINDOW]):
        return f"shorter than {WINDOW} tokens or with a forced token there"
    return ""


def _summary(audit: SessionBeginning) -> float | None:
    """The one value of an audit; the core's ``audit_summary`` of its steps."""
    return chain_summary([min(step.log_p_fused, step.log_p_masked) for step in audit.steps])


def _audits(count: int) -> str:
    return "audit" if count == 1 else "audits"
