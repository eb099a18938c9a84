"""How an audit's steps were computed is stored with it, and stands on its page and in its reports."""

import pytest

from app.audit import live
from app.audit.service import AuditService
from app.shared import kept_steps
from app.shared.audits import AuditSettings, StartAudit
from coft_core.model.compiled import StepPath
from coft_core.model.noise import BOUNDS
from coft_core.types import Span

PROMPT = "The nurse said he would come"
SPANS = (Span(15, 17, "gender"),)
SETTINGS = AuditSettings(model="tiny", max_new_tokens=4, top_p=1.0)


@pytest.fixture
def audit(wired):
    return wired[AuditService].start(StartAudit(PROMPT, SETTINGS, SPANS)).session_id


def stored(wired, session_id):
    return wired[AuditService].view(session_id).computed


def test_nothing_is_said_before_the_first_step_and_each_way_is_said_once(wired, audit, monkeypatch):
    assert stored(wired, audit) == ()
    waits, runs = StepPath("eager", "not yet"), StepPath("traced")
    for path in (waits, waits, runs, runs):
        monkeypatch.setattr(live, "path_of", lambda model, path=path: path)
        monkeypatch.setattr(kept_steps, "path_text", lambda model, path=path: path.text)
        wired[AuditService].step(audit)
    first, second = stored(wired, audit)
    assert (first.steps, second.steps) == ("eager: not yet", "traced")
    assert first.dtype == "float32"
    assert first.numeric_noise == BOUNDS["float32"]
    assert [item.kind for item in first.memory] == ["slots"]
    assert wired[AuditService].progress(audit).computed == (first, second)
