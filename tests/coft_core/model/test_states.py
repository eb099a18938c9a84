"""Models whose layers keep states: copies of them are taken up again, and what was let go is read anew."""

from dataclasses import replace
from itertools import pairwise

import pytest
import torch

from coft_core.model.branches import BranchBatch
from coft_core.model.memory_fit import fit_of
from coft_core.model.states import StateRows
from tests.models.matrix import FACTUAL, MASKED, configurations, loaded

NAMES = ("qwen3_next", "mamba", "rwkv", "bamba")
"""A hybrid, a recurrence alone, one that mixes its rows, and one that must be told positions."""


@pytest.fixture(scope="module")
def models():
    return {name: loaded(configurations()[name]) for name in NAMES}


def forwards(model, monkeypatch):
    """How many tokens of a row each forward of a model reads."""
    read = []
    plain = model.module.forward

    def forward(input_ids, **others):
        read.append(input_ids.shape[1])
        return plain(input_ids=input_ids, **others)

    monkeypatch.setattr(model.module, "forward", forward)
    return read


def stepped(model, tokens):
    batch = BranchBatch(model, [FACTUAL, MASKED])
    batch.logits()
    for token in tokens:
        batch.append(torch.full((2,), token))
        batch.logits()
    return batch


def anew(model, tokens):
    return torch.stack([model.plain_logits(torch.tensor([[*prompt, *tokens]]))[0, -1] for prompt in (FACTUAL, MASKED)])


TOKENS = (60, 14, 140, 33, 71, 9, 200, 18, 44, 90, 12, 7)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("copies", [0, 3, pytest.param(100, marks=pytest.mark.slow)])
def test_going_back_to_any_step_gives_the_logits_of_reading_anew_whatever_was_let_go(models, name, copies):
    one = stepped(models[name], ()).opened()._groups[0]._snapshots[-1].size
    groups = 2 if fit_of(models[name]).alone else 1
    model = replace(models[name], snapshot_bytes=copies * one * groups)
    batch = stepped(model, TOKENS)
    for step in (11, 4, 0):
        fork = batch.fork(step)
        batch.crop(step)
        expected = [anew(model, [*TOKENS[:step], *more]) for more in ((), (5,))]
        for each in (batch, fork):
            torch.testing.assert_close(each.logits(), expected[0], atol=2e-4, rtol=1e-3)
            each.append(torch.full((2,), 5))
            torch.testing.assert_close(each.logits(), expected[1], atol=2e-4, rtol=1e-3)


def test_copies_stay_within_their_memory_and_thin_out_towards_the_beginning(models):
    one = stepped(models["mamba"], ()).opened()._groups[0]._snapshots[-1].size
    model = replace(models["mamba"], snapshot_bytes=5 * one)
    kept = stepped(model, TOKENS * 3).opened()._groups[0]._snapshots
    places = list(kept)
    assert sum(snapshot.size for snapshot in kept.values()) <= 5 * one
    assert (places[0], places[-1]) == (-1, 35)
    gaps = [after - before for before, after in pairwise(places)]
    assert gaps == sorted(gaps, reverse=True)


def test_with_copies_going_back_reads_one_token_and_without_from_the_nearest(models, monkeypatch):
    batch = stepped(models["mamba"], TOKENS)
    read = forwards(batch.model, monkeypatch)
    batch.crop(4)
    batch.logits()
    assert read == [1]
    few = stepped(replace(models["mamba"], snapshot_bytes=0), TOKENS)
    del read[:]
    few.crop(4)
    few.logits()
    # From the first copy, which has all of the prompt but its last token, to the token that was written fourth.
    assert sum(read) == 5


def test_keys_are_held_once_rows_that_mix_run_alone_and_dropped_ones_leave_the_others(models):
    memory = stepped(models["qwen3_next"], TOKENS).opened()
    sizes = [snapshot.size for snapshot in memory._groups[0]._snapshots.values()]
    assert len(set(sizes)) == 1
    assert memory._groups[0]._tape
    assert fit_of(models["rwkv"]).alone
    assert not fit_of(models["mamba"]).alone
    rows = stepped(models["rwkv"], ()).opened()
    assert isinstance(rows, StateRows)
    assert len(rows._groups) == 2
    batch = stepped(models["qwen3_next"], TOKENS[:3])
    batch.keep([1])
    batch.append(torch.tensor([5]))
    torch.testing.assert_close(batch.logits(), anew(models["qwen3_next"], [*TOKENS[:3], 5])[1:], atol=2e-4, rtol=1e-3)
