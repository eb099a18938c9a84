"""Preallocated key-value memory against plain, uncached recomputation of every row by itself."""

import functools

import pytest
import torch

from coft_core.errors import InvalidInputError
from coft_core.model.branches import BranchBatch
from coft_core.model.fake import scripted_model, tiny_model
from coft_core.model.memory import GrowingRows, Sharing
from coft_core.model.memory_fit import fit_of
from coft_core.model.slots import RowTokens, capacity_for, token_size
from tests.coft_core.model.architectures import BUILDERS, GROWING, JOINING, SLOTTED, random_model

TOLERANCE = 5e-5
"""Largest difference of two logits in float32, where logits spread over about ten units."""

ALWAYS, READ, NEVER = Sharing(1, 1), Sharing(1, None), Sharing(1 << 40, None)
build = functools.cache(random_model)


def tokens(seed, count):
    return torch.randint(5, 250, (count,), generator=torch.Generator().manual_seed(seed)).tolist()


def branches(prompt=40, differs_at=30, rows=3):
    """Prompts of one length that differ in one token."""
    ids = tokens(3, prompt)
    return [[*ids[:differs_at], 10 + row, *ids[differs_at + 1 :]] for row in range(rows)]


UNEVEN = [tokens(1, 9), tokens(2, 17), tokens(3, 1), tokens(4, 12)]
BEGIN_ALIKE = [tokens(5, 20) + tokens(6 + row, 3 * row + 1) for row in range(3)]
CHAIN = tokens(9, 8)


def crossed(*kinds):
    """Every architecture with the first prompts, and the first architecture with all of them; the others are slow."""
    rows = {"uneven": UNEVEN, "branches": branches(), "begin alike": BEGIN_ALIKE}
    fast = {(name, kinds[0]) for name in BUILDERS} | {(next(iter(BUILDERS)), kind) for kind in kinds}
    return [
        pytest.param(name, rows[kind], id=f"{kind}-{name}", marks=[] if (name, kind) in fast else [pytest.mark.slow])
        for kind in kinds
        for name in BUILDERS
    ]


KNOWN = {}


def uncached(model, ids):
    """Computed once for each model and row; what holds the model keeps its identity from being given again."""
    key = (id(model.module), *ids)
    if key not in KNOWN:
        with torch.inference_mode():
            KNOWN[key] = model, model.module(input_ids=torch.tensor([ids]), use_cache=False).logits[0, -1]
    return KNOWN[key][1]


def assert_rows(model, logits, rows):
    assert logits.shape[0] == len(rows)
    for found, ids in zip(logits, rows, strict=True):
        torch.testing.assert_close(found, uncached(model, ids), atol=TOLERANCE, rtol=1e-5)


def assert_chain(model, batch, prompts, chain=CHAIN):
    """Every step's logits are those of the rows alone, without a cache."""
    rows = [list(prompt) for prompt in prompts]
    for token in chain:
        assert_rows(model, batch.logits(), rows)
        batch.append(torch.full((len(rows),), token))
        rows = [[*row, token] for row in rows]


def moved(batch, chain):
    for token in chain:
        batch.logits()
        batch.append(torch.full((batch.row_count,), token))
    return batch


@pytest.mark.parametrize(("name", "prompts"), crossed("uneven", "branches", "begin alike"))
def test_every_step_equals_uncached_recomputation(name, prompts):
    model = build(name)
    for sharing in (NEVER, READ, ALWAYS):
        assert_chain(model, BranchBatch(model, prompts, sharing=sharing), prompts, CHAIN[:4])


def test_models_that_slots_do_not_fit_say_so_and_only_some_join():
    uses = {name: BranchBatch(build(name), UNEVEN).memory_use for name in BUILDERS}
    assert {name: use.kind for name, use in uses.items()} == {
        **dict.fromkeys(SLOTTED, "slots"),
        **dict.fromkeys(GROWING, "growing"),
    }
    assert uses["llama"].reason == ""
    assert "sliding attention" in uses["mistral sliding"].reason
    scripted = scripted_model({" a": 1.0}, {" b": 1.0}, (" a", " b"))
    assert "not a transformers model" in fit_of(scripted).reason
    assert [name for name in SLOTTED if fit_of(build(name)).joins] == list(JOINING)


def test_a_model_whose_positions_are_not_its_rows_own_is_found_out_by_the_probe(monkeypatch):
    model = tiny_model(seed=5)
    original = model.module.forward

    def blind(position_ids=None, attention_mask=None, past_key_values=None, **arguments):
        shifted = None if position_ids is None else position_ids[:1].expand_as(position_ids)
        return original(
            position_ids=shifted, attention_mask=attention_mask, past_key_values=past_key_values, **arguments
        )

    monkeypatch.setattr(model.module, "forward", blind)
    model.findings.clear()
    fit = fit_of(model)
    assert fit.kind == "growing"
    assert "differ from plain recomputation" in fit.reason


def test_memory_grows_by_doubling_and_stays_where_it_is_in_between():
    model = build("llama")
    prompts = branches(50, 20, 2)
    batch = BranchBatch(model, prompts, sharing=NEVER)
    rows, places, sizes = [list(prompt) for prompt in prompts], set(), []
    for token in tokens(11, 100):
        logits = batch.logits()
        keys = batch._memory._slots.layers[0].keys
        places.add((keys.data_ptr(), keys.shape[2]))
        sizes.append(batch.memory_size)
        if len(rows[0]) in (50, 64, 65, 128, 129, 149):
            assert_rows(model, logits, rows)
        batch.append(torch.full((2,), token))
        rows = [[*row, token] for row in rows]
    assert sorted(capacity for _, capacity in places) == [64, 128, 256]
    assert sorted(set(sizes)) == [2 * capacity * token_size(model) for capacity in (64, 128, 256)]


def test_capacities_double_up_to_the_context_which_is_filled_to_its_last_token():
    assert [capacity_for(n, 300) for n in (1, 64, 65, 129, 257, 300)] == [64, 64, 128, 256, 300, 300]
    model = tiny_model(context_length=70)
    batch = BranchBatch(model, [tokens(1, 66), tokens(2, 60)])
    chain = []
    while batch.room:
        batch.logits()
        chain.append(7)
        batch.append(torch.full((2,), 7))
    assert_rows(model, batch.logits(), [[*tokens(1, 66), *chain], [*tokens(2, 60), *chain]])
    with pytest.raises(InvalidInputError, match="close it"):
        BranchBatch(build("llama"), UNEVEN).keep([])


@pytest.mark.parametrize("sharing", [NEVER, ALWAYS], ids=["apart", "shared"])
@pytest.mark.parametrize("prompts", [branches(), UNEVEN], ids=["branches", "uneven"])
def test_going_back_copies_nothing_and_gives_the_logits_of_a_fresh_computation(prompts, sharing):
    model = build("gpt-neox")
    batch = moved(BranchBatch(model, prompts, sharing=sharing), CHAIN)
    place = batch._memory._slots.layers[1].values.data_ptr()
    for keep in (5, 5, 2, 0):
        batch.crop(keep)
        assert_rows(model, batch.logits(), [[*prompt, *CHAIN[:keep]] for prompt in prompts])
        assert batch._memory._slots.layers[1].values.data_ptr() == place


@pytest.mark.parametrize(("name", "prompts"), crossed("uneven", "begin alike"))
def test_rows_that_are_kept_go_on_as_if_the_others_had_never_been_there(name, prompts):
    model = build(name)
    for sharing in (NEVER, ALWAYS):
        for before in (0, 3):
            batch = moved(BranchBatch(model, prompts, sharing=sharing), CHAIN[:before])
            room = batch.room
            batch.keep([2, 0])
            kept = [[*prompts[2], *CHAIN[:before]], [*prompts[0], *CHAIN[:before]]]
            longest = max(map(len, kept))
            assert batch.room == model.context_length - longest >= room
            assert_chain(model, batch, kept, CHAIN[before : before + 3])
            batch.crop(before)
            assert_rows(model, batch.logits(), kept)


@pytest.mark.parametrize("sharing", [NEVER, ALWAYS], ids=["apart", "shared"])
@pytest.mark.parametrize("prompts", [branches(), UNEVEN], ids=["branches", "uneven"])
def test_parent_and_fork_go_on_as_if_the_other_were_not_there(prompts, sharing):
    model = build("qwen2")
    parent = moved(BranchBatch(model, prompts, sharing=sharing), CHAIN[:5])
    fork = parent.fork(2)
    fork.append(torch.full((len(prompts),), 77))
    parent_rows = [[*prompt, *CHAIN[:5]] for prompt in prompts]
    fork_rows = [[*prompt, *CHAIN[:2], 77] for prompt in prompts]
    assert_chain(model, fork, fork_rows, CHAIN[5:])
    assert_chain(model, parent, parent_rows, CHAIN[5:])


@pytest.mark.parametrize("prompts", [branches(), UNEVEN, BEGIN_ALIKE], ids=["branches", "uneven", "begin alike"])
@pytest.mark.parametrize("sharing", [NEVER, READ, ALWAYS], ids=["apart", "read once", "held once"])
def test_a_chain_that_is_taken_up_again_is_read_with_its_prompt(prompts, sharing):
    model = build("mixtral")
    batch = BranchBatch(model, prompts, sharing=sharing)
    for token in CHAIN:
        batch.append(torch.full((len(prompts),), token))
    assert_chain(model, batch, [[*prompt, *CHAIN] for prompt in prompts], CHAIN[:3])


def test_a_prefix_is_held_once_and_forks_hold_it_with_their_parent():
    for name in JOINING:
        model = build(name)
        batch = moved(BranchBatch(model, branches(200, 180, 4), sharing=ALWAYS), CHAIN[:2])
        assert batch.memory_use.held_once == 180
        assert batch.fork(1)._memory._prefix is batch._memory._prefix
        # 4 rows of 20 prompt tokens and 2 generated ones fit into the first capacity.
        assert batch.memory_size == (180 + 4 * 64) * token_size(model)
        assert moved(BranchBatch(model, branches(200, 180, 4), sharing=READ), CHAIN[:2]).memory_use.held_once == 0


def test_a_common_beginning_is_run_over_once(monkeypatch):
    model = tiny_model(seed=2)
    batch, prompts = BranchBatch(model, branches(60, 50, 3), sharing=READ), branches(60, 50, 3)
    assert fit_of(model).kind == "slots"
    shapes, original = [], model.module.forward

    def spy(**arguments):
        shapes.append(tuple(arguments["input_ids"].shape))
        return original(**arguments)

    monkeypatch.setattr(model.module, "forward", spy)
    logits = batch.logits()
    assert shapes == [(1, 50), (3, 10)]
    assert_rows(model, logits, prompts)


@pytest.mark.parametrize("sharing", [NEVER, ALWAYS], ids=["apart", "shared"])
@pytest.mark.parametrize("name", ["llama", "mistral sliding"])
def test_prompts_are_read_in_pieces_of_what_a_forward_takes(name, sharing, monkeypatch):
    model = build(name)
    widths, original = [], model.module.forward
    fit_of(model)

    def spy(**arguments):
        widths.append(arguments["input_ids"].numel())
        return original(**arguments)

    object.__setattr__(model, "prefill_tokens", 16)
    try:
        with monkeypatch.context() as patch:
            patch.setattr(model.module, "forward", spy)
            logits = [BranchBatch(model, rows, sharing=sharing).logits() for rows in (branches(), UNEVEN)]
    finally:
        object.__setattr__(model, "prefill_tokens", 16_384)
    assert max(widths) <= 16
    for found, rows in zip(logits, (branches(), UNEVEN), strict=True):
        assert_rows(model, found, rows)


def test_a_forward_that_fails_leaves_the_rows_as_they_were(monkeypatch):
    model = build("llama")
    for prompts in (branches(), UNEVEN):
        batch = moved(BranchBatch(model, prompts, sharing=ALWAYS), CHAIN[:3])
        fresh = BranchBatch(model, prompts, sharing=ALWAYS)
        with monkeypatch.context() as patch:
            patch.setattr(model.module.lm_head, "forward", lambda *_: 1 / 0)
            for each in (batch, fresh):
                with pytest.raises(ZeroDivisionError):
                    each.logits()
        assert_rows(model, batch.logits(), [[*prompt, *CHAIN[:3]] for prompt in prompts])
        assert_rows(model, fresh.logits(), prompts)


@pytest.mark.parametrize("share", [True, False])
def test_what_will_be_held_once_is_known_before_the_prompts_are_read(share):
    model = tiny_model()
    rows = [[*range(5, 185), 7, own] for own in (9, 11, 13)]
    batch = BranchBatch(model, rows, share=share, sharing=Sharing(64, 128))
    before = batch.memory_use
    batch.logits()
    assert batch.memory_use == before
    assert before.held_once == (181 if share else 0)
    assert before.joins is share


def test_growing_memory_is_known_before_it_is_held():
    model = tiny_model()
    model.module.set_attn_implementation("eager")
    tokens = RowTokens([[5, 6, 7], [8, 9]], model.context_length, model.device)
    growing = GrowingRows(model, tokens, fit_of(model).accepts)
    expected = [growing.size_after(1)]
    growing.logits()
    assert growing.size == expected[0] > 0
    expected.append(growing.size_after(1))
    tokens.append(torch.tensor([3, 4]))
    growing.logits()
    assert growing.size == expected[1]
