"""What the calibrate page says of a result: its figures, what it can certify, and everything that it rests on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby

from markupsafe import Markup, escape

from app.calibrate.words import family_name, field_name, run_facts
from app.shared.audits import CalibrationView, CertifiedIn, FamilyThresholds
from app.shared.format import count, level, plural, table_threshold
from app.shared.markup import html, laid_out
from coft_core.conformal.bins import Bin, evenness_sentence, steps_label
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
    return laid_out("calibrate/smallest.html", smallest=smallest, rows=rows)


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
                measured=laid_out("calibrate/chains_measured.html", rows=view.sequence_coverage),
            )
        )
    return sentences


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


def _gap(item: Bin) -> str:
    """Why a bin has no threshold of its own that says something; empty if it has one."""
    if item.state == "inherited":
        return f"the threshold is borrowed from {_lender(item)} and was not tested"
    return item.silence


def _lender(item: Bin) -> str:
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
    lows = [item.coverage_low for item in view.bins if item.coverage_low is not None]
    floor = max(0.0, int(min(0.8, *(low - 0.02 for low in lows)) * 20) / 20) if lows else 0.8
    return laid_out(
        "calibrate/thresholds.html",
        bins=view.bins,
        most=MOST_ROWS,
        support=support_name(view.summary.certified_in),
        highest=max((item.tau for item in view.bins), default=0.0) or 1.0,
        across=lambda coverage: f"{100 * (coverage - floor) / (1 - floor):.1f}%",
        evenness=evenness_sentence([item.evenness for item in view.bins if item.evenness is not None]),
        floor=floor,
        asked=1 - risk(view),
    )


def alphas(readings: Sequence[tuple[float, CalibrationView | str]], asked: float) -> Markup:
    """The same stored values read at other risk levels; a level that is refused says why."""
    rows = []
    for alpha, view in readings:
        usable = "" if isinstance(view, str) else _named(ranges_by_reason(view)[""])
        rows.append((alpha, view, usable, abs(alpha - asked) < 1e-9))
    labels = [view.bins[0].label for _, view in readings if not isinstance(view, str) and view.bins]
    return laid_out("calibrate/alphas.html", readings=rows, first_steps=next(iter(labels), ""))


def bin_choices(view: CalibrationView) -> list[tuple[str, str]]:
    """Bins with values, for the histogram's menu."""
    return [
        (f"Steps {item.label}, {plural(item.contexts, 'context')}", item.label)
        for item in view.bins
        if view.log_values.get(item.label)
    ]


def result_checks(view: CalibrationView) -> Markup:
    """Everything that the thresholds rest on, as far as this calibration has it."""
    shared = any(item.last_step != item.first_step for item in view.bins[:-1])
    return laid_out(
        "calibrate/checks.html",
        view=view,
        asked=level(1 - risk(view)),
        by_step=view.coverage_by_step if shared else (),
        family_name=family_name,
        most=MOST_ROWS,
        widest=level(WIDEST_INTERVAL),
    )


def fingerprint(view: CalibrationView) -> Markup:
    """What must be equal for the calibration to hold."""
    return laid_out(
        "calibrate/fingerprint.html",
        digest=view.fingerprint_digest,
        fields=view.fingerprint,
        field_name=field_name,
    )
