"""The mixed-effects fit: the library's estimates inside, better ones at the boundary, and steady under rounding."""

from __future__ import annotations

import numpy as np
import pytest

from coft_core.suites import mixed_model
from coft_core.suites.mixed_model import fit_mixed_model


def drawn(seed: int, groups: int, spread: float):
    """Values, design ``(N, 4)`` and groups; coefficients differ between groups by ``spread``, the slopes' half."""
    lots = np.random.default_rng(seed)
    names = np.repeat([f"g{number}" for number in range(groups)], 18)
    kind, age = np.tile(np.arange(18) % 3, groups), np.tile(np.linspace(-1.5, 1.5, 18), groups)
    design = np.column_stack([np.ones(len(names)), kind == 1, kind == 2, age]).astype(float)
    own = np.array([1.0, 0.5, -0.2, 0.1]) + lots.normal(0, spread, (groups, 4)) * [1, 0.5, 0.5, 0.5]
    values = (design * np.repeat(own, 18, axis=0)).sum(1) + lots.normal(0, 0.3, len(names))
    return values, design, names


def test_estimates_and_errors_are_those_of_statsmodels_where_it_converges():
    from statsmodels.regression.mixed_linear_model import MixedLM

    values, design, names = drawn(1, 30, 1.0)
    keep = np.random.default_rng(2).random(len(values)) < 0.8  # groups of unlike sizes and designs
    values, design, names = values[keep], design[keep], names[keep]
    theirs = MixedLM(values, design, names, design).fit(method="lbfgs")
    ours = fit_mixed_model(values, design, names)
    assert theirs.converged
    assert ours.coefficients == pytest.approx(theirs.fe_params, abs=1e-4)
    assert ours.errors == pytest.approx(
        np.sqrt(np.diag(np.linalg.inv(precision(values, design, names, theirs)))), rel=1e-3
    )


def precision(values, design, names, fit):
    """X' V^-1 X of the library's covariances, written out."""
    found = np.zeros((design.shape[1],) * 2)
    for name in np.unique(names):
        own = design[names == name]
        found += own.T @ np.linalg.solve(own @ fit.cov_re @ own.T + fit.scale * np.eye(len(own)), own)
    return found


def test_fifty_perturbed_inputs_all_converge_to_the_same_figures():
    # Effects do not differ between groups, so that variances of 0 are the estimate: there rounding matters most.
    values, design, names = drawn(3, 8, 0.0)
    plain = fit_mixed_model(values, design, names)
    lots = np.random.default_rng(4)
    for noise in np.logspace(-15, -13, 50):
        found = fit_mixed_model(values * (1 + noise * lots.uniform(-1, 1, len(values))), design, names)
        assert found is not None, noise
        assert found.coefficients == pytest.approx(plain.coefficients, abs=1e-6)
        assert found.errors == pytest.approx(plain.errors, rel=1e-3)


def test_the_second_optimiser_finds_what_the_first_one_missed_and_only_two_failures_are_a_failure(monkeypatch):
    given = drawn(5, 10, 0.5)
    whole = fit_mixed_model(*given)
    _, second = mixed_model.OPTIMISERS
    stopped = {"method": "L-BFGS-B", "options": {"maxiter": 1}}
    monkeypatch.setattr(mixed_model, "OPTIMISERS", (stopped, second))
    again = fit_mixed_model(*given)
    assert again.coefficients == pytest.approx(whole.coefficients, abs=1e-4)
    assert again.errors == pytest.approx(whole.errors, rel=1e-3)
    monkeypatch.setattr(mixed_model, "OPTIMISERS", (stopped, stopped))
    assert fit_mixed_model(*given) is None


def test_what_cannot_be_identified_has_no_fit_and_scale_changes_only_the_units():
    values, design, names = drawn(6, 4, 0.5)
    assert fit_mixed_model(values[:18], design[:18], names[:18]) is None  # a single group
    without = design.copy()
    without[:, 1] = 0.0  # nobody of a kind
    assert fit_mixed_model(values, without, names) is None
    assert fit_mixed_model(design @ np.ones(4), design, names) is None  # nothing is left to vary
    values, design, names = drawn(7, 10, 0.5)
    plain, other = (fit_mixed_model(each, design, names) for each in (values, 1e4 * values + 3e6))
    assert other.coefficients - [3e6, 0, 0, 0] == pytest.approx(1e4 * plain.coefficients, rel=1e-4)
    assert other.errors == pytest.approx(1e4 * plain.errors, rel=1e-4)
