"""Steps, thresholds and what else pages put into words, made by hand where a test needs a few of them."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from app.jobs.service import JobView
from app.shared.audits import CalibrationSummary
from coft_core.conformal.bins import Bin
from coft_core.conformal.drift import DriftReport, LeftOut
from coft_core.types import Candidate, Diagnostics, Step
from db.jobs import JobStatus
from tests.story.model import RATIOS

NOW = datetime(2026, 5, 4, 14, 2, tzinfo=UTC)
CONTEXTS, TAUS = (412, 371, 148, 6, 0), (0.06, 0.054, 0.047, 0.0, 0.047)
"""By bin of steps."""


def position_bins(alpha: float = 0.1, width: int = 8) -> tuple[Bin, ...]:
    """Three bins of their own, one with too few contexts, and one that borrows."""
    needed = math.ceil(1 / alpha) - 1
    labels = [f"{index * width + 1}–{(index + 1) * width}" for index in range(4)] + [f"{4 * width + 1} and later"]
    found = []
    for index in range(len(labels)):
        last = None if index == 4 else (index + 1) * width - 1
        n = CONTEXTS[index]
        state = "inherited" if index == 4 else ("calibrated" if n >= needed else "uninformative")
        own = state == "calibrated"
        found.append(
            Bin(
                index=index,
                first_step=index * width,
                last_step=last,
                state=state,
                log_tau=math.log(TAUS[index] * (alpha / 0.1)) if state != "uninformative" else -math.inf,
                contexts=n,
                values=n,
                rank=math.floor(alpha * (n + 1)),
                coverage_low=max(0.0, 1 - alpha - 1.2 / math.sqrt(n + 1)) if own else None,
                coverage_high=min(1.0, 1 - alpha + 0.6 / math.sqrt(n + 1)) if own else None,
                inherited_from=labels[2] if index == 4 else None,
                needed=needed,
            )
        )
    return tuple(found)


def _candidates(token: str, ratio: float, low: bool, tau: float) -> tuple[Candidate, ...]:
    scale = 0.2 if low else 1.0
    base = [(0.22, 0.09), (0.18, 0.25), (0.12, 0.13), (0.07, 0.06), (0.05, 0.065), (0.02, 0.03)]
    words = [token, *(word for word in (" they", " the", " she", " then", " nobody", " we") if word != token)]
    if token == " nobody":
        words = [*words[1:6], token]
    rows = []
    for number, (factual, masked) in enumerate(base):
        if words[number] == token and token != " nobody":
            masked = factual * math.exp(-ratio)
        fused = 0.4 * factual + 0.6 * masked
        logs = [math.log(value * scale) for value in (factual, masked, fused)]
        good = min(logs[1], logs[2]) >= (math.log(tau) if tau else -math.inf)
        rows.append(Candidate(100 + sum(map(ord, words[number])), words[number], *logs, certified=good))
    return tuple(sorted(rows, key=lambda row: -row.log_p_factual))


def make_step(index: int, token: str, state: str | None = None, forced: bool = False, own: str = " they") -> Step:
    """A step as its bin has it; step 13 falls back, and where it is forced, the policy would have written ``own``."""
    place = position_bins()[min(index // 8, 4)]
    state = state or place.state
    ratio = RATIOS.get(index, 0.03)
    low = index == 12
    tau = place.tau if state in ("calibrated", "inherited", "mismatch") else 0.0
    rows = _candidates(token, ratio, low, tau)
    row = next(item for item in rows if item.token == token)
    good = sum(item.certified for item in rows)
    counted = state in ("calibrated", "inherited")
    return Step(
        index=index,
        token_id=row.token_id,
        token=token,
        log_p_factual=row.log_p_factual,
        log_p_masked=row.log_p_masked,
        log_p_fused=row.log_p_fused,
        log_tau=math.log(tau) if tau else -math.inf,
        certified=row.certified and counted,
        set_size=2048 if state == "uninformative" else good,
        certified_mass=1.0 if state == "uninformative" else sum(math.exp(r.log_p_fused) for r in rows if r.certified),
        fallback=low and not forced and good == 0,
        forced=forced,
        policy_token_id=100 + sum(map(ord, own)) if forced else row.token_id,
        policy_token=own if forced else token,
        state=state,  # type: ignore[arg-type]
        candidates=rows,
        diagnostics=Diagnostics(
            2.1,
            2.2,
            2.15,
            0.012,
            0.07 if good else None,
            0.0775 / tau if tau else None,
            ratio,
            ratio,
            0.4,
            0.004 + 0.05 * abs(ratio),
            min(1.0, 0.02 + 0.1 * abs(ratio)),
        ),
    )


SUMMARY = CalibrationSummary(
    1, "Ward notes, reference", "demo", "hierarchical", "reference", 0.6, 0.1, 412, 0.91, 0.878, 0.936, NOW, True
)


def job_view(
    number: int, kind: str, title: str, status: JobStatus, progress: float, message: str,
    result: dict[str, Any] | None = None, seconds_left: float | None = None, resumable: bool = False,
) -> JobView:  # fmt: skip
    """A job whose times and request no page shows."""
    return JobView(
        id=number, kind=kind, title=title, status=status, progress=progress, message=message, error=None, payload={},
        result=result, created_at=datetime.now(UTC), started_at=None, finished_at=None, heartbeat_at=None,
        seconds_left=seconds_left, resumable=resumable,
    )  # fmt: skip


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
