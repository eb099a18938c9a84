"""The finding of an audit: which step and which words it names, and how its page opens with it."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest
from playwright.sync_api import expect

from app.audit.finding import LEAST, finding_message, strongest
from app.audit.service import AuditService
from app.shared.audits import AuditSettings, StartAudit
from app.shared.wiring import Services
from coft_core.controls.measure import ended
from coft_core.controls.result import Controls, Effects, FamilyControls
from coft_core.types import Candidate, Span, Step
from tests.app.shared.test_accessibility import faulty
from tests.records import make_step
from tests.story.model import PROMPT


def step_of(index: int, **words: tuple[float, float]) -> Step:
    """A step whose candidates have these probabilities with the marked words shown and with them masked."""
    rows = tuple(
        Candidate(number, f" {word}", math.log(shown), math.log(masked), math.log(masked), True)
        for number, (word, (shown, masked)) in enumerate(words.items())
    )
    return replace(make_step(index, f" {next(iter(words))}"), candidates=rows)


def never(_: str) -> bool:
    return False


CALM = step_of(0, one=(0.5, 0.49), two=(0.3, 0.31))
TELLING = step_of(1, dismissed=(0.74, 0.52), welcomed=(0.21, 0.42), called=(0.02, 0.035), thanked=(0.01, 0.02))


def test_the_finding_is_the_step_whose_candidates_move_most_in_all() -> None:
    # One word moves more at the first of these, and all together at the second.
    one_word = step_of(2, opened=(0.5, 0.2), closed=(0.2, 0.2))
    assert strongest([CALM, one_word, TELLING], never) is TELLING
    assert strongest([], never) is None


def test_a_step_whose_first_word_refers_to_a_marked_word_is_no_finding() -> None:
    reference = step_of(2, elderly=(0.99, 0.27), young=(0.01, 0.6))
    assert strongest([CALM, reference, TELLING], lambda token: token == " young") is reference
    assert strongest([CALM, reference, TELLING], lambda token: token == " elderly") is TELLING
    message = finding_message("The", ["elderly"], [reference], lambda token: True)
    assert (message["step"], message["words"]) == (None, [])


def test_the_page_is_told_the_step_its_context_and_the_words_that_move_enough_likeliest_first() -> None:
    message = finding_message("A few days later the manager", ["elderly"], [CALM, TELLING], never)
    assert message["step"] == 1
    assert message["words"] == [
        {"t": "dismissed", "shown": 0.74, "masked": 0.52, "band": None, "most": []},
        {"t": "welcomed", "shown": 0.21, "masked": 0.42, "band": None, "most": []},
    ]
    assert message["after"].endswith("the manager one")
    assert message["alone"] == ["one", "dismissed"]
    sentence = "".join(part for part, _ in message["sentence"])
    assert all(part in sentence for part in ("dismissed", "1.4", "elderly", "welcomed", "2.0"))
    assert [part for part, strong in message["sentence"] if strong] == ["1.4 times likelier"]


def controls_of_two_steps(strongest: float, ranges: tuple[float, float] = (0.5, 0.6)) -> Controls:
    """Controls in which the marked word moves 0.3 at the second step, and one of 39 neutral words this much."""
    neutral = tuple(Effects(f"word {number}", (0.01, 0.02), (0.0, 0.0)) for number in range(38))
    further = Effects("local", (0.01, strongest), (0.0, 0.0))
    family = FamilyControls(
        "age", Effects("elderly", (0.0, 0.3), (0.0, 0.4)), "neutral", (*neutral, further),
        (Effects("manager", (0.1, 0.9), (0.0, 0.0)), Effects("later", (0.0, 0.1), (0.0, 0.0))), ranges=((), (ranges,)),
    )  # fmt: skip
    return Controls((replace(family, p_values=family.computed()),))


@pytest.mark.parametrize(("strongest", "p_value"), [(0.1, 1 / 40), (0.3, 2 / 40)])
def test_a_finding_says_because_of_only_where_comparable_words_do_less(strongest: float, p_value: float) -> None:
    controls = controls_of_two_steps(strongest)
    assert controls.p_value(1) == pytest.approx(p_value)
    shared = replace(controls, families=(controls.families[0], replace(controls.families[0], family="race")))
    for found, expected in ((controls, True), (shared, p_value < 0.03), (None, False)):
        message = finding_message("The manager", ["elderly"], [CALM, TELLING], never, found, done=True)
        assert ("because of" in message["sentence"][2][0]) is expected
        assert message["sentence"][1][1] is (expected or found is None)
    bands = {word["t"]: word["band"] for word in message["words"]}
    assert bands == {"dismissed": None, "welcomed": None}
    message = finding_message("The manager", ["elderly"], [CALM, TELLING], never, controls, done=True)
    assert {word["t"]: word["band"] for word in message["words"]} == {"dismissed": (0.5, 0.6), "welcomed": None}
    comparable, other = message["compared"]
    assert f"{p_value:.2g}" in comparable[0]
    assert all(part in other[1] for part in ("1 of 2", "manager", "0.90", "0.30"))


def test_a_comparison_is_stored_once_may_be_skipped_and_is_left_out_where_nothing_is_compared(wired: Services) -> None:
    audits, spans = wired[AuditService], (Span(35, 37, "gender"),)
    own = AuditSettings(calibration_id=None, max_new_tokens=4, seed=5)
    numbers = [audits.start(StartAudit(PROMPT, replace(own, controls=count), spans)).session_id for count in (3, 0)]
    for number in numbers:
        list(audits.run(number))
    begun = audits.comparing(numbers[0])
    next(begun)
    audits.pause(numbers[0])
    assert list(begun) == []
    branches = [audits.branch(number, None).id for number in numbers]
    assert audits.controls(numbers[0], branches[0]) is None
    found = ended(audits.comparing(numbers[0]))
    assert found is not None
    assert found.steps == len(audits.view(numbers[0]).steps)
    assert list(audits.comparing(numbers[0])) == []
    assert audits.controls(numbers[0], branches[0]) == found
    assert ended(audits.comparing(numbers[1])) is None


@pytest.mark.parametrize("masked", [[], ["elderly"]])
def test_without_a_marked_word_or_a_word_that_moves_no_step_is_named(masked: list[str]) -> None:
    still = step_of(0, one=(0.5, 0.5 - 0.9 * LEAST), two=(0.3, 0.3))
    message = finding_message("The manager", masked, [still] if masked else [TELLING], never)
    assert (message["step"], message["words"]) == (None, [])
    assert ("elderly" in message["sentence"][0][0]) is bool(masked)


def test_the_model_alone_writes_what_a_vanilla_session_of_the_same_draws_writes(wired: Services) -> None:
    audits, spans = wired[AuditService], (Span(35, 37, "gender"),)
    own = AuditSettings(calibration_id=None, max_new_tokens=6, seed=5)
    audited = audits.start(StartAudit(PROMPT, own, spans)).session_id
    vanilla = audits.start(StartAudit(PROMPT, replace(own, policy="vanilla"), spans)).session_id
    expected = [step.token_id for step in audits.run(vanilla)]
    before = audits.view(audited)
    alone = list(audits.alone(audited))
    assert [step.token_id for step in alone] == expected[: len(alone)]
    assert len(expected) - len(alone) in (0, 1)
    assert any(row.log_p_factual != row.log_p_masked for step in alone for row in step.candidates)
    assert audits.view(audited) == before


def test_two_actions_show_the_finding_with_both_texts_its_verdict_and_its_report(
    visit, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = visit("/?tab=finding")
    page.locator("[data-do=take]").first.click()
    expect(page.locator("#prompt")).not_to_have_value("")
    expect(page.locator("[data-do=go]")).to_be_enabled()
    expect(page.locator("#lam")).to_be_hidden()
    page.locator("[data-do=rail]:visible").click()
    expect(page.locator("#lam")).to_be_visible()
    alone = services[AuditService].alone

    def slowly(number: int) -> Iterator[Step]:
        for step in alone(number):
            time.sleep(0.03)
            yield step

    monkeypatch.setattr(services[AuditService], "alone", slowly)
    page.locator("[data-do=go]").click()
    expect(page.locator("#finding").get_by_role("progressbar", name="Second text")).to_be_visible()
    finding = page.locator("#finding .found")
    expect(finding.locator(".sentence")).not_to_be_empty()
    expect(finding.locator(".texts dd")).to_have_count(2)
    expect(finding.locator(".answers h3").first).to_be_visible()
    expect(finding.locator(".comparing")).to_be_hidden()
    expect(page.locator("#verdicts [data-verdict=unfair]")).to_be_visible()
    expect(page.locator("#inspector")).to_be_hidden()
    assert faulty(page) == []
    page.locator("[data-do=report]").click()
    expect(page.locator("#menu-download [role=menuitem]").first).to_be_visible()
    page.keyboard.press("Escape")
    page.get_by_role("link", name="Word by word").click()
    expect(page.locator(".strip .tok[data-i]").first).to_be_visible()
    expect(finding).to_be_hidden()
    assert "tab=words" in page.url
    page.get_by_role("link", name="What if someone else?").click()
    expect(page).to_have_url(re.compile(r"/swap\?.*session=\d"))
    expect(page.locator("#prompt")).not_to_have_value("")
