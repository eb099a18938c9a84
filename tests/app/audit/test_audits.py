"""The audit service: durable steps, reopening, forks, and refusals that leave nothing behind."""

import math
from dataclasses import replace

import pytest

from app.audit.service import AuditService
from app.bootstrap import services
from app.calibrate.service import CalibrationService
from app.hosting.rollouts import RolloutPool
from app.shared.audits import AuditSettings, CalibrationRequest, ReadingRequest, StartAudit
from app.shared.errors import ServiceError
from coft_core.decode.loop import Rollout
from coft_core.errors import CalibrationMismatch, InvalidInputError
from coft_core.model.fake import tiny_model
from coft_core.types import Span
from db.sessions import SessionsRepository
from db.types import CalibrationDeletedError, NotFoundError
from tests.app.conftest import calibrated_on
from tests.conftest import load_tiny, prompt_set_csv

PROMPT = "The nurse said he would come"
SPANS = (Span(15, 17, "gender"),)
SETTINGS = AuditSettings(model="tiny", max_new_tokens=7, top_p=1.0)


@pytest.fixture(scope="module")
def wired(shared):
    return shared


@pytest.fixture
def settings(shared):
    return shared.settings


@pytest.fixture
def calibrated(wired, tmp_path):
    return calibrated_on(wired, tmp_path, prompt_set_csv(), CalibrationRequest(name="set", model="tiny", top_p=1.0))


def start(wired, **changes):
    return wired[AuditService].start(StartAudit(PROMPT, replace(SETTINGS, **changes), SPANS))


def tokens(wired, session_id):
    return [step.token_id for step in wired[AuditService].view(session_id).steps]


def test_steps_are_stored_one_by_one_and_a_session_goes_on_after_a_restart_with_the_same_tokens(wired, settings):
    whole, broken = start(wired).session_id, start(wired).session_id
    list(wired[AuditService].run(whole))
    assert wired[AuditService].view(whole).finished in ("length", "end")
    step = wired[AuditService].step(broken)
    with services(settings, loader=load_tiny) as restarted:
        assert restarted[AuditService].view(broken).steps == (step,)
        while restarted[AuditService].step(broken) is not None:
            pass
    assert tokens(wired, broken) == tokens(wired, whole)
    assert wired[AuditService].view(broken).finished == wired[AuditService].view(whole).finished


def test_more_live_branches_than_the_pool_holds_change_nothing(settings):
    with services(settings.model_copy(update={"live_rollouts": 1}), loader=load_tiny) as wired:
        sessions = [start(wired).session_id for _ in range(3)]
        for session in (*sessions[:2] * 4, *sessions[2:] * 4):
            wired[AuditService].step(session)
        first, second, alone = (tokens(wired, session) for session in sessions)
        assert len(first) == 4
        assert first == second == alone


def test_pausing_ends_a_run_after_its_current_step_and_stops_no_other(wired):
    view, other = start(wired), start(wired)
    running = wired[AuditService].run(other.session_id)
    next(running)
    seen = []
    for step in wired[AuditService].run(view.session_id):
        seen.append(step)
        if len(seen) == 3:
            wired[AuditService].pause(view.session_id)
    assert len(seen) == 3
    assert wired[AuditService].view(view.session_id).finished is None
    assert next(running) is not None
    running.close()


def test_a_fork_keeps_its_parent_and_can_be_reopened(wired):
    view = start(wired)
    for _ in range(4):
        wired[AuditService].step(view.session_id)
    before = wired[AuditService].view(view.session_id)
    fork = wired[AuditService].fork(view.session_id, view.branch_id, 2, "x")
    assert [s.token for s in fork.steps] == [*(s.token for s in before.steps[:2]), "x"]
    assert fork.steps[2].forced
    assert wired[AuditService].view(view.session_id, view.branch_id).steps == before.steps
    assert wired[AuditService].view(view.session_id).branch_id == fork.branch_id
    branch = fork.branches[-1]
    assert (branch.parent_id, branch.fork_step, branch.token) == (view.branch_id, 2, "x")
    again = wired[AuditService].fork(view.session_id, view.branch_id, 2, "x")
    assert (again.branch_id, len(again.branches)) == (fork.branch_id, 2)


def test_an_impossible_fork_is_refused_and_leaves_no_branch(wired):
    view = start(wired)
    step = wired[AuditService].step(view.session_id)
    for index, token in ((99, "x"), (-1, "x"), (0, "xy"), (0, 10**6), (0, "")):
        with pytest.raises(InvalidInputError):
            wired[AuditService].fork(view.session_id, view.branch_id, index, token)
    after = wired[AuditService].view(view.session_id)
    assert len(after.branches) == 1
    assert after.steps == (step,)
    assert wired[AuditService].step(view.session_id) is not None


def test_a_certified_audit_reads_the_calibration_at_its_own_alpha(wired, calibrated):
    view = start(wired, calibration_id=calibrated, alpha=0.2)
    assert view.certificate.startswith("certified")
    step = wired[AuditService].step(view.session_id)
    read = wired[CalibrationService].view(calibrated, ReadingRequest(alpha=0.2))
    assert math.exp(step.log_tau) == pytest.approx(read.bins[0].tau)
    assert math.exp(step.log_tau) != pytest.approx(wired[CalibrationService].view(calibrated).bins[0].tau)
    assert wired[AuditService].view(view.session_id).bins == read.bins
    # A mismatch is refused without a session, and can be accepted visibly.
    before = wired[SessionsRepository].count()
    with pytest.raises(CalibrationMismatch):
        start(wired, calibration_id=calibrated, lam=0.2)
    assert wired[SessionsRepository].count() == before
    view = start(wired, calibration_id=calibrated, lam=0.2, proceed_uncertified=True)
    assert view.certificate == "uncertified: policy mismatch (lam)"
    assert not wired[AuditService].step(view.session_id).certified


def test_an_audit_whose_calibration_is_deleted_stays_readable_and_takes_no_step_and_no_fork(
    wired, settings, calibrated
):
    view = start(wired, calibration_id=calibrated)
    for _ in range(2):
        wired[AuditService].step(view.session_id)
    wired[CalibrationService].delete(calibrated)
    with services(settings, loader=load_tiny) as restarted:
        for call in (
            lambda: wired[AuditService].fork(view.session_id, view.branch_id, 1, 5),
            lambda: wired[AuditService].step(view.session_id),
            lambda: restarted[AuditService].step(view.session_id),
        ):
            with pytest.raises(CalibrationDeletedError, match="“set” has been deleted"):
                call()
    after = wired[AuditService].view(view.session_id)
    assert (len(after.steps), len(after.branches)) == (2, 1)
    assert any("deleted" in warning for warning in after.warnings)


def test_a_session_of_other_weights_is_not_continued(wired, settings):
    view = start(wired)
    wired[AuditService].step(view.session_id)
    with (
        services(settings, loader=lambda *_, **__: tiny_model(seed=1)) as changed,
        pytest.raises(ServiceError, match="other weights"),
    ):
        changed[AuditService].step(view.session_id)


def test_sessions_are_found_by_text_and_deleted_whole_and_another_sessions_branch_is_refused(wired):
    view = start(wired)
    wired[AuditService].step(view.session_id)
    assert view.session_id in [s.id for s in wired[SessionsRepository].list("nurse")]
    assert wired[SessionsRepository].list("zebra") == []
    assert wired[RolloutPool].steps(view.branch_id) is not None
    wired[AuditService].delete(view.session_id)
    assert wired[RolloutPool].steps(view.branch_id) is None
    with pytest.raises(NotFoundError):
        wired[AuditService].view(view.session_id)
    first, second = start(wired), start(wired)
    with pytest.raises(ServiceError, match="does not belong"):
        wired[AuditService].step(first.session_id, second.branch_id)


def test_a_fork_that_was_cut_off_before_its_forced_step_is_completed_when_asked_for_again(wired):
    view = start(wired)
    for _ in range(3):
        wired[AuditService].step(view.session_id)
    token = wired[AuditService].view(view.session_id).steps[1].token_id ^ 1
    wired[AuditService]._sessions.add_branch(view.session_id, view.branch_id, 1, f"0/1:{token}", name="half")
    fork = wired[AuditService].fork(view.session_id, view.branch_id, 1, token)
    assert len(fork.branches) == 2
    assert [s.forced for s in fork.steps] == [False, True]
    assert fork.steps[1].token_id == token


def test_a_fault_of_the_program_ends_one_step_with_a_sentence_and_the_audit_goes_on(wired, monkeypatch):
    whole, broken = start(wired).session_id, start(wired).session_id
    list(wired[AuditService].run(whole))
    wired[AuditService].step(broken)
    original = Rollout.step

    def fails(rollout):
        original(rollout)
        raise RuntimeError("tensors of 3 and 4 columns")

    with monkeypatch.context() as patch:
        patch.setattr(Rollout, "step", fails)
        with pytest.raises(ServiceError, match=r"RuntimeError: tensors of 3 and 4 columns"):
            wired[AuditService].step(broken)
    list(wired[AuditService].run(broken))
    assert tokens(wired, whole) == tokens(wired, broken)
