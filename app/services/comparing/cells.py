"""What a column of a set comparison says of each prompt, and of all of them together."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from operator import attrgetter
from statistics import fmean, median

from app.services.batch.rows import mean_interval
from app.services.comparing.alignment import first_divergence
from app.services.views.batches import BatchRowView, MeanInterval
from app.services.views.compared_sets import SetCell, SetRow
from coft_core.footprint import Footprint
from db.records import BatchRowRecord, MeasuredStepRecord

MEASURES = (
    "parted", "mean_tv_factual", "mean_kl_factual", "mean_log_ratio", "certified_share", "fallbacks",
    "seconds_per_token", "key_value_bytes", "steps",
)  # fmt: skip
"""What is averaged over the prompts, in the order of the tables."""

Chain = Sequence[MeasuredStepRecord]


def chains_of(steps: Iterable[MeasuredStepRecord]) -> dict[int, list[MeasuredStepRecord]]:
    """Steps by branch; they come chain after chain."""
    return {branch: list(own) for branch, own in groupby(steps, key=attrgetter("branch_id"))}


def cell_of(row: BatchRowView, chain: Chain, footprint: Footprint | None, own_model: bool) -> SetCell:
    """What a column says of one prompt.

    Args:
        row: What became of it.
        chain: Its main chain.
        footprint: Its memory, as computed.
        own_model: Whether the column decodes a checkpoint of its own, so that its factual view is not vanilla's.
    """
    known = footprint is not None and footprint.known
    return SetCell(
        state=row.state,
        session_id=row.session_id,
        text=row.text,
        steps=row.steps,
        mean_kl_factual=None if own_model else mean_of(step.kl_fused_factual for step in chain),
        mean_tv_factual=None if own_model else mean_of(step.tv_fused_factual for step in chain),
        mean_log_ratio=row.mean_log_ratio,
        fallbacks=row.fallbacks,
        certified_share=row.certified_share,
        seconds_per_token=seconds_per_token(chain),
        key_value_bytes=footprint.key_value_bytes(len(chain)) if footprint and known and chain else None,
        peak_bytes=peak_bytes(chain),
        error=row.error,
    )


def mean_of(values: Iterable[float | None]) -> float | None:
    """Mean of a number over a chain; None where a step was stored without it, or there is no step."""
    found = list(values)
    known = [value for value in found if value is not None]
    return fmean(known) if known and len(known) == len(found) else None


def seconds_per_token(chain: Chain) -> float | None:
    """Median time of a step after the first, which also reads the prompt; None where none was measured."""
    found = [step.seconds for step in chain if step.index and step.seconds is not None]
    return median(found) if found else None


def peak_bytes(chain: Chain) -> int | None:
    """Most memory that the device held during any step; None where none was measured."""
    return max((step.peak_bytes for step in chain if step.peak_bytes is not None), default=None)


def parted(cells: Sequence[SetCell], chains: Sequence[Chain], by_text: bool) -> tuple[SetCell, ...]:
    """The cells of a row with the place at which each chain leaves the first one.

    Args:
        cells: One a column.
        chains: Their chains.
        by_text: Whether tokens are compared by their text, since the models have different vocabularies.
    """
    tokens = [[step.token if by_text else step.token_id for step in chain] for chain in chains]
    found = [cells[0]]
    for cell, own in zip(cells[1:], tokens[1:], strict=True):
        at = first_divergence(tokens[0], own)
        # An end that is only the present one says nothing; two different tokens say it for good.
        ended = at is None or at >= min(len(tokens[0]), len(own))
        open_ended = ended and not cells[0].state == cell.state == "finished"
        found.append(cell if open_ended else replace(cell, parted_at=at, parted=at is not None))
    return tuple(found)


def column_means(rows: Sequence[SetRow], place: int) -> tuple[MeanInterval, ...]:
    """Means of a column over its finished prompts; rows that share a context count once, by their mean."""
    finished = [row for row in rows if row.cells[place].state == "finished"]
    return tuple(_mean(finished, place, measure) for measure in MEASURES)


def largest(footprints: Iterable[Footprint | None]) -> Footprint | None:
    """The footprint with the most key-value memory before the first token."""
    known = [item for item in footprints if item is not None]
    return max(known, key=lambda item: item.key_value_bytes(0), default=None)


def by_line(
    records: Sequence[BatchRowRecord], steps: Mapping[int, list[MeasuredStepRecord]]
) -> dict[int, list[MeasuredStepRecord]]:
    """The main chain of each line; empty where there is none yet."""
    return {row.line: [] if row.root_branch_id is None else steps.get(row.root_branch_id, []) for row in records}


def _mean(rows: Sequence[SetRow], place: int, measure: str) -> MeanInterval:
    by_unit: defaultdict[tuple[str, str | int], list[float]] = defaultdict(list)
    left_out = 0
    for row in rows:
        value = getattr(row.cells[place], measure)
        if value is None or not math.isfinite(value):
            left_out += 1
        else:
            unit = ("line", row.line) if row.context is None else ("context", row.context)
            by_unit[unit].append(float(value))
    return mean_interval(measure, [fmean(values) for values in by_unit.values()], left_out)
