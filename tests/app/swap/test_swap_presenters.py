"""Attribute swaps on the page: requests from forms, replacements marked in text, distances in words, and the chart."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

from app.shared.audits import AuditSettings, CalibrationRequest
from app.shared.errors import ServiceError
from app.swap.chart import SHOWN, drawn_tokens
from app.swap.operations import exchange_from_json, swap_json
from app.swap.service import SwapService
from app.swap.types import SwapRequest
from app.swap.variants import swap_targets, swap_variants
from app.swap.words import (
    body_html,
    marked_text,
    result_message,
    swap_request,
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


def test_a_message_is_plain_json_and_leaves_no_candidate_out_of_the_table(result):
    message = json.loads(json.dumps(result_message(result)))
    assert (message["answer"], message["most"], message["number"]) == (2, 3, result.number)
    assert len(drawn_tokens(result)) <= SHOWN < len(result.tokens)
    assert body_html(result).count('<th scope="row" class="mono">') == len(result.tokens)
    made = json.loads(json.dumps(swap_json(result)))
    assert [item["label"] for item in made["variants"]] == [item.variant.label for item in result.outcomes]
    assert made["largest"] == {view: max(item["total_variation"][view] for item in made["distances"])
                               for view in result.views}  # fmt: skip


def test_an_endpoints_options_become_a_request_and_wrong_ones_are_named():
    given = {"groups": ["Sikh"], "group_pronouns": [None], "step": 3, "roles": {"34": "object"}, "targets": [2]}
    request = exchange_from_json(given)
    assert (request.groups, request.answer_step, request.roles) == (("Sikh",), 2, ((34, "object"),))
    assert (request.max_new_tokens, request.targets) == (12, (2,))
    with pytest.raises(ServiceError, match="There is no option 'pronoun'"):
        exchange_from_json({"pronoun": "she"})
    with pytest.raises(ServiceError, match="The option top cannot be 'many'"):
        exchange_from_json({"top": "many"})
