"""Plain JSON forms of calibrations: probabilities stand in place of logarithms, an absent threshold is tau 0."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from app.shared.audits import BinView, CalibrationSummary, CalibrationView, CoverageView
from coft_core.conformal.certifiable import Certifiable
from coft_core.conformal.drift import DriftReport
from coft_core.conformal.sequence import SequenceThreshold
from coft_core.fingerprint import same_digests

BIN_FIELDS = ("label", "contexts", "rank", "tau", "state", "inherited_from", "coverage_low", "coverage_high", "needed")
COVERAGE_FIELDS = ("contexts", "kept", "coverage", "low", "high")


def calibration_json(view: CalibrationView) -> dict[str, Any]:
    """A calibration as it is read, without its values."""
    return {
        "calibration_id": view.summary.id,
        "name": view.summary.name,
        "model": view.summary.model,
        "alpha": view.alpha,
        "lam": view.summary.lam,
        "estimator": view.reading.estimator,
        "source": view.summary.source,
        "mask_layout": view.summary.mask_layout,
        "certified_in": view.summary.certified_in,
        "contexts": view.summary.contexts,
        "fingerprint": view.fingerprint_digest,
        "policy": dict(view.fingerprint),
        "reading": asdict(view.reading),
        "group": view.group,
        "family": view.family,
        "bins": [bin_json(entry) for entry in view.bins],
        "coverage": coverage_json(view.coverage[0]) if view.coverage else None,
        "coverage_by_bin": {row.label: coverage_json(row) for row in view.coverage[1:]},
        "coverage_by_step": {row.label: coverage_json(row) for row in view.coverage_by_step},
        "smallest_alpha": smallest_alpha_json(view.smallest_alpha),
        "sequence": sequence_json(view.sequence),
        "sequence_coverage": {row.label: coverage_json(row) for row in view.sequence_coverage},
        "families": [asdict(part) for part in view.families],
        "groups": [{**asdict(group), "certifiable": group.certifiable} for group in view.groups],
        "effective_contexts": view.effective_contexts,
        "iterations": [asdict(entry) for entry in view.iterations],
        "has_chains": view.has_chains,
        "notes": list(view.notes),
    }


def calibration_summary_json(item: CalibrationSummary) -> dict[str, Any]:
    """A calibration in a list."""
    record = asdict(item)
    record["calibration_id"] = record.pop("id")
    record["created_at"] = item.created_at.isoformat()
    return record


def bin_json(entry: BinView) -> dict[str, Any]:
    """A position bin; ``uneven`` tells whether its steps differ, and is null where they could not be compared."""
    found = entry.evenness
    return {
        **{name: getattr(entry, name) for name in BIN_FIELDS},
        "uneven": None if found is None else found.uneven,
        "evenness": None if found is None else asdict(found),
    }


def coverage_json(row: CoverageView) -> dict[str, Any]:
    """Coverage measured on contexts kept apart."""
    return {name: getattr(row, name) for name in COVERAGE_FIELDS}


def smallest_alpha_json(found: Certifiable) -> dict[str, Any]:
    """Smallest risk levels that the contexts support; null where there is none."""
    return {
        "overall": found.overall,
        "everywhere": found.everywhere,
        "sequence": found.sequence,
        "bins": {entry.label: entry.smallest_alpha for entry in found.bins},
    }


def sequence_json(threshold: SequenceThreshold | None) -> dict[str, Any] | None:
    """The threshold for whole chains; null with factorized masks."""
    if threshold is None:
        return None
    fields = ("alpha", "tau", "state", "contexts", "horizon", "rank", "coverage_low", "coverage_high")
    found = {name: getattr(threshold, name) for name in fields}
    return {**found, "holds_for": threshold.applies, "lengths": asdict(threshold.lengths), "reason": threshold.reason}


def drift_json(report: DriftReport) -> dict[str, Any]:
    """What audits say against a calibration."""
    return {
        **asdict(report),
        "p_values": list(report.p_values),
        "left_out": [asdict(own) for own in report.left_out],
        "sentence": report.sentence,
    }


def compared_json(first: CalibrationView, second: CalibrationView) -> dict[str, Any]:
    """Two calibrations side by side, and what differs in their policies."""
    return {
        "first": calibration_json(first),
        "second": calibration_json(second),
        "differences": [list(row) for row in policy_differences(first, second)],
    }


def policy_differences(first: CalibrationView, second: CalibrationView) -> tuple[tuple[str, str, str], ...]:
    """Fields of the fingerprint that differ, with both values."""
    other = dict(second.fingerprint)
    return tuple(
        (name, value, other[name]) for name, value in first.fingerprint if not same_digests(value, other[name])
    )
