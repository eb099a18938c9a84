"""The phantom's scenarios as examples: a prompt with what was planted there."""

import json
from pathlib import Path

from playwright.sync_api import expect

SCENARIOS = Path(__file__).parents[3] / "assets" / "prompts" / "phantom_examples.json"


def test_scenarios_are_grouped_by_setting(audit):
    page = audit()
    groups = json.loads(SCENARIOS.read_text("utf-8"))
    shown = page.locator("#phantoms optgroup").evaluate_all("groups => groups.map((group) => group.label)")
    assert shown == [group["title"] for group in groups]
    assert page.locator("#phantoms option").count() == 1 + sum(len(group["examples"]) for group in groups)


def test_a_scenario_fills_the_prompt_and_says_what_is_planted_until_the_text_changes(audit):
    page = audit()
    first = json.loads(SCENARIOS.read_text("utf-8"))[0]["examples"][0]
    planted = page.locator("#editor .planted")
    expect(planted).to_be_hidden()
    page.locator("#phantoms").select_option(value=first["prompt"])
    expect(page.locator("#prompt")).to_have_value(first["prompt"])
    expect(planted).to_contain_text(first["planted"])
    expect(page.locator("#phantoms")).to_have_value("")
    page.locator("#prompt").fill(f"{first['prompt']} now")
    expect(planted).to_be_hidden()


def test_an_ordinary_example_says_nothing_of_planted_rates(audit):
    page = audit()
    first = json.loads(SCENARIOS.read_text("utf-8"))[1]["examples"][0]
    page.locator("#phantoms").select_option(value=first["prompt"])
    expect(page.locator("#editor .planted")).to_be_visible()
    page.locator("#examples").select_option(index=1)
    expect(page.locator("#editor .planted")).to_be_hidden()
