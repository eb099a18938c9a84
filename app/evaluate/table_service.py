"""Tables of stored evaluations, and their exports: neither model nor data is needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

from cachetools import LRUCache

from app.evaluate.exports import Evaluated, table_csv, table_html, table_latex
from app.evaluate.harness import read_results, results_json, suite_samples
from app.evaluate.layout import Elsewhere
from app.evaluate.runs import EvaluationMethod, EvaluationView, SuiteOutcomes
from app.evaluate.service import EvaluationService
from app.evaluate.tables import Table, main_table, suite_table
from app.shared.errors import ServiceError
from app.shared.files import decode, read_bytes, write_text
from app.shared.wiring import Services
from coft_core.suites.base import Item, Outside, Suite
from coft_core.suites.files import DataError

SUFFIXES = {"csv": "csv", "latex": "tex", "html": "html", "json": "json"}
"""Formats of exports, with how their files end."""

TABLES_KEPT = 16


@dataclass(frozen=True, slots=True)
class TableRequest:
    """Which table of an evaluation is asked for.

    Attributes:
        evaluation_id: The evaluation.
        suite: Key of the suite whose figures are shown; empty for the main figures of all.
        reference: Label of the method that others are compared with; None takes :func:`usual_reference`, and an empty
            one compares with none.
        outside: What a token that a certified set refuses counts as.
    """

    evaluation_id: int
    suite: str = ""
    reference: str | None = None
    outside: Outside = "floor"


@dataclass(frozen=True, slots=True)
class EvaluationTable:
    """A table with what has to stand beside it.

    Attributes:
        evaluation_id: The evaluation.
        evaluated: What is said above it.
        elsewhere: Figures from elsewhere.
        experiment: Whether it is of an experiment, which has tables of its own.
    """

    evaluation_id: int
    evaluated: Evaluated
    table: Table
    elsewhere: tuple[Elsewhere, ...] = ()
    experiment: bool = False


def usual_reference(methods: Sequence[EvaluationMethod]) -> str | None:
    """The model alone, if it takes part."""
    return next((method.label for method in methods if method.settings.policy == "vanilla"), None)


class TableService:
    """Makes tables of what evaluations have kept; one that nothing was added to since is not made again."""

    def __init__(self, evaluations: EvaluationService, largest_upload: int) -> None:
        """Nothing is read yet."""
        self._evaluations = evaluations
        self._largest_upload = largest_upload
        self._tables: LRUCache[tuple[TableRequest, int], Table] = LRUCache(TABLES_KEPT)
        self._lock = Lock()

    @classmethod
    def wired(cls, services: Services) -> TableService:
        """Built from the program's services."""
        return cls(services[EvaluationService], services.largest_upload)

    def table(self, request: TableRequest, elsewhere: Sequence[Elsewhere] = ()) -> EvaluationTable:
        """A table of an evaluation, of what is done so far.

        Raises:
            ServiceError: It has no such suite or method.
            NotFoundError: There is no such evaluation.
        """
        view = self._evaluations.view(request.evaluation_id)
        table, of_one = self._table(view, request), view.request.experiment is not None
        return EvaluationTable(view.id, Evaluated.of(view), table, tuple(elsewhere), of_one)

    def read_elsewhere(self, path: Path) -> Elsewhere:
        """Figures of another run from its results file.

        Raises:
            ServiceError: It is no results file, or holds no figure that is known here.
        """
        return read_results(decode(read_bytes(path, path.name, self._largest_upload), path.name), path.name)

    def content(
        self, request: TableRequest, form: str, elsewhere: Sequence[Elsewhere] = (), samples: bool = False
    ) -> str:
        """An export as text.

        Args:
            request: Which table. Results files (``json``) hold all figures of every suite, or of the one that is named.
            form: One of :data:`SUFFIXES`.
            elsewhere: Figures from elsewhere; a results file takes none.
            samples: Whether a results file holds every item too.

        Raises:
            ServiceError: There is no such format, suite or method, or one cannot hold what it is
                given.
            NotFoundError: There is no such evaluation.
        """
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
        return write(shown.table, shown.evaluated, shown.elsewhere)

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

    def _table(self, view: EvaluationView, request: TableRequest) -> Table:
        key = request, view.done
        with self._lock:
            if key in self._tables:
                return self._tables[key]
        table = self._made(view, request)
        with self._lock:
            self._tables[key] = table
        return table

    def _made(self, view: EvaluationView, request: TableRequest) -> Table:
        methods = view.request.methods
        reference = usual_reference(methods) if request.reference is None else request.reference or None
        if request.suite:
            suite = self._suite(view, request.suite)
            return suite_table(suite, methods, self._outcomes(view, request.suite), request.outside, reference)
        suites = [self._suite(view, key) for key in view.request.suites]
        given = self._evaluations.all_outcomes(view.id)
        return main_table(suites, methods, given, request.outside, reference)

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
        tables = [self._table(view, TableRequest(view.id, key, request.reference, request.outside)) for key in keys]
        if not samples:
            return results_json(Evaluated.of(view), tables)
        listed, missing = {}, {}
        for key in keys:
            items, missing[key] = self._items(view, key)
            given = self._outcomes(view, key)
            listed[key] = suite_samples(self._suite(view, key), given, items, request.outside)
        return results_json(Evaluated.of(view), tables, listed, {key: why for key, why in missing.items() if why})

    def _items(self, view: EvaluationView, suite: str) -> tuple[dict[str, Item], str]:
        """The items by id; none, and why, where the data is not there any more."""
        try:
            return {item.id: item for item in self._evaluations.items(view.id, suite)}, ""
        except (DataError, ServiceError) as error:
            return {}, f"What was asked is not told: {error}"
