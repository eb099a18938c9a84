"""The compare page on the embedded model: what it shows is what is stored, and it opens again from its address."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import expect

from app.audit.service import AuditService
from app.bootstrap import services as open_services
from app.compare.service import ComparisonService
from app.compare.sets import SetComparisonService
from db.sessions import SessionsRepository
from tests.browser import PATIENCE_MS, served

PROMPT = "The nurse finished rounds and then he prepared the reports"


def test_two_policies_run_beside_each_other_and_open_again_without_a_model(embedded, page, picture):
    wired, url = embedded
    page.goto(f"{url}/compare")
    expect(page.locator(".colcard")).to_have_count(2)
    page.locator("#prompt").fill(PROMPT)
    expect(page.locator(".spanlist tbody tr")).to_have_count(1)
    page.locator(".shared summary").click()
    page.get_by_label("Steps at most").fill("12")
    page.locator("[data-cmp=go]").click()
    # the model is loaded first
    expect(page.locator("#cmp-summary tbody tr")).to_have_count(12, timeout=4 * PATIENCE_MS)
    expect(page.locator(".lanehead")).to_have_count(2)
    expect(page.locator("[data-cmp=csv]")).to_be_enabled(timeout=4 * PATIENCE_MS)
    expect(page.locator("[data-cmp=go]")).to_be_hidden()
    ids = sorted(item.id for item in wired[SessionsRepository].list())
    views = [wired[AuditService].view(number) for number in ids]
    assert [view.settings.policy for view in views] == ["vanilla", "coft"]
    assert [view.certificate for view in views] == ["uncertified: vanilla decoding", "certified"]
    compared = wired[ComparisonService].compare(ids)
    expect(page.locator(".cmp-rows tbody tr")).to_have_count(len(compared.rows))
    for place, chain in enumerate(compared.chains):
        written = chain.steps[:-1] if chain.view.finished == "end" else chain.steps
        text = "".join(step.token for step in written)
        expect(page.locator(".lanetext").nth(place)).to_have_text(text, use_inner_text=False)
    expect(page.locator("#cmp-summary tr", has_text="Time per token").locator("td").last).not_to_have_text("–")
    expect(page.locator("#plot-sensitivity .js-plotly-plot")).to_be_visible()
    picture(page, "real-compare-1440-light")
    address = page.url.split("/compare", 1)[1]
    with open_services(wired.settings, owns_store=True) as again, served(again) as url:
        page.goto(f"{url}/compare{address}")
        expect(page.locator(".cmp-rows tbody tr")).to_have_count(len(compared.rows))
        expect(page.locator("#cmp-summary tr", has_text="Time per token").locator("td").last).not_to_have_text("–")


def test_a_set_runs_under_three_methods_and_shows_what_is_stored(embedded, page, picture, tmp_path: Path):
    people = tmp_path / "people.csv"
    people.write_text("prompt,group\nThe nurse said that he,men\nThe nurse said that she,women\n")
    wired, url = embedded
    page.goto(f"{url}/compare")
    expect(page.locator(".colcard")).to_have_count(2)
    page.get_by_role("button", name="A prompt set").click()
    page.locator("#prompt-set input[type=file]").set_input_files(people)
    expect(page.locator("#parsed")).to_contain_text("people.csv")
    page.get_by_role("button", name="Add column").click()
    page.get_by_label("Policy").nth(2).select_option("sdd")
    page.locator(".shared summary").click()
    page.get_by_label("Steps at most").fill("6")
    page.locator("[data-cmp=go]").click()
    done = page.locator(".set-progress li", has_text="2 of 2")
    expect(done).to_have_count(3, timeout=6 * PATIENCE_MS)
    expect(page.locator(".set-open [data-set=cancel]")).to_be_hidden(timeout=4 * PATIENCE_MS)
    (stored,) = wired[SetComparisonService].list()
    view = wired[SetComparisonService].view(stored.id)
    for row, shown in zip(view.rows, page.locator(".set-rows tbody tr").all(), strict=True):
        for cell in row.cells:
            expect(shown).to_contain_text(f"{cell.mean_tv_factual:.3f}")
    page.locator(".set-rows [data-set=open]").first.click()
    expect(page.locator(".lanehead")).to_have_count(3)
    expect(page.locator("#cmp-summary tr", has_text="Time per token").locator("td").last).not_to_have_text("–")
    expect(page.locator("#cmp-summary tr", has_text="Keys and values").locator("td").last).to_contain_text("B")
    expect(page.locator("#plot-vanilla .js-plotly-plot")).to_be_visible()
    picture(page, "real-compare-set-1440-light")
