"""Short names of methods and suites say what they stand for, and what they cannot mean is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.evaluate.methods import METHOD_SETS, method_from, methods_from, suite_sets, suites_from
from app.evaluate.runs import EvaluationMethod
from app.shared.audits import AuditSettings
from app.shared.errors import ServiceError
from coft_core.suites.multiple_choice import ArcEasy
from coft_core.suites.phantom import PhantomGaps, PhantomQuestions

USUAL = AuditSettings()
SUITES = (PhantomGaps(), ArcEasy(), PhantomQuestions())


@pytest.mark.parametrize(
    ("text", "label", "changes", "own"),
    [
        ("vanilla", "Vanilla", {"policy": "vanilla"}, {}),
        ("coft", "COFT, fusion only", {}, {}),
        ("coft:calibrated", "COFT", {}, {"calibrated": True}),
        (" coft : lambda=0.4, calibrated ", "COFT, lambda 0.4", {"lam": 0.4}, {"calibrated": True}),
        ("ours=coft:calibrated,alpha=0.2", "ours", {"alpha": 0.2}, {"calibrated": True}),
        ("coft-factorized:calibrated", "COFT, factorized mask", {"mask_layout": "factorized"}, {"calibrated": True}),
        ("coft:calibrated,mask=gender", "COFT, masks gender", {"masked_families": ("gender",)}, {"calibrated": True}),
        ("coft:calibrated,families=gender+age", "COFT, masks gender, age", {"masked_families": ("gender", "age")},
         {"calibrated": True}),
        ("coft:calibrated,dropped=0.25", "COFT, 25% of spans left out", {}, {"calibrated": True, "dropped": 0.25}),
        ("vanilla:greedy", "Vanilla, greedy", {"policy": "vanilla", "top_k": 1}, {}),
        ("gedi:omega=5", "GeDi, omega 5", {"policy": "gedi", "parameters": (("omega", 5.0),)}, {}),
        ('safety_template:template=own,own_template="Be fair, please: = is fine."', None,
         {"policy": "safety_template",
          "parameters": (("template", "own"), ("own_template", "Be fair, please: = is fine."))}, {}),
    ],
)  # fmt: skip
def test_a_short_name_is_a_method(text, label, changes, own):
    method = method_from(text, USUAL)
    assert method == EvaluationMethod(label or method.label, replace(USUAL, **changes), **own)


TEXTS = st.text() | st.text(" ,=\"'\\\\:\n\tn“ab", max_size=12)


@settings(max_examples=30, deadline=None, derandomize=True, database=None)
@given(system=TEXTS, begun=TEXTS, hint=TEXTS)
def test_every_text_survives_in_a_methods_options(system, begun, hint):
    texts = {"system_prompt": system, "prefill": begun, "mask_hint": hint}
    escapes = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})
    options = ",".join(f'{name}="{text.translate(escapes)}"' for name, text in texts.items())
    read = method_from(f"mine=coft:calibrated,{options},lam=0.4", USUAL).settings
    assert {name: getattr(read, name) for name in texts} == texts
    assert read.lam == 0.4
    if "'" not in system:
        assert method_from(f"coft:system_prompt='{system}',lam=0.4", USUAL).settings.system_prompt == system


def test_methods_that_differ_in_what_they_tell_the_model_have_labels_of_their_own():
    texts = ("coft", "coft:thinking=off", "coft:prompt_format=plain", "coft:prefill=Well", "coft:system_prompt=Be kind")
    labels = [method.label for method in methods_from(texts, USUAL)]
    assert labels == [
        "COFT, fusion only", "COFT, thinking off, fusion only", "COFT, plain prompts, fusion only",
        "COFT, answer begins “Well”, fusion only", "COFT, system prompt “Be kind”, fusion only",
    ]  # fmt: skip


def test_what_a_method_does_not_have_is_refused_and_not_left_out():
    for text, said in (
        ("", "a method"), ("nobody", "'nobody'"), ("coft:lam", "lam needs"), ("coft:lam=much", "lam cannot be 'much'"),
        ("coft:calibrated=yes", "no value"), ("coft:weight=2", "'weight'"), ("coft:mask=hat", "'hat'"),
        ("coft:alpha=0.2", "“calibrated”"), ("coft:dropped=2", "0 to 1"), ("sdd:lam=0.2", "no lambda"),
        ("sdd:calibrated", "no certificate"), ("sdd:mask=factorized", "one masked"), ('coft:mask_hint="a', "quotation"),
        ("coft:system_prompt=It's his, her or their turn", "'her or their turn'"),
    ):  # fmt: skip
        with pytest.raises(ServiceError, match=said):
            method_from(text, USUAL)


def test_settings_of_all_methods_hold_where_no_option_says_otherwise():
    base = replace(USUAL, temperature=0.7, alpha=0.2, policy="sdd", parameters=(("decay", 3.0),), calibration_id=4)
    plain, warm = methods_from(("coft:calibrated", "vanilla:temperature=1.5"), base)
    assert (plain.settings.temperature, plain.settings.alpha, plain.settings.parameters) == (0.7, 0.2, ())
    assert plain.settings.calibration_id is None
    assert [plain.label, warm.label] == ["COFT, alpha 0.2", "Vanilla"]
    assert warm.settings.temperature == 1.5


def test_sets_stand_for_their_methods_each_once():
    table = methods_from(("table1",), USUAL)
    assert [method.settings.policy for method in table] == ["vanilla", "sdd", "dexperts", "dtcd", "coft"]
    assert [method.calibrated for method in table] == [False, False, False, True, True]
    assert methods_from(("vanilla", "table1", "coft:calibrated"), USUAL) == table
    assert [method.settings.lam for method in methods_from(("lambdas",), USUAL)] == [0, 0.2, 0.4, 0.6, 0.8, 1]
    assert all(methods_from((name,), USUAL) for name in METHOD_SETS)


def test_two_methods_cannot_have_one_label():
    with pytest.raises(ServiceError, match="“a”"):
        methods_from(("a=vanilla", "a=sdd"), USUAL)


def test_suites_are_named_by_key_by_kind_and_all_together():
    assert suites_from(("arc_easy,phantom_gaps", "arc_easy"), SUITES) == ("arc_easy", "phantom_gaps")
    assert suites_from(("utility",), SUITES) == ("arc_easy", "phantom_questions")
    assert suites_from(("all",), SUITES) == ("phantom_gaps", "arc_easy", "phantom_questions")
    assert suite_sets(SUITES)["table2"] == ("arc_easy",)
    with pytest.raises(ServiceError, match=r"no suite 'nothing'; choose among .*phantom_gaps"):
        suites_from(("nothing",), SUITES)
