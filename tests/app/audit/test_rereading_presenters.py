"""What the page says of a chain that is read at another lambda or alpha."""

import re
from collections.abc import Mapping
from dataclasses import replace

import pytest

from app.audit.rereading import (
    MOST_ROWS,
    Departure,
    Rereading,
    RereadRow,
    RereadThresholds,
    ThresholdKind,
    certificate_word,
    departure_message,
    rereading_message,
    settings_text,
)
from tests.records import make_step
from tests.story.model import STORY

OTHERS = {3: " her", 7: " nobody", 14: " them"}
"""By step: the token that would stand there."""
CERTIFICATES: Mapping[ThresholdKind, str] = {
    "own": "certified", "other": "certified", "mismatch": "uncertified: policy mismatch (lam)",
    "none": "uncertified: no calibration",
}  # fmt: skip


def reread(step, other, state):
    """A step of which nothing changes but the token and what its threshold rests on."""
    certified = state in ("calibrated", "inherited") and step.log_tau <= min(step.log_p_fused, step.log_p_masked)
    now = replace(step, state=state, certified=certified)
    return now if other is None else replace(now, policy_token_id=7, policy_token=other)


def reading(lam, kind, others=OTHERS, length=38):
    """The story as it was audited at lambda 0.6, read at another lambda."""
    state = {"mismatch": "mismatch", "none": "none"}.get(kind)
    steps = [make_step(index, word, "none" if kind == "none" else None) for index, word in enumerate(STORY[:length])]
    rows = tuple(RereadRow(step, reread(step, others.get(step.index), state or step.state)) for step in steps)
    alpha = None if kind == "none" else 0.1
    return Rereading(
        1, 3, lam, alpha, 0.6, alpha, RereadThresholds(kind, CERTIFICATES[kind], "Whose thresholds count."), rows
    )


@pytest.fixture
def found():
    return reading(0.4, "other")


def test_marks_and_rows_name_what_differs_and_nothing_else(found):
    message = rereading_message(found)
    assert [(mark["i"], mark["t"]) for mark in message["marks"]] == [(3, "other"), (7, "other"), (14, "other")]
    assert [row["would"].strip("·") for row in message["rows"]] == ["her", "nobody", "them"]
    assert message["first"] == 3
    assert re.findall(r"\d+|“.*?”", message["token"])[:5] == ["3", "38", "4", "“his”", "“her”"]
    assert message["reach"]
    assert {"3", "4"} <= set(re.findall(r"\d+", message["renewal"]))


def test_at_the_audits_own_values_or_without_thresholds_there_is_no_mark_and_no_reservation():
    message = rereading_message(reading(0.6, "own", {}))
    assert (message["marks"], message["rows"], message["reach"], message["moved"]) == ([], [], "", False)
    message = rereading_message(reading(0.4, "none", {}, length=1))
    assert (message["certificate"], message["alpha"], message["own"][1]) == ("", None, None)
    assert message["now_text"] == "λ 0.4"


def test_thresholds_that_do_not_fit_are_said_in_the_badge_the_counts_and_the_new_audit():
    message = rereading_message(reading(0.7, "mismatch", {3: " her"}))
    assert message["state"] == ("uninformative", "no threshold fits")
    assert "none of 38" in message["certificate"]
    assert "Uncertified" in message["renewal"]
    assert {row["now"] for row in message["rows"]} == {"uncertified"}
    assert {mark["c"] for mark in message["marks"]} == {""}


def test_a_forced_token_stays_and_cannot_be_forced_again(found):
    row = found.rows[3]
    forced = replace(row, then=replace(row.then, forced=True))
    message = rereading_message(replace(found, rows=(forced,)))
    assert message["rows"][0]["id"] is None
    assert message["marks"][0]["t"] == "forced"
    assert message["first"] is None
    assert "1 forced token stays" in message["token"]


def test_a_table_of_a_long_chain_is_cut_and_says_so(found):
    many = tuple(replace(found.rows[3]) for _ in range(MOST_ROWS + 7))
    message = rereading_message(replace(found, rows=many))
    assert len(message["rows"]) == MOST_ROWS
    assert message["more"].startswith("7 ")
    assert len(message["marks"]) == MOST_ROWS + 7


def test_certificates_are_named_with_what_they_rest_on_and_the_way_to_a_new_audit_counts_its_tokens():
    assert certificate_word(True, "uninformative") == "says nothing"
    assert certificate_word(True, "inherited") == "held, borrowed"
    assert certificate_word(False, "mismatch") == "uncertified"
    assert certificate_word(False, "calibrated") == "missed"
    assert settings_text(0.4, 0.1) == "λ 0.4 and α 0.1"
    told = "This audit repeats the first 3 tokens of audit 1."
    steps = [*(Departure(3, 6, written, 4) for written in (1, 2, 3, 4)), Departure(3, 6, 4, 4, True, 3, 3, told)]
    way = [departure_message(step) for step in steps]
    assert re.findall(r"\d+", way[0]["text"]) == ["2", "4"]
    assert (way[-1]["kind"], way[-1]["text"]) == ("departed", told)
