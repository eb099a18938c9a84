"""Conditions and measures on sessions, as parts of queries."""

from __future__ import annotations

from collections.abc import Iterator

from sqlalchemy import ColumnElement, func, or_, select
from sqlalchemy.orm import aliased

from db.models import Annotation, AuditSession, BatchRow, Branch, SessionTag, Step
from db.records import CertificateFilter, SessionFilter


def active_length() -> ColumnElement[int]:
    """Length of the active branch's chain: after its last own step, or at its fork while it has none."""
    active = AuditSession.active_branch_id
    own = select(func.max(Step.index) + 1).where(Step.branch_id == active).scalar_subquery()
    fork = select(Branch.fork_step).where(Branch.id == active).scalar_subquery()
    return func.coalesce(own, fork, 0)


def names_it(text: str) -> ColumnElement[bool]:
    """Whether a text stands in a session's name, prompt or model, in any case."""
    columns = (AuditSession.name, AuditSession.prompt, AuditSession.model)
    return or_(*(column.icontains(text, autoescape=True) for column in columns))


def standing_verdict() -> ColumnElement[bool]:
    """Whether an entry of a verdict log is a verdict that its reviewer has neither replaced nor withdrawn since."""
    later = aliased(Annotation)
    replaced = (
        select(later.id)
        .where(
            later.session_id == Annotation.session_id,
            later.kind == "verdict",
            later.reviewer == Annotation.reviewer,
            later.branch_id.is_not_distinct_from(Annotation.branch_id),
            later.step_index.is_not_distinct_from(Annotation.step_index),
            later.last_step_index.is_not_distinct_from(Annotation.last_step_index),
            later.entry > Annotation.entry,
        )
        .exists()
    )
    return (Annotation.kind == "verdict") & Annotation.verdict.is_not(None) & ~replaced


def matches(wanted: SessionFilter) -> list[ColumnElement[bool]]:
    """The conditions of a filter, all of which a session must meet."""
    return list(_conditions(wanted))


def _conditions(wanted: SessionFilter) -> Iterator[ColumnElement[bool]]:
    if text := wanted.text.strip():
        yield _mentions(text)
    if wanted.policy is not None:
        yield AuditSession.policy == wanted.policy
    if wanted.model is not None:
        yield AuditSession.model == wanted.model
    if wanted.certificate is not None:
        yield _certificate(wanted.certificate)
    if wanted.tag is not None:
        yield _has_tag(func.lower(SessionTag.tag) == func.lower(wanted.tag))
    if wanted.archived is not None:
        yield AuditSession.archived_at.is_not(None) if wanted.archived else AuditSession.archived_at.is_(None)
    if wanted.judged is not None:
        judged = _has_entry(standing_verdict())
        yield judged if wanted.judged else ~judged
    if wanted.since is not None:
        yield AuditSession.updated_at >= wanted.since
    if wanted.before is not None:
        yield AuditSession.updated_at < wanted.before
    if wanted.batch_id is not None:
        of_batch = BatchRow.session_id == AuditSession.id, BatchRow.batch_id == wanted.batch_id
        yield select(BatchRow.line).where(*of_batch).exists()


def _mentions(text: str) -> ColumnElement[bool]:
    said = or_(Annotation.note.icontains(text, autoescape=True), Annotation.tag.icontains(text, autoescape=True))
    return or_(
        AuditSession.name.icontains(text, autoescape=True),
        AuditSession.prompt.icontains(text, autoescape=True),
        _has_tag(SessionTag.tag.icontains(text, autoescape=True)),
        _has_entry(said),
    )


def _certificate(state: CertificateFilter) -> ColumnElement[bool]:
    if state == "certified":
        return AuditSession.certificate == "certified"
    if state == "mismatch":
        return AuditSession.certificate.startswith("uncertified: policy mismatch")
    return AuditSession.certificate.startswith("uncertified")


def _has_tag(condition: ColumnElement[bool]) -> ColumnElement[bool]:
    return select(SessionTag.tag).where(SessionTag.session_id == AuditSession.id, condition).exists()


def _has_entry(condition: ColumnElement[bool]) -> ColumnElement[bool]:
    return select(Annotation.id).where(Annotation.session_id == AuditSession.id, condition).exists()
