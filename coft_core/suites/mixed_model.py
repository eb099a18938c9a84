"""A linear mixed-effects model whose coefficients all vary between groups, fitted by restricted maximum likelihood.

``y = X (b + u_g) + e`` with ``u_g ~ N(0, s^2 L L')`` and ``e ~ N(0, s^2)``. The deviance is profiled over ``b`` and
``s``, and minimised over the relative factor ``L`` as in lme4 (Bates et al. 2015, Fitting linear mixed-effects models
using lme4). ``L`` may be singular, so a variance of 0 is an ordinary point and not the edge of what can be computed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize

from coft_core.suites.statistics import Floats

FLAT = 1e-2
"""Steepest slope of the deviance at which a fit counts as converged: the rest is then below 0.0001 of a deviance."""

OPTIMISERS = ({"method": "L-BFGS-B", "options": {"ftol": 1e-13, "gtol": 1e-6, "maxiter": 2000}}, {"method": "BFGS"})
"""The second one starts where the first one ended without having converged."""


@dataclass(frozen=True, slots=True)
class MixedModel:
    """A fitted model."""

    coefficients: Floats
    errors: Floats
    deviance: float


def fit_mixed_model(values: Floats, design: Floats, groups: npt.NDArray[np.str_]) -> MixedModel | None:
    """Fit values ``(N,)`` by a design ``(N, P)``, whose first column is the intercept, and groups ``(N,)``.

    None where the model cannot be identified, or where neither optimiser converges.
    """
    names = np.unique(groups)
    n, p = design.shape
    if len(names) < 2 or n <= p or np.linalg.matrix_rank(design) < p:
        return None
    # The deviance depends on scale and origin of the values by a constant only.
    origin, scale = float(values.mean()), float(values.std()) or 1.0
    sums = _Sums.of((values - origin) / scale, design, [groups == name for name in names])
    factor = np.eye(p)[np.tril_indices(p)]
    for optimiser in OPTIMISERS:
        try:
            factor = minimize(sums.deviance, factor, jac=True, **optimiser).x
            deviance, slope = sums.deviance(factor)
        except np.linalg.LinAlgError:
            return None
        if np.abs(slope).max() <= FLAT:
            means, precision, squares, *_ = sums.profiled(factor)
            means[0] += origin / scale
            errors = np.sqrt(squares / (n - p) * np.diag(np.linalg.inv(precision)))
            return MixedModel(scale * means, scale * errors, deviance)
    return None


@dataclass(frozen=True, slots=True)
class _Sums:
    """All that the deviance needs: by group ``X'X (G, P, P)`` and ``X'y (G, P)``, and the sum of ``y^2``."""

    squared: Floats
    products: Floats
    total: float
    n: int

    @classmethod
    def of(cls, values: Floats, design: Floats, members: list[npt.NDArray[np.bool_]]) -> _Sums:
        squared = np.stack([design[own].T @ design[own] for own in members])
        products = np.stack([design[own].T @ values[own] for own in members])
        return cls(squared, products, float(values @ values), len(values))

    def profiled(self, factor: Floats) -> tuple[Floats, Floats, float, Floats, Floats, Floats]:
        """What the deviance at a factor's lower triangle is made of; ``V`` is the covariance over the variance.

        Returns:
            Coefficients ``b (P,)``, their precision ``X'V^-1 X (P, P)``, the squares ``(y - X b)' V^-1 (y - X b)``,
            the groups' parts ``X'V^-1 X (G, P, P)`` and ``X'V^-1 (y - X b) (G, P)``, and the log-determinants of V.
        """
        lower = _lower(factor, self.squared.shape[-1])
        inner = np.eye(len(lower)) + lower.T @ self.squared @ lower  # (G, P, P)
        between = lower @ np.linalg.solve(inner, np.broadcast_to(lower.T, inner.shape))  # (G, P, P)
        parts = self.squared - self.squared @ between @ self.squared
        weighted = self.products - _times(self.squared @ between, self.products)  # (G, P)
        precision = parts.sum(0)
        means = np.linalg.solve(precision, weighted.sum(0))
        left = weighted - parts @ means  # (G, P)
        squares = self.total - (self.products * _times(between, self.products)).sum() - weighted.sum(0) @ means
        return means, precision, float(squares), parts, left, np.linalg.slogdet(inner)[1]

    def deviance(self, factor: Floats) -> tuple[float, Floats]:
        """The deviance at a factor's lower triangle, ``(P (P + 1) / 2,)``, and its gradient."""
        _, precision, squares, parts, left, logs = self.profiled(factor)
        p = len(precision)
        if squares <= 0:
            raise np.linalg.LinAlgError("nothing is left to vary")
        ratio = (self.n - p) / squares
        value = (self.n - p) * np.log(squares) + logs.sum() + np.linalg.slogdet(precision)[1]
        curved = precision - (parts @ np.linalg.solve(precision, parts)).sum(0) - ratio * left.T @ left
        return float(value), (2 * curved @ _lower(factor, p))[np.tril_indices(p)]


def _lower(factor: Floats, p: int) -> Floats:
    lower = np.zeros((p, p))
    lower[np.tril_indices(p)] = factor
    return lower


def _times(matrices: Floats, vectors: Floats) -> Floats:
    """The product in each group, ``(G, P)``."""
    found: Floats = (matrices @ vectors[..., None])[..., 0]
    return found
