"""Sentences and tables of the calibrate page: estimates, results, drift, and two runs side by side."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import groupby

from markupsafe import Markup, escape

from app.calibrate.trial import CalibrationEstimate
from app.shared.audits import FAMILY_NAMES, CalibrationSummary, CalibrationView, CertifiedIn, FamilyThresholds
from app.shared.calibration_words import DRIFT_STATES, lengths_sentence
from app.shared.format import abbreviated, count, day, level, listed, plural, table_threshold
from app.shared.markup import html, laid_out
from coft_core.conformal.bins import EVENNESS_LEVEL, Bin, BinEvenness, PositionBins, steps_label
from coft_core.conformal.coverage import WIDEST_INTERVAL
from coft_core.conformal.drift import DriftReport
from coft_core.conformal.groups import GroupSummary
from coft_core.conformal.part import Certifiable, Reading

SHOWN_PROMPT = 120
"""Characters of a prompt that a table shows."""

SOURCES = {"reference": "references", "rollout": "rollouts"}
LAYOUTS = {"joint": "", "factorized": "one mask a family, "}
ESTIMATOR_NAMES = {"one_per_context": "one per context"}


def family_name(family: str) -> str:
    """An attribute family as a reader knows it."""
    return FAMILY_NAMES.get(family, family)


def steps_named(labels: str) -> str:
    """Steps as a sentence names them: ``step 1``, ``steps 1–8, 9 and later``."""
    return f"step {labels}" if labels.isdigit() else f"steps {labels}"


def smallest_sentence(found: Certifiable) -> str:
    """The smallest risk levels that a calibration supports, in a sentence."""
    if found.overall is None:
        return "Nothing can be certified with this: there are no contexts with a supported true token."
    where = "" if found.everywhere is None else f", and {found.everywhere:.3g} in every bin that has data"
    return f"With {found.contexts} contexts the smallest alpha is {found.overall:.3g}{where}."


def bins_named(reading: Reading) -> str:
    """Which steps share a threshold, such as ``1, 2, 3–4, 5–8, then 8 steps``."""
    if reading.bin_spacing == "finest":
        return "each step"
    positions, width = PositionBins(reading.bin_width, reading.max_position, reading.bin_spacing), reading.bin_width
    first = [positions.label(index) for index, start in enumerate(positions.starts[1:]) if start <= width]
    return ", ".join([*first, f"then {width} steps"]) if len(first) > 1 else f"{width} steps"


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
    kind = LAYOUTS.get(run.mask_layout, "") if both else "only the factual reading, "
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
    ("bins", lambda view: f"{bins_named(view.reading)}, to step {view.reading.max_position}"),
    ("prompts in use", _shift),
    ("contexts", lambda view: count(view.summary.contexts)),
    ("coverage", _overall),
)
"""What is compared besides the fingerprint."""


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
        ("Usable", usable, steps_named(_named(ranges_by_reason(view)[""])) if view.usable else "no step"),
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
        *([] if view.sequence is None else [("for whole texts", view.sequence.contexts, smallest.sequence)]),
        *((steps_named(item.label), item.contexts, item.smallest_alpha) for item in smallest.bins),
    ]
    return laid_out("calibrate/smallest.html", says=smallest_sentence(smallest), rows=rows)


def _certified(view: CalibrationView) -> list[Markup]:
    sentences = []
    if calibrated := view.usable:
        overall = view.coverage[0].coverage if view.coverage else None
        sentences.append(
            laid_out(
                "calibrate/certified_steps.html",
                steps=steps_named(_named(ranges_by_reason(view)[""])),
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
                lengths=lengths_sentence(chains.lengths),
                measured=laid_out("calibrate/chains_measured.html", rows=view.sequence_coverage),
            )
        )
    return sentences


def _not_certified(view: CalibrationView) -> list[Markup]:
    sentences = []
    for reason, steps in ranges_by_reason(view).items():
        if reason:
            sentences.append(_not(steps_named(_named(steps)), f"{reason[0].upper()}{reason[1:]}."))
    chains = view.sequence
    if view.families:
        sentences.append(_not("whole texts", "With one mask for each family, only single steps are certified."))
    elif chains is not None and chains.state != "calibrated":
        law = f" {lengths_sentence(chains.lengths)}" if chains.lengths.known else ""
        sentences.append(_not("whole texts", f"{chains.reason}{law}"))
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
        <div class="bar"><h2>Threshold by position</h2><span class="key flow wide">
        {{ badge("calibrated", "calibrated") }} {{ badge("uninformative", "too weak") }}
        {{ badge("inherited", "borrowed") }}</span></div>
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
    return laid_out("calibrate/alphas.html", readings=rows, first_steps=steps_named(next(iter(labels), "")))


def bin_choices(view: CalibrationView) -> list[tuple[str, str]]:
    """Bins with values, for the histogram's menu."""
    return [
        (f"{steps_named(item.label).capitalize()}, {plural(item.contexts, 'context')}", item.label)
        for item in view.bins
        if view.log_values.get(item.label)
    ]


def evenness_sentence(evenness: Sequence[BinEvenness]) -> str:
    """The bins whose steps differ, in words; empty where there is none."""
    labels = [entry.label for entry in evenness if entry.uneven]
    if not labels:
        return ""
    compared = "1 bin" if len(evenness) == 1 else f"{len(evenness)} bins"
    bins = "bin" if len(labels) == 1 else "bins"
    return (
        f"Within the {bins} of steps {listed(labels)} single steps differ beyond noise (level {EVENNESS_LEVEL:g} over "
        f"{compared} compared): the level holds averaged over the steps of such a bin, and at some of them coverage "
        "can be lower."
    )


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
