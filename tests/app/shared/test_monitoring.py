"""What a server says of itself holds no text that anybody typed, and its readiness follows the store."""

from __future__ import annotations

import json
import logging
from threading import Event

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from app.audit.service import AuditService
from app.server import end_within
from app.serving.monitoring import Measured, Monitor
from app.shared.audits import AuditSettings, StartAudit
from app.shared.logs import JsonLines
from app.shared.metrics import Metrics
from coft_core.types import Span
from db.types import StoreError

SECRET = "He said the password is hunter2"


def client(wired):
    return TestClient(Measured(Starlette(routes=wired[Monitor].routes), wired[Metrics]))


def figure(text, name):
    return next(float(line.split()[-1]) for line in text.splitlines() if line.startswith(f"{name} "))


def test_stored_steps_and_jobs_are_counted_and_no_prompt_is_told(wired):
    audits = wired[AuditService]
    settings = AuditSettings(model="tiny", max_new_tokens=3, top_p=1.0)
    session = audits.start(StartAudit(SECRET, settings, (Span(0, 2, "gender"),))).session_id
    steps = list(audits.run(session))
    text = client(wired).get("/metrics").text
    assert figure(text, "coft_step_seconds_count") == len(steps)
    assert figure(text, 'coft_jobs{status="queued"}') == 0
    assert figure(text, "coft_resident_bytes") > 2**20
    assert "hunter2" not in text


def test_readiness_is_refused_without_a_store_and_at_the_end_while_the_process_lives(wired):
    asked = client(wired)
    assert asked.get("/ready").status_code == 200
    wired[Monitor].end()
    assert asked.get("/ready").status_code == 503
    wired.database.close()
    assert (asked.get("/ready").status_code, asked.get("/health").status_code) == (503, 200)


def test_neither_readiness_nor_an_audit_is_answered_once_the_log_of_the_store_is_gone(wired, tmp_path):
    asked = client(wired)
    assert asked.get("/ready").status_code == 200
    (tmp_path / "audits.sqlite3-wal").unlink()
    assert (asked.get("/ready").status_code, asked.get("/health").status_code) == (503, 200)
    with pytest.raises(StoreError):
        wired[AuditService].start(StartAudit("He said", AuditSettings(model="tiny"), (Span(0, 2, "gender"),)))


def test_a_line_of_the_log_is_json_and_quotes_neither_errors_nor_arguments():
    try:
        raise ValueError(SECRET)
    except ValueError as error:
        record = logging.LogRecord("app.x", logging.ERROR, "x.py", 1, "A fault of %s", (SECRET,), None)
        record.exc_info = (ValueError, error, error.__traceback__)
    line = JsonLines().format(record)
    told = json.loads(line)
    assert (told["level"], told["logger"], told["message"], told["error"]) == (
        "error", "app.x", "A fault of %s", "ValueError",
    )  # fmt: skip
    assert "hunter2" not in line
    assert told["where"][0].endswith("test_a_line_of_the_log_is_json_and_quotes_neither_errors_nor_arguments")
    foreign = logging.LogRecord("gradio", logging.INFO, "x.py", 1, SECRET, (), None)
    assert "hunter2" not in JsonLines().format(foreign)


def test_a_process_ends_with_whatever_is_still_at_work_in_it():
    ended, codes = Event(), []

    def end(code):
        codes.append(code)
        ended.set()

    end_within(0.0, end)
    assert ended.wait(30)
    assert codes == [0]
