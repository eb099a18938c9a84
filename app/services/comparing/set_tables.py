"""A comparison over a prompt set as tables: rows sorted, one line a prompt and column, and the columns' means."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict

from app.services.batch.rows import INTERVAL
from app.services.csv_files import to_csv
from app.services.known_policies import KNOWN_POLICIES
from app.services.views.audits import AuditSettings
from app.services.views.compared_sets import SetCell, SetComparison, SetOrder, SetRow

ROW_FIELDS = ("line", "prompt", "group")

SETTING_COLUMNS = ("policy", "lam", "alpha", "calibration_id", "mask_layout", "parameters", "model", "seed")
CELL_COLUMNS = (
    "state", "session_id", "steps", "parted_at", "mean_tv_factual", "mean_kl_factual", "mean_log_ratio",
    "certified_share", "fallbacks", "seconds_per_token", "key_value_bytes", "peak_bytes", "error",
)  # fmt: skip
SET_COLUMNS = ("line", "group", "context", "prompt", "column", *SETTING_COLUMNS, *CELL_COLUMNS, "continuation")
SUMMARY_COLUMNS = (
    "column", *SETTING_COLUMNS, "measure", "mean", "low", "high", "contexts", "left_out", "interval",
)  # fmt: skip
MEMORY = "computed from the models' shapes; the longest prompt of the set"
PEAK = "measured: most memory that the device held, all loaded models included"


def sorted_rows(rows: Sequence[SetRow], order: SetOrder, column: int, descending: bool) -> tuple[SetRow, ...]:
    """Rows sorted by a field of theirs or of a column's cells, then by line; what has no value stands last."""

    def value(row: SetRow) -> float | str | None:
        found: float | str | None = getattr(row if order in ROW_FIELDS else row.cells[column], order)
        return found.casefold() if isinstance(found, str) else found

    lines = sorted(rows, key=lambda row: row.line)
    known = [row for row in lines if value(row) not in (None, "")]
    known.sort(key=lambda row: value(row) or 0, reverse=descending)
    return (*known, *(row for row in lines if value(row) in (None, "")))


def set_csv(view: SetComparison) -> str:
    """RFC 4180 text, one line a prompt and column; columns and steps count from 1, times are seconds."""
    settings = [_settings(own.settings) for own in view.columns]
    return to_csv(
        SET_COLUMNS,
        (
            {
                "line": row.line,
                "group": row.group,
                "context": row.context,
                "prompt": row.prompt,
                "column": place + 1,
                **settings[place],
                **_cell(cell),
            }
            for row in view.rows
            for place, cell in enumerate(row.cells)
        ),
    )


def summary_csv(view: SetComparison) -> str:
    """RFC 4180 text, one line a column and measure; what is computed or measured once has no interval."""
    return to_csv(SUMMARY_COLUMNS, _summary(view))


def _summary(view: SetComparison) -> Iterator[dict[str, object]]:
    blank: dict[str, object] = dict.fromkeys(("mean", "low", "high", "contexts", "left_out", "interval"))
    for place, column in enumerate(view.columns, 1):
        own = {"column": place, **_settings(column.settings)}
        for item in column.means:
            yield {**own, **asdict(item), "interval": INTERVAL}
        if column.footprint is not None:
            for name in ("model_bytes", "further_bytes"):
                yield {**blank, **own, "measure": name, "mean": getattr(column.footprint, name), "interval": MEMORY}
        if column.peak_bytes is not None:
            yield {**blank, **own, "measure": "peak_bytes", "mean": column.peak_bytes, "interval": PEAK}


def _settings(settings: AuditSettings) -> dict[str, object]:
    info = next((item for item in KNOWN_POLICIES if item.key == settings.policy), None)
    thresholded = settings.calibration_id is not None
    return {
        "policy": settings.policy,
        "lam": settings.lam if info is None or info.fuses else None,
        "alpha": settings.alpha if thresholded else None,
        "calibration_id": settings.calibration_id,
        "mask_layout": settings.mask_layout,
        "parameters": json.dumps(dict(settings.parameters)) if settings.parameters else None,
        "model": settings.model,
        "seed": settings.seed,
    }


def _cell(cell: SetCell) -> dict[str, object]:
    values: dict[str, object] = {name: getattr(cell, name) for name in CELL_COLUMNS}
    at = "" if cell.parted is None else "same" if cell.parted_at is None else cell.parted_at + 1
    return {**values, "parted_at": at, "continuation": cell.text}
