"""Chains as a whole, contributions of spans, and what a policy costs, as the audit service gives them."""

from dataclasses import replace

import pytest

from app.audit.operations import contributions_json
from app.audit.service import AuditService
from app.bootstrap import services
from app.calibrate.service import CalibrationService
from app.shared.audits import AuditSettings, CalibrationRequest, StartAudit
from app.shared.errors import ServiceError
from coft_core.conformal.chain import certify_chain
from coft_core.decode.contributions import leave_one_out
from coft_core.errors import InvalidInputError
from coft_core.model.fake import tiny_model
from coft_core.policies.coft import CoftPolicy
from coft_core.text.detection import SpanDetector
from coft_core.types import Span
from tests.app.conftest import calibrated_on
from tests.conftest import prompt_set_csv

PROMPT = "The Muslim nurse said he would come"
SPANS = (Span(4, 10, "religion"), Span(22, 24, "gender"))
SETTINGS = AuditSettings(model="tiny", max_new_tokens=8, top_p=1.0, alpha=0.2)


@pytest.fixture(scope="module")
def wired(shared):
    return shared


def calibrated(wired, folder):
    request = CalibrationRequest(name="set", model="tiny", top_p=1.0, alpha=0.2)
    return calibrated_on(wired, folder, prompt_set_csv(40), request)


@pytest.fixture(scope="module")
def joint(wired, tmp_path_factory):
    return calibrated(wired, tmp_path_factory.mktemp("joint"))


def start(wired, **changes):
    return wired[AuditService].start(StartAudit(PROMPT, replace(SETTINGS, **changes), SPANS))


def test_certificates_of_chains_and_branches_are_the_cores_for_the_steps_so_far(wired, joint):
    session = start(wired, calibration_id=joint)
    assert session.chain is None
    reading = wired[CalibrationService].load(joint)
    for _ in range(4):
        wired[AuditService].step(session.session_id)
        view = wired[AuditService].view(session.session_id)
        assert view.chain == certify_chain(reading, view.steps)
        assert wired[AuditService].progress(session.session_id).chain == view.chain
    session = start(wired, calibration_id=joint)
    for _ in range(4):
        wired[AuditService].step(session.session_id)
    fork = wired[AuditService].fork(session.session_id, session.branch_id, 2, "x")
    assert fork.chain.steps == 3
    assert wired[AuditService].progress(session.session_id, fork.branch_id).chain == fork.chain
    assert wired[AuditService].progress(session.session_id, session.branch_id).chain.steps == 4


def test_the_certificate_of_a_reopened_chain_needs_no_model(wired, joint):
    session = start(wired, calibration_id=joint)
    list(wired[AuditService].run(session.session_id))
    now = wired[AuditService].progress(session.session_id)

    def none(name, **_):
        raise AssertionError("no model is needed to read a session")

    with services(wired.settings, loader=none) as restarted:
        assert restarted[AuditService].progress(session.session_id) == now
        assert restarted[AuditService].view(session.session_id).chain == now.chain
    assert now.finished in ("length", "end")


def test_without_a_calibration_or_with_another_policys_there_is_no_claim_for_a_chain(wired, joint):
    plain = start(wired)
    wired[AuditService].step(plain.session_id)
    assert wired[AuditService].view(plain.session_id).chain is None
    other = start(wired, calibration_id=joint, lam=0.1, proceed_uncertified=True)
    wired[AuditService].step(other.session_id)
    chain = wired[AuditService].view(other.session_id).chain
    assert (chain.sequence_certified, chain.union_certified) == (None, None)
    assert "another policy" in chain.reason


def test_contributions_are_the_cores_for_the_stored_chain(wired):
    session = start(wired)
    for _ in range(3):
        wired[AuditService].step(session.session_id)
    tokens = [step.token_id for step in wired[AuditService].view(session.session_id).steps]
    found = wired[AuditService].contributions(session.session_id)
    own = leave_one_out(
        tiny_model(), PROMPT, CoftPolicy(top_p=1.0), tokens, SPANS, detector=SpanDetector(pipeline=None)
    )
    assert [part.span for part in found.spans] == list(SPANS)
    assert found.token_ids == tuple(tokens)
    assert found.log_ratio == pytest.approx(own.log_ratio, abs=1e-5)
    for mine, theirs in zip(found.spans, own.spans, strict=True):
        assert mine.log_ratio == pytest.approx(theirs.log_ratio, abs=1e-5)
    plain = contributions_json(found)
    assert (plain["steps"], plain["token_ids"]) == ([1, 2, 3], tokens)
    for name in ("sensitivity", "log_ratio", "interaction"):
        assert plain[name] == list(getattr(found, name))
    for shown, part in zip(plain["spans"], found.spans, strict=True):
        assert (shown["start"], shown["end"], shown["category"]) == (part.span.start, part.span.end, part.span.category)
        assert (shown["sensitivity"], shown["log_ratio"]) == (list(part.sensitivity), list(part.log_ratio))


def test_contributions_need_a_token_and_the_sessions_model_but_no_calibration(wired, tmp_path):
    session = start(wired)
    with pytest.raises(InvalidInputError, match="at least one step"):
        wired[AuditService].contributions(session.session_id)
    wired[AuditService].step(session.session_id)
    with (
        services(wired.settings, loader=lambda name, **_: tiny_model(seed=1)) as changed,
        pytest.raises(ServiceError, match="other weights"),
    ):
        changed[AuditService].contributions(session.session_id)
    session = start(wired, calibration_id=(number := calibrated(wired, tmp_path)))
    wired[AuditService].step(session.session_id)
    wired[CalibrationService].delete(number)
    assert len(wired[AuditService].contributions(session.session_id).log_ratio) == 1


def test_the_cost_is_measured_against_one_branch_of_vanilla_decoding_on_the_steps_that_there_is_room_for(wired):
    for changes, branches in (({}, 2), ({"mask_layout": "factorized"}, 3), ({"policy": "vanilla"}, 2)):
        session = start(wired, **changes)
        found = wired[AuditService].overhead(session.session_id)
        assert (found.branches, found.baseline_branches) == (branches, 1)
        assert all(ratio > 0 for ratio in found.ratios)
        assert len(wired[AuditService].view(session.session_id).preview.branches) == branches
        assert wired[AuditService].view(session.session_id).steps == ()
    room = tiny_model().context_length
    view = wired[AuditService].start(StartAudit("x" * (room - 4), SETTINGS, ()))
    assert wired[AuditService].overhead(view.session_id).branches == 2
    full = wired[AuditService].start(StartAudit("x" * (room - 1), SETTINGS, ()))
    with pytest.raises(ServiceError, match="shorten"):
        wired[AuditService].overhead(full.session_id)
