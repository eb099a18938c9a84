"""Chains of small models that are read again in tests, with calibrations whose thresholds depend on alpha."""

from dataclasses import replace

import numpy as np
import pytest

import coft_core as cc
from coft_core.conformal.calibration import Calibration
from coft_core.policies.ablations import SingleBranchPolicy
from coft_core.policies.base import factual_only
from tests.coft_core.levels import by_step, fitting
from tests.conftest import PlainDetector

TEXT = "the old man said he would"
SPANS = [cc.Span(4, 11, "age"), cc.Span(17, 19, "gender")]
DEMO_TEXT = "The nurse finished rounds and then he prepared the reports"
DEMO_SPANS = [cc.Span(35, 37, "gender")]


def calibration(model, policy, low=0.005, high=0.06):
    """A calibration for a policy, with values from ``low`` to ``high`` so that alpha matters."""
    return fitting(policy, model, by_step(np.tile(np.log(np.linspace(low, high, 99))[:, None], 8)))


def coft(model, lam=0.6, **settings):
    bare = cc.CoftPolicy(lam=lam, **settings)
    return replace(bare, calibration=calibration(model, bare))


def alone(model, lam=0.6):
    """Certified in the factual reading alone; its thresholds fit at every lambda."""
    bare = SingleBranchPolicy(lam=lam)
    made = calibration(model, bare)
    own = factual_only(made, made.fingerprint)
    return replace(bare, calibration=made.each(lambda part: replace(part, fingerprint=own)))


def factorized(model, lam=0.6):
    bare = cc.FactorizedCoftPolicy(lam=lam)
    parts = (
        ("gender", calibration(model, bare, 0.004, 0.02).read(alpha=0.05).joint),
        ("age", calibration(model, bare, 0.01, 0.05).read(alpha=0.05).joint),
    )
    return replace(bare, calibration=Calibration(0.1, parts))


def rollout(model, policy, steps=(), path="0", **options):
    text, spans = (TEXT, SPANS) if model.name.startswith("tiny") else (DEMO_TEXT, DEMO_SPANS)
    settings = {"seed": 3, "max_new_tokens": 16, "keep_logits": True, **options}
    prepared = cc.plan(model, text, policy, spans, detector=PlainDetector(), **settings)
    return cc.Rollout(prepared, path, steps)


def written(model, policy, count=8, forced=None, **options):
    """A chain, one of its tokens forced."""
    run = rollout(model, policy, **options)
    for index in range(count):
        run.step(77 if index == forced else None)
    return run.steps


def close(a, b):
    return a == b or a == pytest.approx(b, abs=1e-4)


def assert_agrees(reading, fresh):
    """A reading says what a freshly decoded step says, but for rounding between two runs of the model."""
    assert reading.log_tau == fresh.log_tau
    assert (reading.state, reading.token_id, reading.fallback) == (fresh.state, fresh.token_id, fresh.fallback)
    assert reading.certified == fresh.certified
    assert reading.policy_token_id == fresh.policy_token_id
    assert reading.set_size == fresh.set_size
    for one, other in ((reading, fresh), (reading.diagnostics, fresh.diagnostics)):
        for name in ("log_p_fused", "certified_mass", "margin", "kl_fused_masked"):
            if hasattr(one, name):
                assert close(getattr(one, name), getattr(other, name))
    for own, part in zip(reading.families, fresh.families, strict=True):
        assert (own.family, own.log_tau, own.certified) == (part.family, part.log_tau, part.certified)
