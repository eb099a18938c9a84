"""What commands print of calibrations for people."""

from __future__ import annotations

from app.services.calibration.plain import policy_differences
from app.services.views import BinView, CalibrationSummary, CalibrationView, CoverageView, DriftReport

STEPS_PRINTED = 16
"""Steps whose own coverage is printed."""


def print_calibration(view: CalibrationView, drift: DriftReport | None = None) -> None:
    """Thresholds by position, the check on unseen contexts, and every reservation that the page would show."""
    summary = view.summary
    print(f"Calibration {summary.id}: {summary.name}, {summary.contexts} contexts, alpha {view.alpha:g}")
    print(_how(view))
    for note in view.notes:
        print(f"Note: {note}")
    _print_bins(view)
    for row in view.coverage:
        if (text := _interval(row)) is not None:
            print(f"coverage, {row.label}: {text} on {row.contexts} unseen contexts")
    _print_steps(view)
    print(view.smallest_alpha.sentence)
    _print_sequence(view)
    if view.effective_contexts is not None:
        print(f"Under the weights the contexts are worth {view.effective_contexts:.1f}.")
    _print_families(view)
    for group in view.groups:
        print(f"group: {group.sentence}")
    if drift is not None:
        print(f"drift: {drift.sentence}")


def print_calibrations(found: tuple[CalibrationSummary, ...]) -> None:
    """One line a calibration."""
    if not found:
        print("No calibrations yet. Make one with: python -m app calibrate --prompts prompts.csv")
    for item in found:
        measured = "" if item.coverage is None else f"  coverage {item.coverage:.3f}"
        layout = "" if item.mask_layout == "joint" else f", {item.mask_layout}"
        layout += ", factual reading alone" if item.certified_in == "factual" else ""
        print(
            f"{item.id:>5}  {item.created_at:%Y-%m-%d %H:%M}  {item.model:<12} {item.source}{layout}, lambda "
            f"{item.lam:g}, alpha {item.alpha:g}, {item.contexts} contexts{measured}  {item.name}"
        )


def print_comparison(first: CalibrationView, second: CalibrationView) -> None:
    """Two calibrations bin by bin, and what differs in their policies."""
    for view in (first, second):
        print(f"Calibration {view.summary.id}: {view.summary.name}, {view.summary.contexts} contexts; {_how(view)}")
    names = tuple(f"tau of {view.summary.id}" for view in (first, second))
    print(f"\n{'steps':<14} {names[0]:>12} {names[1]:>12}")
    taus = [_by_first_step(view) for view in (first, second)]
    for step in sorted(set(taus[0]) | set(taus[1])):
        cells = [_tau(_bin_at(view, step)) for view in (first, second)]
        label = (taus[0].get(step) or taus[1][step]).label
        print(f"{label:<14} {cells[0]:>12} {cells[1]:>12}")
    print("* inherited from a neighbour, ? uninformative: too few contexts or too weak, nothing is said")
    rows = [next(iter(view.coverage), None) for view in (first, second)]
    measured = [(None if row is None else _interval(row)) or "not measured" for row in rows]
    print(f"\ncoverage: {measured[0]} and {measured[1]}")
    for view in (first, second):
        print(f"{view.summary.id}: {view.smallest_alpha.sentence}")
    differences = policy_differences(first, second)
    for name, one, other in differences:
        print(f"{name}: {one} and {other}")
    if not differences:
        print("Both belong to the same policy.")


def _how(view: CalibrationView) -> str:
    """How the thresholds are read."""
    reading = view.reading
    parts = [view.summary.source, reading.estimator, f"lambda {view.summary.lam:g}", f"bins of {reading.bin_words}"]
    parts += [view.summary.mask_layout] if view.summary.mask_layout != "joint" else []
    parts += ["factual reading alone"] if view.summary.certified_in == "factual" else []
    parts += [f"{reading.draws} draws"] if reading.draws > 1 else []
    parts += [f"rho {reading.rho:g}"] if reading.rho != 1 else []
    parts += [f"group {view.group}"] if view.group is not None else []
    return ", ".join(parts)


def _print_bins(view: CalibrationView) -> None:
    named = "" if view.family is None else f"  of {view.family}"
    print(f"\n{'steps':<14} {'contexts':>8} {'tau':>10}  state{named}")
    for entry in view.bins:
        print(f"{entry.label:<14} {entry.contexts:>8} {entry.tau:>10.3g}  {_state(entry)}")
    print()


def _print_steps(view: CalibrationView) -> None:
    """Coverage at the first steps; a threshold bounds the average over its bin and no single one of them."""
    for row in view.coverage_by_step[:STEPS_PRINTED]:
        if (text := _interval(row)) is not None:
            print(f"coverage, step {row.label}: {text} on {row.contexts} unseen contexts")
    if left := len(view.coverage_by_step[STEPS_PRINTED:]):
        print(f"coverage at {left} later steps: --json has it")


def _state(entry: BinView) -> str:
    state = entry.state if entry.inherited_from is None else f"{entry.state} from {entry.inherited_from}"
    if entry.state != "uninformative":
        found = entry.evenness
        return state if found is None or not found.uneven else f"{state}, its steps differ (p {found.p:.2g})"
    if entry.tau > 0:
        return f"{state}: {entry.silence}"
    return f"{state}: needs {entry.needed} contexts" if entry.contexts < entry.needed else f"{state}: no joint support"


def _print_sequence(view: CalibrationView) -> None:
    if view.sequence is None:
        return
    if view.sequence.state == "calibrated":
        print(
            f"Whole chains: tau {view.sequence.tau:.3g} at alpha {view.sequence.alpha:g}, averaged over "
            f"{view.sequence.applies}. {view.sequence.lengths.sentence}"
        )
        for row in view.sequence_coverage:
            print(
                f"  {row.label}: {row.kept} of {row.contexts} kept, coverage {row.coverage:.3f} "
                f"[{row.low:.3f}, {row.high:.3f}]"
            )
    else:
        print(f"Whole chains: nothing is certified at alpha {view.sequence.alpha:g}. {view.sequence.reason}")


def _print_families(view: CalibrationView) -> None:
    for part in view.families:
        print(
            f"family {part.family}: alpha {part.alpha:.3g}, {part.contexts} contexts, tau {part.tau:.3g}, {part.state}"
        )


def _interval(row: CoverageView) -> str | None:
    if row.coverage is None or row.low is None or row.high is None:
        return None
    return f"{row.coverage:.3f} [{row.low:.3f}, {row.high:.3f}]"


def _by_first_step(view: CalibrationView) -> dict[int, BinView]:
    return {entry.first_step: entry for entry in view.bins}


def _bin_at(view: CalibrationView, step: int) -> BinView:
    return next(entry for entry in reversed(view.bins) if entry.first_step <= step)


def _tau(entry: BinView) -> str:
    return f"{entry.tau:.3g}" + ("" if entry.state == "calibrated" else "*" if entry.state == "inherited" else "?")


def print_drift(report: DriftReport) -> None:
    """What audits say against a calibration, and which of them do not count."""
    print(report.sentence)
    for own in report.left_out:
        print(f"left out: audit {own.session_id}, {own.why}: {own.prompt}")
