"""Exports and background jobs without a database or a thread."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from app.report.service import SUFFIXES
from app.shared.jobs import JobView
from tests.fakes.audits import FakeAudits
from tests.fakes.data import job_view


class FakeReports:
    def __init__(self, audits: FakeAudits) -> None:
        self.audits = audits

    def csv(self, session_id: int, branch_id: int | None = None) -> str:
        view = self.audits.view(session_id, branch_id)
        lines = ["session_id,step,branch,token_id,token"]
        lines += [f"{session_id},{step.index + 1},main,{step.token_id},{step.token}" for step in view.steps]
        return "\r\n".join(lines) + "\r\n"

    def write(self, session_id: int, kind: str, folder: Path) -> Path:
        path = Path(folder) / f"audit-{session_id}{SUFFIXES[kind]}"
        content = self.csv(session_id) if kind == "csv" else f"{self.audits.view(session_id).name}: {kind}"
        path.write_text(content, "utf-8")
        return path


class FakeJobs:
    def __init__(self) -> None:
        self.stored: dict[int, JobView] = {}
        self._asked: dict[int, int] = {}
        self.hold = False

    def add(self, title: str, result: dict[str, object], status: str = "running", resumable: bool = False) -> int:
        number = len(self.stored) + 1
        self.stored[number] = job_view(
            number, "calibration", title, status, 0.1, "12 of 120 contexts", result, 140.0, resumable
        )
        return number

    def get(self, job_id: int) -> JobView:
        job = self.stored[job_id]
        self._asked[job_id] = self._asked.get(job_id, 0) + 1
        if job.status == "running" and not self.hold and self._asked[job_id] >= 2:
            job = replace(job, status="done", progress=1.0, message="finished", seconds_left=None)
        elif job.status == "running":
            more = ", round 2 of at most 4, under the thresholds of the round before" if self._asked[job_id] % 2 else ""
            job = replace(job, progress=0.5, message=f"60 of 120 contexts{more}", seconds_left=80.0)
        self.stored[job_id] = job
        return job

    def list(self, kind: str | None = None, limit: int = 20) -> tuple[JobView, ...]:
        return tuple(reversed(self.stored.values()))[:limit]

    def cancel(self, job_id: int) -> None:
        self.stored[job_id] = replace(
            self.stored[job_id], status="cancelled", message="cancelled", seconds_left=None, resumable=True
        )
