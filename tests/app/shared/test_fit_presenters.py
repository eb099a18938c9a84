"""What the audit page says of the chosen calibration, and how settings travel through the rail."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.audit.service import AuditService
from app.audit.words import session_warnings
from app.calibrate.service import CalibrationService
from app.lists.service import UserListService
from app.shared.audits import CalibrationView, ReadingRequest
from app.shared.calibration_words import (
    calibration_choices,
    calibration_status,
    difference_text,
)
from app.shared.settings_rail import FIELDS, SINGLE, StoredChoices, control_values, settings_from, usual_settings
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
    for view in (read(services), read(services, alpha=0.05)):
        told = any("usable" in line for line in calibration_status(view)[2])
        assert told == (0 < len(view.usable) < len(view.bins))


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


def test_a_session_warns_of_drift_only_where_audits_speak_against_its_calibration(services):
    for status, warned in (("fresh", 0), ("unknown", 0), ("watch", 1), ("recalibrate", 1)):
        report = drift_report(status)
        view = replace(services[AuditService].view(1), drift=report)
        assert session_warnings(view).count(report.sentence) == warned


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


def test_pages_begin_with_the_servers_model_and_with_a_calibration_of_that_model_only(services):
    calibrations = services[CalibrationService].list()
    first = calibrations[0]
    beginning = {
        model: usual_settings(StoredChoices(calibrations, (), ("gender",), model)) for model in (first.model, "other")
    }
    assert (beginning[first.model].model, beginning["other"].model) == (first.model, "other")
    chosen = {item.id: item.model for item in calibrations}
    assert chosen[beginning[first.model].calibration_id] == first.model
    assert beginning["other"].calibration_id is None
    asked = usual_settings(StoredChoices(calibrations, (), ("gender",), "other"), first.id)
    assert (asked.model, asked.calibration_id) == (first.model, first.id)
