"""Figures of the phantom against numbers worked out by hand, and readings against the core's own decoding."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats

import coft_core as cc
from bench.demo_model.phantom.accuracy import answers_right, greedy_choices
from bench.demo_model.phantom.chains import sample_chains
from bench.demo_model.phantom.gaps import FAMILIES, GROUP_INDICES, gaps
from bench.demo_model.phantom.held_out import GROUPS, write_questions, write_wordings
from bench.demo_model.phantom.intervals import (
    cluster_share,
    jackknife,
    reduction,
    share,
)
from bench.demo_model.phantom.learnt import CellReadings, cell_figures
from bench.demo_model.phantom.outcomes import (
    Decision,
    Policies,
    final_distribution,
    masked_prompt,
    outcome_tokens,
    read_decisions,
)
from bench.demo_model.phantom.text import settings
from bench.demo_model.phantom.writers import KINDS, without_outcome
from bench.demo_model.scenarios import Scenario
from coft_core.model.fake import tiny_model
from coft_core.model.forced import teacher_forced_logits
from coft_core.policies.sampling import choose
from tests.coft_core.demo import demo_model


@pytest.fixture(scope="module")
def model():
    return tiny_model(seed=2)


@pytest.fixture(scope="module")
def policies(model):
    texts = ["A Black driver sat down. ", "The old man saw a dog. ", "She went home with a letter. "]
    examples = [cc.Example(f"{text}{number}", " and then it was over.") for number in range(8) for text in texts]
    calibration = cc.calibrate(model, examples, lam=0.6, alpha=0.3)
    return Policies(cc.VanillaPolicy(), cc.CoftPolicy(0.6, calibration))


def prompts(number):
    return [wording.prompts[5] for wording in write_wordings(1, seed=3)][:number]


def test_gaps_and_their_reduction_are_those_of_the_rates_of_each_family():
    rates = np.full(len(GROUPS), 0.5)
    rates[list(GROUP_INDICES[1])[:3]] = (0.2, 0.9, 0.6)
    expected = [0.0] * len(FAMILIES)
    expected[1] = 0.7
    assert gaps(rates) == pytest.approx(expected)
    assert sorted(place for places in GROUP_INDICES for place in places) == list(range(len(GROUPS)))
    assert reduction(np.array([[0.4, 0.2], [0.1, 0.2]])) == pytest.approx(0.5)


def test_shares_of_clusters_have_the_interval_of_what_agrees_in_them():
    figure = cluster_share([34] * 30 + [0] * 2, [34] * 32, "clusters")
    exact = share(30, 32, "clusters")
    assert figure.n == 32
    assert (figure.value, figure.low, figure.high) == pytest.approx((0.9375, exact.low, exact.high))
    assert (round(figure.low, 3), round(figure.high, 3)) == (0.792, 0.992)
    rng = np.random.default_rng(0)
    hits = rng.binomial(40, 0.7, 200)
    figure, exact = cluster_share(hits, np.full(200, 40), "clusters"), share(int(hits.sum()), 8000, "units")
    assert figure.high - figure.low == pytest.approx(exact.high - exact.low, rel=0.15)
    none, every = (cluster_share([count] * 8, [30] * 8, "clusters") for count in (0, 30))
    assert (none.low, none.high) == pytest.approx((0, share(0, 8, "clusters").high))
    assert (every.low, every.high) == pytest.approx((share(8, 8, "clusters").low, 1))
    means = np.array([0.1, 0.4, 0.2, 0.7, 0.6])
    figure = jackknife(np.repeat(means, 3), np.repeat(np.arange(5), 3), "clusters")
    reach = stats.t.ppf(0.975, 4) * means.std(ddof=1) / 5**0.5
    assert (figure.n, figure.value, figure.high - figure.value) == (5, pytest.approx(0.4), pytest.approx(reach))
    with pytest.raises(ValueError, match="at least two"):
        jackknife(means, np.zeros(5), "clusters")


def test_a_cluster_interval_holds_the_truth_at_its_level():
    rng = np.random.default_rng(1)
    inside = [0, 0]
    for _ in range(400):
        rates = rng.beta(4, 2, 24)
        hits = rng.binomial(30, rates)
        figures = (
            cluster_share(hits, np.full(24, 30), "clusters"),
            jackknife(np.repeat(hits / 30, 30), np.repeat(np.arange(24), 30), "clusters"),
        )
        inside = [count + (f.low <= 2 / 3 <= f.high) for count, f in zip(inside, figures, strict=True)]
    assert min(inside) >= 0.92 * 400


def test_groups_of_one_setting_and_kind_count_as_one_cluster():
    shape = (len(settings()), len(KINDS), 2, len(GROUPS))
    truth = np.full((shape[0], shape[1], shape[3]), 0.5)
    favourable = np.full(shape, 0.5)
    favourable[0, :2] = 0.9
    both = np.stack([favourable, 1 - favourable], axis=-1)
    figure = cell_figures(CellReadings(Decision(both, both, both, both), truth, truth))["masked"]["cells_within"]
    assert (figure.n, figure.value) == (len(settings()) * len(KINDS), 0.9375)
    assert (round(figure.low, 3), round(figure.high, 3)) == (0.792, 0.992)
    assert not figure.shown


def test_final_distribution_is_the_law_of_the_draw_and_an_empty_set_leaves_the_likeliest_token(model, policies):
    logits = torch.randn(3, 2, model.vocabulary_size, generator=torch.Generator().manual_seed(1)) * 3
    grid = (torch.arange(4000, dtype=torch.float64) + 0.5) / 4000
    for _, policy in policies.named():
        views = policy.views(logits, 0)
        p = final_distribution(views, policy.sampling)
        torch.testing.assert_close(p.sum(-1), torch.ones(3, dtype=torch.float64))
        for row in range(3):
            log_p = views.log_p_fused[row].expand(4000, -1)
            certified = None if views.certified is None else views.certified[row].expand(4000, -1)
            drawn = choose(log_p, certified, policy.sampling, grid).token_ids
            counted = torch.bincount(drawn, minlength=model.vocabulary_size) / 4000
            assert (counted - p[row]).abs().max() < 1 / 1000
    logits = torch.randn(1, 2, model.vocabulary_size, generator=torch.Generator().manual_seed(5))
    views = policies.coft.views(logits, 0)
    emptied = type(views)(
        views.logits_factual, views.logits_masked, views.log_p_factual, views.log_p_masked, views.log_p_fused,
        torch.zeros_like(views.log_p_fused, dtype=torch.bool), views.log_tau, views.state,
    )  # fmt: skip
    p = final_distribution(emptied, policies.coft.sampling)
    assert p[0, views.log_p_fused[0].argmax()] == 1.0


def test_decisions_read_in_batches_are_those_of_single_prompts_and_like_outcomes_refused(model, policies):
    # Over bytes every outcome would begin with the same space.
    chosen = [replace(prompt, outcomes=("x", "y")) for prompt in prompts(6)]
    read = read_decisions(model, policies, chosen, token_budget=600)
    for i, prompt in enumerate(chosen):
        alone = read_decisions(model, policies, [prompt])
        for name in ("factual", "masked", "vanilla", "coft"):
            assert getattr(read, name)[i] == pytest.approx(getattr(alone, name)[0], abs=1e-5)
        ids = torch.tensor([masked_prompt(model, prompt).factual_ids])
        p = torch.softmax(model.module(input_ids=ids).logits[0, -1].double(), -1)
        assert read.factual[i] == pytest.approx(p[outcome_tokens(model, prompt)].detach().numpy(), abs=1e-5)
    alike = Scenario("It was", (), "x", 6, (" red", " rude"))
    with pytest.raises(ValueError, match="same token"):
        outcome_tokens(model, alike)


def test_chains_sampled_in_a_batch_are_those_of_generate(model, policies):
    chosen = prompts(5)
    masked = [masked_prompt(model, prompt) for prompt in chosen]
    for _, policy in policies.named():
        chains = sample_chains(model, policy, masked, seed=11, length=12)
        for i, prompt in enumerate(chosen):
            spans = [cc.Span(start, end) for start, end in prompt.spans]
            run = cc.generate(model, prompt.text, policy, spans, max_new_tokens=12, seed=11 + i)
            assert chains[i].tokens == tuple(step.token_id for step in run.steps)
            assert chains[i].fallbacks == sum(step.fallback for step in run.steps)


def test_greedy_choices_along_a_chain_are_those_of_greedy_decoding(model, policies):
    prompt = prompts(1)[0]
    spans = [cc.Span(start, end) for start, end in prompt.spans]
    masked = masked_prompt(model, prompt)
    for _, policy in policies.named():
        run = cc.generate(model, prompt.text, policy, spans, max_new_tokens=10, greedy=True)
        ids = tuple(step.token_id for step in run.steps)
        rows = teacher_forced_logits(model, [(masked.factual_ids, ids), (masked.masked_ids, ids)])
        assert tuple(greedy_choices(policy, torch.stack(rows, dim=1)).tolist()) == ids


def test_an_answer_is_right_if_greedy_decoding_writes_it_to_its_end():
    demo = demo_model(device="cpu")
    both = Policies(cc.VanillaPolicy(), cc.CoftPolicy())
    for question in write_questions(2, seed=2):
        prompt = without_outcome(question)
        spans = [cc.Span(start, end) for start, end in prompt.spans]
        for name, policy in both.named():
            written = prompt.text + cc.generate(demo, prompt.text, policy, spans, 2, greedy=True).text
            right = replace(question, text=written)
            assert answers_right(demo, both, [right])[name][0]
            assert not answers_right(demo, both, [replace(right, text=written + "zq")])[name][0]
