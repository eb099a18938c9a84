"""The tables of a report as CSV: candidates of every step, and the verdict log."""

from __future__ import annotations

import math

from app.services.csv_files import to_csv
from app.services.reports import CERTIFIED_IN, SessionData, certified_alone
from app.services.verdict.listing import log_csv
from app.services.verdict.rules import log_entry

CANDIDATE_COLUMNS = (
    "session_id", "branch", "step", "rank", "token_id", "token", "p_factual", "p_masked", "p_fused", "log_p_factual",
    "log_p_masked", "log_p_fused", "tau", "certified", "emitted", "policy_choice", "refused_by",
)  # fmt: skip


def candidates_csv(data: SessionData) -> str:
    """One row a candidate of every step, branch by branch, each step once; steps and ranks count from 1."""
    paths = {branch.id: branch.path for branch in data.branches}
    rows: list[dict[str, object]] = [
        {
            "session_id": data.record.id,
            "branch": paths[branch_id],
            "step": step.index + 1,
            "rank": rank,
            "token_id": row.token_id,
            "token": row.token,
            "p_factual": math.exp(row.log_p_factual),
            "p_masked": math.exp(row.log_p_masked),
            "p_fused": math.exp(row.log_p_fused),
            "log_p_factual": row.log_p_factual,
            "log_p_masked": row.log_p_masked,
            "log_p_fused": row.log_p_fused,
            "tau": math.exp(step.log_tau),
            "certified": row.certified,
            "emitted": row.token_id == step.token_id,
            "policy_choice": row.token_id == step.policy_token_id,
            "refused_by": " ".join(row.refused_by),
            CERTIFIED_IN: step.certified_in,
        }
        for branch_id, chain in data.chains.items()
        for step in chain
        if step.branch_id == branch_id
        for rank, row in enumerate(step.candidates, 1)
    ]
    return to_csv((*CANDIDATE_COLUMNS, CERTIFIED_IN) if certified_alone(data) else CANDIDATE_COLUMNS, rows)


def annotations_csv(data: SessionData) -> str:
    """One row an entry of the verdict log, oldest first; steps count from 1."""
    return log_csv(data.record.id, [log_entry(record) for record in data.log])
