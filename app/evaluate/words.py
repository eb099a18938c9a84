"""What is said of evaluations, the same on the page, in exports and on a terminal."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from app.evaluate.measured import SuiteReading
from app.evaluate.runs import CalibrationNote, EvaluationMethod, SuitePlan
from app.evaluate.tables import AverageRank, Cell, Column, Contrast, Row, Table
from app.shared.audits import AuditSettings
from app.shared.format import MINUS, count, level, signed
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
    "The best is bold, on a terminal with a star, and so is whatever cannot be told from it: the 95 % interval of the "
    "difference holds 0."
)
RANKS = "Rank 1 is the best; methods whose difference may be noise share the mean of their ranks."
ELSEWHERE = (
    "Figures from elsewhere stand beside those of this evaluation as they were published: they have no ranks here, and "
    "nothing is computed with them."
)
UNMASKED = (
    "Nothing masked: items in whose prompts no token was masked. There, methods that mask read the same prompt twice, "
    "and differ from the model alone by nothing but their thresholds."
)
CERTIFIED = (
    "Refused: tokens of the given texts outside a certified set. Empty: steps at which no token was certified, so that "
    "any may be written."
)


def digits_for(values: Iterable[float | None]) -> int:
    """Decimals for figures that stand together: one from 10 on, two from 1 on, else three."""
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


def listed(names: Sequence[object]) -> str:
    """Names in a sentence."""
    texts = [str(name) for name in names]
    return " and ".join([", ".join(texts[:-1]), texts[-1]]) if len(texts) > 1 else "".join(texts)


def column_title(column: Column) -> str:
    """What a column is called where those of other suites stand beside it."""
    return column.suite_title if column.main else figure_title(column)


def figure_title(column: Column) -> str:
    """What a figure is called where all others are of the same suite."""
    return f"{column.title}: {column.part}" if column.part else column.title


def figure_sentence(column: Column) -> str:
    """What a figure is of, and which values are good."""
    part = f", {column.part}" if column.part else ""
    return f"{column.suite_title}: {column.title}{part}, over {column.what}. {BETTER[column.better]}"


def cell_sentence(cell: Cell, column: Column, digits: int) -> str:
    """All that stands behind a figure, for a tooltip."""
    if cell.value is None:
        return f"Nothing could be scored: {unscored_words(cell)}."
    said = [f"{number(cell.value, digits)}{_spread(cell, digits)}"]
    if found := interval(cell.low, cell.high, digits):
        said.append(f"95 % interval {found}")
    said.append(f"over {count(cell.n)} {column.what}")
    if cell.unscored:
        said.append(unscored_words(cell))
    if cell.rank is not None:
        said.append(f"rank {cell.rank:g}{', tied with the best' if cell.best and cell.rank > 1 else ''}")
    if cell.contrast is not None:
        said.append(contrast_words(cell.contrast, digits))
    return "; ".join(said) + "."


def _spread(cell: Cell, digits: int) -> str:
    if cell.deviation is None:
        return ""
    return f" ± {number(cell.deviation, digits)} over {len(cell.seeds)} seeds"


def contrast_words(contrast: Contrast, digits: int) -> str:
    """The difference to the reference method, with its interval."""
    said = f"difference {signed(contrast.value, digits)} {interval(contrast.low, contrast.high, digits)}"
    return f"{said}, which may be noise" if contrast.noise else said


def unscored_words(cell: Cell) -> str:
    """How much could not be scored."""
    return f"{count(cell.unscored)} of {count(cell.n + cell.unscored)} could not be scored"


def cells_sentence(table: Table, intervals: bool = True) -> str:
    """What the numbers of a cell are."""
    seeds = table.seeds
    if not seeds:
        return "Nothing has been read yet."
    drawn = (
        "exact for shares of independent items, else drawn over units: items of one template, pair or question stand "
        "and fall together"
    )
    if len(seeds) == 1:
        return f"Each figure is of seed {seeds[0]} alone; in brackets its 95 % interval, {drawn}."
    mean = f"Each figure is the mean over the seeds {listed(seeds)}, ± the standard deviation over them"
    if not intervals:
        return f"{mean}."
    return (
        f"{mean}; in brackets the 95 % interval of the answers of all seeds together, {drawn}. A figure that is no "
        "mean over items need not lie in the middle of it."
    )


def deterministic_sentence(table: Table) -> str:
    """Which suites' seeds draw nothing; empty where there is none, or one seed."""
    writing = {reading.suite for row in table.rows for reading in row.readings if reading.writes}
    titles = {
        reading.suite: reading.title for row in table.rows for reading in row.readings if reading.suite not in writing
    }
    if len(table.seeds) < 2 or not titles:
        return ""
    return (
        f"No text is drawn in {listed(list(titles.values()))}: seeds differ there in no more than the items that are "
        "kept apart for calibration, and where none are, the standard deviation over seeds is 0. It says nothing about "
        "how sure a figure is; the interval does."
    )


def contrast_sentence(table: Table) -> str:
    """What differences are to; empty without a reference."""
    if table.reference is None:
        return ""
    return (
        f"Δ: how much larger a figure is than that of {table.reference}, over the same items of all seeds together, "
        "with its 95 % interval."
    )


def average_title(average: AverageRank) -> str:
    """Title of a column of average ranks."""
    return f"Average rank, {average.kind}"


def average_sentence(average: AverageRank) -> str:
    """What an average rank is over."""
    figures = "figure" if average.columns == 1 else "figures"
    return f"{average_title(average)}: over {average.columns} {figures} in which every method has a rank."


def average_sentences(table: Table) -> list[str]:
    """What the average ranks of a table are over."""
    return list(dict.fromkeys(average_sentence(average) for row in table.rows for average in row.averages))


def absent_sentence(table: Table) -> str:
    """Which suites have no figure; empty where all have."""
    if not table.absent:
        return ""
    return (
        f"There is no figure of {listed(table.absent)} yet: no item has been read, or a judge that it needs is missing."
    )


def unread_sentence(method: str, reading: SuiteReading) -> str:
    """How many items could not be read, and why; empty where all could."""
    if not reading.unread:
        return ""
    reasons = [f"{reason.rstrip('.')} ({count(number)})" for reason, number in reading.reasons[:MOST_REASONS]]
    more = len(reading.reasons) - MOST_REASONS
    rest = f"; and {more} more reasons" if more > 1 else "; and another reason" if more == 1 else ""
    return (
        f"{reading.title}: {method} has no answer to {count(reading.unread)} of {count(reading.items)} items, which "
        f"are in no figure: {'; '.join(reasons)}{rest}."
    )


def compared_sentence(row: Row, reading: SuiteReading) -> str:
    """On how many items methods are compared; empty where on all that this one read."""
    read = reading.items - reading.unread
    if reading.compared == read:
        return ""
    return (
        f"{reading.title}: ranks and differences of {row.method} rest on {count(reading.compared)} of the "
        f"{count(read)} items that it answered, those that every method answered."
    )


def unscored_sentence(table: Table, place: int) -> str:
    """How many answers could not be scored in a column, by method; empty where all could."""
    cells = [(row.method, row.cells[place]) for row in table.rows]
    told = [
        f"{count(cell.unscored)} of {count(cell.n + cell.unscored)} of {method}"
        for method, cell in cells
        if cell is not None and cell.unscored
    ]
    title = column_title(table.columns[place])
    return f"{title}: {listed(told)} could not be scored; they are in no figure." if told else ""


def seeds_sentence(method: str, cell: Cell, column: Column, seeds: Sequence[int]) -> str:
    """That some seeds have no value yet; empty where all have."""
    valued = [seed.seed for seed in cell.seeds if seed.value is not None]
    if cell.value is None or len(valued) == len(seeds):
        return ""
    which = "seed" if len(valued) == 1 else "seeds"
    return f"{column_title(column)}: {method} has a figure of the {which} {listed(valued)} alone."


def release_sentence(plan: SuitePlan) -> str:
    """Which state of a suite's data was read."""
    return f"{plan.title}: {plan.release}."


def notes(
    table: Table, plans: Sequence[SuitePlan] = (), elsewhere: bool = False, short: bool = False
) -> tuple[str, ...]:
    """Every sentence that has to stand with a table."""
    ranked = any(cell is not None and cell.rank is not None for row in table.rows for cell in row.cells)
    certifying = any(row.certifies for row in table.rows)
    averages = average_sentences(table)
    told = [
        cells_sentence(table, not short),
        TIES if ranked else "",
        RANKS if ranked and (averages or not short) else "",
        *averages,
        "" if short else contrast_sentence(table),
        *([OUTSIDE[table.outside]] if certifying else []),
        deterministic_sentence(table),
        ELSEWHERE if elsewhere else "",
        absent_sentence(table),
        *_exceptions(table),
        *(release_sentence(plan) for plan in plans if plan.suite in {column.suite for column in table.columns}),
    ]
    return tuple(sentence for sentence in told if sentence)


def reading_notes(table: Table) -> tuple[str, ...]:
    """What the columns of a table's readings mean."""
    return (UNMASKED, CERTIFIED) if any(row.certifies for row in table.rows) else (UNMASKED,)


def _exceptions(table: Table) -> list[str]:
    """What is missing from figures; parts repeat what is said of the whole."""
    told = []
    for row in table.rows:
        for reading in row.readings:
            told += [unread_sentence(row.method, reading), compared_sentence(row, reading)]
    for place, column in enumerate(table.columns):
        if not column.part:
            told.append(unscored_sentence(table, place))
            told += [
                seeds_sentence(row.method, cell, column, table.seeds)
                for row in table.rows
                if (cell := row.cells[place]) is not None
            ]
    return told


def silent_sentences(calibrations: Sequence[CalibrationNote]) -> list[str]:
    """Which calibrations say nothing and why; methods that are silent on the same suite and seeds stand together."""
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
