"""Readings at another lambda or alpha, made up: how far lambda moves decides which tokens would be others."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from app.audit.rereading import CalibrationOffer, Departure, Rereading, RereadRequest, RereadRow, RereadThresholds
from app.shared.audits import StartAudit
from app.shared.errors import ServiceError
from coft_core.decode.heads import Bounds
from coft_core.decode.reread import RereadStep
from coft_core.errors import InvalidInputError
from coft_core.types import Step

if TYPE_CHECKING:
    from tests.fakes.audits import FakeAudits

MOVES = {3: (0.05, " her"), 7: (0.15, " nobody"), 14: (0.15, " them"), 33: (0.3, " their")}
"""How far lambda must move until a step's token is another one, and which."""

OFFERED = CalibrationOffer(0.4, 7, "Ward notes at 0.4")


class FakeRereads:
    def __init__(self, audits: FakeAudits) -> None:
        self.audits = audits
        self.calls: list[RereadRequest] = []
        self.answering = threading.Event()
        self.answering.set()
        self.hanging: set[int] = set()

    def read(self, request: RereadRequest) -> Rereading:
        self.calls.append(request)
        self.answering.wait(10)
        view = self.audits.view(request.session_id, request.branch_id)
        settings = view.settings
        if settings.policy == "vanilla":
            raise ServiceError(
                "Vanilla decoding mixes no readings, so there is neither a lambda nor an alpha to change."
            )
        lam = settings.lam if request.lam is None else request.lam
        alpha = settings.alpha if request.alpha is None else request.alpha
        if not 0 <= lam <= 1:
            raise InvalidInputError(f"Lambda is {lam}; choose a number from 0 to 1.")
        has = settings.calibration_id is not None
        told = self._told(lam, settings.lam, has)
        return Rereading(
            session_id=view.session_id,
            branch_id=view.branch_id,
            lam=lam,
            alpha=alpha if has else None,
            own_lam=settings.lam,
            own_alpha=settings.alpha if has else None,
            thresholds=told,
            rows=tuple(
                RereadRow(step, self._read(step, abs(lam - settings.lam), alpha / settings.alpha, told.kind))
                for step in view.steps
            ),
            offers=(OFFERED, CalibrationOffer(0.6, 1, "Ward notes, reference")) if has else (),
        )

    def depart(self, request: RereadRequest) -> Iterator[Departure]:
        reading = self.read(request)
        old = self.audits.stored[request.session_id].request
        settings = replace(old.settings, lam=reading.lam, alpha=reading.alpha or old.settings.alpha)
        made = self.audits.start(
            StartAudit(old.prompt, replace(settings, proceed_uncertified=True), old.spans, f"{old.name} again")
        )
        target = reading.steps if reading.first is None else reading.first.index + 1
        for written in range(1, target + 1):
            self.audits.step(made.session_id)
            yield Departure(made.session_id, made.branch_id, written, target)
        told = f"This audit repeats the first {target - 1} tokens of audit {request.session_id}."
        yield Departure(made.session_id, made.branch_id, target, target, True, target - 1, target - 1, told)

    def _told(self, lam: float, own: float, has: bool) -> RereadThresholds:
        if not has:
            return RereadThresholds("none", "uncertified: no calibration", "No threshold is applied in this audit.")
        if lam == own:
            return RereadThresholds(
                "own", "certified", "The thresholds of the audit’s own calibration count.", 1, "Ward"
            )
        if lam == OFFERED.lam:
            told = f"At this lambda the calibration “{OFFERED.name}” counts, which was made for it."
            return RereadThresholds("other", "certified", told, OFFERED.calibration_id, OFFERED.name)
        return RereadThresholds(
            "mismatch",
            "uncertified: policy mismatch (lam)",
            f"Uncertified at this lambda: the calibration “Ward” was made for lambda {own:g}.",
            1,
            "Ward",
        )

    def _read(self, step: Step, moved: float, risk: float, kind: str) -> RereadStep:
        least, other = MOVES.get(step.index, (9.0, ""))
        differs = moved > least - 1e-9
        log_tau = step.log_tau + (math.log(risk) if math.isfinite(step.log_tau) else 0.0)
        state = step.state if kind in ("own", "other") else "mismatch" if kind == "mismatch" else "none"
        inside = min(step.log_p_fused, step.log_p_masked) >= log_tau
        hangs = moved > 0 and step.index in self.hanging
        return RereadStep(
            index=step.index,
            token_id=step.token_id,
            token=step.token,
            mode="full",
            log_p_fused=Bounds.at(step.log_p_fused),
            log_tau=log_tau,
            state=state,
            in_set=None if hangs else inside,
            set_size=Bounds.at(step.set_size),
            certified_mass=Bounds.at(step.certified_mass),
            margin=Bounds.at(0.0),
            kl_fused_masked=Bounds.at(0.0),
            fallback=step.fallback,
            policy_token_id=None if hangs else 100 + sum(map(ord, other)) if differs else step.policy_token_id,
            policy_token=None if hangs else other if differs else step.policy_token,
            changed=None if hangs else differs,
        )
