"""Attribute swaps on the page: requests from forms, replacements marked in text, distances in words, and the chart."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

from app.shared.audits import AuditSettings, CalibrationRequest
from app.shared.errors import ServiceError
from app.swap.chart import SHOWN, drawn_tokens, swap_figure
from app.swap.operations import exchange_from_json, swap_json
from app.swap.service import SwapService
from app.swap.types import SwapRequest
from app.swap.variants import swap_targets, swap_variants
from app.swap.words import (
    body_html,
    chain_claim,
    form_message,
    lead,
    marked_text,
    names_of,
    result_message,
    swap_request,
    token_html,
)
from coft_core.types import Span
from tests.app.conftest import calibrated_on
from tests.conftest import prompt_set_csv

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
GROUPS = ("Sikh", "Jew", "Hindu", "Quaker", "Baptist", "Parsi", "Druze", "Taoist", "Shinto", "Jain", "pagan")
SETTINGS = AuditSettings(model="tiny", top_p=1.0, lam=0.25, alpha=0.9)


@pytest.fixture(scope="module")
def wired(shared):
    return shared


@pytest.fixture(scope="module")
def result(wired, tmp_path_factory):
    """Twelve variants compared under a policy that certifies."""
    asked = CalibrationRequest(name="set", model="tiny", top_p=1.0, lam=0.25)
    number = calibrated_on(wired, tmp_path_factory.mktemp("set"), prompt_set_csv(), asked)
    settings = replace(SETTINGS, calibration_id=number)
    return wired[SwapService].compare(
        SwapRequest("A Muslim left", settings, SPANS[:1], groups=GROUPS, max_new_tokens=3, answer_step=1)
    )


def asked(**changes) -> SwapRequest:
    return swap_request({**FORM, **changes}, SPANS, swap_targets(PROMPT, SPANS), AuditSettings())


def test_a_form_names_spans_and_pronouns_so_that_edits_elsewhere_do_not_move_its_choices():
    roles = {"her#1": "object", "his#1": "possessive"}
    request = asked(left=["Muslim#1", "gone#1"], roles=roles, pronouns=["he", "she"])
    assert request.targets == (9, 22, 34)
    assert request.roles == ((34, "object"),)
    assert request.pronouns == ("she", "he")
    assert (request.groups, request.group_pronouns, request.category) == (("atheist",), (None,), "religion")
    moved = "Yesterday " + PROMPT
    spans = tuple(Span(span.start + 10, span.end + 10, span.category) for span in SPANS)
    form = {**FORM, "prompt": moved, "left": ["Muslim#1"], "roles": {"her#1": "object"}}
    later = swap_request(form, spans, swap_targets(moved, spans), AuditSettings())
    assert (later.targets, later.roles) == ((19, 32, 44), ((44, "object"),))
    # What does not apply to a prompt is not asked for.
    form = {**FORM, "pronouns": ["she"], "groups": [{"text": "Sikh", "with": "he"}], "category": "age"}
    request = swap_request(form, SPANS[:1], swap_targets(PROMPT, SPANS[:1]), AuditSettings())
    assert (request.pronouns, request.group_pronouns, request.category) == ((), (None,), "religion")
    for field, value in (("length", ""), ("length", "0"), ("answer", "1.5"), ("answer", "-1")):
        with pytest.raises(ServiceError, match="whole number"):
            asked(**{field: value})
    request = asked(length="7", answer="3")
    assert (request.max_new_tokens, request.answer_step) == (7, 2)


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
    message = form_message(swap_targets("He said his aunt saw her go", ()), None, "x")
    assert [(item["text"], item["role"], item["sure"]) for item in message["pronouns"]] == [
        ("his", "possessive", True),
        ("her", "possessive", False),
    ]
    assert [role for role, _ in message["pronouns"][1]["roles"]] == ["object", "possessive"]
    targets = swap_targets("The Muslims saw him", (Span(4, 11, "religion"), Span(16, 19, "gender")))
    assert "Sikh" in form_message(targets, "religion", "x")["usual"]


def test_a_heat_table_holds_every_pair_both_ways_and_nothing_on_its_diagonal(result):
    cells = re.findall(r'<td class="n( same)?"(?: style="--v:(\d+)%")?>(.*?)</td>', body_html(result))[:144]
    distances = {(gap.first, gap.second): gap.distances["factual"] for gap in result.gaps}
    for place, (same, width, text) in enumerate(cells):
        pair = tuple(sorted(divmod(place, 12)))
        assert bool(same) == (pair not in distances)
        if not same:
            assert (width, text) == (f"{100 * distances[pair]:.0f}", f"{distances[pair]:.2f}")


def test_vanilla_tokens_carry_no_certificate_and_the_policys_do(result):
    for outcome in result.outcomes:
        good = sum(step.certified for step in outcome.policy.steps)
        assert chain_claim(outcome.policy, alone=False) == f"{good} of 3 tokens certified"
        assert chain_claim(outcome.vanilla, alone=True) == "3 tokens, nothing is certified"
        for step in outcome.policy.steps:
            bare = token_html(step, 1, alone=True)
            assert bare.startswith('<span class="tok bare')
            assert "threshold" not in bare
            assert (" now" in bare.partition(">")[0]) == (step.index == 1)
            assert ("threshold held" in token_html(step, 1, alone=False)) == step.certified


def test_the_chart_has_a_panel_a_reading_and_tells_variants_apart_by_the_shape_of_their_marks(result):
    figure = swap_figure(result, names_of(result))
    named = [trace for trace in figure.data if trace.mode == "markers"]
    assert [trace.xaxis for trace in named if trace.showlegend] == ["x"] * 12
    assert len({trace.marker.symbol for trace in named[:12]}) == 12
    assert len(named) == 12 * 4
    for panel, view in enumerate(result.views):
        own = sorted(named[12 * panel : 12 * panel + 12], key=lambda trace: trace.legendrank)
        assert {trace.xaxis for trace in own} == {f"x{panel + 1 if panel else ''}"}
        for number, trace in enumerate(own):
            assert list(trace.x) == [token.probabilities[view][number] for token in drawn_tokens(result)]
    assert len({tuple(figure.layout[f"xaxis{n}"].range) for n in ("", 2, 3, 4)}) == 1
    assert all(trace.marker.color is None and trace.line.color is None for trace in figure.data)


def test_a_message_is_plain_json_and_leaves_no_candidate_out_of_the_table(result):
    message = json.loads(json.dumps(result_message(result)))
    assert (message["answer"], message["most"], message["number"]) == (2, 3, result.number)
    assert len(drawn_tokens(result)) <= SHOWN < len(result.tokens)
    assert body_html(result).count('<th scope="row" class="mono">') == len(result.tokens)
    made = json.loads(json.dumps(swap_json(result)))
    assert [item["label"] for item in made["variants"]] == [item.variant.label for item in result.outcomes]
    assert made["largest"] == {view: max(item["total_variation"][view] for item in made["distances"])
                               for view in result.views}  # fmt: skip


@pytest.mark.parametrize(("policy", "shown"), [("coft", "After fusion"), ("sdd", "Under Self-debiasing")])
def test_a_swap_names_the_furthest_variants_and_says_fusion_only_of_methods_that_fuse(wired, policy, shown):
    settings = replace(SETTINGS, policy=policy)
    found = wired[SwapService].compare(SwapRequest("He left", settings, pronouns=("she",), max_new_tokens=1))
    assert names_of(found)[:2] == ("Visible", shown)
    assert f"<b>{shown}</b>" in body_html(found)
    assert "Replacing “he” with “she” " in lead(found).replace("the typed words", "“he”")


def test_an_endpoints_options_become_a_request_and_wrong_ones_are_named():
    given = {"groups": ["Sikh"], "group_pronouns": [None], "step": 3, "roles": {"34": "object"}, "targets": [2]}
    request = exchange_from_json(given)
    assert (request.groups, request.answer_step, request.roles) == (("Sikh",), 2, ((34, "object"),))
    assert (request.max_new_tokens, request.targets) == (12, (2,))
    with pytest.raises(ServiceError, match="There is no option 'pronoun'"):
        exchange_from_json({"pronoun": "she"})
    with pytest.raises(ServiceError, match="The option top cannot be 'many'"):
        exchange_from_json({"top": "many"})
