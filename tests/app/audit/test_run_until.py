"""Runs that stop at a condition: the step that meets it is the last one written, and the chain is that of any run."""

from dataclasses import replace

import pytest

from app.audit.service import AuditService, RunUntil, met, until_from, until_from_text
from app.shared.audits import AuditSettings, StartAudit
from app.shared.errors import ServiceError
from coft_core.types import Span

PROMPT = "The nurse said he would come"
SPANS = (Span(15, 17, "gender"),)
SETTINGS = AuditSettings(model="tiny", max_new_tokens=8, top_p=1.0, alpha=0.3)


def start(wired, **changes):
    return wired[AuditService].start(StartAudit(PROMPT, replace(SETTINGS, **changes), SPANS))


def test_a_run_ends_with_the_first_step_that_meets_its_condition_and_goes_on_from_there(wired, calibrated):
    whole = list(wired[AuditService].run(start(wired, calibration_id=calibrated).session_id))
    ratios = [abs(step.diagnostics.log_ratio) for step in whole]
    conditions = [
        RunUntil("steps", steps=4), RunUntil("sensitive", threshold=max(ratios[: len(ratios) // 2 + 1])),
        RunUntil("overruled"), RunUntil("fallback"),
    ]  # fmt: skip
    stopped = 0
    for until in conditions:
        session = start(wired, calibration_id=calibrated).session_id
        part = list(wired[AuditService].run(session, until=until))
        meeting = [at for at, step in enumerate(whole) if met(until, step, at + 1)]
        assert len(part) == (meeting[0] + 1 if meeting else len(whole))
        assert wired[AuditService].view(session).steps == tuple(part)
        stopped += bool(meeting)
        rest = list(wired[AuditService].run(session))
        assert [s.token_id for s in (*part, *rest)] == [s.token_id for s in whole]
    assert stopped >= 2


def test_a_condition_counts_only_steps_of_its_own_run(wired):
    session = start(wired).session_id
    list(wired[AuditService].run(session, until=RunUntil("steps", steps=3)))
    again = list(wired[AuditService].run(session, until=RunUntil("steps", steps=3)))
    assert [step.index for step in again] == [3, 4, 5]


def test_what_needs_a_threshold_or_a_number_is_refused_before_anything_is_written(wired):
    for kind in ("fallback", "overruled"):
        session = start(wired).session_id
        with pytest.raises(ServiceError, match="no threshold"):
            next(wired[AuditService].run(session, until=RunUntil(kind)))
        assert wired[AuditService].view(session).steps == ()
        assert not wired[AuditService].running(session)
    for until in (
        RunUntil("sensitive", threshold=0.0), RunUntil("sensitive", threshold=float("nan")), RunUntil("steps", steps=0),
    ):  # fmt: skip
        with pytest.raises(ServiceError, match="must be"):
            next(wired[AuditService].run(start(wired).session_id, until=until))


def test_conditions_are_read_from_text_and_from_the_browser_and_others_are_refused():
    for text, sent, until in (
        ("fallback", {"kind": "fallback", "threshold": 0.5, "steps": 20}, RunUntil("fallback")),
        ("sensitive", {"kind": "sensitive", "threshold": 0.5}, RunUntil("sensitive", threshold=0.5)),
        ("sensitive:0.75", {"kind": "sensitive", "threshold": 0.75}, RunUntil("sensitive", threshold=0.75)),
        ("overruled", {"kind": "overruled"}, RunUntil("overruled")),
        ("steps:20", {"kind": "steps", "steps": 20}, RunUntil("steps", steps=20)),
    ):
        assert until_from_text(text) == until_from(sent) == until
    assert until_from(None) is None
    for text in ("", "steps", "steps:x", "fallback:2", "sensitive:much", "end"):
        with pytest.raises(ServiceError, match="steps:20"):
            until_from_text(text)
    for sent in ({"kind": "steps", "steps": None}, {"kind": "sensitive"}):
        with pytest.raises(ServiceError, match="is missing"):
            until_from(sent)
