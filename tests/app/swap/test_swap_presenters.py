"""Attribute swaps on the page: requests from forms, replacements marked in text, distances in words, and the chart."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

import pytest

from app.shared.audits import AuditSettings, StartAudit
from app.shared.errors import ServiceError
from app.shared.exchanges import Variant
from app.shared.policies import policy_name
from app.swap.operations import exchange_from_json
from app.swap.types import SwapChain, SwapGap, SwapOutcome, SwapRequest, SwapResult, SwapToken
from app.swap.variants import swap_targets, swap_variants
from app.swap.words import (
    SHOWN,
    body_html,
    chain_claim,
    drawn_tokens,
    form_message,
    marked_text,
    result_message,
    swap_figure,
    swap_request,
    token_html,
)
from coft_core.types import Span
from tests.records import make_step
from tests.story.model import STORY

WORDS = (" hire", " reject", " call", " thank", " the", " wait", " interview", " think")
SHARES = {"factual": 1.0, "fused": 0.35, "drawn": 0.3, "masked": 0.0}
"""By reading: how much of the difference between variants is left."""

PROMPT = "A Muslim woman <said> Muslims saw her leave"
SPANS = (
    Span(2, 8, "religion"), Span(9, 14, "gender"), Span(22, 29, "religion"), Span(34, 37, "gender"),
)  # fmt: skip
FORM = {
    "prompt": PROMPT,
    "pronouns": [],
    "groups": [{"text": " atheist ", "with": ""}, {"text": " ", "with": ""}],
    "category": "",
    "left": [],
    "roles": {},
    "original": True,
}


def compared(request: SwapRequest, variants: Sequence[Variant], number: int = 1) -> SwapResult:
    """A result in which variants differ in the visible view, less after fusion, and not at all when masked."""
    views = ("factual", "fused", "masked") if request.settings.calibration_id is None else tuple(SHARES)
    step = request.answer_step
    outcomes = tuple(
        SwapOutcome(v, chain(request, v, "vanilla"), chain(request, v, request.settings.policy), True, 12)
        for v in variants
    )
    tokens = tuple(
        SwapToken(
            200 + row,
            word,
            {
                view: tuple(_probability(row, n, SHARES[view], len(variants), step) for n in range(len(variants)))
                for view in views
            },
        )
        for row, word in enumerate(WORDS)
    )
    gaps = tuple(
        SwapGap(i, j, {view: 0.41 * SHARES[view] * (j - i) / (len(variants) - 1) / (1 + step) for view in views})
        for i, j in combinations(range(len(variants)), 2)
    )
    notes = ("Distributions are compared over the whole vocabulary at temperature 1, before top-p and top-k.",)
    return SwapResult(outcomes, views, step, tokens, gaps, notes, number)


def chain(request: SwapRequest, variant: Variant, policy: str) -> SwapChain:
    """What follows a variant: the same story under every policy."""
    settings = replace(
        request.settings,
        policy=policy,
        calibration_id=request.settings.calibration_id if policy == "coft" else None,
        max_new_tokens=request.max_new_tokens,
    )
    calibrated = settings.calibration_id is not None
    steps = tuple(
        make_step(index, STORY[index % len(STORY)], None if calibrated else "none")
        for index in range(request.max_new_tokens)
    )
    text = "".join(step.token for step in steps)
    certificate = "certified" if calibrated else "uncertified: no calibration"
    start = StartAudit(variant.prompt, settings, variant.spans, f"{variant.label} · {policy_name(policy)}")
    return SwapChain(steps, text, "length", certificate, start)


def _probability(row: int, variant: int, share: float, count: int, step: int) -> float:
    base = 0.42 / (1 + row)
    lean = (variant / max(1, count - 1) - 0.5) * (1 if row % 2 else -1)
    return max(0.0, base + 0.3 * share * lean / (1 + row + step))


def asked(**changes) -> SwapRequest:
    return swap_request({**FORM, **changes}, SPANS, swap_targets(PROMPT, SPANS), AuditSettings())


def result_of(groups=("atheist", "Sikh"), calibration=1, step=0, length=4):
    settings = AuditSettings(calibration_id=calibration)
    request = SwapRequest(
        PROMPT, settings, SPANS, groups=groups, category="religion", answer_step=step, max_new_tokens=length
    )
    return compared(request, swap_variants(request, SPANS))


def test_a_form_names_spans_and_pronouns_so_that_edits_elsewhere_do_not_move_its_choices():
    request = asked(
        left=["Muslim#1", "gone#1"], roles={"her#1": "object", "his#1": "possessive"}, pronouns=["he", "she"]
    )
    assert request.targets == (9, 22, 34)
    assert request.roles == ((34, "object"),)
    assert request.pronouns == ("she", "he")
    assert (request.groups, request.group_pronouns, request.category) == (("atheist",), (None,), "religion")
    moved = "Yesterday " + PROMPT
    spans = tuple(Span(span.start + 10, span.end + 10, span.category) for span in SPANS)
    form = {**FORM, "prompt": moved, "left": ["Muslim#1"], "roles": {"her#1": "object"}}
    later = swap_request(form, spans, swap_targets(moved, spans), AuditSettings())
    assert (later.targets, later.roles) == ((19, 32, 44), ((44, "object"),))


def test_what_does_not_apply_to_a_prompt_is_not_asked_for():
    words = SPANS[:1]
    form = {**FORM, "pronouns": ["she"], "groups": [{"text": "Sikh", "with": "he"}], "category": "age"}
    request = swap_request(form, words, swap_targets(PROMPT, words), AuditSettings())
    assert (request.pronouns, request.group_pronouns, request.category) == ((), (None,), "religion")


@pytest.mark.parametrize(("field", "value"), [("length", ""), ("length", "0"), ("answer", "1.5"), ("answer", "-1")])
def test_numbers_that_are_none_are_refused_in_one_sentence(field: str, value: str):
    with pytest.raises(ServiceError, match="whole number"):
        asked(**{field: value})
    assert asked(length="7", answer="3").answer_step == 2


def test_every_replacement_is_marked_where_it_stands_now_and_markup_in_prompts_is_only_text():
    request = SwapRequest(PROMPT, spans=SPANS, groups=("atheist",), group_pronouns=("he",), category="religion")
    variant = swap_variants(request, SPANS)[1]
    shown = marked_text(variant)
    marked = re.findall(r'<mark class="swapped ([a-z ]+)"[^>]*>([^<]+)<', shown)
    assert marked == [("article", "An"), ("span", "atheist"), ("span", "atheists"), ("pronoun unsure", "his")]
    plain = re.sub(r'<span class="(?:vh|doubt)".*?</span>|</?mark.*?>', "", shown)
    assert plain == variant.prompt.replace("<", "&lt;").replace(">", "&gt;")
    assert "pronoun replaced: was “her”, to be checked" in shown


def test_only_pronouns_that_could_be_something_else_are_asked_about():
    message = form_message(swap_targets("He said his aunt saw her go", ()), None, ((), ()), "x")
    assert [(item["text"], item["role"], item["sure"]) for item in message["pronouns"]] == [
        ("his", "possessive", True),
        ("her", "possessive", False),
    ]
    assert [role for role, _ in message["pronouns"][1]["roles"]] == ["object", "possessive"]


def test_a_heat_table_holds_every_pair_both_ways_and_nothing_on_its_diagonal():
    result = result_of()
    cells = re.findall(r'<td class="n( same)?"(?: style="--v:(\d+)%")?>(.*?)</td>', body_html(result))[:9]
    rows = [cells[i : i + 3] for i in (0, 3, 6)]
    for i in range(3):
        assert rows[i][i][0] == " same"
        for j in range(3):
            if i != j:
                value = next(g.distances["factual"] for g in result.gaps if {g.first, g.second} == {i, j})
                assert rows[i][j][1:] == (f"{100 * value:.0f}", f"{value:.2f}")


def test_vanilla_tokens_carry_no_certificate_and_the_policys_do():
    missed = make_step(12, ".")
    assert token_html(make_step(0, " and"), 0, alone=True).startswith('<span class="tok bare now"')
    assert 'class="tok fallback' in token_html(missed, 0, alone=False)
    assert "certified" not in token_html(make_step(0, " and"), 1, alone=True)
    outcome = result_of(length=14).outcomes[0]
    good = sum(step.certified for step in outcome.policy.steps)
    assert 0 < good < 14
    assert chain_claim(outcome.policy, alone=False) == f"{good} of 14 tokens certified"
    assert chain_claim(outcome.vanilla, alone=True) == "14 tokens, nothing is certified"
    uncertified = result_of(calibration=None).outcomes[0].policy
    assert chain_claim(uncertified, alone=False) == "4 tokens, uncertified: no calibration"


def test_the_chart_has_a_panel_a_reading_and_tells_variants_apart_by_the_shape_of_their_marks():
    result = result_of(groups=tuple(f"group {n}" for n in range(11)))
    figure = swap_figure(result)
    named = [trace for trace in figure.data if trace.mode == "markers"]
    assert [trace.xaxis for trace in named if trace.showlegend] == ["x"] * 12
    assert len({trace.marker.symbol for trace in named[:12]}) == 12
    assert len(named) == 12 * 4
    assert {trace.xaxis for trace in named} == {"x", "x2", "x3", "x4"}
    for panel, view in enumerate(result.views):
        own = sorted(named[12 * panel : 12 * panel + 12], key=lambda trace: trace.legendrank)
        for number, trace in enumerate(own):
            assert list(trace.x) == [token.probabilities[view][number] for token in drawn_tokens(result)]
    assert len({tuple(figure.layout[f"xaxis{n}"].range) for n in ("", 2, 3, 4)}) == 1
    assert all(trace.marker.color is None and trace.line.color is None for trace in figure.data)


def test_a_message_is_plain_json_and_leaves_no_candidate_out_of_the_table():
    result = result_of(step=2)
    message = json.loads(json.dumps(result_message(result)))
    assert (message["answer"], message["most"], message["number"]) == (3, 4, 1)
    assert len(drawn_tokens(result)) <= SHOWN
    assert body_html(result).count('<th scope="row" class="mono">') == len(result.tokens)


@pytest.mark.parametrize(("policy", "shown"), [("coft", "After fusion"), ("sdd", "Under Self-debiasing")])
def test_a_swap_says_fusion_only_of_methods_that_fuse(policy, shown):
    request = SwapRequest("The nurse said he", AuditSettings(policy=policy), pronouns=("she",))
    markup = body_html(compared(request, [Variant(label, label, ()) for label in ("he", "she")]))
    assert f"<b>{shown}</b>" in markup
    assert f'aria-label="{policy_name(policy)}, she"' in markup
    assert 'aria-label="Vanilla, she"' in markup


def test_an_endpoints_options_become_a_request_and_wrong_ones_are_named():
    given = {"groups": ["Sikh"], "group_pronouns": [None], "step": 3, "roles": {"34": "object"}, "targets": [2]}
    request = exchange_from_json(given)
    assert (request.groups, request.answer_step, request.roles) == (("Sikh",), 2, ((34, "object"),))
    assert (request.max_new_tokens, request.targets) == (12, (2,))
    with pytest.raises(ServiceError, match="There is no option 'pronoun'"):
        exchange_from_json({"pronoun": "she"})
    with pytest.raises(ServiceError, match="The option top cannot be 'many'"):
        exchange_from_json({"top": "many"})
