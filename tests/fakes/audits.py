"""Audit sessions without a model or a database."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING

from app.audit.until import checked, met
from app.shared.audits import (
    AuditSettings,
    AuditView,
    CalibrationSummary,
    ChainProgress,
    MaskPreview,
    ModelView,
    RunUntil,
    SettingsFit,
    StartAudit,
)
from app.shared.errors import ServiceError
from coft_core.conformal.drift import DriftReport
from coft_core.decode.contributions import LeaveOneOut
from coft_core.decode.cost import Overhead
from coft_core.errors import CalibrationMismatch, InvalidInputError
from coft_core.model.loading import LoadingPhase
from coft_core.types import FAMILIES, Span, Step
from db.audits import SessionSummary
from db.chains import BranchOutline
from tests.fakes.branching import tree_of
from tests.fakes.data import NOW, SUMMARIES, TOKENS, make_step, position_bins
from tests.fakes.prompts import SENTINEL, families_of, found_spans, masked_reading
from tests.fakes.user_lists import FakeUserLists
from tests.fakes.wholes import chain_of, contributions_of, overhead_of, with_families

if TYPE_CHECKING:
    from tests.fakes.calibrations import FakeCalibrations

COMPARED = ("lam", "temperature", "top_p", "top_k", "mask_layout", "mask_mode", "whitelist", "sentinel")


@dataclass
class Branch:
    view: BranchOutline
    steps: list[Step] = field(default_factory=list)


@dataclass
class Session:
    id: int
    request: StartAudit
    spans: tuple[Span, ...]
    branches: list[Branch]
    active: int
    state: str | None
    created: datetime = NOW


class FakeAudits:
    masked_families = tuple(family for family in FAMILIES if family not in ("name", "socioeconomic"))

    def __init__(self, lists: FakeUserLists, pace: float = 0.0) -> None:
        self.lists = lists
        self.pace = pace
        self.calls: list[tuple[str, object]] = []
        self.stored: dict[int, Session] = {}
        self.calibrations: FakeCalibrations | None = None
        self.measuring = threading.Event()
        self.measuring.set()
        self.changed = False
        self._paused: set[int] = set()
        self._lock = threading.Lock()
        self._seed()

    def _seed(self) -> None:
        prompt = "The nurse finished rounds and then he prepared the reports"
        spans = (Span(4, 9, "family", "lexicon", "roles", kept=True), Span(35, 37, "gender", "lexicon", "pronouns"))
        session = self._create(StartAudit(prompt, AuditSettings(calibration_id=1), spans, "Nurse handover"))
        main = session.branches[0]
        main.steps = [make_step(0, ".")]
        first = self._branch(session, main, 0, " and")
        first.steps.append(make_step(1, " they"))
        second = self._branch(session, first, 1, " he")
        self._branch(session, first, 1, " the")
        for index in range(2, len(TOKENS)):
            second.steps.append(make_step(index, TOKENS[index]))
        session.active = second.view.id
        self._create(
            StartAudit(
                "The German tourist asked where", AuditSettings(calibration_id=None), None, "Tourist, no calibration"
            )
        )

    def _create(self, request: StartAudit) -> Session:
        spans = request.spans if request.spans is not None else self.detect(request.prompt, request.settings)
        state = None
        if request.settings.calibration_id is None:
            state = "none"
        elif request.settings.proceed_uncertified:
            state = "mismatch"
        number = len(self.stored) + 1
        root = Branch(BranchOutline(number * 100, None, None, None, "main"))
        session = Session(number, request, spans, [root], root.view.id, state)
        self.stored[number] = session
        return session

    def _branch(self, session: Session, parent: Branch, index: int, token: str) -> Branch:
        number = session.branches[-1].view.id + 1
        view = BranchOutline(number, parent.view.id, index, token, token)
        own = parent.steps[index].token if index < len(parent.steps) else " they"
        shown = own if own != token else " they"
        branch = Branch(view, [*parent.steps[:index], self._made(session, index, token, True, shown)])
        session.branches.append(branch)
        return branch

    def _made(self, session: Session, index: int, token: str, forced: bool = False, own: str = " they") -> Step:
        made = make_step(index, token, session.state, forced, own)
        factorized = session.request.settings.mask_layout == "factorized"
        return with_families(made, families_of(session.spans)) if factorized else made

    def _session(self, session_id: int) -> Session:
        if session_id not in self.stored:
            raise ServiceError(f"There is no audit {session_id}; it may have been deleted.")
        return self.stored[session_id]

    def _find(self, session: Session, branch_id: int | None) -> Branch:
        wanted = session.active if branch_id is None else branch_id
        return next(branch for branch in session.branches if branch.view.id == wanted)

    def model(self, name: str) -> ModelView:
        if name == "missing":
            raise ServiceError("There is no model 'missing': give a hub id or a folder that holds one.")
        return ModelView(name, "demo · 3.6M, embedded", "Runs on this computer, float32", 512, SENTINEL)

    def loading(self, name: str) -> Iterator[LoadingPhase]:
        yield from LoadingPhase

    def detector(self, settings: AuditSettings) -> str:
        return "lexicon 1" if settings.user_list_id is None else f"lexicon 1, list {settings.user_list_id}"

    def detect(self, text: str, settings: AuditSettings | None = None) -> tuple[Span, ...]:
        return found_spans(text, settings or AuditSettings(), self.masked_families, self.lists)

    def preview(self, prompt: str, spans: tuple[Span, ...], settings: AuditSettings) -> MaskPreview:
        return masked_reading(prompt, spans, settings)

    def start(self, request: StartAudit) -> AuditView:
        self.calls.append(("start", request))
        if not request.prompt.strip():
            raise InvalidInputError("The prompt is empty: type the text that the model should continue.")
        settings = request.settings
        differences = self.fit(settings).differences
        if differences and not settings.proceed_uncertified:
            raise CalibrationMismatch(differences)
        return self.view(self._create(request).id)

    def view(self, session_id: int, branch_id: int | None = None) -> AuditView:
        session = self._session(session_id)
        branch = self._find(session, branch_id)
        settings = session.request.settings
        certificate = {
            None: "certified",
            "none": "uncertified: no calibration",
            "mismatch": "uncertified: policy mismatch (lambda)",
        }[session.state]
        done = len(branch.steps) >= settings.max_new_tokens
        return AuditView(
            session_id=session_id,
            name=session.request.name or session.request.prompt[:40],
            prompt=session.request.prompt,
            spans=session.spans,
            settings=settings,
            model="demo · 3.6M",
            preview=self.preview(session.request.prompt, session.spans, settings),
            branch_id=branch.view.id,
            branches=tree_of(session),
            steps=tuple(branch.steps),
            finished="length" if done else None,
            certificate=certificate,
            fingerprint_digest="7f3a91c2",
            calibration=self._summary(settings),
            user_list="" if settings.user_list_id is None else self.lists.view(settings.user_list_id).summary.name,
            bins=position_bins() if settings.calibration_id else (),
            warnings=(),
            created_at=session.created,
            updated_at=NOW,
            chain=self.progress(session_id, branch.view.id).chain,
            drift=self._drift(settings),
        )

    def progress(self, session_id: int, branch_id: int | None = None) -> ChainProgress:
        session = self._session(session_id)
        branch, settings = self._find(session, branch_id), session.request.settings
        done = len(branch.steps) >= settings.max_new_tokens
        certifies = settings.calibration_id is not None and settings.mask_layout == "joint"
        return ChainProgress("length" if done else None, chain_of(branch.steps, settings.alpha) if certifies else None)

    def fit(self, settings: AuditSettings) -> SettingsFit:
        if settings.calibration_id is None or self.calibrations is None:
            return SettingsFit()
        made = self.calibrations.made[settings.calibration_id]
        differences = tuple(
            (name, str(getattr(made, name)), str(getattr(settings, name)))
            for name in COMPARED
            if getattr(made, name) != getattr(settings, name)
        )
        if made.user_list_id != settings.user_list_id:
            listed = (self.lists.load(n).label if n else "none" for n in (made.user_list_id, settings.user_list_id))
            differences += (("user_list", *listed),)
        return SettingsFit(differences, adoptable=bool(differences))

    def adopt(self, settings: AuditSettings) -> AuditSettings:
        if settings.calibration_id is None or self.calibrations is None:
            raise ServiceError("No calibration is chosen; choose one, then its settings can be used.")
        made = self.calibrations.made[settings.calibration_id]
        return replace(settings, alpha=made.alpha, **{name: getattr(made, name) for name in COMPARED})

    def contributions(self, session_id: int, branch_id: int | None = None) -> LeaveOneOut:
        self.measuring.wait(10)
        if self.changed:
            raise ServiceError("This session was made with other weights than are loaded now; start a new one.")
        session = self._session(session_id)
        return contributions_of(self._find(session, branch_id).steps, session.spans)

    def overhead(self, session_id: int) -> Overhead:
        return overhead_of(len(self.view(session_id).preview.branches))

    def _summary(self, settings: AuditSettings) -> CalibrationSummary | None:
        if settings.calibration_id is None:
            return None
        return SUMMARIES[0] if self.calibrations is None else self.calibrations.stored[settings.calibration_id]

    def _drift(self, settings: AuditSettings) -> DriftReport | None:
        if settings.calibration_id is None or self.calibrations is None:
            return None
        return self.calibrations.drift(settings.calibration_id)

    def step(self, session_id: int, branch_id: int | None = None) -> Step | None:
        session = self._session(session_id)
        branch = self._find(session, branch_id)
        index = len(branch.steps)
        if index >= session.request.settings.max_new_tokens:
            return None
        made = self._made(session, index, TOKENS[index % len(TOKENS)])
        branch.steps.append(made)
        return made

    def run(self, session_id: int, branch_id: int | None = None, until: RunUntil | None = None) -> Iterator[Step]:
        self._paused.discard(session_id)
        if until is not None:
            checked(until, self.view(session_id, branch_id).certificate)
        written = 0
        while session_id not in self._paused:
            made = self.step(session_id, branch_id)
            if made is None:
                return
            written += 1
            yield made
            if until is not None and met(until, made, written):
                return
            if self.pace:
                threading.Event().wait(self.pace)

    def pause(self, session_id: int) -> None:
        self._paused.add(session_id)

    def fork(self, session_id: int, branch_id: int, index: int, token: int | str) -> AuditView:
        session = self._session(session_id)
        parent = self._find(session, branch_id)
        text = token
        if isinstance(token, int):
            text = next(c.token for c in parent.steps[index].candidates if c.token_id == token)
        elif " " in token.strip():
            raise InvalidInputError(f"'{token}' is more than one token; type a single word, with its leading space.")
        branch = self._branch(session, parent, index, str(text))
        session.active = branch.view.id
        return self.view(session_id, branch.view.id)

    def sessions(self, search: str = "", limit: int = 200) -> tuple[SessionSummary, ...]:
        rows = []
        for session in reversed(self.stored.values()):
            view = self.view(session.id)
            if search.lower() in f"{view.name} {view.prompt}".lower():
                rows.append(
                    SessionSummary(
                        session.id, view.name, view.prompt, view.model, view.settings.policy, len(view.steps),
                        view.certificate, view.created_at, view.updated_at,
                    )
                )  # fmt: skip
        return tuple(rows[:limit])

    def delete(self, session_id: int) -> None:
        self._session(session_id)
        del self.stored[session_id]
