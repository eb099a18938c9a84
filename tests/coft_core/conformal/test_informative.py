"""One rule for thresholds that say nothing: too few contexts, or too weak."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from coft_core.conformal.calibration import Calibration
from coft_core.conformal.informative import TOO_FEW, TOO_WEAK, is_wide, stated
from coft_core.conformal.values import CalibrationValues
from coft_core.decode.loop import generate
from coft_core.model.fake import tiny_model
from coft_core.policies.coft import CoftPolicy
from coft_core.text.detection import default_detector
from tests.conftest import TOY_FINGERPRINT


def policy(log_tau, contexts):
    """A policy of the tiny model with one threshold at every step."""
    bare = CoftPolicy(0.6)
    own = bare.fingerprint(tiny_model(), default_detector().version)
    fingerprint = replace(own, estimator="hierarchical", source="reference")
    steps = np.zeros(contexts, dtype=int)
    values = CalibrationValues(np.full(contexts, log_tau), steps, np.arange(contexts))
    return CoftPolicy(0.6, Calibration(fingerprint, 0.1, values, bin_width=8))


@pytest.mark.parametrize(
    ("log_tau", "contexts", "why"), [(-1.0, 3, TOO_FEW), (math.log(7e-8), 35, TOO_WEAK)], ids=["too few", "too weak"]
)
def test_library_certifies_nothing_where_thresholds_say_nothing(log_tau, contexts, why):
    used = policy(log_tau, contexts)
    run = generate(tiny_model(), "He said", used, max_new_tokens=3)
    assert used.calibration.bin(0).state == "uninformative"
    assert run.certificate == f"uncertified: {why}"
    assert not any(step.certified for step in run.steps)
    assert {step.state for step in run.steps} == {"uninformative"}
    assert f"Nothing is certified at every step: {why}." in run.warnings


def test_a_threshold_that_says_something_is_certified_as_before():
    run = generate(tiny_model(), "He said", policy(-6.0, 35), max_new_tokens=3)
    assert run.certificate == "certified"
    assert run.warnings == generate(tiny_model(), "He said", CoftPolicy(0.6), max_new_tokens=3).warnings
    assert any(step.certified for step in run.steps)


@pytest.mark.parametrize(
    ("size", "mass", "wide"),
    [(616, 0.9, True), (300, 0.5, True), (299, 0.9, False), (100, 0.99, True), (99, 1.0, False), (2, 0.999, False)],
)
def test_a_set_is_too_wide_by_its_size_or_by_its_share_of_the_probability(size, mass, wide):
    assert is_wide(size, mass) is wide
    for state in ("calibrated", "inherited"):
        assert stated(state, -5.0, size, mass) == ("uninformative" if wide else state)
    assert stated("mismatch", -5.0, size, mass) == "mismatch"


def test_a_bin_that_borrows_a_weak_threshold_says_nothing_either():
    values = CalibrationValues(np.full(35, math.log(7e-8)), np.zeros(35, dtype=int), np.arange(35))
    bins = Calibration(TOY_FINGERPRINT, 0.1, values).bins
    assert {entry.state for entry in bins} == {"uninformative"}
    assert bins[1].inherited_from == 0
