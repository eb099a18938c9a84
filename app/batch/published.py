"""A batch as the record that formats of other programs are written from."""

from __future__ import annotations

import math
from collections.abc import Iterator

from app.batch.formal import RatesRule
from app.batch.impact import outcomes_of
from app.batch.service import BatchView
from app.shared.impact import impact_table, ratio_interval
from app.shared.json import settings_json
from app.shared.results.record import Dataset, Result, Results, Sample

RATE, RATIO = "selection_rate", "impact_ratio"


def results_of(view: BatchView, rule: RatesRule, digest: str, weights_digest: str) -> Results:
    """The record: means by group, and with a rule selection rates and impact ratios; ``digest`` is of the prompts."""
    settings, finished = view.request.settings, [row for row in view.rows if row.state == "finished"]
    return Results(
        kind="batch",
        name=view.name,
        model=settings.model,
        weights_digest=weights_digest,
        created=view.created_at,
        datasets=(Dataset(view.name, view.filename, digest=digest, items=len(view.rows), effective=len(finished)),),
        results=(*_rates(view, rule), *_means(view)),
        methods={settings.policy: settings_json(settings)},
        samples=tuple(
            Sample(
                suite=view.name,
                item=f"line {row.line}",
                prompt=row.prompt,
                answer=row.text,
                method=settings.policy,
                facts={"group": row.group, "context": row.context, "session": row.session_id},
            )
            for row in finished
        ),
    )


def _means(view: BatchView) -> Iterator[Result]:
    for group in view.groups:
        for one in group.means:
            if one.mean is not None and math.isfinite(one.mean):
                yield Result(
                    suite=view.name,
                    metric=f"{one.measure}({group.group or 'no group'})",
                    value=one.mean,
                    n=one.contexts,
                    what="contexts",
                    method=view.request.settings.policy,
                    low=one.low,
                    high=one.high,
                )


def _rates(view: BatchView, rule: RatesRule) -> Iterator[Result]:
    if not rule.selected.strip():
        return
    table = impact_table(outcomes_of(view.rows, rule).pairs, rule.exclude_small)
    reference = next((row for row in table.rows if row.reference), None)
    method, bounds = view.request.settings.policy, (0.0, 1.0)
    for row in table.rows:
        rate = f"{RATE}({row.group})"
        yield Result(view.name, rate, row.rate, row.total, "rows", method, row.low, row.high, bounds=bounds)
        if row.ratio is not None and reference is not None and row is not reference:
            low, high = ratio_interval(row, reference) or (None, None)
            yield Result(
                view.name, f"{RATIO}({row.group})", row.ratio, row.total, "rows", method, low, high,
                better="higher", bounds=bounds,
            )  # fmt: skip
