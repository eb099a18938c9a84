"""Methods are timed in turn from their first token on, on prompts of the asked length."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

import numpy as np
import pytest
import torch

import coft_core as cc
from coft_core.decode.loop import generate
from coft_core.experiments.speed import (
    Clock,
    decode,
    efficiency,
    endless,
    peak_memory,
    rounds,
    summary,
    timed_prompt,
    with_thresholds,
)
from coft_core.model.fake import tiny_model
from coft_core.policies.registry import method

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def model():
    return tiny_model()


def test_the_prompts_own_pass_is_not_timed(monkeypatch):
    moments = iter([5.0, 6.0, 8.0])
    monkeypatch.setattr("coft_core.experiments.speed.time.perf_counter", lambda: next(moments))
    clock = Clock(CPU)
    for _ in range(3):
        clock.mark()
    assert clock.timing().wall == 1.5
    assert summary([3.0, 1.0, 2.0]) == {"n": 3, "min": 1.0, "median": 2.0, "max": 3.0, "deviation": 1.0}


def test_every_round_runs_all_methods_and_begins_with_another_one():
    order = []

    def made(name):
        def run(mark):
            order.append(name)
            mark()
            mark()

        return run

    told = []
    found = rounds(CPU, {"a": made("a"), "b": made("b")}, 2, lambda: told.append(1))
    assert order == ["a", "b", "a", "b", "b", "a"]
    assert [list(turn) for turn in found] == [["a", "b"], ["a", "b"]]
    assert len(told) == 6


def test_tokens_a_second_count_all_prompts_and_overhead_is_over_the_first_method(monkeypatch):
    now = count()
    monkeypatch.setattr("coft_core.experiments.speed.time.perf_counter", lambda: float(next(now)))

    def plain(mark):
        mark()
        mark()

    def slow(mark):
        mark()
        for _ in range(3):
            next(now)
        mark()

    found = efficiency(CPU, 4, {"plain": plain, "slow": slow}, repeats=3)
    assert found["plain"].tokens_per_second["median"] == 4.0
    assert found["slow"].tokens_per_second["median"] == 1.0
    assert found["plain"].overhead["median"] == 0.0
    assert found["slow"].overhead["median"] == 0.75


def test_the_peak_on_a_processor_is_what_a_method_holds_beyond_what_was_held_before():
    megabytes = 1 << 20
    held = np.ones(200 * megabytes // 8)  # resident before, and so not counted

    def method(mark):
        more = np.ones(100 * megabytes // 8)
        mark()
        del more
        mark()

    peak = peak_memory(CPU, method) / megabytes
    assert 90 < peak < 150
    assert held.sum() == held.size


def test_a_mixture_of_experts_is_made_in_memory_and_can_be_timed_under_coft():
    mixture = cc.load_model("demo-moe")
    assert mixture.module.config.model_type == "mixtral"
    assert mixture.module.config.num_experts_per_tok < mixture.module.config.num_local_experts
    text, spans = timed_prompt(mixture, 20)
    plans = [cc.plan(endless(mixture), text, cc.CoftPolicy(), spans, max_new_tokens=3)] * 2
    marks = []
    decode(plans, lambda: marks.append(1))
    assert len(marks) == 3


def test_decoding_marks_every_token_of_all_prompts_together_and_goes_on_where_the_model_stops(model):
    text, spans = timed_prompt(model, 20)
    first = generate(model, text, cc.CoftPolicy(), spans, max_new_tokens=1)
    ending = replace(model, end_token_ids=frozenset(step.token_id for step in first.steps))
    for prompts in (1, 2):
        plans = [
            cc.plan(endless(ending), text, cc.CoftPolicy(), spans, seed=place, max_new_tokens=5)
            for place in range(prompts)
        ]
        marks = []
        decode(plans, lambda marks=marks: marks.append(1))
        assert len(marks) == 5


def test_a_timed_prompt_has_its_length_and_a_masked_word_of_each_family(model):
    for words in (1, 3):
        text, spans = timed_prompt(model, 320, words)
        assert len(cc.mask_prompt(model.tokenizer, text, spans).factual_ids) == 320
        assert len({span.category for span in spans}) == words
        assert all(text[span.start : span.end] == "he" for span in spans)


def test_timed_policies_of_coft_have_a_threshold_at_every_step(model):
    for name in ("coft", "coft-no-fusion", "coft-single-branch", "coft-factorized"):
        policy = with_thresholds(method(name).build(), model, ("gender",))
        assert policy.calibration is not None
        text, spans = timed_prompt(model, 30)
        run = generate(endless(model), text, policy, spans, max_new_tokens=3)
        assert all(step.log_tau > -float("inf") for step in run.steps)
    for name in ("vanilla", "coft-no-certification"):
        assert with_thresholds(method(name).build(), model) == method(name).build()
