"""The sequence score: all true tokens of a new chain are certified together with probability at least 1 - alpha."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest

from coft_core.conformal import CalibrationValues, PositionBins, sequence_threshold, stepwise_bins, union_bound
from coft_core.conformal.sequence import sequence_minima

REPETITIONS, CONTEXTS, NEW, STEPS, ALPHA = 800, 39, 60, 12, 0.1
POSITIONS = PositionBins(width=4, maximum=STEPS, spacing="even")


def chains(count: int, kind: str, generator: np.random.Generator) -> npt.NDArray[np.float64]:
    """Values of whole chains, (count, T): steps that share a cause, or independent ones."""
    level = generator.normal(size=(count, 1)) if kind == "dependent" else 0.0
    return -np.exp(level + 0.4 * generator.normal(size=(count, STEPS)))


def as_values(chain: npt.NDArray[np.float64]) -> CalibrationValues:
    count, steps = chain.shape
    return CalibrationValues(chain.ravel(), np.tile(np.arange(steps), count), np.repeat(np.arange(count), steps))


@pytest.fixture(scope="module", params=["dependent", "independent"])
def shares(request: pytest.FixtureRequest) -> dict[str, npt.NDArray[np.float64]]:
    """Share of new chains that each certificate keeps whole, for repeated calibrations, (R,) each."""
    generator = np.random.default_rng(3)
    kept: dict[str, list[float]] = {"sequence": [], "stepwise": [], "split alpha": []}
    for _ in range(REPETITIONS):
        chain = chains(CONTEXTS + NEW, request.param, generator)
        values, new = as_values(chain[:CONTEXTS]), chain[CONTEXTS:]
        kept["sequence"].append((new.min(axis=1) >= sequence_threshold(values, ALPHA).log_tau).mean())
        bins = stepwise_bins(values.values, values.steps, values.contexts, ALPHA, bins=POSITIONS)
        log_tau = np.array([bins[POSITIONS.bin_of(step)].log_tau for step in range(STEPS)])  # (T,)
        kept["stepwise"].append((new >= log_tau).all(axis=1).mean())
    return {"kind": np.array([request.param]), **{name: np.array(share) for name, share in kept.items()}}


def test_whole_chains_are_kept_at_the_level_asked_for(shares: dict[str, npt.NDArray[np.float64]]) -> None:
    error = 4 * shares["sequence"].std() / math.sqrt(REPETITIONS)
    # 39 contexts and alpha 0.1 give rank 4 of 40: exactly 0.9 on average, however dependent the steps.
    assert shares["sequence"].mean() == pytest.approx(1 - ALPHA, abs=error)


def test_stepwise_thresholds_keep_fewer_chains_than_one_step_and_no_fewer_than_the_union_bound(
    shares: dict[str, npt.NDArray[np.float64]],
) -> None:
    bound = union_bound(ALPHA, STEPS, POSITIONS)
    assert bound.level == 0.0
    assert bound.level <= shares["stepwise"].mean() < 1 - ALPHA - 0.02
    assert shares["stepwise"].mean() < shares["sequence"].mean() - 0.02


@pytest.mark.parametrize("steps", [1, 3, 4, 9])
def test_union_bound_holds_for_the_first_steps_although_thresholds_are_shared(steps: int) -> None:
    # The worst case for a shared threshold: the first step of each bin takes all of the bin's misses.
    generator = np.random.default_rng(steps)
    alpha = 0.02
    bound = union_bound(alpha, steps, POSITIONS)
    assert bound.charged == 4 * math.ceil(steps / 4)
    assert bound.level == pytest.approx(1 - alpha * bound.charged)
    kept = []
    for _ in range(REPETITIONS):
        chain = -generator.random((99 + NEW, STEPS))
        chain[:, ::4] -= 1.0
        values = as_values(chain[:99])
        bins = stepwise_bins(values.values, values.steps, values.contexts, alpha, bins=POSITIONS)
        log_tau = np.array([bins[POSITIONS.bin_of(step)].log_tau for step in range(steps)])
        kept.append((chain[99:, :steps] >= log_tau).all(axis=1).mean())
    error = 4 * np.std(kept) / math.sqrt(REPETITIONS)
    assert np.mean(kept) >= bound.level - error
    # Charging only the steps taken would promise too much here.
    if steps == 1:
        assert np.mean(kept) < 1 - alpha * steps - 0.02


def test_shorter_horizon_asks_less() -> None:
    values = as_values(chains(60, "dependent", np.random.default_rng(0)))
    taus = [sequence_threshold(values, ALPHA, horizon=horizon).log_tau for horizon in (1, 4, 12, 50)]
    assert taus == sorted(taus, reverse=True)
    assert taus[-1] == taus[-2]


def test_minimum_is_taken_over_each_chain_of_a_context() -> None:
    values = CalibrationValues(
        np.array([-1.0, -5.0, -2.0, -3.0, -9.0]), np.array([0, 1, 0, 1, 0]), np.array([7, 7, 7, 7, 8])
    )
    minima, contexts = sequence_minima(values)
    assert minima.tolist() == [-5.0, -3.0, -9.0]
    assert contexts.tolist() == [7, 7, 8]
