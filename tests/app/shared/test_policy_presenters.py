"""Methods and their own parameters on the way between pages, settings and words."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import groupby

import pytest

from app.shared.audits import AuditSettings
from app.shared.calibration_words import calibration_choices
from app.shared.errors import ServiceError
from app.shared.policies import (
    KNOWN_POLICIES,
    own_parameters,
    parameters_from,
    parameters_text,
    policies_json,
    policy_about,
    policy_name,
)
from app.shared.settings_json import settings_from_json as audit_settings
from app.shared.settings_rail import (
    FIELDS,
    StoredChoices,
    as_kept,
    control_values,
    kept_settings,
    layout_from,
    method_note,
    settings_from,
    without_parameters,
)
from app.shared.step_words import hint, verdict
from tests.records import SUMMARY, make_step

NOTHING = StoredChoices((), (), ("gender",))
SDD = replace(AuditSettings(policy="sdd"), parameters=(("descriptions", ("one", "two")), ("decay", 20.0)))


def controls(settings: AuditSettings, parameters: str | None = None) -> list[object]:
    values = control_values(settings, NOTHING)
    return values if parameters is None else [*values[:-1], parameters]


def test_every_method_is_on_the_menu_once_with_the_methods_of_a_kind_together():
    shown = policies_json()
    assert sorted(item["key"] for item in shown) == sorted(item.key for item in KNOWN_POLICIES)
    headings = [name for name, _ in groupby(item["group"] for item in shown)]
    assert len(headings) == len(set(headings))
    assert shown[0]["key"] == "coft"


def test_every_default_can_be_told_to_a_browser_and_is_taken_back_as_the_default():
    for item in json.loads(json.dumps(policies_json())):
        values = {own["name"]: own["default"] for own in item["parameters"]}
        assert parameters_from(item["key"], json.dumps({"policy": item["key"], "values": values})) == ()


def test_parameters_of_another_method_than_the_chosen_one_count_for_nothing():
    assert parameters_from("gedi", parameters_text(SDD)) == ()
    assert parameters_from("gedi", "") == ()


def test_what_a_method_does_not_have_is_left_out_of_its_settings():
    everything = replace(SDD, policy="coft", parameters=(), calibration_id=1, group="ward", mask_layout="factorized")
    values = control_values(everything, NOTHING)
    values[FIELDS.index("calibration_id")] = 1
    values[FIELDS.index("policy")] = "vanilla"
    made = settings_from(values)
    assert (made.calibration_id, made.group, made.mask_layout, made.parameters) == (None, None, "joint", ())
    assert layout_from(dict(zip(FIELDS, values, strict=True))) == "joint"


def test_a_value_that_cannot_be_taken_is_refused_in_one_sentence_and_holds_up_nothing_else():
    values = controls(SDD, '{"policy":"sdd","values":{"decay":"many"}}')
    with pytest.raises(ServiceError, match=r"^Decay is 'many'; give a number from 0 to 500\.$"):
        settings_from(values)
    assert settings_from(without_parameters(values)) == replace(settings_from(controls(SDD)), parameters=())
    assert method_note(values) == ""


def test_a_refused_value_is_kept_over_a_reload_as_it_was_typed_beside_the_other_settings():
    typed = '{"policy":"sdd","values":{"decay":"many"}}'
    values = controls(replace(SDD, seed=7), typed)
    kept = kept_settings(values, AuditSettings())
    assert (kept.policy, kept.seed, kept.parameters) == ("sdd", 7, ())
    assert as_kept(controls(kept), values)[-1] == typed
    assert as_kept(controls(AuditSettings()), values)[-1] == parameters_text(AuditSettings())
    assert as_kept(controls(kept), values[:-1])[-1] == parameters_text(kept)


def test_a_method_says_what_keeps_it_from_running_where_no_single_value_does():
    assert "Checkpoint is missing" in method_note(controls(AuditSettings(policy="cda")))
    assert method_note(controls(AuditSettings())) == ""


def test_calibrations_of_the_readings_that_a_method_certifies_in_come_first():
    both = SUMMARY
    factual = replace(both, id=9, name="Alone", certified_in="factual")
    found = (both, factual)
    assert [number for _, number in calibration_choices(found, policy="coft")] == [both.id, 9, 0]
    shown = calibration_choices(found, policy="coft-single-branch")
    assert [number for _, number in shown] == [9, both.id, 0]
    assert shown[1][0] == f"{both.name} (both readings)"


def test_a_stored_method_that_is_known_no_longer_keeps_its_own_name_and_parameters():
    gone = replace(AuditSettings(policy="older"), parameters=(("reach", 2),))
    assert policy_name("older") == "older"
    assert policy_about("older") == ""
    assert own_parameters(gone) == (("reach", "2", False),)
    assert control_values(gone, NOTHING)[FIELDS.index("policy")] == "older"


def test_programs_give_parameters_as_an_object_and_are_told_what_is_wrong():
    made = audit_settings({"policy": "sdd", "parameters": {"decay": "20", "descriptions": ["one", "two"]}})
    assert made.parameters == SDD.parameters
    for given, sentence in (
        ({"policy": "sdd", "parameters": [["decay", 20]]}, "must be an object"),
        ({"policy": "sdd", "parameters": {"omega": 2}}, "'sdd' has no parameter 'omega'; it has descriptions, decay"),
        ({"parameters": {"omega": 2}}, "'coft' has no parameter 'omega'; it has none of its own"),
        ({"policy": "other"}, "There is no policy 'other'"),
    ):
        with pytest.raises(ServiceError, match=sentence):
            audit_settings(given)


def test_a_token_that_only_the_reading_as_typed_certifies_is_never_called_plausible_in_both():
    step = make_step(1, " they")
    rows = tuple(replace(row, log_p_masked=-9.0, certified=row.token_id == step.token_id) for row in step.candidates)
    alone = replace(
        step, log_p_masked=-9.0, log_tau=-3.0, log_p_factual=-1.0, certified=True, candidates=rows,
        certified_in="factual",
    )  # fmt: skip
    assert verdict(alone, 2)[0] == "Threshold held as typed:"
    assert "its probability as typed, 0.37, reaches τ 0.05." in verdict(alone, 2)[1]
    assert hint(alone, 2) == "Its probability as typed, 0.37, reaches τ 0.05."
    refused = tuple(replace(row, log_p_masked=-1.0, log_p_fused=-1.0, certified=False) for row in step.candidates)
    toxic = replace(alone, log_p_masked=-1.0, log_p_fused=-1.0, certified=False, forced=True, candidates=refused)
    assert verdict(toxic, 2)[1] == "the method refuses it by a limit of its own."
    nothing = replace(alone, fallback=True, set_size=0, log_tau=-0.5, certified=False)
    assert "no token reached the threshold as typed" in verdict(nothing, 2)[1]
    assert hint(nothing, 2).startswith("The best probability as typed")
    assert "both" not in verdict(nothing, 2)[1]
