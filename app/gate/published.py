"""A check as the record that formats of other programs are written from."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime

from app.gate.file import Operator
from app.gate.judge import Judged
from app.gate.run import Checked
from app.shared.results.record import Dataset, Result, Results, Sample
from coft_core.suites.base import Better

BETTER: Mapping[Operator, Better] = {"<=": "lower", "<": "lower", ">=": "higher", ">": "higher"}
BOUNDS = {"regression": (-2.0, 2.0), "accuracy_loss": (-1.0, 1.0)}
"""What a measure lies between, where that is not 0 and 1."""


def results_of(checked: Checked, prompts: Mapping[int, str], created: datetime) -> Results:
    """The record; ``prompts`` are texts by line. Claims on the same measure are one result."""
    file, key = checked.asked.file, checked.asked.prompts.stem
    of_prompts = Dataset(
        key,
        checked.asked.prompts.name,
        digest=checked.prompts_digest,
        items=checked.prompts + checked.unread,
        effective=checked.prompts,
    )
    of_suites = (
        Dataset(one.key, one.source, digest=one.digest, items=one.items, effective=one.read) for one in checked.suites
    )
    found = {_metric(one): one for one in checked.judged if one.estimate is not None}
    return Results(
        kind="check",
        name=checked.asked.path.stem,
        model=checked.model,
        weights_digest=checked.weights_digest,
        created=created,
        datasets=(*([of_prompts] if checked.prompts_digest else []), *of_suites),
        results=tuple(
            Result(
                suite=one.claim.suite or key,
                metric=name,
                value=one.estimate or 0.0,
                n=one.observations,
                what="items" if one.claim.suite else "contexts",
                method=file.method,
                low=one.low,
                high=one.high,
                level=1 - file.risk,
                better=BETTER[one.claim.operator],
                bounds=BOUNDS.get(one.claim.measure, None if one.claim.suite else (0.0, 1.0)),
            )
            for name, one in found.items()
        ),
        methods={file.method: {"method": file.method, "seed": file.seed}},
        samples=tuple(
            Sample(
                suite=key if item.line else item.group,
                item=f"line {item.line}, {item.outcome}" if item.line else f"{item.context}, {item.outcome}",
                prompt=prompts.get(item.line, ""),
                answer="",
                method=file.method,
                scores={item.outcome: item.value},
                facts={"group": item.group, "context": item.context},
            )
            for item in checked.items
        ),
    )


def _metric(one: Judged) -> str:
    """A claim without its comparison: ``gap(hired)``."""
    return re.split("[<>]", one.claim.text)[0].strip()
