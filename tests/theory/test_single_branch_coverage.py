"""Certification in the factual reading alone covers the true token, and the whole chain, at the level asked for.

The sets and certificates are those that the policy and the chain certificate give, over fresh calibrations of known
size, so that the expected coverage is exact: ``1 - floor(alpha (n + 1)) / (n + 1)``.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from coft_core.conformal.calibration import Calibration
from coft_core.conformal.chain import certify_supports
from coft_core.conformal.values import CalibrationValues
from coft_core.fingerprint import SINGLE_BRANCH
from coft_core.policies.ablations import SingleBranchPolicy
from tests.conftest import TOY_FINGERPRINT

REPETITIONS, CONTEXTS, NEW, STEPS, TOKENS, ALPHA = 150, 39, 40, 3, 12, 0.1


@pytest.fixture(scope="module")
def shares():
    """Share of new contexts kept, by what is asked, for each calibration, (R,) each."""
    generator = torch.Generator().manual_seed(11)
    kept: dict[str, list[float]] = {"step": [], "chain": [], "joint support": []}
    shape = (CONTEXTS + NEW, STEPS, TOKENS)
    for _ in range(REPETITIONS):
        ease = torch.randn(shape[0], 1, 1, generator=generator)  # the steps of one context share it
        factual = (2 + ease.abs()) * torch.randn(shape, generator=generator)  # (N, T, V)
        masked = factual + 2 * torch.randn(shape, generator=generator)  # (N, T, V)
        true = torch.multinomial(factual.softmax(-1).view(-1, TOKENS), 1, generator=generator).view(*shape[:2], 1)
        own = factual.log_softmax(-1).gather(-1, true)[..., 0]  # (N, T), the values by definition
        values = CalibrationValues(
            own[:CONTEXTS].flatten().numpy(), np.tile(np.arange(STEPS), CONTEXTS), np.repeat(np.arange(CONTEXTS), STEPS)
        )
        fingerprint = replace(TOY_FINGERPRINT, method=SINGLE_BRANCH)
        calibration = Calibration.of(fingerprint, ALPHA, values, bin_width=1, max_position=STEPS)
        policy = SingleBranchPolicy(0.6, calibration)
        logits = torch.stack([factual[CONTEXTS:], masked[CONTEXTS:]], 2)  # (new, T, 2, V)
        members, joint = [], []
        for step in range(STEPS):
            views = policy.views(logits[:, step], step)
            members.append(views.certified.gather(-1, true[CONTEXTS:, step])[:, 0])
            support = torch.minimum(views.log_p_fused, views.log_p_masked).gather(-1, true[CONTEXTS:, step])[:, 0]
            joint.append(support >= views.log_tau)
        # Certifying a chain reads the calibration again, which costs most; the claim is about a mean.
        chains = [certify_supports(calibration, row.tolist(), "factual") for row in own[CONTEXTS::2]]
        kept["step"].append(torch.stack(members).double().mean().item())
        kept["joint support"].append(torch.stack(joint).double().mean().item())
        kept["chain"].append(float(np.mean([chain.sequence_certified for chain in chains])))
    return {name: np.array(found) for name, found in kept.items()}


@pytest.mark.parametrize("asked", ["step", "chain"])
def test_the_true_token_and_the_true_chain_are_certified_at_the_level_asked_for(shares, asked):
    error = 4 * shares[asked].std() / REPETITIONS**0.5
    assert error < 0.03
    # 39 contexts and alpha 0.1 give rank 4 of 40: exactly 0.9 on average.
    assert shares[asked].mean() == pytest.approx(1 - ALPHA, abs=error)


def test_the_joint_support_would_miss_that_level_by_far(shares):
    """So that a certificate which compared the wrong readings could not pass for this one."""
    assert shares["joint support"].mean() < 1 - ALPHA - 0.2
