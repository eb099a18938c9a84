"""What the calibrate page says of a result: its figures, what it can certify, and everything that it rests on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby

from markupsafe import Markup, escape

from app.calibrate.words import Head, cells_table, family_name, field_name, row_head, run_facts
from app.shared.audits import BinView, CalibrationView, CertifiedIn, CoverageView, FamilyThresholds
from app.shared.format import count, level, plural, table_threshold
from app.shared.markup import badge, html, laid_out, threshold_words
from coft_core.conformal.bins import evenness_sentence, steps_label
from coft_core.conformal.coverage import WIDEST_INTERVAL
from coft_core.conformal.groups import GroupSummary

OTHER_ALPHAS = (0.20, 0.10, 0.05, 0.01, 0.002)

MOST_ROWS = 20
"""Rows of a table by position beyond which it is folded."""

MOST_RANGES = 4
"""Ranges of steps that are named; of more, the first and a count."""


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


def result_head(view: CalibrationView) -> Markup:
    """Name, headline figures, and what must be said with them."""
    group, family = shown_group(view), shown_family(view)
    return laid_out(
        "calibrate/result_head.html",
        view=view,
        state="calibrated" if view.usable else "uninformative",
        silent=silent_because(view),
        facts=run_facts(view.summary),
        group=group,
        family=family,
        family_name=family_name(family.family) if family else "",
        figures=_figures(view),
    )


def _figures(view: CalibrationView) -> tuple[tuple[str, str, str], ...]:
    """The four figures that matter first: name, value, and what is said below."""
    first = view.bins[0] if view.bins else None
    tau = first.tau if first and first.state != "uninformative" else 0.0
    at_start = f"masked and fused must both give a word {100 * tau:.2g} %" if tau else first.silence if first else ""
    usable = f"{len(view.usable)} of {plural(len(view.bins), 'range')}"
    return (
        ("Coverage on unseen contexts", *_coverage_figure(view)),
        ("Contexts", *_contexts_figure(view)),
        ("Threshold at the start", table_threshold(tau), at_start),
        ("Usable", usable, f"steps {_named(ranges_by_reason(view)[''])}" if view.usable else "no step"),
    )


def silent_because(view: CalibrationView) -> str:
    """Why no threshold says anything, and what would help; empty if one does."""
    if view.usable or not view.bins:
        return ""
    strongest = max(view.bins, key=lambda item: item.tau)
    if strongest.tau > 0:
        return f"No step is certified: {strongest.silence}. More prompts need not raise it; a larger alpha does."
    return (
        f"No step is certified: {strongest.silence}. Bring at least {plural(prompts_needed(view), 'prompt')} that do "
        "not belong together, or allow a larger alpha."
    )


def prompts_needed(view: CalibrationView) -> int:
    """Prompts that give alpha a threshold, with as large a share kept apart as here."""
    used = (shown_group(view) or shown_family(view) or view.summary).contexts
    apart = view.coverage[0].contexts if view.coverage else 0
    return math.ceil(view.bins[0].needed * (used + apart) / max(used, 1))


def ranges_by_reason(view: CalibrationView) -> dict[str, list[str]]:
    """Ranges of steps by why they cannot be used, neighbours together; those that can be have the reason ``""``."""
    ranges: dict[str, list[str]] = {"": []}
    for reason, bins in groupby(view.bins, _gap):
        run = list(bins)
        ranges.setdefault(reason, []).append(steps_label(run[0].first_step, run[-1].last_step))
    return ranges


def _named(ranges: Sequence[str]) -> str:
    if len(ranges) <= MOST_RANGES:
        return ", ".join(ranges)
    return f"{', '.join(ranges[: MOST_RANGES - 1])} and {len(ranges) - MOST_RANGES + 1} more ranges"


def _coverage_figure(view: CalibrationView) -> tuple[str, str]:
    row = view.coverage[0] if view.coverage else None
    asked = f"asked for {level(1 - risk(view))}"
    if row is None or row.coverage is None:
        return "not verified", asked
    if row.low is None or row.high is None:
        return f"{row.coverage:.2f}", asked
    return f"{row.coverage:.2f}", f"95 % interval {row.low:.2f} to {row.high:.2f}, {asked}"


def _contexts_figure(view: CalibrationView) -> tuple[str, str]:
    part = shown_group(view) or shown_family(view) or view.summary
    if view.effective_contexts is not None:
        return count(part.contexts), f"weighted, they count as {view.effective_contexts:.0f}"
    return count(part.contexts), f"{plural(view.tokens, 'token')}; only contexts count"


def promises(view: CalibrationView) -> Markup:
    """What the calibration certifies, and what it does not, in plain words."""
    return laid_out(
        "calibrate/promises.html",
        sentences=[*(("tick", said) for said in _certified(view)), *(("cross", said) for said in _not_certified(view))],
        smallest=smallest_alpha(view),
    )


def smallest_alpha(view: CalibrationView) -> Markup:
    """The smallest risk levels that the contexts support: overall, everywhere, for whole chains, and by position."""
    smallest = view.smallest_alpha
    rows = [
        ("in some bin of steps", smallest.contexts, smallest.overall),
        ("in every bin that has data", smallest.contexts, smallest.everywhere),
        *([] if view.sequence is None else [("for whole chains", view.sequence.contexts, smallest.sequence)]),
        *((f"steps {item.label}", item.contexts, item.smallest_alpha) for item in smallest.bins),
    ]
    cells = [[row_head(where), count(contexts), _smallest(alpha)] for where, contexts, alpha in rows]
    head = [("Where", ""), ("Contexts", "n"), ("Smallest alpha", "n")]
    return html(
        """
        <details class="smallest"><summary>{{ icon("chev", "chev") }}{{ sentence }}</summary>{{ table }}
        <p class="hint">At a smaller alpha every token passes there, and nothing is certified.</p></details>
        """,
        sentence=smallest.sentence,
        table=cells_table(head, cells, "plain", "Smallest alpha by position"),
    )


def _smallest(alpha: float | None) -> str:
    return "none" if alpha is None else f"{alpha:.2g}"


def _certified(view: CalibrationView) -> list[Markup]:
    sentences = []
    if calibrated := view.usable:
        overall = view.coverage[0].coverage if view.coverage else None
        sentences.append(
            laid_out(
                "calibrate/certified_steps.html",
                steps=_named(ranges_by_reason(view)[""]),
                whom=_for_whom(view),
                often=_often(risk(view)),
                overall=overall,
            )
        )
        low, high = (table_threshold(find(item.tau for item in calibrated)) for find in (min, max))
        taus = low if low == high else f"{low} to {high} by position"
        sentences.append(
            escape(
                f"That the masked and the fused view both give a certified token at least τ, {taus}. This holds for "
                "every certified token there."
            )
        )
    chains = view.sequence
    if chains is not None and chains.state == "calibrated":
        sentences.append(
            laid_out(
                "calibrate/certified_chains.html",
                chains=chains,
                often=_often(chains.alpha),
                measured=_measured_chains(view),
            )
        )
    return sentences


def _measured_chains(view: CalibrationView) -> Markup:
    """Coverage of whole chains as measured, overall and by length."""
    if not view.sequence_coverage:
        return Markup(" Not measured: no chain of this kind was kept apart.")
    overall, *lengths = view.sequence_coverage
    rows = [
        [
            row.label,
            count(row.contexts),
            count(row.kept),
            _share(row.coverage),
            f"{_share(row.low)} to {_share(row.high)}",
        ]
        for row in lengths
    ]
    head = [("Length", ""), ("Contexts", "n"), ("Kept", "n"), ("Coverage", "n"), ("95 % interval", "n")]
    return laid_out(
        "calibrate/chains_measured.html",
        kept=count(overall.kept),
        contexts=count(overall.contexts),
        coverage=_share(overall.coverage),
        low=_share(overall.low),
        high=_share(overall.high),
        by_length=cells_table(head, rows, "plain", "Whole chains kept by length"),
    )


def _share(value: float | None) -> str:
    return "none" if value is None else f"{value:.3f}"


def _not_certified(view: CalibrationView) -> list[Markup]:
    sentences = []
    for reason, steps in ranges_by_reason(view).items():
        if reason:
            sentences.append(_not(f"steps {_named(steps)}", f"{reason[0].upper()}{reason[1:]}."))
    chains = view.sequence
    if view.families:
        sentences.append(_not("whole chains", "With one mask for each family there is no such certificate."))
    elif chains is not None and chains.state != "calibrated":
        law = f" {chains.lengths.sentence}" if chains.lengths.known else ""
        sentences.append(_not("whole chains", f"{chains.reason}{law}"))
    sentences.append(
        _not("that a text is fair", "And another model or other settings each need a calibration of their own.")
    )
    return sentences


def _not(what: str, why: str) -> Markup:
    return html("<strong>Not {{ what }}.</strong> {{ why }}", what=what, why=why)


def _gap(item: BinView) -> str:
    """Why a bin has no threshold of its own that says something; empty if it has one."""
    if item.state == "inherited":
        return f"the threshold is borrowed from {_lender(item)} and was not tested"
    return item.silence


def _lender(item: BinView) -> str:
    return item.inherited_from or "a neighbour"


def _for_whom(view: CalibrationView) -> str:
    if group := shown_group(view):
        return f"for new prompts of the group {group.name}"
    if view.effective_contexts is not None:
        return "for prompts like those that the weights describe"
    if view.reading.rho > 1:
        return f"for prompts at most {view.reading.rho:g} times likelier than here"
    family = shown_family(view)
    where = f" where {family_name(family.family)} is masked" if family else ""
    return f"for prompts like these {count(view.summary.contexts)}{where}"


def _often(alpha: float) -> str:
    for parts in (2, 3, 4, 5, 10, 20, 50, 100):
        missed = alpha * parts
        if abs(missed - round(missed)) < 1e-9 and round(missed) > 0:
            return f"{parts - round(missed)} times in {parts}"
    return f"{100 * (1 - alpha):.4g} % of the time"


def thresholds_head() -> Markup:
    """Heading of the picture and the table, with what their marks mean."""
    return html(
        """
        <div class="bar"><h2>Threshold by position</h2><span class="key">{{ badge("calibrated", "calibrated") }}
        {{ badge("uninformative", "too weak") }} {{ badge("inherited", "borrowed") }}</span></div>
        """
    )


def support_name(certified_in: CertifiedIn) -> str:
    """What thresholds are compared with, in words."""
    return "probability as typed" if certified_in == "factual" else "lower probability"


def thresholds(view: CalibrationView) -> Markup:
    """Threshold, contexts and possible coverage by position."""
    highest = max((item.tau for item in view.bins), default=0.0) or 1.0
    lows = [item.coverage_low for item in view.bins if item.coverage_low is not None]
    floor = max(0.0, int(min(0.8, *(low - 0.02 for low in lows)) * 20) / 20) if lows else 0.8
    asked = 1 - risk(view)
    head = [
        ("Steps", ""), ("Contexts", "n"), (f"Threshold τ, {support_name(view.summary.certified_in)}", "wide"),
        ("<span class=vh>τ</span>", "n"), ("Coverage it can give, 95 % range", "wide"),
        ("<span class=vh>Range</span>", "n"),
    ]  # fmt: skip
    rows = [_threshold_row(item, highest, floor, asked) for item in view.bins]
    return laid_out(
        "calibrate/thresholds.html",
        table=folded(
            "Threshold by position", len(rows), cells_table(head, rows, "thresholds", "Threshold by position")
        ),
        evenness=evenness_sentence([item.evenness for item in view.bins if item.evenness is not None]),
        floor=f"{floor:.2f}",
        asked=asked,
    )


def _threshold_row(item: BinView, highest: float, floor: float, asked: float) -> list[object]:
    uneven = item.evenness is not None and item.evenness.uneven
    steps = html(
        '<th scope="row">{{ label }}{% if uneven %}{{ badge("uneven", "steps differ") }}{% endif %}</th>',
        label=item.label,
        uneven=uneven,
    )
    contexts = count(item.contexts)
    if item.state == "uninformative" and item.tau > 0:
        stem = Markup('<div class="stem uninformative"></div>')
        return [steps, contexts, stem, table_threshold(item.tau), _two("caution", item.silence)]
    if item.state == "uninformative":
        needs = f"needs at least {plural(item.needed, 'context')}, has {contexts}"
        return [steps, contexts, _two("caution", "none, every token passes"), _two("caution", needs)]
    stem = html(
        '<div class="stem {{ state }}" style="--x:{{ share }}%"></div>',
        state=item.state,
        share=f"{100 * item.tau / highest:.1f}",
    )
    tau = table_threshold(item.tau)
    if item.state == "inherited":
        return [steps, contexts, stem, tau, _two("hint", f"not calibrated here, borrowed from {_lender(item)}")]
    if item.coverage_low is None or item.coverage_high is None:
        return [steps, contexts, stem, tau, _two("hint", "no range is known")]
    low, high, line = (
        f"{100 * (value - floor) / (1 - floor):.1f}%" for value in (item.coverage_low, item.coverage_high, asked)
    )
    span = Markup(f'<div class="span-bar" style="--a:{low};--b:{high};--t:{line}"></div>')
    possible = f"{item.coverage_low:.2f} to {item.coverage_high:.2f}"
    return [steps, contexts, stem, html("<strong>{{ tau }}</strong>", tau=tau), span, possible]


def folded(name: str, rows: int, table: Markup) -> Markup:
    """A table, folded where it is long."""
    if rows <= MOST_ROWS:
        return table
    return html(
        '<details class="smallest"><summary>{{ icon("chev", "chev") }}{{ name }}, {{ rows }} rows</summary>{{ table }}'
        "</details>",
        name=name,
        rows=rows,
        table=table,
    )


def _two(kind: str, text: str) -> Markup:
    """A cell that takes two columns."""
    return html('<td colspan="2" class="{{ kind }}">{{ text }}</td>', kind=kind, text=text)


def alphas(readings: Sequence[tuple[float, CalibrationView | str]], asked: float) -> Markup:
    """The same stored values read at other risk levels; a level that is refused says why."""
    known = [view for _, view in readings if not isinstance(view, str) and view.bins]
    first_label = escape(known[0].bins[0].label) if known else ""
    head = [("Alpha", ""), ("Rank k", "n"), (f"τ, steps {first_label}", "n"), ("Steps usable", "")]
    rows = [_alpha_row(alpha, view, abs(alpha - asked) < 1e-9) for alpha, view in readings]
    return html(
        """
        <section><div class="bar"><h2>If you asked for another alpha</h2></div>{{ table }}
        <p class="hint">Read from the stored values, no model call.</p></section>
        """,
        table=cells_table(head, rows, "", "Other alphas"),
    )


def _alpha_row(alpha: float, view: CalibrationView | str, strong: bool) -> list[object]:
    if isinstance(view, str):
        return [level(alpha), html('<td colspan="3" class="caution">{{ why }}</td>', why=view)]
    first = view.bins[0]
    lacking = first.silence if first.tau > 0 else f"needs {plural(first.needed, 'context')}"
    usable = _named(ranges_by_reason(view)[""]) if view.usable else Markup(badge("uninformative", lacking))
    tau = table_threshold(first.tau) if first.state != "uninformative" else "none"
    cells: list[object] = [level(alpha), count(first.rank), tau, usable]
    return [html("<strong>{{ cell }}</strong>", cell=cell) for cell in cells] if strong else cells


def bin_choices(view: CalibrationView) -> list[tuple[str, str]]:
    """Bins with values, for the histogram's menu."""
    return [
        (f"Steps {item.label}, {plural(item.contexts, 'context')}", item.label)
        for item in view.bins
        if view.log_values.get(item.label)
    ]


def result_checks(view: CalibrationView) -> Markup:
    """Everything that the thresholds rest on, as far as this calibration has it."""
    parts = (coverage_table, coverage_by_step, families_table, groups_table, rounds_table)
    return Markup("").join(part(view) for part in parts)


def coverage_table(view: CalibrationView) -> Markup:
    """Empirical coverage on the verification split."""
    return html(
        """
        {% if rows %}<section><div class="bar"><h2>Check on contexts it had not seen</h2>
        <span class="hint">exact interval (Clopper-Pearson)</span></div>{{ overall }}{{ table }}
        <p class="hint">Too few to tell: an interval wider than {{ widest }}, or fewer contexts than alpha needs.
        {% if rows | length > 2 %}Of {{ rows | length - 1 }} intervals some miss by chance; a row differs only where it
        misses by more than the largest of so many would (Bonferroni).{% endif %}</p>
        </section>{% endif %}
        """,
        rows=view.coverage,
        overall=_measured(view.coverage[:1], view, "Coverage on unseen contexts"),
        table=folded("By position", len(view.coverage) - 1, _measured(view.coverage[1:], view, "Coverage by position")),
        widest=level(WIDEST_INTERVAL),
    )


def coverage_by_step(view: CalibrationView) -> Markup:
    """Empirical coverage at each step, where a threshold promises it on average over several only."""
    shared = any(item.last_step != item.first_step for item in view.bins[:-1])
    return laid_out(
        "calibrate/coverage_by_step.html",
        rows=view.coverage_by_step if shared else (),
        table=_measured(view.coverage_by_step, view, "Coverage by step on unseen contexts"),
    )


def _measured(coverage: Sequence[CoverageView], view: CalibrationView, name: str) -> Markup:
    asked = level(1 - risk(view))
    verdicts = {True: f"agrees with {asked}", False: f"differs from {asked}", None: "too few to tell"}
    rows = [
        [
            row_head(row.label), count(row.contexts), count(row.kept), _share(row.coverage),
            "none" if row.low is None or row.high is None else f"{row.low:.3f} to {row.high:.3f}",
            html('<span class="sub">{{ verdict }}</span>', verdict=verdicts[row.agrees]),
        ]
        for row in coverage
    ]  # fmt: skip
    head = [
        ("Steps", ""), ("Contexts", "n"), ("Kept the true token", "n"), ("Coverage", "n"), ("95 % interval", "n"),
        ("<span class=vh>Agrees</span>", ""),
    ]  # fmt: skip
    return cells_table(head, rows, "coverage", name)


def families_table(view: CalibrationView) -> Markup:
    """With factorized masks, each family's share of alpha and what it rests on."""
    rows = [
        [
            html(
                '<th scope="row"><span class="sw f-{{ family }}"></span>{{ name }}</th>',
                family=item.family,
                name=family_name(item.family),
            ),
            level(item.alpha), count(item.contexts), table_threshold(item.tau),
            Markup(badge(item.state, threshold_words(item.state))),
        ]
        for item in view.families
    ]  # fmt: skip
    head = [("Family", ""), ("Share of alpha", "n"), ("Contexts", "n"), ("τ at the start", "n"), ("State", "")]
    why = (
        "A token is certified if every family certifies it. The shares add up to at most alpha, "
        f"{level(view.alpha)}, so the miss of all families together stays under it."
    )
    return _section("families", "Families", head, rows, why)


def groups_table(view: CalibrationView) -> Markup:
    """Which groups have enough contexts for thresholds of their own, and which are refused."""
    rows = [
        [
            row_head(group.name), count(max(group.rows, group.contexts)), count(group.contexts),
            count(group.verification_contexts),
            _smallest(group.smallest_alpha),
            Markup(badge("calibrated", "own thresholds") if group.certifiable
                   else badge("uninformative", _refused(group))),
        ]
        for group in view.groups
    ]  # fmt: skip
    head = [
        ("Group", ""), ("Rows", "n"), ("Contexts", "n"), ("Kept apart", "n"), ("Smallest alpha", "n"),
        ("At this alpha", ""),
    ]  # fmt: skip
    why = (
        "A group’s own thresholds hold for its new contexts, not only on average over all groups. Refused groups need "
        "more rows that do not belong together, or a larger alpha; choose a group above to see its thresholds."
    )
    return _section("groups", "Groups", head, rows, why)


def _refused(group: GroupSummary) -> str:
    if group.outweighed and group.contexts >= group.needed:
        return f"refused: worth {group.effective:.1f} contexts under the weights, {group.effective_needed:g} needed"
    needed = f"refused: {plural(group.needed, 'context')} needed"
    if group.rows > group.contexts:
        return f"{needed}; {plural(group.rows, 'row')} count as {count(group.contexts)} because of the column context"
    return needed


def rounds_table(view: CalibrationView) -> Markup:
    """The rounds of a rollout calibration."""
    rows = [
        [
            row_head(f"{place}{', the one in use' if item.final else ''}"), count(item.contexts), count(item.values),
            f"{item.change:.3f}",
            f"{count(item.kept)}, {_share(item.kept / item.contexts if item.contexts else None)}",
            Markup('<span class="sub">agrees</span>' if item.consistent else '<span class="sub">differs</span>'),
        ]
        for place, item in enumerate(view.iterations, start=1)
    ]  # fmt: skip
    head = [
        ("Round", ""), ("Contexts", "n"), ("True tokens", "n"), ("Largest change of τ", "n"), ("Kept before", "n"),
        ("With the level asked for", ""),
    ]  # fmt: skip
    why = (
        "Each round writes chains of fresh prompts under the thresholds of the round before. “Kept before”: how many "
        "fresh true tokens those thresholds certified."
    )
    return _section("rounds", "Rounds of rollouts", head, rows, why)


def _section(name: str, title: str, head: Head, rows: Sequence[Sequence[object]], why: str) -> Markup:
    """A titled table with what it means; nothing where it would be empty."""
    return html(
        """
        {% if rows %}<section id="{{ name }}"><div class="bar"><h2>{{ title }}</h2></div>{{ table }}
        <p class="hint">{{ why }}</p></section>{% endif %}
        """,
        name=name,
        title=title,
        rows=rows,
        table=cells_table(head, rows, "plain", title),
        why=why,
    )


def fingerprint(view: CalibrationView) -> Markup:
    """What must be equal for the calibration to hold."""
    return laid_out(
        "calibrate/fingerprint.html",
        digest=view.fingerprint_digest,
        fields=view.fingerprint,
        field_name=field_name,
    )
