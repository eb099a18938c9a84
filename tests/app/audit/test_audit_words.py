"""What the audit page says of steps, families, branches and readings, and what it must never say."""

import itertools
import math
import re
from dataclasses import replace

import pytest

from app.audit.handlers import frames
from app.audit.operations import reread_audit
from app.audit.rereading import Rereading, RereadRow, RereadThresholds, rereading_message
from app.audit.service import AuditService
from app.audit.words import (
    beside_message,
    branch_tree,
)
from app.shared.step_words import step_card
from coft_core.types import FamilyStep
from db.chains import BranchOutline
from tests.records import make_step
from tests.story.model import STORY

STATES = ("calibrated", "inherited", "uninformative", "mismatch", "none")


def of_two_families(step, state):
    """The same step as factorized masks would show it."""
    parts = (FamilyStep(name, -1.0, -1.2, -1.5, True, state) for name in ("gender", "religion"))
    return replace(step, families=tuple(parts))


def test_only_a_calibrated_threshold_is_called_certified_without_a_caveat():
    for state in [s for s in STATES if s != "calibrated"]:
        step = make_step(3, " his", state)
        card = step_card(step)
        assert {"open", "inherited"} & set(card["c"].split())
        assert not card["sr"].endswith(", threshold held")
        for each in (card, step_card(of_two_families(step, state))):
            assert each["v"][0] not in ("Threshold held:", "Thresholds held:")
            assert all(row["mark"] != "tick" for row in (*each["rows"], *each["fam"]))


def test_a_fallback_or_a_forced_token_is_never_called_certified_even_if_flagged_so():
    step = replace(make_step(12, " doctor"), certified=True)
    card = step_card(step)
    assert step.fallback
    assert card["v"][0] == "Fallback:"
    assert "fallback" in card["c"].split()
    assert "tri" in card["k"]
    step = make_step(3, " nobody", "calibrated", forced=True)
    step = replace(
        step, certified=False, log_p_masked=math.log(0.05), log_p_fused=math.log(0.055), log_tau=math.log(0.06)
    )
    card = step_card(step)
    assert card["v"][0] == "You forced a token that is not certified:"
    assert "masked 0.050 is under τ 0.06" in card["v"][1]
    assert card["k"] == ["pin", "tri"]


@pytest.mark.parametrize("masked", [("he",), ("he", "his"), tuple("abcde")], ids=len)
@pytest.mark.parametrize(("shown", "hidden"), [(0.9, 0.06), (0.06, 0.9), (0.5, 0.49)])
def test_the_headline_gives_the_probability_with_the_words_shown_before_that_with_them_masked(shown, hidden, masked):
    step = make_step(2, " filed")
    told = replace(step.diagnostics, log_ratio=math.log(shown / hidden))
    step = replace(step, log_p_factual=math.log(shown), log_p_masked=math.log(hidden), diagnostics=told)
    said = step_card(step, masked=masked)["e"]
    assert re.findall(r"0\.\d\d", said) == [f"{shown:.2f}", f"{hidden:.2f}"]
    assert re.findall("“(.*?)”", said) == list(masked[:3])
    assert ("with it masked" in said) is (len(masked) == 1)
    assert ("with them masked" in said) is (len(masked) > 1)
    assert ("2 more" in said) is (len(masked) == 5)


OTHERS = {3: " her", 7: " nobody", 14: " them"}
"""By step: the token that would stand there."""


@pytest.fixture
def found():
    """The story as it was audited at lambda 0.6, read at lambda 0.4, where three tokens would be others."""
    steps = [make_step(index, word) for index, word in enumerate(STORY)]
    others = {at: replace(steps[at], policy_token_id=7, policy_token=word) for at, word in OTHERS.items()}
    rows = tuple(RereadRow(step, others.get(at, step)) for at, step in enumerate(steps))
    rests_on = RereadThresholds("other", "certified", "Whose thresholds count.")
    return Rereading(1, 3, 0.4, 0.1, 0.6, 0.1, rests_on, rows)


def test_marks_and_rows_name_what_differs_and_nothing_else(found):
    message = rereading_message(found)
    assert [(mark["i"], mark["t"]) for mark in message["marks"]] == [(3, "other"), (7, "other"), (14, "other")]
    assert [row["would"].strip("·") for row in message["rows"]] == ["her", "nobody", "them"]
    assert message["first"] == 3
    assert re.findall(r"\d+|“.*?”", message["token"])[:5] == ["3", "38", "4", "“his”", "“her”"]
    assert message["reach"]
    assert {"3", "4"} <= set(re.findall(r"\d+", message["renewal"]))


def test_a_printed_rereading_has_its_notes_and_what_differs(found, capsys):
    reread_audit.text(replace(found, thresholds=replace(found.thresholds, notes=("few contexts",))))
    told = capsys.readouterr().out.splitlines()
    assert "Note: few contexts" in told
    changed = [
        line.split()[:3] for line in told if line.split()[2:3] and line.split()[2] in ("·her", "·nobody", "·them")
    ]
    assert [step for step, *_ in changed] == ["4", "8", "15"]


STEPS = [make_step(index, f" t{index}") for index in range(7)]


def test_frames_hold_every_step_once_and_the_first_comes_at_once():
    ticks = itertools.count()
    made = list(frames(iter(STEPS), seconds=3, clock=lambda: float(next(ticks))))
    assert [step for frame in made for step in frame] == STEPS
    assert len(made[0]) == 1
    assert len(made) < len(STEPS)
    assert list(frames(iter(()))) == []


ROOT = BranchOutline(1, None, None, None, "main", 20, "length")


def fork(number, parent, step, name="", length=9):
    return BranchOutline(number, parent, step, " he", name or " he", length)


def test_the_tree_lists_branches_before_those_that_depart_from_them_and_names_the_chain_that_wrote_a_step():
    later, earlier, inner = fork(2, 1, 8), fork(3, 1, 2), fork(4, 2, 12)
    found = branch_tree((ROOT, later, earlier, inner))
    assert [(node["id"], node["depth"]) for node in found] == [(1, 0), (3, 1), (2, 1), (4, 2)]
    parent, inner = fork(2, 1, 8), fork(3, 2, 12)
    before, at_once, after = fork(4, 3, 5), fork(5, 2, 8), fork(6, 3, 10)
    owners = {node["id"]: node["owner"] for node in branch_tree((ROOT, parent, inner, before, at_once, after))}
    assert owners == {1: None, 2: 1, 3: 2, 4: 1, 5: 1, 6: 2}


def test_two_chains_are_beside_each_other_from_the_first_token_that_differs_or_the_end_of_the_shorter(services):
    left, right = services[AuditService].view(1, 3), services[AuditService].view(1, 4)
    message = beside_message(left, right)
    assert (message["apart"], message["lead"]) == (1, "and")
    assert [line[0] for line in message["left"]["steps"]][:3] == ["he", "filed", "his"]
    assert [line[0] for line in message["right"]["steps"]] == ["the"]
    assert message["left"]["steps"][0][3] == round(left.steps[1].diagnostics.log_ratio, 4)
    assert message["left"]["text"].startswith("he filed his notes")
    message = beside_message(services[AuditService].view(1, 2), services[AuditService].view(1, 2))
    assert (message["apart"], message["left"]["steps"], message["right"]["steps"]) == (2, [], [])
