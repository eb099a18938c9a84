"""What is shown of steps of which only the most likely tokens came back: never more than the bounds allow."""

import math

import pytest

from app.audit.finding import moved_words
from app.shared.bounds import bounded, is_open_ended, shown_probability
from app.shared.step_words import step_card
from coft_core.controls.measure import controls_of
from coft_core.decode.loop import generate
from coft_core.decode.plan import plan
from coft_core.model.fake import tiny_model, with_most_likely_only
from coft_core.policies.coft import CoftPolicy
from coft_core.types import Span

PROMPT, SPANS = "The old nurse said he would come", (Span(19, 21, "gender"),)


@pytest.fixture(scope="module")
def chains():
    """The same text from all tokens, and from the 12 most likely ones of each step."""
    whole, cut = tiny_model(), with_most_likely_only(tiny_model(), 12)
    policy = CoftPolicy(top_p=1.0, top_k=3)
    return [generate(model, PROMPT, policy, SPANS, max_new_tokens=20, greedy=True).steps for model in (whole, cut)]


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [(0.312, 0.312, "0.31"), (0.3101, 0.3149, "0.31"), (0.312, 0.337, "0.31–0.34"), (0, 0.0121, "≤ 0.02")],
)  # fmt: skip
def test_a_bound_is_rounded_to_its_safe_side(low, high, text):
    assert bounded(math.log(low) if low else -math.inf, math.log(high), 2) == text


def test_nothing_that_is_shown_exceeds_what_all_tokens_say(chains):
    whole, cut = chains
    bounds = 0
    for step, known in zip(whole, cut, strict=False):
        if step.token_id != known.token_id:
            break
        truth = {row.token_id: row for row in step.candidates}
        assert abs(known.diagnostics.log_ratio) <= abs(step.diagnostics.log_ratio) + 1e-5
        for word in moved_words(known):
            if (row := truth.get(word.token_id)) is not None:
                assert abs(word.moved) <= abs(math.exp(row.log_p_factual) - math.exp(row.log_p_masked)) + 1e-5
        for row in known.candidates:
            for view in row.at_most:
                bounds += 1
                assert shown_probability(known, row, view, 3).startswith(("≤", "<"))
        assert "12 most likely tokens" in step_card(known)["d"]
        assert step_card(step)["d"] == ""
        assert not is_open_ended(known)
    assert bounds > 20


def test_words_move_no_less_than_their_controls_say():
    rows = []
    for model in (tiny_model(), with_most_likely_only(tiny_model(), 100)):
        planned = plan(model, PROMPT, CoftPolicy(), SPANS)
        found = controls_of(planned, (5, 80, 9), neutral=0)
        rows.append([values for family in found.families for values in (family.marked, *family.others)])
    for whole, cut in zip(*rows, strict=True):
        assert sum(cut.effects) > 0
        assert all(least <= effect + 1e-5 for least, effect in zip(cut.effects, whole.effects, strict=True))
        assert all(
            abs(least) <= abs(ratio) + 1e-3 for least, ratio in zip(cut.log_ratios, whole.log_ratios, strict=True)
        )
