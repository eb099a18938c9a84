"""What the audit page says of the chosen calibration, and how settings travel through the rail."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.audit.service import AuditService
from app.audit.words import session_warnings
from app.calibrate.service import CalibrationService
from app.lists.service import UserListService
from app.shared.audits import CalibrationView, ReadingRequest, SettingsFit
from app.shared.chain_words import (
    calibration_choices,
    calibration_status,
    difference_text,
    drift_badge,
    group_choices,
    misfit_lines,
)
from app.shared.settings_rail import FIELDS, SINGLE, StoredChoices, calibration_note, control_values, settings_from
from app.shared.wiring import Services
from tests.browser import Seeded
from tests.records import drift_report
from tests.story.seed import KINDS, with_every_kind


@pytest.fixture(scope="module")
def services(program: Seeded, tmp_path_factory: pytest.TempPathFactory) -> Services:
    return with_every_kind(program.restore(), tmp_path_factory.mktemp("kinds"))


# calibrations


def test_calibrations_that_fit_mask_and_model_come_first_and_the_others_say_why(services):
    base = services[CalibrationService].list()[-1]
    found = [
        replace(base, id=2, name="by family", mask_layout="factorized"),
        replace(base, id=3, name="elsewhere", model="gpt2"),
        replace(base, id=4, name="fits"),
    ]
    assert calibration_choices(found, "joint", "demo") == [
        ("fits", 4), ("by family (mask: one for each family)", 2), ("elsewhere (model: gpt2)", 3),
        ("None: audit without certificate", 0),
    ]  # fmt: skip
    assert calibration_choices(found, "factorized", "gpt2")[0][1] not in (3, 4)
    assert [number for _, number in calibration_choices(found)] == [2, 3, 4, 0]


def read(services: Services, kind: str = "reference", **asked: object) -> CalibrationView:
    number = ("reference", *KINDS).index(kind) + 1
    return services[CalibrationService].view(number, ReadingRequest(**asked))  # type: ignore[arg-type]


def test_the_calibration_badge_tells_none_uninformative_refused_and_calibrated(services):
    assert calibration_status(None)[1] == "uncertified: no calibration"
    assert calibration_status(read(services))[:2] == ("calibrated", "calibrated, 413 contexts")
    assert calibration_status(read(services, alpha=0.002))[0] == "uninformative"
    assert calibration_status("The group is too small.")[2] == ["The group is too small."]


def test_families_and_groups_count_their_own_contexts(services):
    state, text, lines = calibration_status(read(services, "factorized"))
    assert (state, text) == ("calibrated", "calibrated, 31 to 60 contexts")
    assert "own thresholds for gender, religion" in lines
    grouped = calibration_status(read(services, "grouped", group="school"))
    assert grouped[1] == "calibrated, 15 contexts"
    assert "thresholds of the group “school” alone" in grouped[2]
    names = [name for name, _ in group_choices(read(services, "grouped").groups)]
    assert names[0] == "All groups together"
    assert any("street: too few, 5 of 9 contexts" in name for name in names)


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


def test_a_difference_says_what_matters_of_it():
    for difference, words in (
        (("masked_families", "gender race", "gender name"), "masked families race and ethnicity only there, first"),
        (("user_list", "none", "list 'ward'+0123456789ab"), "word list none there, 'ward' here"),
        (("weights", "sha256:1", "sha256:2"), "other weights"),
        (("detector", "lexicon 1, a", "lexicon 2, a"), "another detector"),
        (("chat_template", "none", "0123"), "plain prompts there"),
        (("chat_template", "0123", "4567"), "another chat template"),
        (("rendering", "01 as of 2026-03-02", "23 as of 2026-03-03"), "day"),
        (("rendering", "01", "23"), "another rendering"),
    ):
        assert difference_text(*difference).startswith(words)
    told = difference_text("rendering", "01 as of 2026-03-02", "23 as of 2026-03-03")
    assert "2026-03-02 there, 2026-03-03 here" in told


def test_drift_is_a_marked_word_that_leads_to_its_explanation():
    for status in ("fresh", "watch", "recalibrate", "unknown"):
        report = drift_report(status)
        shown = drift_badge(report, 1)
        assert f"drift-{status}" in shown
        assert 'href="./calibrate?run=1#drift"' in shown
        assert report.sentence.split(":")[0] in shown
    assert drift_badge(None, 1) == ""


def test_a_session_warns_of_drift_only_where_audits_speak_against_its_calibration(services):
    for status, warned in (("fresh", 0), ("unknown", 0), ("watch", 1), ("recalibrate", 1)):
        report = drift_report(status)
        view = replace(services[AuditService].view(1), drift=report)
        assert session_warnings(view).count(report.sentence) == warned


def test_notes_from_the_outside_are_shown_and_never_run(services):
    nasty = "<img src=x onerror=alert(1)>"
    view = replace(read(services), group=nasty)
    shown = calibration_note(view, SettingsFit((("user_list", nasty, nasty),), (nasty,)), "coft")
    assert "<img" not in shown
    assert shown.count("&lt;img") == 4


# the rail's values


def test_settings_survive_the_way_through_the_rail(services):
    stored = StoredChoices(
        services[CalibrationService].list(), services[UserListService].list(), services[AuditService].masked_families
    )
    usual = replace(services[AuditService].view(2).settings, masked_families=("gender", "age"))
    for changes in (
        {}, {"mask_layout": "factorized"}, {"masked_families": ("religion",)}, {"masked_families": ()},
        {"mask_mode": "soft", "mask_hint": "someone", "whitelist": ("nurse", "he said")},
        {"sentinel": "_", "calibration_id": 1, "group": "ward"}, {"prompt_format": "plain"},
        {"prompt_format": "chat", "chat_date": "2026-03-02"}, {"policy": "vanilla", "sentinel": "_"},
        {"policy": "sdd", "parameters": (("descriptions", ("one", "two")), ("decay", 20.0))},
    ):  # fmt: skip
        settings = replace(usual, **changes)
        assert settings_from(control_values(settings, stored)) == settings


def test_one_attribute_alone_is_a_joint_mask_of_that_family(services):
    stored = StoredChoices((), (), ("gender", "age"))
    values = dict(zip(FIELDS, control_values(services[AuditService].view(2).settings, stored), strict=True))
    values |= {"mask": SINGLE, "attribute": "religion", "mask_mode": "hard", "mask_hint": "left over"}
    settings = settings_from(tuple(values.values()))
    assert (settings.mask_layout, settings.masked_families) == ("joint", ("religion",))
    assert settings.mask_hint is None
    again = dict(zip(FIELDS, control_values(settings, stored), strict=True))
    assert (again["mask"], again["attribute"], again["masked_families"]) == (SINGLE, "religion", ["gender", "age"])
