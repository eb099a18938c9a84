"""Results files like those of lm-evaluation-harness (Gao et al. 2024), written and read.

A suite is a task, and a method is written as the filter of a metric: ``"accuracy,COFT"``. Shares are
from 0 to 1, as there. What has no place there, as intervals, ranks and differences, is under ``evaluation``, in
the numbers of the tables.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from app.evaluate.exports import json_text, table_json
from app.evaluate.layout import Elsewhere, Published
from app.evaluate.published import metric, results_of, scale
from app.evaluate.runs import EvaluationView, SuitePlan
from app.evaluate.tables import Table
from app.shared.errors import ServiceError
from app.shared.results.lm_eval import lm_eval_json
from app.shared.results.record import HIGHER
from coft_core.step_numbers import finite
from coft_core.suites.base import (
    Answer,
    Ask,
    Choices,
    Item,
    Outcome,
    Outside,
    Scored,
    Suite,
    Written,
)
from coft_core.suites.statistics import PERCENT

ITS_METRICS = {"acc": "accuracy", "acc_norm": "accuracy_by_length"}
"""Shares of the harness that some suites have too, in percent: key of the figure."""

ALONE = ("bias", "utility")
"""Kinds of suites whose main figure can be told of a single item; others compare whole collections of texts."""


def results_json(
    view: EvaluationView,
    tables: Sequence[Table],
    samples: Mapping[str, Sequence[Any]] | None = None,
    unknown: Mapping[str, str] | None = None,
) -> str:
    """A results file."""
    plans, by_suite = {plan.suite: plan for plan in view.plans}, {table.suite: table for table in tables}
    content = lm_eval_json(results_of(view, tables))
    del content["coft_audit"]  # The tables have all of it.
    content["configs"] = {key: _config(table, plans.get(key)) for key, table in by_suite.items()}
    content["evaluation"] = {
        "name": view.name,
        "unknown": dict(unknown or {}),
        "tables": {key: table_json(table) for key, table in by_suite.items()},
    }
    return json_text(content if samples is None else {**content, "samples": samples})


def _config(table: Table, plan: SuitePlan | None) -> dict[str, Any]:
    metrics = [{"metric": metric(column), "higher_is_better": HIGHER.get(column.better)} for column in table.columns]
    told = {"outside": table.outside, "seeds": list(table.seeds), **({} if plan is None else asdict(plan))}
    return {"task": table.suite, "metric_list": metrics, "metadata": told}


# Samples.


def suite_samples(
    suite: Suite,
    given: Mapping[str, Sequence[Outcome]],
    items: Mapping[str, Item],
    outside: Outside = "floor",
) -> list[dict[str, Any]]:
    """Every item by method with what was asked, what came of it, and its main figure as if it were the whole suite."""
    found = [(method, outcome) for method, outcomes in given.items() for outcome in outcomes]
    found.sort(key=lambda pair: (pair[0], pair[1].seed, pair[1].unit, pair[1].item))
    names = sorted({outcome.item for _, outcome in found})
    places = {name: place for place, name in enumerate(names)}
    return [
        {"doc_id": places[outcome.item], **_sample(suite, method, outcome, items.get(outcome.item), outside)}
        for method, outcome in found
    ]


def _sample(suite: Suite, method: str, outcome: Outcome, item: Item | None, outside: Outside) -> dict[str, Any]:
    doc = {"id": outcome.item, "unit": outcome.unit, "facts": outcome.facts}
    arguments = [] if item is None else [argument for ask in item.asks for argument in _arguments(ask)]
    target = None if item is None else suite.reference(item)
    marks = {name: values[0] if len(values) == 1 else list(values) for name, values in sorted(outcome.marks.items())}
    metrics = {**marks, **own_figure(suite, outcome, outside)}
    return finite({
        "doc": doc,
        "target": target,
        "arguments": arguments,
        "resps": [[response] for answer in outcome.answers for response in _responses(answer, None)],
        "filtered_resps": [response for answer in outcome.answers for response in _responses(answer, outside)],
        "filter": method,
        "metrics": list(metrics),
        "seed": outcome.seed,
        "unread": outcome.unread,
        "doc_hash": _digest(doc),
        "prompt_hash": _digest(arguments[0][0] if arguments else ""),
        "target_hash": _digest(target),
        **metrics,
    })  # fmt: skip


def _arguments(ask: Ask) -> list[list[Any]]:
    """One request a text, as the harness asks them."""
    if isinstance(ask, Choices):
        return [[ask.prompt, text] for text in ask.texts]
    return [[ask.prompt, {"until": list(ask.stops), "max_gen_toks": ask.most_tokens}]]


def _responses(answer: Answer, outside: Outside | None) -> list[Any]:
    """One response a request: log-likelihood and whether it is the greedy choice, or the text that was written."""
    if isinstance(answer, Scored):
        return [[own.log_p if outside is None else own.of(outside), own.greedy] for own in answer.likelihoods]
    return [answer.text] if isinstance(answer, Written) else []


def own_figure(suite: Suite, outcome: Outcome, outside: Outside) -> dict[str, float]:
    """The main figure of only this item; empty where it has none."""
    if outcome.unread or suite.kind not in ALONE:
        return {}
    main = suite.main_figure([outcome], outside)
    return {} if main is None or main.value is None else {suite.main: main.value / scale(main)}


def _digest(content: object) -> str:
    text = content if isinstance(content, str) else json.dumps(finite(content), ensure_ascii=False, sort_keys=True)
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


# Reading.


def read_results(text: str, source: str) -> Elsewhere:
    """Figures of another run, to be shown beside a table's own.

    Of a file of this program all figures are read, under the labels of their methods. Of one of the harness those are
    that some suite has too (:data:`ITS_METRICS`), under the name of the model.
    """
    try:
        content = json.loads(text)
        values = _own_values(content["evaluation"]) if "evaluation" in content else _its_values(content)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ServiceError(
            f"{source} is not a results file of an evaluation; give the JSON that export_evaluation or "
            "lm-evaluation-harness wrote."
        ) from error
    if not any(values.values()):
        raise ServiceError(f"{source} holds no figure that is known here; give a file with one.")
    return Elsewhere(source, values)


def _own_values(content: Mapping[str, Any]) -> dict[str, dict[str, Published]]:
    found: dict[str, dict[str, Published]] = {}
    for table in content["tables"].values():
        for row in table["rows"]:
            own = found.setdefault(str(row["method"]), {})
            for name, cell in row["cells"].items():
                if cell["value"] is not None:
                    own[name] = Published(float(cell["value"]), cell["deviation"])
    return found


def _its_values(content: Mapping[str, Any]) -> dict[str, dict[str, Published]]:
    model = content.get("model_name") or content["config"]["model"]
    found: dict[str, Published] = {}
    for task, metrics in content["results"].items():
        for name, value in metrics.items():
            its_name, _, chosen = name.partition(",")
            if its_name in ITS_METRICS and chosen == "none" and isinstance(value, int | float):
                found[f"{task}:{ITS_METRICS[its_name]}"] = Published(PERCENT * value)
    return {str(model): found}
