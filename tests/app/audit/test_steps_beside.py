"""Steps of many reviewers at once, and what a step asks of the store."""

from dataclasses import replace

import pytest
from sqlalchemy import event

from app.audit.live import STEPPED_ELSEWHERE
from app.audit.service import AuditService
from app.bootstrap import services as open_services
from app.shared.audits import AuditSettings, StartAudit
from app.shared.errors import ServiceError
from coft_core.types import Span
from db.sessions import SessionsRepository
from db.types import NotFoundError
from tests.app.shared.test_rollout_pool import run_all
from tests.conftest import load_tiny

SECONDS = 120
SETTINGS = AuditSettings(model="tiny", max_new_tokens=7, top_p=1.0)
PROMPTS = [f"The nurse said {'very ' * n}he would come" for n in range(8)]


def start(wired, prompt, **changes):
    at = prompt.index(" he ") + 1
    return wired[AuditService].start(StartAudit(prompt, replace(SETTINGS, **changes), (Span(at, at + 2, "gender"),)))


def chain(wired, session_id):
    view = wired[AuditService].view(session_id)
    return [(step.token_id, step.set_size, step.state) for step in view.steps], view.finished


def test_eight_reviewers_at_once_store_the_chains_that_each_would_store_alone(wired):
    settings = [{"seed": n, "policy": "vanilla" if n % 4 == 3 else "coft"} for n in range(8)]
    beside = [start(wired, prompt, **own).session_id for prompt, own in zip(PROMPTS, settings, strict=True)]
    assert not run_all(wired, beside)
    for prompt, own, session_id in zip(PROMPTS, settings, beside, strict=True):
        alone = start(wired, prompt, **own).session_id
        list(wired[AuditService].run(alone))
        assert chain(wired, session_id) == chain(wired, alone)


def test_a_step_of_a_live_chain_reads_nothing_that_is_known_however_long_it_is(wired):
    view = start(wired, PROMPTS[0])
    asked = []

    def note(_connection, _cursor, statement, *_rest):
        asked.append(" ".join(statement.split()))

    wired[AuditService].step(view.session_id, view.branch_id)
    engine = wired[AuditService]._sessions._database.engine
    event.listen(engine, "before_cursor_execute", note)
    counts = []
    for _ in range(5):
        asked.clear()
        assert wired[AuditService].step(view.session_id, view.branch_id) is not None
        counts.append(len(asked))
        # Where the step is to be stored, and nothing that is known already.
        assert len([statement for statement in asked if statement.startswith("SELECT")]) == 1
    event.remove(engine, "before_cursor_execute", note)
    assert len(set(counts)) == 1


def test_what_is_known_of_a_branch_is_asked_again_where_it_may_have_changed(wired):
    view, other = start(wired, PROMPTS[0]), start(wired, PROMPTS[1])
    wired[AuditService].step(view.session_id, view.branch_id)
    with pytest.raises(ServiceError, match="does not belong to session"):
        wired[AuditService].step(other.session_id, view.branch_id)
    assert wired[AuditService].step(view.session_id, view.branch_id).index == 1
    list(wired[AuditService].run(view.session_id, view.branch_id))
    changed = wired[AuditService].view(view.session_id)
    assert wired[AuditService].step(view.session_id, view.branch_id) is None
    assert wired[AuditService].view(view.session_id) == changed
    wired[AuditService].step(other.session_id, other.branch_id)
    wired[AuditService].delete(other.session_id)
    with pytest.raises(NotFoundError):
        wired[AuditService].step(other.session_id, other.branch_id)


def test_a_session_that_another_server_went_on_with_says_so_and_goes_on_after_a_reload(wired):
    with open_services(wired.settings, loader=load_tiny) as other:
        view = wired[AuditService].start(StartAudit("The nurse said that he", AuditSettings(model="tiny")))
        wired[AuditService].step(view.session_id)
        other[AuditService].step(view.session_id)
        with pytest.raises(ServiceError) as refused:
            wired[AuditService].step(view.session_id)
        assert str(refused.value) == STEPPED_ELSEWHERE
        wired[AuditService].step(view.session_id)
        chain = wired[SessionsRepository].chain(view.branch_id)
        assert [step.index for step in chain] == [0, 1, 2]
