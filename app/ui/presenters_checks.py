"""What a calibration rests on: measured coverage, rounds of rollouts, families, groups, and the fingerprint."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from app.services.views import FAMILY_NAMES, CalibrationView, CoverageView, GroupSummary
from app.ui.components.markup import badge, icon, table
from app.ui.presenters_format import abbreviated, count, level, plural, table_threshold
from app.ui.presenters_result import risk

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
