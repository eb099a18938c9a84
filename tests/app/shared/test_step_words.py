"""One wording of a step: its shape in a transcript, and the size of its set."""

from dataclasses import replace

import pytest

from app.report import words
from app.shared.step_words import set_size, shapes, step_card
from tests.records import make_step

STEP = make_step(0, " nurse")


def test_a_refused_token_in_a_borrowed_bin_is_outside_on_the_page_and_in_the_report():
    step = replace(STEP, state="inherited", certified=False, forced=True, fallback=False)
    assert "outside" in shapes(step)
    assert "inherited" not in shapes(step)
    assert step_card(step)["c"].split() == shapes(step)
    assert words.status_word(step) == "missed"


@pytest.mark.parametrize(
    ("low", "high", "text"), [(None, None, "1,204"), (1204, 1204, "1,204"), (990, 1310, "1,204 (990 to 1,310)")]
)
def test_a_set_size_is_a_range_where_tokens_stand_at_the_threshold(low, high, text):
    assert set_size(replace(STEP, set_size=1204, set_size_low=low, set_size_high=high)) == text
