"""What past audits say against the calibration that they used."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from app.services.calibration.store import AnyCalibration
from app.services.views import DriftReport
from coft_core.conformal.drift import WINDOW, chain_summary, drift_report
from db.records import SessionBeginning

CERTIFIED = "certified"


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
    return replace(report, reason="; ".join(part for part in (report.reason, *left_out) if part))


def _counted(audits: Sequence[SessionBeginning], alpha: float) -> tuple[list[SessionBeginning], list[str]]:
    """The audits that count, and what is said of the others."""
    certified = [audit for audit in audits if audit.certificate == CERTIFIED]
    at_alpha = [audit for audit in certified if audit.alpha == alpha]
    whole = [audit for audit in at_alpha if audit.group is None]
    drawn = [audit for audit in whole if not audit.greedy]
    # Only an audit that is long enough can stand for its prompt.
    long = [audit for audit in drawn if len(audit.steps) >= WINDOW and not any(s.forced for s in audit.steps[:WINDOW])]
    first = {audit.prompt: audit for audit in reversed(long)}
    counted = sorted(first.values(), key=lambda audit: audit.session_id)
    left_out = (
        (len(audits) - len(certified), "not certified by it"),
        (len(certified) - len(at_alpha), f"at another alpha than {alpha:g}"),
        (len(at_alpha) - len(whole), "with thresholds of one group"),
        (len(whole) - len(drawn), "greedy"),
        (len(drawn) - len(long), f"shorter than {WINDOW} tokens or with a forced token there"),
        (len(long) - len(counted), "of a prompt that was audited before"),
    )
    return counted, [f"not counted: {count} {_audits(count)} {why}" for count, why in left_out if count]


def _summary(audit: SessionBeginning) -> float | None:
    """The one value of an audit; the core's ``audit_summary`` of its steps."""
    return chain_summary([min(step.log_p_fused, step.log_p_masked) for step in audit.steps])


def _audits(count: int) -> str:
    return "audit" if count == 1 else "audits"
