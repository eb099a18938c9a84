"""The audit page clicked through."""

from __future__ import annotations

import re

from playwright.sync_api import Page, Request, expect

from app.audit.service import AuditService
from app.shared.wiring import Services
from tests.story.model import PROMPT
from tests.story.seed import newest, slowed


def type_prompt(page: Page, text: str = PROMPT) -> None:
    page.locator("#prompt").fill(text)
    expect(page.locator(".spanlist tbody tr")).to_have_count(2)


def tokens(page: Page):
    return page.locator(".strip .tok[data-i]")


def test_a_whole_audit_from_prompt_to_report(audit, services: Services, picture, tmp_path):
    page = audit()
    expect(page.locator("#transcript .empty")).to_contain_text("Press Start")
    picture(page, "audit-empty-1440-light")
    type_prompt(page)
    expect(page.locator(".masked b")).to_have_count(2)
    expect(page.locator(".reading .counts")).to_have_text("10 tokens, 2 masked, same length")
    expect(page.locator(".reading .several")).to_have_text(services[AuditService].model("demo").sentinel)
    page.locator("[data-do=step]").click()
    expect(tokens(page)).to_have_count(1)
    expect(page.locator("#inspector .where")).to_have_text("step 1 of 1")
    page.locator("[data-do=go]").click()
    expect(page.locator(".count")).to_contain_text("64 of 64 steps")
    expect(page.locator(".count")).to_contain_text("length reached")
    expect(tokens(page)).to_have_count(64)
    expect(page.locator("[data-do=go]")).to_be_disabled()
    with page.expect_download() as waiting:
        page.locator("[data-do=report]").click()
        page.get_by_role("menuitem", name="CSV One table").click()
    target = tmp_path / "report.csv"
    waiting.value.save_as(target)
    assert target.read_text("utf-8").count("\r\n") == 65 or len(target.read_text("utf-8").splitlines()) == 65
    assert "session=3" in page.url


def test_the_session_reopens_from_its_address(audit, services: Services):
    page = audit("?session=1")
    expect(tokens(page)).to_have_count(38)
    expect(page.locator("#prompt")).to_have_value(PROMPT)
    expect(page.locator("#calibration input")).to_have_value("Ward notes, reference")
    expect(page.locator("#transcript .notice")).to_be_empty()
    page.reload()
    expect(tokens(page)).to_have_count(38)


def test_every_state_shows_by_shape_and_in_words(audit):
    page = audit("?session=1")

    def has(step: int, *classes: str, spoken: str, marks: int = 0) -> None:
        token = page.locator(f".tok[data-i='{step - 1}']")
        for name in classes:
            expect(token).to_have_class(re.compile(rf"\b{name}\b"))
        expect(token.locator(".vh")).to_contain_text(spoken)
        expect(token.locator(".mk svg")).to_have_count(marks)

    has(2, "sensitive", spoken="forced by you, threshold held, sensitivity +0.89", marks=1)
    has(13, "fallback", spoken="fallback, nothing certified", marks=1)
    has(26, "open", spoken="threshold too weak to say anything")
    has(34, "inherited", "sensitive", spoken="borrowed threshold held, sensitivity +0.74")
    plain = page.locator(".tok[data-i]:not(.fallback):not(.open):not(.inherited):not(.outside)")
    expect(plain).to_have_count(23)


def test_stepping_by_keyboard_moves_back_and_forth_without_deleting(audit):
    page = audit()
    type_prompt(page)
    page.locator("h2#h-chain").click()
    for number in range(1, 4):
        page.keyboard.press("ArrowRight")
        expect(tokens(page)).to_have_count(number)
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    expect(page.locator(".tok.sel")).to_have_attribute("data-i", "0")
    expect(tokens(page)).to_have_count(3)
    page.keyboard.press("ArrowRight")
    expect(page.locator(".tok.sel")).to_have_attribute("data-i", "1")
    expect(tokens(page)).to_have_count(3)
    page.keyboard.press(" ")
    expect(tokens(page)).to_have_count(64)


def test_only_the_selected_token_can_be_tabbed_to(audit):
    page = audit("?session=1")
    page.locator(".tok[data-i='12']").click()
    expect(page.locator(".tok[data-i='12']")).to_be_focused()
    expect(page.locator(".strip .tok[tabindex='0']")).to_have_count(1)
    page.keyboard.press("Home")
    expect(page.locator(".tok[data-i='0']")).to_be_focused()
    page.keyboard.press("End")
    expect(page.locator(".tok[data-i='37']")).to_be_focused()


def test_the_inspector_explains_each_kind_of_step(audit, picture):
    page = audit("?session=1")
    verdict = page.locator("#inspector .verdict")
    expect(page.locator("#inspector .effect")).to_contain_text("2.4 times likelier because of")
    expect(page.locator("#inspector .effect")).to_contain_text("0.34 with it, 0.14 without.")
    expect(page.locator("#inspector .effect")).to_have_class(re.compile("strong"))
    expect(verdict).to_contain_text("Threshold held: plausible with the masked words and without them.")
    expect(page.locator("#inspector .because")).to_contain_text("Left alone, the policy would have written “they”.")
    expect(page.locator("#facts dl")).not_to_contain_text("bound")
    expect(page.locator("#facts dl")).to_contain_text("2.4 times likelier when the attribute is visible")
    expect(page.locator(".cand tbody tr").nth(4)).to_contain_text("fused < τ")
    expect(page.locator(".cand tbody tr").nth(5)).to_contain_text("both < τ")
    expect(page.locator("#candidates-plot .barlayer .point")).to_have_count(18)
    expect(page.locator("#candidates-plot .annotation")).to_contain_text("τ 0.07")
    picture(page, "audit-forced-1440-light")
    page.locator(".tok[data-i='12']").click()
    expect(verdict).to_contain_text("Fallback: no token reached the threshold in both worlds")
    page.locator(".tok[data-i='26']").click()
    expect(verdict).to_contain_text("Not certified in any useful sense: 6 contexts, 9 needed, so every token passes.")
    expect(page.locator(".cand .tick")).to_have_count(0)
    page.locator(".tok[data-i='34']").click()
    expect(verdict).to_contain_text(
        "A borrowed threshold held: no calibration data at steps 33 and later, τ comes from 17–24."
    )
    expect(page.locator(".cand .tick")).to_have_count(0)


def test_selecting_a_token_asks_the_server_nothing(audit):
    page = audit("?session=1")
    asked: list[Request] = []
    page.on("request", lambda request: asked.append(request))
    for index in (5, 12, 33, 0):
        page.locator(f".tok[data-i='{index}']").click()
        expect(page.locator("#inspector .where")).to_contain_text(f"step {index + 1} of 38")
    # Whatever a part of the page asks carries its data; what the opened session's settings ask for carries none.
    joined = [request.post_data_json for request in asked if request.url.endswith("/queue/join")]
    assert [request for request in joined if request["event_data"] is not None] == []


def test_forcing_a_candidate_makes_a_branch(audit):
    page = audit("?session=1")
    page.locator(".tok[data-i='4']").click()
    page.locator(".cand tbody tr", has_text="they").get_by_role("button").click()
    expect(tokens(page)).to_have_count(5)
    expect(page.locator("#inspector .where")).to_have_text("step 5 of 5 · you forced it")
    expect(page.locator(".crumbs .node.on")).to_contain_text("5")
    expect(page.locator(".crumbs .node.on")).to_contain_text("they")
    page.locator(".crumbs button.node", has_text="he").first.click()
    expect(tokens(page)).to_have_count(38)


def test_number_keys_and_typed_tokens_force_too(audit):
    page = audit("?session=1")
    page.locator(".tok[data-i='2']").click()
    expect(page.locator("#inspector .where")).to_contain_text("step 3 of")
    page.keyboard.press("3")
    expect(tokens(page)).to_have_count(3)
    expect(page.locator("#inspector .where")).to_contain_text("you forced it")
    page.locator("#typed").fill(" nobody")
    page.keyboard.press("Enter")
    expect(page.locator("#inspector .bigtok")).to_contain_text("nobody")
    expect(page.locator("#inspector .verdict")).to_contain_text("You forced a token that is not certified")
    page.locator("#typed").fill("two words")
    page.keyboard.press("Enter")
    expect(page.locator(".toast-body")).to_contain_text("is not one token of this model")
    expect(page.locator("#typed")).to_have_value("two words")
    expect(page.locator("[data-do=go]")).to_be_enabled()


def test_a_changed_prompt_begins_a_new_audit_and_the_old_one_can_be_had_back(audit, services: Services):
    page = audit("?session=1")
    page.locator("#prompt").fill("The German uncle said that she")
    expect(page.locator(".notice")).to_contain_text("Start begins a new audit")
    expect(page.locator("[data-do=go] .word")).to_have_text("Start")
    page.locator("[data-do=revert]").click()
    expect(page.locator("#prompt")).to_have_value(PROMPT)
    expect(page.locator("[data-do=go] .word")).to_have_text("Run")
    assert newest(services) == 2


def test_a_calibration_of_another_policy_may_be_used_knowingly(audit, services: Services, picture):
    page = audit()
    type_prompt(page)
    page.get_by_label("number input for Lambda").fill("0.3")
    page.keyboard.press("Tab")
    expect(page.locator(".rail .block.note").nth(1)).to_contain_text("belongs to another policy")
    page.locator("[data-do=go]").click()
    expect(page.locator(".notice")).to_contain_text("This calibration belongs to another policy")
    expect(page.locator("#prompt")).to_have_value(PROMPT)
    page.locator("[data-do=proceed]").click()
    expect(page.locator("#transcript .cautions")).to_contain_text("Uncertified: policy mismatch")
    expect(tokens(page).first).to_have_class(re.compile("open"))
    expect(page.locator("#inspector .verdict")).to_contain_text("Not certified:")
    picture(page, "audit-mismatch-1440-light")
    assert services[AuditService].view(newest(services)).settings.proceed_uncertified


def test_without_a_calibration_nothing_looks_certified(audit):
    page = audit()
    type_prompt(page)
    page.locator("#calibration input").click()
    page.get_by_role("option", name="None: audit without certificate").click()
    expect(page.locator(".rail .note .badge")).to_have_text("uncertified: no calibration")
    page.locator("[data-do=step]").click()
    expect(page.locator("#transcript .cautions")).to_contain_text("Uncertified: no calibration.")
    expect(tokens(page).first).to_have_class(re.compile("open"))
    expect(page.locator(".cand .tick")).to_have_count(0)


def test_an_empty_prompt_is_one_sentence_and_loses_nothing(audit):
    page = audit()
    page.locator("[data-do=go]").click()
    expect(page.locator(".notice")).to_contain_text("The prompt is empty")
    expect(page.locator("#prompt")).to_be_focused()
    expect(page.locator("[data-do=go]")).to_be_enabled()


def test_a_deleted_session_is_one_sentence(visit):
    page = visit("/?session=99")
    expect(page.locator(".toast-body")).to_contain_text("There is no audit session with the id 99")
    expect(page.locator(".toast-body")).not_to_contain_text("Traceback")
    expect(page.locator("[data-do=go]")).to_be_enabled()


def test_a_run_can_be_paused(audit, services: Services, monkeypatch):
    slowed(monkeypatch, services, 0.25)
    page = audit()
    type_prompt(page)
    page.locator("[data-do=go]").click()
    expect(tokens(page).nth(3)).to_be_attached()
    page.locator("[data-do=pause]").click()
    expect(page.locator("[data-do=go]")).to_be_enabled()
    expect(page.locator("[data-do=pause]")).to_be_disabled()
    shown = tokens(page).count()
    assert 3 < shown < 64
    page.locator("[data-do=step]").click()
    expect(tokens(page)).to_have_count(shown + 1)


def test_tokens_are_appended_and_earlier_ones_stay_the_same_nodes(audit):
    page = audit()
    type_prompt(page)
    page.locator("[data-do=step]").click()
    expect(tokens(page)).to_have_count(1)
    page.evaluate("document.querySelector('.tok[data-i=\"0\"]').dataset.same = 'yes'")
    page.locator("[data-do=go]").click()
    expect(tokens(page)).to_have_count(64)
    expect(tokens(page).first).to_have_attribute("data-same", "yes")


def test_the_help_sheet_opens_and_closes_by_key(audit):
    page = audit()
    page.locator("h2#h-chain").click()
    page.keyboard.press("?")
    expect(page.locator("dialog#help")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("dialog#help")).to_be_hidden()
