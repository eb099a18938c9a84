"""Factorized masks: branches, the intersected certificate, and who refuses a token, against uncached computations."""

import math
from dataclasses import replace

import pytest
import torch

import coft_core as cc
from coft_core.errors import CalibrationMismatch, InvalidInputError
from coft_core.model.fake import tiny_model
from coft_core.text.masking import mask_families, masked_families, masked_spans, show_span
from tests.coft_core.levels import fitting_by_family
from tests.conftest import PlainDetector

TEXT = "the old man said he would"
SPANS = (cc.Span(4, 7, "age"), cc.Span(8, 11, "gender"), cc.Span(17, 19, "gender"))
TAUS = {"gender": 0.012, "age": 0.02}


@pytest.fixture(scope="module")
def model():
    return tiny_model()


def calibration(model, taus, **settings):
    """One threshold for all of the first 16 steps in each family."""
    log_taus = {family: math.log(tau) for family, tau in taus.items()}
    return fitting_by_family(cc.FactorizedCoftPolicy(**settings), model, log_taus, 16)


@pytest.fixture(scope="module")
def policy(model):
    return cc.FactorizedCoftPolicy(calibration=calibration(model, TAUS))


def rollout(model, policy, text=TEXT, spans=SPANS, **options):
    return cc.Rollout(cc.plan(model, text, policy, spans, detector=PlainDetector(), **options))


def uncached(model, chain, families=("gender", "age"), text=TEXT, spans=SPANS):
    """Factual and per-family log-probabilities and logits after a chain, float64, each branch by itself."""
    rows = [cc.mask_prompt(model.tokenizer, text, spans).factual_ids]
    rows += [
        cc.mask_prompt(model.tokenizer, text, [s for s in spans if s.category == family]).masked_ids
        for family in families
    ]
    with torch.inference_mode():
        return torch.stack([model.module(input_ids=torch.tensor([[*r, *chain]])).logits[0, -1].double() for r in rows])


def test_one_branch_for_each_family_present_scores_as_it_steps_and_counts_its_overhead(model, policy):
    prompt = cc.mask_prompt(model.tokenizer, TEXT, SPANS)
    branches = policy.branches(prompt)
    assert [branch.name for branch in branches] == ["factual", "masked:gender", "masked:age"]
    only = cc.mask_prompt(model.tokenizer, TEXT, SPANS[:1])
    assert [branch.name for branch in policy.branches(only)] == ["factual", "masked:age"]
    assert branches[2].input_ids == only.masked_ids
    run = rollout(model, policy)
    steps = [run.step(token) for token in model.tokenizer.encode(" go", add_special_tokens=False)]
    scored = cc.score(model, TEXT, " go", policy, SPANS, PlainDetector())
    for a, b in zip(steps, scored, strict=True):
        assert (a.token_id, a.set_size) == (b.token_id, b.set_size)
        assert [f.log_joint for f in a.families] == pytest.approx([f.log_joint for f in b.families], abs=1e-4)
    with pytest.raises(InvalidInputError, match="name each one"):
        policy.views(torch.zeros(1, 3, 5), 0)
    cost = cc.measure_overhead(
        model, TEXT, policy, cc.CoftPolicy(), SPANS, tokens=2, repeats=2, detector=PlainDetector()
    )
    assert (cost.branches, cost.baseline_branches) == (3, 2)
    assert len(cost.ratios) == len(cost.seconds_per_token) == 2
    assert "3 branches instead of 2" in cost.sentence
    with pytest.raises(InvalidInputError, match="at least one"):
        cc.measure_overhead(model, TEXT, policy, cc.CoftPolicy(), SPANS, tokens=0)


def test_steps_agree_with_an_uncached_computation(model, policy):
    chain = []
    run = rollout(model, policy)
    seen = set()
    for _ in range(8):
        z = uncached(model, chain)
        fused = torch.log_softmax(0.4 * z[0] + 0.6 * z[1:].mean(0), -1)
        by_family = dict(zip(("gender", "age"), torch.log_softmax(z[1:], -1), strict=True))
        sets = {f: torch.minimum(fused, p) >= math.log(TAUS[f]) for f, p in by_family.items()}
        both = sets["gender"] & sets["age"]
        step = run.step()
        assert step.set_size == int(both.sum())
        assert step.certified == bool(both[step.token_id])
        assert step.log_p_fused == pytest.approx(float(fused[step.token_id]), abs=1e-4)
        assert step.log_tau == pytest.approx(math.log(0.012), abs=1e-6)
        for part in step.families:
            expected = float(by_family[part.family][step.token_id])
            assert part.log_p_masked == pytest.approx(expected, abs=1e-4)
            assert part.log_joint == min(step.log_p_fused, part.log_p_masked)
            assert part.certified == (part.log_joint >= part.log_tau)
        assert step.diagnostics.margin == min(p.log_joint - p.log_tau for p in step.families)
        for row in step.candidates:
            assert row.refused_by == tuple(f for f in ("gender", "age") if not sets[f][row.token_id])
            assert row.certified == (not row.refused_by)
            seen.add(row.refused_by)
        chain.append(step.token_id)
    assert {(), ("age",), ("gender", "age")} <= seen


def test_a_single_family_equals_its_joint_mask_and_bad_ones_are_refused(model):
    joint = rollout(model, cc.CoftPolicy(families=("gender",)), seed=1)
    factorized = rollout(model, cc.FactorizedCoftPolicy(families=("gender",)), seed=1)
    for _ in range(5):
        a, b = joint.step(), factorized.step()
        assert (a.token_id, a.log_p_masked, a.log_p_fused) == (b.token_id, b.log_p_masked, b.log_p_fused)
        assert (a.families, len(b.families)) == ((), 1)
    for families in ((), "gender", ("colour",)):
        for kind in (cc.CoftPolicy, cc.FactorizedCoftPolicy):
            with pytest.raises(InvalidInputError, match="attribute famil"):
                kind(families=families)


def test_families_without_spans_or_masks_refuse_nothing_and_say_so(model, policy):
    run = rollout(model, policy, spans=())
    assert len(run.plan.policy.branches(run.plan.prompt)) == 1
    assert run.plan.warnings
    step = run.step()
    assert (step.state, step.set_size) == ("uninformative", model.vocabulary_size)
    assert step.log_p_masked == step.log_p_factual
    assert rollout(model, cc.CoftPolicy(families=("race",))).plan.warnings
    assert not rollout(model, cc.CoftPolicy(families=("age",))).plan.warnings


def test_uncalibrated_families_weaken_the_state_and_calibrations_of_others_are_refused(model):
    run = rollout(model, cc.FactorizedCoftPolicy(calibration=calibration(model, {"age": 0.02})))
    step = run.step()
    assert {part.family: part.state for part in step.families} == {"gender": "uninformative", "age": "calibrated"}
    assert step.state == "uninformative"
    assert all("gender" not in row.refused_by for row in step.candidates)
    step = rollout(model, cc.FactorizedCoftPolicy()).step()
    assert (step.state, step.certified, step.families[0].certified) == ("none", False, False)
    assert all(row.refused_by == () for row in step.candidates)
    other = calibration(model, TAUS, families=("gender", "age"))
    with pytest.raises(CalibrationMismatch, match="mask_mode"):
        rollout(model, cc.FactorizedCoftPolicy(calibration=other))
    step = rollout(model, cc.FactorizedCoftPolicy(calibration=other, accept_mismatch=True)).step()
    assert {step.state, *(part.state for part in step.families)} == {"mismatch"}
    assert not any(part.certified for part in step.families)


class TestPartialMasks:
    def test_a_token_of_two_families_is_masked_for_each(self, model):
        prompt = cc.mask_prompt(model.tokenizer, "ab", [cc.Span(0, 1, "age"), cc.Span(1, 2, "race")])
        # One token over both characters, as a word tokenizer has.
        both = replace(
            prompt, factual_ids=(7,), masked_ids=(prompt.sentinel_id,), positions=(0,), families=("age",),
            offsets=((0, 2),),
        )  # fmt: skip
        assert masked_families(both) == ("race", "age")
        assert mask_families(both, ("race",)) == mask_families(both, ("age",)) == both.masked_ids
        assert show_span(both, prompt.spans[0]) == both.masked_ids
        assert show_span(both, prompt.spans[0], ("age",)) == (7,)

    def test_families_together_mask_what_the_joint_mask_does_and_no_kept_span(self, model):
        for mode in ("hard", "soft"):
            prompt = cc.mask_prompt(model.tokenizer, TEXT, SPANS, mode=mode)
            assert mask_families(prompt, None) == mask_families(prompt, ("gender", "age")) == prompt.masked_ids
            assert mask_families(prompt, ("race",)) == prompt.factual_ids
        prompt = cc.mask_prompt(model.tokenizer, TEXT, [replace(SPANS[0], kept=True), *SPANS[1:]])
        assert masked_families(prompt) == ("gender",)
        assert masked_spans(prompt) == SPANS[1:]
