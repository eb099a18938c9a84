"""What the audit page says of families, chains, contributions and the chosen calibration."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from app.services.views import CalibrationView, ReadingRequest, SettingsFit, Span, Step
from app.ui.components.rail_values import FIELDS, SINGLE, Stored, calibration_note, control_values, settings_from
from app.ui.presenters import is_plainly_certified, step_card
from app.ui.presenters_branches import branches_text, contributions_message, reading_text
from app.ui.presenters_chain import chain_panel, no_chain
from app.ui.presenters_fit import (
    calibration_choices,
    calibration_status,
    difference_text,
    drift_badge,
    group_choices,
    misfit_lines,
)
from app.ui.presenters_session import session_message, session_warnings, steps_message
from tests.ui.fakes import FakeServices, make_step
from tests.ui.fakes.wholes import chain_of, contributions_of, with_families

FAMILIES = ("gender", "religion")


@pytest.fixture(scope="module")
def services() -> FakeServices:
    return FakeServices()


def factorized(state: str = "calibrated", **changes: object) -> Step:
    return replace(with_families(make_step(3, " his", state), FAMILIES), **changes)


def refusing(step: Step, *names: str) -> Step:
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


@pytest.mark.parametrize("state", ["inherited", "uninformative", "mismatch", "none"])
def test_a_familys_borrowed_or_missing_threshold_is_never_called_certified_without_a_caveat(state):
    step = factorized(state)
    card = step_card(step)
    assert card["v"][0] != "Certified:"
    assert all(row["mark"] != "tick" for row in card["rows"])
    assert all(row["mark"] != "tick" for row in card["fam"])
    assert not is_plainly_certified(step)


def test_a_refused_candidate_names_the_families_and_a_certified_one_none():
    step = refusing(factorized(), "religion")
    rows = {row["id"]: row for row in step_card(step)["rows"]}
    assert rows[step.token_id]["why"] == "refused by religion"
    step = refusing(factorized(), *FAMILIES)
    rows = {row["id"]: row for row in step_card(step)["rows"]}
    assert rows[step.token_id]["why"] == "refused by every family"
    step = refusing(factorized())
    assert {row["id"]: row for row in step_card(step)["rows"]}[step.token_id]["mark"] == "tick"


def test_a_forced_token_names_the_families_that_refuse_it():
    step = replace(refusing(factorized(), "gender"), forced=True)
    card = step_card(step)
    assert card["v"] == ("You forced a token that is not certified:", "gender refuses it.")
    assert card["k"] == ["pin", "tri"]
    assert "not certified" in card["sr"]
    both = step_card(replace(refusing(factorized(), *FAMILIES), forced=True))
    assert both["v"][1] == "gender and religion refuse it."


def test_a_refusal_counts_even_where_another_family_lets_every_token_pass():
    step = replace(refusing(factorized(), "gender"), forced=True)
    weak = replace(step.families[1], state="uninformative", log_tau=-math.inf)
    card = step_card(replace(step, families=(step.families[0], weak), state="uninformative", log_tau=-math.inf))
    assert card["v"][0] == "You forced a token that is not certified:"
    assert "tri" in card["k"]
    assert card["sr"].startswith("step 4, forced by you, not certified")


def test_an_uninformative_family_is_named_and_the_others_keep_their_thresholds():
    step = refusing(factorized())
    weak = replace(step.families[1], state="uninformative", log_tau=-math.inf)
    step = replace(step, families=(step.families[0], weak), state="uninformative", log_tau=-math.inf)
    card = step_card(step)
    assert card["v"][0] == "Not certified in any useful sense for religion:"
    assert [row["why"] for row in card["fam"]] == ["certified", "every token passes"]
    assert card["fam"][1]["tau"] == "none"
    assert "gender" in card["d"]


def test_each_familys_line_shows_its_own_threshold_and_the_tightest_one_is_explained():
    step = factorized()
    card = step_card(step)
    assert [row["n"] for row in card["fam"]] == ["gender", "religion"]
    taus = [math.exp(part.log_tau) for part in step.families]
    assert [float(row["tau"]) for row in card["fam"]] == pytest.approx(taus, rel=0.05)
    tightest = min(step.families, key=lambda part: part.log_joint - part.log_tau)
    assert f"The tightest family is {tightest.family}" in card["d"]


def test_with_one_masked_branch_nothing_is_said_of_families():
    card = step_card(make_step(3, " his"))
    assert card["fam"] == []
    assert all("refused" not in row["why"] for row in card["rows"])


# chains


def chain(steps: int = 5, **changes: object):
    made = chain_of([make_step(index, " word") for index in range(steps)], 0.1)
    return replace(made, **changes)


@pytest.mark.parametrize(
    ("certified", "state", "word"),
    [(True, "calibrated", "certified"), (False, "missed", "not certified"), (None, "uninformative", "says nothing")],
)
def test_each_answer_of_the_sequence_certificate_has_its_own_mark_and_words(certified, state, word):
    panel = chain_panel(chain(sequence_certified=certified, reason="Too few contexts."))
    assert (panel["parts"][0]["s"], panel["parts"][0]["b"]) == (state, word)
    assert ("No token is less supported" in panel["parts"][0]["says"]) is (certified is True)


def test_a_union_bound_of_nothing_is_said_to_say_nothing():
    found = chain(12)
    assert found.union.level == 0
    part = chain_panel(replace(found, union_certified=True))["parts"][1]
    assert part["s"] == "uninformative"
    assert "nothing can be said" in part["says"]
    assert ("All true tokens pass with at least", "0: no statement") in part["rows"]


def test_a_union_bound_names_its_level_and_what_a_whole_chain_would_need():
    found = chain(5)
    union = replace(found.union, charged=8, level=0.2, alpha_needed=0.0125, contexts_needed=79)
    part = chain_panel(replace(found, union=union, union_certified=True))["parts"][1]
    assert "at least 0.20 for all together" in part["says"]
    rows = dict(part["rows"])
    assert rows["Steps that are charged"] == "8"
    assert rows["For 0.90 together, α of a step"] == "0.013"
    assert rows["which needs"] == "79 contexts"


def test_a_chain_longer_than_any_calibrated_one_says_both_lengths():
    found = chain(45, sequence_certified=None)
    assert "45 steps" in chain_panel(found)["parts"][0]["says"]
    assert "40" in chain_panel(found)["parts"][0]["says"]


def test_the_weakest_token_is_the_chains_least_supported_step():
    steps = [make_step(index, " word") for index in range(14)]
    supports = [min(step.log_p_fused, step.log_p_masked) for step in steps]
    assert chain_panel(chain_of(steps, 0.1))["weakest"] == supports.index(min(supports)) == 12


def test_factorized_sessions_say_why_there_is_no_certificate_and_uncertified_ones_expect_none(services):
    view = services.audits.view(1)
    assert no_chain(view) == ""
    assert "no certificate for the whole chain" in no_chain(
        replace(view, settings=replace(view.settings, mask_layout="factorized"))
    )
    assert no_chain(services.audits.view(2)) == ""
    assert session_message(services.audits.view(2))["chain"] is None
    assert session_message(view)["chain"]["parts"]


def test_new_steps_bring_the_certificate_of_the_longer_chain(services):
    now = services.audits.progress(1)
    message = steps_message([make_step(37, " chart")], now, done=True)
    assert message["chain"]["weakest"] == now.chain.weakest
    assert message["finished"] is None


# contributions and branches


def test_contributions_keep_the_spans_words_and_what_no_span_has_alone():
    prompt = "The German nurse"
    found = contributions_of(
        [make_step(index, " word") for index in (0, 3)], (Span(4, 10, "nationality"), Span(11, 16))
    )
    message = contributions_message(prompt, found)
    assert [(line["t"], line["n"]) for line in message["spans"]] == [("German", "nationality"), ("nurse", "other")]
    for step, total in enumerate(message["r"]):
        apart = sum(line["r"][step] for line in message["spans"])
        assert message["x"][step] == pytest.approx(total - apart, abs=1e-3)
    assert message["peak"] == "The largest contribution is +0.90, of “German” to the token of step 2."


def test_without_a_masked_span_there_is_nothing_to_contribute():
    found = contributions_of([make_step(0, " and")], (Span(0, 3, kept=True),))
    assert "nothing to contribute" in contributions_message("The", found)["peak"]


@pytest.mark.parametrize(
    ("branches", "words"),
    [
        ((), ""),
        (("factual", "masked"), "2 branches: as typed, and masked."),
        (("factual", "gender"), "2 branches: as typed, and with gender masked."),
        (
            ("factual", "gender", "race", "religion"),
            "4 branches: as typed, and with gender, race and ethnicity and religion masked one at a time.",
        ),
    ],
)
def test_the_branches_of_a_step_are_counted_and_named(branches, words):
    assert branches_text(branches) == words
    assert bool(reading_text(branches)) is (len(branches) > 2)


# calibrations


def test_calibrations_that_fit_mask_and_model_come_first_and_the_others_say_why(services):
    base = services.calibrations.list()[0]
    found = [
        replace(base, id=2, name="by family", mask_layout="factorized"),
        replace(base, id=3, name="elsewhere", model="gpt2"),
        replace(base, id=4, name="fits"),
    ]
    assert calibration_choices(found, "joint", "demo") == [
        ("fits", 4),
        ("by family (mask: one for each family)", 2),
        ("elsewhere (model: gpt2)", 3),
        ("None: audit without certificate", 0),
    ]
    assert calibration_choices(found, "factorized", "gpt2")[0][1] not in (3, 4)
    assert [number for _, number in calibration_choices(found)] == [2, 3, 4, 0]


def read(services: FakeServices, kind: str = "reference", **asked: object) -> CalibrationView:
    number = 1 if kind == "reference" else services.calibrations.add("x", kind)
    return services.calibrations.view(number, ReadingRequest(**asked))  # type: ignore[arg-type]


def test_the_calibration_badge_tells_none_uninformative_refused_and_calibrated(services):
    assert calibration_status(None)[1] == "uncertified: no calibration"
    assert calibration_status(read(services))[:2] == ("calibrated", "calibrated, 412 contexts")
    assert calibration_status(read(services, alpha=0.002))[0] == "uninformative"
    assert calibration_status("The group is too small.")[2] == ["The group is too small."]


def test_families_and_groups_count_their_own_contexts(services):
    state, text, lines = calibration_status(read(services, "factorized"))
    assert (state, text) == ("calibrated", "calibrated, 120 to 300 contexts")
    assert "own thresholds for gender, religion, age" in lines
    grouped = calibration_status(read(services, "grouped", group="school"))
    assert grouped[1] == "calibrated, 120 contexts"
    assert "thresholds of the group “school” alone" in grouped[2]
    names = [name for name, _ in group_choices(read(services, "grouped").groups)]
    assert names[0] == "All groups together"
    assert any("street: too few, 6 of 9 contexts" in name for name in names)


def test_differences_are_named_in_words_and_start_is_said_to_ask():
    fit = SettingsFit((("lam", "0.6", "0.3"), ("mask_layout", "joint", "factorized")), ("Approximate.",), True)
    first, second = misfit_lines(fit)
    assert "belongs to another policy" in first
    assert "lambda 0.6 there, 0.3 here" in first
    assert "mask: all families together there, one for each family here" in first
    assert second == "Approximate."
    assert misfit_lines(SettingsFit()) == []


def test_vanilla_decoding_is_said_to_use_no_calibration_and_start_does_not_ask():
    (line,) = misfit_lines(SettingsFit((("policy", "coft", "vanilla"),), ("Approximate.",), True))
    assert "is not used" in line
    assert "Start" not in line


@pytest.mark.parametrize(
    ("difference", "words"),
    [
        (
            ("masked_families", "gender race", "gender name"),
            "masked families race and ethnicity only there, first name",
        ),
        (("user_list", "none", "list 'ward'+0123456789ab"), "word list none there, 'ward' here"),
        (("weights", "sha256:1", "sha256:2"), "other weights of the model"),
        (("detector", "lexicon 1, a", "lexicon 2, a"), "another detector"),
    ],
)
def test_a_difference_says_what_matters_of_it(difference, words):
    assert difference_text(*difference).startswith(words)


def test_drift_is_a_marked_word_that_leads_to_its_explanation(services):
    for status in ("fresh", "watch", "recalibrate", "unknown"):
        services.calibrations.drifts[1] = status
        report = services.calibrations.drift(1)
        shown = drift_badge(report, 1)
        assert f"drift-{status}" in shown
        assert 'href="./calibrate?run=1#drift"' in shown
        assert report.sentence.split(":")[0] in shown
    assert drift_badge(None, 1) == ""
    services.calibrations.drifts.clear()


@pytest.mark.parametrize(("status", "warned"), [("fresh", 0), ("unknown", 0), ("watch", 1), ("recalibrate", 1)])
def test_a_session_warns_of_drift_only_where_audits_speak_against_its_calibration(services, status, warned):
    services.calibrations.drifts[1] = status
    view = services.audits.view(1)
    assert session_warnings(view).count(view.drift.sentence) == warned
    services.calibrations.drifts.clear()


def test_notes_from_the_outside_are_shown_and_never_run(services):
    nasty = "<img src=x onerror=alert(1)>"
    view = replace(read(services), group=nasty)
    shown = calibration_note(view, SettingsFit((("user_list", nasty, nasty),), (nasty,)), "coft")
    assert "<img" not in shown
    assert shown.count("&lt;img") == 4


# the rail's values


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"mask_layout": "factorized"},
        {"masked_families": ("religion",)},
        {"masked_families": ()},
        {"mask_mode": "soft", "mask_hint": "someone", "whitelist": ("nurse", "he said")},
        {"sentinel": "_", "calibration_id": 1, "group": "ward"},
        {"policy": "vanilla", "sentinel": "_"},
        {"policy": "sdd", "parameters": (("descriptions", ("one", "two")), ("decay", 20.0))},
    ],
)
def test_settings_survive_the_way_through_the_rail(services, changes):
    stored = Stored(services.calibrations.list(), services.user_lists.list(), services.audits.masked_families)
    settings = replace(services.audits.view(2).settings, masked_families=("gender", "age"))
    settings = replace(settings, **changes)
    assert settings_from(control_values(settings, stored)) == settings


def test_one_attribute_alone_is_a_joint_mask_of_that_family(services):
    stored = Stored((), (), ("gender", "age"))
    values = dict(zip(FIELDS, control_values(services.audits.view(2).settings, stored), strict=True))
    values |= {"mask": SINGLE, "attribute": "religion", "mask_mode": "hard", "mask_hint": "left over"}
    settings = settings_from(tuple(values.values()))
    assert (settings.mask_layout, settings.masked_families) == ("joint", ("religion",))
    assert settings.mask_hint is None
    again = dict(zip(FIELDS, control_values(settings, stored), strict=True))
    assert (again["mask"], again["attribute"], again["masked_families"]) == (SINGLE, "religion", ["gender", "age"])
