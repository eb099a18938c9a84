"""What the calibrate page says of runs: what one will take, the list of them, drift, and two side by side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from markupsafe import Markup

from app.calibrate.trial import CalibrationEstimate
from app.shared.audits import (
    FAMILY_NAMES,
    CalibrationSummary,
    CalibrationView,
)
from app.shared.chain_words import DRIFT_STATES
from app.shared.format import (
    abbreviated,
    count,
    day,
    level,
    plural,
)
from app.shared.markup import laid_out
from coft_core.conformal.drift import DriftReport

SHOWN_PROMPT = 120
"""Characters of a prompt that a table shows."""

SOURCES = {"reference": "references", "rollout": "rollouts"}
LAYOUTS = {"joint": "", "factorized": "one mask a family, "}
ESTIMATOR_NAMES = {"one_per_context": "one per context"}


def family_name(family: str) -> str:
    """An attribute family as a reader knows it."""
    return FAMILY_NAMES.get(family, family)


def runs_list(runs: Sequence[CalibrationSummary], shown: int | None) -> Markup:
    """Past runs, newest first."""
    return laid_out(
        "calibrate/runs_list.html",
        runs=runs,
        shown=shown,
        facts=run_facts,
    )


def run_facts(run: CalibrationSummary) -> str:
    """Model, source and settings of a run in one line."""
    both = run.certified_in == "both"
    kind = LAYOUTS.get(run.mask_layout, "") if both else "factual reading alone, "
    lam = f"λ {run.lam:.2f}, " if both else ""
    return (
        f"{run.model}, {SOURCES.get(run.source, run.source)}, {kind}{_estimator(run.estimator)}, {lam}"
        f"α {level(run.alpha)}, {plural(run.contexts, 'context')}, {day(run.created_at)}"
    )


def _estimator(name: str) -> str:
    return ESTIMATOR_NAMES.get(name, name)


def estimate_panel(estimate: CalibrationEstimate, alpha: float, share: float, column: str = "") -> Markup:
    """What a calibration will take and whether its contexts suffice."""
    kept = round(estimate.contexts * (1 - share))
    cautions = []
    if kept < estimate.needed:
        why, more = "", "Add prompts"
        if estimate.contexts != estimate.prompts:
            why = (
                f" {plural(estimate.prompts, 'row')} count as {count(estimate.contexts)} because of the column "
                f"{column or 'context'}: rows with the same value there count once."
            )
            more = "Give rows that do not belong together contexts of their own, add prompts"
        cautions.append(
            f"Too weak to say anything: every token would pass.{why} {more}, or accept more misses (alpha)."
        )
    if estimate.unmasked:
        verb = "masks" if estimate.unmasked == 1 else "mask"
        seen = "" if estimate.looked_at is None else f" of the {count(estimate.looked_at)} looked at"
        cautions.append(
            f"{plural(estimate.unmasked, 'prompt')}{seen} {verb} nothing, so both views are equal there. Give spans "
            "in the file, mask more families, or use a word list."
        )
    return laid_out(
        "calibrate/estimate_panel.html",
        estimate=estimate,
        kept=kept,
        alpha=alpha,
        cautions=cautions,
    )


def drift_head(report: DriftReport) -> Markup:
    """Badge and sentence."""
    return laid_out(
        "calibrate/drift_head.html",
        report=report,
        word=DRIFT_STATES.get(report.status, report.status),
    )


def drift_foot(report: DriftReport) -> Markup:
    """What the picture shows, and the audits that were not compared, each with its reason, folded away."""
    return laid_out(
        "calibrate/drift_foot.html",
        report=report,
        reasons=Counter(audit.why for audit in report.left_out),
        shown_prompt=SHOWN_PROMPT,
    )


def field_name(name: str) -> str:
    """A fingerprint field as a reader knows it."""
    return {"lam": "lambda", "top_p": "top-p", "top_k": "top-k"}.get(name, name.replace("_", " "))


def comparison_choices(runs: Sequence[CalibrationSummary], shown: int | None) -> list[tuple[str, int]]:
    """The other runs, for a menu; 0 compares with none."""
    others = [(f"{run.name}, {day(run.created_at)}", run.id) for run in runs if run.id != shown]
    return [("Choose a run" if others else "There is no other run yet", 0), *others]


def comparison_settings(first: CalibrationView, second: CalibrationView) -> Markup:
    """What differs between two runs, and what is equal, folded."""
    one, other = dict(first.fingerprint), dict(second.fingerprint)
    fields = [(name, read(first), read(second)) for name, read in FACTS]
    fields += [
        (field_name(name), abbreviated(one.get(name, "–")), abbreviated(other.get(name, "–")))
        for name in dict.fromkeys([*one, *other])
    ]
    return laid_out(
        "calibrate/comparison_settings.html",
        names=[view.summary.name for view in (first, second)],
        differ=[field for field in fields if field[1] != field[2]],
        equal=[field for field in fields if field[1] == field[2]],
    )


def comparison_thresholds(first: CalibrationView, second: CalibrationView) -> Markup:
    """Thresholds, coverage and contexts of both by position."""
    bins = [{item.label: item for item in view.bins} for view in (first, second)]
    coverage = [{row.label: row.coverage for row in view.coverage} for view in (first, second)]
    starts = {item.label: item.first_step for view in (first, second) for item in view.bins}
    rows = [
        (label, *(by_label.get(label) for by_label in (*bins, *coverage)))
        for label in sorted(starts, key=lambda name: (starts[name], name))
    ]
    return laid_out(
        "calibrate/comparison_thresholds.html", first=first.summary.name, second=second.summary.name, rows=rows
    )


def _shift(view: CalibrationView) -> str:
    if view.effective_contexts is not None:
        return f"weighted, {view.effective_contexts:.0f} effective contexts"
    return "like the calibration’s" if view.reading.rho <= 1 else f"at most {view.reading.rho:g} times likelier"


def _overall(view: CalibrationView) -> str:
    row = view.coverage[0] if view.coverage else None
    return "not measured" if row is None or row.coverage is None else f"{row.coverage:.3f}"


FACTS: tuple[tuple[str, Callable[[CalibrationView], str]], ...] = (
    ("alpha, as calibrated", lambda view: level(view.summary.alpha)),
    ("alpha, as shown", lambda view: level(view.alpha)),
    ("group, as shown", lambda view: view.group or "all"),
    ("family, as shown", lambda view: family_name(view.family) if view.family else "all"),
    ("estimator, as shown", lambda view: _estimator(view.reading.estimator)),
    ("contexts come from", lambda view: SOURCES.get(view.summary.source, view.summary.source)),
    ("masked branches", lambda view: "one a family" if view.families else "one"),
    ("bins", lambda view: f"{view.reading.bin_words}, to step {view.reading.max_position}"),
    ("prompts in use", _shift),
    ("contexts", lambda view: count(view.summary.contexts)),
    ("coverage", _overall),
)
"""What is compared besides the fingerprint."""
