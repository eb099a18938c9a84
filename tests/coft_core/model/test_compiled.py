"""Faster paths give the eager forward's logits, are left where they do not, and say which of them runs."""

import gc
import weakref
from types import SimpleNamespace

import pytest
import torch

import coft_core as cc
from coft_core.model import compiled
from coft_core.model.attention import Part, forward
from coft_core.model.branches import BranchBatch, BranchSpec, joint_logits
from coft_core.model.compiled import EAGER_STEPS, NOT_PREPARED, GraphSteps, TracedSteps, path_of, prepare, step_logits
from coft_core.model.fake import scripted_model, tiny_model
from coft_core.model.group import BranchGroup
from coft_core.model.memory_fit import fit_of
from tests.conftest import PlainDetector

TEXT = "She was a nurse and"
SPANS = [cc.Span(0, 3, "gender")]
NEAR = {"atol": 1e-4, "rtol": 1e-4}
"""How far float32 logits of two paths may be apart on any processor."""


def rollout(model, **options):
    policy = cc.CoftPolicy(top_p=0.9)
    return cc.Rollout(cc.plan(model, TEXT, policy, SPANS, detector=PlainDetector(), max_new_tokens=40, **options))


@pytest.fixture(scope="module")
def traced():
    """A traced model, with what was told while it was made ready."""
    model, told = tiny_model(), []
    prepare(model, lambda share, what: told.append((share, what)))
    assert [share for share, _ in told] == sorted(share for share, _ in told)
    assert told[-1] == (1.0, "Steps run traced")
    assert all(what for _, what in told)
    return model


def test_a_traced_model_says_so_and_one_that_was_not_prepared_says_that(traced):
    assert path_of(traced).text == "traced"
    assert path_of(tiny_model()) is NOT_PREPARED
    assert path_of(tiny_model()).text.startswith("eager: ")


def test_traced_logits_are_those_of_plain_recomputation_at_any_length_and_number_of_rows(traced, monkeypatch):
    taken, plain_logits = [], TracedSteps.logits
    monkeypatch.setattr(TracedSteps, "logits", lambda *own: taken.append(own) or plain_logits(*own))
    for rows in ((1,), (1, 1), (5,), (9, 9), (4, 11, 7)):
        prompts = [tuple(range(10, 10 + length)) for length in rows]
        group = BranchGroup({"base": traced}, [BranchSpec(str(i), prompt) for i, prompt in enumerate(prompts)])
        for first, prompt in zip(group.logits(), prompts, strict=True):
            plain = traced.module(input_ids=torch.tensor([prompt]), use_cache=False).logits[0, -1]
            torch.testing.assert_close(first, plain, **NEAR)
        for step in range(70 if rows[0] > 1 else 2):  # past the first capacity of the memory
            group.append(torch.full((len(rows),), 20 + step % 7))
            found = group.logits()
            if step in (0, 1, 30, 69):
                written = tuple(20 + i % 7 for i in range(step + 1))
                for prompt, logits in zip(prompts, found, strict=True):
                    plain = traced.module(input_ids=torch.tensor([prompt + written]), use_cache=False).logits[0, -1]
                    torch.testing.assert_close(logits, plain, **NEAR)
    assert len(taken) >= 3 * 70


def test_what_a_trace_is_made_of_goes_with_its_model(traced):  # the first one enters what all traces share
    entered = len(torch.jit._state._python_cu.get_functions())
    model = tiny_model()
    prepare(model)
    held = [weakref.ref(tensor) for tensor in model.module.parameters()]
    del model
    gc.collect()
    assert [own() for own in held] == [None] * len(held)
    assert len(torch.jit._state._python_cu.get_functions()) == entered


def test_branches_with_hooks_never_take_a_path_that_was_made_without_them(traced):
    def doubled(module):
        return module.lm_head.register_forward_hook(lambda _module, _inputs, output: 2 * output)

    specs = [BranchSpec("plain", (5, 6, 7)), BranchSpec("hooked", (5, 6, 7), hooks=(doubled,))]
    group = BranchGroup({"base": traced}, specs)
    group.logits()
    group.append(torch.tensor([8, 8]))
    plain, hooked = group.logits()
    torch.testing.assert_close(hooked, 2 * plain, **NEAR)


def test_what_cannot_be_prepared_stays_eager_and_says_why():
    scripted = scripted_model({" a": 0.5}, {" a": 0.5}, (" b", " a"))
    for model, reason in ((tiny_model(dtype=torch.float16), "float32"), (scripted, "transformers model")):
        path = prepare(model)
        assert path.name == "eager"
        assert reason in path.text


def test_paths_with_other_logits_or_that_fail_are_not_used_and_say_why(monkeypatch):
    class Wrong:
        failure = ""

        def __init__(self, *_):
            pass

        def logits(self, parts):
            return torch.zeros(len(parts[0].ids), 258)

    monkeypatch.setattr(compiled, "TracedSteps", Wrong)
    model = tiny_model()
    assert prepare(model).text == "eager: a faster path gave other logits"
    assert [step.token_id for step in [rollout(model, seed=1).step()]] == [
        rollout(tiny_model(), seed=1).step().token_id
    ]

    def fail(*_):
        raise RuntimeError("no such operation\nand a long trace")

    monkeypatch.setattr(compiled, "TracedSteps", fail)
    assert prepare(tiny_model()).text == "eager: a faster path failed (no such operation)"


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
        torch.testing.assert_close(steps.logits([part]), expected, **NEAR)
    path = compiled.StepPath("CUDA graph", steps=steps)
    assert path.text == "CUDA graph, eager where there is none yet: out of memory"


@pytest.fixture
def graphs(monkeypatch):
    """A model's graphs on the CPU: a capture is written down, and a replay runs what was to be captured."""
    model, captured = tiny_model(), []
    fit = fit_of(model)
    steps = GraphSteps(model.module, fit)

    def eager(parts):
        return forward(model.module, parts, fit.layers, fit.accepts)

    def capture(own, parts):
        captured.append([part.slots.capacity for part in parts])
        own.graph = lambda: eager([Part(part.slots, part.ids, width=part.slots.capacity) for part in parts])

    monkeypatch.setattr(steps, "_capture", capture)
    monkeypatch.setattr("coft_core.model.compiled._replay", lambda own, ids: own.graph())

    def probe(*lengths):
        return compiled._probe(model, fit, lengths)

    return SimpleNamespace(steps=steps, captured=captured, probe=probe, eager=eager)


def test_a_graph_is_captured_only_after_some_eager_steps_and_again_where_memory_has_moved(graphs):
    part = graphs.probe(5, 5)
    first = part.slots.capacity
    for _ in range(EAGER_STEPS):
        graphs.steps.logits([part])
    assert graphs.captured == []
    torch.testing.assert_close(graphs.steps.logits([part]), graphs.eager([part]), **NEAR)
    graphs.steps.logits([part])
    assert graphs.captured == [[first]]
    part.slots.reserve(2 * first)
    for _ in range(EAGER_STEPS + 1):
        graphs.steps.logits([part])
    assert graphs.captured == [[first], [part.slots.capacity]]


def test_memories_that_meet_again_have_a_graph_together_until_one_of_them_moves(graphs):
    parts = [graphs.probe(5, 5), graphs.probe(9, 7), graphs.probe(4)]
    first = parts[0].slots.capacity
    for _ in range(EAGER_STEPS + 2):
        torch.testing.assert_close(graphs.steps.logits(parts), graphs.eager(parts), **NEAR)
    assert graphs.captured == [[first] * 3]
    for _ in range(EAGER_STEPS):
        graphs.steps.logits(parts[:2])
    assert graphs.captured == [[first] * 3]
    parts[1].slots.reserve(2 * first)
    for _ in range(EAGER_STEPS + 1):
        graphs.steps.logits(parts)
    assert graphs.captured == [[first] * 3, [first, 2 * first, first]]


def test_graphs_of_memories_that_are_gone_are_let_go_and_never_used_for_others(graphs):
    for length in range(4, 9):
        part = graphs.probe(length, length)
        for _ in range(EAGER_STEPS + 1):
            found = graphs.steps.logits([part])
        torch.testing.assert_close(found, graphs.eager([part]), **NEAR)
        # A replay holds the part that it was made of; what is captured on a device holds tensors alone.
        next(reversed(graphs.steps._graphs.values())).graph = None
        del part
    assert len(graphs.captured) == 5
    assert len(graphs.steps._graphs) == 1


def test_no_more_graphs_are_known_than_are_used(graphs, monkeypatch):
    monkeypatch.setattr("coft_core.model.compiled.MOST_GRAPHS", 2)
    parts = [graphs.probe(5), graphs.probe(6), graphs.probe(7)]
    for part in parts:
        graphs.steps.logits([part])
    assert len(graphs.steps._graphs) == 2


def test_joint_forwards_find_the_same_graph_whoever_asks_first(monkeypatch):
    model, asked = tiny_model(), []
    prompts = [tuple(range(10, 10 + length)) for length in (6, 9, 4)]
    batches = [BranchBatch(model, [prompt]) for prompt in prompts]
    alone = [BranchBatch(model, [prompt]) for prompt in prompts]
    for batch in (*batches, *alone):
        batch.logits()
    monkeypatch.setattr(
        "coft_core.model.branches.step_logits",
        lambda model, parts, fit: asked.append([part.slots for part in parts]) or step_logits(model, parts, fit),
    )
    for order in ((0, 1, 2), (2, 0, 1), (1, 2, 0)):
        for batch in (*batches, *alone):
            batch.append(torch.tensor([33]))
        found = dict(zip(order, joint_logits([batches[place] for place in order]), strict=True))
        for place, batch in enumerate(alone):
            torch.testing.assert_close(found[place], batch.logits(), **NEAR)
    assert asked[0] == asked[1] == asked[2]
