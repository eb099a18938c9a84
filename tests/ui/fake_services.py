"""Services without a model or a database: plausible data in every state that a page has to show."""

from __future__ import annotations

import csv
import io
import json
import math
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from app.services.errors import ServiceError
from app.services.user_list_files import parse_user_list, user_list_csv
from app.services.views import (
    FAMILIES,
    AuditSettings,
    AuditView,
    BinView,
    BranchView,
    CalibrationRequest,
    CalibrationSummary,
    CalibrationView,
    Candidate,
    CoverageView,
    Diagnostics,
    Example,
    JobView,
    MaskPiece,
    MaskPreview,
    ModelView,
    ParsedPromptSet,
    ParsedUserList,
    RowError,
    SessionSummary,
    Span,
    StartAudit,
    Step,
    UserListSummary,
    UserListView,
    UserTerm,
)
from coft_core.errors import CalibrationMismatch, InvalidInputError
from coft_core.masking.merge import cut_spans
from coft_core.masking.user_list import UserList

TOKENS = [
    " and", " he", " filed", " his", " notes", " before", " the", " night", " shift", " began", ".", " The",
    " doctor", " thanked", " him", " for", " the", " clear", " handover", ",", " and", " the", " ward", " settled",
    " into", " a", " quiet", " evening", ".", " In", " the", " morning", ",", " his", " colleagues", " found",
    " every", " chart",
]  # fmt: skip
RATIOS = {0: 0.36, 1: 0.89, 3: 1.12, 12: 0.41, 14: 0.97, 17: -0.12, 26: -0.24, 33: 0.74, 34: 0.11, 8: -0.62}
LEXICON = {
    "he": ("gender", "pronouns"),
    "she": ("gender", "pronouns"),
    "his": ("gender", "pronouns"),
    "nurse": ("family", "roles"),
    "muslim": ("religion", "adherents"),
    "latino": ("race", "ethnonyms"),
    "emily": ("name", "first names"),
    "elderly": ("age", "age words"),
    "german": ("nationality", "demonyms"),
    "blind": ("disability", "conditions"),
}
NOW = datetime(2026, 5, 4, 14, 2, tzinfo=UTC)
LABELS = ("1–8", "9–16", "17–24", "25–32", "33 and later")
CONTEXTS = (412, 371, 148, 6, 0)
TAUS = (0.06, 0.054, 0.047, 0.0, 0.047)


def position_bins(alpha: float = 0.1) -> tuple[BinView, ...]:
    needed = math.ceil(1 / alpha) - 1
    found = []
    for index, label in enumerate(LABELS):
        last = None if index == 4 else index * 8 + 7
        n = CONTEXTS[index]
        state = "inherited" if index == 4 else ("calibrated" if n >= needed else "uninformative")
        own = state == "calibrated"
        found.append(
            BinView(
                label=label,
                first_step=index * 8,
                last_step=last,
                state=state,
                tau=TAUS[index] * (alpha / 0.1) if state != "uninformative" else 0.0,
                contexts=n,
                rank=math.floor(alpha * (n + 1)),
                coverage_low=max(0.0, 1 - alpha - 1.2 / math.sqrt(n + 1)) if own else None,
                coverage_high=min(1.0, 1 - alpha + 0.6 / math.sqrt(n + 1)) if own else None,
                inherited_from="17–24" if index == 4 else None,
                needed=needed,
            )
        )
    return tuple(found)


def candidates(token: str, ratio: float, low: bool, tau: float) -> tuple[Candidate, ...]:
    scale = 0.2 if low else 1.0
    base = [(0.22, 0.09), (0.18, 0.25), (0.12, 0.13), (0.07, 0.06), (0.05, 0.065), (0.02, 0.03)]
    words = [token, *(word for word in (" they", " the", " she", " then", " nobody", " we") if word != token)]
    if token == " nobody":
        words = [*words[1:6], token]
    rows = []
    for number, (factual, masked) in enumerate(base):
        if words[number] == token and token != " nobody":
            masked = factual * math.exp(-ratio)
        fused = 0.4 * factual + 0.6 * masked
        logs = [math.log(value * scale) for value in (factual, masked, fused)]
        good = min(logs[1], logs[2]) >= (math.log(tau) if tau else -math.inf)
        rows.append(Candidate(100 + sum(map(ord, words[number])), words[number], *logs, certified=good))
    return tuple(sorted(rows, key=lambda row: -row.log_p_factual))


def make_step(index: int, token: str, state: str | None = None, forced: bool = False, own: str = " they") -> Step:
    place = position_bins()[min(index // 8, 4)]
    state = state or place.state
    ratio = RATIOS.get(index, 0.03)
    low = index == 12
    tau = place.tau if state in ("calibrated", "inherited", "mismatch") else 0.0
    rows = candidates(token, ratio, low, tau)
    row = next(item for item in rows if item.token == token)
    good = sum(item.certified for item in rows)
    counted = state in ("calibrated", "inherited", "uninformative")
    return Step(
        index=index,
        token_id=row.token_id,
        token=token,
        log_p_factual=row.log_p_factual,
        log_p_masked=row.log_p_masked,
        log_p_fused=row.log_p_fused,
        log_tau=math.log(tau) if tau else -math.inf,
        certified=row.certified and counted,
        set_size=2048 if state == "uninformative" else good,
        certified_mass=1.0 if state == "uninformative" else sum(math.exp(r.log_p_fused) for r in rows if r.certified),
        fallback=low and not forced and good == 0,
        forced=forced,
        policy_token_id=100 + sum(map(ord, own)) if forced else row.token_id,
        policy_token=own if forced else token,
        state=state,  # type: ignore[arg-type]
        candidates=rows,
        diagnostics=Diagnostics(
            2.1, 2.2, 2.15, 0.012, 0.07 if good else None, 0.0775 / tau if tau else None, ratio, ratio, 0.4
        ),
    )


@dataclass
class Branch:
    view: BranchView
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
        root = Branch(BranchView(number * 100, None, None, None, "main"))
        session = Session(number, request, spans, [root], root.view.id, state)
        self.stored[number] = session
        return session

    def _branch(self, session: Session, parent: Branch, index: int, token: str) -> Branch:
        number = session.id * 100 + len(session.branches)
        view = BranchView(number, parent.view.id, index, token, f"{index + 1} {token.strip()}")
        own = parent.steps[index].token if index < len(parent.steps) else " they"
        shown = own if own != token else " they"
        branch = Branch(view, [*parent.steps[:index], make_step(index, token, session.state, True, shown)])
        session.branches.append(branch)
        return branch

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
        return ModelView(name, "demo · 3.6M, embedded", "Runs on this computer, float32", 512, "<mask>")

    def detector(self, settings: AuditSettings) -> str:
        return "lexicon 1" if settings.user_list_id is None else f"lexicon 1, list {settings.user_list_id}"

    def detect(self, text: str, settings: AuditSettings | None = None) -> tuple[Span, ...]:
        settings = settings or AuditSettings()
        masked = self.masked_families if settings.masked_families is None else settings.masked_families
        if not text.strip():
            raise InvalidInputError("The prompt is empty: type the text that the model should continue.")
        found = []
        for match in re.finditer(r"\w+", text):
            if match.group().lower() in LEXICON:
                family, detail = LEXICON[match.group().lower()]
                score = 0.93 if family == "name" else 1.0
                source = "pipeline" if family == "name" else "lexicon"
                offered = family not in masked
                found.append(Span(match.start(), match.end(), family, source, detail, score=score, suggested=offered))
        if settings.user_list_id is None:
            return tuple(found)
        own = self.lists.load(settings.user_list_id).find(text)
        return tuple(sorted((*own, *cut_spans(found, own, text))))

    def preview(self, prompt: str, spans: tuple[Span, ...], settings: AuditSettings) -> MaskPreview:
        sentinel = settings.sentinel or "<mask>"
        pieces, cursor, masked = [], 0, 0
        for span in sorted(spans):
            if not span.masked:
                continue
            if span.start > cursor:
                pieces.append(MaskPiece(prompt[cursor : span.start], False))
            pieces.append(MaskPiece(sentinel, True))
            cursor, masked = span.end, masked + 1
        pieces.append(MaskPiece(prompt[cursor:], False))
        warnings = () if masked else ("Nothing is masked: both branches are equal, and the audit shows no effect.",)
        return MaskPreview(tuple(p for p in pieces if p.text), len(prompt.split()), masked, warnings)

    def start(self, request: StartAudit) -> AuditView:
        self.calls.append(("start", request))
        if not request.prompt.strip():
            raise InvalidInputError("The prompt is empty: type the text that the model should continue.")
        settings = request.settings
        if settings.calibration_id and settings.lam != 0.6 and not settings.proceed_uncertified:
            raise CalibrationMismatch([("lambda", "0.6", str(settings.lam))])
        if settings.calibration_id and settings.user_list_id and not settings.proceed_uncertified:
            listed = self.lists.load(settings.user_list_id).label
            raise CalibrationMismatch([("detector", "lexicon 1", f"lexicon 1, {listed}")])
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
            branches=tuple(item.view for item in session.branches),
            steps=tuple(branch.steps),
            finished="length" if done else None,
            certificate=certificate,
            fingerprint_digest="7f3a91c2",
            calibration=SUMMARIES[0] if settings.calibration_id else None,
            user_list="" if settings.user_list_id is None else self.lists.view(settings.user_list_id).summary.name,
            bins=position_bins() if settings.calibration_id else (),
            warnings=(),
            created_at=session.created,
            updated_at=NOW,
        )

    def step(self, session_id: int, branch_id: int | None = None) -> Step | None:
        session = self._session(session_id)
        branch = self._find(session, branch_id)
        index = len(branch.steps)
        if index >= session.request.settings.max_new_tokens:
            return None
        made = make_step(index, TOKENS[index % len(TOKENS)], session.state)
        branch.steps.append(made)
        return made

    def run(self, session_id: int, branch_id: int | None = None) -> Iterator[Step]:
        self._paused.discard(session_id)
        while session_id not in self._paused:
            made = self.step(session_id, branch_id)
            if made is None:
                return
            yield made
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


SUMMARIES = [
    CalibrationSummary(
        1, "Ward notes, reference", "demo", "hierarchical", "reference", 0.6, 0.1, 412, 0.91, 0.878, 0.936, NOW, True
    )
]


class FakeCalibrations:
    def __init__(self, jobs: FakeJobs) -> None:
        self.jobs = jobs
        self.stored = {1: SUMMARIES[0]}
        self.requests: list[CalibrationRequest] = []

    def parse(self, path: Path, filename: str | None = None) -> ParsedPromptSet:
        text = Path(path).read_text("utf-8")
        name = filename or Path(path).name
        if not text.strip():
            raise ServiceError(f"{name} is empty: it needs a header and at least one row.")
        rows, errors = [], []
        reader = csv.DictReader(io.StringIO(text)) if name.endswith(".csv") else map(json.loads, text.splitlines())
        for line, row in enumerate(reader, start=2 if name.endswith(".csv") else 1):
            if not row.get("prompt"):
                errors.append(RowError(line, "prompt", "is empty"))
            elif not row.get("reference"):
                errors.append(RowError(line, "reference", "is empty"))
            else:
                rows.append((line, Example(row["prompt"], row["reference"], None, row.get("group") or None)))
        kind = "CSV, comma" if name.endswith(".csv") else "JSONL"
        return ParsedPromptSet(
            name, len(text), kind, tuple(rows), tuple(errors), len(rows) + len(errors), ("id",), "0f"
        )

    def submit(self, prompts: ParsedPromptSet, request: CalibrationRequest) -> int:
        if prompts.errors and not request.accept_errors:
            raise ServiceError(f"{len(prompts.errors)} rows cannot be used: correct them, or go on with the good rows.")
        self.requests.append(request)
        number = len(self.stored) + 1
        self.stored[number] = replace(SUMMARIES[0], id=number, name=request.name, embedded=False, alpha=request.alpha)
        return self.jobs.add(f"Calibration of {request.name}", {"calibration_id": number})

    def list(self, model: str | None = None) -> tuple[CalibrationSummary, ...]:
        return tuple(reversed(self.stored.values()))

    def view(self, calibration_id: int, alpha: float | None = None) -> CalibrationView:
        if calibration_id not in self.stored:
            raise ServiceError(f"There is no calibration {calibration_id}; it may have been deleted.")
        level = self.stored[calibration_id].alpha if alpha is None else alpha
        bins = position_bins(level)
        usable = [item.last_step for item in bins if item.state == "calibrated" and item.last_step is not None]
        coverage = (
            CoverageView("All steps", 400, 364, 0.91, 0.878, 0.936, True),
            CoverageView("1–8", 400, 366, 0.915, 0.883, 0.94, True),
            CoverageView("25–32", 5, 5, 1.0, 0.478, 1.0, None),
        )
        values = {
            item.label: tuple(-8.0 * ((i + 0.5) / item.contexts) ** 2.2 for i in range(item.contexts)) for item in bins
        }
        names = ("model", "revision", "weights", "tokenizer", "dtype", "chat template", "lambda", "temperature")
        shown = ("demo", "2026-05", "sha256 9be1…04d7", "sha256 51c0…ee2a", "float32", "none", "0.60", "1.0")
        return CalibrationView(
            self.stored[calibration_id], level, bins, coverage, 3806, max(usable) + 1 if usable else None,
            (*zip(names, shown, strict=True), ("detector", "lexicon 1")), "7f3a 91c2 d05e", values,
        )  # fmt: skip

    def delete(self, calibration_id: int) -> None:
        del self.stored[calibration_id]


class FakeUserLists:
    def __init__(self) -> None:
        self.stored: dict[int, tuple[UserListSummary, tuple[UserTerm, ...]]] = {}
        self.used: set[int] = set()

    def parse(
        self, path: Path, filename: str | None = None, action: str = "mask", family: str = "other"
    ) -> ParsedUserList:
        return parse_user_list(path, filename, action, family)

    def add(self, name: str, parsed: ParsedUserList, replace: bool = False) -> UserListView:
        taken = next((key for key, (summary, _) in self.stored.items() if summary.name == name), None)
        if taken is not None and not replace:
            raise ServiceError(f"There is a word list “{name}” already; choose another name, or replace it.")
        self.stored.pop(taken or 0, None)
        terms = tuple(term for _, term in parsed.terms)
        number = 1 + max(self.stored, default=0)
        digest = UserList(name, terms).digest[:12]
        self.stored[number] = (UserListSummary(number, name, digest, len(terms), NOW), terms)
        return self.view(number)

    def list(self) -> tuple[UserListSummary, ...]:
        return tuple(summary for summary, _ in self.stored.values())

    def view(self, user_list_id: int) -> UserListView:
        return UserListView(*self.stored[user_list_id])

    def named(self, name: str) -> UserListView:
        found = next((key for key, (summary, _) in self.stored.items() if summary.name == name), None)
        if found is None:
            raise ServiceError(f"There is no word list “{name}”; the lists are: none yet.")
        return self.view(found)

    def load(self, user_list_id: int) -> UserList:
        summary, terms = self.stored[user_list_id]
        return UserList(summary.name, terms)

    def write_csv(self, user_list_id: int, folder: Path) -> Path:
        path = Path(folder) / f"word-list-{user_list_id}.csv"
        path.write_text(user_list_csv(self.stored[user_list_id][1]), "utf-8")
        return path

    def delete(self, user_list_id: int) -> None:
        if user_list_id in self.used:
            raise ServiceError("A calibration was made with this word list; delete the calibration first.")
        del self.stored[user_list_id]


class FakeReports:
    def __init__(self, audits: FakeAudits) -> None:
        self.audits = audits

    def csv(self, session_id: int, branch_id: int | None = None) -> str:
        view = self.audits.view(session_id, branch_id)
        lines = ["session_id,step,branch,token_id,token"]
        lines += [f"{session_id},{step.index + 1},main,{step.token_id},{step.token}" for step in view.steps]
        return "\r\n".join(lines) + "\r\n"

    def write_csv(self, session_id: int, folder: Path) -> Path:
        path = Path(folder) / f"audit-{session_id}.csv"
        path.write_text(self.csv(session_id), "utf-8")
        return path


class FakeJobs:
    def __init__(self) -> None:
        self.stored: dict[int, JobView] = {}
        self._asked: dict[int, int] = {}
        self.hold = False

    def add(self, title: str, result: dict[str, object]) -> int:
        number = len(self.stored) + 1
        self.stored[number] = JobView(number, "calibration", title, "running", 0.1, "12 of 120 contexts", None, result)
        return number

    def get(self, job_id: int) -> JobView:
        job = self.stored[job_id]
        self._asked[job_id] = self._asked.get(job_id, 0) + 1
        if job.status == "running" and not self.hold and self._asked[job_id] >= 2:
            job = replace(job, status="done", progress=1.0, message="finished")
        elif job.status == "running":
            job = replace(job, progress=0.5, message="60 of 120 contexts")
        self.stored[job_id] = job
        return job

    def list(self, kind: str | None = None, limit: int = 20) -> tuple[JobView, ...]:
        return tuple(reversed(self.stored.values()))[:limit]

    def cancel(self, job_id: int) -> None:
        self.stored[job_id] = replace(self.stored[job_id], status="cancelled", message="cancelled")


class FakeServices:
    """What the pages call; ``pace`` is the time that a run takes for a token, in seconds."""

    def __init__(self, pace: float = 0.0) -> None:
        self.user_lists = FakeUserLists()
        self.audits = FakeAudits(self.user_lists, pace)
        self.jobs = FakeJobs()
        self.calibrations = FakeCalibrations(self.jobs)
        self.reports = FakeReports(self.audits)

    def reset(self) -> None:
        """Forget everything that a test did; the pages keep their references."""
        self.user_lists.__init__()  # type: ignore[misc]
        self.audits.__init__(self.user_lists, self.audits.pace)  # type: ignore[misc]
        self.jobs.__init__()  # type: ignore[misc]
        self.calibrations.__init__(self.jobs)  # type: ignore[misc]
