"""Decoding memory on a GPU; skipped where there is none."""

import pytest
import torch

import coft_core as cc
from coft_core.model.attention import Part, forward
from coft_core.model.branches import BranchBatch, joint_logits
from coft_core.model.memory import Sharing
from coft_core.model.memory_fit import fit_of
from coft_core.model.slots import Slots

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

ROWS = [[5, 9, 12, 40, 41, 77, 8], [5, 9, 12, 40, 300, 77, 8]]
UNEVEN = [[5, 9, 12, 40], [7, 8, 9, 10, 11, 12, 13]]
CHAIN = [20, 30, 21]


@pytest.fixture(scope="module")
def model():
    return cc.load_model("demo", device="cuda", dtype="float32")


def uncached(model, rows):
    with torch.inference_mode():
        found = [
            model.module(input_ids=torch.tensor([row], device="cuda"), use_cache=False).logits[0, -1] for row in rows
        ]
    return torch.stack(found)


@pytest.mark.parametrize("sharing", [None, Sharing(1, 1)], ids=["as is", "held once"])
@pytest.mark.parametrize("rows", [ROWS, UNEVEN], ids=["branches", "uneven"])
def test_every_step_equals_uncached_recomputation_without_a_word_from_the_device(model, rows, sharing):
    batch, chain = BranchBatch(model, rows, sharing=sharing), []
    batch.logits()
    for token in CHAIN:
        chain.append(token)
        ids = torch.full((2,), token, device="cuda")
        torch.cuda.set_sync_debug_mode("error")
        try:
            batch.append(ids)
            logits = batch.logits()
        finally:
            torch.cuda.set_sync_debug_mode("default")
        torch.testing.assert_close(logits, uncached(model, [[*row, *chain] for row in rows]), atol=1e-3, rtol=1e-4)


def test_joint_forwards_equal_those_alone(model):
    batches = [BranchBatch(model, rows, sharing=Sharing(1 << 40, None)) for rows in (ROWS, UNEVEN)]
    for batch in batches:
        batch.logits()
        batch.append(torch.full((2,), 20, device="cuda"))
    for logits, rows in zip(joint_logits(batches), (ROWS, UNEVEN), strict=True):
        torch.testing.assert_close(logits, uncached(model, [[*row, 20] for row in rows]), atol=1e-3, rtol=1e-4)


def test_a_step_of_fixed_width_can_be_captured_and_replayed(model):
    fit, slots = fit_of(model), Slots(2, model.context_length, model.device)
    slots.reserve(64)
    forward(
        model.module, [Part(slots, torch.tensor([row[:-1] for row in ROWS], device="cuda"))], fit.layers, fit.accepts
    )
    slots.advance(len(ROWS[0]) - 1)
    ids = torch.tensor([[row[-1]] for row in ROWS], device="cuda")
    part = Part(slots, ids, width=64)
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        forward(model.module, [part], fit.layers, fit.accepts)
    torch.cuda.current_stream().wait_stream(aside)
    graph, chain = torch.cuda.CUDAGraph(), []
    with torch.cuda.graph(graph):
        logits = forward(model.module, [part], fit.layers, fit.accepts)
    for token in CHAIN:
        graph.replay()
        torch.testing.assert_close(logits, uncached(model, [[*row, *chain] for row in ROWS]), atol=1e-3, rtol=1e-4)
        slots.advance(1)
        ids.fill_(token)
        chain.append(token)
