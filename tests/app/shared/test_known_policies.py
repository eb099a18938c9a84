"""Every registered method through the services: its parameters, its calibration, and its stored session."""

import json
from dataclasses import replace

import pytest

from app.audit.service import AuditService
from app.calibrate.service import CalibrationService
from app.shared.audits import AuditSettings, CalibrationRequest, StartAudit, settings_from_json
from app.shared.errors import ServiceError
from app.shared.jobs import JobService
from app.shared.policies import KNOWN_POLICIES, fitted, parameter_values, policy_info
from app.tune.runs import TuningRequest, tuning_csv
from app.tune.service import TuningService
from app.tune.words import calibrated_sentence
from coft_core.errors import CalibrationMismatch
from coft_core.policies.registry import METHODS
from coft_core.tuning.sweep import LAMS
from tests.app.conftest import calibrated_on
from tests.app.tune.test_tuning_runs import tuning_rows
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
        ({"record_chains": True}, "chains"), ({"certified_in": "masked"}, "readings"),
    ):  # fmt: skip
        asked = replace(CalibrationRequest(name="x", model="tiny", certified_in="factual"), **change)
        with pytest.raises(ServiceError, match=named):
            wired[CalibrationService].submit(prompts, asked)


def tuning_file(folder):
    path = folder / "tune.jsonl"
    path.write_text(tuning_rows())
    return path


@pytest.mark.slow
def test_a_tuning_is_kept_and_its_strengths_are_used_again(wired, tmp_path):
    tuning_set = wired[TuningService].read(tuning_file(tmp_path))
    assert (tuning_set.graded, tuning_set.pairs) == (20, 10)
    request = TuningRequest("small", ("coft", "sdd", "cda"), TINY)
    job = wired[JobService].wait(wired[TuningService].submit(tuning_set, request))
    assert job.error is None
    view = wired[TuningService].view(job.id)
    coft, sdd, cda = view.methods
    assert len(coft.points) == 9
    assert len(sdd.points) == 5
    assert "Checkpoint is missing" in cda.error
    kept = [point for point in coft.points if point.accuracy[0] >= view.floor]
    assert kept
    assert coft.best.gap[0] == min(point.gap[0] for point in kept)
    assert wired[TuningService].applied(TINY).lam == dict(coft.best.values)["lam"]
    assert wired[TuningService].tuned(TINY).run_id == job.id
    assert wired[TuningService].tuned(replace(TINY, temperature=0.7)) is None
    with pytest.raises(ServiceError, match="No finished tuning fits GeDi"):
        wired[TuningService].applied(replace(TINY, policy="gedi"))
    assert tuning_csv(view).count("\r\n") == 1 + 1 + 9 + 5 + 1


def test_coft_is_certified_at_every_lambda_where_it_is_calibrated_for_the_sweep(wired, tmp_path):
    references = tmp_path / "references.csv"
    references.write_text(prompt_set_csv(32))
    request = TuningRequest("certified", ("coft",), TINY, alphas=(0.2, 0.4))
    number = wired[TuningService].submit(wired[TuningService].read(tuning_file(tmp_path)), request, references)
    assert wired[JobService].wait(number).error is None
    view = wired[TuningService].view(number)
    (coft,) = view.methods
    assert (view.calibrated_on, view.calibration_source) == ("references.csv", "reference")
    assert calibrated_sentence(view) == "COFT calibrated on the references of references.csv at every lambda"
    assert coft.error == ""
    assert [dict(point.values) for point in coft.points] == [
        {"lam": lam, "alpha": alpha} for lam in LAMS for alpha in (0.2, 0.4)
    ]
    references.write_text("prompt,reference\nHe said,\n")
    with pytest.raises(ServiceError, match="without a reference"):
        wired[TuningService].submit(wired[TuningService].read(tuning_file(tmp_path)), request, references)


def test_a_row_that_cannot_be_tuned_on_is_named(wired, tmp_path):
    path = tuning_file(tmp_path)
    good = path.read_text()
    for line, named in (
        ('{"prompt": "", "answer": "x"}', "prompt"),
        ('{"prompt": "A man", "answer": " "}', "answer"),
        ('{"prompt": "A man", "answer": "x", "others": [1]}', "others"),
        ('{"prompt": "A man", "answer": "x", "spans": [[0, 99, "gender"]]}', "spans"),
        ('{"prompt": "A man", "answer": "x", "graded": "maybe"}', "graded"),
        ("{", "row"),
    ):
        path.write_text(f"{good}{line}\n")
        with pytest.raises(ServiceError, match=f"line 21: {named}"):
            wired[TuningService].read(path)


def test_the_set_that_comes_with_the_program_can_be_tuned_on(wired):
    (sample,) = wired[TuningService].samples()
    found = wired[TuningService].read(sample.path)
    assert len(found.items) == sample.rows == 220
    assert (found.graded, found.pairs) == (100, 60)
