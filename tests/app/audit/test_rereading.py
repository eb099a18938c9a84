"""Audits read at another lambda or alpha, and continued from there, on the embedded model."""

import math
from dataclasses import replace

import pytest

from app.audit.reread import NO_ALPHA, NOT_COFT, RereadService
from app.audit.rereading import COMPUTED, RereadRequest
from app.audit.service import AuditService
from app.bootstrap import services
from app.calibrate.service import CalibrationService
from app.settings import Settings
from app.shared.audits import AuditSettings, StartAudit
from app.shared.errors import ServiceError
from coft_core.decode.loop import Rollout
from coft_core.errors import InvalidInputError
from coft_core.policies.coft import CoftPolicy
from coft_core.types import Span

PROMPT = "The nurse finished rounds and then he prepared the reports"
SPANS = (Span(35, 37, "gender"),)
LENGTH = 10


@pytest.fixture(scope="module")
def wired(tmp_path_factory):
    """All services with the embedded model; the tests of this file share them and count nothing others may add."""
    folder = tmp_path_factory.mktemp("rereading")
    with services(Settings(database_url=f"sqlite:///{folder / 'audits.sqlite3'}", device="cpu")) as opened:
        yield opened


@pytest.fixture(scope="module")
def adopted(wired):
    """Settings that the embedded calibration fits."""
    embedded = next(item for item in wired[CalibrationService].list() if item.embedded)
    plain = AuditSettings(calibration_id=embedded.id, max_new_tokens=LENGTH, seed=5)
    return wired[AuditService].adopt(plain)


def ran(wired, settings, prompt=PROMPT, spans=SPANS):
    view = wired[AuditService].start(StartAudit(prompt, settings, spans, "first"))
    list(wired[AuditService].run(view.session_id))
    return wired[AuditService].view(view.session_id)


def calibrated_at(wired, settings, lam):
    """A stored calibration of the same policy at another lambda, with values that move its thresholds."""
    stored = wired[CalibrationService].load(settings.calibration_id)
    values, own = stored.joint.values, replace(stored.fingerprint, lam=lam)
    moved = replace(values, values=values.values + math.log(0.5))
    other = stored.each(lambda part: replace(part, fingerprint=own, values=moved, chains=None))
    return wired[RereadService]._store.add(replace(other, name=f"made for {lam:g}")).id


@pytest.fixture(scope="module")
def session(wired, adopted):
    return ran(wired, adopted)


def test_a_step_read_at_another_lambda_and_alpha_equals_scoring_the_same_text_under_that_policy(
    wired, adopted, session, tmp_path
):
    lam, alpha = 0.15, 0.7
    other = calibrated_at(wired, adopted, lam)
    read = wired[RereadService].read(RereadRequest(session.session_id, lam, alpha))
    assert (read.thresholds.kind, read.thresholds.calibration_id) == ("other", other)
    assert "made for 0.15" in read.thresholds.sentence

    settings = replace(adopted, lam=lam, alpha=alpha, calibration_id=other)
    prepared = wired[AuditService]._planner.plan(wired[AuditService]._host.get("demo"), PROMPT, SPANS, settings)
    assert isinstance(prepared.policy, CoftPolicy)
    # The independent path: no stored number, every prefix run through the model, one step at a time.
    walk = Rollout(prepared)
    fresh = [walk.step(step.token_id) for step in session.steps]
    walk.close()
    assert any(row.certificate_mark for row in read.rows)
    for row, step in zip(read.rows, fresh, strict=True):
        assert row.now.certified == step.certified
        assert row.now.log_tau == step.log_tau
        assert row.now.set_size == step.set_size
        assert row.now.policy_token_id == step.policy_token_id
        assert row.now.policy_token == step.policy_token
        assert row.now.log_p_fused == pytest.approx(step.log_p_fused, abs=1e-4)


def test_at_the_audits_own_values_nothing_differs_and_without_any_the_same_is_read(wired, adopted, session):
    plain = wired[RereadService].read(RereadRequest(session.session_id))
    same = wired[RereadService].read(RereadRequest(session.session_id, adopted.lam, adopted.alpha))
    assert plain == same
    assert plain.thresholds.kind == "own"
    assert plain.certified_now == sum(step.certified for step in session.steps)
    assert not any(row.token_mark or row.certificate_mark for row in plain.rows)
    assert plain.token_sentence == "Every token would be the same."


def test_alpha_is_read_off_the_calibration_and_a_lambda_without_one_certifies_nothing(wired, adopted, session):
    for alpha in (0.02, 0.4):
        read = wired[RereadService].read(RereadRequest(session.session_id, alpha=alpha))
        thresholds = wired[CalibrationService].load(adopted.calibration_id).read(alpha=alpha)
        assert read.thresholds.kind == "own"
        assert [row.now.log_tau for row in read.rows] == [thresholds.threshold(row.index) for row in read.rows]
    with pytest.raises(InvalidInputError):
        wired[RereadService].read(RereadRequest(session.session_id, alpha=1.5))
    with pytest.raises(InvalidInputError):
        wired[RereadService].read(RereadRequest(session.session_id, lam=-0.1))
    read = wired[RereadService].read(RereadRequest(session.session_id, 0.77))
    assert read.thresholds.kind == "mismatch"
    assert read.thresholds.certificate == "uncertified: policy mismatch (lam)"
    assert read.thresholds.sentence.startswith("Uncertified at this lambda")
    assert read.certified_now == 0
    assert {row.now.state for row in read.rows} == {"mismatch"}
    warm = replace(adopted, temperature=0.8, proceed_uncertified=True, max_new_tokens=2)
    calibrated_at(wired, adopted, 0.31)
    session = ran(wired, warm)
    read = wired[RereadService].read(RereadRequest(session.session_id, 0.31))
    assert read.thresholds.kind == "mismatch"
    assert read.offers == ()


def differing(wired, session_id, branch_id=None):
    """A reading that changes a token which is neither the first nor the last one."""
    for lam in (0.0, 1.0, 0.2, 0.9, 0.05, 0.8, 0.35):
        read = wired[RereadService].read(RereadRequest(session_id, lam, branch_id=branch_id))
        if read.first is not None and 0 < read.first.index < len(read.rows) - 1:
            return read
    raise AssertionError("no lambda moves a token; choose another seed")


def test_a_new_audit_repeats_the_chain_to_the_first_step_that_differs_and_writes_the_token_of_the_reading(
    wired, adopted
):
    old = ran(wired, replace(adopted, calibration_id=None))
    read = differing(wired, old.session_id)
    *_, last = wired[RereadService].depart(RereadRequest(old.session_id, read.lam))
    made = wired[AuditService].view(last.session_id, last.branch_id)
    at = read.first.index
    assert (last.done, last.repeats, last.departs, last.written) == (True, at, at, at + 1)
    assert [step.token_id for step in made.steps[:at]] == [step.token_id for step in old.steps[:at]]
    assert made.steps[at].token_id == read.first.now.policy_token_id
    assert (made.settings.lam, made.prompt, made.spans) == (read.lam, old.prompt, old.spans)
    assert made.settings.seed == old.settings.seed
    assert f"departs at step {at + 1}" in last.sentence
    assert made.finished is None
    # What it kept can be read again: back at the old lambda it says what the old audit wrote.
    back = wired[RereadService].read(RereadRequest(last.session_id, old.settings.lam))
    assert back.rows[at].now.policy_token_id == old.steps[at].token_id


def test_a_branch_with_forced_tokens_is_repeated_with_the_same_tokens_forced(wired, adopted):
    free = replace(adopted, calibration_id=None)
    root = ran(wired, free)
    other = next(c for c in root.steps[2].candidates if c.token_id != root.steps[2].token_id)
    fork = wired[AuditService].fork(root.session_id, root.branch_id, 2, other.token_id)
    list(wired[AuditService].run(root.session_id, fork.branch_id))
    old = wired[AuditService].view(root.session_id, fork.branch_id)
    same = wired[RereadService].read(RereadRequest(root.session_id, branch_id=fork.branch_id))
    assert not any(row.token_mark or row.certificate_mark for row in same.rows)
    *_, last = wired[RereadService].depart(RereadRequest(root.session_id, branch_id=fork.branch_id))
    made = wired[AuditService].view(last.session_id, last.branch_id)
    assert last.departs is None
    assert [step.token_id for step in made.steps] == [step.token_id for step in old.steps]
    assert [step.forced for step in made.steps] == [step.forced for step in old.steps]


def test_a_new_audit_takes_the_calibration_of_the_reading_or_goes_on_knowingly_without_a_certificate(
    wired, session, adopted
):
    other = calibrated_at(wired, adopted, 0.45)
    *_, fitting = wired[RereadService].depart(RereadRequest(session.session_id, 0.45))
    made = wired[AuditService].view(fitting.session_id)
    assert (made.certificate.startswith("certified"), made.settings.calibration_id) == (True, other)
    *_, loose = wired[RereadService].depart(RereadRequest(session.session_id, 0.46))
    assert wired[AuditService].view(loose.session_id).certificate == "uncertified: policy mismatch (lam)"


def test_a_running_audit_can_be_read_at_each_step_and_holds_no_logits_that_are_stored(wired, adopted):
    view = wired[AuditService].start(StartAudit(PROMPT, replace(adopted, max_new_tokens=4), SPANS))
    assert wired[RereadService].read(RereadRequest(view.session_id, 0.2)).rows == ()
    seen = []
    for _ in wired[AuditService].run(view.session_id):
        seen.append(len(wired[RereadService].read(RereadRequest(view.session_id, 0.2)).rows))
    assert seen == list(range(1, len(wired[AuditService].view(view.session_id).steps) + 1))
    assert len(seen) > 1
    view = wired[AuditService].start(StartAudit(PROMPT, replace(adopted, max_new_tokens=3), SPANS))
    wired[AuditService].step(view.session_id)
    live = wired[AuditService]._live.steps(view.branch_id)
    assert [step.logits for step in live] == [None]


def test_an_audit_keeps_the_logits_of_all_its_steps_and_the_model_reads_again_those_without(tmp_path):
    settings = Settings(database_url=f"sqlite:///{tmp_path / 'a.sqlite3'}", device="cpu")
    audit = AuditSettings(max_new_tokens=6)
    with services(settings) as wired:
        view = wired[AuditService].start(StartAudit(PROMPT, audit, SPANS))
        wired[AuditService].step(view.session_id)
    with services(settings) as wired:
        wired[AuditService].step(view.session_id)
        read = wired[RereadService].read(RereadRequest(view.session_id, 0.1))
        assert (len(read.rows), read.computed) == (2, False)
    with services(settings.model_copy(update={"full_logits_kb": 0})) as wired:
        wired[AuditService].step(view.session_id)
        again = wired[RereadService].read(RereadRequest(view.session_id, 0.1))
        assert (len(again.rows), again.computed) == (3, True)
        for kept, computed in zip(read.rows, again.rows, strict=False):
            assert computed.now.policy_token_id == kept.now.policy_token_id
            assert computed.now.log_p_fused == pytest.approx(kept.now.log_p_fused, abs=1e-4)
        assert COMPUTED in again.summary


def test_what_cannot_be_read_says_why(wired, adopted):
    vanilla = ran(wired, AuditSettings(policy="vanilla", max_new_tokens=2))
    with pytest.raises(ServiceError) as refused:
        wired[RereadService].read(RereadRequest(vanilla.session_id, 0.2))
    assert str(refused.value) == NOT_COFT.format("Vanilla")
    free = ran(wired, replace(adopted, calibration_id=None, max_new_tokens=2))
    with pytest.raises(ServiceError) as refused:
        wired[RereadService].read(RereadRequest(free.session_id, 0.2, 0.2))
    assert str(refused.value) == NO_ALPHA
    assert wired[RereadService].read(RereadRequest(free.session_id, 0.2)).alpha is None
    with pytest.raises(ServiceError, match="does not belong"):
        wired[RereadService].read(RereadRequest(free.session_id, branch_id=vanilla.branch_id))
