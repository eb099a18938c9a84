"""Streamed teacher forcing against one plain, uncached forward a row."""

import functools
from dataclasses import replace

import pytest
import torch
from transformers import (
    CohereConfig,
    CohereForCausalLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    GraniteConfig,
    GraniteForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    OPTConfig,
    OPTForCausalLM,
)

from coft_core.errors import InvalidInputError, PromptTooLongError
from coft_core.model import forced
from coft_core.model.fake import byte_tokenizer, scripted_model, tiny_model
from coft_core.model.forced import ForcedItem, ForcedScorer, Limits, forced_batches, split_model
from coft_core.model.load import wrap_model

TOLERANCE = 2e-5
EVERY_PREFIX, NO_PREFIX = Limits(logits=3000, shared=1), Limits(logits=1 << 20, shared=1 << 30)
SIZE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
GROUPED = {**SIZE, "num_key_value_heads": 2, "max_position_embeddings": 128}

OPT = {**SIZE, "ffn_dim": 64, "word_embed_proj_dim": 16, "max_position_embeddings": 128}


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


@functools.cache
def build(kind):
    tokenizer = byte_tokenizer()
    common = {"vocab_size": len(tokenizer), "bos_token_id": None, "eos_token_id": 0, "pad_token_id": 0}
    torch.manual_seed(1)
    module = {
        "gpt2": lambda: GPT2LMHeadModel(GPT2Config(n_embd=32, n_layer=2, n_head=4, n_positions=128, **common)),
        "neox": lambda: GPTNeoXForCausalLM(GPTNeoXConfig(**SIZE, max_position_embeddings=128, **common)),
        "mistral": lambda: MistralForCausalLM(MistralConfig(**GROUPED, sliding_window=6, **common)),
        "opt": lambda: OPTForCausalLM(OPTConfig(**OPT, **common)),
        "gemma2": lambda: Gemma2ForCausalLM(
            Gemma2Config(**GROUPED, head_dim=8, sliding_window=6, final_logit_softcapping=2.0, **common)
        ),
        "granite": lambda: GraniteForCausalLM(GraniteConfig(**GROUPED, logits_scaling=4.0, **common)),
        "cohere": lambda: CohereForCausalLM(CohereConfig(**GROUPED, logit_scale=0.25, **common)),
    }[kind]()
    return wrap_model(module.eval().requires_grad_(False), tokenizer, name=kind)


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
    for kind in ("gpt2", "neox", "mistral", "opt", "gemma2", "granite", "cohere"):
        other = build(kind)
        assert (split_model(other) is None) == (kind in ("gemma2", "granite", "cohere"))
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
