"""What the audit page says of steps, families, branches and readings, and what it must never say."""

import itertools
import math
import re
from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.audit.handlers import frames
from app.audit.panel import LOADING_PHASES, SettingsHandlers
from app.audit.rereading import Rereading, RereadRow, RereadThresholds, ThresholdKind, rereading_message
from app.audit.service import AuditService
from app.audit.words import (
    beside_message,
    branch_tree,
    contributions_message,
    crumbs,
    no_chain,
    session_message,
    steps_message,
    tree_message,
)
from app.shared.format import digits_for, probability
from app.shared.step_words import shapes, step_card
from coft_core.decode.contributions import LeaveOneOut, SpanContribution
from coft_core.model.loading import LoadingPhase
from coft_core.types import FamilyStep, Span
from db.chains import BranchOutline
from tests.records import make_step
from tests.story.model import STORY

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


def test_a_session_message_can_begin_at_any_step_and_warns_where_nothing_is_certified(services):
    view = services[AuditService].view(1)
    whole, tail = session_message(view), session_message(view, 30)
    assert [card["i"] for card in tail["steps"]] == list(range(30, 38))
    assert whole["steps"][30:] == tail["steps"]
    assert session_message(services[AuditService].view(2))["warnings"][0] == "Uncertified: no calibration."
    assert not any("Uncertified" in warning for warning in session_message(services[AuditService].view(1))["warnings"])


FAMILIES = ("gender", "religion")
SHIFTS = (0.72, 1.2, 0.95)
"""What masking each family in turn does to the masked probability."""


def with_families(step, families):
    """The same step as factorized masks would show it."""
    taus = [math.exp(step.log_tau) * (1.0 - 0.25 * (place % 3)) for place in range(len(families))]

    def joint(candidate, place):
        return min(candidate.log_p_fused, candidate.log_p_masked + math.log(SHIFTS[place % 3]))

    def refusing(candidate):
        return tuple(name for place, name in enumerate(families) if math.exp(joint(candidate, place)) < taus[place])

    applied = step.state != "none"
    rows = tuple(
        replace(row, refused_by=refusing(row) if applied else (), certified=applied and not refusing(row))
        for row in step.candidates
    )
    own = next(row for row in rows if row.token_id == step.token_id)
    parts = tuple(
        FamilyStep(
            name, own.log_p_masked + math.log(SHIFTS[place % 3]), joint(own, place),
            math.log(taus[place]) if taus[place] else -math.inf, name not in own.refused_by, step.state,
        )
        for place, name in enumerate(families)
    )  # fmt: skip
    return replace(
        step, candidates=rows, families=parts, certified=own.certified and step.state not in ("none", "mismatch"),
        log_tau=min(part.log_tau for part in parts), set_size=sum(row.certified for row in rows),
    )  # fmt: skip


def factorized(state="calibrated", **changes):
    return replace(with_families(make_step(3, " his", state), FAMILIES), **changes)


def refusing(step, *names):
    """The same step, the emitted token refused by some families."""
    parts = tuple(
        replace(part, log_joint=part.log_tau - 0.1 if part.family in names else part.log_tau + 0.1)
        for part in step.families
    )
    rows = tuple(
        replace(row, refused_by=names, certified=not names) if row.token_id == step.token_id else row
        for row in step.candidates
    )
    return replace(step, families=parts, candidates=rows, certified=not names)


# families


def test_a_familys_borrowed_or_missing_threshold_is_never_called_certified_without_a_caveat():
    for state in ("inherited", "uninformative", "mismatch", "none"):
        step = factorized(state)
        card = step_card(step)
        assert card["v"][0] != "Thresholds held:"
        assert all(row["mark"] != "tick" for row in card["rows"])
        assert all(row["mark"] != "tick" for row in card["fam"])


def test_a_refused_candidate_and_a_forced_token_name_the_families_and_a_certified_one_none():
    step = refusing(factorized(), "religion")
    rows = {row["id"]: row for row in step_card(step)["rows"]}
    assert rows[step.token_id]["why"] == "refused by religion"
    step = refusing(factorized(), *FAMILIES)
    rows = {row["id"]: row for row in step_card(step)["rows"]}
    assert rows[step.token_id]["why"] == "refused by every family"
    step = refusing(factorized())
    assert {row["id"]: row for row in step_card(step)["rows"]}[step.token_id]["mark"] == "tick"
    step = replace(refusing(factorized(), "gender"), forced=True)
    card = step_card(step)
    assert "gender" in card["v"][1]
    assert "religion" not in card["v"][1]
    assert card["k"] == ["pin", "tri"]
    assert "not certified" in card["sr"]
    both = step_card(replace(refusing(factorized(), *FAMILIES), forced=True))
    assert "gender and religion" in both["v"][1]


def test_each_familys_line_shows_its_own_threshold_and_with_one_branch_nothing_is_said_of_families():
    step = factorized()
    card = step_card(step)
    assert [row["n"] for row in card["fam"]] == ["gender", "religion"]
    taus = [math.exp(part.log_tau) for part in step.families]
    assert [float(row["tau"]) for row in card["fam"]] == pytest.approx(taus, rel=0.05)
    tightest = min(step.families, key=lambda part: part.log_joint - part.log_tau)
    assert f"Tightest for {tightest.family}" in card["d"]
    card = step_card(make_step(3, " his"))
    assert card["fam"] == []
    assert all("refused" not in row["why"] for row in card["rows"])


# chains


# contributions and branches


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


def test_the_session_message_carries_the_whole_tree_from_whichever_branch_it_is_seen(services):
    trees = [crumbs(services[AuditService].view(1, branch))["tree"] for branch in (1, 3, 4)]
    assert trees[0] == trees[1] == trees[2]
    assert [node["token"] for node in trees[0]] == ["main", "and", "he", "the"]
    assert tree_message(services[AuditService].view(1, 4))["branch"] == 4


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


def test_a_card_has_every_candidate_once_and_no_margin_without_a_threshold():
    step = make_step(3, " his")
    card = step_card(step)
    words = [row["t"].strip() for row in card["rows"]] + [point[0] for point in card["rest"]]
    assert sorted(words) == sorted(candidate.token.strip() for candidate in step.candidates)
    assert (card["kl"], card["tv"], card["mg"]) == (
        step.diagnostics.kl_fused_masked, step.diagnostics.tv_on_set, step.diagnostics.margin,
    )  # fmt: skip
    for state in ("none", "uninformative"):
        assert step_card(make_step(3, " his", state))["mg"] is None


def test_the_note_goes_through_all_phases_to_where_the_model_runs(wired, monkeypatch):
    monkeypatch.setattr(wired[AuditService], "loading", lambda name: iter(LoadingPhase))
    notes = list(SettingsHandlers(wired).describe_model("demo"))
    assert [phase for phase in LoadingPhase if LOADING_PHASES[phase] in " ".join(notes)] == list(LoadingPhase)
    assert all("Loading the model" in note for note in notes[:-1])
    assert "Ready on this computer" in notes[-1]
    assert "float32" in notes[-1]


def test_new_steps_bring_the_certificates_of_the_longer_chain_and_an_uncertified_session_has_none(services):
    view, now = services[AuditService].view(1), services[AuditService].progress(1)
    assert (no_chain(view), session_message(services[AuditService].view(2))["chain"]) == ("", None)
    assert no_chain(replace(view, settings=replace(view.settings, mask_layout="factorized")))
    message = steps_message([make_step(37, " chart")], now, done=True)
    assert message["chain"]["weakest"] == now.chain.weakest
    assert message["finished"] is None


def test_contributions_keep_the_spans_words_and_say_what_no_span_has_alone():
    parts = (SpanContribution(Span(4, 10, "nationality"), (0.1, 0.9), (0.2, 0.9)),
             SpanContribution(Span(11, 16), (0.1, -0.3), (0.1, -0.4)))  # fmt: skip
    message = contributions_message("The German nurse", LeaveOneOut((0, 1), (7, 8), (0.3, 0.7), (0.4, 0.6), parts))
    assert [(line["t"], line["n"]) for line in message["spans"]] == [("German", "nationality"), ("nurse", "other")]
    assert message["x"] == pytest.approx([0.1, 0.1])
    assert re.findall(r"[+\d.]*\d|“.*?”", message["peak"]) == ["+0.90", "“German”", "2"]
    assert not re.search(r"\d", contributions_message("The", LeaveOneOut((0,), (7,), (0.1,), (0.1,), ()))["peak"])
