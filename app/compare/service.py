"""Comparing sessions token by token, and starting the same prompt under several policies."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from threading import Event
from typing import cast

from app.audit.service import AuditService
from app.compare.chains import (
    MOST_CHAINS,
    ChainSummary,
    Comparison,
    checked_columns,
    compared,
    labels_of,
    setting_columns,
)
from app.shared.audits import AuditSettings, StartAudit
from app.shared.errors import ColumnMismatch, ServiceError
from app.shared.files import to_csv, write_text
from app.shared.project_cache import InProject, in_present
from app.shared.wiring import Services
from coft_core.errors import CalibrationMismatch
from coft_core.step_numbers import step_numbers
from coft_core.types import Step
from db.comparisons import ComparisonsRepository
from db.sessions import SessionsRepository

STEP_COLUMNS = (
    "step", "token_id", "token", "p_factual", "p_masked", "p_fused", "tau", "certified", "threshold_state",
    "certified_in", "set_size", "fallback", "chosen_by", "log_ratio", "kl_fused_factual", "tv_fused_factual",
    "kl_fused_masked", "tv_on_set",
)  # fmt: skip

FROM_VANILLA = ("kl_fused_factual", "tv_fused_factual")

CHAIN_COLUMNS = (
    "session_id", "branch_id", "session", "branch", "policy", "lam", "alpha", "calibration", "mask_layout", "model",
    "seed", "certificate", "parameters", "seconds_per_token", "key_value_bytes", "model_bytes", "further_bytes",
    "peak_bytes",
)  # fmt: skip

RANGES = ("set_size_low", "set_size_high", "noise")

PART = "part"
"""Further column, the last, where a chain has thinking: whether a token is ``thinking`` or ``answer``."""

COLUMNS = ("row", "chain", "all_same", "differs", *STEP_COLUMNS, *CHAIN_COLUMNS, *RANGES)


def comparison_csv(comparison: Comparison) -> str:
    """RFC 4180 text; rows, chains and steps count from 1, and where a chain has no token its cells are empty."""
    thinks = any(chain.view.thinking is not None for chain in comparison.chains)
    return to_csv((*COLUMNS, *((PART,) if thinks else ())), _rows(comparison))


def _rows(comparison: Comparison) -> Iterator[dict[str, object]]:
    summaries = [_chain(chain) for chain in comparison.chains]
    for number, row in enumerate(comparison.rows, 1):
        for place, chain in enumerate(comparison.chains):
            at = row.steps[place]
            yield {
                "row": number,
                "chain": place + 1,
                "all_same": row.same,
                "differs": row.differs[place],
                **_step(None if at is None else chain.steps[at], chain.own_model),
                **summaries[place],
                PART: "" if at is None else "thinking" if chain.thought(at) else "answer",
            }


def _step(step: Step | None, own_model: bool) -> dict[str, object]:
    numbers = {} if step is None else step_numbers(step)
    # The factual reading of a checkpoint of its own is not vanilla's.
    hidden = FROM_VANILLA if own_model else ()
    return {name: None if name in hidden else numbers.get(name) for name in (*STEP_COLUMNS, *RANGES)}


def _chain(chain: ChainSummary) -> dict[str, object]:
    view, settings, calibration, memory = chain.view, chain.settings, chain.view.calibration, chain.footprint
    return {
        "session_id": view.session_id,
        "branch_id": view.branch_id,
        "session": view.name,
        "branch": chain.branch.name,
        **setting_columns(settings),
        "alpha": None if calibration is None else settings.alpha,
        "calibration": None if calibration is None else calibration.name,
        "model": view.model,
        "certificate": view.certificate,
        "seconds_per_token": chain.seconds_per_token,
        "key_value_bytes": chain.key_value_bytes,
        "model_bytes": None if memory is None else memory.model_bytes,
        "further_bytes": None if memory is None else memory.further_bytes,
        "peak_bytes": chain.peak_bytes,
    }


class ComparisonService:
    """Puts chains beside each other."""

    def __init__(self, services: Services) -> None:
        self._sessions, self._audits = services[SessionsRepository], services[AuditService]
        self._measured = services[ComparisonsRepository]
        self._stops: defaultdict[InProject, set[Event]] = defaultdict(set)

    def compare(self, session_ids: Sequence[int], branch_ids: Sequence[int | None] = ()) -> Comparison:
        """Compare the chains of sessions, the others with the first; needs no model."""
        if not 2 <= len(session_ids) <= MOST_CHAINS:
            raise ServiceError(f"{len(session_ids)} texts cannot be compared; choose 2 to {MOST_CHAINS}.")
        if branch_ids and len(branch_ids) != len(session_ids):
            raise ServiceError("Each session needs a branch or None; give as many branches as sessions.")
        wanted = zip(session_ids, branch_ids or (None,) * len(session_ids), strict=True)
        views = [self._audits.view(session_id, branch_id) for session_id, branch_id in wanted]
        if len({view.branch_id for view in views}) < len(views):
            raise ServiceError("The same text is chosen twice; choose another one to compare it with.")
        records = [self._sessions.get(view.session_id) for view in views]
        return compared(views, records, [self._measured.branch_steps(view.branch_id) for view in views])

    def write_csv(self, session_ids: Sequence[int], branch_ids: Sequence[int | None], folder: Path) -> Path:
        """Write a comparison into a folder, atomically, and return its path; raises what :meth:`compare` does."""
        name = f"compare-{'-'.join(map(str, session_ids))}.csv"
        return write_text(folder / name, comparison_csv(self.compare(session_ids, branch_ids)))

    def run_columns(self, request: StartAudit, columns: Sequence[AuditSettings]) -> tuple[int, ...]:
        """Begin one session for each of several settings with the same prompt and spans; none if one is refused."""
        wanted = checked_columns(columns)
        # Detected once, so that a setting of one column cannot give it other spans.
        spans = self._audits.detect(request.prompt, request.settings) if request.spans is None else request.spans
        name = request.name or " ".join(request.prompt.split())[:60]
        started: list[int] = []
        try:
            for settings, label in zip(wanted, labels_of(wanted), strict=True):
                start = StartAudit(request.prompt, settings, spans, f"{name} · {label}")
                started.append(self._audits.start(start).session_id)
        except BaseException as error:
            for session_id in started:
                self._audits.delete(session_id)
            if isinstance(error, CalibrationMismatch):
                raise ColumnMismatch(len(started), error) from error
            raise
        return tuple(started)

    def advance(self, session_ids: Sequence[int]) -> Iterator[tuple[int, Step]]:
        """Generate sessions to their ends, one token each in turn; pausing one lets the others go on.

        A pause that comes after this call counts, also before the first step.
        """
        stops = {session_id: Event() for session_id in dict.fromkeys(session_ids)}
        # Where the stream is closed, another project may be present, or none.
        waiting = {session_id: self._stops[in_present(session_id)] for session_id in stops}
        for session_id, stop in stops.items():
            waiting[session_id].add(stop)
        return self._advance(stops, waiting)

    def pause(self, session_ids: Sequence[int]) -> None:
        """Stop sessions after their current tokens; those that :meth:`advance` has not come to yet do not begin."""
        for session_id in session_ids:
            for stop in tuple(self._stops.get(in_present(session_id), ())):
                stop.set()
            self._audits.pause(session_id)

    def _advance(self, stops: dict[int, Event], waiting: dict[int, set[Event]]) -> Iterator[tuple[int, Step]]:
        running = {number: cast("Generator[Step]", self._audits.run(number)) for number in stops}
        try:
            while running:
                for session_id, steps in tuple(running.items()):
                    step = None if stops[session_id].is_set() else next(steps, None)
                    if step is None:
                        running.pop(session_id).close()
                    else:
                        yield session_id, step
        finally:
            for steps in running.values():
                steps.close()
            for session_id, stop in stops.items():
                waiting[session_id].discard(stop)
