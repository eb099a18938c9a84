"""Thresholds from references: a prompt that is audited after it made a threshold."""

from __future__ import annotations

import coft_core as cc
from coft_core.conformal.values import BELOW
from coft_core.model.fake import tiny_model
from tests.coft_core.calibrate.conftest import PlainDetector

PROMPTS = ("The old man", "A nurse", "The man who left", "An old nurse said", "Then the man")
REFERENCES = (" went home.", " was late again", " did not say why.", " so.")


def test_no_reference_is_refused_by_rounding_at_the_threshold_that_it_made():
    model = tiny_model()
    examples = [cc.Example(f"{prompt}{n}", reference) for n, reference in enumerate(REFERENCES) for prompt in PROMPTS]
    options = {"verification_share": 0.0, "detector": PlainDetector(), "bin_width": 1, "bin_spacing": "even"}
    made = cc.calibrate(model, examples, alpha=0.2, **options)
    policy = cc.CoftPolicy(calibration=made)
    margins = [
        step.diagnostics.margin
        for example in examples
        for step in cc.score(model, example.prompt, example.reference, policy, detector=PlainDetector())
    ]
    makers = [margin for margin in margins if abs(margin) < 2 * BELOW]
    assert len(makers) >= 3
    assert all(margin > BELOW / 2 for margin in makers)
