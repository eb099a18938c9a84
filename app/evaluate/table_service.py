"""Tables of stored evaluations, and their exports: neither model nor data is needed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from app.evaluate.exports import table_csv, table_html, table_latex
from app.evaluate.harness import read_results, results_json, suite_samples
from app.evaluate.layout import Elsewhere
from app.evaluate.runs import EvaluationMethod, EvaluationView
from app.evaluate.service import EvaluationService
from app.evaluate.tables import Extent, Measured, Table, measured, table_of
from app.shared.errors import ServiceError
from app.shared.files import decode, read_bytes, write_text
from app.shared.project_cache import ProjectCache
from app.shared.wiring import Services
from coft_core.suites.base import Item, Outside, Suite
from coft_core.suites.files import DataError

SuiteFigures = Mapping[str, Measured]
"""What was measured on a suite, by method."""

SUFFIXES = {"csv": "csv", "latex": "tex", "html": "html", "json": "json"}
"""Formats of exports, with how their files end."""

TABLES_KEPT = 16


def suffix_of(form: str) -> str:
    """How the files of a format end."""
    if form not in SUFFIXES:
        raise ServiceError(f"There is no format {form!r}; choose one of {', '.join(SUFFIXES)}.")
    return SUFFIXES[form]


FIGURES_KEPT = 1 << 28
"""Bytes of drawn figures that are kept, so that a table is not drawn again for another reference method."""


@dataclass(frozen=True, slots=True)
class TableRequest:
    """Which table of an evaluation is asked for.

    ``reference`` is the label of the method that others are compared with; None takes the model alone, and an empty one
    compares none. ``samples`` adds every item to a results file.
    """

    evaluation_id: int
    suite: str = ""
    reference: str | None = None
    outside: Outside = "floor"
    elsewhere: tuple[Elsewhere, ...] = ()
    samples: bool = False


@dataclass(frozen=True, slots=True)
class EvaluationTable:
    """A table with the figures from elsewhere that appear in it."""

    view: EvaluationView
    table: Table
    elsewhere: tuple[Elsewhere, ...] = ()


def usual_reference(methods: Sequence[EvaluationMethod]) -> str | None:
    """The model alone, if it takes part."""
    return next((method.label for method in methods if method.settings.policy == "vanilla"), None)


_Runs = Sequence[tuple[EvaluationView, tuple[EvaluationMethod, ...]]]
"""The evaluations of a table, each with its methods by the labels that they have there."""


def _methods(runs: _Runs) -> list[EvaluationMethod]:
    return [method for _, methods in runs for method in methods]


def _reference(runs: _Runs, asked: str | None) -> str | None:
    """The method that others are compared with; see :class:`TableRequest`."""
    methods = _methods(runs)
    labels = [method.label for method in methods]
    reference = usual_reference(methods) if asked is None else asked or None
    if reference is not None and reference not in labels:
        raise ServiceError(f"There is no method {reference!r} to compare with; choose one of {', '.join(labels)}.")
    return reference


def _key(runs: _Runs, *asked: object) -> tuple[object, ...]:
    """What is asked of evaluations as they are: something else once anything is added to them."""
    return (*((view.id, view.done) for view, _ in runs), *asked)


class TableService:
    """Makes tables of what evaluations have kept; what nothing was added to since is not made again."""

    def __init__(self, evaluations: EvaluationService, largest_upload: int) -> None:
        """Nothing is read yet."""
        self._evaluations = evaluations
        self._largest_upload = largest_upload
        self._tables: ProjectCache[tuple[object, ...], Table] = ProjectCache(TABLES_KEPT)
        self._figures: ProjectCache[tuple[object, ...], SuiteFigures] = ProjectCache(FIGURES_KEPT, _size)

    @classmethod
    def wired(cls, services: Services) -> TableService:
        """Built from the program's services."""
        return cls(services[EvaluationService], services.largest_upload)

    def table(self, request: TableRequest) -> EvaluationTable:
        """A table of an evaluation, of what is done so far."""
        runs = self._runs(request.evaluation_id)
        table = self._table(runs, request.suite, _reference(runs, request.reference), request.outside)
        return EvaluationTable(runs[0][0], table, request.elsewhere)

    def beside(self, first: int, second: int, suite: str = "", outside: Outside = "floor") -> Table:
        """The methods of two evaluations in one table, which compares the items that all of them read."""
        return self._table(self._runs(first, second), suite, None, outside)

    def measuring(self, request: TableRequest, beside: int = 0) -> Iterator[tuple[int, int]]:
        """Work out what a table needs, suite by suite; the table is then made at once."""
        runs = self._runs(request.evaluation_id, beside)
        if not beside:
            _reference(runs, request.reference)
        suites = self._suites(runs, request.suite)
        extent: Extent = "table" if request.suite else "main"
        if all(_key(runs, suite.key, request.outside, extent) in self._figures for suite in suites):
            return
        for place, suite in enumerate(suites):
            yield place, len(suites)
            self._measured(runs, suite, request.outside, extent)

    def read_elsewhere(self, path: Path) -> Elsewhere:
        """Figures of another run from its results file."""
        return read_results(decode(read_bytes(path, path.name, self._largest_upload), path.name), path.name)

    def content(self, request: TableRequest, form: str) -> str:
        """An export as text."""
        suffix_of(form)
        if form != "json" and request.samples:
            raise ServiceError(f"The format {form} holds no items; leave the samples out, or choose json.")
        if form == "json" and request.elsewhere:
            raise ServiceError("The format json holds only figures of the evaluation; leave those from elsewhere out.")
        if form == "json":
            return self._results(request)
        shown = self.table(request)
        if form == "csv":
            return table_csv(shown.table, shown.elsewhere)
        write = table_latex if form == "latex" else table_html
        return write(shown.view, shown.table, shown.elsewhere)

    def write(self, request: TableRequest, form: str, folder: Path) -> Path:
        """Write an export into a folder, atomically, and return the path; errors as of :meth:`content`."""
        suite = f"-{request.suite}" if request.suite else ""
        name = f"evaluation-{request.evaluation_id}{suite}.{suffix_of(form)}"
        return write_text(folder / name, self.content(request, form))

    def _runs(self, *numbers: int) -> _Runs:
        """Evaluations with their methods, whose labels name the evaluation where there are two; 0 is none."""
        views = [self._evaluations.view(number) for number in numbers if number]
        if len(views) == 1:
            return [(view, view.request.methods) for view in views]
        names = [f"{view.request.model}, {view.name}" for view in views]
        if names[0] == names[1]:
            names = [f"{name}, evaluation {view.id}" for name, view in zip(names, views, strict=True)]
        return [
            (view, tuple(replace(own, label=f"{own.label} ({name})") for own in view.request.methods))
            for view, name in zip(views, names, strict=True)
        ]

    def _table(self, runs: _Runs, suite: str, reference: str | None, outside: Outside) -> Table:
        def made() -> Table:
            suites = self._suites(runs, suite)
            found = {own.key: self._measured(runs, own, outside, "table" if suite else "main") for own in suites}
            return table_of(suites, _methods(runs), found, outside, reference, suite)

        return self._tables.once(_key(runs, suite, reference, outside), made)

    def _suites(self, runs: _Runs, suite: str) -> list[Suite]:
        """The suite of a table, or all that its evaluations have in common."""
        (first, _), *others = runs
        common = [key for key in first.request.suites if all(key in other.request.suites for other, _ in others)]
        return [self._suite(first, key) for key in ([suite] if suite else common)]

    def _measured(self, runs: _Runs, suite: Suite, outside: Outside, extent: Extent) -> SuiteFigures:
        """Figures of a suite by method, which keep no outcome in memory."""

        def made() -> SuiteFigures:
            given = {}
            for view, methods in runs:
                kept = self._evaluations.suite_outcomes(view.id, suite.key)
                labels = zip(methods, view.request.methods, strict=True)
                given |= {own.label: kept[stored.label] for own, stored in labels if stored.label in kept}
            return measured(suite, _methods(runs), given, outside, extent)

        return self._figures.once(_key(runs, suite.key, outside, extent), made)

    def _suite(self, view: EvaluationView, key: str) -> Suite:
        if key not in view.request.suites:
            raise ServiceError(f"This evaluation has no suite {key!r}; it has {', '.join(view.request.suites)}.")
        found = next((suite for suite in self._evaluations.known_suites() if suite.key == key), None)
        if found is None:
            raise ServiceError(f"The suite {key!r} of this evaluation is not known any more; make it known again.")
        return found

    def _results(self, request: TableRequest) -> str:
        view = self._evaluations.view(request.evaluation_id)
        keys = [request.suite] if request.suite else view.request.suites
        tables = [self.table(replace(request, suite=key)).table for key in keys]
        if not request.samples:
            return results_json(view, tables)
        listed, missing = {}, {}
        for key in keys:
            items, why = items_of(self._evaluations, view, key)
            given = {own.label: self._evaluations.outcomes(view.id, key, own.label) for own in view.request.methods}
            listed[key] = suite_samples(self._suite(view, key), given, items, request.outside)
            missing |= {key: f"What was asked is not told: {why}"} if why else {}
        return results_json(view, tables, listed, missing)


def items_of(evaluations: EvaluationService, view: EvaluationView, suite: str) -> tuple[dict[str, Item], str]:
    """The items of a suite by id; none, and why, where the data is not there any more."""
    try:
        return {item.id: item for item in evaluations.items(view.id, suite)}, ""
    except (DataError, ServiceError) as error:
        return {}, str(error)


def _size(measured: SuiteFigures) -> int:
    """Bytes of the draws of figures; draws that two figures share are counted once."""
    draws = {
        id(figure.draws): figure.draws.nbytes
        for own in measured.values()
        for figures in (own.own, own.shared, *own.own_by_seed.values(), *own.shared_by_seed.values())
        for figure in figures.values()
        if figure.draws is not None
    }
    return max(sum(draws.values()), 1)
