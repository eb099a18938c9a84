"""Drift through the service: which audits count against a calibration, and in which order."""

from dataclasses import replace

import pytest

from app.audit.service import AuditService
from app.calibrate.operations import drift_json
from app.calibrate.service import CalibrationService
from app.calibrate.words import drift_foot
from app.shared.audits import AuditSettings, CalibrationRequest, StartAudit
from app.shared.calibrations import drift_of
from coft_core import audit_summary, drift_report
from db.chains import SessionBeginning, StepSupport
from tests.app.conftest import calibrated_on

SETTINGS = AuditSettings(model="tiny", max_new_tokens=9, top_p=1.0, alpha=0.2)


@pytest.fixture(scope="module")
def wired(shared):
    return shared


def calibrated(wired, folder, **changes):
    text = "prompt,reference\n" + "".join(f"He took number {i},and so on and on\n" for i in range(60))
    request = CalibrationRequest(
        name="set", model="tiny", top_p=1.0, alpha=0.2, max_new_tokens=9, max_iterations=1, verification_share=0.5,
        **changes,
    )  # fmt: skip
    return calibrated_on(wired, folder, text, request)


@pytest.fixture(scope="module")
def recorded(wired, tmp_path_factory):
    return calibrated(wired, tmp_path_factory.mktemp("rolled"), record_chains=True)


def audit(wired, prompt, **changes):
    session = wired[AuditService].start(StartAudit(prompt, replace(SETTINGS, **changes))).session_id
    list(wired[AuditService].run(session))
    return wired[AuditService].view(session)


def beginning(number, *supports, **changes):
    steps = tuple(StepSupport(False, value, value) for value in supports)
    common = {"prompt": f"p{number}", "alpha": 0.2, "greedy": False, "certificate": "certified", "group": None}
    return SessionBeginning(session_id=number, steps=steps, **{**common, **changes})


def test_audits_that_used_a_calibration_are_compared_with_its_chains(wired, recorded):
    stored = wired[CalibrationService].load(recorded)
    assert wired[CalibrationService].drift(recorded).status == "unknown"
    views = [audit(wired, f"He took number {i} home", calibration_id=recorded, seed=i) for i in range(4)]
    assert all(view.certificate.startswith("certified") for view in views)
    audit(wired, "He was audited at another level", calibration_id=recorded, alpha=0.3)
    audit(wired, "He was audited greedily", calibration_id=recorded, greedy=True)
    audit(wired, "He was audited without thresholds")
    audit(wired, "He was cut short", calibration_id=recorded, max_new_tokens=3)
    audit(wired, "He took number 1 home", calibration_id=recorded, seed=99)
    counted = [view for view in views if len(view.steps) >= 8]
    report = wired[CalibrationService].drift(recorded)
    expected = drift_report(stored, [audit_summary(view.steps) for view in counted])
    assert replace(report, reason="", left_out=()) == expected
    assert report.audits == len(counted) > 0
    assert "1 audit at another alpha than 0.2" in report.reason
    assert "1 audit greedy" in report.reason
    assert "of a prompt that was audited before" in report.reason


def test_only_audits_like_the_chains_count_and_each_prompt_once(wired, recorded):
    long, short = (-1.0,) * 8, (-1.0,) * 7
    forced = replace(beginning(6, *long), steps=(replace(beginning(6, *long).steps[0], forced=True),) * 8)
    audits = [
        beginning(1, *long), beginning(2, *long, certificate="uncertified: policy mismatch"),
        beginning(3, *long, alpha=0.1), beginning(4, *long, group="a"), beginning(5, *long, greedy=True), forced,
        beginning(7, *short, prompt="again"), beginning(8, *(-2.0,) * 8, prompt="again"),
        beginning(9, *(-3.0,) * 8, prompt="again"), beginning(10, *(-4.0,) * 8),
    ]  # fmt: skip
    stored = wired[CalibrationService].load(recorded)
    report = drift_of(stored, audits)
    assert report.p_values == drift_report(stored, [-1.0, -2.0, -4.0]).p_values
    for part in (
        "1 audit not certified by it", "1 audit at another alpha than 0.2", "1 audit with thresholds of one group",
        "1 audit greedy", "2 audits shorter than 8 tokens or with a forced token there",
        "1 audit of a prompt that was audited before",
    ):  # fmt: skip
        assert f"not counted: {part}" in report.reason
    assert [(own.session_id, own.why) for own in report.left_out] == [
        (2, "not certified by it"), (3, "at another alpha than 0.2"), (4, "with thresholds of one group"),
        (5, "greedy"), (6, "shorter than 8 tokens or with a forced token there"),
        (7, "shorter than 8 tokens or with a forced token there"), (9, "of a prompt that was audited before"),
    ]  # fmt: skip
    assert {own.prompt for own in report.left_out if own.session_id in (7, 9)} == {"again"}
    assert report.audits + len(report.left_out) == len(audits)
    plain = drift_json(report)
    assert plain["left_out"][0] == {"session_id": 2, "prompt": audits[1].prompt, "why": "not certified by it"}
    shown = drift_foot(report)
    assert "7 audits are left out" in shown
    assert '<a href="./?session=9">9</a>' in shown
