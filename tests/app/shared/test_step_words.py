"""One wording of a step: its shape in a transcript, and the size of its set."""

from dataclasses import replace

import pytest

from app.report import words
from app.shared.format import percentage
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


def test_a_share_in_a_sentence_never_reads_as_none_or_all_where_it_is_not():
    shares = {0: "0", 0.0004: "<0.1", 0.975: "97.5", 0.9999: ">99.9", 1: "100"}
    assert {share: percentage(share).partition("\N{NO-BREAK SPACE}")[0] for share in shares} == shares
