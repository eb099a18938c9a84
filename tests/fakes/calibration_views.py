"""Calibrations of every kind that a page has to show, with plausible numbers."""

from __future__ import annotations

import math
from dataclasses import replace

from app.shared.audits import (
    CalibrationRequest,
    CalibrationSummary,
    CalibrationView,
    CoverageView,
    FamilyThresholds,
    ReadingRequest,
)
from app.shared.errors import ServiceError
from coft_core.conformal.bins import check_spacing
from coft_core.conformal.certifiable import BinSupport, Certifiable
from coft_core.conformal.drift import DriftReport, LeftOut
from coft_core.conformal.families import split_alpha
from coft_core.conformal.groups import GroupSummary
from coft_core.conformal.record import Iteration, Reading
from coft_core.conformal.sequence import ChainLengths, SequenceThreshold
from tests.fakes.data import position_bins

FAMILIES_OF = ("gender", "religion", "age")
FINGERPRINT = {
    "model": "demo", "revision": "2026-05", "weights": "sha256 9be1…04d7", "tokenizer": "sha256 51c0…ee2a",
    "dtype": "float32", "chat template": "none", "lambda": "0.60", "temperature": "1.0", "detector": "lexicon 1",
    "mask": "hard", "estimator": "hierarchical", "source": "reference",
}  # fmt: skip
ROUNDS = (
    Iteration(206, 3296, 0.041, 171, False, False),
    Iteration(103, 1648, 0.012, 91, True, False),
    Iteration(103, 1650, 0.004, 93, True, True),
)
LAYOUT_NOTE = "Each family is certified at its own share of alpha; the shares add up to alpha."
ROLLOUT_NOTE = "The chains were generated under other thresholds than these, so the level is approximate."


def reading_of(request: CalibrationRequest) -> Reading:
    """How a calibration of this request is read unless asked otherwise."""
    own = (request.alpha, request.estimator, request.bin_width, request.max_position, request.draws, request.rho)
    return Reading(*own, check_spacing(request.bin_spacing))


def calibration_view(
    summary: CalibrationSummary, request: CalibrationRequest, asked: ReadingRequest, digest: str
) -> CalibrationView:
    """A calibration as asked; what is None stays as calibrated."""
    own = reading_of(request)
    names = ("alpha", "estimator", "bin_width", "max_position", "draws", "rho", "bin_spacing")
    reading = replace(own, **{n: getattr(asked, n) for n in names if getattr(asked, n) is not None})
    level = reading.alpha / reading.rho
    families = _families(request, reading.alpha)
    family = (asked.family or families[0].family) if families else None
    if family:
        level = next(item.alpha for item in families if item.family == family)
    bins = position_bins(level, reading.bin_width)
    if family == "religion":
        bins = tuple(replace(item, tau=item.tau * 0.6, contexts=item.contexts // 2) for item in bins)
    if request.source == "rollout":
        bins = tuple(replace(item, tau=item.tau * 0.85) for item in bins)
    groups = _groups(level) if request.by_group else ()
    if asked.group:
        bins = _group_bins(bins, next(item for item in groups if item.name == asked.group))
    usable = [item.last_step for item in bins if item.state == "calibrated" and item.last_step is not None]
    rollout = request.source == "rollout"
    notes = [LAYOUT_NOTE] if families else []
    if rollout and reading != own:
        notes.append(ROLLOUT_NOTE)
    if request.weighting != "none":
        notes.append("The weights are estimated, so the level is approximate.")
    fingerprint = {**FINGERPRINT, "lambda": f"{request.lam:.2f}", "estimator": request.estimator,
                   "source": request.source, "mask": request.mask_mode}  # fmt: skip
    return CalibrationView(
        summary=summary,
        alpha=reading.alpha,
        bins=bins,
        coverage=_coverage(bins, 1 - level),
        tokens=3806,
        calibrated_up_to=max(usable) + 1 if usable else None,
        fingerprint=tuple(fingerprint.items()),
        fingerprint_digest=digest,
        log_values={
            item.label: tuple(-8.0 * ((i + 0.5) / item.contexts) ** 7 for i in range(item.contexts)) for item in bins
        },
        reading=reading,
        smallest_alpha=_smallest(bins),
        sequence=None if families else _sequence(reading.alpha),
        sequence_coverage=() if families else _sequence_coverage(),
        notes=tuple(notes),
        groups=groups,
        group=asked.group,
        families=families,
        family=family,
        effective_contexts=96.3 if request.weighting != "none" else None,
        iterations=ROUNDS if rollout else (),
        has_chains=rollout or request.record_chains,
    )


def drift_report(status: str) -> DriftReport:
    """What 24 audits say; ``unknown`` has none to speak of."""
    if status == "unknown":
        reason = "this calibration keeps no chains of the deployed policy; calibrate on rollouts or record chains"
        return DriftReport("unknown", 3, 0, 8, reason=reason)
    spread = {"fresh": 1.0, "watch": 0.6, "recalibrate": 0.12}[status]
    peak = {"fresh": 2.3, "watch": 31.0, "recalibrate": 412.0}[status]
    values = tuple(spread * ((7 * i) % 24 + 0.5) / 24 for i in range(24))
    p = {"fresh": 0.44, "watch": 0.004, "recalibrate": 3e-7}[status]
    left_out = (LeftOut(3, "He went", "greedy"), LeftOut(5, "The nurse said", "of a prompt that was audited before"))
    report = DriftReport(status, 24, 180, 8, peak / 2, peak, values, p, 1 - spread / 2)  # type: ignore[arg-type]
    return replace(report, left_out=left_out)


def _coverage(bins: tuple, asked: float) -> tuple[CoverageView, ...]:
    rate = round(400 * (asked + 0.01))
    rows = [CoverageView("All steps", 400, rate, rate / 400, rate / 400 - 0.032, min(1.0, rate / 400 + 0.026), True)]
    for item in bins:
        if item.state == "calibrated":
            rows.append(replace(rows[0], label=item.label, contexts=item.contexts))
    return (*rows, CoverageView(bins[3].label, 5, 5, 1.0, 0.478, 1.0, None))


def _smallest(bins: tuple) -> Certifiable:
    rows = tuple(BinSupport(item.label, item.contexts, 1 / (item.contexts + 1)) for item in bins if item.contexts)
    levels = [row.smallest_alpha for row in rows if row.smallest_alpha]
    return Certifiable(412, min(levels), max(levels), 1 / 413, rows)


LENGTHS = ChainLengths(reached=380, ended=0, cut=32, shortest=24, median=24, longest=24)


def _sequence_coverage() -> tuple[CoverageView, ...]:
    return (
        CoverageView("Whole chains", 124, 113, 113 / 124, 0.847, 0.955, True),
        CoverageView("24 steps, the horizon", 124, 113, 113 / 124, 0.847, 0.955, True),
        CoverageView("9–16 steps, cut short", 14, 13, 13 / 14, 0.661, 0.998, True),
    )


def _sequence(alpha: float) -> SequenceThreshold:
    rank = math.floor(alpha * 413)
    if not rank:
        return SequenceThreshold(-math.inf, alpha, "uninformative", 380, 380, 24, 0, lengths=LENGTHS)
    tau = math.log(0.0031 * alpha / 0.1)
    return SequenceThreshold(tau, alpha, "calibrated", 380, 380, 24, rank, 0.87, 0.93, lengths=LENGTHS, needed=9)


def _families(request: CalibrationRequest, alpha: float) -> tuple[FamilyThresholds, ...]:
    if request.mask_layout != "factorized":
        return ()
    kept = dict(request.alpha_by_family or ()) if alpha == request.alpha else {}
    names = tuple(kept) or FAMILIES_OF
    shares = split_alpha(alpha, names, kept or None)
    return tuple(
        FamilyThresholds(name, shares[name], 300 - 90 * i, 0.05 - 0.012 * i, "calibrated")
        for i, name in enumerate(names)
    )


def _groups(alpha: float) -> tuple[GroupSummary, ...]:
    needed = math.ceil(1 / alpha) - 1
    sizes = (("school", 120, 40), ("street", 6, 2), ("ward", 286, 95))
    return tuple(GroupSummary(name, n, kept, needed, 1 / (n + 1)) for name, n, kept in sizes)


def _group_bins(bins: tuple, group: GroupSummary) -> tuple:
    if not group.certifiable:
        raise ServiceError(group.sentence)
    return tuple(replace(item, contexts=min(item.contexts, group.contexts), tau=item.tau * 0.8) for item in bins)
