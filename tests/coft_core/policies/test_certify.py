from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from coft_core.policies.certify import (
    certified_set,
    conditional_total_variation,
    entropy,
    joint_support,
    kl_divergence,
    total_variation_bound,
)


def log_of(*probabilities: float) -> Tensor:
    return torch.tensor(probabilities, dtype=torch.float64).log()


def test_joint_support_is_the_smaller_of_the_two_views() -> None:
    support = joint_support(log_of(0.5, 0.2, 0.3), log_of(0.1, 0.6, 0.3))
    assert support.exp().tolist() == pytest.approx([0.1, 0.2, 0.3])


def test_token_at_the_threshold_is_certified_and_the_next_smaller_is_not() -> None:
    tau = torch.tensor(0.06).log()
    below = torch.nextafter(tau, torch.tensor(-torch.inf))
    members = certified_set(torch.stack([tau, below]), tau.item())
    assert members.tolist() == [True, False]


def test_threshold_of_minus_infinity_certifies_even_impossible_tokens() -> None:
    assert certified_set(log_of(1.0, 0.0), -math.inf).all()


def test_each_row_may_have_its_own_threshold() -> None:
    joint = log_of(0.5, 0.3, 0.2).repeat(2, 1)
    assert certified_set(joint, log_of(0.25, 0.1)[:, None]).tolist() == [
        [True, True, False],
        [True, True, True],
    ]


def test_log_space_tells_small_probabilities_apart_where_the_score_cannot() -> None:
    joint = torch.tensor([1e-9, 1e-10]).log()
    score = 1 - joint.exp()
    assert score[0] == score[1]
    assert certified_set(joint, math.log(5e-10)).tolist() == [True, False]


class TestEntropy:
    def test_uniform_distribution_has_the_logarithm_of_its_size(self) -> None:
        assert entropy(log_of(*[0.125] * 8)).item() == pytest.approx(math.log(8))

    def test_certain_and_impossible_tokens_add_nothing(self) -> None:
        assert entropy(log_of(1.0, 0.0, 0.0)).item() == 0.0
        assert entropy(log_of(0.5, 0.5, 0.0)).item() == pytest.approx(math.log(2))

    def test_rows_are_independent(self) -> None:
        rows = torch.stack([log_of(0.5, 0.5), log_of(0.9, 0.1)])
        assert entropy(rows).tolist() == pytest.approx([entropy(row).item() for row in rows])


class TestDivergence:
    def test_value_of_a_known_pair(self) -> None:
        expected = 0.75 * math.log(0.75 / 0.5) + 0.25 * math.log(0.25 / 0.5)
        assert kl_divergence(log_of(0.75, 0.25), log_of(0.5, 0.5)).item() == pytest.approx(expected)

    def test_order_of_the_arguments_matters(self) -> None:
        p, q = log_of(0.9, 0.1), log_of(0.5, 0.5)
        assert kl_divergence(p, q).item() != pytest.approx(kl_divergence(q, p).item())

    def test_equal_distributions_have_none_with_impossible_tokens_too(self) -> None:
        p = log_of(0.5, 0.5, 0.0)
        assert kl_divergence(p, p).item() == 0.0

    def test_what_only_the_second_forbids_is_infinite(self) -> None:
        assert kl_divergence(log_of(0.5, 0.5), log_of(1.0, 0.0)).item() == math.inf
        assert kl_divergence(log_of(1.0, 0.0), log_of(0.5, 0.5)).item() == pytest.approx(math.log(2))

    def test_rounding_never_makes_it_negative(self) -> None:
        generator = torch.Generator().manual_seed(0)
        log_p = torch.log_softmax(torch.randn(2000, 50, generator=generator), -1)
        nearly = torch.log_softmax(log_p + 1e-7 * torch.randn(2000, 50, generator=generator), -1)
        assert (kl_divergence(log_p, nearly) >= 0).all()


class TestConditionalTotalVariation:
    def test_set_of_all_tokens_gives_total_variation(self) -> None:
        everything = torch.ones(3, dtype=torch.bool)
        distance = conditional_total_variation(log_of(0.5, 0.3, 0.2), log_of(0.2, 0.3, 0.5), everything)
        assert distance.item() == pytest.approx(0.3)

    def test_both_are_renormalised_on_the_set(self) -> None:
        members = torch.tensor([True, True, False])
        distance = conditional_total_variation(log_of(0.4, 0.4, 0.2), log_of(0.1, 0.3, 0.6), members)
        assert distance.item() == pytest.approx(0.25)

    def test_single_token_leaves_no_difference(self) -> None:
        members = torch.tensor([False, True])
        assert conditional_total_variation(log_of(0.9, 0.1), log_of(0.2, 0.8), members).item() == 0.0

    def test_empty_set_has_no_distance(self) -> None:
        nothing = torch.zeros(2, dtype=torch.bool)
        assert conditional_total_variation(log_of(0.9, 0.1), log_of(0.2, 0.8), nothing).isnan()


class TestTotalVariationBound:
    def test_bound_is_the_root_of_half_the_divergence_over_tau(self) -> None:
        kl = torch.tensor([0.08, 0.5], dtype=torch.float64)
        assert total_variation_bound(kl, math.log(0.25)).tolist() == pytest.approx([0.8, 2.0])

    def test_each_row_may_have_its_own_threshold(self) -> None:
        kl = torch.tensor([0.08, 0.08], dtype=torch.float64)
        bound = total_variation_bound(kl, log_of(0.25, 0.5))
        assert bound.tolist() == pytest.approx([0.8, 0.4])

    def test_without_a_threshold_nothing_is_bounded(self) -> None:
        assert total_variation_bound(torch.tensor([0.0, 0.3]), -math.inf).tolist() == [math.inf, math.inf]


def test_divergence_is_infinite_where_a_forbidden_token_has_a_probability_that_underflows():
    log_p = torch.tensor([0.0, -200.0])
    log_q = torch.tensor([0.0, -torch.inf])
    assert kl_divergence(log_p, log_q) == torch.inf
