"""One rule for thresholds that say nothing: too few contexts, or too weak."""

from __future__ import annotations

import math

import numpy as np
import pytest

from coft_core.conformal.calibration import Calibration
from coft_core.conformal.informative import TOO_FEW, TOO_WEAK, is_wide, stated
from coft_core.decode.loop import generate
from coft_core.model.fake import tiny_model
from coft_core.policies.coft import CoftPolicy
from coft_core.text.detection import default_detector
from coft_core.types import Certificate, CertificateKind
from tests.coft_core.levels import fitting, flat
from tests.conftest import TOY_FINGERPRINT


def policy(log_tau, contexts):
    """A policy of the tiny model with one threshold at every step."""
    bare, detector = CoftPolicy(0.6), default_detector().version
    return CoftPolicy(0.6, fitting(bare, tiny_model(), flat(log_tau, contexts), detector=detector, bin_width=8))


@pytest.mark.parametrize(
    ("log_tau", "contexts", "why"), [(-1.0, 3, TOO_FEW), (math.log(7e-8), 35, TOO_WEAK)], ids=["too few", "too weak"]
)
def test_library_certifies_nothing_where_thresholds_say_nothing(log_tau, contexts, why):
    used = policy(log_tau, contexts)
    run = generate(tiny_model(), "He said", used, max_new_tokens=3)
    assert used.calibration.joint.bin(0).state == "uninformative"
    assert run.certificate == f"uncertified: {why}"
    assert not any(step.certified for step in run.steps)
    assert {step.state for step in run.steps} == {"uninformative"}
    assert f"Nothing is certified at every step: {why}." in run.warnings


def test_a_run_says_at_how_many_of_its_steps_it_is_certified():
    runs = [generate(tiny_model(), "He said", policy(level, 35), max_new_tokens=6) for level in (-2.0, -3.0, -6.0)]
    for run in runs:
        held = sum(step.certified for step in run.steps)
        assert run.certificate == f"certified at {held} of 6 steps"
        assert Certificate.read(run.certificate) == Certificate(CertificateKind.CERTIFIED, steps=(held, 6))
    assert len({run.certificate for run in runs}) > 1
    assert Certificate.read("certified").at(0, 0).text == "certified"


def test_a_set_is_too_wide_by_its_share_of_the_vocabulary_and_of_the_probability():
    for size, mass, vocabulary, wide in (
        (19, 0.9, 105, True), (5, 0.9, 105, False), (2, 0.9999, 105, False), (300, 0.99, 150_000, False),
        (7_500, 0.5, 150_000, True), (4_500, 0.99, 150_000, True), (4_500, 0.98, 150_000, False),
        (419, 0.9, 6_144, True), (200, 0.999, 6_144, True), (200, 0.9, 6_144, False), (20, 1.0, 6_144, False),
    ):  # fmt: skip
        assert is_wide(size, mass, vocabulary) is wide
        for state in ("calibrated", "inherited"):
            assert stated(state, -5.0, size, mass, vocabulary) == ("uninformative" if wide else state)
        assert stated("mismatch", -5.0, size, mass, vocabulary) == "mismatch"


@pytest.mark.parametrize("vocabulary", [105, 6_144, 32_000, 50_257, 151_936])
def test_the_rule_tells_flat_from_peaked_readings_whatever_the_vocabulary(vocabulary):
    """Sets that keep the true token as often as asked for, of readings that know the next word and that do not."""
    for seed in range(20):
        tail = np.random.default_rng(seed).lognormal(size=vocabulary)
        flat = np.sort(tail / tail.sum())[::-1]  # (V,)
        peaked = 0.001 * flat
        peaked[:3] += 0.999 * np.array([0.7, 0.2, 0.1])
        for share in (0.9, 0.95, 0.99):
            for p, wide in ((flat, True), (peaked, False)):
                size = int(np.searchsorted(np.cumsum(p), share)) + 1
                assert is_wide(size, float(p[:size].sum()), vocabulary) is wide


def test_a_lower_threshold_and_a_borrowed_weak_one_are_never_judged_better():
    p = np.sort(np.random.default_rng(5).dirichlet(np.full(2_000, 0.05)))[::-1]
    judged = [is_wide(size, mass, p.size) for size, mass in enumerate(np.cumsum(p), 1)]
    assert judged == sorted(judged)
    assert {False, True} == set(judged)
    bins = Calibration.of(TOY_FINGERPRINT, 0.1, flat(math.log(7e-8), 35)).bins
    assert {entry.state for entry in bins} == {"uninformative"}
    assert bins[1].inherited_from == bins[0].label
