"""Sampled paths: the same whatever their batch, and marked by what each step's threshold did."""

from types import SimpleNamespace

import pytest

from coft_core.decode.loop import generate
from coft_core.decode.plan import plan
from coft_core.errors import InvalidInputError
from coft_core.model.fake import tiny_model
from coft_core.model.forced import OwnRoom
from coft_core.paths.sample import Path, batch_paths, path_seed, sample_paths, threshold_mark
from coft_core.policies.registry import method
from coft_core.types import Span

PROMPT = "The nurse read her note"
SPANS = (Span(15, 18, "gender"),)


@pytest.fixture(scope="module")
def model():
    return tiny_model()


def planned(model, **more):
    policy = method("coft").build(lam=0.5, top_p=1.0)
    return plan(model, PROMPT, policy, SPANS, max_new_tokens=5, **more)


def test_paths_are_the_same_in_any_batch_of_as_many_as_their_memory_and_never_all_the_same(model):
    plan_of_all = planned(model)
    seeds = [path_seed(3, number) for number in range(7)]
    whole = sample_paths(plan_of_all, seeds, OwnRoom())
    parts = sample_paths(plan_of_all, seeds[4:], OwnRoom()) + sample_paths(plan_of_all, seeds[:4], OwnRoom())
    assert {path.seed: path for path in whole} == {path.seed: path for path in parts}
    alone = generate(model, PROMPT, plan_of_all.policy, SPANS, 5, seeds[2])
    assert tuple(step.token_id for step in alone.steps) == whole[2].token_ids
    assert (whole[2].text, whole[2].finished) == (alone.text, alone.finished)
    plan_of_all = planned(model)
    assert batch_paths(plan_of_all, None) == 32
    assert batch_paths(plan_of_all, 1) == 1
    with pytest.raises(InvalidInputError, match="all paths are the same"):
        sample_paths(planned(model, greedy=True), [1, 2], OwnRoom())


def test_steps_are_marked_by_their_thresholds_and_seeds_by_path():
    assert len({path_seed(seed, number) for seed in (0, 1) for number in range(100)}) == 200
    for state, certified, mark in (
        ("calibrated", True, "held"), ("calibrated", False, "missed"), ("inherited", True, "borrowed"),
        ("inherited", False, "missed"), ("uninformative", False, "weak"), ("mismatch", False, "none"),
        ("none", False, "none"),
    ):  # fmt: skip
        assert threshold_mark(SimpleNamespace(state=state, certified=certified)) == mark
    for marks, held in (
        (("held", "borrowed"), True), (("held", "missed"), False), (("held", "weak"), False), (("none",), False),
        ((), False),
    ):  # fmt: skip
        assert Path(0, (1,) * len(marks), ("a",) * len(marks), "a", "length", marks).held is held
