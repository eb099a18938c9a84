"""Thresholds by position, and at other risk levels, as tables."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from app.services.views import BinView, CalibrationView
from app.services.views.policies import CertifiedIn
from app.ui.components.markup import badge, table
from app.ui.presenters_format import count, level, plural, table_threshold
from app.ui.presenters_result import risk

OTHER_ALPHAS = (0.20, 0.10, 0.05, 0.01, 0.002)


def thresholds_head() -> str:
    """Heading of the picture and the table, with what their marks mean."""
    keys = " ".join(badge(state, state) for state in ("calibrated", "uninformative", "inherited"))
    return f'<div class="bar"><h2>Threshold by position</h2><span class="key">{keys}</span></div>'


def support_name(certified_in: CertifiedIn) -> str:
    """What thresholds are compared with, in words."""
    return "probability as typed" if certified_in == "factual" else "joint support"


def thresholds(view: CalibrationView) -> str:
    """Threshold, contexts and possible coverage by position."""
    highest = max((item.tau for item in view.bins), default=0.0) or 1.0
    lows = [item.coverage_low for item in view.bins if item.coverage_low is not None]
    floor = min(0.8, *(low - 0.02 for low in lows)) if lows else 0.8
    floor = max(0.0, int(floor * 20) / 20)
    asked = 1 - risk(view)
    rows = [_threshold_row(item, highest, floor, asked) for item in view.bins]
    head = [
        ("Steps", ""),
        ("Contexts", "n"),
        ("Threshold τ, " + support_name(view.summary.certified_in), "wide"),
        ("<span class=vh>τ</span>", "n"),
        ("Coverage it can give, 95 % range", "wide"),
        ("<span class=vh>Range</span>", "n"),
    ]
    return (
        f"{table(head, rows, 'thresholds', 'Threshold by position')}"
        f'<p class="hint">The bar is where true coverage can lie given this many contexts, by the law Beta(n + 1 − k, '
        f"k), 95 %, drawn from {floor:.2f} to 1. The blue line is the {level(asked)} that was asked for; in the "
        "picture, a diamond is what was measured. A threshold holds averaged over the steps of its bin, not at each of "
        "them; “steps differ” marks bins whose steps are certified unequally often beyond noise, by a score test over "
        "contexts at level 0.05, shared out among the bins compared.</p>"
    )


def _threshold_row(item: BinView, highest: float, floor: float, asked: float) -> list[str]:
    mark = badge("uneven", "steps differ") if item.evenness is not None and item.evenness.uneven else ""
    steps = f'<th scope="row">{escape(item.label)}{mark}</th>'
    if item.state == "uninformative" and item.tau > 0:
        weak = f'<td colspan="2" class="caution">{item.silence}</td>'
        return [steps, count(item.contexts), '<div class="stem uninformative"></div>', f"{item.tau:.1e}", weak]
    if item.state == "uninformative":
        return [
            steps,
            count(item.contexts),
            '<td colspan="2" class="caution">none, every token passes</td>',
            f'<td colspan="2" class="caution">needs at least {plural(item.needed, "context")}, has '
            f"{count(item.contexts)}</td>",
        ]
    share = f"{100 * item.tau / highest:.1f}%"
    stem = f'<div class="stem {item.state}" style="--x:{share}"></div>'
    if item.state == "inherited" or item.coverage_low is None or item.coverage_high is None:
        lender = escape(item.inherited_from or "a neighbour")
        note = f"not calibrated here, borrowed from {lender}" if item.state == "inherited" else "no range is known"
        tau = table_threshold(item.tau)
        return [steps, count(item.contexts), stem, tau, f'<td colspan="2" class="hint">{note}</td>']

    def place(value: float) -> str:
        return f"{100 * (value - floor) / (1 - floor):.1f}%"

    span = (
        f'<div class="span-bar" style="--a:{place(item.coverage_low)};--b:{place(item.coverage_high)};'
        f'--t:{place(asked)}"></div>'
    )
    text = f"{item.coverage_low:.2f} to {item.coverage_high:.2f}"
    return [steps, count(item.contexts), stem, f"<strong>{table_threshold(item.tau)}</strong>", span, text]


def alphas(readings: Sequence[tuple[float, CalibrationView | str]], asked: float) -> str:
    """The same stored values read at other risk levels; a level that is refused says why."""
    rows = [_alpha_row(alpha, found, abs(alpha - asked) < 1e-9) for alpha, found in readings]
    known = [found for _, found in readings if not isinstance(found, str) and found.bins]
    first_label = escape(known[0].bins[0].label) if known else ""
    head = [("Alpha", ""), ("Rank k", "n"), (f"τ, steps {first_label}", "n"), ("Steps usable", "")]
    return (
        f'<section><div class="bar"><h2>If you asked for another alpha</h2></div>'
        f"{table(head, rows, '', 'Other alphas')}"
        '<p class="hint">Read from the stored values, no model call.</p></section>'
    )


def _alpha_row(alpha: float, found: CalibrationView | str, strong: bool) -> list[str]:
    if isinstance(found, str):
        return [level(alpha), f'<td colspan="3" class="caution">{escape(found)}</td>']
    first = found.bins[0]
    usable = (
        f"1–{found.calibrated_up_to}"
        if found.calibrated_up_to
        else badge("uninformative", first.silence if first.tau > 0 else f"needs {plural(first.needed, 'context')}")
    )
    tau = table_threshold(first.tau) if first.state != "uninformative" else "none"
    cells = [level(alpha), count(first.rank), tau, usable]
    return [f"<strong>{cell}</strong>" if strong else cell for cell in cells]


def bin_choices(view: CalibrationView) -> list[tuple[str, str]]:
    """Bins with values, for the histogram's menu."""
    return [
        (f"Steps {item.label}, {plural(item.contexts, 'context')}", item.label)
        for item in view.bins
        if view.log_values.get(item.label)
    ]
