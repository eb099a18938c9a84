"""A step as one compiled function says what the eager operations say, to the last bit."""

import math
from dataclasses import replace

import numpy as np
import pytest

import coft_core as cc
from coft_core.conformal.calibration import Calibration
from coft_core.conformal.values import CalibrationValues
from coft_core.decode.captured import capture_steps, path_text
from coft_core.model.fake import tiny_model
from coft_core.policies.contrastive import ContrastivePolicy
from tests.conftest import TOY_FINGERPRINT, PlainDetector

TEXT = "She was a nurse and"
SPANS = [cc.Span(0, 3, "gender")]


def calibration(taus):
    """Thresholds by bin of two positions."""
    count = 99
    values = np.concatenate([np.full(count, math.log(tau)) for tau in taus])
    steps, contexts = np.repeat(np.arange(len(taus)) * 2, count), np.tile(np.arange(count), len(taus))
    return cc.Calibration.of(
        TOY_FINGERPRINT, 0.1, CalibrationValues(values, steps, contexts), bin_width=2, max_position=4,
        bin_spacing="even",
    )  # fmt: skip


def chain(model, policy, **options):
    run = cc.Rollout(cc.plan(model, TEXT, policy, SPANS, detector=PlainDetector(), max_new_tokens=6, **options))
    return [run.step(token) for token in (None, None, 70, None, None)]


class AsItIs:
    """Stands for a captured function: the function itself."""

    def __init__(self, function, inputs, pool):
        self._function, self.pool = function, pool

    def __call__(self, *inputs):
        return self._function(*inputs)


@pytest.mark.parametrize("options", [{}, {"greedy": True}, {"keep_logits": True}])
@pytest.mark.parametrize(
    "policy",
    [
        cc.CoftPolicy(calibration=calibration([0.01, 0.05]), accept_mismatch=True),
        cc.FactorizedCoftPolicy(
            calibration=Calibration(0.1, (("gender", calibration([0.02]).joint),)), accept_mismatch=True
        ),
        cc.VanillaPolicy(),
    ],
    ids=lambda policy: policy.name,
)
def test_whatever_is_asked_for_a_function_says_what_the_eager_step_says(monkeypatch, policy, options):
    monkeypatch.setattr("coft_core.decode.captured.CapturedFunction", AsItIs)
    model = tiny_model()
    capture_steps(model)
    found, expected = chain(model, policy, **options), chain(tiny_model(), policy, **options)
    assert found == expected
    assert [step.logits for step in found] == [step.logits for step in expected]


def test_there_is_one_function_for_each_threshold(monkeypatch):
    monkeypatch.setattr("coft_core.decode.captured.CapturedFunction", AsItIs)
    model = tiny_model()
    functions = capture_steps(model)
    policy = cc.CoftPolicy(calibration=calibration([0.01, 0.05]), accept_mismatch=True)
    steps = chain(model, policy)
    assert len({step.log_tau for step in steps}) == len(functions.functions) == 2
    chain(model, replace(policy))
    assert len(functions.functions) == 2


def test_a_policy_that_looks_back_runs_eagerly():
    model = tiny_model()
    functions = capture_steps(model)
    assert chain(model, ContrastivePolicy()) == chain(tiny_model(), ContrastivePolicy())
    assert not functions.functions


def test_a_step_that_cannot_be_compiled_runs_eagerly_and_says_why(monkeypatch):
    def fail(*_):
        raise RuntimeError("no such backend\nand a long trace")

    monkeypatch.setattr("coft_core.decode.captured.CapturedFunction", fail)
    model = tiny_model()
    capture_steps(model)
    assert chain(model, cc.CoftPolicy()) == chain(tiny_model(), cc.CoftPolicy())
    assert path_text(model).endswith("its diagnostics eager: no such backend")
