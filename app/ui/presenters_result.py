"""What the calibrate page says of a calibration first: its figures, its notes, and what it can certify."""

from __future__ import annotations

from html import escape

from app.services.views import FAMILY_NAMES, CalibrationView, FamilyThresholds, GroupSummary, SequenceThreshold
from app.ui.components.markup import badge, icon, table
from app.ui.presenters_calibrate import run_facts
from app.ui.presenters_format import count, level, plural, table_threshold


def shown_family(view: CalibrationView) -> FamilyThresholds | None:
    """With factorized masks, the family whose thresholds are shown."""
    return next((item for item in view.families if item.family == view.family), None)


def shown_group(view: CalibrationView) -> GroupSummary | None:
    """The group whose own thresholds are shown."""
    return next((item for item in view.groups if item.name == view.group), None)


def risk(view: CalibrationView) -> float:
    """Risk level that the shown thresholds hold at: alpha, or the shown family's share of it."""
    family = shown_family(view)
    return family.alpha if family else view.alpha


def result_head(view: CalibrationView) -> str:
    """Name, headline figures, and what must be said with them."""
    notes = "".join(f"<li>{icon('tri')}<span>{escape(note)}</span></li>" for note in view.notes)
    return (
        f'<section><div class="bar"><h2>Result: {escape(view.summary.name)}</h2>{_state_badge(view)}<div class="end">'
        f'<button type="button" class="btn" data-do="export" data-id="{view.summary.id}">{icon("down")}'
        "Download</button>"
        f'<a class="btn primary" href="./?calibration={view.summary.id}">Use in audits</a></div></div>'
        f'<p class="hint tnum facts-line">{run_facts(view.summary)}</p>{_part(view)}{headline(view)}'
        f"{f'<ul class=noted aria-label=Notes>{notes}</ul>' if notes else ''}</section>"
    )


def headline(view: CalibrationView) -> str:
    """The four figures that matter first."""
    first = view.bins[0] if view.bins else None
    tau = first.tau if first and first.state != "uninformative" else 0.0
    at_start = f"masked and fused must both give a word {100 * tau:.2g} %" if tau else first.silence if first else ""
    up_to = f"step {view.calibrated_up_to}" if view.calibrated_up_to else "nowhere"
    items = (
        ("Coverage on unseen contexts", *_coverage_figure(view)),
        ("Contexts", *_contexts_figure(view)),
        ("Threshold at the start", table_threshold(tau), at_start),
        ("Calibrated up to", up_to, "later steps are labelled in every audit"),
    )
    return '<dl class="headline">' + "".join(
        f'<div><dt>{name}</dt><dd>{value}</dd><dd class="tnum">{note}</dd></div>' for name, value, note in items
    ) + "</dl>"  # fmt: skip


def promises(view: CalibrationView) -> str:
    """What the calibration certifies, and what it does not, in plain words."""
    shown = [(texts, mark) for texts, mark in ((_certified(view), "tick"), (_not_certified(view), "cross")) if texts]
    lists = "".join(
        f'<ul class="said">{"".join(f"<li>{icon(mark)}<span>{text}</span></li>" for text in texts)}</ul>'
        for texts, mark in shown
    )
    return (
        '<section><div class="bar"><h2>What can I certify with this?</h2></div>'
        f'<div class="{"pair" if len(shown) > 1 else "alone"}">{lists}</div>'
        f"{smallest_alpha(view)}</section>"
    )


def smallest_alpha(view: CalibrationView) -> str:
    """The smallest risk levels that the contexts support: overall, everywhere, for whole chains, and by position."""
    found = view.smallest_alpha
    rows = [
        ["in some bin of steps", count(found.contexts), _level_or_none(found.overall)],
        ["in every bin that has data", count(found.contexts), _level_or_none(found.everywhere)],
    ]
    if view.sequence is not None:
        rows.append(["for whole chains", count(view.sequence.contexts), _level_or_none(found.sequence)])
    rows += [
        [f"steps {escape(item.label)}", count(item.contexts), _level_or_none(item.smallest_alpha)]
        for item in found.bins
    ]
    named = [[f'<th scope="row">{row[0]}</th>', *row[1:]] for row in rows]
    head = [("Where", ""), ("Contexts", "n"), ("Smallest alpha", "n")]
    return (
        f'<details class="smallest"><summary>{icon("chev", "chev")}{escape(found.sentence)}</summary>'
        f"{table(head, named, 'plain', 'Smallest alpha by position')}"
        '<p class="hint">At a smaller alpha every token passes there, and nothing is certified.</p></details>'
    )


def _certified(view: CalibrationView) -> list[str]:
    found = []
    own = [item for item in view.bins if item.state == "calibrated"]
    if own and view.calibrated_up_to:
        overall = view.coverage[0].coverage if view.coverage else None
        measured = f" Measured: {overall:.2f}." if overall is not None else ""
        found.append(
            f"<strong>Steps 1 to {view.calibrated_up_to}</strong>, {_for_whom(view)}: averaged over new contexts and "
            f"over the steps of a bin, the true next token is in the set at least {_often(risk(view))}.{measured}"
        )
        low, high = min(item.tau for item in own), max(item.tau for item in own)
        span = table_threshold(low) if low == high else f"{table_threshold(low)} to {table_threshold(high)} by position"
        found.append(
            f"That the masked and the fused view both give a certified token at least τ, {span}. This holds for every "
            "certified token there."
        )
    chains = view.sequence
    if chains is not None and chains.state == "calibrated":
        found.append(
            f"<strong>Whole chains, counted up to {plural(chains.horizon, 'step')}</strong>: averaged over "
            f"{chains.applies}, all true tokens together reach τ {table_threshold(chains.tau)} at least "
            f"{_often(chains.alpha)}. {chains.lengths.sentence}{_measured_chains(view)}"
        )
    return found


def _law(chains: SequenceThreshold) -> str:
    return f" {chains.lengths.sentence}" if chains.lengths.known else ""


def _measured_chains(view: CalibrationView) -> str:
    """Coverage of whole chains as measured, overall and by length."""
    if not view.sequence_coverage:
        return " Not measured: no chain of this kind was kept apart."
    overall, *lengths = view.sequence_coverage
    rows = [
        [
            escape(row.label),
            count(row.contexts),
            count(row.kept),
            _share(row.coverage),
            f"{_share(row.low)} to {_share(row.high)}",
        ]
        for row in lengths
    ]
    head = [("Length", ""), ("Contexts", "n"), ("Kept", "n"), ("Coverage", "n"), ("95 % interval", "n")]
    by_length = table(head, rows, "plain", "Whole chains kept by length")
    return (
        f" Measured: {count(overall.kept)} of {count(overall.contexts)} kept, {_share(overall.coverage)} "
        f"({_share(overall.low)} to {_share(overall.high)}).{by_length}"
        '<span class="hint">The promise is an average over lengths, not one for each; nothing is promised for chains '
        "that are cut short.</span>"
    )


def _share(value: float | None) -> str:
    return "none" if value is None else f"{value:.3f}"


def _not_certified(view: CalibrationView) -> list[str]:
    found = []
    if reasons := _gaps(view):
        where = f"steps {view.calibrated_up_to + 1} and later" if view.calibrated_up_to else "any step"
        found.append(f"<strong>Not {where}.</strong> {'; '.join(reasons)}.")
    chains = view.sequence
    if view.families:
        found.append("<strong>Not whole chains.</strong> With one mask for each family there is no such certificate.")
    elif chains is not None and chains.state != "calibrated":
        found.append(f"<strong>Not whole chains.</strong> {chains.reason}{_law(chains)}")
    found.append(
        "<strong>Not that a text is fair.</strong> And another model or other settings each need a calibration of "
        "their own."
    )
    return found


def _gaps(view: CalibrationView) -> list[str]:
    reasons = []
    for item in view.bins:
        if item.state == "uninformative":
            weak = item.tau > 0
            reasons.append(
                f"{escape(item.label)}: {item.silence}" if weak else f"{escape(item.label)} has too few contexts"
            )
        elif item.state == "inherited":
            lender = escape(item.inherited_from or "a neighbour")
            reasons.append(f"{escape(item.label)} is borrowed from {lender} and was not tested")
    if len(reasons) > 4:
        reasons = [*reasons[:3], f"{len(reasons) - 3} more bins likewise"]
    return reasons


def _for_whom(view: CalibrationView) -> str:
    group = shown_group(view)
    if group:
        return f"for new prompts of the group {escape(group.name)}"
    if view.effective_contexts is not None:
        return "for prompts like those that the weights describe"
    if view.reading.rho > 1:
        return f"for prompts at most {view.reading.rho:g} times likelier than here"
    family = shown_family(view)
    where = f" where {escape(FAMILY_NAMES.get(family.family, family.family))} is masked" if family else ""
    return f"for prompts like these {count(view.summary.contexts)}{where}"


def _part(view: CalibrationView) -> str:
    group, family = shown_group(view), shown_family(view)
    if group:
        return f'<p class="sub">Thresholds of the group <strong>{escape(group.name)}</strong> alone.</p>'
    if family:
        name = escape(FAMILY_NAMES.get(family.family, family.family))
        return (
            f'<p class="sub">Thresholds where <strong>{name}</strong> is masked, at its share {level(family.alpha)} of '
            f"alpha {level(view.alpha)}.</p>"
        )
    return ""


def _coverage_figure(view: CalibrationView) -> tuple[str, str]:
    row = view.coverage[0] if view.coverage else None
    asked = level(1 - risk(view))
    if row is None or row.coverage is None:
        return "not verified", f"asked for {asked}"
    if row.low is None or row.high is None:
        return f"{row.coverage:.2f}", f"asked for {asked}"
    return f"{row.coverage:.2f}", f"95 % interval {row.low:.2f} to {row.high:.2f}, asked for {asked}"


def _contexts_figure(view: CalibrationView) -> tuple[str, str]:
    group, family = shown_group(view), shown_family(view)
    number = group.contexts if group else family.contexts if family else view.summary.contexts
    if view.effective_contexts is not None:
        return count(number), f"weighted, they count as {view.effective_contexts:.0f}"
    return count(number), f"{plural(view.tokens, 'token')}; only contexts count"


def _level_or_none(value: float | None) -> str:
    return "none" if value is None else f"{value:.2g}"


def _state_badge(view: CalibrationView) -> str:
    state = view.bins[0].state if view.bins else "uninformative"
    return badge(state, state)


def _often(alpha: float) -> str:
    for parts in (2, 3, 4, 5, 10, 20, 50, 100):
        missed = alpha * parts
        if abs(missed - round(missed)) < 1e-9 and round(missed) > 0:
            return f"{parts - round(missed)} times in {parts}"
    return f"{100 * (1 - alpha):.4g} % of the time"
