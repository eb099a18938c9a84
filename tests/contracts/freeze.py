"""Keeps what this version of the program shows: ``python -m tests.contracts.freeze``, after a change that is meant.

``--anew`` writes the store itself anew, on the tiny model; otherwise only what is read from it.
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from app.audit.service import AuditService
from app.batch.service import BatchRequest, BatchService
from app.calibrate.service import CalibrationService
from app.evaluate.methods import methods_from
from app.evaluate.runs import EvaluationRequest
from app.evaluate.service import EvaluationService
from app.jobs.service import JobService
from app.lists.service import UserListService
from app.report.service import ReportService
from app.review.log import VerdictRequest
from app.review.service import VerdictService
from app.shared.audits import AuditSettings, CalibrationRequest, StartAudit
from app.shared.wiring import Services
from coft_core.types import Span
from tests.conftest import prompt_set_csv
from tests.contracts.frozen import BUNDLE, SEEN, STORE, keep_store, opened, restored, written

SETTINGS = AuditSettings(model="tiny", max_new_tokens=6, top_p=1.0, alpha=0.3)
PROMPT = "=The old nurse said he would come"
SPANS = (Span(5, 8, "age"), Span(9, 14, "family", kept=True), Span(20, 22, "gender"))


def write_store(path: Path) -> None:
    """A store with something in each table that a person fills."""
    files = {"set.csv": prompt_set_csv(), "ward.csv": "term,family,action\nrounds,race,mask\nnurse,,keep\n",
             "people.csv": "prompt,group\nHe is a nurse,men\nShe is a nurse,women\n"}  # fmt: skip
    for name, text in files.items():
        (path.parent / name).write_text(text, "utf-8")
    with opened(f"sqlite:///{path}") as wired:
        prompts = wired[CalibrationService].parse(path.parent / "set.csv")
        asked = CalibrationRequest(name="set", model="tiny", top_p=1.0, alpha=0.3)
        job = wired[JobService].wait(wired[CalibrationService].submit(prompts, asked))
        assert job.status == "done", job.error
        settings = replace(SETTINGS, calibration_id=int(job.result["calibration_id"]))
        for name, own in (("certified", settings), ("vanilla", replace(SETTINGS, policy="vanilla"))):
            view = wired[AuditService].start(StartAudit(PROMPT, own, SPANS, name))
            list(wired[AuditService].run(view.session_id))
        view = wired[AuditService].view(1)
        other = next(row for row in view.steps[2].candidates if row.token_id != view.steps[2].token_id)
        fork = wired[AuditService].fork(1, view.branch_id, 2, other.token_id)
        list(wired[AuditService].run(1, fork.branch_id))
        wired[VerdictService].add(VerdictRequest(1, "R. Osei", "unfair", view.branch_id, 1, None, "why", "pronoun"))
        wired[UserListService].add("ward", wired[UserListService].parse(path.parent / "ward.csv"))
        batch = wired[BatchService].submit(
            wired[BatchService].parse(path.parent / "people.csv"),
            BatchRequest("people", replace(SETTINGS, max_new_tokens=2)),
        )
        wired[JobService].wait(wired[BatchService].view(batch).job.id)
        evaluate(wired)
        SEEN.mkdir(exist_ok=True)
        BUNDLE.write_bytes(wired[ReportService].bundle(1))


def evaluate(wired: Services) -> None:
    """An evaluation on what comes with the program."""
    methods = methods_from(("vanilla", "coft:calibrated"), replace(SETTINGS, alpha=0.5))
    request = EvaluationRequest("questions", ("phantom_questions",), methods, "tiny", (0,), 8, 0.5)
    number = wired[EvaluationService].submit(request)
    job = wired[JobService].wait(wired[EvaluationService].view(number).job.id)
    assert job.status == "done", job.error


def main() -> None:
    """Write what is kept."""
    with tempfile.TemporaryDirectory() as folder:
        if "--anew" in sys.argv:
            write_store(Path(folder) / "made.db")
            keep_store(Path(folder) / "made.db", STORE)
        for name, read in written(restored(STORE, Path(folder) / "kept.db")).items():
            (SEEN / name).write_text(read(), "utf-8", newline="")


if __name__ == "__main__":
    main()
