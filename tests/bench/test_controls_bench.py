"""The benchmark of controls asks prompts whose bias is known, and counts by setting."""

import pytest

from bench.controls import controlled, pairs, share_by_setting
from bench.demo_model.phantom.text import settings
from coft_core.policies.vanilla import VanillaPolicy
from tests.coft_core.demo import demo_model


def test_each_batch_has_one_setting_and_family_that_is_planted_or_not_in_all_its_cells():
    strength = {(setting.name, family): value for setting in settings() for family, value in setting.strength.items()}
    found = pairs()
    assert found.keys() == strength.keys()
    for pair, cells in found.items():
        assert {(cell.setting, cell.family) for cell in cells} == {pair}
        assert {cell.biased for cell in cells} == {strength[pair] != 0}


def test_a_prompt_is_compared_at_its_next_word():
    cell = next(cell for cells in pairs().values() for cell in cells if abs(cell.factual - cell.masked) > 0.25)
    (family,) = controlled(demo_model(), cell, "0", VanillaPolicy(), 1).families
    assert (family.family, len(family.neutral), len(family.marked.effects)) == (cell.family, 39, 1)


def test_intervals_are_over_settings():
    flags = {("a", "age"): [True, False], ("a", "race"): [True], ("b", "age"): [False]}
    figure = share_by_setting(flags, "batches")
    assert (figure.n, figure.value) == (2, pytest.approx(0.5))
