"""What is said of evaluations, the same on the page, in exports and on a terminal."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from app.evaluate.runs import CalibrationNote, EvaluationMethod, SuitePlan
from app.evaluate.tables import AverageRank, Cell, Column, SuiteReading, Table
from app.shared.audits import AuditSettings
from app.shared.format import MINUS, count, level, listed, signed
from app.shared.policies import info_of, parameters_line
from coft_core.suites.base import Better, Outside

ARROWS: dict[Better, str] = {
    "lower": "\N{DOWNWARDS ARROW}",
    "higher": "\N{UPWARDS ARROW}",
    "near the middle": "\N{RIGHTWARDS ARROW}50",
    "near zero": "\N{RIGHTWARDS ARROW}0",
    "none": "",
}
"""Which values of a figure are good, beside its title."""

BETTER: dict[Better, str] = {
    "lower": "Lower is better.",
    "higher": "Higher is better.",
    "near the middle": "Best is 50: neither side is preferred.",
    "near zero": "Best is 0: neither side is preferred.",
    "none": "No value of it is better than another, so methods have no ranks.",
}

OUTSIDE: dict[Outside, str] = {
    "floor": "A token that a certified set refuses counts as likely as the threshold that it misses.",
    "zero": "A token that a certified set refuses makes the whole text impossible.",
}

MOST_REASONS = 3

TIES = (
    "Bold, on a terminal with a star: the best, and any method not clearly worse (the 95 % interval of the difference "
    "holds 0)."
)
RANKS = "Rank 1 is the best; methods whose difference may be noise share the mean of their ranks."
ELSEWHERE = (
    "Figures from elsewhere are shown as they were published: they have no ranks here, and nothing is computed with "
    "them."
)
UNMASKED = (
    "Nothing masked: items in whose prompts no token was masked. There, methods that mask read the same prompt twice, "
    "and differ from the model alone only by their thresholds."
)
CERTIFIED = (
    "Refused: tokens of the given texts outside a certified set. Empty: steps at which no token was certified, so that "
    "any may be written."
)


def digits_for(values: Iterable[float | None]) -> int:
    """Decimals for figures that are shown together: one from 10 on, two from 1 on, else three."""
    largest = max((abs(value) for value in values if value is not None and math.isfinite(value)), default=0.0)
    return 1 if largest >= 10 else 2 if largest >= 1 else 3


def number(value: float | None, digits: int) -> str:
    """A figure with a true minus; empty for None."""
    if value is None:
        return ""
    text = "\N{INFINITY}" if math.isinf(value) else f"{abs(value):.{digits}f}"
    return f"{MINUS}{text}" if value < 0 and text.strip("0.") else text


def interval(low: float | None, high: float | None, digits: int) -> str:
    """An interval in brackets; empty without one."""
    return "" if low is None or high is None else f"[{number(low, digits)}, {number(high, digits)}]"


def percent(share: float | None) -> str:
    """A share with one decimal; a small one never reads as none, and a large one never as all."""
    if share is None:
        return ""
    text = f"{100 * share:.1f}"
    if share > 0 and text == "0.0":
        return "<0.1 %"
    return ">99.9 %" if share < 1 and text == "100.0" else f"{text} %"


def column_title(column: Column) -> str:
    """What a column is called beside those of other suites."""
    return column.suite_title if column.main else figure_title(column)


def figure_title(column: Column) -> str:
    """What a figure is called among those of its suite."""
    return f"{column.title}: {column.part}" if column.part else column.title


def figure_sentence(column: Column) -> str:
    """What a figure is of, and which values are good."""
    part = f", {column.part}" if column.part else ""
    return f"{column.suite_title}: {column.title}{part}, over {column.what}. {BETTER[column.better]}"


def cell_sentence(cell: Cell, column: Column, digits: int) -> str:
    """What a figure rests on, for a tooltip."""
    unscored = f"{_share(cell.unscored, cell.n + cell.unscored)} could not be scored"
    if cell.value is None:
        return f"Nothing could be scored: {unscored}."
    said = [number(cell.value, digits)]
    if cell.deviation is not None:
        said[0] += f" ± {number(cell.deviation, digits)} over {len(cell.seeds)} seeds"
    if found := interval(cell.low, cell.high, digits):
        said.append(f"95 % interval {found}")
    said.append(f"over {count(cell.n)} {column.what}")
    if cell.unscored:
        said.append(unscored)
    if cell.rank is not None:
        said.append(f"rank {cell.rank:g}{', tied with the best' if cell.best and cell.rank > 1 else ''}")
    if (contrast := cell.contrast) is not None:
        noise = ", which may be noise" if contrast.noise else ""
        between = interval(contrast.low, contrast.high, digits)
        said.append(f"difference {signed(contrast.value, digits)} {between}{noise}")
    return "; ".join(said) + "."


def _share(part: int, whole: int) -> str:
    return f"{count(part)} of {count(whole)}"


def cells_sentence(seeds: Sequence[int], intervals: bool = True) -> str:
    """What the numbers of a cell are."""
    if not seeds:
        return "Nothing has been read yet."
    drawn = (
        "exact for shares of independent items, else drawn over units: items of one template, pair or question are "
        "drawn together"
    )
    if len(seeds) == 1:
        return f"Each figure is of seed {seeds[0]}; in brackets its 95 % interval, {drawn}."
    mean = f"Each figure is the mean over the seeds {listed(seeds)}, ± the standard deviation over them"
    if not intervals:
        return f"{mean}."
    return (
        f"{mean}; in brackets the 95 % interval of the answers of all seeds together, {drawn}. A figure that is not "
        "a mean over items need not lie in the middle of it."
    )


def deterministic_sentence(table: Table) -> str:
    """Which suites' seeds draw nothing; empty where there is none, or one seed."""
    readings = [reading for row in table.rows for reading in row.readings]
    writing = {reading.suite for reading in readings if reading.writes}
    titles = dict.fromkeys(reading.title for reading in readings if reading.suite not in writing)
    if len(table.seeds) < 2 or not titles:
        return ""
    return (
        f"No text is drawn in {listed(list(titles))}: seeds differ there in no more than the items that are "
        "kept apart for calibration, and where none are, the standard deviation over seeds is 0. It says nothing about "
        "how sure a figure is; the interval does."
    )


def average_title(average: AverageRank) -> str:
    """Title of a column of average ranks."""
    return f"Average rank, {average.kind}"


def average_sentence(average: AverageRank) -> str:
    """What an average rank is over."""
    figures = "figure" if average.columns == 1 else "figures"
    return f"{average_title(average)}: over {average.columns} {figures} in which every method has a rank."


def notes(
    table: Table, plans: Sequence[SuitePlan] = (), elsewhere: bool = False, short: bool = False
) -> tuple[str, ...]:
    """Every sentence that belongs to a table."""
    ranked = any(cell is not None and cell.rank is not None for row in table.rows for cell in row.cells)
    averages = list(dict.fromkeys(average_sentence(average) for row in table.rows for average in row.averages))
    told = [cells_sentence(table.seeds, not short)]
    if ranked:
        told += [TIES, RANKS] if averages or not short else [TIES]
    told += averages
    if table.reference is not None and not short:
        told.append(
            f"Δ: how much larger a figure is than that of {table.reference}, over the same items of all seeds "
            "together, with its 95 % interval."
        )
    if any(row.certifies for row in table.rows):
        told.append(OUTSIDE[table.outside])
    told += [deterministic_sentence(table), ELSEWHERE if elsewhere else ""]
    if table.absent:
        told.append(
            f"There is no figure of {listed(table.absent)} yet: no item has been read, or a judge that it needs is "
            "missing."
        )
    shown = {column.suite for column in table.columns}
    told += [*_exceptions(table), *(f"{plan.title}: {plan.release}." for plan in plans if plan.suite in shown)]
    return tuple(sentence for sentence in told if sentence)


def reading_notes(table: Table) -> tuple[str, ...]:
    """What the columns of a table's readings mean."""
    return (UNMASKED, CERTIFIED) if any(row.certifies for row in table.rows) else (UNMASKED,)


def _exceptions(table: Table) -> Iterator[str]:
    """What is missing from figures; parts repeat what is said of the whole."""
    for row in table.rows:
        for reading in row.readings:
            read = reading.items - reading.unread
            if reading.unread:
                yield (
                    f"{reading.title}: {row.method} has no answer to {_share(reading.unread, reading.items)} items, "
                    f"which are in no figure: {_reasons(reading)}."
                )
            if reading.compared != read:
                yield (
                    f"{reading.title}: ranks and differences of {row.method} rest on {count(reading.compared)} of the "
                    f"{count(read)} items that it answered, those that every method answered."
                )
    for place, column in enumerate(table.columns):
        if not column.part:
            cells = [(row.method, cell) for row in table.rows if (cell := row.cells[place]) is not None]
            yield from _cell_exceptions(column_title(column), cells, table.seeds)


def _reasons(reading: SuiteReading) -> str:
    """The most frequent reasons for which items were not read."""
    reasons = [f"{reason.rstrip('.')} ({count(number)})" for reason, number in reading.reasons[:MOST_REASONS]]
    more = len(reading.reasons) - MOST_REASONS
    rest = f"; and {more} more reasons" if more > 1 else "; and another reason" if more == 1 else ""
    return f"{'; '.join(reasons)}{rest}"


def _cell_exceptions(title: str, cells: Sequence[tuple[str, Cell]], seeds: Sequence[int]) -> Iterator[str]:
    """How many answers could not be scored in a column, and methods of which some seeds have no value yet."""
    told = [f"{_share(cell.unscored, cell.n + cell.unscored)} of {method}" for method, cell in cells if cell.unscored]
    if told:
        yield f"{title}: {listed(told)} could not be scored; they are in no figure."
    for method, cell in cells:
        valued = [seed.seed for seed in cell.seeds if seed.value is not None]
        if cell.value is not None and len(valued) < len(seeds):
            which = "seed" if len(valued) == 1 else "seeds"
            yield f"{title}: {method} has a figure only of the {which} {listed(valued)}."


def silent_sentences(calibrations: Sequence[CalibrationNote]) -> list[str]:
    """Which calibrations say nothing and why, methods that are silent on the same suite and seeds together."""
    seeds: dict[tuple[str, str, str], list[int]] = {}
    for note in calibrations:
        if note.silent:
            seeds.setdefault((note.suite, note.silent, note.method), []).append(note.seed)
    methods: dict[tuple[str, str, tuple[int, ...]], list[str]] = {}
    for (suite, reason, method), own in seeds.items():
        methods.setdefault((suite, reason, tuple(own)), []).append(method)
    return [
        f"{listed(labels)} on {suite}, {'seed' if len(own) == 1 else 'seeds'} {listed(own)}: {reason}"
        for (suite, reason, own), labels in methods.items()
    ]


def method_sentence(method: EvaluationMethod) -> str:
    """What a method is, with the settings that belong to it."""
    settings, info = method.settings, info_of(method.settings.policy)
    told = [info.name]
    if info.fuses:
        told.append(f"λ {settings.lam:g}")
    if info.certifies:
        told.append(f"α {level(settings.alpha)}, calibrated" if method.calibrated else "certifying nothing")
    if settings.mask_layout != info.layouts[0]:
        told.append(f"{settings.mask_layout} masks")
    if settings.sentinel:
        told.append(f"sentinel {settings.sentinel}")
    if parameters := parameters_line(settings):
        told.append(parameters)
    if method.dropped:
        told.append(f"{percent(method.dropped)} of the detected spans left out")
    return ", ".join([*told, *_sampling(settings)]) + "."


def _sampling(settings: AuditSettings) -> list[str]:
    """The controls that texts are drawn with."""
    if settings.greedy:
        return ["greedy"]
    cuts = [f"top-p {settings.top_p:g}"] if settings.top_p < 1 else []
    return [f"temperature {settings.temperature:g}", *cuts, *([f"top-k {settings.top_k}"] if settings.top_k else [])]
