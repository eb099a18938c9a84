"""Faster paths give the eager forward's logits, are left where they do not, and say which of them runs."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

import coft_core as cc
from coft_core.engine import compiled
from coft_core.engine.compiled import NOT_PREPARED, path_of, prepare
from coft_core.engine.compiled_graph import EAGER_STEPS, GraphSteps
from coft_core.engine.fake import scripted_model, tiny_model
from coft_core.engine.group import BranchGroup, BranchSpec
from coft_core.engine.memory.fit import fit_of
from coft_core.engine.memory.step import forward

TEXT = "She was a nurse and"
SPANS = [cc.Span(0, 3, "gender")]


class PlainDetector:
    version = "plain"


def rollout(model, **options):
    policy = cc.CoftPolicy(top_p=0.9)
    return cc.Rollout(cc.plan(model, TEXT, policy, SPANS, detector=PlainDetector(), max_new_tokens=40, **options))


@pytest.fixture(scope="module")
def traced():
    model = tiny_model()
    prepare(model)
    return model


def test_a_traced_model_says_so_and_one_that_was_not_prepared_says_that(traced):
    assert path_of(traced).text == "traced"
    assert path_of(tiny_model()) is NOT_PREPARED
    assert path_of(tiny_model()).text.startswith("eager: ")


@pytest.mark.parametrize("rows", [(5,), (9, 9), (4, 11, 7)])
def test_traced_logits_are_those_of_plain_recomputation_at_any_length_and_number_of_rows(traced, rows):
    prompts = [tuple(range(10, 10 + length)) for length in rows]
    group = BranchGroup({"base": traced}, [BranchSpec(str(i), prompt) for i, prompt in enumerate(prompts)])
    group.logits()
    for step in range(70):  # past the first capacity of the memory
        group.append(torch.full((len(rows),), 20 + step % 7))
        found = group.logits()
        if step in (0, 1, 30, 69):
            written = tuple(20 + i % 7 for i in range(step + 1))
            for prompt, logits in zip(prompts, found, strict=True):
                plain = traced.module(input_ids=torch.tensor([prompt + written]), use_cache=False).logits[0, -1]
                torch.testing.assert_close(logits, plain, atol=1e-4, rtol=1e-4)


def test_a_traced_chain_equals_the_eager_one_and_can_go_back_and_fork(traced):
    eager, fast = rollout(tiny_model(), seed=3), rollout(traced, seed=3)
    for _ in range(12):
        own, other = eager.step(), fast.step()
        assert own.token_id == other.token_id
        assert own.log_p_fused == pytest.approx(other.log_p_fused, abs=1e-4)
    again = fast.fork(4, fast.steps[4].token_id)
    fast.back(6)
    assert [fast.step().token_id for _ in range(6)] == [step.token_id for step in eager.steps[6:]]
    assert again.steps[-1].log_p_fused == pytest.approx(eager.steps[4].log_p_fused, abs=1e-4)


def test_branches_with_hooks_never_take_a_path_that_was_made_without_them(traced):
    def doubled(module):
        return module.lm_head.register_forward_hook(lambda _module, _inputs, output: 2 * output)

    specs = [BranchSpec("plain", (5, 6, 7)), BranchSpec("hooked", (5, 6, 7), hooks=(doubled,))]
    group = BranchGroup({"base": traced}, specs)
    group.logits()
    group.append(torch.tensor([8, 8]))
    plain, hooked = group.logits()
    torch.testing.assert_close(hooked, 2 * plain, atol=1e-4, rtol=1e-4)


def test_progress_rises_to_one_and_says_what_is_done():
    told = []
    prepare(tiny_model(), lambda share, what: told.append((share, what)))
    assert [share for share, _ in told] == sorted(share for share, _ in told)
    assert told[-1] == (1.0, "Steps run traced")
    assert all(what for _, what in told)


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (lambda: tiny_model(dtype=torch.float16), "float32"),
        (lambda: scripted_model({" a": 0.5}, {" a": 0.5}, (" b", " a")), "transformers model"),
    ],
)
def test_what_cannot_be_prepared_stays_eager_and_says_why(model, reason):
    path = prepare(model())
    assert path.name == "eager"
    assert reason in path.text


def test_a_path_with_other_logits_is_not_used(monkeypatch):
    class Wrong:
        failure = ""

        def __init__(self, *_):
            pass

        def logits(self, part):
            return torch.zeros(len(part.ids), 258)

    monkeypatch.setattr(compiled, "TracedSteps", Wrong)
    model = tiny_model()
    assert prepare(model).text == "eager: a faster path gave other logits"
    assert [step.token_id for step in [rollout(model, seed=1).step()]] == [
        rollout(tiny_model(), seed=1).step().token_id
    ]


def test_a_path_that_fails_is_not_used_and_its_error_is_told(monkeypatch):
    def fail(*_):
        raise RuntimeError("no such operation\nand a long trace")

    monkeypatch.setattr(compiled, "TracedSteps", fail)
    assert prepare(tiny_model()).text == "eager: a faster path failed (no such operation)"


def test_a_path_is_prepared_once_when_a_model_has_taken_enough_steps_and_tokens_stay_the_same():
    model, waiting = tiny_model(), []
    compiled.prepare_when_used(model, after=3, run=waiting.append)
    assert path_of(model).text == "eager: a faster path is prepared after 3 steps"
    chain, expected = rollout(model, seed=3), rollout(tiny_model(), seed=3)
    found = []
    for _ in range(9):
        found.append(chain.step().token_id)
        if waiting and path_of(model).name == "eager":
            waiting[0]()
    assert len(waiting) == 1
    assert path_of(model).text == "traced"
    assert found == [expected.step().token_id for _ in range(9)]


def test_a_countdown_acts_once_however_many_threads_tell_it():
    acts = []
    countdown = compiled.Countdown(100, lambda: acts.append(1))
    with ThreadPoolExecutor(8) as threads:
        for _ in range(400):
            threads.submit(countdown.tell)
    assert acts == [1]


def test_preparing_beside_further_steps_ends_with_the_faster_path():
    model = tiny_model()
    compiled.prepare_when_used(model, after=1)
    chain = rollout(model, seed=3)
    chain.step()
    chain.step()
    for thread in threading.enumerate():
        if thread.name == "prepare-steps":
            thread.join()
    assert path_of(model).name == "traced"


def test_forgetting_goes_back_to_the_eager_forward():
    model = tiny_model()
    prepare(model)
    compiled.forget(model)
    assert path_of(model) is NOT_PREPARED


def test_a_memory_that_cannot_be_captured_goes_on_eagerly_and_says_why(monkeypatch):
    def full(*_):
        raise RuntimeError("out of memory\nand a long table")

    model = tiny_model()
    fit = fit_of(model)
    steps = GraphSteps(model.module, fit)
    monkeypatch.setattr(steps, "_capture", full)
    part = compiled._probe(model, fit, (5, 5))
    expected = forward(model.module, [part], fit.layers, fit.accepts)
    for _ in range(EAGER_STEPS + 2):
        torch.testing.assert_close(steps.logits(part), expected)
    path = compiled.StepPath("CUDA graph", steps=steps)
    assert path.text == "CUDA graph, eager where there is none yet: out of memory"


def test_a_graph_is_captured_only_after_some_eager_steps_and_again_where_memory_has_moved(monkeypatch):
    model = tiny_model()
    fit, captured = fit_of(model), []
    steps = GraphSteps(model.module, fit)

    def capture(own, part):
        captured.append(part.slots.capacity)
        own.graph = lambda: forward(model.module, [part], fit.layers, fit.accepts)

    monkeypatch.setattr(steps, "_capture", capture)
    monkeypatch.setattr("coft_core.engine.compiled_graph._replay", lambda own, ids: own.graph())
    part = compiled._probe(model, fit, (5, 5))
    first = part.slots.capacity
    for _ in range(EAGER_STEPS):
        steps.logits(part)
    assert captured == []
    expected = forward(model.module, [part], fit.layers, fit.accepts)
    torch.testing.assert_close(steps.logits(part), expected)
    steps.logits(part)
    assert captured == [first]
    part.slots.reserve(2 * first)
    for _ in range(EAGER_STEPS + 1):
        steps.logits(part)
    assert captured == [first, part.slots.capacity]
