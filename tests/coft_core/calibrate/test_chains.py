from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from coft_core.calibrate.chains import chain_prompts, chain_seed, generate_chains
from coft_core.conformal.calibration import Calibration
from coft_core.conformal.values import CalibrationValues
from coft_core.decode.loop import generate
from coft_core.errors import InvalidInputError, PromptTooLongError
from coft_core.model.fake import tiny_model
from coft_core.policies.coft import CoftPolicy
from coft_core.text.detection import default_detector
from coft_core.types import Example

TEXTS = ("He was late", "She wrote a long letter to the judge", "The old man", "A nurse and his friend")


@pytest.fixture(scope="module")
def model():
    return tiny_model()


def thresholded(model, log_tau):
    """A policy with one threshold at every step."""
    bare = CoftPolicy(0.6)
    fingerprint = replace(
        bare.fingerprint(model, default_detector().version), estimator="hierarchical", source="rollout"
    )
    values = CalibrationValues(np.full(20, log_tau), np.zeros(20, dtype=int), np.arange(20))
    return CoftPolicy(0.6, Calibration.of(fingerprint, 0.1, values))


def prompts(model, texts=TEXTS):
    examples = [Example(text) for text in texts]
    return chain_prompts(model, examples, range(len(texts)), CoftPolicy(0.6), default_detector())


@pytest.mark.parametrize("log_tau", [-6.0, -2.0])
def test_batched_chains_are_those_that_the_policy_generates_one_by_one(model, log_tau):
    policy = thresholded(model, log_tau)
    chains = generate_chains(model, policy, prompts(model), max_new_tokens=6, seed=5)
    for row, (text, tokens) in enumerate(zip(TEXTS, chains.tokens, strict=True), start=1):
        run = generate(model, text, policy, max_new_tokens=6, seed=chain_seed(5, row))
        assert tuple(step.token_id for step in run.steps) == tokens
        own = chains.chosen.select([row - 1])
        expected = [min(step.log_p_fused, step.log_p_masked) for step in run.steps]
        assert own.values.tolist() == pytest.approx(expected, abs=1e-4)
        assert own.steps.tolist() == list(range(len(tokens)))


def test_true_tokens_are_factual_draws_and_not_what_the_policy_chose(model):
    # A threshold that only a fallback can meet: the chain is greedy, the true tokens are drawn all the same.
    policy = thresholded(model, -0.01)
    chains = generate_chains(model, policy, prompts(model), max_new_tokens=12, seed=1)
    assert len(chains.truth()) == len(chains.chosen)
    assert (chains.truth().steps == chains.chosen.steps).all()
    assert not np.array_equal(chains.truth().values, chains.chosen.values)
    assert (chains.truth().values < -0.01).mean() > 0.5


def test_chains_do_not_depend_on_their_batch_and_progress_counts_each_once(model):
    policy = thresholded(model, -5.0)
    together = generate_chains(model, policy, prompts(model), 5, seed=2)
    apart = generate_chains(model, policy, prompts(model), 5, seed=2, batch_prompts=1)
    assert together.tokens == apart.tokens
    np.testing.assert_allclose(together.truth().values, apart.truth().values, atol=1e-4)
    small = tiny_model(context_length=30)
    chains = generate_chains(small, thresholded(small, -9.0), prompts(small, (TEXTS[0], "x" * 25)), 15, seed=0)
    assert chains.truth().select([1]).steps.max() + 1 == 5
    assert chains.truth().select([0]).steps.max() + 1 == 15
    seen: list[int] = []
    generate_chains(model, thresholded(model, -9.0), prompts(model), 1, progress=seen.append, batch_prompts=3)
    assert seen == [3, 1]
    assert len({chain_seed(0, row) for row in range(1000)}) == 1000
    assert chain_seed(3, 4) == chain_seed(3, 4) != chain_seed(4, 4)
    assert math.log2(max(chain_seed(0, row) for row in range(100))) < 53


def test_what_cannot_be_continued_is_refused():
    small = tiny_model(context_length=30)
    policy = thresholded(small, -9.0)
    with pytest.raises(PromptTooLongError, match="Example 2 has 40 tokens"):
        generate_chains(small, policy, prompts(small, ("He", "x" * 40)), 5)
    with pytest.raises(InvalidInputError, match="at least one"):
        generate_chains(small, policy, prompts(small, ("He",)), 0)


def test_it_is_noted_which_chains_the_model_ended_by_itself(model):
    half = frozenset(range(0, model.vocabulary_size, 2))
    ending = replace(model, end_token_ids=half)
    chains = generate_chains(ending, CoftPolicy(0.6), prompts(model), max_new_tokens=2, seed=3)
    ended = tuple(tokens[-1] in half for tokens in chains.tokens)
    assert set(ended) == {True, False}
    assert chains.ended == ended
    values = chains.truth()
    last = np.flatnonzero(np.diff(values.sequences, append=len(TEXTS)))
    assert tuple(values.ends[last] == 1) == ended
    assert values.ends.sum() == sum(ended)
