"""Masks by family, soft masks, groups and calibrations that fit, on the audit page."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from app.audit.service import AuditService
from app.shared.audits import AuditSettings
from app.shared.wiring import Services
from tests.story.model import LONG_PROMPT
from tests.story.seed import calibrate_anew, newest


def type_prompt(page: Page, spans: int = 4) -> None:
    page.locator("#prompt").fill(LONG_PROMPT)
    expect(page.locator(".spanlist tbody tr")).to_have_count(spans)


def steps(page: Page, number: int) -> None:
    for done in range(1, number + 1):
        page.locator("[data-do=step]").click()
        expect(page.locator(".strip .tok[data-i]")).to_have_count(done)


def settings_of(services: Services) -> AuditSettings:
    """Settings of the newest session."""
    return services[AuditService].view(newest(services)).settings


@pytest.mark.slow
def test_a_calibration_of_another_mask_says_so_and_with_its_settings_each_family_has_its_threshold_and_refuses(
    audit, services: Services, tmp_path, picture
):
    number = calibrate_anew(services, tmp_path, "By family", "factorized", lam=0.4, top_p=1.0)
    page = audit(f"?calibration={number}")
    note = page.locator(".rail .note .cautions")
    expect(note).to_contain_text("belongs to another policy")
    expect(note).to_contain_text("lambda 0.4 there, 0.6 here")
    expect(note).to_contain_text("mask: one for each family there")
    page.locator("#calibration input").click()
    options = page.get_by_test_id("dropdown-option")
    expect(options).to_have_text(
        [
            re.compile("Ward notes, reference"),
            re.compile(r"By family \(mask: one for each family\)"),
            re.compile("None: audit without certificate"),
        ]
    )
    options.nth(1).click()
    page.locator("#adopt").click()
    expect(page.get_by_label("number input for Lambda")).to_have_value("0.4")
    expect(page.get_by_label("Mask", exact=True)).to_have_value("One mask for each family")
    expect(page.locator("#adopt")).to_be_hidden()
    expect(note).to_have_count(0)
    type_prompt(page)
    expect(page.locator(".reading .several")).to_contain_text("masked in a branch of its own")
    steps(page, 2)
    expect(page.locator(".cost .words")).to_contain_text(
        "5 branches: as typed, and with gender, nationality, religion and age masked one at a time"
    )
    rows = page.locator(".byfamily tbody tr")
    expect(rows).to_have_count(4)
    expect(rows.nth(0)).to_contain_text("gender")
    expect(page.locator(".cand thead th").nth(4)).to_be_hidden()
    expect(page.locator(".whole .sentence")).to_contain_text("no certificate for the whole chain")
    refused = page.locator(".cand tbody tr.out", has_text="nobody")
    expect(refused).to_contain_text("refused by gender")
    refused.get_by_role("button").click()
    expect(page.locator("#inspector .verdict")).to_contain_text("You forced a token that is not certified")
    expect(page.locator("#inspector .verdict")).to_contain_text("gender")
    settings = settings_of(services)
    assert (settings.lam, settings.top_p, settings.mask_layout) == (0.4, 1.0, "factorized")
    assert not settings.proceed_uncertified
    picture(page, "audit-factorized-1440-light")
