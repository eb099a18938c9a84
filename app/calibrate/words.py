"""What the calibrate page says of a prompt set: its columns, what is wrong with it, and how it will be masked."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from app.shared.audits import CalibrationSummary
from app.shared.chain_words import DRIFT_STATES
from app.shared.markup import badge, icon, table
from app.shared.prompt_sets import CalibrationEstimate
from app.shared.step_words import count, day, duration, level, plural
from coft_core.conformal.drift import DriftReport

SHOWN_PROMPT = 120
"""Characters of a prompt that a table shows."""


def drift_head(report: DriftReport) -> str:
    """Badge and sentence."""
    mark = badge(f"drift-{report.status}", DRIFT_STATES.get(report.status, report.status))
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


SOURCES = {"reference": "references", "rollout": "rollouts"}
LAYOUTS = {"joint": "", "factorized": "one mask a family, "}
ESTIMATOR_NAMES = {"hierarchical": "hierarchical", "one_per_context": "one per context", "pooled": "pooled"}


def runs_list(found: Sequence[CalibrationSummary], shown: int | None) -> str:
    """Past runs, newest first."""
    if not found:
        return '<p class="sub">No calibration yet. The first one that you make is listed here.</p>'
    return f'<ul class="runlist">{"".join(_run(item, item.id == shown) for item in found)}</ul>'


def _run(item: CalibrationSummary, current: bool) -> str:
    what = "The calibration goes for good. Audits that used it keep their results and its name."
    name = escape(item.name)
    delete = (
        '<span class="hint">comes with the program</span>'
        if item.embedded
        else f'<button type="button" class="btn small quiet" data-do="delete" data-id="{item.id}" '
        f'data-name="{name}" data-what="{what}" aria-label="Delete {name}">Delete</button>'
    )
    return (
        f'<li{" aria-current=true" if current else ""}><button type="button" class="link" data-do="show" '
        f'data-id="{item.id}">{name}</button>{delete}<span class="hint tnum">{run_facts(item)}</span></li>'
    )


def run_facts(item: CalibrationSummary) -> str:
    """Model, source and settings of a run in one line."""
    kind = LAYOUTS.get(item.mask_layout, "") if item.certified_in == "both" else "factual reading alone, "
    lam = f"λ {item.lam:.2f}, " if item.certified_in == "both" else ""
    return (
        f"{escape(item.model)}, {SOURCES.get(item.source, item.source)}, {kind}"
        f"{ESTIMATOR_NAMES.get(item.estimator, item.estimator)}, {lam}α {level(item.alpha)}, "
        f"{plural(item.contexts, 'context')}, {day(item.created_at)}"
    )


def _more_contexts(found: CalibrationEstimate) -> str:
    """What would give more contexts: other values of the column that merges rows, or more rows."""
    if found.contexts == found.prompts:
        return "Add prompts"
    return (
        f"{plural(found.prompts, 'row')} count as {count(found.contexts)}, because rows with the same context count "
        "once: give rows that do not belong together contexts of their own, add prompts"
    )


def estimate_panel(found: CalibrationEstimate, alpha: float, share: float) -> str:
    """What a calibration will take and whether its contexts suffice."""
    kept = round(found.contexts * (1 - share))
    lines = [
        f"<strong>{plural(found.prompts, 'prompt')}, {plural(found.contexts, 'context')}</strong>: about {count(kept)} "
        f"to calibrate, {count(found.contexts - kept)} kept apart. Alpha {level(alpha)} needs at least "
        f"{count(found.needed)}.",
        f"It takes {duration(found.seconds)} here, judged by a trial with {plural(found.tried, 'prompt')}.",
    ]
    cautions = []
    if kept < found.needed:
        cautions.append(f"Too few contexts: every token would pass. {_more_contexts(found)}, or choose a larger alpha.")
    if found.unmasked:
        verb = "masks" if found.unmasked == 1 else "mask"
        seen = "" if found.looked_at is None else f" of the {count(found.looked_at)} looked at"
        cautions.append(
            f"{plural(found.unmasked, 'prompt')}{seen} {verb} nothing, so both views are equal there. Give spans "
            "in the file, mask more families, or use a word list."
        )
    warned = "".join(f"<li>{icon('tri')}<span>{text}</span></li>" for text in cautions)
    body = "".join(f'<p class="sub tnum">{line}</p>' for line in lines)
    return f'<div class="estimate">{body}{f"<ul class=cautions>{warned}</ul>" if warned else ""}</div>'
