"""The loop: soundness, reproduction, going back, forking, scoring, and what a step says of itself."""

import math

import pytest
import torch

import coft_core as cc
from coft_core.conformal.informative import is_wide
from coft_core.errors import CoftError, InvalidInputError, PromptTooLongError, RolloutClosedError
from coft_core.model.fake import ScriptedCausalLM, scripted_model, tiny_model
from coft_core.types import Certificate
from tests.coft_core.levels import fitting, flat
from tests.conftest import PlainDetector

TEXT = "the old man said he would"
SPANS = [cc.Span(4, 11, "age"), cc.Span(17, 19, "gender")]


DETECTOR = PlainDetector()


def calibration(model, log_tau, policy=None, contexts=99, steps=16):
    """A calibration whose threshold is ``log_tau`` at the first ``steps`` steps."""
    return fitting(policy or cc.CoftPolicy(), model, flat(log_tau, contexts, steps), detector=DETECTOR.version)


@pytest.fixture(scope="module")
def model():
    return tiny_model()


@pytest.fixture(scope="module")
def policy(model):
    return cc.CoftPolicy(calibration=calibration(model, math.log(0.02)))


def run(model, policy, **options):
    return cc.generate(model, TEXT, policy, spans=SPANS, detector=DETECTOR, **{"max_new_tokens": 24, **options})


def test_emitted_tokens_lie_in_the_certified_set_unless_it_is_empty(model):
    strict = cc.CoftPolicy(calibration=calibration(model, math.log(0.04), steps=64))
    steps = [s for seed in range(4) for s in run(model, strict, seed=seed, max_new_tokens=40).steps]
    assert any(s.fallback for s in steps)
    assert any(s.set_size > 1 for s in steps)
    for s in steps:
        joint = min(s.log_p_fused, s.log_p_masked)
        assert s.certified == (joint >= s.log_tau)
        assert s.fallback == (s.set_size == 0)
        assert s.certified != s.fallback


def test_a_fallback_emits_the_fused_argmax_also_when_sampling(model):
    strict = cc.CoftPolicy(top_p=1.0)
    strict = cc.CoftPolicy(calibration=calibration(model, math.log(0.9), strict), top_p=1.0)
    for s in run(model, strict, seed=5).steps:
        if s.fallback:
            assert s.log_p_fused == max(c.log_p_fused for c in s.candidates)


def test_set_size_and_mass_agree_with_an_independent_computation(model, policy):
    rollout = cc.Rollout(cc.plan(model, TEXT, policy, SPANS, detector=DETECTOR))
    prompt = rollout.plan.prompt
    chain = []
    for _ in range(6):
        with torch.inference_mode():
            z = [
                model.module(input_ids=torch.tensor([[*ids, *chain]])).logits[0, -1].double()
                for ids in (prompt.factual_ids, prompt.masked_ids)
            ]
        p_masked, p_fused = (torch.softmax(x, -1) for x in (z[1], 0.4 * z[0] + 0.6 * z[1]))
        members = torch.minimum(p_masked, p_fused) >= 0.02
        s = rollout.step()
        assert s.set_size == int(members.sum())
        assert s.certified_mass == pytest.approx(float(p_fused[members].sum()), abs=1e-5)
        d = s.diagnostics
        kl = float((p_fused * (p_fused / p_masked).log()).sum())
        assert d.kl_fused_masked == pytest.approx(kl, abs=1e-5)
        p_factual = torch.softmax(z[0], -1)
        assert d.kl_fused_factual == pytest.approx(float((p_fused * (p_fused / p_factual).log()).sum()), abs=1e-5)
        assert d.tv_fused_factual == pytest.approx(float((p_fused - p_factual).abs().sum() / 2), abs=1e-5)
        assert d.tv_bound == pytest.approx(math.sqrt(kl / 2) / 0.02, rel=1e-2)
        assert d.sensitivity == pytest.approx(float((z[0] - z[1])[s.token_id]), abs=1e-4)
        assert d.entropy_fused == pytest.approx(float(-(p_fused * p_fused.log()).sum()), abs=1e-4)
        conditional = [p * members / (p * members).sum() for p in (p_fused, p_masked)]
        assert d.tv_on_set == pytest.approx(float(0.5 * (conditional[0] - conditional[1]).abs().sum()), abs=1e-5)
        assert d.margin == pytest.approx(min(s.log_p_fused, s.log_p_masked) - s.log_tau, abs=1e-6)
        chain.append(s.token_id)


def test_the_same_seed_gives_the_same_chain_also_from_stored_steps(model, policy):
    assert run(model, policy, seed=3).steps == run(model, policy, seed=3).steps
    assert run(model, policy, seed=3).tokens != run(model, policy, seed=4).tokens
    whole = run(model, policy, seed=9)
    prepared = cc.plan(model, TEXT, policy, SPANS, seed=9, max_new_tokens=24, detector=DETECTOR)
    resumed = cc.Rollout(prepared, steps=whole.steps[:11])
    while resumed.finished is None:
        resumed.step()
    assert [s.token_id for s in resumed.steps] == [s.token_id for s in whole.steps]


def test_a_fork_equals_forcing_the_token_from_the_start_and_leaves_the_parent(model, policy):
    prepared = cc.plan(model, TEXT, policy, SPANS, seed=1, max_new_tokens=24, detector=DETECTOR)
    parent = cc.Rollout(prepared)
    for _ in range(8):
        parent.step()
    before = parent.steps
    fork = parent.fork(3, 77)
    assert parent.steps == before
    assert fork.steps[:3] == before[:3]
    assert (parent.path, fork.path) == ("0", "0/3:77")
    forced = fork.steps[3]
    assert (forced.forced, forced.token_id, forced.index) == (True, 77, 3)
    assert forced.log_tau == before[3].log_tau
    assert forced.policy_token_id == before[3].token_id
    fresh = cc.Rollout(prepared, path=fork.path, steps=before[:3])
    fresh.step(forced.token_id)
    for _ in range(5):
        a, b = fork.step(), fresh.step()
        assert a.token_id == b.token_id
        assert a.log_p_masked == pytest.approx(b.log_p_masked, abs=1e-4)
    assert parent.step().index == 8


def test_a_forced_token_outside_the_set_is_not_certified_and_names_the_policys_choice(model, policy):
    rollout = cc.Rollout(cc.plan(model, TEXT, policy, SPANS, detector=DETECTOR))
    unlikely = 255
    step = rollout.step(unlikely)
    assert step.forced
    assert min(step.log_p_fused, step.log_p_masked) < step.log_tau
    assert not step.certified
    other = cc.Rollout(rollout.plan).step()
    assert step.policy_token_id == other.token_id
    assert any(c.token_id == unlikely for c in step.candidates)


def test_lambda_zero_and_no_probe_decode_what_vanilla_does(model):
    coft = run(model, cc.CoftPolicy(lam=0.0), seed=11)
    vanilla = run(model, cc.VanillaPolicy(), seed=11)
    assert coft.tokens == vanilla.tokens
    assert coft.certificate == "uncertified: no calibration"
    assert not any(s.certified for s in [*coft.steps, *vanilla.steps])
    assert {(s.set_size_low, s.set_size_high, s.noise) for s in vanilla.steps} == {(None, None, None)}
    alone = cc.VanillaPolicy(observe_masked=False)
    assert len(alone.branches(cc.mask_prompt(model.tokenizer, TEXT, SPANS))) == 1
    assert run(model, alone, seed=4).tokens == run(model, cc.VanillaPolicy(), seed=4).tokens


def test_inherited_and_uninformative_steps_say_so(model):
    sparse = calibration(model, math.log(0.02), contexts=99, steps=8)
    steps = next(
        r for seed in range(20) if len(r := run(model, cc.CoftPolicy(calibration=sparse), seed=seed).steps) > 8
    )
    assert {s.state for s in steps[:8]} <= {"calibrated", "uninformative"}
    wide = [is_wide(s.set_size, s.certified_mass, model.vocabulary_size) for s in steps]
    assert [s.state for s in steps[8:]] == ["uninformative" if is_so else "inherited" for is_so in wide[8:]]
    assert "inherited" in {s.state for s in steps}
    few = run(model, cc.CoftPolicy(calibration=calibration(model, math.log(0.02), contexts=5))).steps
    assert few[0].state == "uninformative"
    assert few[0].log_tau == -math.inf
    assert few[0].set_size == model.vocabulary_size
    assert few[0].diagnostics.tv_bound is None


def test_a_calibration_of_another_policy_is_refused_or_certifies_nothing_and_says_so(model):
    cal = calibration(model, math.log(0.02))
    with pytest.raises(cc.CalibrationMismatch, match=r"lam: calibrated with 0\.6, used with 0\.3") as caught:
        run(model, cc.CoftPolicy(lam=0.3, top_p=0.8, calibration=cal))
    assert caught.value.fields == ("lam", "top_p")
    with pytest.raises(cc.CalibrationMismatch) as caught:
        run(tiny_model(seed=5), cc.CoftPolicy(calibration=cal))
    assert set(caught.value.fields) == {"model", "weights"}
    cal = calibration(model, math.log(0.02))
    result = run(model, cc.CoftPolicy(lam=0.3, calibration=cal, accept_mismatch=True))
    assert result.certificate == "uncertified: policy mismatch (lam)"
    assert not any(s.certified for s in result.steps)
    assert {s.state for s in result.steps} == {"mismatch"}
    matching = run(model, cc.CoftPolicy(calibration=cal, accept_mismatch=True))
    assert Certificate.read(matching.certificate).certified
    assert "calibrated" in {step.state for step in matching.steps}


def test_a_prompt_without_spans_is_said_to_have_equal_branches(model):
    result = cc.generate(model, TEXT, cc.CoftPolicy(), spans=[], max_new_tokens=3, detector=DETECTOR)
    assert "equal" in result.warnings[0]
    # Rows of one batch may round differently in the last bit.
    assert all(s.log_p_factual == pytest.approx(s.log_p_masked, abs=1e-5) for s in result.steps)


def test_a_full_context_ends_the_chain(model):
    short = tiny_model(context_length=32)
    result = cc.generate(short, TEXT, cc.CoftPolicy(), spans=SPANS, max_new_tokens=100, detector=DETECTOR)
    assert result.finished in ("context", "end")
    assert len(result.steps) <= 32 - len(TEXT) or result.finished == "end"
    with pytest.raises(PromptTooLongError):
        cc.generate(short, TEXT * 2, cc.CoftPolicy(), spans=[], detector=DETECTOR)


def test_bad_requests_are_refused_in_one_sentence(model, policy):
    for text, options, message in (
        ("   ", {}, "empty"), ("", {}, "empty"), (TEXT, {"max_new_tokens": 0}, "at least one"),
        (TEXT, {"spans": [cc.Span(0, 999, "gender")]}, "999"),
    ):  # fmt: skip
        with pytest.raises(InvalidInputError, match=message) as caught:
            cc.generate(model, text, cc.CoftPolicy(), detector=DETECTOR, **options)
        assert "\n" not in str(caught.value)
    for lam in (-0.1, 1.1, float("nan")):
        with pytest.raises(InvalidInputError, match="lambda"):
            cc.CoftPolicy(lam=lam)
    rollout = cc.Rollout(cc.plan(model, TEXT, policy, SPANS, detector=DETECTOR))
    with pytest.raises(InvalidInputError, match="100000"):
        rollout.step(100_000)
    assert rollout.steps == ()


def test_finished_and_closed_rollouts_refuse_to_step(model, policy):
    rollout = cc.Rollout(cc.plan(model, TEXT, policy, SPANS, max_new_tokens=1, detector=DETECTOR))
    rollout.step()
    with pytest.raises(InvalidInputError, match="finished"):
        rollout.step()
    rollout.back()
    rollout.close()
    with pytest.raises(RolloutClosedError):
        rollout.step()


def test_nan_is_an_error_and_a_forced_token_that_both_branches_forbid_has_no_sensitivity():
    model = scripted_model({" a": 0.5}, {" a": 0.5}, ("x", " a"))
    model.module.tables.data.fill_(float("nan"))
    assert isinstance(model.module, ScriptedCausalLM)
    with pytest.raises(CoftError, match="NaN at step 1"):
        cc.generate(model, "x", cc.CoftPolicy(), spans=[], detector=DETECTOR)
    model = scripted_model({" a": 0.5}, {" a": 0.6}, ("x", " a"))
    model.module.tables.data[:, 3] = -math.inf
    step = cc.Rollout(cc.plan(model, "x", cc.CoftPolicy(), spans=[], detector=DETECTOR)).step(3)
    assert (step.log_p_factual, step.log_p_masked) == (-math.inf, -math.inf)
    assert (step.diagnostics.sensitivity, step.diagnostics.log_ratio) == (0.0, 0.0)


@pytest.mark.parametrize("kept", [False, True])
def test_one_forward_and_one_transfer_a_step_also_of_kept_logits(model, policy, monkeypatch, kept):
    rollout = cc.Rollout(cc.plan(model, TEXT, policy, SPANS, detector=DETECTOR, keep_logits=kept))
    rollout.step()
    counts = {"forward": 0, "transfer": 0}
    forward, crossing = model.module.forward, "cpu" if kept else "tolist"
    crossed = getattr(torch.Tensor, crossing)

    def counted_forward(*args, **kwargs):
        counts["forward"] += 1
        assert kwargs["input_ids"].shape == (2, 1)
        return forward(*args, **kwargs)

    def counted_transfer(tensor):
        counts["transfer"] += 1
        return crossed(tensor)

    monkeypatch.setattr(model.module, "forward", counted_forward)
    for name in {"tolist", "item", "__bool__", "nonzero", "unique", "__int__"} if kept else {"item"}:
        monkeypatch.setattr(torch.Tensor, name, lambda *_, called=name: pytest.fail(f"{called} is a second transfer"))
    monkeypatch.setattr(torch.Tensor, crossing, counted_transfer)
    step = rollout.step()
    assert counts == {"forward": 1, "transfer": 1}
    assert (step.logits is not None) is kept
