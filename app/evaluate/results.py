"""Files of an evaluation for programs: its figures, every item with its answer, and where to go on."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from app.evaluate.harness import own_figure
from app.evaluate.items import spans_of, thinned
from app.evaluate.published import metric, results_of, scale
from app.evaluate.runs import EvaluationMethod, EvaluationView
from app.evaluate.service import EvaluationService
from app.evaluate.table_service import TableRequest, TableService, items_of
from app.evaluate.tables import Cell
from app.shared.errors import ServiceError
from app.shared.files import write_text
from app.shared.operations import Json
from app.shared.planning import Detectors
from app.shared.results.record import Results
from coft_core.step_numbers import finite
from coft_core.suites.base import Answer, Ask, Choices, Item, Outcome, Outside, Scored, Suite, Unread, Written
from coft_core.text.detection import SpanDetector

BEGUN, RESULTS, SAMPLES = "evaluation.json", "results.json", "samples.jsonl"


class ResultFiles:
    """Writes the files of evaluations into folders, and finds the evaluation of a folder again."""

    def __init__(self, evaluations: EvaluationService, tables: TableService, detectors: Detectors) -> None:
        self._evaluations, self._tables, self._detectors = evaluations, tables, detectors

    def begin(self, evaluation_id: int, folder: Path) -> None:
        """Write down which evaluation a folder is of, before anything is done of it."""
        write_text(folder / BEGUN, json.dumps({"evaluation_id": evaluation_id}))

    def begun(self, folder: Path) -> int:
        """The evaluation that a folder is of."""
        try:
            return int(json.loads((folder / BEGUN).read_text("utf-8"))["evaluation_id"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ServiceError(
                f"{folder} is not the folder of an evaluation; give one that evaluate --out wrote."
            ) from error

    def results(self, view: EvaluationView) -> Json:
        """Every figure by suite, method and metric; those of a part are called ``metric_part``."""
        return {suite: self._figures(view, suite) for suite in view.request.suites}

    def write(self, view: EvaluationView, results: Json, settings: Json, folder: Path) -> None:
        """Write the figures with the settings that they are of, and every item."""
        content = finite({"results": results, "settings": settings, "evaluation_id": view.id})
        write_text(folder / RESULTS, json.dumps(content, ensure_ascii=False, indent=1))
        lines = (json.dumps(finite(sample), ensure_ascii=False) for sample in self.samples(view))
        write_text(folder / SAMPLES, "".join(f"{line}\n" for line in lines))

    def shared(self, view: EvaluationView, suite: str, outside: Outside, samples: bool) -> Results:
        """The evaluation, or one suite of it, as formats of other programs are written from."""
        keys = [suite] if suite else view.request.suites
        tables = [self._tables.table(TableRequest(view.id, key, outside=outside)).table for key in keys]
        listed = (sample for sample in self.samples(view) if sample["suite"] in keys) if samples else ()
        return results_of(view, tables, listed)

    def samples(self, view: EvaluationView) -> Iterator[Json]:
        """Every item under every method and seed; without what was asked where the data is not there any more."""
        suites = {suite.key: suite for suite in self._evaluations.known_suites()}
        for key in view.request.suites:
            items, _ = items_of(self._evaluations, view, key)
            for method in view.request.methods:
                detector = self._detectors.choose(method.settings)
                for outcome in self._evaluations.outcomes(view.id, key, method.label):
                    yield _sample(suites[key], method, outcome, items.get(outcome.item), detector)

    def _figures(self, view: EvaluationView, suite: str) -> Json:
        table = self._tables.table(TableRequest(view.id, suite)).table
        return {
            row.method: {
                metric(column): _figure(cell, scale(column))
                for column, cell in zip(table.columns, row.cells, strict=True)
                if cell is not None
            }
            for row in table.rows
        }


def _figure(cell: Cell, divided_by: float) -> Json:
    ends = {name: getattr(cell, name) for name in ("value", "low", "high")}
    shares = {name: None if end is None else end / divided_by for name, end in ends.items()}
    return {**shares, "n": cell.n, "unscored": cell.unscored}


def _sample(
    suite: Suite, method: EvaluationMethod, outcome: Outcome, item: Item | None, detector: SpanDetector
) -> Json:
    asks = () if item is None else thinned(item, detector, method.dropped).asks
    return {
        "suite": suite.key,
        "policy": method.label,
        "seed": outcome.seed,
        "id": outcome.item,
        "unit": outcome.unit,
        "prompt": _one_or_all([ask.prompt for ask in asks]),
        "texts": _one_or_all([ask.texts if isinstance(ask, Choices) else None for ask in asks]),
        "answer": _one_or_all([_answer(answer) for answer in outcome.answers]),
        **({"thinking": _one_or_all(thinking)} if any(thinking := [_thinking(one) for one in outcome.answers]) else {}),
        "score": own_figure(suite, outcome, "floor").get(suite.main),
        "masked": _one_or_all([_masked(*pair, detector) for pair in zip(asks, outcome.answers, strict=False)]),
        "unread": outcome.unread,
    }


def _masked(ask: Ask, answer: Answer, detector: SpanDetector) -> list[str]:
    """What a method that masks does not see of a prompt in its masked reading."""
    if isinstance(answer, Unread) or not answer.masked:
        return []
    return [ask.prompt[span.start : span.end] for span in spans_of(ask, detector) if span.masked]


def _answer(answer: Answer) -> object:
    """What was written, or the log-likelihood of each text; null where nothing could be read."""
    if isinstance(answer, Written):
        return answer.text
    return answer.log_likelihoods("floor") if isinstance(answer, Scored) else None


def _thinking(answer: Answer) -> str:
    """What was thought before an answer, or in place of one."""
    return "" if isinstance(answer, Scored) else answer.thinking


def _one_or_all(values: Sequence[object]) -> object:
    """What an item with a single ask has, or what each of its asks has; null where nothing is known."""
    return None if not values else values[0] if len(values) == 1 else list(values)
