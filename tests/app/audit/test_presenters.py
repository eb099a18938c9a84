"""The wording of a step: what each state says, and what it must never say."""

import math
import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.audit.branch_words import crumbs
from app.audit.service import AuditService
from app.audit.words import bin_verdict, session_message
from app.shared.charts import PALETTES, support_histogram, template
from app.shared.prompt_words import spans_from
from app.shared.step_words import (
    digits_for,
    probability,
    shapes,
    shown_token,
    signed,
    step_card,
    threshold,
    times_likelier,
)
from coft_core.conformal.bins import Bin
from coft_core.effects import masked_words
from coft_core.types import Span
from tests.records import make_step, position_bins

STATES = ("calibrated", "inherited", "uninformative", "mismatch", "none")


def test_only_a_calibrated_threshold_is_called_certified_without_a_caveat():
    for state in [s for s in STATES if s != "calibrated"]:
        card = step_card(make_step(3, " his", state))
        assert card["v"][0] != "Threshold held:"
        assert all(row["mark"] != "tick" for row in card["rows"])
        assert {"open", "inherited"} & set(card["c"].split())
        assert not card["sr"].endswith(", threshold held")


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


def test_sensitive_begins_at_one_half_in_both_directions():
    for ratio, sensitive in ((0.5, True), (-0.5, True), (0.499, False), (-0.499, False)):
        step = make_step(2, " filed")
        step = replace(step, diagnostics=replace(step.diagnostics, log_ratio=ratio))
        assert ("sensitive" in shapes(step)) is sensitive
        assert step_card(step)["n"] is (ratio < 0)


def test_a_bound_above_one_is_left_out():
    step = make_step(2, " filed")
    low = replace(step, diagnostics=replace(step.diagnostics, tv_bound=0.4))
    assert "bound" not in step_card(step)["facts"][1][2]
    assert "at most 0.40 by its bound" in step_card(low)["facts"][1][2]


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


def test_a_word_that_is_masked_twice_is_named_once_and_without_any_the_headline_has_no_figure():
    prompt = "He said he and she left"
    spans = [Span(0, 2, "gender"), Span(8, 10, "gender"), replace(Span(15, 18, "gender"), kept=True)]
    assert masked_words(prompt, spans) == ("He",)
    assert not re.search(r"\d", step_card(make_step(2, " filed"), masked=())["e"])


def test_the_reason_against_a_candidate_names_each_view_under_the_threshold():
    step = make_step(2, " filed")
    tau = math.exp(step.log_tau)
    rows = {row["t"]: row for row in step_card(step)["rows"]}
    for candidate in step.candidates:
        short = [n for n in ("masked", "fused") if math.exp(getattr(candidate, f"log_p_{n}")) < tau]
        expected = "certified" if not short else f"{'both' if len(short) == 2 else short[0]} < τ"
        assert rows[candidate.token]["why"] == expected


@settings(max_examples=40)
@given(st.lists(st.floats(1e-6, 0.999), min_size=1, max_size=8), st.floats(1e-3, 0.5))
def test_shown_digits_never_reverse_a_comparison_with_the_threshold(values, tau):
    digits = digits_for(values, tau)
    if digits < 4:
        assert all((round(v, digits) >= round(tau, digits)) == (v >= tau) for v in values)


@settings(max_examples=40)
@given(st.floats(1e-9, 1.0), st.integers(2, 4))
def test_a_positive_probability_never_reads_as_zero(value, digits):
    assert probability(value, digits).strip("<0.") or probability(value, digits).startswith("<")


def test_numbers_and_blank_tokens_keep_what_they_say():
    assert signed(0.89) == "+0.89"
    assert signed(-0.12) == "\N{MINUS SIGN}0.12"
    assert signed(0.001) == "0.00"
    assert threshold(0.06) == "0.06"
    assert threshold(0.0047) == "0.0047"
    assert threshold(0.0) == "none"
    assert [re.findall(r"[\d.]+|visible|masked", times_likelier(ratio)) for ratio in (0.89, -0.89)] == [
        ["2.4", "visible"],
        ["2.4", "masked"],
    ]
    assert shown_token(" he") == "he"
    assert shown_token("\n") == "↵"
    assert shown_token(" ") == "␣"


def test_bins_word_the_verdict_of_their_tokens_and_one_without_rank_draws_no_coverage():
    uninformative, inherited = position_bins()[3:5]
    assert re.findall(r"\d+", " ".join(bin_verdict(uninformative))) == ["6", "9"]
    assert re.findall(r"\d+", " ".join(bin_verdict(inherited))) == ["33", "17", "24"]
    assert bin_verdict(position_bins()[0]) is None
    bare = Bin(0, 0, 7, "uninformative", -math.inf, 3, 3, 0, needed=9)
    assert re.findall(r"\d+", bin_verdict(bare)[1]) == ["3", "9"]


def test_a_session_message_can_begin_at_any_step_and_warns_where_nothing_is_certified(services):
    view = services[AuditService].view(1)
    whole, tail = session_message(view), session_message(view, 30)
    assert [card["i"] for card in tail["steps"]] == list(range(30, 38))
    assert whole["steps"][30:] == tail["steps"]
    assert session_message(services[AuditService].view(2))["warnings"][0] == "Uncertified: no calibration."
    assert not any("Uncertified" in warning for warning in session_message(services[AuditService].view(1))["warnings"])


def test_crumbs_lead_from_the_root_to_the_branch_with_its_siblings(services):
    found = crumbs(services[AuditService].view(1))
    assert [node["token"] for node in found["path"]] == ["main", "and", "he"]
    assert [node["token"] for node in found["siblings"]] == ["the"]
    parent = crumbs(services[AuditService].view(1, found["parent"]))
    assert {node["token"] for node in parent["children"]} == {"he", "the"}


def test_spans_from_the_browser_keep_every_field():
    sent = [{"start": 5, "end": 7, "category": "age", "source": "user", "detail": "x", "kept": True}]
    (span,) = spans_from(sent)
    assert (span.start, span.end, span.category, span.source, span.detail, span.kept) == (
        5, 7, "age", "user", "x", True,
    )  # fmt: skip
    assert spans_from(None) is None
    assert spans_from([]) == ()


def test_candidates_are_told_apart_by_shape_and_the_histogram_counts_every_value_once():
    bars = template("light")["data"]["bar"]
    assert bars[1]["marker"]["pattern"]["shape"] == "/"
    assert bars[0]["marker"]["color"] == PALETTES["light"]["surface"]
    assert bars[2]["marker"]["color"] == PALETTES["light"]["accent"]
    assert template("light")["layout"]["font"]["size"] == template("dark")["layout"]["font"]["size"] == 11
    values = [math.log(p) for p in (0.001, 0.02, 0.05, 0.07, 0.5, 0.9)]
    figure = support_histogram(values, 0.06, "0.06")
    assert sum(sum(trace.y) for trace in figure.data if trace.y) == len(values)
    assert "3 fall below" in figure.layout.annotations[0].text
