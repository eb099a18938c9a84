"""Rollouts, the chain certificate and drift on the embedded model, end to end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import coft_core as cc
from coft_core.types import Certificate
from tests.coft_core.demo import demo_model

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def model():
    return demo_model()


@pytest.fixture(scope="module")
def examples():
    lines = (ROOT / "assets" / "prompts" / "calibration_demo.jsonl").read_text("utf-8").splitlines()
    return [cc.Example(json.loads(line)["prompt"]) for line in lines[:68]]


@pytest.fixture(scope="module")
def calibration(model, examples):
    return cc.calibrate(
        model, examples[:60], alpha=0.2, source="rollout", max_new_tokens=4, verification_share=0.4, max_iterations=2
    )


def test_rollouts_of_the_embedded_model_cover_what_was_asked_and_audits_under_them_do_not_drift(
    model, examples, calibration
):
    report = calibration.coverage
    assert report.contexts == 24
    assert report.low <= 1 - calibration.alpha <= report.high
    policy = cc.CoftPolicy(lam=0.6, calibration=calibration)
    runs = [cc.generate(model, e.prompt, policy, max_new_tokens=4, seed=i) for i, e in enumerate(examples[60:68])]
    assert all(Certificate.read(run.certificate).certified for run in runs)
    chain = cc.certify_chain(calibration, runs[0].steps, runs[0].finished, model.vocabulary_size)
    passes, told = chain.log_support >= chain.sequence.log_tau, chain.informative_steps == len(runs[0].steps)
    assert chain.sequence_certified is (False if not passes else True if told else None)
    drift = cc.drift_report(calibration, [cc.audit_summary(run.steps, 4) for run in runs], window=4)
    assert drift.status in ("fresh", "watch")
    assert drift.baseline >= 20
