"""The first schema: prompt sets, calibrations, audit sessions and jobs."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.types import TypeEngine

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

ACTIVE_BRANCH = "fk_audit_sessions_active_branch_id_branches"


def upgrade() -> None:
    """Create every table."""
    _create_jobs()
    _create_prompt_sets()
    _create_calibrations()
    _create_sessions()
    _create_branches()
    _create_steps()
    _create_candidates()
    _create_annotations()
    if _adds_keys_later():
        op.create_foreign_key(
            ACTIVE_BRANCH, "audit_sessions", "branches", ["active_branch_id"], ["id"], ondelete="SET NULL"
        )


def downgrade() -> None:
    """Remove every table."""
    if _adds_keys_later():
        op.drop_constraint(ACTIVE_BRANCH, "audit_sessions", type_="foreignkey")
    for table in (
        "annotations",
        "candidates",
        "steps",
        "branches",
        "session_spans",
        "audit_sessions",
        "calibration_bins",
        "calibration_runs",
        "prompt_rows",
        "prompt_sets",
        "jobs",
    ):
        op.drop_table(table)


def _required(kind: TypeEngine[Any], *names: str) -> list[sa.Column[Any]]:
    return [sa.Column(name, kind, nullable=False) for name in names]


def _optional(kind: TypeEngine[Any], *names: str) -> list[sa.Column[Any]]:
    return [sa.Column(name, kind, nullable=True) for name in names]


def _reference(
    table: str, column: str, target: str, on_delete: str, use_alter: bool = False
) -> sa.ForeignKeyConstraint:
    name = op.f(f"fk_{table}_{column}_{target}")
    return sa.ForeignKeyConstraint([column], [f"{target}.id"], name=name, ondelete=on_delete, use_alter=use_alter)


def _adds_keys_later() -> bool:
    # SQLite cannot add a key to a table, and takes one to a table that is yet to come; others do neither.
    return op.get_context().dialect.supports_alter


def _create_jobs() -> None:
    op.create_table(
        "jobs",
        *_required(sa.Integer(), "id"),
        *_required(sa.String(), "kind", "title", "status", "message"),
        *_required(sa.Double(), "progress"),
        *_optional(sa.String(), "error"),
        *_required(sa.JSON(none_as_null=True), "payload"),
        *_optional(sa.JSON(none_as_null=True), "result"),
        *_required(sa.DateTime(timezone=True), "created_at"),
        *_optional(sa.DateTime(timezone=True), "started_at", "finished_at", "heartbeat_at"),
        sa.CheckConstraint(
            "status IN ('queued', 'running', 'done', 'failed', 'cancelled', 'interrupted')",
            name=op.f("ck_jobs_known_status"),
        ),
        sa.CheckConstraint("progress >= 0 AND progress <= 1", name=op.f("ck_jobs_progress_is_share")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_jobs")),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_jobs_created_at"), "jobs", ["created_at"])
    op.create_index(op.f("ix_jobs_status"), "jobs", ["status"])


def _create_prompt_sets() -> None:
    op.create_table(
        "prompt_sets",
        *_required(sa.Integer(), "id", "row_count"),
        *_required(sa.String(), "name", "filename", "digest"),
        *_required(sa.DateTime(timezone=True), "created_at"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_prompt_sets")),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_prompt_sets_digest"), "prompt_sets", ["digest"])
    op.create_table(
        "prompt_rows",
        *_required(sa.Integer(), "prompt_set_id", "line"),
        *_required(sa.String(), "prompt"),
        *_optional(sa.String(), "reference", "group"),
        *_optional(sa.JSON(none_as_null=True), "spans"),
        _reference("prompt_rows", "prompt_set_id", "prompt_sets", "CASCADE"),
        sa.PrimaryKeyConstraint("prompt_set_id", "line", name=op.f("pk_prompt_rows")),
    )


def _create_calibrations() -> None:
    op.create_table(
        "calibration_runs",
        *_required(sa.Integer(), "id", "bin_width", "max_position", "context_count", "token_count"),
        *_required(
            sa.String(),
            "name",
            "model",
            "model_revision",
            "estimator",
            "source",
            "fingerprint_digest",
            "status",
        ),
        *_optional(sa.Integer(), "prompt_set_id", "job_id"),
        *_required(sa.Double(), "alpha", "lam"),
        *_required(sa.JSON(none_as_null=True), "fingerprint"),
        *_required(sa.LargeBinary(), "values"),
        *_optional(sa.JSON(none_as_null=True), "verification", "coverage"),
        *_required(sa.DateTime(timezone=True), "created_at"),
        *_required(sa.Boolean(), "embedded"),
        _reference("calibration_runs", "job_id", "jobs", "SET NULL"),
        _reference("calibration_runs", "prompt_set_id", "prompt_sets", "SET NULL"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_calibration_runs")),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_calibration_runs_fingerprint_digest"), "calibration_runs", ["fingerprint_digest"])
    op.create_index(op.f("ix_calibration_runs_job_id"), "calibration_runs", ["job_id"])
    op.create_index(op.f("ix_calibration_runs_prompt_set_id"), "calibration_runs", ["prompt_set_id"])
    op.create_table(
        "calibration_bins",
        *_required(sa.Integer(), "run_id", "position", "first_step", "contexts"),
        *_required(sa.Double(), "log_tau"),
        *_required(sa.String(), "state"),
        *_optional(sa.Integer(), "last_step", "rank"),
        *_optional(sa.Double(), "low", "high"),
        sa.CheckConstraint("last_step >= first_step", name=op.f("ck_calibration_bins_steps_in_order")),
        _reference("calibration_bins", "run_id", "calibration_runs", "CASCADE"),
        sa.PrimaryKeyConstraint("run_id", "position", name=op.f("pk_calibration_bins")),
    )


def _create_sessions() -> None:
    op.create_table(
        "audit_sessions",
        *_required(sa.Integer(), "id", "top_k", "max_new_tokens"),
        *_required(
            sa.String(),
            "name",
            "prompt",
            "model",
            "model_revision",
            "policy",
            "calibration_label",
            "fingerprint_digest",
            "certificate",
            "status",
        ),
        *_required(sa.JSON(none_as_null=True), "policy_settings", "fingerprint", "warnings"),
        *_optional(sa.Double(), "lam", "alpha"),
        *_required(sa.Double(), "temperature", "top_p"),
        *_optional(sa.Integer(), "calibration_id", "active_branch_id"),
        *_required(sa.Boolean(), "greedy"),
        *_required(sa.BigInteger(), "seed"),
        *_required(sa.DateTime(timezone=True), "created_at", "updated_at"),
        _reference("audit_sessions", "active_branch_id", "branches", "SET NULL", use_alter=True),
        _reference("audit_sessions", "calibration_id", "calibration_runs", "SET NULL"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_audit_sessions")),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_audit_sessions_active_branch_id"), "audit_sessions", ["active_branch_id"])
    op.create_index(op.f("ix_audit_sessions_calibration_id"), "audit_sessions", ["calibration_id"])
    op.create_index(op.f("ix_audit_sessions_updated_at"), "audit_sessions", ["updated_at"])
    op.create_table(
        "session_spans",
        *_required(sa.Integer(), "session_id", "position", "start", "end"),
        *_required(sa.String(), "category", "source", "detail"),
        *_required(sa.Boolean(), "kept"),
        sa.CheckConstraint('"end" > "start"', name=op.f("ck_session_spans_not_empty")),
        sa.CheckConstraint('"start" >= 0', name=op.f("ck_session_spans_start_in_text")),
        _reference("session_spans", "session_id", "audit_sessions", "CASCADE"),
        sa.PrimaryKeyConstraint("session_id", "position", name=op.f("pk_session_spans")),
    )


def _create_branches() -> None:
    op.create_table(
        "branches",
        *_required(sa.Integer(), "id", "session_id"),
        *_optional(sa.Integer(), "parent_id", "fork_step"),
        *_required(sa.String(), "path", "name"),
        *_required(sa.DateTime(timezone=True), "created_at"),
        *_optional(sa.String(), "finished"),
        sa.CheckConstraint("(parent_id IS NULL) = (fork_step IS NULL)", name=op.f("ck_branches_fork_has_parent")),
        sa.CheckConstraint("fork_step >= 0", name=op.f("ck_branches_fork_in_chain")),
        _reference("branches", "parent_id", "branches", "CASCADE"),
        _reference("branches", "session_id", "audit_sessions", "CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_branches")),
        sa.UniqueConstraint("session_id", "path", name=op.f("uq_branches_session_id_path")),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_branches_parent_id"), "branches", ["parent_id"])


def _create_steps() -> None:
    op.create_table(
        "steps",
        *_required(sa.Integer(), "id", "branch_id", "index", "token_id", "set_size", "policy_token_id"),
        *_required(sa.String(), "token", "policy_token", "state"),
        *_required(
            sa.Double(),
            "log_p_factual",
            "log_p_masked",
            "log_p_fused",
            "log_tau",
            "certified_mass",
            "entropy_factual",
            "entropy_masked",
            "entropy_fused",
            "kl_fused_masked",
            "sensitivity",
            "log_ratio",
            "margin",
        ),
        *_required(sa.Boolean(), "certified", "fallback", "forced"),
        *_optional(sa.Double(), "tv_on_set", "tv_bound"),
        *_required(sa.DateTime(timezone=True), "created_at"),
        sa.CheckConstraint('"index" >= 0', name=op.f("ck_steps_index_in_chain")),
        _reference("steps", "branch_id", "branches", "CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_steps")),
        sa.UniqueConstraint("branch_id", "index", name=op.f("uq_steps_branch_id_index")),
    )


def _create_candidates() -> None:
    op.create_table(
        "candidates",
        *_required(sa.Integer(), "step_id", "rank", "token_id"),
        *_required(sa.String(), "token"),
        *_required(sa.Double(), "log_p_factual", "log_p_masked", "log_p_fused"),
        *_required(sa.Boolean(), "certified"),
        _reference("candidates", "step_id", "steps", "CASCADE"),
        sa.PrimaryKeyConstraint("step_id", "rank", name=op.f("pk_candidates")),
    )


def _create_annotations() -> None:
    op.create_table(
        "annotations",
        *_required(sa.Integer(), "id", "session_id"),
        *_optional(sa.Integer(), "branch_id", "step_index"),
        *_optional(sa.String(), "verdict"),
        *_required(sa.String(), "note", "tag", "reviewer"),
        *_required(sa.DateTime(timezone=True), "created_at"),
        sa.CheckConstraint("verdict IN ('fair', 'unfair', 'unclear')", name=op.f("ck_annotations_known_verdict")),
        sa.CheckConstraint("step_index IS NULL OR branch_id IS NOT NULL", name=op.f("ck_annotations_step_has_branch")),
        _reference("annotations", "branch_id", "branches", "CASCADE"),
        _reference("annotations", "session_id", "audit_sessions", "CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_annotations")),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_annotations_branch_id"), "annotations", ["branch_id"])
    op.create_index(
        op.f("ix_annotations_session_id_branch_id_step_index"),
        "annotations",
        ["session_id", "branch_id", "step_index"],
    )
