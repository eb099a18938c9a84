"""Real servers of the embedded model give its numbers."""

from contextlib import contextmanager

import pytest
import torch

import coft_core as cc
from coft_core.assets import assets_path
from coft_core.errors import EngineError
from coft_core.model.load import load_model
from tests.serving import llama_server, vllm

TEXT = "The nurse finished rounds and then he prepared the reports"
SPANS = [cc.Span(35, 37, "gender")]
POLICY = cc.CoftPolicy(sentinel=" person")


@contextmanager
def llama(folder, *more):
    gguf = pytest.importorskip("gguf", reason="gguf is not installed (requirements-llama.txt)")
    assert gguf
    from tests.gguf_of_demo import write_gguf

    with llama_server(write_gguf(folder / "demo.gguf"), *more) as served:
        yield served


@contextmanager
def of_vllm(folder, *more):
    with vllm(assets_path("models", "demo"), *more) as served:
        yield served


SERVERS = [pytest.param(llama, id="llama-server"), pytest.param(of_vllm, id="vllm", marks=pytest.mark.slow)]


@pytest.fixture(scope="module")
def local():
    return load_model("demo", device="cpu", dtype="float32")


@pytest.mark.timeout(600)
@pytest.mark.parametrize("running", SERVERS)
def test_a_real_server_gives_the_numbers_of_the_model_and_the_most_likely_ones_of_them(running, local, tmp_path):
    with running(tmp_path) as listed:
        served = cc.load_served(listed)
        assert (served.most_likely, served.vocabulary_size) == (None, local.vocabulary_size)
        assert (served.context_length, served.end_token_ids) == (local.context_length, local.end_token_ids)
        assert served.module.checked
        ours, theirs = (
            cc.generate(model, TEXT, POLICY, spans=SPANS, max_new_tokens=12, seed=1).steps for model in (local, served)
        )
        assert [step.token_id for step in theirs] == [step.token_id for step in ours]
        for one, other in zip(ours, theirs, strict=True):
            for name in ("log_p_factual", "log_p_masked", "log_p_fused"):
                assert getattr(other, name) == pytest.approx(getattr(one, name), abs=1e-4)
        # A text whose next token is most likely its end has numbers too.
        ids = local.tokenizer.encode(TEXT) + sorted(local.end_token_ids)
        expected = torch.log_softmax(local.plain_logits(torch.tensor([ids]))[0].float(), -1)  # (L, V)
        likely = expected > -14
        assert (served.plain_logits(torch.tensor([ids]))[0] - expected)[likely].abs().max() < 1e-4
        few = cc.load_served(listed.model_copy(update={"most_likely": 20}))
        row, whole = few.module.next_tokens([ids[:5]])[0], expected[4]
        assert set((row > -torch.inf).nonzero().flatten().tolist()) == set(whole.topk(20).indices.tolist())
        long = cc.load_served(listed.model_copy(update={"context_length": None}))
        full = local.arbitrary_tokens(1, local.context_length - 1).tolist()
        assert long.module.next_tokens(full).shape == (1, local.vocabulary_size)
        with pytest.raises(EngineError, match="400"):
            long.module.next_tokens([full[0] * 2])


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_of_a_server_that_allows_twenty_log_probabilities_twenty_are_taken(tmp_path):
    with of_vllm(tmp_path, "--max-logprobs", "20") as listed:
        assert cc.load_served(listed).most_likely == 20
