"""The two-branch engine against an independent, uncached computation."""

import pytest
import torch
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    MistralConfig,
    MistralForCausalLM,
)

from coft_core.errors import InvalidInputError, PromptTooLongError, RolloutClosedError
from coft_core.model.branches import BranchBatch
from coft_core.model.fake import byte_tokenizer, tiny_model
from coft_core.model.forced import batches, teacher_forced_logits
from coft_core.model.load import wrap_model

TOLERANCE = 2e-5


def uncached(model, ids):
    """Logits after the last token, one row, no cache, no padding."""
    with torch.inference_mode():
        return model.module(input_ids=torch.tensor([ids]), use_cache=False).logits[0, -1]


def other_architectures():
    tokenizer = byte_tokenizer()
    size = len(tokenizer)
    common = {"vocab_size": size, "bos_token_id": None, "eos_token_id": tokenizer.eos_token_id}
    torch.manual_seed(1)
    yield GPT2LMHeadModel(GPT2Config(n_embd=32, n_layer=2, n_head=4, n_positions=128, **common))
    yield GPTNeoXForCausalLM(
        GPTNeoXConfig(
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=64,
            max_position_embeddings=128,
            **common,
        )
    )
    yield MistralForCausalLM(
        MistralConfig(
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            intermediate_size=64,
            max_position_embeddings=128,
            sliding_window=6,
            **common,
        )
    )


@pytest.fixture(scope="module")
def model():
    return tiny_model()


PROMPTS = [[5, 9, 2, 40, 41], [7, 8, 9, 10, 11, 12, 13, 14, 15], [3]]
CONTINUATION = [20, 30, 21, 31, 22, 60, 7, 99]


def assert_cached_equals_uncached(model, prompts):
    batch = BranchBatch(model, prompts)
    chains = [list(p) for p in prompts]
    for token in CONTINUATION:
        logits = batch.logits()
        for row, chain in enumerate(chains):
            torch.testing.assert_close(logits[row], uncached(model, chain), atol=TOLERANCE, rtol=1e-4)
        batch.append(torch.full((len(prompts),), token))
        for chain in chains:
            chain.append(token)


def test_cached_logits_equal_uncached_recomputation_for_prompts_of_different_lengths(model):
    assert_cached_equals_uncached(model, PROMPTS)


@pytest.mark.parametrize("index", range(3))
def test_cached_logits_equal_uncached_recomputation_in_other_architectures(index):
    module = list(other_architectures())[index].eval()
    other = wrap_model(module, byte_tokenizer(), "other")
    assert_cached_equals_uncached(other, PROMPTS)


def test_logits_after_going_back_equal_a_fresh_computation(model):
    batch = BranchBatch(model, PROMPTS)
    for token in CONTINUATION:
        batch.logits()
        batch.append(torch.full((3,), token))
    for keep in (5, 2, 0):
        batch.crop(keep)
        logits = batch.logits()
        for row, prompt in enumerate(PROMPTS):
            expected = uncached(model, prompt + CONTINUATION[:keep])
            torch.testing.assert_close(logits[row], expected, atol=TOLERANCE, rtol=1e-4)


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


def test_fork_leaves_its_parent_untouched(model):
    parent = BranchBatch(model, PROMPTS[:2])
    for token in CONTINUATION[:5]:
        parent.logits()
        parent.append(torch.full((2,), token))
    fork = parent.fork(2)
    fork.append(torch.tensor([77, 77]))
    fork_logits, parent_logits = fork.logits(), parent.logits()
    for row in range(2):
        torch.testing.assert_close(
            fork_logits[row],
            uncached(model, [*PROMPTS[row], *CONTINUATION[:2], 77]),
            atol=TOLERANCE,
            rtol=1e-4,
        )
        torch.testing.assert_close(
            parent_logits[row], uncached(model, PROMPTS[row] + CONTINUATION[:5]), atol=TOLERANCE, rtol=1e-4
        )


def test_asking_for_the_same_logits_twice_gives_them_twice(model):
    batch = BranchBatch(model, [PROMPTS[0]])
    first = batch.logits()
    torch.testing.assert_close(batch.logits(), first, atol=TOLERANCE, rtol=1e-4)


def test_a_closed_batch_refuses_to_run(model):
    batch = BranchBatch(model, [PROMPTS[0]])
    batch.close()
    with pytest.raises(RolloutClosedError, match="closed"):
        batch.logits()


def test_a_prompt_that_fills_the_context_is_refused_with_both_numbers():
    model = tiny_model(context_length=16)
    with pytest.raises(PromptTooLongError, match=r"16 tokens and the model takes 16"):
        BranchBatch(model, [[1] * 16])
    with pytest.raises(InvalidInputError, match="no tokens"):
        BranchBatch(model, [[]])


def test_teacher_forced_logits_equal_uncached_prefix_by_prefix(model):
    rows = [(PROMPTS[0], CONTINUATION), (PROMPTS[1], CONTINUATION[:3]), (PROMPTS[2], [4])]
    for (prompt, continuation), logits in zip(rows, teacher_forced_logits(model, rows), strict=True):
        assert logits.shape[0] == len(continuation)
        for c in range(len(continuation)):
            expected = uncached(model, [*prompt, *continuation[:c]])
            torch.testing.assert_close(logits[c], expected, atol=TOLERANCE, rtol=1e-4)


def test_batches_cover_every_index_once_and_respect_the_budget():
    lengths = [5, 100, 7, 7, 64, 2, 90]
    groups = list(batches(lengths, 128))
    assert sorted(i for g in groups for i in g) == list(range(len(lengths)))
    assert all(len(g) == 1 or len(g) * max(lengths[i] for i in g) <= 128 for g in groups)
