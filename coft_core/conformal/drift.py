"""Has the world moved since the calibration? Exchangeability tests of audits against the policy's own chains.

One value an audit, so that audits are the units: the mean support of the first tokens that the policy chose. It is
compared with that of the chains that the policy wrote on calibration prompts. The conformal test martingale (Vovk,
Gammerman and Shafer 2005; simple jumper of Vovk et al. 2021) bets against exchangeability in the order of the audits.
Without drift it ever exceeds c with probability at most 1 / c, so it may be looked at after every audit.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy import stats

from coft_core.conformal.calibration import Calibration
from coft_core.conformal.quantile import check_seed
from coft_core.conformal.values import CalibrationValues, as_log_support
from coft_core.errors import InvalidInputError
from coft_core.types import Step

DriftStatus = Literal["fresh", "watch", "recalibrate", "unknown"]
"""What the tests say; ``unknown`` where there is nothing to test against, or no audit yet."""

WINDOW = 8
"""Steps of an audit that count."""

WATCH, RECALIBRATE = 20.0, 100.0
"""Martingale values that raise the status: false alarms of at most 5 % and 1 %, over all time."""

WATCH_P = 0.01
"""Two-sample p-value that raises the status to ``watch``; valid for one look, so it never asks to recalibrate."""

LEAST_BASELINE = 20
"""Baseline contexts below which nothing is said."""

FLOOR = -30.0
"""Joint support (nats) below which tokens count alike, so that a fallback's ``-inf`` does not hide the others."""

JUMP = 0.01
"""Share of the simple jumper's capital that is spread again before each bet."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """An audit that does not count."""

    session_id: int
    prompt: str
    why: str


@dataclass(frozen=True, slots=True)
class DriftReport:
    """What the tests say of audits against a calibration.

    Attributes:
        audits: Audits that count: long enough, and no token forced within the window.
        baseline: Contexts of the baseline.
        martingale: Present value of the test martingale; 1 at the start.
        p_values: Conformal p-value of each audit in order; uniform without drift.
        two_sample_p: Two-sided Mann-Whitney p-value of audits against the baseline; None without audits.
        lower_share: How often an audit's value lies below a baseline context's (ties count half).
        reason: Why nothing can be said; empty otherwise.
        left_out: Audits that do not count, oldest first.
    """

    status: DriftStatus
    audits: int
    baseline: int
    window: int
    martingale: float = 1.0
    peak: float = 1.0
    p_values: tuple[float, ...] = ()
    two_sample_p: float | None = None
    lower_share: float | None = None
    reason: str = ""
    left_out: tuple[LeftOut, ...] = ()

    @property
    def sentence(self) -> str:
        """The result in words."""
        if self.two_sample_p is None:
            return f"Drift cannot be judged: {self.reason}."
        verdict = {
            "fresh": "No sign that recent audits differ from the calibration",
            "watch": "Recent audits begin to differ from the calibration",
            "recalibrate": "Recent audits differ from the calibration; calibrate again",
        }.get(self.status, "")
        return f"{verdict}: {self.audits} audits against {self.baseline} contexts."

    @property
    def figures(self) -> str:
        """The numbers behind the sentence; empty where nothing can be said."""
        if self.two_sample_p is None or self.lower_share is None:
            return ""
        return (
            f"Test martingale {self.martingale:.3g} now and at most {self.peak:.3g}: without drift it reaches "
            f"{WATCH:g} in at most 1 of {WATCH:g} cases. Two-sample p {self.two_sample_p:.2g}, {self.lower_share:.0%} "
            "of comparisons lower."
        )


def chain_summary(log_supports: Sequence[float], window: int = WINDOW) -> float | None:
    """The one value of a chain: mean support of its first ``window`` tokens; None if it is shorter."""
    if window < 1:
        raise InvalidInputError(f"The window is {window}; count at least one step.")
    if len(log_supports) < window:
        return None
    return float(np.maximum(as_log_support(list(log_supports[:window])), FLOOR).mean())


def audit_summary(steps: Sequence[Step], window: int = WINDOW) -> float | None:
    """The one value of an audit; None if it is too short, or a person forced a token within the window."""
    first = steps[:window]
    if any(step.forced for step in first):
        return None
    return chain_summary([step.log_support for step in first], window)


def baseline_summaries(chosen: CalibrationValues, window: int = WINDOW) -> npt.NDArray[np.float64]:
    """The value of each baseline context that has one, ``(n,)``: that of its first chain of sufficient length."""
    summaries: dict[int, float] = {}
    starts = np.flatnonzero(np.diff(chosen.sequences, prepend=-1))  # (S,)
    for rows in np.split(np.arange(len(chosen)), starts[1:]):
        if rows.size and int(context := chosen.contexts[rows[0]]) not in summaries:
            summary = chain_summary(chosen.values[rows].tolist(), window)
            if summary is not None:
                summaries[int(context)] = summary
    return np.array([summaries[context] for context in sorted(summaries)])


def drift_report(
    calibration: Calibration,
    audits: Iterable[float | None],
    window: int = WINDOW,
    seed: int = 0,
) -> DriftReport:
    """Test audits against a calibration with recorded chains.

    Args:
        calibration: The calibration that the audits used.
        audits: :func:`audit_summary` of each audit in order, None for one that does not count.
        window: Steps that count, the same as for ``audits``.
        seed: Seed of the tie-breaking draws.
    """
    counted = as_log_support([audit for audit in audits if audit is not None], "audits")  # (n,)
    baseline = baseline_summaries(calibration.chosen, window)
    if reason := _obstacle(calibration, baseline, counted):
        return DriftReport("unknown", int(counted.size), int(baseline.size), window, reason=reason)
    p_values = conformal_p_values(baseline, counted, seed)
    path = simple_jumper(p_values)
    test = stats.mannwhitneyu(counted, baseline, alternative="two-sided")
    peak, p = float(path.max()), float(test.pvalue)
    status: DriftStatus = "recalibrate" if peak >= RECALIBRATE else "watch" if peak >= WATCH or p < WATCH_P else "fresh"
    return DriftReport(
        status=status,
        audits=int(counted.size),
        baseline=int(baseline.size),
        window=window,
        martingale=float(path[-1]),
        peak=peak,
        p_values=tuple(p_values.tolist()),
        two_sample_p=p,
        lower_share=1 - float(test.statistic) / (counted.size * baseline.size),
    )


def conformal_p_values(
    baseline: npt.NDArray[np.float64], audits: npt.NDArray[np.float64], seed: int = 0
) -> npt.NDArray[np.float64]:
    """Smoothed conformal p-value of each audit among the baseline and the audits before it; small for low values."""
    seen = sorted(baseline.tolist())
    draws = np.random.default_rng(check_seed(seed)).random(audits.size).tolist()
    p_values = []
    for value, draw in zip(audits.tolist(), draws, strict=True):
        below, equal = bisect_left(seen, value), bisect_right(seen, value)
        p_values.append((below + draw * (equal - below + 1)) / (len(seen) + 1))
        insort(seen, value)
    return np.array(p_values)


def simple_jumper(p_values: npt.NDArray[np.float64], jump: float = JUMP) -> npt.NDArray[np.float64]:
    """Path of the simple jumper martingale: bets ``1 + e (p - 1/2)`` with ``e`` in -1, 0 and 1, switching at times."""
    slopes = np.array([-1.0, 0.0, 1.0])
    capital = np.full((*p_values.shape[:-1], 3), 1 / 3)  # (..., 3)
    path = np.empty(p_values.shape)
    for index in range(p_values.shape[-1]):
        total = capital.sum(-1, keepdims=True)  # (..., 1)
        capital = ((1 - jump) * capital + jump * total / 3) * (1 + slopes * (p_values[..., index, None] - 0.5))
        path[..., index] = capital.sum(-1)
    return path


def _obstacle(
    calibration: Calibration,
    baseline: npt.NDArray[np.float64],
    audits: npt.NDArray[np.float64],
) -> str:
    if not len(calibration.chosen):
        return "this calibration keeps no chains of the deployed policy; calibrate on rollouts or record chains"
    if not calibration.as_rolled_out:
        return "the chains were generated under other thresholds than these"
    if baseline.size < LEAST_BASELINE:
        return f"only {baseline.size} baseline contexts are long enough and {LEAST_BASELINE} are needed"
    return "" if audits.size else "no audit can be compared with them yet"
