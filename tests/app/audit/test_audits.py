"""The audit service: durable steps, reopening, forks, and refusals that leave nothing behind."""

import math
from dataclasses import replace

import pytest

from app.audit.service import AuditService
from app.bootstrap import services
from app.calibrate.service import CalibrationService
from app.shared.audits import AuditSettings, ReadingRequest, StartAudit
from app.shared.errors import ServiceError
from app.shared.rollouts import RolloutPool
from coft_core.decode.loop import Rollout
from coft_core.errors import CalibrationMismatch, InvalidInputError, PromptTooLongError, SentinelError
from coft_core.types import Span
from db.sessions import SessionsRepository
from db.types import CalibrationDeletedError, NotFoundError
from tests.conftest import load_tiny

PROMPT = "The nurse said he would come"
SPANS = (Span(15, 17, "gender"),)
SETTINGS = AuditSettings(model="tiny", max_new_tokens=12, top_p=1.0)


def start(wired, **changes):
    return wired[AuditService].start(StartAudit(PROMPT, replace(SETTINGS, **changes), SPANS))


def test_a_new_session_has_no_step_and_shows_what_is_masked(wired):
    view = start(wired)
    assert view.steps == ()
    assert view.preview.masked_count == 2
    assert "".join(p.text for p in view.preview.pieces if not p.masked) == "The nurse said  would come"
    assert view.certificate == "uncertified: no calibration"


def test_detected_spans_are_used_when_none_are_given(wired):
    view = wired[AuditService].start(StartAudit(PROMPT, SETTINGS))
    assert [(s.start, s.end, s.category) for s in view.spans] == [(15, 17, "gender")]


def test_each_returned_step_is_in_the_store_before_the_next(wired, settings):
    view = start(wired)
    step = wired[AuditService].step(view.session_id)
    with services(settings, loader=load_tiny) as other:
        assert other[AuditService].view(view.session_id).steps == (step,)


def test_running_equals_stepping_and_ends_with_a_reason(wired):
    stepped, ran = start(wired), start(wired)
    while wired[AuditService].step(stepped.session_id) is not None:
        pass
    list(wired[AuditService].run(ran.session_id))
    a, b = wired[AuditService].view(stepped.session_id), wired[AuditService].view(ran.session_id)
    assert [s.token_id for s in a.steps] == [s.token_id for s in b.steps]
    assert a.finished == b.finished
    assert b.finished in ("length", "end")


def test_a_session_interrupted_by_a_restart_goes_on_with_the_same_tokens(wired, settings):
    whole = start(wired)
    list(wired[AuditService].run(whole.session_id))
    broken = start(wired)
    for _ in range(5):
        wired[AuditService].step(broken.session_id)
    with services(settings, loader=load_tiny) as restarted:
        list(restarted[AuditService].run(broken.session_id))
    tokens = [[s.token_id for s in wired[AuditService].view(v.session_id).steps] for v in (whole, broken)]
    assert tokens[0] == tokens[1]


def test_more_live_branches_than_the_pool_holds_change_nothing(tmp_path, settings):
    small = settings.model_copy(update={"live_rollouts": 1})
    with services(small, loader=load_tiny) as wired:
        first, second, alone = start(wired), start(wired), start(wired)
        for _ in range(6):
            wired[AuditService].step(first.session_id)
            wired[AuditService].step(second.session_id)
        for _ in range(6):
            wired[AuditService].step(alone.session_id)
        chains = {
            tuple(s.token_id for s in wired[AuditService].view(v.session_id).steps) for v in (first, second, alone)
        }
        assert len(chains) == 1


def test_pausing_ends_a_run_after_its_current_step(wired):
    view = start(wired)
    seen = []
    for step in wired[AuditService].run(view.session_id):
        seen.append(step)
        if len(seen) == 3:
            wired[AuditService].pause(view.session_id)
    assert len(seen) == 3
    assert wired[AuditService].view(view.session_id).finished is None


def test_pausing_one_session_does_not_stop_another(wired):
    first, second = start(wired), start(wired)
    running = wired[AuditService].run(second.session_id)
    next(running)
    wired[AuditService].pause(first.session_id)
    assert next(running) is not None


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


def test_forcing_the_same_token_again_opens_the_branch_that_exists(wired):
    view = start(wired)
    wired[AuditService].step(view.session_id)
    first = wired[AuditService].fork(view.session_id, view.branch_id, 0, "x")
    second = wired[AuditService].fork(view.session_id, view.branch_id, 0, "x")
    assert first.branch_id == second.branch_id
    assert len(second.branches) == 2


@pytest.mark.parametrize(("index", "token"), [(99, "x"), (-1, "x"), (0, "xy"), (0, 10**6), (0, "")])
def test_an_impossible_fork_is_refused_and_leaves_no_branch(wired, index, token):
    view = start(wired)
    step = wired[AuditService].step(view.session_id)
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


def test_a_mismatch_is_refused_without_a_session_and_can_be_accepted_visibly(wired, calibrated):
    with pytest.raises(CalibrationMismatch):
        start(wired, calibration_id=calibrated, lam=0.2)
    assert wired[SessionsRepository].list() == []
    view = start(wired, calibration_id=calibrated, lam=0.2, proceed_uncertified=True)
    assert view.certificate == "uncertified: policy mismatch (lam)"
    assert not wired[AuditService].step(view.session_id).certified


def test_deleting_a_calibration_keeps_the_session_readable_and_says_why_it_cannot_go_on(wired, settings, calibrated):
    view = start(wired, calibration_id=calibrated)
    wired[AuditService].step(view.session_id)
    wired[CalibrationService].delete(calibrated)
    after = wired[AuditService].view(view.session_id)
    assert len(after.steps) == 1
    assert any("deleted" in warning for warning in after.warnings)
    with (
        services(settings, loader=load_tiny) as restarted,
        pytest.raises(CalibrationDeletedError, match="cannot be continued"),
    ):
        restarted[AuditService].step(view.session_id)


def test_a_session_of_other_weights_is_not_continued(wired, settings):
    view = start(wired)
    wired[AuditService].step(view.session_id)

    def other(name, **_):
        from coft_core.model.fake import tiny_model

        return tiny_model(seed=1)

    with services(settings, loader=other) as changed, pytest.raises(ServiceError, match="other weights"):
        changed[AuditService].step(view.session_id)


@pytest.mark.parametrize(
    ("prompt", "changes", "spans", "error"),
    [
        ("  ", {}, (), InvalidInputError),
        ("x" * 300, {}, (), PromptTooLongError),
        ("he", {"lam": 2.0}, (), InvalidInputError),
        ("he", {"temperature": 0.0}, (), InvalidInputError),
        ("he", {"max_new_tokens": 0}, (), InvalidInputError),
        ("he", {"policy": "none"}, (), ServiceError),
        ("he", {"sentinel": "two words"}, (), SentinelError),
        ("he", {"calibration_id": 77}, (), NotFoundError),
        ("he", {}, (Span(0, 9, "gender"),), InvalidInputError),
    ],
)
def test_a_refused_start_leaves_no_session(wired, prompt, changes, spans, error):
    with pytest.raises(error):
        wired[AuditService].start(StartAudit(prompt, replace(SETTINGS, **changes), spans))
    assert wired[SessionsRepository].list() == []


def test_the_preview_warns_when_nothing_is_masked(wired):
    preview = wired[AuditService].preview(PROMPT, (), SETTINGS)
    assert preview.masked_count == 0
    assert "equal" in preview.warnings[0]


def test_sessions_are_found_by_text_and_deleted_whole(wired):
    view = start(wired)
    wired[AuditService].step(view.session_id)
    assert [s.id for s in wired[SessionsRepository].list("nurse")] == [view.session_id]
    assert wired[SessionsRepository].list("zebra") == []
    assert wired[RolloutPool].steps(view.branch_id) is not None
    wired[AuditService].delete(view.session_id)
    assert wired[RolloutPool].steps(view.branch_id) is None
    with pytest.raises(NotFoundError):
        wired[AuditService].view(view.session_id)


def test_a_branch_of_another_session_is_refused(wired):
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


def test_an_audit_whose_calibration_is_deleted_takes_no_step_and_no_fork_though_it_is_live(wired, calibrated):
    view = start(wired, calibration_id=calibrated)
    wired[AuditService].step(view.session_id)
    wired[AuditService].step(view.session_id)
    wired[CalibrationService].delete(calibrated)
    for call in (
        lambda: wired[AuditService].fork(view.session_id, view.branch_id, 1, 5),
        lambda: wired[AuditService].step(view.session_id),
    ):
        with pytest.raises(CalibrationDeletedError, match="“set” has been deleted"):
            call()
    assert len(wired[AuditService].view(view.session_id).steps) == 2
    assert len(wired[AuditService].view(view.session_id).branches) == 1


def test_a_fault_of_the_program_ends_one_step_with_a_sentence_and_the_audit_goes_on(wired, monkeypatch):
    whole, broken = start(wired), start(wired)
    list(wired[AuditService].run(whole.session_id))
    wired[AuditService].step(broken.session_id)

    original = Rollout.step

    def fails(rollout):
        original(rollout)
        raise RuntimeError("tensors of 3 and 4 columns")

    with monkeypatch.context() as patch:
        patch.setattr(Rollout, "step", fails)
        with pytest.raises(ServiceError, match=r"does not know \(RuntimeError: tensors of 3 and 4 columns\)"):
            wired[AuditService].step(broken.session_id)
    list(wired[AuditService].run(broken.session_id))
    chains = [wired[AuditService].view(view.session_id).steps for view in (whole, broken)]
    assert [s.token_id for s in chains[0]] == [s.token_id for s in chains[1]]
