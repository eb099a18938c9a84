"""Asks read in batches, for several policies at once, give what each gives alone; thinking is no answer."""

from __future__ import annotations

import math

import pytest
import torch

import coft_core as cc
from coft_core.decode.plan import plan
from coft_core.errors import InvalidInputError
from coft_core.experiments.speed import with_thresholds
from coft_core.model.fake import tiny_model
from coft_core.model.group import score_branches
from coft_core.policies.base import Past
from coft_core.policies.coft import CoftPolicy
from coft_core.policies.registry import METHODS, method
from coft_core.suites.base import Choices, Scored, Unread, Writing, Written
from coft_core.suites.reading import Reader, start_prompt
from coft_core.text.detection import SpanDetector
from coft_core.text.masking import continuation_ids
from coft_core.text.thinking import ChainThinking, ThinkingMarks, thinking_marks
from coft_core.types import Span
from tests.reciting import THINKS_ON, reciting_model

DETECTOR = SpanDetector(pipeline=None)
ASKS = (
    Choices("The nurse said that he", (" left.", " would go", "ad")),
    Choices("A short one: she", (" ran", " r")),
    Choices("Nothing of the kind here", (" is masked",)),
    Choices("My brother, a much longer prompt about him and his work,", (" sang", " slept")),
)
ALONE = ("cda", "adv_lm_head", "contrastive", "iti")
"""Methods that need a checkpoint or fitted directions that the tiny model lacks."""


@pytest.fixture(scope="module")
def model():
    return tiny_model()


@pytest.fixture(scope="module")
def calibration(model):
    examples = [
        cc.Example(f"The nurse number {'1' * n} said he", " came home late.", (Span(23 + n, 25 + n, "gender"),))
        for n in range(1, 13)
    ]
    return cc.calibrate(model, examples, alpha=0.4, max_iterations=1, seed=3, top_p=1.0)


def policies(calibration):
    named = [item for item in METHODS if item.name not in ALONE]
    built = [item.build(top_p=1.0) for item in named]
    return [*built, cc.CoftPolicy(top_p=1.0, calibration=calibration, accept_mismatch=True)]


def slow_numbers(model, policy, ask, text):
    """Log-probability, floored log-probability, log-mass, refused and empty of a text, one step at a time."""
    planned = plan(model.dated(), ask.prompt, policy, detector=DETECTOR)
    tokens = continuation_ids(model, planned.prompt, text)
    branches = planned.policy.branches(planned.prompt)
    names = tuple(branch.name for branch in branches)
    logits = score_branches(planned.all_models, branches, tokens)
    sums, memory = [0.0, 0.0, 0.0, 0, 0], None
    for index, token in enumerate(tokens):
        past = Past(model, planned.prompt, tuple(tokens[:index]), memory)
        with torch.inference_mode():
            views = planned.policy.views(logits[index : index + 1], index, names, (past,))
            memory = planned.policy.remember(memory, logits[index], token, names)
        log_p = views.log_p_fused[0].double()
        inside = None if views.certified is None else views.certified[0]
        empty = inside is not None and not bool(inside.any())
        refused = inside is not None and not empty and not bool(inside[token])
        floor = float(log_p[token])
        if refused:
            taus = [family.log_tau for family in views.families] or [views.log_tau]
            floor = max(taus) if math.isfinite(max(taus)) else float(log_p[inside].min())
        mass = 0.0 if inside is None or empty else float(log_p[inside].logsumexp(0))
        for place, value in enumerate((float(log_p[token]), floor, mass, refused, empty)):
            sums[place] += value
    return sums


def test_every_method_finds_texts_as_likely_as_one_at_a_time(model, calibration):
    tried = policies(calibration)
    answers = Reader(model, detector=DETECTOR).read(ASKS, tried, [0] * len(ASKS))
    for policy, column in zip(tried, answers, strict=True):
        for ask, answer in zip(ASKS, column, strict=True):
            assert isinstance(answer, Scored)
            for text, likelihood in zip(ask.texts, answer.likelihoods, strict=True):
                log_p, floored, mass, refused, empty = slow_numbers(model, policy, ask, text)
                what = (policy.name, ask.prompt, text)
                assert (likelihood.refused, likelihood.empty) == (refused, empty), what
                assert likelihood.log_p == pytest.approx(log_p, abs=2e-3), what
                assert likelihood.floored == pytest.approx(floored, abs=2e-3), what
                assert likelihood.log_mass == pytest.approx(mass, abs=2e-3), what


def test_a_calibrated_policy_refuses_some_of_these_texts(model, calibration):
    policy = cc.CoftPolicy(top_p=1.0, calibration=calibration, accept_mismatch=True)
    (answers,) = Reader(model, detector=DETECTOR).read(ASKS, [policy], [0] * len(ASKS))
    likelihoods = [likelihood for answer in answers for likelihood in answer.likelihoods]
    assert any(likelihood.refused for likelihood in likelihoods)
    for likelihood in likelihoods:
        assert likelihood.of("zero") == (-math.inf if likelihood.refused else likelihood.log_p - likelihood.log_mass)
        assert likelihood.of("floor") >= likelihood.log_p if likelihood.refused else True


def test_a_text_without_a_prompt_is_read_from_the_start_token_or_refused(model):
    (column,) = Reader(model, detector=DETECTOR).read([Choices("", ("She ran",))], [cc.VanillaPolicy()], [0])
    start = start_prompt(model).factual_ids
    tokens = model.tokenizer("She ran", add_special_tokens=False)["input_ids"]
    with torch.inference_mode():
        log_p = model.plain_logits(torch.tensor([[*start, *tokens[:-1]]]))[0].float().log_softmax(-1)
    expected = sum(float(log_p[place, token]) for place, token in enumerate(tokens))
    assert column[0].likelihoods[0].log_p == pytest.approx(expected, abs=1e-4)
    assert column[0].likelihoods[0].tokens == len(tokens)

    class Bare:
        name, tokenizer = "bare", type("", (), {"bos_token_id": None, "eos_token_id": None})

    with pytest.raises(InvalidInputError, match="no start token"):
        start_prompt(Bare())


def test_prompts_continued_together_give_the_tokens_that_an_audit_gives(model):
    for name in ("coft", "gedi", "cf_substitution"):
        asks = [Writing(ask.prompt, 4) for ask in ASKS]
        policy = method(name).build(top_p=0.9)
        (column,) = Reader(model, detector=DETECTOR).read(asks, [policy], [3, 4, 5, 6])
        for seed, ask, answer in zip((3, 4, 5, 6), asks, column, strict=True):
            run = cc.generate(model, ask.prompt, policy, max_new_tokens=4, seed=seed, detector=DETECTOR)
            assert isinstance(answer, Written)
            assert (answer.text, answer.tokens, answer.finished) == (run.text, len(run.steps), run.finished)


@pytest.mark.parametrize(
    ("name", "context"),
    [("coft", 66), *(pytest.param(*each, marks=pytest.mark.slow) for each in (("gedi", 175), ("cf_substitution", 66)))],
)
def test_a_prompt_is_continued_as_far_as_its_own_context_goes_whatever_stands_beside_it(name, context):
    small = tiny_model(context_length=context)
    policy = method(name).build(top_p=0.9)
    asks = [Writing(ask.prompt, most) for ask, most in zip(ASKS, (50, 50, 5, 50), strict=True)]
    (column,) = Reader(small, detector=DETECTOR).read(asks, [policy], [3, 4, 5, 6])
    ends = set()
    for seed, ask, answer in zip((3, 4, 5, 6), asks, column, strict=True):
        run = cc.generate(small, ask.prompt, policy, max_new_tokens=ask.most_tokens, seed=seed, detector=DETECTOR)
        assert (answer.text, answer.tokens, answer.finished) == (run.text, len(run.steps), run.finished)
        ends.add((answer.finished, answer.tokens))
    assert len(ends) > 2


def test_empty_sets_and_the_certified_share_are_those_of_an_audit(model, calibration):
    policy = cc.CoftPolicy(calibration=calibration, accept_mismatch=True)
    asks = [Writing(ask.prompt, 8) for ask in ASKS]
    (column,) = Reader(model, detector=DETECTOR).read(asks, [policy], [1, 1, 1, 1])
    for ask, answer in zip(asks, column, strict=True):
        run = cc.generate(model, ask.prompt, policy, max_new_tokens=8, seed=1, detector=DETECTOR)
        assert answer.empty == tuple(step.index for step in run.steps if step.fallback)
        sizes = [step.set_size / model.vocabulary_size for step in run.steps]
        assert answer.certified == pytest.approx(sum(sizes) / len(sizes), abs=1e-8)


def test_fallback_tokens_are_where_nothing_is_certified_in_written_texts_and_in_given_ones(monkeypatch):
    model = cc.load_model("demo")
    policy = with_thresholds(CoftPolicy(top_p=1.0), model)
    monkeypatch.setattr(CoftPolicy, "threshold", lambda policy, step: (math.log(0.5), "none"))
    reader = Reader(model, detector=DETECTOR)
    asks = [Writing("The nurse said that he", 12), Writing("My brother said that he", 12)]
    (column,) = reader.read(asks, [policy], [1, 2])
    for ask, answer, seed in zip(asks, column, (1, 2), strict=True):
        run = cc.generate(model, ask.prompt, policy, max_new_tokens=12, seed=seed, detector=DETECTOR)
        # The end token is no text.
        texts = [step.token for step in run.steps if step.fallback and step.token != "<|endoftext|>"]
        assert [answer.text[start:end] for start, end in answer.fallbacks] == texts
        # The text as it was written has the same fallbacks: they were its likeliest tokens.
        ((given,),) = reader.read([Choices(ask.prompt, (answer.text,))], [policy], [1])
        whole = [(answer.text[:start], answer.text[:end]) for start, end in answer.fallbacks]
        assert list(given.likelihoods[0].fallbacks) == whole
        assert answer.fallbacks


def test_a_continuation_ends_before_the_first_stop(model):
    whole = cc.generate(model, "The nurse said that he", cc.VanillaPolicy(), max_new_tokens=12, detector=DETECTOR)
    stop = whole.text[4:6]
    ask = Writing("The nurse said that he", 12, (stop, "never there"))
    ((answer,),) = Reader(model, detector=DETECTOR).read([ask], [cc.VanillaPolicy()], [0])
    assert answer.text == whole.text[: whole.text.index(stop)]
    assert answer.finished == "stop"
    assert answer.tokens < 12


def test_what_does_not_fit_into_the_context_is_unread_and_keeps_nothing_else_from_being_read():
    small = tiny_model(context_length=24)
    asks = [Choices("word " * 9, (" end",)), Choices("She", (" ran",)), Writing("long " * 9, 4), Writing("He", 4)]
    (column,) = Reader(small, detector=DETECTOR).read(asks, [cc.VanillaPolicy()], [0] * 4)
    assert [type(answer) for answer in column] == [Unread, Scored, Unread, Written]
    assert "24" in column[0].reason


def test_policies_that_read_the_same_branches_run_the_model_as_often_as_one_of_them(model, monkeypatch):
    calls = []
    from coft_core.model.forced import ForcedScorer

    original = ForcedScorer.whole
    monkeypatch.setattr(ForcedScorer, "whole", lambda self, items: calls.append(len(items)) or original(self, items))
    reader = Reader(model, detector=DETECTOR)
    reader.read(ASKS, [cc.CoftPolicy(lam=0.5)], [0] * 4)
    once, _ = sum(calls), calls.clear()
    reader.read(ASKS, [cc.VanillaPolicy(), *(cc.CoftPolicy(lam=lam / 10) for lam in range(11))], [0] * 4)
    assert sum(calls) == once


def test_spans_that_a_data_set_points_out_are_masked_beside_those_that_are_detected(model):
    prompt, texts = "The nurse said that he", (" left.",)
    nurse = Span(4, 9, "other", "list")
    found = tuple(DETECTOR.detect(prompt))
    asks = (Choices(prompt, texts), Choices(prompt, texts, also=(nurse,)), Choices(prompt, texts, (*found, nurse)))
    (answers,) = Reader(model, detector=DETECTOR).read(asks, [cc.CoftPolicy(top_p=1.0)], [0, 0, 0])
    detected, beside, both = answers
    assert 0 < detected.masked < beside.masked
    assert beside == both
    assert beside.likelihoods != detected.likelihoods


MARKS = ThinkingMarks("<think>", "</think>")


def recited(ask, text="<think>hm</think>42.", thinking="auto", marks=MARKS):
    model = reciting_model(text)
    assert thinking_marks(model.tokenizer) == MARKS
    model = model.formatted("chat")
    (row,) = Reader(model, marks=marks).read([ask], [CoftPolicy(lam=0.6)], [0])
    return row[0]


def test_thinking_is_no_part_of_an_answer_and_no_stop_ends_it():
    answer = recited(Writing("Is she?", 20, greedy=True))
    assert (answer.text, answer.thinking, answer.finished) == ("42.", "hm", "end")
    assert answer.tokens == len("hm42.") + 3  # both marks, and the end
    answer = recited(Writing("Is she?", 20, stops=("m", "."), greedy=True))
    assert (answer.text, answer.thinking, answer.finished) == ("42", "hm", "stop")
    assert recited(Writing("Is she?", 20, stops=("m",), greedy=True), marks=None).text == "<think>h"
    answer = recited(Writing("Is she?", 12, greedy=True), THINKS_ON)
    assert answer == Unread("The thinking did not end within 12 tokens, so there is no answer.", "hmb" * 3 + "hm")
    given = Choices("Is she?", ("<think>hm</think>42.", "42."))
    assert recited(given) == recited(given, marks=None)


@pytest.mark.parametrize(("tokens", "inside", "thinking", "answer", "ended"), [
    (["<thi", "nk>so", " on</th", "ink>\n\n", "Yes", "."], False, "so on", "Yes.", True),
    (["so", "</think>", " Yes"], True, "so", "Yes", True), (["so", " on"], True, "so on", "", False),
    ([" Yes", " <b>"], False, "", " Yes <b>", True),
    (["A", "<think>", "b", "</think>", "C", "<think>", "d"], False, "bd", "AC", False),
])  # fmt: skip
def test_marks_that_tokens_cut_are_neither_thinking_nor_answer(tokens, inside, thinking, answer, ended):
    def text_of(ids):
        return "".join(tokens[number] for number in ids)

    divided = ChainThinking(MARKS, inside).divided(range(len(tokens)), tokens, text_of)
    assert (divided.thinking, divided.answer, divided.ended) == (thinking, answer, ended)
