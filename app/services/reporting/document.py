"""Between a stored session and its report document, both ways."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from app.services.calibration.store import AnyCalibration
from app.services.calibration.thresholds import layout_of
from app.services.mapping import step_from
from app.services.reporting import program
from app.services.reporting.canonical import canonical
from app.services.reporting.schema import (
    BinPart,
    BranchPart,
    FamilyBinsPart,
    LogPart,
    ProgramPart,
    ReportPart,
    SessionPart,
    StepPart,
    ThresholdsPart,
)
from app.services.reporting.summary import summary_of
from app.services.reports import SessionData
from coft_core.conformal.calibration import Calibration
from db.records import (
    AnnotationRecord,
    BranchRecord,
    CandidateRecord,
    FamilyStepRecord,
    SessionRecord,
    SpanRecord,
    StepRecord,
)

_STEP_PARTS = ("candidates", "families")


def document_of(data: SessionData, thresholds: ThresholdsPart | None) -> ReportPart:
    """The report of a session.

    Args:
        data: All that is stored of it.
        thresholds: The thresholds that it was decoded with; None without calibration, or where that was deleted.
    """
    branches = tuple(_branch_part(branch, data.chains[branch.id]) for branch in data.branches)
    return ReportPart(
        program=ProgramPart(name=program.NAME, version=program.VERSION),
        session=SessionPart.model_validate(data.record),
        branches=branches,
        steps_digest=steps_digest(branches),
        thresholds=thresholds,
        log=tuple(_log_part(record) for record in data.log),
        log_head=data.log[-1].digest if data.log else "",
        summary=tuple(
            summary_of(
                branch.path,
                [step_from(step) for step in data.chains[branch.id]],
                data.certificates[branch.id],
            )
            for branch in data.branches
        ),
        drift=data.drift,
    )


def thresholds_of(calibration: AnyCalibration, stored: bytes, layout: str, group: str | None) -> ThresholdsPart:
    """The thresholds of a calibration as a session reads it.

    Args:
        calibration: The calibration at the session's risk level, and for its group.
        stored: The file of the calibration as it was made.
        layout: The session's mask layout; thresholds of another one are not applied.
        group: The group whose thresholds are used.
    """
    own = layout_of(calibration)
    named = [(None, calibration)] if isinstance(calibration, Calibration) else list(calibration.parts)
    families = tuple(
        FamilyBinsPart(
            family=name,
            alpha=part.alpha,
            bins=tuple(
                BinPart(
                    first_step=entry.first_step,
                    last_step=entry.last_step,
                    log_tau=entry.log_tau,
                    state=entry.state,
                    contexts=entry.contexts,
                )
                for entry in part.bins
            ),
        )
        for name, part in named
    )
    return ThresholdsPart(
        calibration=calibration.name,
        calibration_digest=hashlib.sha256(stored).hexdigest(),
        alpha=calibration.alpha,
        group=group,
        layout="joint" if own == "joint" else "factorized",
        applied=own == layout,
        families=families,
        digest=thresholds_digest(families),
        uneven=tuple(
            found.label if name is None else f"{found.label} of {name}"
            for name, part in named
            for found in part.evenness
            if found.uneven
        ),
    )


def steps_digest(branches: Sequence[BranchPart]) -> str:
    """SHA-256 of all branches with all their steps."""
    return digest_of([branch.model_dump() for branch in branches])


def thresholds_digest(families: Sequence[FamilyBinsPart]) -> str:
    """SHA-256 of all thresholds."""
    return digest_of([family.model_dump() for family in families])


def digest_of(value: object) -> str:
    """SHA-256 of something's canonical JSON text."""
    return hashlib.sha256(canonical(value).encode("ascii")).hexdigest()


def session_record(report: ReportPart) -> SessionRecord:
    """The session as the store had it."""
    own = report.session.model_dump(exclude={"spans"})
    spans = tuple(SpanRecord(**span.model_dump()) for span in report.session.spans)
    return SessionRecord(**own, spans=spans)


def branch_records(report: ReportPart) -> tuple[BranchRecord, ...]:
    """The branches as the store had them."""
    session = report.session.id
    return tuple(BranchRecord(**branch.model_dump(exclude={"steps"}), session_id=session) for branch in report.branches)


def chain_records(report: ReportPart) -> dict[int, list[StepRecord]]:
    """The whole chain of each branch by the branch's id, ancestors' steps first.

    Only for a report whose branches hold together: every parent stands before its children.
    """
    chains: dict[int, list[StepRecord]] = {}
    for branch in report.branches:
        before = [] if branch.parent_id is None else chains[branch.parent_id][: branch.fork_step]
        chains[branch.id] = before + [_step_record(step, branch.id) for step in branch.steps]
    return chains


def log_records(report: ReportPart) -> tuple[AnnotationRecord, ...]:
    """The verdict log as the store had it; entries are known by their numbers."""
    ids = {branch.path: branch.id for branch in report.branches}
    return tuple(
        AnnotationRecord(
            id=entry.entry,
            session_id=report.session.id,
            reviewer=entry.reviewer,
            kind=entry.kind,
            branch_id=None if entry.branch is None else ids.get(entry.branch),
            branch_path=entry.branch,
            step_index=entry.first_step,
            last_step_index=entry.last_step,
            verdict=entry.verdict,
            note=entry.note,
            tag=entry.tag,
            blind=entry.blind,
            entry=entry.entry,
            created_at=entry.at,
            previous=entry.previous,
            digest=entry.digest,
        )
        for entry in report.log
    )


def _branch_part(branch: BranchRecord, chain: Sequence[StepRecord]) -> BranchPart:
    own = tuple(StepPart.model_validate(step) for step in chain if step.branch_id == branch.id)
    return BranchPart(**{name: getattr(branch, name) for name in BranchPart.model_fields if name != "steps"}, steps=own)


def _step_record(step: StepPart, branch_id: int) -> StepRecord:
    return StepRecord(
        **step.model_dump(exclude=set(_STEP_PARTS)),
        candidates=tuple(CandidateRecord(**row.model_dump()) for row in step.candidates),
        families=tuple(FamilyStepRecord(**part.model_dump()) for part in step.families),
        branch_id=branch_id,
    )


def _log_part(record: AnnotationRecord) -> LogPart:
    return LogPart(
        entry=record.entry,
        kind=record.kind,
        reviewer=record.reviewer,
        branch=record.branch_path,
        first_step=record.step_index,
        last_step=record.last_step_index,
        verdict=record.verdict,
        note=record.note,
        tag=record.tag,
        blind=record.blind,
        at=record.created_at,
        previous=record.previous,
        digest=record.digest,
    )
