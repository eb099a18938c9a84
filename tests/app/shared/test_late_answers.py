"""Answers and frames that come late change nothing that is newer than they are."""

from __future__ import annotations

import threading

import pytest
from playwright.sync_api import Page, expect

from app.audit.service import AuditService
from app.shared.errors import ServiceError
from app.shared.wiring import Services


def choose_model(page: Page, name: str) -> None:
    page.get_by_label("Model", exact=True).fill(name)
    page.keyboard.press("Enter")
    expect(page.get_by_test_id("dropdown-option")).to_have_count(0)
    expect(page.locator(".summaryline")).to_contain_text(name)


@pytest.mark.slow
def test_the_models_note_is_the_newest_models_however_late_the_others_are_loaded_or_refused(
    visit, services: Services, monkeypatch: pytest.MonkeyPatch
):
    loaded, load = threading.Event(), services[AuditService].model

    def slow(name: str):
        loaded.wait(60)
        if name != "demo":
            raise ServiceError(f"There is no model {name}.")
        return load(name)

    monkeypatch.setattr(services[AuditService], "model", slow)
    page = visit("/")
    note = page.locator(".rail .note").first
    expect(note).to_contain_text("Loading the model")
    expect(page.locator("[data-do=go]")).to_be_enabled()
    choose_model(page, "nowhere")
    loaded.set()
    expect(note).to_contain_text("Not loaded")
    expect(page.locator(".toast-body")).to_contain_text("There is no model nowhere.")
    loaded.clear()
    choose_model(page, "elsewhere")
    expect(note).to_contain_text("Loading the model")
    choose_model(page, "demo")
    loaded.set()
    expect(note).to_contain_text("Ready on")
