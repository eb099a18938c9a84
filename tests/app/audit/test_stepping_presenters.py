"""Frames of a run, and what the page is told of it."""

import itertools

import pytest

from app.audit.handlers import frames
from app.audit.until import until_from
from app.audit.words import end_message, frame_message
from app.shared.audits import AuditSettings, ChainProgress, RunUntil
from app.shared.errors import ServiceError
from app.shared.settings_rail import FIELDS, StoredChoices, control_values, kept_settings
from app.shared.step_words import step_card
from tests.records import make_step

STEPS = [make_step(index, f" t{index}") for index in range(7)]


def test_frames_hold_every_step_once_and_the_first_comes_at_once():
    ticks = itertools.count()
    made = list(frames(iter(STEPS), seconds=3, clock=lambda: float(next(ticks))))
    assert [step for frame in made for step in frame] == STEPS
    assert len(made[0]) == 1
    assert len(made) < len(STEPS)
    assert list(frames(iter(()))) == []


def test_a_frame_names_its_place_and_the_end_the_length_so_that_a_lost_one_is_noticed():
    message = frame_message(3, 301, STEPS[2:4], ChainProgress(None))
    assert (message["session"], message["branch"], message["from"], message["done"]) == (3, 301, 2, False)
    assert [card["i"] for card in message["steps"]] == [2, 3]
    message = end_message(3, 301, ChainProgress(None), RunUntil("steps", steps=7), STEPS[-1], 7)
    assert (message["length"], message["done"], message["steps"]) == (7, True, [])
    assert "step 7" in message["why"]
    assert "length" not in end_message(3, 301, ChainProgress("length"), None, None, 0)


def test_conditions_come_from_the_browser_and_need_their_numbers():
    for given, until in (
        (None, None),
        ({"kind": "fallback", "threshold": 0.5, "steps": 20}, RunUntil("fallback")),
        ({"kind": "sensitive", "threshold": 0.7}, RunUntil("sensitive", threshold=0.7)),
        ({"kind": "steps", "steps": 3}, RunUntil("steps", steps=3)),
    ):
        assert until_from(given) == until
    for given in ({"kind": "steps", "steps": None}, {"kind": "sensitive"}):
        with pytest.raises(ServiceError, match="is missing"):
            until_from(given)


def test_a_card_says_whether_the_favourite_without_the_mask_was_refused():
    assert (step_card(make_step(12, " doctor"))["u"], step_card(make_step(5, " notes"))["u"]) == (True, False)


def test_settings_that_a_page_has_kept_come_back_and_those_of_other_fields_do_not():
    stored = StoredChoices((), (), ("gender",))
    settings = AuditSettings(lam=0.3, seed=9, calibration_id=None)
    values = control_values(settings, stored)
    again = kept_settings(values, AuditSettings())
    assert (again.lam, again.seed) == (0.3, 9)
    otherwise = AuditSettings(lam=0.9)
    assert kept_settings(values[:-1], otherwise) is otherwise
    assert kept_settings("nothing", otherwise) is otherwise
    broken = [*values]
    broken[FIELDS.index("seed")] = "many"
    assert kept_settings(broken, otherwise) is otherwise
