"""What every registered decoding method must hold to, whatever its rule."""

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path

import pytest
import torch
from torch import Tensor

import coft_core as cc
from coft_core.decode.loop import Rollout, generate_together
from coft_core.decode.plan import Plan
from coft_core.errors import InvalidInputError
from coft_core.model.fake import tiny_model
from coft_core.model.group import score_branches
from coft_core.model.language_model import LanguageModel
from coft_core.policies.base import Past
from coft_core.policies.registry import METHODS
from tests.coft_core.policies.contract import CASES, SCORERS, Case

TEXT = "The nurse said that she was late."
SPANS = [cc.Span(4, 9, "other"), cc.Span(20, 23, "gender")]
OTHERS = ["The old man went home"]
STEPS = 4


@pytest.fixture(scope="module")
def model() -> LanguageModel:
    return tiny_model(seed=1)


def planned(case: Case, model: LanguageModel, text: str = TEXT, seed: int = 5, **controls: object) -> Plan:
    spans = SPANS if text == TEXT else [cc.Span(4, 8, "age")]
    policy = case.policy(**controls)
    return cc.plan(model, text, policy, spans, seed=seed, max_new_tokens=STEPS, models=case.loaded(), scorers=SCORERS)


def written(plan: Plan) -> list[cc.Step]:
    rollout = Rollout(plan)
    while rollout.finished is None:
        rollout.step()
    rollout.close()
    return list(rollout.steps)


def test_every_registered_method_is_held_to_this_contract():
    assert {case.name for case in CASES} == {item.name for item in METHODS}


@pytest.mark.parametrize("given", CASES, ids=lambda case: f"{case.name}{'-models' if case.models else ''}")
def test_a_method_holds_to_the_contract(
    given: Case, model: LanguageModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All properties of a method on one chain of it, so that the chain is written once."""
    case = given.written(model, tmp_path)
    plan = planned(case, model)
    before = hooks_of(plan)
    straight = written(plan)
    assert hooks_of(plan) == before
    for step in straight:
        assert not any(math.isnan(value) for value in asdict(step.diagnostics).values() if value is not None)
    the_distribution_is_normalised_and_has_the_vocabularys_shape(plan)
    taking_steps_back_and_forking_change_nothing_of_what_follows(planned(case, model), straight)
    a_chain_that_is_taken_up_again_goes_on_as_if_never_left(planned(case, model), straight)
    teacher_forced_scores_equal_those_of_forced_steps(case, planned(case, model))
    prompts_of_different_lengths_get_together_what_each_gets_alone(case, model, straight)
    greedy_decoding_takes_the_likeliest_token_that_is_accepted(case, model)
    no_hook_is_left_behind_by_an_error(planned(case, model), monkeypatch)


def the_distribution_is_normalised_and_has_the_vocabularys_shape(plan: Plan) -> None:
    branches = plan.policy.branches(plan.prompt)
    logits = score_branches(plan.all_models, branches, [5])  # (1, B, V)
    views = plan.policy.views(logits, 0, tuple(b.name for b in branches), (Past(plan.model, plan.prompt),))
    for log_p in (views.log_p_factual, views.log_p_masked, views.log_p_fused):
        assert log_p.shape == (1, plan.model.vocabulary_size)
        assert not log_p.isnan().any()
        assert float(log_p.exp().sum()) == pytest.approx(1.0, abs=1e-4)
    assert branches[0].name == "factual"
    assert views.certified is None or views.certified.dtype == torch.bool


def taking_steps_back_and_forking_change_nothing_of_what_follows(plan: Plan, straight: list[cc.Step]) -> None:
    rollout = Rollout(plan)
    for _ in range(3):
        rollout.step()
    assert list(rollout.steps) == straight[:3]
    fork = rollout.fork(2, straight[2].token_id)
    rollout.back(2)
    while rollout.finished is None:
        rollout.step()
    assert [step.token_id for step in rollout.steps] == [step.token_id for step in straight]
    same(fork.steps[2], straight[2])
    fork.close()
    rollout.close()


def a_chain_that_is_taken_up_again_goes_on_as_if_never_left(plan: Plan, straight: list[cc.Step]) -> None:
    resumed = Rollout(plan, steps=straight[:2])
    same(resumed.step(), straight[2])
    same(resumed.step(), straight[3])
    resumed.close()


def teacher_forced_scores_equal_those_of_forced_steps(case: Case, plan: Plan) -> None:
    scored = cc.score(plan.model, TEXT, " so", case.policy(), SPANS, models=case.loaded(), scorers=SCORERS)
    rollout = Rollout(plan)
    for step in scored:
        same(rollout.step(step.token_id), step, choice=False)
    rollout.close()


def prompts_of_different_lengths_get_together_what_each_gets_alone(
    case: Case, model: LanguageModel, straight: list[cc.Step]
) -> None:
    plans = [planned(case, model), *(planned(case, model, text, seed=place) for place, text in enumerate(OTHERS))]
    together = generate_together(plans)
    for run, alone in zip(together, [straight, *map(written, plans[1:])], strict=True):
        assert [step.token_id for step in run.steps] == [step.token_id for step in alone]
        for own, other in zip(run.steps, alone, strict=True):
            same(own, other)


def greedy_decoding_takes_the_likeliest_token_that_is_accepted(case: Case, model: LanguageModel) -> None:
    plan = cc.plan(
        model, TEXT, case.policy(), SPANS, greedy=True, max_new_tokens=2, models=case.loaded(), scorers=SCORERS
    )
    for step in written(plan):
        accepted = [row for row in step.candidates if row.certified] or step.candidates
        likeliest = max(accepted, key=lambda row: row.log_p_fused)
        assert step.log_p_fused == pytest.approx(likeliest.log_p_fused)


def no_hook_is_left_behind_by_an_error(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    before = hooks_of(plan)
    rollout = Rollout(plan)
    rollout.step()

    def broken(*arguments: object, **named: object) -> Tensor:
        raise RuntimeError("the model broke")

    for loaded in plan.all_models.values():
        monkeypatch.setattr(loaded.module.model.layers[0], "forward", broken)
    with pytest.raises(RuntimeError):
        rollout.step()
    assert hooks_of(plan) == before


def test_the_fingerprint_tells_methods_and_their_parameters_apart(model: LanguageModel):
    digests = {(case.name, str(case.parameters)): case.policy().fingerprint(model, "d").digest for case in CASES}
    uncalibrated = {digest for key, digest in digests.items() if key[0] not in ("coft", "vanilla")}
    assert len(uncalibrated) == len([key for key in digests if key[0] not in ("coft", "vanilla")])


def test_every_parameter_is_described_its_default_is_accepted_and_an_unknown_one_is_refused_by_name():
    for item in METHODS:
        with pytest.raises(InvalidInputError, match="'speed'"):
            item.build({"speed": 1})
        for own in item.parameters:
            assert own.title
            assert own.help.endswith(".")
            own.check(own.default)
            if own.kind in ("number", "whole") and own.high is not None:
                with pytest.raises(InvalidInputError):
                    own.check(type(own.default)(own.high + 1))


def hooks_of(plan: Plan) -> int:
    return sum(
        len(part._forward_hooks) + len(part._forward_pre_hooks)
        for loaded in plan.all_models.values()
        for part in loaded.module.modules()
    )


def same(own: cc.Step, other: cc.Step, choice: bool = True) -> None:
    """The same step up to rounding."""
    assert own.token_id == other.token_id
    if choice:
        assert own.policy_token_id == other.policy_token_id
    for name in ("log_p_factual", "log_p_masked", "log_p_fused", "log_tau"):
        one, two = getattr(own, name), getattr(other, name)
        assert one == two or math.isclose(one, two, abs_tol=2e-4), name
