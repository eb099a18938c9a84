from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from coft_core.calibrate.chains import chain_prompts, chain_seed, generate_chains
from coft_core.errors import InvalidInputError, PromptTooLongError
from coft_core.model.fake import tiny_model
from coft_core.policies.coft import CoftPolicy
from coft_core.text.detection import default_detector
from coft_core.types import Example
from tests.coft_core.levels import fitting, flat

TEXTS = ("He was late", "She wrote a long letter to the judge", "The old man", "A nurse and his friend")


@pytest.fixture(scope="module")
def model():
    return tiny_model()


def thresholded(model, log_tau):
    """A policy with one threshold at every step."""
    bare, detector = CoftPolicy(0.6), default_detector().version
    return CoftPolicy(0.6, fitting(bare, model, flat(log_tau, 20), detector=detector, source="rollout"))


def prompts(model, texts=TEXTS):
    examples = [Example(text) for text in texts]
    return chain_prompts(model, examples, range(len(texts)), CoftPolicy(0.6), default_detector())


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
