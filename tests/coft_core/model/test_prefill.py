"""Long prompts in pieces, rows in buckets, prefixes once, the head where it is needed: the same logits."""

import dataclasses
import random

import pytest
import torch

from coft_core.errors import InvalidInputError, PromptTooLongError
from coft_core.model.branches import BranchSpec
from coft_core.model.fake import tiny_model
from coft_core.model.forced import ForcedItem, ForcedScorer, Limits, pieces, teacher_forced_logits
from coft_core.model.group import score_branches
from tests.coft_core.model.test_forced import build

TOLERANCE = 2e-5
"""Absolute, in float32: the order of sums differs between shapes, and nothing else."""

EVERY_PREFIX, NO_PREFIX = Limits(logits=1 << 20, shared=1), Limits(logits=1 << 20, shared=1 << 30)


@pytest.fixture(scope="module")
def model():
    return tiny_model()


def limited(model, tokens):
    return dataclasses.replace(model, prefill_tokens=tokens)


def rows_of(count, seed=0):
    """Rows of mixed lengths, some with a continuation and a beginning in common."""
    draw = random.Random(seed)
    rows = []
    for _ in range(count):
        prompt = [draw.randrange(200) for _ in range(draw.randrange(1, 30))]
        continuation = [draw.randrange(200) for _ in range(draw.randrange(1, 6))]
        other = [*prompt[:-1], draw.randrange(200)]
        rows += [(prompt, continuation), (other, continuation)]
    return rows


def plain(model, prompt, continuation):
    """Logits before each token of a continuation by one forward of one row, the head everywhere: ``(C, V)``."""
    with torch.inference_mode():
        logits = model.module(input_ids=torch.tensor([[*prompt, *continuation]]), use_cache=False).logits[0]
    return logits[len(prompt) - 1 : -1]


def item_of(length=40, branches=3, shared=17, continuation=6):
    draw = random.Random(1)
    common = [draw.randrange(200) for _ in range(shared)]
    prompts = [(*common, *(draw.randrange(200) for _ in range(length - shared))) for _ in range(branches)]
    return ForcedItem(tuple(prompts), tuple(draw.randrange(200) for _ in range(continuation)))


def streamed(model, items, limits):
    whole = torch.empty(sum(item.scored for item in items), len(items[0].prompts), model.vocabulary_size)
    for index, logits in ForcedScorer(model, limits).logits(items):
        whole[index] = logits
    return whole


def test_pieces_cover_every_column_and_a_common_prefix_once(model):
    for rows, begin, end, limit in ((1, 0, 10, 3), (4, 3, 20, 8), (5, 0, 7, 2), (2, 5, 5, 4)):
        found = list(pieces(rows, begin, end, limit))
        assert [column for start, stop in found for column in range(start, stop)] == list(range(begin, end))
        assert all(rows * (stop - start) <= max(limit, rows) for start, stop in found)
    item, seen = item_of(length=40, branches=3, shared=17, continuation=6), []
    small = limited(model, 12)
    ForcedScorer(small)  # looks at the model once
    hook = lambda *given: seen.append(given[2]["input_ids"].numel())  # noqa: E731
    with small.module.base_model.register_forward_pre_hook(hook, with_kwargs=True):
        streamed(small, [item], EVERY_PREFIX)
    assert sum(seen) == 17 + 3 * (item.length - 17)


@pytest.mark.parametrize("limits", [EVERY_PREFIX, NO_PREFIX])
def test_a_batch_that_is_read_in_pieces_has_the_logits_of_one_that_is_read_at_once(model, limits):
    items = [item_of(), item_of(length=44, continuation=2)]
    expected = streamed(model, items, limits)
    for tokens in (1, 9, 100):
        torch.testing.assert_close(streamed(limited(model, tokens), items, limits), expected, atol=TOLERANCE, rtol=1e-4)


@pytest.mark.parametrize("limits", [EVERY_PREFIX, NO_PREFIX])
@pytest.mark.parametrize("kind", ["llama", "gemma2"])
def test_no_forward_reads_more_tokens_than_it_may(kind, limits):
    small = limited(tiny_model() if kind == "llama" else build(kind), 24)
    seen = []
    base = small.module.base_model
    with base.register_forward_pre_hook(lambda *given: seen.append(given[2]["input_ids"].numel()), with_kwargs=True):
        streamed(small, [item_of(), item_of()], limits)
    assert max(seen) <= 24
    assert len(seen) > 3


@pytest.mark.parametrize("tokens", [20, 16_384])
def test_rows_in_buckets_have_the_logits_that_each_has_alone(model, tokens):
    rows = rows_of(12)
    found = teacher_forced_logits(limited(model, tokens), rows)
    for (prompt, continuation), logits in zip(rows, found, strict=True):
        torch.testing.assert_close(logits, plain(model, prompt, continuation), atol=TOLERANCE, rtol=1e-4)


def test_a_model_is_taken_apart_once_and_the_head_runs_at_scored_positions_alone(model):
    rows, seen = rows_of(8), []
    with model.module.lm_head.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0][..., 0].numel())):
        ForcedScorer(model)
        looked = sum(seen)
        teacher_forced_logits(model, rows)
    assert sum(seen) - looked == sum(len(continuation) for _, continuation in rows)
    other, seen = tiny_model(), []
    with other.module.base_model.register_forward_pre_hook(lambda *_: seen.append(1)):
        ForcedScorer(other)
        first = len(seen)
        ForcedScorer(other)
    assert first
    assert len(seen) == first


def test_a_hook_on_the_module_itself_is_not_passed_by(model):
    other = tiny_model()
    rows = rows_of(2)
    before = teacher_forced_logits(other, rows)

    def doubled(module, inputs, output):
        output.logits = output.logits * 2
        return output

    with other.module.register_forward_hook(doubled):
        during = teacher_forced_logits(other, rows)
    for one, two, three in zip(before, during, teacher_forced_logits(other, rows), strict=True):
        torch.testing.assert_close(2 * one, two, atol=TOLERANCE, rtol=1e-4)
        assert torch.equal(one, three)


def test_branches_of_unequal_prompts_are_scored_as_each_alone(model):
    prompts = {"factual": (5, 9, 2, 40), "masked": (5, 9, 3, 40), "longer": (1, 2, 3, 4, 5, 6, 7)}
    branches = [BranchSpec(name, prompt) for name, prompt in prompts.items()]
    logits = score_branches({"base": limited(model, 8)}, branches, [4, 8, 15])  # (3, 3, V)
    for place, prompt in enumerate(prompts.values()):
        torch.testing.assert_close(logits[:, place], plain(model, prompt, [4, 8, 15]), atol=TOLERANCE, rtol=1e-4)


def test_what_cannot_be_scored_is_refused_before_anything_runs(model):
    with pytest.raises(InvalidInputError, match="no tokens"):
        teacher_forced_logits(model, [([1, 2], [])])
    fits = [1] * (model.context_length - 3)
    assert teacher_forced_logits(model, [(fits, [2, 3, 4])])[0].shape[0] == 3
    with pytest.raises(PromptTooLongError, match="shorten"):
        teacher_forced_logits(model, [(fits, [2, 3, 4, 5])])
    assert teacher_forced_logits(model, []) == []
