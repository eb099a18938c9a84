"""Decoding methods and their parameters in the settings of the pages."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from app.audit.service import AuditService
from app.shared.wiring import Services
from tests.story.model import LONG_PROMPT
from tests.story.seed import newest


def start(page: Page) -> None:
    page.locator("#prompt").fill(LONG_PROMPT)
    expect(page.locator(".spanlist tbody tr")).to_have_count(4)
    page.locator("[data-do=step]").click()
    expect(page.locator(".count")).to_contain_text("1 of 64 steps")


def settings_of(services: Services):
    return services[AuditService].view(newest(services)).settings


@pytest.mark.slow
def test_a_method_and_a_parameter_are_chosen_by_keyboard_run_and_kept_over_a_reload(audit, services: Services):
    page = audit()
    page.get_by_label("Policy", exact=True).focus()
    page.keyboard.type("Self")
    expect(page.locator("#policy-about")).to_have_text(
        re.compile(
            "^Scales down what a reading told to be biased finds likelier · Schick et al., TACL 2021"
            "How it differs from its authors’.+"
        )
    )
    page.keyboard.press("Tab")
    expect(page.locator("#policy-about summary")).to_be_focused()
    page.keyboard.press("Tab")
    expect(page.get_by_label("Descriptions of bias")).to_be_focused()
    page.keyboard.press("ControlOrMeta+a")
    page.keyboard.type("one\ntwo")
    page.keyboard.press("Tab")
    expect(page.get_by_label("Decay", exact=True)).to_be_focused()
    page.keyboard.press("ControlOrMeta+a")
    page.keyboard.type("20")
    page.keyboard.press("Tab")
    expect(page.get_by_label("Decay, slider")).to_be_focused()
    page.keyboard.press("ArrowRight")
    expect(page.get_by_label("Decay", exact=True)).to_have_value("30")
    page.locator("#prompt").fill(LONG_PROMPT)
    expect(page.locator(".spanlist tbody tr")).to_have_count(4)
    page.reload()
    expect(page.locator(".notice")).to_contain_text("is here again")
    expect(page.get_by_label("Policy", exact=True)).to_have_value("sdd")
    expect(page.get_by_label("Decay", exact=True)).to_have_value("30")
    expect(page.get_by_label("Descriptions of bias")).to_have_value("one\ntwo")
    start(page)
    assert settings_of(services).policy == "sdd"
    assert settings_of(services).parameters == (("descriptions", ("one", "two")), ("decay", 30.0))
    page.reload()
    expect(page.locator(".madewith summary .hint")).to_have_text(
        "Self-debiasing, Descriptions of bias one; two, Decay 30"
    )
    expect(page.get_by_label("Policy", exact=True)).to_have_value("sdd")
    expect(page.get_by_label("Decay", exact=True)).to_have_value("30")
    expect(page.locator(".notice")).to_be_hidden()
    expect(page.locator(".cand .drawn-from")).to_have_text("Drawn")
    page.locator(".madewith > summary").click()
    expect(page.locator(".madewith dl")).to_contain_text("Smallest factor")
    expect(page.locator(".madewith > p")).to_contain_text("Schick et al., TACL 2021")
