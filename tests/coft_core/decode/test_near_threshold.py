"""A step says when rounding alone could turn a listed token's certificate, in the model's own number type."""

import math
import re
from dataclasses import replace
from pathlib import Path

import pytest

import coft_core as cc
from coft_core.model.fake import tiny_model
from coft_core.model.noise import BOUNDS, MEASURED, noise_of
from coft_core.types import FamilyStep
from tests.conftest import PlainDetector

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "decoding_speed.md"


@pytest.fixture(scope="module")
def step():
    prepared = cc.plan(tiny_model(), "She said", cc.CoftPolicy(), [cc.Span(0, 3, "gender")], detector=PlainDetector())
    return cc.Rollout(prepared).step()


def at(step, log_tau):
    own = replace(step.diagnostics, margin=min(step.log_p_fused, step.log_p_masked) - log_tau)
    return replace(step, log_tau=log_tau, state="calibrated", diagnostics=own)


def test_nothing_is_near_without_a_threshold_and_families_count_with_their_own(step):
    assert not step.near_threshold(BOUNDS["bfloat16"])
    own = at(step, min(row.log_joint for row in step.candidates) - 0.1)
    assert own.near_threshold(noise_of("bfloat16").nats)
    assert not own.near_threshold(noise_of("float32").nats)

    def part(distance):
        return FamilyStep("gender", -2.0, -2.0, -2.0 - distance, True, "calibrated")

    noise = BOUNDS["float32"]
    assert replace(step, families=(part(1.0), part(noise / 2))).near_threshold(noise)
    assert not replace(step, families=(part(1.0), part(0.1))).near_threshold(noise)


@pytest.mark.parametrize("dtype", BOUNDS)
@pytest.mark.parametrize(("distance", "near"), [(0.0, True), (0.5, True), (-0.5, True), (2.0, False), (-2.0, False)])
def test_a_candidate_is_near_within_the_noise_of_the_type_on_either_side(step, dtype, distance, near):
    noise = BOUNDS[dtype]
    highest = max(row.log_joint for row in step.candidates)
    lowest = min(row.log_joint for row in step.candidates)
    log_tau = highest + distance * noise if distance >= 0 else lowest + distance * noise
    assert at(step, log_tau).near_threshold(noise) is near


def test_bounds_are_measured_differences_rounded_up_as_in_the_documented_table():
    assert MEASURED.keys() == BOUNDS.keys()
    for dtype, measured in MEASURED.items():
        power = 10.0 ** math.floor(math.log10(measured))
        assert BOUNDS[dtype] == pytest.approx(power * next(own for own in (1, 2, 5, 10) if own * power >= measured))
    table = DOCUMENT.read_text(encoding="utf-8").split("## Numeric noise", 1)[1]
    rows = re.findall(r"^\| [^|]+ \| (\w+) \| [^|]+ \| [\d.]+ \| ([\d.]+) \|$", table, re.MULTILINE)
    largest = {dtype: max(float(value) for name, value in rows if name == dtype) for dtype in MEASURED}
    assert largest == MEASURED
