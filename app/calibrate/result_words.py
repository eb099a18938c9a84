"""What the calibrate page says of a calibration first: its figures, its notes, and what it can certify."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from app.calibrate.words import ESTIMATOR_NAMES, SOURCES, run_facts
from app.shared.audits import (
    FAMILY_NAMES,
    BinView,
    CalibrationSummary,
    CalibrationView,
    CertifiedIn,
    CoverageView,
    FamilyThresholds,
)
from app.shared.markup import badge, icon, table
from app.shared.step_words import abbreviated, count, day, level, plural, signed, table_threshold
from coft_core.conformal.groups import GroupSummary
from coft_core.conformal.sequence import SequenceThreshold


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


FIELD_NAMES = {"lam": "lambda", "top_p": "top-p", "top_k": "top-k"}
"""Fingerprint fields whose names are not words."""


def field_name(name: str) -> str:
    """A fingerprint field as a reader knows it."""
    return FIELD_NAMES.get(name, name.replace("_", " "))


def result_checks(view: CalibrationView) -> str:
    """Everything that the thresholds rest on, as far as this calibration has it."""
    return (
        f"{coverage_table(view)}{coverage_by_step(view)}{families_table(view)}{groups_table(view)}{rounds_table(view)}"
    )


def coverage_table(view: CalibrationView) -> str:
    """Empirical coverage on the verification split."""
    if not view.coverage:
        return ""
    asked = level(1 - risk(view))
    return (
        '<section><div class="bar"><h2>Check on contexts it had not seen</h2><span class="hint">exact interval '
        f"(Clopper-Pearson)</span></div>{_measured(view.coverage, asked, 'Coverage on unseen contexts')}</section>"
    )


def coverage_by_step(view: CalibrationView) -> str:
    """Empirical coverage at each step, which no threshold promises."""
    if not view.coverage_by_step:
        return ""
    rows = _measured(view.coverage_by_step, level(1 - risk(view)), "Coverage by step on unseen contexts")
    return (
        f'<details class="smallest by-step"><summary>{icon("chev", "chev")}Coverage at each step. A threshold holds '
        f"averaged over the steps of its bin, not at each of them.</summary>{rows}</details>"
    )


def _measured(found: Sequence[CoverageView], asked: str, name: str) -> str:
    verdicts = {True: f"agrees with {asked}", False: f"differs from {asked}", None: "too few to tell"}
    rows = []
    for item in found:
        interval = f"{item.low:.3f} to {item.high:.3f}" if item.low is not None and item.high is not None else "none"
        rate = "none" if item.coverage is None else f"{item.coverage:.3f}"
        rows.append(
            [
                f'<th scope="row">{escape(item.label)}</th>', count(item.contexts), count(item.kept), rate, interval,
                f'<span class="sub">{verdicts[item.agrees]}</span>',
            ]
        )  # fmt: skip
    head = [
        ("Steps", ""), ("Contexts", "n"), ("Kept the true token", "n"), ("Coverage", "n"), ("95 % interval", "n"),
        ("<span class=vh>Agrees</span>", ""),
    ]  # fmt: skip
    return table(head, rows, "coverage", name)


def families_table(view: CalibrationView) -> str:
    """With factorized masks, each family's share of alpha and what it rests on."""
    if not view.families:
        return ""
    rows = [
        [
            f'<th scope="row"><span class="sw f-{escape(item.family)}"></span>'
            f"{escape(FAMILY_NAMES.get(item.family, item.family))}</th>",
            level(item.alpha), count(item.contexts), table_threshold(item.tau), badge(item.state, item.state),
        ]
        for item in view.families
    ]  # fmt: skip
    head = [("Family", ""), ("Share of alpha", "n"), ("Contexts", "n"), ("τ at the start", "n"), ("State", "")]
    return (
        f'<section id="families"><div class="bar"><h2>Families</h2></div>{table(head, rows, "plain", "Families")}'
        f'<p class="hint">A token is certified if every family certifies it. The shares add up to at most alpha, '
        f"{level(view.alpha)}, so the miss of all families together stays under it.</p></section>"
    )


def groups_table(view: CalibrationView) -> str:
    """Which groups have enough contexts for thresholds of their own, and which are refused."""
    if not view.groups:
        return ""
    rows = []
    for item in view.groups:
        verdict = badge("calibrated", "own thresholds") if item.certifiable else badge("uninformative", _refused(item))
        smallest = "none" if item.smallest_alpha is None else f"{item.smallest_alpha:.2g}"
        rows.append(
            [
                f'<th scope="row">{escape(item.name)}</th>', count(item.contexts), count(item.verification_contexts),
                smallest, verdict,
            ]
        )  # fmt: skip
    head = [("Group", ""), ("Contexts", "n"), ("Kept apart", "n"), ("Smallest alpha", "n"), ("At this alpha", "")]
    return (
        f'<section id="groups"><div class="bar"><h2>Groups</h2></div>{table(head, rows, "plain", "Groups")}'
        '<p class="hint">A group’s own thresholds hold for its new contexts, not only on average over all groups. '
        "Refused groups need more prompts or a larger alpha; choose a group above to see its thresholds.</p></section>"
    )


def _refused(item: GroupSummary) -> str:
    if item.outweighed and item.contexts >= item.needed:
        return f"refused: worth {item.effective:.1f} contexts under the weights, {item.effective_needed:g} needed"
    return f"refused: {plural(item.needed, 'context')} needed"


def rounds_table(view: CalibrationView) -> str:
    """The rounds of a rollout calibration."""
    if not view.iterations:
        return ""
    rows = []
    for place, item in enumerate(view.iterations, start=1):
        rate = f"{item.kept / item.contexts:.3f}" if item.contexts else "none"
        rows.append(
            [
                f'<th scope="row">{place}{", the one in use" if item.final else ""}</th>', count(item.contexts),
                count(item.values), f"{item.change:.3f}", f"{count(item.kept)}, {rate}",
                f'<span class="sub">{"agrees" if item.consistent else "differs"}</span>',
            ]
        )  # fmt: skip
    head = [
        ("Round", ""), ("Contexts", "n"), ("True tokens", "n"), ("Largest change of τ", "n"), ("Kept before", "n"),
        ("With the level asked for", ""),
    ]  # fmt: skip
    return (
        '<section id="rounds"><div class="bar"><h2>Rounds of rollouts</h2></div>'
        f"{table(head, rows, 'plain', 'Rounds of rollouts')}"
        '<p class="hint">Each round writes chains of fresh prompts under the thresholds of the round before. “Kept '
        "before”: how many fresh true tokens those thresholds certified.</p></section>"
    )


def fingerprint(view: CalibrationView) -> str:
    """What must be equal for the calibration to hold."""
    items = "".join(
        f"<div><dt>{escape(field_name(name))}</dt><dd>{escape(abbreviated(value))}</dd></div>"
        for name, value in view.fingerprint
    )
    digest, shown = escape(view.fingerprint_digest), escape(abbreviated(view.fingerprint_digest))
    return (
        f'<section><div class="bar"><h2>Fingerprint</h2><span class="mono hint">{shown}</span>'
        f'<div class="end"><button type="button" class="btn small quiet" data-do="copy" data-text="{digest}">'
        f'{icon("copy")}Copy</button></div></div><dl class="finger">{items}</dl><p class="hint">An audit that differs '
        "in any of these is shown as “uncertified: policy mismatch”.</p></section>"
    )


Field = tuple[str, str, str]
"""Name, and its value in both runs."""


def comparison_choices(found: Sequence[CalibrationSummary], shown: int | None) -> list[tuple[str, int]]:
    """The other runs, for a menu; 0 compares with none."""
    others = [(f"{item.name}, {day(item.created_at)}", item.id) for item in found if item.id != shown]
    return [("Choose a run" if others else "There is no other run yet", 0), *others]


def comparison_settings(first: CalibrationView, second: CalibrationView) -> str:
    """What differs between two runs, and what is equal, folded."""
    fields = [*_facts(first, second), *_fingerprints(first, second)]
    differ = [field for field in fields if field[1] != field[2]]
    equal = [field for field in fields if field[1] == field[2]]
    names = [escape(first.summary.name), escape(second.summary.name)]
    head = [("What", ""), *((name, "cut") for name in names)]
    rows = [
        [f'<th scope="row"><span class="ne" aria-hidden="true">≠</span>{escape(name)}</th>', escape(a), escape(b)]
        for name, a, b in differ
    ]
    same = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(a)}</dd></div>" for name, a, _ in equal)
    folded = (
        f"<details><summary>{icon('chev', 'chev')}{plural(len(equal), 'field')} equal</summary>"
        f'<dl class="finger">{same}</dl></details>'
    )
    return (
        f'<div class="bar"><h3>What differs</h3><span class="hint tnum">{plural(len(differ), "field")}</span></div>'
        f"{table(head, rows, 'plain differ', 'What differs') if differ else '<p class=sub>Nothing.</p>'}{folded}"
    )


def comparison_thresholds(first: CalibrationView, second: CalibrationView) -> str:
    """Thresholds, coverage and contexts of both by position."""
    bins = [{item.label: item for item in view.bins} for view in (first, second)]
    covered = [{row.label: row.coverage for row in view.coverage} for view in (first, second)]
    starts = {item.label: item.first_step for view in (first, second) for item in view.bins}
    rows = []
    for label in sorted(starts, key=lambda name: (starts[name], name)):
        a, b = (found.get(label) for found in bins)
        rates = ["–" if (rate := found.get(label)) is None else f"{rate:.3f}" for found in covered]
        sizes = [count(item.contexts) if item else "–" for item in (a, b)]
        rows.append([f'<th scope="row">{escape(label)}</th>', _tau(a), _tau(b), _difference(a, b), *rates, *sizes])
    head = [
        ("Steps", ""), ("τ, first", "n"), ("τ, second", "n"), ("Difference", "n"), ("Coverage, first", "n"),
        ("second", "n"), ("Contexts, first", "n"), ("second", "n"),
    ]  # fmt: skip
    key = (
        f'<p class="hint lines"><span class="line solid"></span>first: {escape(first.summary.name)} '
        f'<span class="line dashed"></span>second: {escape(second.summary.name)}. Open marks are inherited; where a '
        "line is broken, every token passes.</p>"
    )
    return f"{key}{table(head, rows, 'plain', 'Thresholds of both runs')}"


def _facts(first: CalibrationView, second: CalibrationView) -> list[Field]:
    return [(name, *(read(view) for view in (first, second))) for name, read in FACTS]  # type: ignore[misc]


FACTS = (
    ("alpha, as calibrated", lambda view: level(view.summary.alpha)),
    ("alpha, as shown", lambda view: level(view.alpha)),
    ("group, as shown", lambda view: view.group or "all"),
    ("family, as shown", lambda view: FAMILY_NAMES.get(view.family, view.family) if view.family else "all"),
    ("estimator, as shown", lambda view: ESTIMATOR_NAMES.get(view.reading.estimator, view.reading.estimator)),
    ("contexts come from", lambda view: SOURCES.get(view.summary.source, view.summary.source)),
    ("masked branches", lambda view: "one a family" if view.families else "one"),
    ("bins", lambda view: f"{view.reading.bin_words}, to step {view.reading.max_position}"),
    ("prompts in use", lambda view: _shift(view)),
    ("contexts", lambda view: count(view.summary.contexts)),
    ("coverage", lambda view: _overall(view)),
)
"""What is compared besides the fingerprint."""


def _shift(view: CalibrationView) -> str:
    if view.effective_contexts is not None:
        return f"weighted, {view.effective_contexts:.0f} effective contexts"
    return "like the calibration’s" if view.reading.rho <= 1 else f"at most {view.reading.rho:g} times likelier"


def _overall(view: CalibrationView) -> str:
    row = view.coverage[0] if view.coverage else None
    return "not measured" if row is None or row.coverage is None else f"{row.coverage:.3f}"


def _fingerprints(first: CalibrationView, second: CalibrationView) -> list[Field]:
    a, b = dict(first.fingerprint), dict(second.fingerprint)
    return [
        (field_name(name), abbreviated(a.get(name, "–")), abbreviated(b.get(name, "–")))
        for name in dict.fromkeys([*a, *b])
    ]


def _tau(item: BinView | None) -> str:
    if item is None:
        return "–"
    if item.state == "uninformative":
        return f'<span class="caution">{"too weak" if item.tau > 0 else "none"}</span>'
    note = ' <span class="hint">inherited</span>' if item.state == "inherited" else ""
    return f"{table_threshold(item.tau)}{note}"


def _difference(a: BinView | None, b: BinView | None) -> str:
    if a is None or b is None or "uninformative" in (a.state, b.state):
        return "–"
    return signed(b.tau - a.tau, 3)
