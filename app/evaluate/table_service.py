"""Tables of stored evaluations, and their exports: neither model nor data is needed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock

from app.evaluate.exports import table_csv, table_html, table_latex
from app.evaluate.harness import read_results, results_json, suite_samples
from app.evaluate.layout import Elsewhere
from app.evaluate.measured import Extent, Measured, measured
from app.evaluate.runs import EvaluationMethod, EvaluationView, SuiteOutcomes
from app.evaluate.service import EvaluationService
from app.evaluate.tables import Table, check_reference, table_of
from app.shared.errors import ServiceError
from app.shared.files import decode, read_bytes, write_text
from app.shared.project_cache import ProjectCache
from app.shared.wiring import Services
from coft_core.suites.base import Item, Outcome, Outside, Suite
from coft_core.suites.files import DataError

SuiteFigures = Mapping[str, Measured]
"""What was measured on a suite, by method."""

SUFFIXES = {"csv": "csv", "latex": "tex", "html": "html", "json": "json"}
"""Formats of exports, with how their files end."""

TABLES_KEPT = 16

FIGURES_KEPT = 1 << 28
"""Bytes of drawn figures that are kept, so that a table is not drawn anew for another reference method."""


@dataclass(frozen=True, slots=True)
class TableRequest:
    """Which table of an evaluation is asked for."""

    evaluation_id: int
    suite: str = ""
    reference: str | None = None
    outside: Outside = "floor"


@dataclass(frozen=True, slots=True)
class EvaluationTable:
    """A table with what has to stand beside it."""

    view: EvaluationView
    table: Table
    elsewhere: tuple[Elsewhere, ...] = ()


def usual_reference(methods: Sequence[EvaluationMethod]) -> str | None:
    """The model alone, if it takes part."""
    return next((method.label for method in methods if method.settings.policy == "vanilla"), None)


@dataclass(frozen=True, slots=True)
class _Run:
    """An evaluation in a table: its methods by the labels that they have there."""

    view: EvaluationView
    methods: tuple[EvaluationMethod, ...]

    @classmethod
    def of(cls, view: EvaluationView, named: str = "") -> _Run:
        """An evaluation; a name tells its methods apart from those of another one."""
        told = f" ({named})" if named else ""
        return cls(view, tuple(replace(own, label=f"{own.label}{told}") for own in view.request.methods))

    @property
    def state(self) -> tuple[int, int]:
        """What changes when something is added."""
        return self.view.id, self.view.done

    def outcomes(self, evaluations: EvaluationService, suite: str) -> dict[str, tuple[Outcome, ...]]:
        """Outcomes of a suite by the labels of the table."""
        found = evaluations.suite_outcomes(self.view.id, suite)
        labels = zip(self.methods, self.view.request.methods, strict=True)
        return {own.label: found[stored.label] for own, stored in labels if stored.label in found}


class TableService:
    """Makes tables of what evaluations have kept; what nothing was added to since is not made again."""

    def __init__(self, evaluations: EvaluationService, largest_upload: int) -> None:
        """Nothing is read yet."""
        self._evaluations = evaluations
        self._largest_upload = largest_upload
        self._tables: ProjectCache[tuple[object, ...], Table] = ProjectCache(TABLES_KEPT)
        self._figures: ProjectCache[tuple[object, ...], SuiteFigures] = ProjectCache(FIGURES_KEPT, _size)
        self._measuring = Lock()
        self._lock = Lock()

    @classmethod
    def wired(cls, services: Services) -> TableService:
        """Built from the program's services."""
        return cls(services[EvaluationService], services.largest_upload)

    def table(self, request: TableRequest, elsewhere: Sequence[Elsewhere] = ()) -> EvaluationTable:
        """A table of an evaluation, of what is done so far."""
        view = self._evaluations.view(request.evaluation_id)
        return EvaluationTable(view, self._table_of(view, request), tuple(elsewhere))

    def beside(self, first: int, second: int, suite: str = "", outside: Outside = "floor") -> Table:
        """The methods of two evaluations in one table, which compares the items that all of them read."""
        runs = self._both(first, second)
        return self._table(runs, suite, None, outside)

    def measuring(self, request: TableRequest, beside: int = 0) -> Iterator[tuple[int, int]]:
        """Work out what a table needs, suite by suite; the table is then made at once."""
        if beside:
            runs = self._both(request.evaluation_id, beside)
        else:
            runs = (_Run.of(self._evaluations.view(request.evaluation_id)),)
            _reference(runs, request.reference)
        suites = self._suites(runs, request.suite)
        extent: Extent = "table" if request.suite else "main"
        if all(self._key(runs, suite, request.outside, extent) in self._figures for suite in suites):
            return
        for place, suite in enumerate(suites):
            yield place, len(suites)
            self._measured(runs, suite, request.outside, extent)

    def read_elsewhere(self, path: Path) -> Elsewhere:
        """Figures of another run from its results file."""
        return read_results(decode(read_bytes(path, path.name, self._largest_upload), path.name), path.name)

    def content(
        self, request: TableRequest, form: str, elsewhere: Sequence[Elsewhere] = (), samples: bool = False
    ) -> str:
        """An export as text."""
        if form not in SUFFIXES:
            raise ServiceError(f"There is no format {form!r}; choose one of {', '.join(SUFFIXES)}.")
        if form != "json" and samples:
            raise ServiceError(f"The format {form} holds no items; leave the samples out, or choose json.")
        if form == "json" and elsewhere:
            raise ServiceError("The format json holds figures of the evaluation alone; leave those from elsewhere out.")
        if form == "json":
            return self._results(request, samples)
        shown = self.table(request, elsewhere)
        if form == "csv":
            return table_csv(shown.table, shown.elsewhere)
        write = table_latex if form == "latex" else table_html
        return write(shown.view, shown.table, shown.elsewhere)

    def write(
        self,
        request: TableRequest,
        form: str,
        folder: Path,
        elsewhere: Sequence[Elsewhere] = (),
        samples: bool = False,
    ) -> Path:
        """Write an export into a folder, atomically, and return the path; errors as of :meth:`content`."""
        content = self.content(request, form, elsewhere, samples)
        suite = f"-{request.suite}" if request.suite else ""
        return write_text(folder / f"evaluation-{request.evaluation_id}{suite}.{SUFFIXES[form]}", content)

    def _table_of(self, view: EvaluationView, request: TableRequest) -> Table:
        runs = (_Run.of(view),)
        return self._table(runs, request.suite, _reference(runs, request.reference), request.outside)

    def _both(self, first: int, second: int) -> tuple[_Run, ...]:
        views = [self._evaluations.view(number) for number in (first, second)]
        names = [f"{view.request.model}, {view.name}" for view in views]
        if names[0] == names[1]:
            names = [f"{name}, evaluation {view.id}" for name, view in zip(names, views, strict=True)]
        return tuple(_Run.of(view, name) for view, name in zip(views, names, strict=True))

    def _table(self, runs: Sequence[_Run], suite: str, reference: str | None, outside: Outside) -> Table:
        key = (*(run.state for run in runs), suite, reference, outside)
        with self._lock:
            if key in self._tables:
                return self._tables[key]
        table = self._made(runs, suite, reference, outside)
        with self._lock:
            self._tables[key] = table
        return table

    def _made(self, runs: Sequence[_Run], suite: str, reference: str | None, outside: Outside) -> Table:
        methods = [method for run in runs for method in run.methods]
        suites = self._suites(runs, suite)
        found = {own.key: self._measured(runs, own, outside, "table" if suite else "main") for own in suites}
        return table_of(suites, methods, found, outside, reference, suite)

    def _suites(self, runs: Sequence[_Run], suite: str) -> list[Suite]:
        """The suite of a table, or all that its evaluations have in common."""
        first, *others = (run.view for run in runs)
        common = [key for key in first.request.suites if all(key in other.request.suites for other in others)]
        return [self._suite(first, key) for key in ([suite] if suite else common)]

    def _key(self, runs: Sequence[_Run], suite: Suite, outside: Outside, extent: Extent) -> tuple[object, ...]:
        return (*(run.state for run in runs), suite.key, outside, extent)

    def _measured(self, runs: Sequence[_Run], suite: Suite, outside: Outside, extent: Extent) -> SuiteFigures:
        """Figures of a suite by method, which keep no outcome in memory."""
        key = self._key(runs, suite, outside, extent)
        # Two that work out the same at once would only wait for each other.
        with self._measuring:
            if key in self._figures:
                return self._figures[key]
            methods = [method for run in runs for method in run.methods]
            given = {label: own for run in runs for label, own in run.outcomes(self._evaluations, suite.key).items()}
            made = measured(suite, methods, given, outside, extent)
            found = {label: replace(own, outcomes=()) for label, own in made.items()}
            if _size(found) <= FIGURES_KEPT:
                self._figures[key] = found
            return found

    def _suite(self, view: EvaluationView, key: str) -> Suite:
        if key not in view.request.suites:
            raise ServiceError(f"This evaluation has no suite {key!r}; it has {', '.join(view.request.suites)}.")
        found = next((suite for suite in self._evaluations.known_suites() if suite.key == key), None)
        if found is None:
            raise ServiceError(f"The suite {key!r} of this evaluation is not known any more; make it known again.")
        return found

    def _outcomes(self, view: EvaluationView, suite: str) -> list[SuiteOutcomes]:
        labels = [method.label for method in view.request.methods]
        return [SuiteOutcomes(suite, label, self._evaluations.outcomes(view.id, suite, label)) for label in labels]

    def _results(self, request: TableRequest, samples: bool) -> str:
        view = self._evaluations.view(request.evaluation_id)
        keys = [request.suite] if request.suite else list(view.request.suites)
        tables = [self._table_of(view, TableRequest(view.id, key, request.reference, request.outside)) for key in keys]
        if not samples:
            return results_json(view, tables)
        listed, missing = {}, {}
        for key in keys:
            items, missing[key] = self._items(view, key)
            given = self._outcomes(view, key)
            listed[key] = suite_samples(self._suite(view, key), given, items, request.outside)
        return results_json(view, tables, listed, {key: why for key, why in missing.items() if why})

    def _items(self, view: EvaluationView, suite: str) -> tuple[dict[str, Item], str]:
        """The items by id; none, and why, where the data is not there any more."""
        try:
            return {item.id: item for item in self._evaluations.items(view.id, suite)}, ""
        except (DataError, ServiceError) as error:
            return {}, f"What was asked is not told: {error}"


def _reference(runs: Sequence[_Run], asked: str | None) -> str | None:
    """The method that others are compared with; see :class:`TableRequest`."""
    methods = [method for run in runs for method in run.methods]
    reference = usual_reference(methods) if asked is None else asked or None
    check_reference(reference, methods)
    return reference


def _size(measured: SuiteFigures) -> int:
    """Bytes of the draws of figures; those that stand for two are counted once."""
    draws = {
        id(figure.draws): figure.draws.nbytes
        for own in measured.values()
        for figures in (own.own, own.shared, *own.own_by_seed.values(), *own.shared_by_seed.values())
        for figure in figures.values()
        if figure.draws is not None
    }
    return max(sum(draws.values()), 1)
