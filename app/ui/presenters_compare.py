"""Two calibrations side by side, as markup."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from app.services.views import FAMILY_NAMES, BinView, CalibrationSummary, CalibrationView
from app.ui.components.markup import icon, table
from app.ui.presenters_calibrate import ESTIMATOR_NAMES, SOURCES
from app.ui.presenters_checks import field_name
from app.ui.presenters_format import abbreviated, count, day, level, plural, signed, table_threshold

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
