"""Frames of a run, and what the page is told of it."""

import itertools

import pytest

from app.audit.handlers import frames
from app.audit.until import RunUntil, until_from
from app.shared.audits import AuditSettings
from app.shared.errors import ServiceError
from app.shared.settings_rail import FIELDS, StoredChoices, control_values, kept_settings
from tests.records import make_step

STEPS = [make_step(index, f" t{index}") for index in range(7)]


def test_frames_hold_every_step_once_and_the_first_comes_at_once():
    ticks = itertools.count()
    made = list(frames(iter(STEPS), seconds=3, clock=lambda: float(next(ticks))))
    assert [step for frame in made for step in frame] == STEPS
    assert len(made[0]) == 1
    assert len(made) < len(STEPS)
    assert list(frames(iter(()))) == []


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
