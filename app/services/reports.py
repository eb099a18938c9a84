"""Audit reports as CSV: one row per step, RFC 4180, safe to open in a spreadsheet."""

from __future__ import annotations

import csv
import io
import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from app.services.mapping import settings_from_json, span_from, step_from
from app.services.plain import spans_text, step_numbers
from coft_core.types import Step
from db.records import AnnotationRecord, BranchRecord, SessionRecord
from db.repositories import AnnotationsRepository, SessionsRepository

COLUMNS = (
    "session_id", "step", "branch", "token_id", "token", "p_factual", "p_masked", "p_fused", "tau", "certified",
    "set_size", "certified_mass", "fallback", "chosen_by", "kl_fused_masked", "tv_bound", "verdict", "note", "model",
    "model_revision", "calibration_id", "fingerprint", "lam", "alpha", "temperature", "top_p", "seed", "spans",
    "threshold_state", "certificate", "tv_on_set", "sensitivity", "log_ratio", "policy", "policy_token", "top_k",
    "greedy", "calibration", "prompt", "warnings", "user_list", "masked_families",
)  # fmt: skip
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\0")


class ReportService:
    """Exports of stored sessions; needs no model."""

    def __init__(self, sessions: SessionsRepository, annotations: AnnotationsRepository) -> None:
        """Wire the service to the store."""
        self._sessions = sessions
        self._annotations = annotations

    def csv(self, session_id: int, branch_id: int | None = None) -> str:
        """The report of a session as CSV text.

        Steps are listed branch by branch, each stored step once; with a branch given, the whole chain of that branch
        from its first step, ancestors' steps included.

        Args:
            session_id: The session.
            branch_id: Only this branch's chain.
        """
        record = self._sessions.get(session_id)
        branches = {branch.id: branch for branch in self._sessions.branches(session_id)}
        wanted = branches if branch_id is None else {branch_id: branches[branch_id]}
        verdicts = {(a.branch_id, a.step_index): a for a in self._annotations.latest(session_id)}
        common = _common_cells(record)
        rows = []
        for branch in wanted.values():
            for stored in self._sessions.chain(branch.id):
                if branch_id is None and stored.branch_id != branch.id:
                    continue
                owner = branches[stored.branch_id or branch.id]
                annotation = verdicts.get((owner.id, stored.index))
                rows.append({**common, **_step_cells(step_from(stored), owner, annotation)})
        return to_csv(COLUMNS, rows)

    def write_csv(self, session_id: int, folder: Path) -> Path:
        """Write the report into a folder, atomically, and return its path."""
        return write_text(folder / f"coft-audit-session-{session_id}.csv", self.csv(session_id))


def to_csv(columns: Sequence[str], rows: Iterable[Mapping[str, object]]) -> str:
    """RFC 4180 text with a header row; cells that a spreadsheet would take for a formula get a leading apostrophe."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\r\n", quoting=csv.QUOTE_MINIMAL)
    writer.writerow(columns)
    for row in rows:
        writer.writerow([neutralised(row[column]) for column in columns])
    return text.getvalue()


def neutralised(value: object) -> str:
    """A cell's text, harmless in a spreadsheet."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    text = str(value)
    return f"'{text}" if text.startswith(FORMULA_STARTS) else text


def write_text(path: Path, text: str) -> Path:
    """Write UTF-8 text so that the file is either whole or not there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="", errors="replace") as file:
            file.write(text)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return path


def _common_cells(record: SessionRecord) -> dict[str, object]:
    settings = settings_from_json(record.policy_settings["settings"])
    return {
        "session_id": record.id,
        "model": record.model,
        "model_revision": record.model_revision,
        "calibration_id": settings.calibration_id if record.calibration_label else None,
        "calibration": record.calibration_label,
        "fingerprint": record.fingerprint_digest,
        "lam": record.lam,
        "alpha": record.alpha,
        "temperature": record.temperature,
        "top_p": record.top_p,
        "top_k": record.top_k,
        "greedy": record.greedy,
        "seed": record.seed,
        "spans": spans_text(tuple(span_from(span) for span in record.spans)),
        "certificate": record.certificate,
        "policy": record.policy,
        "prompt": record.prompt,
        "warnings": " ".join(record.warnings),
        "user_list": record.policy_settings.get("user_list", ""),
        "masked_families": " ".join(settings.masked_families or ()),
    }


def _step_cells(step: Step, branch: BranchRecord, annotation: AnnotationRecord | None) -> dict[str, object]:
    return {
        **step_numbers(step),
        "branch": branch.path,
        "verdict": annotation.verdict if annotation else None,
        "note": annotation.note if annotation else None,
    }
