"""Every registered method through the services: its parameters, its calibration, and its stored session."""

import json
from dataclasses import replace

import pytest

from app.audit.service import AuditService
from app.calibrate.service import CalibrationService
from app.shared.audits import AuditSettings, CalibrationRequest, StartAudit, settings_from_json
from app.shared.errors import ServiceError
from app.shared.policies import KNOWN_POLICIES, fitted, parameter_values, policy_info
from coft_core.errors import CalibrationMismatch
from coft_core.policies.registry import METHODS
from tests.app.conftest import calibrated_on
from tests.conftest import prompt_set_csv

PROMPT = "The nurse said that he was late,"
TINY = AuditSettings(model="tiny", max_new_tokens=3)
NEEDS_FILES = {
    "cda": {"checkpoint": "tiny"},
    "adv_lm_head": {"checkpoint": "tiny"},
    "dexperts": {"expert": "tiny", "anti_expert": "tiny"},
}


@pytest.fixture(scope="module")
def wired(shared):
    return shared


@pytest.fixture(scope="module")
def factual(wired, tmp_path_factory):
    """A calibration of the factual reading alone."""
    request = CalibrationRequest(name="factual", model="tiny", certified_in="factual", alpha=0.2)
    return calibrated_on(wired, tmp_path_factory.mktemp("set"), prompt_set_csv(60), request)


def test_pages_know_every_registered_method_and_factorized_masks_belong_to_coft():
    assert {item.key for item in KNOWN_POLICIES} == {own.name for own in METHODS} - {"coft-factorized"}
    assert policy_info("coft").layouts == ("joint", "factorized")
    assert [item.key for item in KNOWN_POLICIES][:2] == ["coft", "vanilla"]


def test_raw_values_become_typed_parameters_and_defaults_are_left_out():
    given = {"descriptions": "rude\n\nunfair ", "decay": "20", "floor": 0.01}
    assert parameter_values(policy_info("sdd"), given) == (("descriptions", ("rude", "unfair")), ("decay", 20.0))
    assert parameter_values(policy_info("iti"), {"heads": "4.0", "directions": " "}) == (("heads", 4),)


def test_a_value_that_a_parameter_cannot_take_is_named():
    for policy, given, named in (
        ("sdd", {"decay": "strong"}, "'strong'.* 0 to 500"),
        ("sdd", {"decay": 501}, "501.0.* 0 to 500"),
        ("iti", {"heads": "2.5"}, "2.5.* whole number.* 1 to 4096"),
        ("contrastive", {"against": "nobody"}, "masked or amateur"),
        ("vanilla", {"decay": 1}, "none of its own"),
    ):
        with pytest.raises(ServiceError, match=named):
            parameter_values(policy_info(policy), given)


def test_changing_the_policy_drops_what_it_does_not_have():
    settings = replace(TINY, policy="sdd", parameters=(("decay", 3.0),), calibration_id=None)
    assert fitted(settings, "sdd").parameters == (("decay", 3.0),)
    assert fitted(settings, "gedi").parameters == ()
    calibrated = replace(TINY, calibration_id=7, group="a", mask_layout="factorized")
    assert fitted(calibrated, "vanilla") == replace(TINY, policy="vanilla")
    assert fitted(calibrated, "dtcd").calibration_id is None
    assert fitted(calibrated, "coft-no-fusion").calibration_id is None
    assert fitted(replace(calibrated, lam=0.0), "coft-no-fusion").calibration_id == 7
    assert fitted(TINY, "coft-factorized") == replace(TINY, mask_layout="factorized")


@pytest.mark.parametrize("policy", [item.key for item in KNOWN_POLICIES if item.key != "iti"])
def test_a_session_of_every_method_is_stored_and_goes_on_as_it_was_begun(wired, policy):
    parameters = parameter_values(policy_info(policy), NEEDS_FILES.get(policy, {}))
    started = wired[AuditService].start(StartAudit(PROMPT, replace(TINY, policy=policy, parameters=parameters)))
    first = wired[AuditService].step(started.session_id)
    view = wired[AuditService].view(started.session_id)
    assert view.settings.policy == policy
    assert view.settings.parameters == parameters
    assert view.steps == (first,)
    if policy not in ("coft", "coft-no-fusion"):
        assert view.certificate.startswith("uncertified")
    assert len(list(wired[AuditService].run(started.session_id))) == 2


def test_parameters_survive_the_way_through_json():
    settings = replace(TINY, policy="sdd", parameters=(("descriptions", ("rude", "unfair")), ("decay", 3.0)))
    stored = json.loads(json.dumps({"policy": "sdd", "parameters": settings.parameters}))
    assert settings_from_json(stored).parameters == settings.parameters


def test_a_calibration_of_the_factual_reading_serves_methods_of_one_branch_alone(wired, factual):
    single = replace(TINY, policy="coft-single-branch", calibration_id=factual, alpha=0.2)
    assert wired[AuditService].fit(single).differences == ()
    view = wired[AuditService].start(StartAudit(PROMPT, single))
    assert view.certificate.startswith("certified")
    joint = replace(single, policy="coft")
    assert [name for name, _, _ in wired[AuditService].fit(joint).differences] == ["certified_in"]
    with pytest.raises(CalibrationMismatch, match="method"):
        wired[AuditService].start(StartAudit(PROMPT, joint))
    assert wired[AuditService].adopt(joint).policy == "coft-single-branch"
    (listed,) = (item for item in wired[CalibrationService].list() if item.id == factual)
    assert listed.certified_in == "factual"


def test_what_thresholds_of_one_reading_cannot_have_is_refused(wired, tmp_path):
    path = tmp_path / "set.csv"
    path.write_text(prompt_set_csv(4))
    prompts = wired[CalibrationService].parse(path)
    for change, named in (
        ({"mask_layout": "factorized"}, "joint mask"), ({"source": "rollout"}, "references"),
        ({"record_chains": True}, "Drift"), ({"certified_in": "masked"}, "readings"),
    ):  # fmt: skip
        asked = replace(CalibrationRequest(name="x", model="tiny", certified_in="factual"), **change)
        with pytest.raises(ServiceError, match=named):
            wired[CalibrationService].submit(prompts, asked)
