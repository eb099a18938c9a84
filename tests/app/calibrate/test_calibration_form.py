"""The calibrate page's form in plain values."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.calibrate.form import (
    BOXES,
    FIELDS,
    SHARES,
    applicable,
    calibration_request,
    equal_shares,
    shares_line,
)  # fmt: skip
from app.calibrate.operations import calibration_request as request_from_json
from app.shared.audits import CalibrationRequest
from app.shared.errors import ServiceError
from app.shared.settings_json import columns_of
from coft_core.types import FAMILIES

USUAL = CalibrationRequest(name="")
MASKED = ("gender", "race", "age")


def form(**changed: Any) -> dict[str, Any]:
    """The form as it first stands, with some fields changed."""
    usual = {name: getattr(USUAL, name) for name in FIELDS if hasattr(USUAL, name)}
    own = {
        "layout": "joint", "family": "gender", "split": "equal", "shift": "none", "deployment": None,
        "masked_families": list(MASKED), "mask_hint": "", "sentinel": "", "whitelist": "", "user_list_id": 0,
    }  # fmt: skip
    return {**usual, **dict.fromkeys(SHARES, 0.01), **own, **changed}


def request(**changed: Any) -> CalibrationRequest:
    return calibration_request(form(**changed), "notes", False, ("The sailor said",))


def test_the_untouched_form_asks_for_what_is_usual_and_fields_that_do_not_apply_leave_no_trace():
    assert request() == CalibrationRequest(name="notes", masked_families=MASKED)
    hidden = {"rho": 3.0, "draws": 9, "mask_hint": "someone", "share_gender": 0.5, "record_chains": False}
    assert request(**hidden) == request()
    made = request(prompt_format="plain", chat_date=" 2026-03-02 ")
    assert (made.prompt_format, made.chat_date) == ("plain", "2026-03-02")


def test_a_choice_brings_its_own_fields_and_every_part_of_the_form_has_a_rule():
    assert tuple(applicable(form())) == BOXES
    plain = {name for name, applies in applicable(form()).items() if applies}
    for changed, shown in (
        ({"source": "rollout"}, {"rollouts", "length"}), ({"record_chains": True}, {"length"}),
        ({"layout": "single"}, {"one_family"}), ({"layout": "factorized"}, {"split"}),
        ({"mask_mode": "soft"}, {"hint"}), ({"estimator": "one_per_context"}, {"draws"}),
        ({"shift": "rho"}, {"rho"}), ({"shift": "column"}, {"column"}), ({"shift": "estimated"}, {"deployment"}),
    ):  # fmt: skip
        assert {name for name, applies in applicable(form(**changed)).items() if applies} - plain == shown, changed


def test_shares_by_hand_are_those_of_the_masked_families():
    made = request(layout="factorized", split="hand", share_age=0.05)
    assert made.alpha_by_family == (("gender", 0.01), ("race", 0.01), ("age", 0.05))
    assert request(layout="factorized").alpha_by_family is None


@given(st.integers(1, 999), st.integers(1, len(FAMILIES)))
def test_equal_shares_never_sum_to_more_than_alpha(thousandths, count):
    alpha = thousandths / 1000
    share = equal_shares(alpha, FAMILIES[:count])[0]
    assert Decimal(str(share)) * count <= Decimal(str(alpha))
    assert share > 0


def test_the_sum_of_shares_is_exact_and_says_when_it_is_too_much():
    by_hand = {"layout": "factorized", "split": "hand", "share_gender": 0.05, "share_race": 0.03, "share_age": 0.02}
    assert "sum to 0.1 of alpha 0.10" in shares_line(form(**by_hand))
    assert "sum to 0.101, more than alpha 0.10" in shares_line(form(**{**by_hand, "share_age": 0.021}))
    assert shares_line(form()) == ""


def test_chains_are_not_recorded_under_weights_and_estimated_ones_carry_the_prompts_in_use():
    assert request(record_chains=True).record_chains
    assert not request(record_chains=True, shift="column").record_chains
    assert not request(record_chains=True, source="rollout").record_chains
    assert request(shift="estimated").deployment == ("The sailor said",)
    assert request().deployment == ()


def test_json_settings_may_name_columns_and_shares():
    given = {"columns": {"prompt": "question"}, "alpha_by_family": {"gender": 0.05}, "deployment": ["a", "b"]}
    assert request_from_json("n", given).alpha_by_family == (("gender", 0.05),)
    assert request_from_json("n", {"alpha_by_family": [["gender", 0.05]]}).alpha_by_family == (("gender", 0.05),)
    assert request_from_json("n", given).deployment == ("a", "b")
    assert columns_of(given) == {"prompt": "question"}
    assert columns_of(None) is None
    with pytest.raises(ServiceError, match="columns"):
        columns_of({"columns": "question"})
