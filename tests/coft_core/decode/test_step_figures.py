"""The figures of a step, taken in one go, against SciPy's own functions."""

import pytest
import torch
from scipy.special import entr, rel_entr

from coft_core.policies.certify import step_figures


def views(seed, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(3, 4, 50, generator=generator, dtype=dtype)
    if seed % 2:
        logits[torch.rand(logits.shape, generator=generator) < 0.1] = -torch.inf
    return torch.log_softmax(logits, -1), torch.rand(4, 50, generator=generator) < 0.3


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_each_figure_is_what_its_name_says(seed, dtype):
    log_p, members = views(seed, dtype)
    factual, masked, fused = log_p.double().exp()
    on_set = [(p * members) / (p * members).sum(-1, keepdim=True) for p in (fused, masked)]
    expected = [
        torch.zeros(4), members.sum(-1), (fused * members).sum(-1),
        *(torch.from_numpy(entr(p.numpy())).sum(-1) for p in (factual, masked, fused)),
        torch.from_numpy(rel_entr(fused.numpy(), masked.numpy())).sum(-1), (on_set[0] - on_set[1]).abs().sum(-1) / 2,
        torch.from_numpy(rel_entr(fused.numpy(), factual.numpy())).sum(-1), (fused - factual).abs().sum(-1) / 2,
    ]  # fmt: skip
    torch.testing.assert_close(
        step_figures(log_p, members), torch.stack([figure.to(dtype) for figure in expected], dim=-1), equal_nan=True
    )


def test_figures_on_no_set_on_one_token_and_of_forbidden_ones_are_what_they_must_be():
    figures = step_figures(views(0)[0], None)[0].tolist()
    assert figures[1:3] == [0.0, 0.0]
    assert figures[7] != figures[7]  # NaN
    generator = torch.Generator().manual_seed(0)
    log_p = torch.log_softmax(torch.randn(2000, 50, generator=generator), -1)
    nearly = torch.log_softmax(log_p + 1e-7 * torch.randn(2000, 50, generator=generator), -1)
    figures = step_figures(torch.stack([nearly, log_p, log_p]), None)
    assert (figures[:, 6] == 0).all()
    assert (figures[:, 8] >= 0).all()
    log_p = torch.tensor([[0.2, 0.8], [0.2, 0.8], [0.9, 0.1]]).log()[:, None].repeat(1, 2, 1)
    figures = step_figures(log_p, torch.tensor([[False, True], [False, False]]))
    assert figures[0, 7] == 0
    assert figures[1, 7].isnan()
    log_p = torch.tensor([[[0.0, -torch.inf]], [[0.0, -torch.inf]], [[0.0, -200.0]]])
    figures = step_figures(log_p, None)[0]
    assert figures[6] == torch.inf
    assert figures[8] == torch.inf


@pytest.mark.parametrize("view", [0, 1])
def test_a_single_nan_in_a_branch_is_noticed_and_spoils_no_other_row(view):
    log_p, members = views(2)
    log_p[view, 1, 7] = torch.nan
    assert step_figures(log_p, members)[:, 0].tolist() == [0.0, 1.0, 0.0, 0.0]
