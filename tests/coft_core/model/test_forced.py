"""Streamed teacher forcing, prompts in pieces, rows in buckets: the logits of one plain, uncached forward a row."""

import functools
import random
from dataclasses import replace

import pytest
import torch

from coft_core.errors import InvalidInputError, PromptTooLongError
from coft_core.model import forced
from coft_core.model.branches import BranchSpec
from coft_core.model.fake import byte_tokenizer, scripted_model, tiny_model
from coft_core.model.forced import (
    ForcedItem,
    ForcedScorer,
    Limits,
    forced_batches,
    pieces,
    split_model,
    teacher_forced_logits,
)
from coft_core.model.group import score_branches
from coft_core.model.load import wrap_model
from tests.models.tiny import tiny_module

TOLERANCE = 2e-5
EVERY_PREFIX, NO_PREFIX = Limits(logits=3000, shared=1), Limits(logits=1 << 20, shared=1 << 30)


def item(generator, prompt, continuation, differs_at, branches=2, first=0):
    """Branches that part at ``differs_at``; 3 is the token that stands for the mask."""
    ids = torch.randint(10, 200, (prompt + continuation,), generator=generator).tolist()
    masked = [
        tuple(3 + b if i == differs_at + b else token for i, token in enumerate(ids[:prompt]))
        for b in range(branches - 1)
    ]
    return ForcedItem((tuple(ids[:prompt]), *masked), tuple(ids[prompt:]), first)


def items(branches=2):
    generator = torch.Generator().manual_seed(5)
    shapes = [(12, 5, 9), (9, 1, 4), (15, 8, 10), (5, 12, 2)]
    return [item(generator, p, c, d, branches) for p, c, d in shapes]


def plain(model, given):
    """Every scored position of every item, one uncached forward a branch: (N, B, V)."""
    rows = []
    for each in given:
        branches = []
        for prompt in each.prompts:
            ids = torch.tensor([[*prompt, *each.continuation]])
            with torch.inference_mode():
                logits = model.module(input_ids=ids).logits[0, len(prompt) - 1 : -1]  # (C, V)
            branches.append(logits[each.first :])
        rows.append(torch.stack(branches, dim=1))
    return torch.cat(rows)


def streamed(model, given, limits):
    chunks = list(ForcedScorer(model, limits).logits(given))
    index, logits = (torch.cat(parts) for parts in zip(*chunks, strict=True))
    assert sorted(index.tolist()) == list(range(sum(each.scored for each in given)))
    return logits[index.argsort()]


CHANGED = {
    "gemma2": {"final_logit_softcapping": 2.0},
    "granite": {"logits_scaling": 4.0},
    "cohere": {"logit_scale": 0.25},
}
"""Kinds that change logits after the head, and how."""


@functools.cache
def build(kind):
    return wrap_model(tiny_module(kind, **CHANGED.get(kind, {})), byte_tokenizer(), name=kind)


@pytest.fixture(scope="module")
def model():
    return tiny_model()


def test_stream_equals_plain_forwards_whether_or_not_the_prefix_is_shared(model):
    for branches in (1, 2, 4):
        given = items(branches)
        expected = plain(model, given)
        for limits in (EVERY_PREFIX, NO_PREFIX):
            torch.testing.assert_close(streamed(model, given, limits), expected, atol=TOLERANCE, rtol=1e-4)


def test_architectures_are_taken_apart_but_those_that_change_logits_after_the_head():
    for kind in ("gpt2", "gpt_neox", "mistral", "opt", *CHANGED):
        other = build(kind)
        assert (split_model(other) is None) == (kind in CHANGED)
        expected = plain(other, items())
        for limits in (EVERY_PREFIX, NO_PREFIX):
            torch.testing.assert_close(streamed(other, items(), limits), expected, atol=TOLERANCE, rtol=1e-4)


def test_a_change_after_the_head_that_no_setting_tells_is_found(model):
    class Shifting(type(model.module)):
        def forward(self, *args, **kwargs):
            output = super().forward(*args, **kwargs)
            output.logits = output.logits * 1.001
            return output

    torch.manual_seed(0)
    shifting = Shifting(model.module.config).eval().requires_grad_(False)
    other = wrap_model(shifting, model.tokenizer, name="shifting")
    assert split_model(model) is not None
    assert split_model(other) is None
    torch.testing.assert_close(streamed(other, items(), EVERY_PREFIX), plain(other, items()), atol=1e-5, rtol=1e-4)


def test_a_model_without_logits_to_keep_and_without_parts_is_run_whole():
    scripted = scripted_model({" a": 0.6, " b": 0.4}, {" a": 0.2, " b": 0.8}, (" a", " b"))
    sentinel = int(scripted.tokenizer.mask_token_id)
    given = [ForcedItem(((1, 2, 3), (1, sentinel, 3)), (4, 5)), ForcedItem(((1, 2), (sentinel, 2)), (4,))]
    logits = streamed(scripted, given, EVERY_PREFIX)
    assert logits.shape[:2] == (3, 2)
    for branch in range(2):
        assert torch.equal(logits[:, branch], scripted.module.tables[branch].expand(3, -1))


def test_only_positions_from_the_first_scored_one_are_streamed(model):
    generator = torch.Generator().manual_seed(2)
    given = [item(generator, 9, 6, 4, first=4), item(generator, 7, 5, 3, first=0)]
    torch.testing.assert_close(streamed(model, given, EVERY_PREFIX), plain(model, given), atol=TOLERANCE, rtol=1e-4)


def test_no_piece_of_logits_exceeds_the_limit_which_grows_on_an_accelerator(model):
    size = model.vocabulary_size
    limits = Limits(logits=5 * 2 * size, shared=1)
    assert {len(index) <= 5 for index, _ in ForcedScorer(model, limits).logits(items())} == {True}
    assert forced.Limits.of(torch.device("cuda")).logits > forced.Limits.of(torch.device("cpu")).logits


def test_a_shared_prefix_is_computed_for_one_row_an_item_and_ends_before_the_first_scored_position(model, monkeypatch):
    shapes = []
    base = model.module.model
    inner = base.forward
    monkeypatch.setattr(base, "forward", lambda **a: shapes.append(tuple(a["input_ids"].shape)) or inner(**a))
    scorer = ForcedScorer(model, EVERY_PREFIX)
    shapes.clear()
    list(scorer.logits(items(4)))
    assert shapes == [(4, 2), (16, 20)]
    same = ForcedItem(((1, 2, 3), (1, 2, 3)), (4, 5))
    assert same.shared == 2
    assert ForcedItem(((1, 2, 3), (9, 2, 3)), (4,)).shared == 0


def test_bad_items_are_refused(model):
    scorer = ForcedScorer(model)
    good = ForcedItem(((1, 2), (1, 3)), (4,))
    for bad in (ForcedItem(((1, 2), (1,)), (4,)), ForcedItem(((), ()), (4,)), ForcedItem(((1,), (2,)), ())):
        with pytest.raises(InvalidInputError, match="one length"):
            list(scorer.logits([bad]))
    for batch in ([], [good, ForcedItem(((1, 2),), (4,))]):
        with pytest.raises(InvalidInputError, match="number of branches"):
            list(scorer.logits(batch))
    with pytest.raises(PromptTooLongError, match=r"257.*256"):
        list(scorer.logits([ForcedItem(((1,) * 256,), (4,))]))


def test_batches_hold_every_item_once_within_budget_waste_and_what_fits():
    given = [*items(2), *items(3), *items(2)]
    groups = list(forced_batches(given, 70, most=3))
    assert sorted(i for group in groups for i in group) == list(range(len(given)))
    for group in groups:
        chosen = [given[i] for i in group]
        assert len({len(each.prompts) for each in chosen}) == 1
        assert len(group) <= 3
        rows = len(group) * len(chosen[0].prompts)
        assert len(group) == 1 or rows * max(each.length for each in chosen) <= 70
    generator = torch.Generator().manual_seed(3)
    given = [item(generator, 10 + 3 * n, 5, 4 + 2 * n) for n in range(9)]
    tight = list(forced_batches(given, 10**6, waste=1.05))
    assert sorted(i for group in tight for i in group) == list(range(9))
    for group in tight:
        chosen = [given[i] for i in group]
        shared, longest = min(each.shared for each in chosen), max(each.length for each in chosen)
        alone = sum(2 * each.length - each.shared for each in chosen)
        assert len(chosen) * (2 * longest - shared) <= 1.05 * alone
    assert len(list(forced_batches(given, 10**6, waste=9.0))) == 1 < len(tight)
    given = items()
    found = list(forced_batches(given, 1 << 20, fitting=lambda batch: sum(each.length for each in batch) <= 30))
    assert sorted(place for batch in found for place in batch) == list(range(len(given)))
    assert all(len(batch) == 1 or sum(given[place].length for place in batch) <= 30 for batch in found)
    assert list(forced_batches(given, 1 << 20, fitting=lambda batch: False)) == [
        [place] for batch in found for place in batch
    ]


@pytest.mark.parametrize(
    ("limits", "prefill"),
    [(EVERY_PREFIX, 1 << 14), (NO_PREFIX, 1 << 14), (NO_PREFIX, 32)],
    ids=["prefix", "whole", "pieces"],
)
def test_a_batch_holds_the_keys_and_values_that_it_says_beforehand(limits, prefill, monkeypatch):
    """What the caches of the batch hold at its end, counted in their tensors."""
    made = []

    class Counted(forced.DynamicCache):
        def __init__(self, *arguments, **named):
            super().__init__(*arguments, **named)
            made.append(self)

    monkeypatch.setattr(forced, "DynamicCache", Counted)
    scorer = ForcedScorer(replace(tiny_model(), prefill_tokens=prefill), limits)
    made.clear()
    list(scorer.logits(items()))
    held = sum(keys.nbytes + values.nbytes for cache in made for keys, values, *_ in cache)
    assert scorer.memory_size(items()) == held
    assert (held > 0) == (limits is EVERY_PREFIX or prefill == 32)
    fits = scorer.fitting(held)
    assert fits(items())
    assert scorer.fitting(None) is None
    assert held == 0 or not scorer.fitting(held - 1)(items())


def limited(model, tokens):
    return replace(model, prefill_tokens=tokens)


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


def alone(model, prompt, continuation):
    """Logits before each token of a continuation by one forward of one row: ``(C, V)``."""
    return plain(model, [ForcedItem((tuple(prompt),), tuple(continuation))])[:, 0]


def item_of(length=40, branches=3, shared=17, continuation=6):
    draw = random.Random(1)
    common = [draw.randrange(200) for _ in range(shared)]
    prompts = [(*common, *(draw.randrange(200) for _ in range(length - shared))) for _ in range(branches)]
    return ForcedItem(tuple(prompts), tuple(draw.randrange(200) for _ in range(continuation)))


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
        torch.testing.assert_close(logits, alone(model, prompt, continuation), atol=TOLERANCE, rtol=1e-4)


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
        torch.testing.assert_close(logits[:, place], alone(model, prompt, [4, 8, 15]), atol=TOLERANCE, rtol=1e-4)


def test_rows_that_cannot_be_scored_are_refused_before_anything_runs(model):
    with pytest.raises(InvalidInputError, match="no tokens"):
        teacher_forced_logits(model, [([1, 2], [])])
    fits = [1] * (model.context_length - 3)
    assert teacher_forced_logits(model, [(fits, [2, 3, 4])])[0].shape[0] == 3
    with pytest.raises(PromptTooLongError, match="shorten"):
        teacher_forced_logits(model, [(fits, [2, 3, 4, 5])])
    assert teacher_forced_logits(model, []) == []
