"""What the page says of a chain that is read at another lambda or alpha."""

import re
from collections.abc import Mapping
from dataclasses import replace

import pytest

from app.audit.rereading import (
    Rereading,
    RereadRow,
    RereadThresholds,
    ThresholdKind,
    rereading_message,
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
