"""The figures of a step, taken in one go, are those of the functions that define them."""

import pytest
import torch

from coft_core.policies.certify import (
    conditional_total_variation,
    entropy,
    kl_divergence,
    step_figures,
    total_variation,
)


def views(seed, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(3, 4, 50, generator=generator, dtype=dtype)
    if seed % 2:
        logits[torch.rand(logits.shape, generator=generator) < 0.1] = -torch.inf
    return torch.log_softmax(logits, -1), torch.rand(4, 50, generator=generator) < 0.3


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_each_figure_equals_its_own_function(seed, dtype):
    log_p, members = views(seed, dtype)
    factual, masked, fused = log_p
    expected = torch.stack(
        [
            torch.zeros(4, dtype=dtype),
            members.sum(-1).to(dtype),
            (fused.exp() * members).sum(-1),
            entropy(factual),
            entropy(masked),
            entropy(fused),
            kl_divergence(fused, masked),
            conditional_total_variation(fused, masked, members),
            kl_divergence(fused, factual),
            total_variation(fused, factual),
        ],
        dim=-1,
    )
    torch.testing.assert_close(step_figures(log_p, members), expected, equal_nan=True)


def test_without_a_certified_set_there_is_neither_size_nor_mass_nor_distance_on_it():
    figures = step_figures(views(0)[0], None)[0].tolist()
    assert figures[1:3] == [0.0, 0.0]
    assert figures[7] != figures[7]  # NaN


def test_what_the_masked_view_forbids_is_infinitely_far_even_where_the_probability_underflows():
    log_p = torch.tensor([[[0.0, -torch.inf]], [[0.0, -torch.inf]], [[0.0, -200.0]]])
    figures = step_figures(log_p, None)[0]
    assert figures[6] == torch.inf
    assert figures[8] == torch.inf


@pytest.mark.parametrize("view", [0, 1])
def test_a_single_nan_in_a_branch_is_noticed_and_spoils_no_other_row(view):
    log_p, members = views(2)
    log_p[view, 1, 7] = torch.nan
    assert step_figures(log_p, members)[:, 0].tolist() == [0.0, 1.0, 0.0, 0.0]
