"""Chains beside each other without a model: the real comparison over made-up audits that write different texts."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

from app.compare.service import ComparisonService
from app.shared.audits import AuditSettings, StartAudit
from app.shared.errors import ColumnMismatch
from coft_core.errors import CalibrationMismatch
from coft_core.types import Step
from db.comparisons import MeasuredStepRecord
from tests.fakes.audits import FakeAudits
from tests.fakes.data import make_step

VANILLA = [" The", " Latino", " driver", ",", " because", " he", " looked", " suspicious", "."]
COFT = [" The", " driver", ",", " likely", " due", " to", " the", " broken", " taillight", "."]
STRONG = [" The", " driver", ",", " because", " of", " the", " broken", " taillight", "."]


def written(settings: AuditSettings, length: int) -> list[str]:
    """What a column writes: each policy a text of its own, strong fusion a third one, over and over."""
    own = VANILLA if settings.policy == "vanilla" else STRONG if settings.lam > 0.8 else COFT
    if length <= len(own):
        return own[:length]
    return [
        *own,
        *(f" word{index % 7}" if index % 5 else f" {own[1].strip()}{index}" for index in range(len(own), length)),
    ]


FOOTPRINT = {"prompt_tokens": [9, 9], "token_bytes": [8192, 8192], "model_bytes": 14_400_000, "further_bytes": 0}


def measured_step(step: Step, branch_id: int) -> MeasuredStepRecord:
    """What a store would keep of what a step took."""
    return MeasuredStepRecord(
        branch_id=branch_id, index=step.index, token_id=step.token_id, token=step.token, certified=step.certified,
        fallback=step.fallback, log_ratio=step.diagnostics.log_ratio,
        kl_fused_factual=step.diagnostics.kl_fused_factual, tv_fused_factual=step.diagnostics.tv_fused_factual,
        seconds=0.0123 + 0.001 * step.index, peak_bytes=None,
    )  # fmt: skip


class FakeComparisons(ComparisonService):
    def __init__(self, audits: FakeAudits) -> None:
        self.taken: defaultdict[int, list[MeasuredStepRecord]] = defaultdict(list)
        record = SimpleNamespace(fingerprint={"tokenizer": "made up"}, footprint=FOOTPRINT)
        store: Any = SimpleNamespace(get=lambda session_id: record)
        measured: Any = SimpleNamespace(branch_steps=lambda branch_id: self.taken[branch_id])
        super().__init__(store, audits, measured)  # type: ignore[arg-type]
        self.audits = audits
        self.asked: list[tuple[str, object]] = []
        self.gate = threading.Event()
        self.gate.set()

    def run_columns(self, request: StartAudit, columns: Sequence[AuditSettings]) -> tuple[int, ...]:
        self.asked.append(("run", (request, tuple(columns))))
        for place, settings in enumerate(columns):
            apart = self.audits.fit(settings).differences if settings.policy == "coft" else ()
            if apart and not settings.proceed_uncertified:
                raise ColumnMismatch(place, CalibrationMismatch(apart))
        return super().run_columns(request, columns)

    def _advance(self, stops: dict[int, threading.Event]) -> Iterator[tuple[int, Step]]:
        for index in range(self._longest(stops)):
            for session_id, stop in stops.items():
                session = self.audits.stored[session_id]
                steps = session.branches[0].steps
                tokens = written(session.request.settings, session.request.settings.max_new_tokens)
                if stop.is_set() or len(steps) != index or index >= len(tokens):
                    continue
                steps.append(make_step(index, tokens[index], session.state))
                self.taken[session.branches[0].view.id].append(measured_step(steps[-1], session.branches[0].view.id))
                yield session_id, steps[-1]
                self.gate.wait(120)

    def _longest(self, stops: dict[int, threading.Event]) -> int:
        return max(self.audits.stored[number].request.settings.max_new_tokens for number in stops)

    def pause(self, session_ids: Sequence[int]) -> None:
        self.asked.append(("pause", tuple(session_ids)))
        super().pause(session_ids)
        self.gate.set()
