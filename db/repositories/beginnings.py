"""How the audits that used a calibration began: their first steps, all in one query."""

from __future__ import annotations

from itertools import groupby

from sqlalchemy import select
from sqlalchemy.orm import Session

from db.models import AuditSession, Branch, Step
from db.records import SessionBeginning, StepSupport


def load_beginnings(session: Session, calibration_id: int, steps: int) -> list[SessionBeginning]:
    """Return the first steps of the root branches of sessions that use a calibration, oldest session first.

    Sessions without a step are left out. Pages ask for this often, so that only a few columns are read.
    """
    group = AuditSession.policy_settings["settings"]["group"].as_string()
    query = (
        select(
            AuditSession.id.label("session_id"),
            AuditSession.prompt,
            AuditSession.alpha,
            AuditSession.greedy,
            AuditSession.certificate,
            group.label("group"),
            Step.forced,
            Step.log_p_masked,
            Step.log_p_fused,
        )
        .join(Branch, Branch.session_id == AuditSession.id)
        .join(Step, Step.branch_id == Branch.id)
        .where(AuditSession.calibration_id == calibration_id, Branch.parent_id.is_(None), Step.index < steps)
        .order_by(AuditSession.id, Step.index)
    )
    found = []
    for number, rows in groupby(session.execute(query), lambda row: row.session_id):
        own = list(rows)
        first = own[0]
        found.append(
            SessionBeginning(
                session_id=number,
                prompt=first.prompt,
                alpha=first.alpha,
                greedy=first.greedy,
                certificate=first.certificate,
                group=first.group,
                steps=tuple(StepSupport(row.forced, row.log_p_masked, row.log_p_fused) for row in own),
            )
        )
    return found
