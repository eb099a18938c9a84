"""The sequence score: all true tokens of a new chain are certified together with probability at least 1 - alpha.

Chains differ in length: some end by themselves, others are cut short, and what is claimed at a horizon must hold for
new chains that really reach it.
"""

from __future__ import annotations

import math
import re

import numpy as np
import numpy.typing as npt
import pytest

from coft_core.conformal.bins import PositionBins, stepwise_bins
from coft_core.conformal.sequence import sequence_threshold, union_bound, usual_horizon, whole_chains
from coft_core.conformal.values import CalibrationValues

REPETITIONS, CONTEXTS, NEW, STEPS, ALPHA = 160, 39, 60, 12, 0.1
"""Four standard errors are then 0.016, and a rank beside the right one shifts the coverage by 0.025."""
POSITIONS = PositionBins(width=4, maximum=STEPS, spacing="even")

Chains = npt.NDArray[np.float64]
Lengths = npt.NDArray[np.int64]


def chains(count, kind, generator):
    """Values of chains at every step, (count, T): steps that share a cause, or independent ones."""
    level = generator.normal(size=(count, 1)) if kind == "dependent" else 0.0
    return -np.exp(level + 0.4 * generator.normal(size=(count, STEPS)))


def own_lengths(count, generator):
    """Steps after which chains end by themselves, (count,), 1 to 2 T: about half of them reach T."""
    return generator.integers(1, 2 * STEPS + 1, size=count)


def as_values(chain, lengths=None, ended=None):
    """Chains of given lengths, at most T, with whether each ended by itself there."""
    seen = np.minimum(np.full(len(chain), STEPS) if lengths is None else lengths, STEPS)
    own = np.zeros(len(chain), dtype=bool) if ended is None else ended
    rows = [values[:length] for values, length in zip(chain, seen, strict=True)]
    numbers = list(range(len(chain)))
    return CalibrationValues.of_chains(rows, numbers, numbers, own.tolist())


def kept_whole(new, lengths, log_tau, horizon=STEPS):
    """Share of new chains whose true tokens up to the horizon all reach a threshold."""
    counted = np.arange(STEPS) < np.minimum(lengths, horizon)[:, None]  # (count, T)
    return float((np.where(counted, new, 0.0).min(axis=1) >= log_tau).mean())


@pytest.fixture(scope="module", params=["dependent", "independent"])
def shares(request):
    """Share of new chains that each certificate keeps whole, for repeated calibrations, (R,) each."""
    generator = np.random.default_rng(3)
    kept: dict[str, list[float]] = {"ends": [], "equal": [], "stepwise": []}
    full = np.full(NEW, STEPS)
    for _ in range(REPETITIONS):
        chain, lengths = chains(CONTEXTS + NEW, request.param, generator), own_lengths(CONTEXTS + NEW, generator)
        new = chain[CONTEXTS:]
        mixed = as_values(chain[:CONTEXTS], lengths[:CONTEXTS], lengths[:CONTEXTS] < STEPS)
        log_tau = sequence_threshold(mixed, ALPHA, horizon=STEPS).log_tau
        kept["ends"].append(kept_whole(new, lengths[CONTEXTS:], log_tau))
        values = as_values(chain[:CONTEXTS])
        kept["equal"].append(kept_whole(new, full, sequence_threshold(values, ALPHA).log_tau))
        bins = stepwise_bins(values.values, values.steps, values.contexts, ALPHA, positions=POSITIONS)
        by_step = np.array([bins[POSITIONS.bin_of(step)].log_tau for step in range(STEPS)])  # (T,)
        kept["stepwise"].append((new >= by_step).all(axis=1).mean())
    return {name: np.array(share) for name, share in kept.items()}


def test_whole_chains_are_kept_at_the_level_asked_for_and_stepwise_thresholds_keep_fewer(shares):
    for law in ("ends", "equal"):
        error = 4 * shares[law].std() / math.sqrt(REPETITIONS)
        # 39 contexts and alpha 0.1 give rank 4 of 40: exactly 0.9 on average, however dependent the steps.
        assert shares[law].mean() == pytest.approx(1 - ALPHA, abs=error)
    bound = union_bound(ALPHA, STEPS, POSITIONS)
    assert bound.level == 0.0
    assert bound.level <= shares["stepwise"].mean() < 1 - ALPHA - 0.02
    assert shares["stepwise"].mean() < shares["equal"].mean() - 0.02


def test_chains_cut_short_do_not_make_the_claim_false_at_the_horizon():
    # Three quarters of the chains are cut after a quarter of the steps; new ones go on to the horizon.
    generator = np.random.default_rng(11)
    kept, naive = [], []
    for _ in range(REPETITIONS):
        chain = chains(4 * CONTEXTS + NEW, "independent", generator)
        lengths = np.where(np.arange(4 * CONTEXTS) % 4 > 0, STEPS // 4, STEPS)
        values, full = as_values(chain[: 4 * CONTEXTS], lengths), np.full(NEW, STEPS)
        found = sequence_threshold(values, ALPHA, horizon=STEPS)
        assert (found.contexts, found.lengths.reached, found.lengths.cut) == (CONTEXTS, CONTEXTS, 3 * CONTEXTS)
        kept.append(kept_whole(chain[4 * CONTEXTS :], full, found.log_tau))
        # What every chain gives when it is taken as it is, cut or not.
        minima = np.sort(whole_chains(values).minima)
        naive.append(kept_whole(chain[4 * CONTEXTS :], full, minima[int(ALPHA * (minima.size + 1)) - 1]))
    error = 4 * np.std(kept) / math.sqrt(REPETITIONS)
    assert np.mean(kept) >= 1 - ALPHA - error
    assert np.mean(naive) < 1 - ALPHA - 0.05


def test_cutting_does_not_favour_short_chains_where_chains_end_by_themselves():
    # A chain is cut at a step that has nothing to do with it, so that long ones, which miss more, are cut more often.
    generator = np.random.default_rng(12)
    kept, left_out = [], []
    for _ in range(REPETITIONS):
        count = 3 * CONTEXTS
        chain, lengths = chains(count + NEW, "independent", generator), own_lengths(count + NEW, generator)
        cut = np.where(generator.random(count) < 0.05, generator.integers(1, STEPS, size=count), STEPS)
        ended = (lengths[:count] <= cut) & (lengths[:count] < STEPS)
        values = as_values(chain[:count], np.minimum(lengths[:count], cut), ended)
        kept.append(
            kept_whole(chain[count:], lengths[count:], sequence_threshold(values, ALPHA, horizon=STEPS).log_tau)
        )
        left_out.append(float(whole_chains(values, STEPS).counted.mean()))
    error = 4 * np.std(kept) / math.sqrt(REPETITIONS)
    assert np.mean(kept) >= 1 - ALPHA - error
    assert min(left_out) == 1.0


def test_horizon_that_is_not_asked_for_is_one_that_nine_in_ten_contexts_reach():
    chain = chains(40, "dependent", np.random.default_rng(0))
    assert usual_horizon(as_values(chain)) == STEPS
    cut = as_values(chain, np.arange(40) // 4 + 1)  # four contexts of each length 1 to 10
    assert usual_horizon(cut) == 2
    found = sequence_threshold(cut, ALPHA)
    assert (found.horizon, found.contexts, found.lengths.cut) == (2, 36, 4)
    assert usual_horizon(as_values(chain, np.arange(40) // 4 + 1, np.ones(40, dtype=bool))) == 10


@pytest.mark.parametrize("steps", [1, 9, *(pytest.param(steps, marks=pytest.mark.slow) for steps in (3, 4))])
def test_union_bound_holds_for_the_first_steps_although_thresholds_are_shared(steps):
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
        bins = stepwise_bins(values.values, values.steps, values.contexts, alpha, positions=POSITIONS)
        log_tau = np.array([bins[POSITIONS.bin_of(step)].log_tau for step in range(steps)])
        kept.append((chain[99:, :steps] >= log_tau).all(axis=1).mean())
    error = 4 * np.std(kept) / math.sqrt(REPETITIONS)
    assert np.mean(kept) >= bound.level - error
    # Charging only the steps taken would promise too much here.
    if steps == 1:
        assert np.mean(kept) < 1 - alpha * steps - 0.02


def test_shorter_horizon_asks_less_and_nothing_is_said_beyond_all_that_was_seen():
    values = as_values(chains(60, "dependent", np.random.default_rng(0)))
    taus = [sequence_threshold(values, ALPHA, horizon=horizon).log_tau for horizon in (1, 4, 12)]
    assert taus == sorted(taus, reverse=True)
    beyond = sequence_threshold(values, ALPHA, horizon=STEPS + 1)
    assert (beyond.state, beyond.contexts) == ("uninformative", 0)
    assert re.findall(r"\d+", beyond.reason) == ["0", str(STEPS + 1)]


def test_minimum_is_taken_over_each_chain_of_a_context():
    values = CalibrationValues(
        np.array([-1.0, -5.0, -2.0, -3.0, -9.0]), np.array([0, 1, 0, 1, 0]), np.array([7, 7, 7, 7, 8])
    )
    found = whole_chains(values)
    assert found.minima.tolist() == [-5.0, -3.0, -9.0]
    assert found.contexts.tolist() == [7, 7, 8]
