"""An experiment's table as it is laid out: the paper's rows below ours, and the sentences that stand with it."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from app.evaluate import words
from app.evaluate.experiment_figures import Figures, Kept, Value
from app.evaluate.experiment_pictures import Picture
from app.evaluate.experiments import Experiment, PaperEntry, SweepEntry, TableEntry, number_of
from app.evaluate.layout import Head, Layout, Shown
from app.shared.format import count


@dataclass(frozen=True, slots=True)
class ExperimentLayout(Layout):
    """A table of texts with the numbers that they are of."""

    numbers: tuple[tuple[Value | None, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class ExperimentTable:
    """A table of an experiment."""

    title: str
    layout: ExperimentLayout
    notes: tuple[str, ...] = ()
    picture: Picture | None = None


@dataclass(frozen=True, slots=True)
class Line:
    """A row of a table before it is laid out."""

    head: str
    values: tuple[Value | None, ...]
    paper: str = ""


def chosen_paper(entries: Sequence[PaperEntry], model: str) -> tuple[PaperEntry, ...]:
    """What the paper says of the model that was evaluated; of the one that it names first where it says nothing."""
    own = [entry for entry in entries if _plain(entry.model) in _plain(model)]
    return tuple(own[-1:] or entries[:1])


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def laid_out(
    table: TableEntry,
    model: str,
    corner: str,
    heads: Sequence[Head],
    lines: Sequence[Line],
) -> ExperimentLayout:
    """Lines with the paper's below them."""
    papers = chosen_paper(table.paper, model)
    published = [
        (entry, name, tuple(None if own is None else number_of(own) for own in figures))
        for entry in papers
        for name, figures in entry.rows.items()
    ]
    digits = [
        words.digits_for(
            [
                *(value.value for line in lines if (value := line.values[place]) is not None),
                *(own[0] for _, _, row in published if place < len(row) and (own := row[place]) is not None),
            ]
        )
        for place in range(len(heads))
    ]
    shown: list[tuple[Head, tuple[Shown | None, ...]]] = []
    numbers: list[tuple[Value | None, ...]] = []
    told: set[tuple[str, str]] = set()

    def add(entry: PaperEntry, name: str, row: Sequence[tuple[float, float | None] | None]) -> None:
        told.add((entry.model, name))
        nothing = (None,) * (len(heads) - len(row))
        values = (*(None if own is None else Value(*own) for own in row), *nothing)
        shown.append((Head(name, source=f"paper, {entry.model}"), tuple(map(_published, values, digits))))
        numbers.append(values)

    for line in lines:
        shown.append((Head(line.head), tuple(map(_shown, line.values, digits))))
        numbers.append(line.values)
        for entry, name, row in published:
            if line.paper and name == line.paper:
                add(entry, name, row)
    for entry, name, row in published:
        if (entry.model, name) not in told:
            add(entry, name, row)
    return ExperimentLayout(corner, tuple(heads), tuple(shown), tuple(numbers))


def _shown(value: Value | None, digits: int) -> Shown | None:
    if value is None:
        return None
    if value.value is None:
        return Shown("unscored", said=_counted(value))
    return Shown(
        words.number(value.value, digits),
        words.number(value.deviation, digits),
        words.interval(value.low, value.high, digits),
        value=value.value,
        said=_counted(value),
    )


def _counted(value: Value) -> str:
    """What a number rests on, for a tooltip."""
    said = f"over {count(value.n)} {value.what}" if value.what else ""
    missing = f"{count(value.unscored)} could not be scored" if value.unscored else ""
    sentence = "; ".join(part for part in (said, missing) if part)
    return f"{sentence[:1].upper()}{sentence[1:]}." if sentence else ""


def _published(value: Value | None, digits: int) -> Shown | None:
    if value is None:
        return None
    return Shown(words.number(value.value, digits), words.number(value.deviation, digits), value=value.value)


# Sentences below a table.


def average_notes(figures: Figures, kinds: Iterable[str]) -> list[str]:
    """Which suites averages are of."""
    notes = []
    averages = figures.kept.experiment.averages
    for kind in dict.fromkeys(kinds):
        whole, present = getattr(averages, kind), figures.parts(kind)
        name = {"bias": "BiasAvg", "utility": "UtilityAvg"}[kind]
        titles = words.listed([figures.kept.suites[part.suite].title for part in present])
        if len(present) < len(whole):
            notes.append(
                f"{name} is of {len(present)} of the {len(whole)} suites ({titles or 'none'}) and does not compare "
                "with that of all."
            )
        else:
            notes.append(f"{name} is the mean over {titles}, each counting alike.")
    return notes


def stand_in_sentence(title: str, key: str) -> str:
    """That a suite is read in the place of another one."""
    return f"{title} stands in for {key}, of which there is no file."


def stand_in_notes(kept: Kept) -> list[str]:
    """What stands in for something of the paper, and what takes no part."""
    notes = [stand_in_sentence(suite.title, key) for key, suite in kept.suites.items() if suite.key != key]
    return [*notes, *(entry.stands_in for entry in kept.experiment.methods if entry.stands_in), *kept.left_out]


def missing_notes(heads: Sequence[Head], lines: Sequence[Line]) -> list[str]:
    """Figures that nobody has, and what could not be scored."""
    notes = []
    for place, head in enumerate(heads):
        values = [(line.head, line.values[place]) for line in lines]
        if lines and all(value is None for _, value in values):
            notes.append(
                f"{head.title}: nothing has this figure; no item was read, or a judge that it needs is missing "
                "(--judges)."
            )
        notes += [
            f"{head.title}: of {name}, {count(value.unscored)} of {count(value.n + value.unscored)} could not be "
            "scored; they are in no figure."
            for name, value in values
            if value is not None and value.unscored and value.what != "suites"
        ]
    return notes


def unread_notes(figures: Figures, suites: Iterable[str]) -> list[str]:
    """Items that could not be read, and why."""
    notes = []
    for suite in suites:
        for label in figures.kept.labels:
            found = figures.measured(suite, label)
            unread = [] if found is None else [outcome.unread for outcome in found.outcomes if outcome.unread]
            if found is not None and unread:
                notes.append(
                    f"{figures.kept.suites[suite].title}: {label} has no answer to {count(len(unread))} of "
                    f"{count(len(found.outcomes))} items, which are in no figure; the first: {unread[0]}"
                )
    return notes


def seed_notes(kept: Kept) -> list[str]:
    """What the numbers of a cell are."""
    seeds = kept.seeds
    if not seeds:
        return ["Nothing has been read yet."]
    if len(seeds) == 1:
        return [f"Each figure is of seed {seeds[0]} alone, with its 95 % interval over drawn units in brackets."]
    return [
        f"Each figure is the mean over the seeds {words.listed(seeds)} ± the standard deviation over them, with the "
        "95 % interval of all seeds' answers together in brackets, over drawn units."
    ]


def paper_notes(table: TableEntry, model: str) -> list[str]:
    """Which model the paper's rows are of, and which others it has."""
    shown = chosen_paper(table.paper, model)
    others = [entry.model for entry in table.paper if entry not in shown]
    if not shown:
        return ["The paper has no figures for this table."]
    about = f"The paper's rows are of {shown[0].model} ({shown[0].source}), as they were printed"
    return [f"{about}; it also has {words.listed(others)}." if others else f"{about}."]


def silent_notes(kept: Kept, labels: Collection[str]) -> list[str]:
    """How many calibrations of some methods say nothing, and why: there, such a method certifies nothing."""
    notes = [note for note in kept.calibrations if note.method in labels]
    silent = [note for note in notes if note.silent]
    if not silent:
        return []
    reasons = words.listed(list(dict.fromkeys(note.silent.rstrip(".") for note in silent)))
    return [
        f"{len(silent)} of {len(notes)} calibrations say nothing, so that nothing is refused there: {reasons}. Read "
        "more items, or accept more misses (alpha)."
    ]


def sweep_of(experiment: Experiment) -> SweepEntry:
    """The sweep of an experiment with a table that needs one; reading it refuses such a table without a sweep."""
    assert experiment.sweep is not None
    return experiment.sweep
