"""The phantom's scenarios as examples: a prompt with what was planted there."""

import json
from pathlib import Path

from playwright.sync_api import expect

SCENARIOS = Path(__file__).parents[3] / "assets" / "prompts" / "phantom_examples.json"


def name(group, example):
    return f"{group['title']}, {example['title'][0].lower()}{example['title'][1:]}"


def test_every_scenario_is_offered_under_a_name_of_its_own_with_its_setting_first(audit):
    page = audit()
    groups = json.loads(SCENARIOS.read_text("utf-8"))
    shown = page.locator("#scenarios option").evaluate_all("options => options.map((option) => option.value)")
    assert shown == [name(group, example) for group in groups for example in group["examples"]]
    assert len(set(shown)) == len(shown)


def test_a_scenario_fills_the_prompt_and_says_what_is_planted_until_the_text_changes(audit):
    page = audit()
    group = json.loads(SCENARIOS.read_text("utf-8"))[0]
    first = group["examples"][0]
    planted = page.locator("#editor .planted")
    expect(planted).to_be_hidden()
    page.locator("#phantoms").fill(name(group, first)[:6])
    expect(page.locator("#prompt")).to_have_value("")
    page.locator("#phantoms").fill(name(group, first))
    expect(page.locator("#prompt")).to_have_value(first["prompt"])
    expect(planted).to_contain_text(first["planted"])
    expect(page.locator("#phantoms")).to_have_value("")
    page.locator("#prompt").fill(f"{first['prompt']} now")
    expect(planted).to_be_hidden()


def test_an_ordinary_example_says_nothing_of_planted_rates(audit):
    page = audit()
    group = json.loads(SCENARIOS.read_text("utf-8"))[1]
    page.locator("#phantoms").fill(name(group, group["examples"][0]))
    expect(page.locator("#editor .planted")).to_be_visible()
    page.locator("#examples").select_option(index=1)
    expect(page.locator("#editor .planted")).to_be_hidden()


def test_the_first_example_brings_the_seed_under_which_it_shows_a_strong_effect(audit):
    page = audit()
    page.locator("#examples").select_option(index=1)
    expect(page.get_by_label("Seed")).to_have_value("3")
