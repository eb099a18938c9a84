"""What a batch of rows runs and refuses; test_memory.py compares its logits with an uncached computation."""

import pytest
import torch

from bench.batching import batches
from coft_core.errors import InvalidInputError, PromptTooLongError, RolloutClosedError
from coft_core.model.branches import BranchBatch
from coft_core.model.fake import tiny_model

TOLERANCE = 2e-5


@pytest.fixture(scope="module")
def model():
    return tiny_model()


PROMPTS = [[5, 9, 2, 40, 41], [7, 8, 9, 10, 11, 12, 13, 14, 15], [3]]
CONTINUATION = [20, 30, 21, 31, 22, 60, 7, 99]


def test_going_back_runs_one_token_not_the_prompt(model, monkeypatch):
    batch = BranchBatch(model, [PROMPTS[1]])
    for token in CONTINUATION[:4]:
        batch.logits()
        batch.append(torch.tensor([token]))
    widths = []
    original = model.module.forward

    def spy(*args, **kwargs):
        widths.append(kwargs["input_ids"].shape[1])
        return original(*args, **kwargs)

    monkeypatch.setattr(model.module, "forward", spy)
    batch.crop(2)
    batch.logits()
    fork = batch.fork(1)
    fork.logits()
    assert widths == [1, 1]


def test_logits_are_given_twice_until_a_batch_is_closed(model):
    batch = BranchBatch(model, [PROMPTS[0]])
    first = batch.logits()
    torch.testing.assert_close(batch.logits(), first, atol=TOLERANCE, rtol=1e-4)
    batch = BranchBatch(model, [PROMPTS[0]])
    batch.close()
    with pytest.raises(RolloutClosedError, match="closed"):
        batch.logits()


def test_batches_respect_the_budget_and_prompts_the_context():
    model = tiny_model(context_length=16)
    with pytest.raises(PromptTooLongError, match=r"16 tokens and the model takes 16"):
        BranchBatch(model, [[1] * 16])
    with pytest.raises(InvalidInputError, match="no tokens"):
        BranchBatch(model, [[]])
    lengths = [5, 100, 7, 7, 64, 2, 90]
    groups = list(batches(lengths, 128))
    assert sorted(i for g in groups for i in g) == list(range(len(lengths)))
    assert all(len(g) == 1 or len(g) * max(lengths[i] for i in g) <= 128 for g in groups)
