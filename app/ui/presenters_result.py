"""What the calibrate page says of a calibration's result, as markup."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from app.services.views import BinView, CalibrationView
from app.ui.components.markup import badge, icon, table
from app.ui.presenters_format import count, level, plural, table_threshold

FIELD_NAMES = {"lam": "lambda", "top_p": "top-p", "top_k": "top-k"}
"""Fingerprint fields whose names are not words."""

OTHER_ALPHAS = (0.20, 0.10, 0.05, 0.01, 0.002)


def result_head(view: CalibrationView) -> str:
    """Headline figures and what the calibration can and cannot certify."""
    return (
        f'<section><div class="bar"><h2>Result: {escape(view.summary.name)}</h2>{_state_badge(view)}<div class="end">'
        f'<a class="btn primary" href="./?calibration={view.summary.id}">Use in audits</a></div></div>{headline(view)}'
        f'</section><section><div class="bar"><h2>What can I certify with this?</h2></div>{promises(view)}</section>'
        f"{thresholds(view)}"
    )


def headline(view: CalibrationView) -> str:
    """The four figures that matter first."""
    s = view.summary
    asked = 1 - view.alpha
    coverage = "not verified" if s.coverage is None else f"{s.coverage:.2f}"
    interval = (
        f"95 % interval {s.coverage_low:.2f} to {s.coverage_high:.2f}, asked for {level(asked)}"
        if s.coverage_low is not None and s.coverage_high is not None
        else f"asked for {level(asked)}"
    )
    first = view.bins[0] if view.bins else None
    tau = first.tau if first and first.state != "uninformative" else 0.0
    at_start = (
        f"masked and fused must both give a word {100 * tau:.2g} %" if tau else "every token passes: too few contexts"
    )
    up_to = f"step {view.calibrated_up_to}" if view.calibrated_up_to else "nowhere"
    items = (
        ("Coverage on unseen contexts", coverage, interval),
        ("Contexts", count(s.contexts), f"{plural(view.tokens, 'token')}; only contexts count"),
        ("Threshold at the start", table_threshold(tau), at_start),
        ("Calibrated up to", up_to, "later steps are labelled in every audit"),
    )
    return '<dl class="headline">' + "".join(
        f'<div><dt>{name}</dt><dd>{value}</dd><dd class="tnum">{note}</dd></div>' for name, value, note in items
    ) + "</dl>"  # fmt: skip


def promises(view: CalibrationView) -> str:
    """What the calibration certifies, and what it does not, in plain words."""
    yes, no = [], []
    own = [item for item in view.bins if item.state == "calibrated"]
    if own and view.calibrated_up_to:
        measured = f" Measured: {view.summary.coverage:.2f}." if view.summary.coverage is not None else ""
        yes.append(
            f"<strong>Steps 1 to {view.calibrated_up_to}</strong>, for prompts like these "
            f"{count(view.summary.contexts)}: "
            f"averaged over new contexts, the true next token is in the set at least {_often(view.alpha)}.{measured}"
        )
        low, high = min(item.tau for item in own), max(item.tau for item in own)
        span = table_threshold(low) if low == high else f"{table_threshold(low)} to {table_threshold(high)} by position"
        yes.append(
            f"That the masked and the fused view both give a certified token at least τ, {span}. This holds for every "
            "certified token there."
        )
    no.extend(_not_certified(view))
    no.append(
        "<strong>Not that a text is fair.</strong> And a whole sentence, another model or other settings each need a "
        "calibration of their own."
    )
    columns = ((yes, "tick"), (no, "cross"))
    return '<div class="pair">' + "".join(
        f'<ul class="said">{"".join(f"<li>{icon(mark)}<span>{text}</span></li>" for text in texts)}</ul>'
        for texts, mark in columns
    ) + "</div>"  # fmt: skip


def thresholds(view: CalibrationView) -> str:
    """Threshold, contexts and possible coverage by position."""
    highest = max((item.tau for item in view.bins), default=0.0) or 1.0
    lows = [item.coverage_low for item in view.bins if item.coverage_low is not None]
    floor = min(0.8, *(low - 0.02 for low in lows)) if lows else 0.8
    floor = max(0.0, int(floor * 20) / 20)
    rows = [_threshold_row(item, highest, floor, view.alpha) for item in view.bins]
    head = [
        ("Steps", ""),
        ("Contexts", "n"),
        ("Threshold τ, joint support", "wide"),
        ("<span class=vh>τ</span>", "n"),
        ("Coverage it can give, 95 % range", "wide"),
        ("<span class=vh>Range</span>", "n"),
    ]
    keys = " ".join(badge(state, state) for state in ("calibrated", "uninformative", "inherited"))
    return (
        f'<section><div class="bar"><h2>Threshold by position</h2><span class="key">{keys}</span></div>'
        f"{table(head, rows, 'thresholds', 'Threshold by position')}"
        f'<p class="hint">The bar is where true coverage can lie given this many contexts: Beta(n + 1 − k, k), 95 %, '
        f"drawn from {floor:.2f} to 1. The blue line is the {level(1 - view.alpha)} that was asked for.</p></section>"
    )


def _threshold_row(item: BinView, highest: float, floor: float, alpha: float) -> list[str]:
    steps = f'<th scope="row">{escape(item.label)}</th>'
    if item.state == "uninformative":
        return [
            steps,
            count(item.contexts),
            '<td colspan="2" class="caution">none, every token passes</td>',
            f'<td colspan="2" class="caution">needs at least {plural(item.needed, "context")}, has '
            f"{count(item.contexts)}</td>",
        ]
    share = f"{100 * item.tau / highest:.1f}%"
    bar = f'<div class="stem {item.state}" style="--x:{share}"></div>'
    if item.state == "inherited" or item.coverage_low is None or item.coverage_high is None:
        note = f"not calibrated here, borrowed from {escape(item.inherited_from or 'a neighbour')}"
        return [
            steps,
            count(item.contexts),
            bar,
            table_threshold(item.tau),
            f'<td colspan="2" class="hint">{note}</td>',
        ]

    def place(value: float) -> str:
        return f"{100 * (value - floor) / (1 - floor):.1f}%"

    span = (
        f'<div class="span-bar" style="--a:{place(item.coverage_low)};--b:{place(item.coverage_high)};'
        f'--t:{place(1 - alpha)}"></div>'
    )
    text = f"{item.coverage_low:.2f} to {item.coverage_high:.2f}"
    return [steps, count(item.contexts), bar, f"<strong>{table_threshold(item.tau)}</strong>", span, text]


def alphas(readings: Sequence[CalibrationView], asked: float) -> str:
    """The same stored values read at other risk levels."""
    rows = []
    for view in readings:
        first = view.bins[0]
        strong = abs(view.alpha - asked) < 1e-9
        usable = (
            f"1–{view.calibrated_up_to}"
            if view.calibrated_up_to
            else badge("uninformative", f"needs {plural(first.needed, 'context')}")
        )
        tau = table_threshold(first.tau) if first.state != "uninformative" else "none"
        cells = [level(view.alpha), count(first.rank), tau, usable]
        rows.append([f"<strong>{cell}</strong>" if strong else cell for cell in cells])
    first_label = escape(readings[0].bins[0].label) if readings and readings[0].bins else ""
    head = [("Alpha", ""), ("Rank k", "n"), (f"τ, steps {first_label}", "n"), ("Steps usable", "")]
    return (
        f'<section><div class="bar"><h2>If you asked for another alpha</h2></div>'
        f"{table(head, rows, '', 'Other alphas')}"
        '<p class="hint">Read from the stored values, no model call.</p></section>'
    )


def result_foot(view: CalibrationView) -> str:
    """The check on unseen contexts and the fingerprint."""
    return f"{coverage_table(view)}{fingerprint(view)}"


def coverage_table(view: CalibrationView) -> str:
    """Empirical coverage on the verification split."""
    if not view.coverage:
        return ""
    asked = level(1 - view.alpha)
    rows = []
    for item in view.coverage:
        agrees = {True: f"agrees with {asked}", False: f"differs from {asked}", None: "too few to tell"}[item.agrees]
        interval = f"{item.low:.3f} to {item.high:.3f}" if item.low is not None and item.high is not None else "none"
        rate = "none" if item.coverage is None else f"{item.coverage:.3f}"
        rows.append(
            [
                f'<th scope="row">{escape(item.label)}</th>', count(item.contexts), count(item.kept), rate, interval,
                f'<span class="sub">{agrees}</span>',
            ]
        )  # fmt: skip
    head = [
        ("Steps", ""), ("Contexts", "n"), ("Kept the true token", "n"), ("Coverage", "n"), ("95 % interval", "n"),
        ("<span class=vh>Agrees</span>", ""),
    ]  # fmt: skip
    return (
        '<section><div class="bar"><h2>Check on contexts it had not seen</h2><span class="hint">exact interval '
        f"(Clopper-Pearson)</span></div>{table(head, rows, 'coverage', 'Coverage on unseen contexts')}</section>"
    )


def fingerprint(view: CalibrationView) -> str:
    """What must be equal for the calibration to hold."""
    items = "".join(
        f"<div><dt>{escape(FIELD_NAMES.get(name, name.replace('_', ' ')))}</dt><dd>{escape(value)}</dd></div>"
        for name, value in view.fingerprint
    )
    return (
        f'<section><div class="bar"><h2>Fingerprint</h2>'
        f'<span class="mono hint">{escape(view.fingerprint_digest)}</span>'
        f'</div><dl class="finger">{items}</dl><p class="hint">An audit that differs in any of these is shown as '
        "“uncertified: policy mismatch”.</p></section>"
    )


def bin_choices(view: CalibrationView) -> list[tuple[str, str]]:
    """Bins with values, for the histogram's menu."""
    return [
        (f"Steps {item.label}, {plural(item.contexts, 'context')}", item.label)
        for item in view.bins
        if view.log_values.get(item.label)
    ]


def _not_certified(view: CalibrationView) -> list[str]:
    reasons = []
    for item in view.bins:
        if item.state == "uninformative":
            reasons.append(f"{escape(item.label)} has too few contexts")
        elif item.state == "inherited":
            reasons.append(
                f"{escape(item.label)} is borrowed from {escape(item.inherited_from or 'a neighbour')} "
                "and was not tested"
            )
    if not reasons:
        return []
    where = f"steps {view.calibrated_up_to + 1} and later" if view.calibrated_up_to else "any step"
    if len(reasons) > 4:
        reasons = [*reasons[:3], f"{len(reasons) - 3} more bins likewise"]
    return [f"<strong>Not {where}.</strong> {'; '.join(reasons)}."]


def _state_badge(view: CalibrationView) -> str:
    state = view.bins[0].state if view.bins else "uninformative"
    return badge(state, state)


def _often(alpha: float) -> str:
    for parts in (2, 3, 4, 5, 10, 20, 50, 100):
        missed = alpha * parts
        if abs(missed - round(missed)) < 1e-9 and round(missed) > 0:
            return f"{parts - round(missed)} times in {parts}"
    return f"{100 * (1 - alpha):.4g} % of the time"
