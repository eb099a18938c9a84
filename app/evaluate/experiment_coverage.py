"""Tables of coverage, read off the calibrations that an experiment's evaluation kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from app.evaluate import words
from app.evaluate.experiment_figures import Figures, Kept, Value
from app.evaluate.experiment_layout import (
    ExperimentTable,
    Line,
    chosen_paper,
    laid_out,
    paper_notes,
    silent_notes,
    stand_in_notes,
    sweep_of,
)
from app.evaluate.experiment_pictures import ChainPoint, ChainsPicture, LevelPoint, LevelsPicture
from app.evaluate.experiments import (
    KNOBS,
    ChainsTable,
    CoverageTable,
    DriftSetting,
    DriftTable,
    PartEntry,
    SweepEntry,
    number_of,
)
from app.evaluate.layout import Head
from coft_core.conformal.calibration import Calibration
from coft_core.conformal.coverage import CoverageRow
from coft_core.conformal.shift import DensityRatio, estimate_density_ratio
from coft_core.errors import InvalidInputError
from coft_core.experiments.certificates import chain_rows, coverage_elsewhere
from coft_core.suites.base import Outside

APART = 0.99
"""Area under the ROC curve from which on two sets of prompts count as not overlapping."""


def coverage_table(table: CoverageTable, figures: Figures, model: str, outside: Outside) -> ExperimentTable:
    """Miscoverage on contexts kept apart and the certified share, a row a risk level."""
    kept, sweep = figures.kept, sweep_of(figures.kept.experiment)
    lines, points = [], []
    for value in sweep.values:
        label = sweep.label(value)
        by_seed: dict[int, list[tuple[int, int]]] = {}
        for note in kept.calibrations:
            if note.method == label and note.coverage is not None:
                by_seed.setdefault(note.seed, []).append((round(note.coverage * note.checked), note.checked))
        share = figures.certificates("certified share", label, kept.suites) if label in kept.labels else None
        missed = _missed(by_seed)
        lines.append(Line(label, (missed, None if share is None else share.value), label))
        if missed is not None:
            points.append(LevelPoint(value, missed))
    heads = [Head("Miscoverage", words.ARROWS["lower"]), Head("Certified share")]
    notes = [
        "Miscoverage: share of contexts kept apart from the calibration whose drawn true token misses its threshold, "
        "over all suites; the mean over seeds ± the standard deviation over them.",
        "Certified share: mean share of the vocabulary in the certified set, over steps of written texts.",
        *silent_notes(kept, {sweep.label(value) for value in sweep.values}),
        *stand_in_notes(kept),
        *paper_notes(table, model),
    ]
    layout = laid_out(table, model, KNOBS[sweep.knob].capitalize(), heads, lines)
    return ExperimentTable(table.title, layout, tuple(notes), _levels(table, sweep, model, points))


def _levels(table: CoverageTable, sweep: SweepEntry, model: str, points: Sequence[LevelPoint]) -> LevelsPicture | None:
    """The picture of miscoverage; None where none was measured."""
    if not points:
        return None
    published: list[LevelPoint] = []
    for entry in (papers := chosen_paper(table.paper, model)):
        figures = {value: entry.rows.get(sweep.label(value), (None,))[0] for value in sweep.values}
        published += [LevelPoint(value, Value(*number_of(own))) for value, own in figures.items() if own is not None]
    return LevelsPicture(tuple(points), tuple(published), papers[0].model if published else "")


def _missed(by_seed: Mapping[int, Sequence[tuple[int, int]]]) -> Value | None:
    """Miscoverage of several calibrations by seed, each given as contexts kept and contexts checked."""
    totals = [[sum(each) for each in zip(*counts, strict=True)] for _, counts in sorted(by_seed.items())]
    present = [(kept, checked) for kept, checked in totals if checked]
    if not present:
        return None
    return Value.of(
        (1 - kept / checked for kept, checked in present), n=sum(checked for _, checked in present), what="contexts"
    )


def _calibrations(kept: Kept, suite: str, label: str) -> dict[int, Calibration]:
    """Calibrations of a method on a suite by seed; factorized ones are left out."""
    read = kept.suites.get(suite)
    found = {} if read is None else {seed: kept.thresholds(read.key, label, seed) for seed in kept.seeds}
    return {seed: own for seed, own in found.items() if own is not None and own.layout == "joint"}


def chains_table(table: ChainsTable, figures: Figures, model: str, outside: Outside) -> ExperimentTable:
    """Miscoverage of whole chains, a row a risk level and length."""
    kept = figures.kept
    counts: dict[tuple[float, int], dict[int, list[tuple[int, int]]]] = {}
    unions: dict[tuple[float, int], list[float]] = {}
    reasons: dict[str, None] = {}
    for suite in kept.suites:
        for seed, calibration in _calibrations(kept, suite, table.method).items():
            for row in chain_rows(calibration, table.horizons, table.alphas):
                place = row.alpha, row.horizon
                unions.setdefault(place, []).append(1 - row.union.level)
                if row.coverage.coverage is None:
                    why = row.reason or "none was kept apart"
                    reasons[f"{kept.suites[suite].title}, {_steps(row.horizon)}: {why}"] = None
                else:
                    counts.setdefault(place, {}).setdefault(seed, []).append(_kept_of(row.coverage))
    lines = []
    levels: dict[float, tuple[ChainPoint, ...]] = {}
    for alpha in table.alphas:
        for horizon in table.horizons:
            place = alpha, horizon
            union = fmean(unions[place]) if place in unions else None
            missed = _missed(counts.get(place, {}))
            levels[alpha] = (*levels.get(alpha, ()), ChainPoint(horizon, missed, union))
            last = horizon == table.horizons[-1]
            head = f"alpha {alpha:g}, {_steps(horizon)}"
            values = missed, None if union is None else Value(union)
            lines.append(Line(head, values, f"alpha {alpha:g}" if last else ""))
    heads = [Head("Miscoverage", words.ARROWS["lower"]), Head("Union bound")]
    notes = [
        "Miscoverage: share of whole chains kept apart from the calibration with a token below the threshold for whole "
        "chains, one chain of each context; the mean over seeds ± the standard deviation over them.",
        "Union bound: the most that thresholds of single steps at the same alpha would leave open for the whole chain.",
        *(f"Not measured: {reason.rstrip('.')}." for reason in reasons),
        *stand_in_notes(kept),
        *paper_notes(table, model),
    ]
    picture = ChainsPicture(levels) if counts else None
    return ExperimentTable(table.title, laid_out(table, model, "Level and length", heads, lines), tuple(notes), picture)


def _steps(number: int) -> str:
    return "1 step" if number == 1 else f"{number} steps"


def _kept_of(row: CoverageRow) -> tuple[int, int]:
    return row.kept, row.contexts


def drift_table(table: DriftTable, figures: Figures, model: str, outside: Outside) -> ExperimentTable:
    """Coverage of the first set's thresholds, a row a set of prompts."""
    kept, first = figures.kept, table.settings[0]
    held = {setting.title: _held(kept, table, setting) for setting in table.settings}
    lines = []
    for setting in table.settings:
        own, gap = held[setting.title], figures.figure(PartEntry(suite=setting.suite).part, table.method)
        counted = sum(row.contexts for row in own.coverage)
        values = (
            Value.of((row.coverage for row in own.coverage), n=counted, what="contexts") if own.coverage else None,
            Value.of(own.ratios) if own.ratios else None,
            None if gap is None else gap.value,
            Value.of(own.areas) if own.areas else None,
        )
        lines.append(Line(setting.title, values, setting.title))
    heads = [Head("Coverage"), Head("Density ratio"), Head("Gap", words.ARROWS["lower"]), Head("Told apart")]
    told = [
        f"Coverage: share of contexts whose drawn true token is certified by the thresholds fitted on "
        f"{_title(kept, first.suite)}; asked for is one minus alpha.",
        "Density ratio: the largest estimated ratio of the densities of prompts; told apart: area under the ROC curve "
        "of what estimates it, 0.5 where the two sets cannot be told apart and 1 where they do not overlap.",
        *dict.fromkeys(note for own in held.values() for note in own.notes),
        *stand_in_notes(kept),
        *paper_notes(table, model),
    ]
    return ExperimentTable(table.title, laid_out(table, model, "Prompts", heads, lines), tuple(told))


@dataclass(frozen=True)
class _Held:
    """What thresholds of the first set do on a set of prompts, a seed each."""

    coverage: list[CoverageRow]
    ratios: list[float]
    areas: list[float]
    notes: list[str]


def _held(kept: Kept, table: DriftTable, setting: DriftSetting) -> _Held:
    first = table.settings[0]
    base = _calibrations(kept, first.suite, table.method)
    if setting == first:
        return _Held([own.coverage for own in base.values()], [1.0], [], [])
    others = _calibrations(kept, setting.suite, table.method)
    held = _Held([], [], [], [])
    for seed in sorted(set(base) & set(others)):
        held.coverage.append(coverage_elsewhere(base[seed], others[seed]))
        shift = _shift(kept, first.suite, setting.suite, seed)
        if isinstance(shift, str):
            held.notes.append(f"{setting.title}: {shift}")
            continue
        held.areas.append(shift.separability)
        if shift.separability < APART:
            held.ratios.append(shift.test_weight)
        else:
            held.notes.append(
                f"{setting.title}: the prompts do not overlap with those of {_title(kept, first.suite)}, so that no "
                "density ratio bounds what coverage may lose."
            )
    return held


def _title(kept: Kept, suite: str) -> str:
    return kept.suites[suite].title if suite in kept.suites else suite


def _shift(kept: Kept, first: str, other: str, seed: int) -> DensityRatio | str:
    """The estimated density ratio of the prompts, or why it cannot be estimated."""
    both = [kept.prompts(suite, seed) for suite in (first, other)]
    if both[0] is None or both[1] is None:
        return "the density ratio needs the prompts, whose files are not there any more."
    try:
        return estimate_density_ratio(both[0][0], both[1][1])
    except InvalidInputError as error:
        return str(error)
