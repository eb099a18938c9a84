"""A step says when rounding alone could turn a listed token's certificate."""

from dataclasses import replace

import pytest

import coft_core as cc
from coft_core.engine.fake import tiny_model
from coft_core.types import NUMERIC_NOISE, FamilyStep


class PlainDetector:
    version = "plain"


@pytest.fixture(scope="module")
def step():
    prepared = cc.plan(tiny_model(), "She said", cc.CoftPolicy(), [cc.Span(0, 3, "gender")], detector=PlainDetector())
    return cc.Rollout(prepared).step()


def at(step, log_tau):
    own = replace(step.diagnostics, margin=min(step.log_p_fused, step.log_p_masked) - log_tau)
    return replace(step, log_tau=log_tau, state="calibrated", diagnostics=own)


def test_without_a_threshold_nothing_is_near_it(step):
    assert not step.near_threshold


@pytest.mark.parametrize(("distance", "near"), [(0.0, True), (0.5, True), (-0.5, True), (40.0, False), (-40.0, False)])
def test_a_candidate_is_near_within_the_noise_on_either_side(step, distance, near):
    least = min(step.candidates, key=lambda row: row.log_joint)
    assert at(step, least.log_joint + distance * NUMERIC_NOISE).near_threshold is near


def test_with_families_each_ones_own_threshold_counts(step):
    def part(distance):
        return FamilyStep("gender", -2.0, -2.0, -2.0 - distance, True, "calibrated")

    assert replace(step, families=(part(1.0), part(NUMERIC_NOISE / 2))).near_threshold
    assert not replace(step, families=(part(1.0), part(0.1))).near_threshold
