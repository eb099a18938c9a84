"""Whether a calibration still fits its audits, as markup."""

from __future__ import annotations

from html import escape

from app.services.views import DriftReport
from app.ui.components.markup import badge, icon, table
from app.ui.presenters_format import plural

SHOWN_PROMPT = 120
"""Characters of a prompt that a table shows."""

WORDS = {
    "fresh": "fresh",
    "watch": "watch",
    "recalibrate": "calibrate again",
    "unknown": "unknown",
}
"""Statuses in words; the mark before them has another shape for each."""


def drift_head(report: DriftReport) -> str:
    """Badge and sentence."""
    mark = badge(f"drift-{report.status}", WORDS.get(report.status, report.status))
    facts = ""
    if report.two_sample_p is not None:
        facts = (
            f'<p class="hint tnum">The martingale stands at {report.martingale:.3g} now; without drift it reaches 100 '
            "in at most 1 of 100 cases.</p>"
        )
    todo = (
        ""
        if report.baseline
        else '<p class="hint">Calibrate on rollouts, or tick “Record chains”, so that audits have something to be '
        "compared with.</p>"
    )
    return (
        f'<div class="bar"><h2>Does it still fit?</h2>{mark}</div>'
        f'<p class="sub">{escape(report.sentence)}</p>{facts}{todo}'
    )


def drift_foot(report: DriftReport) -> str:
    """What the picture shows, and which audits it leaves out."""
    if not report.p_values:
        return _left_out(report)
    return (
        f'<p class="hint">Each dot is an audit: its place between 0 and 1 among the {report.baseline} chains that this '
        "calibration recorded. Without drift the dots lie evenly. Many low dots: the model now writes tokens with less "
        f"support in both views.</p>{_left_out(report)}"
    )


def _left_out(report: DriftReport) -> str:
    """The audits that were not compared, each with its reason, folded away."""
    if not report.left_out:
        return ""
    rows = [
        [
            f'<a href="./?session={own.session_id}">{own.session_id}</a>',
            escape(own.prompt if len(own.prompt) <= SHOWN_PROMPT else f"{own.prompt[:SHOWN_PROMPT]}…"),
            escape(own.why),
        ]
        for own in report.left_out
    ]
    listed = table([("Audit", "n"), ("Prompt", ""), ("Why it does not count", "")], rows, "plain", "Audits left out")
    count = len(report.left_out)
    return (
        f'<details class="meanings"><summary>{icon("chev", "chev")}{plural(count, "audit")} '
        f'{"is" if count == 1 else "are"} left out</summary><div class="scrolls" tabindex="0" role="region" '
        f'aria-label="Audits left out, table">{listed}</div></details>'
    )
