"""Methods and their own parameters on the way between pages, settings and words."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from itertools import groupby

import numpy as np
import pytest

from app.shared.audits import AuditSettings, SettingsFit
from app.shared.chain_words import calibration_choices, chain_panel, misfit_lines
from app.shared.errors import ServiceError
from app.shared.json import chain_json
from app.shared.policies import KNOWN_POLICIES, own_parameters, parameters_line, policy_about, policy_name
from app.shared.policy_menu import method_facts, parameters_from, parameters_text, policies_json
from app.shared.prompt_words import branches_text
from app.shared.settings_json import settings_from_json as audit_settings
from app.shared.settings_rail import (
    FIELDS,
    StoredChoices,
    as_kept,
    calibration_note,
    control_values,
    kept_settings,
    known_policy,
    layout_from,
    method_note,
    settings_from,
    without_parameters,
)
from app.shared.step_words import hint, step_card, verdict
from coft_core.conformal.calibration import Calibration
from coft_core.conformal.chain import certify_supports
from coft_core.conformal.values import CalibrationValues
from tests.conftest import TOY_FINGERPRINT
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


def test_whole_numbers_are_written_as_a_browser_writes_them():
    assert parameters_text(SDD) == '{"policy":"sdd","values":{"descriptions":["one","two"],"decay":20}}'
    assert parameters_from("sdd", parameters_text(SDD)) == SDD.parameters


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


def test_a_method_without_certificate_says_so_whatever_calibration_was_chosen():
    shown = calibration_note(None, SettingsFit(), "gedi")
    assert "uncertified: GeDi" in shown
    assert misfit_lines(SettingsFit((("policy", "coft", "gedi"),))) == [
        "GeDi certifies nothing, so this calibration is not used."
    ]
    (line,) = misfit_lines(SettingsFit((("certified_in", "both", "factual"),)))
    assert "both readings" in line
    assert "the factual reading alone" in line


def test_calibrations_of_the_readings_that_a_method_certifies_in_come_first():
    both = SUMMARY
    factual = replace(both, id=9, name="Alone", certified_in="factual")
    found = (both, factual)
    assert [number for _, number in calibration_choices(found, policy="coft")] == [both.id, 9, 0]
    shown = calibration_choices(found, policy="coft-single-branch")
    assert [number for _, number in shown] == [9, both.id, 0]
    assert shown[1][0] == f"{both.name} (both readings)"


def test_an_address_may_ask_for_a_method_and_an_unknown_one_is_passed_over():
    assert known_policy("gedi") == "gedi"
    assert known_policy("nothing") == known_policy(None) == "coft"


def test_parameters_stand_in_words_with_those_that_differ_from_their_defaults_in_a_line():
    assert parameters_line(SDD) == "Descriptions of bias one; two, Decay 20"
    assert parameters_line(AuditSettings(policy="sdd")) == ""
    assert ("Smallest factor", "0.01", True) in own_parameters(SDD)
    facts = method_facts(SDD)
    assert facts["line"] == "Self-debiasing, Descriptions of bias one; two, Decay 20"
    assert ["Smallest factor", "0.01 (default)"] in facts["parameters"]
    assert facts["about"].endswith("Schick et al., TACL 2021.")
    assert method_facts(AuditSettings(calibration_id=1))["line"] == "COFT, λ 0.60, α 0.10"


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


def test_a_card_of_a_token_certified_as_typed_says_nothing_of_the_joint_support():
    step = make_step(1, " they")
    rows = tuple(
        replace(row, log_p_factual=-1.0 - place, log_p_masked=-9.0, log_p_fused=-9.0, certified=place < 2)
        for place, row in enumerate(step.candidates)
    )
    alone = replace(step, log_tau=-2.5, candidates=rows, certified_in="factual", state="calibrated")
    card = step_card(alone)
    assert card["a"]
    assert not step_card(step)["a"]
    assert [row["j"] for row in card["rows"]] == [row["f"] for row in card["rows"]]
    assert [row["mark"] for row in card["rows"][:3]] == ["tick", "tick", "out"]
    assert card["rows"][2]["why"] == "factual < τ"
    own_limit = replace(alone, candidates=(replace(rows[0], certified=False), *rows[1:]))
    assert step_card(own_limit)["rows"][0]["why"] == "own limit"


def test_the_panel_of_a_chain_certified_as_typed_names_that_reading():
    values = CalibrationValues(np.linspace(-3, -1, 80), np.tile(np.arange(2), 40), np.repeat(np.arange(40), 2))
    calibration = Calibration.of(TOY_FINGERPRINT, 0.1, values)
    single = certify_supports(calibration, [-1.0, -2.0], "factual")
    assert dict(chain_panel(single)["parts"][0]["rows"])["Its probability as typed"] == "0.14"
    assert "says nothing of the masked one" in chain_panel(single)["text"]
    plain = chain_json(single)
    assert (plain["certified_in"], plain["least_factual"]) == ("factual", pytest.approx(math.exp(-2.0)))
    assert "least_joint" not in plain
    both = chain_json(certify_supports(calibration, [-1.0, -2.0]))
    assert both["least_joint"] == pytest.approx(math.exp(-2.0))
    assert both.keys() & {"certified_in", "least_factual"} == set()


def test_readings_of_a_methods_own_are_counted_apart_from_the_masked_one():
    assert branches_text(("factual", "masked")) == "2 branches: as typed, and masked."
    own = branches_text(("factual", "masked", "biased 0", "biased 1"))
    assert own == "4 branches: as typed, masked, and 2 readings of the method’s own."
