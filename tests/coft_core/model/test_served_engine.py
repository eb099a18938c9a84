"""A model behind a server gives the numbers of the same model here, and says in one sentence when it cannot."""

import math
from itertools import repeat
from threading import Barrier, BrokenBarrierError, Event

import pytest
import torch

import coft_core as cc
from coft_core.errors import EngineError, ModelLoadError
from coft_core.model.branches import BranchBatch
from coft_core.model.forced import teacher_forced_logits
from coft_core.model.served import ServedModel, weights_seen
from coft_core.model.served_engine import load_served
from coft_core.model.server_client import ATTEMPTS, checking
from tests.conftest import the_tiny_model
from tests.serving import KEY, KEY_ENV, LocalServer

TEXT = "He is a nurse"
SPANS = [cc.Span(0, 2, "gender")]
POLICY = cc.CoftPolicy(top_p=1.0)


@pytest.fixture(autouse=True)
def _no_pauses_and_a_key(monkeypatch):
    monkeypatch.setattr("coft_core.model.server_client.PAUSE", 0.0)
    monkeypatch.setenv(KEY_ENV, KEY)


@pytest.fixture
def server():
    with LocalServer(the_tiny_model()).running() as running:
        yield running


def written(model, steps=12, policy=POLICY):
    return cc.generate(model, TEXT, policy, spans=SPANS, max_new_tokens=steps, seed=3).steps


def log_p(logits):
    return torch.log_softmax(logits.float(), -1)


def test_a_chain_through_a_server_has_the_numbers_of_the_model_itself(server, tmp_path):
    served = load_served(server.served(tmp_path))
    assert (served.most_likely, served.vocabulary_size, served.context_length) == (None, 258, 256)
    assert served.end_token_ids == the_tiny_model().end_token_ids
    for ours, theirs in zip(written(the_tiny_model()), written(served), strict=True):
        assert ours.token_id == theirs.token_id
        for name in ("log_p_factual", "log_p_masked", "log_p_fused"):
            assert getattr(theirs, name) == pytest.approx(getattr(ours, name), abs=1e-5)
    # Both branches go in one request.
    assert len(server.requests[-1]["prompt"]) == 2


def test_rows_that_go_back_fork_and_lose_neighbours_equal_a_text_that_is_read_again(server, tmp_path):
    served, local = load_served(server.served(tmp_path)), the_tiny_model()
    rows = local.arbitrary_tokens(3, 9, seed=5).tolist()
    batch = BranchBatch(served, [rows[0], rows[1][:4], rows[2]])
    ids = local.arbitrary_tokens(3, 4, seed=6)  # (3, 4)
    for place in range(4):
        batch.append(ids[:, place])
    batch.crop(2)
    fork = batch.fork(1)
    fork.append(ids[:, 3])
    batch.keep([2, 1])
    expected = [[*rows[2], *ids[2, :2].tolist()], [*rows[1][:4], *ids[1, :2].tolist()]]
    for row, text in zip(batch.logits(), expected, strict=True):
        torch.testing.assert_close(row, log_p(local.plain_logits(torch.tensor([text])))[0, -1], atol=1e-5, rtol=0)
    text = [*rows[0], int(ids[0, 0]), int(ids[0, 3])]
    expected_of_fork = log_p(local.plain_logits(torch.tensor([text])))[0, -1]
    torch.testing.assert_close(fork.logits()[0], expected_of_fork, atol=1e-5, rtol=0)


def test_forced_texts_have_the_numbers_of_the_model_itself(server, tmp_path):
    served = load_served(server.served(tmp_path))
    rows = [([5, 6, 7], [8, 9]), ([5, 1, 7], [8, 9]), ([4], [3, 2, 1])]
    for ours, theirs in zip(
        teacher_forced_logits(the_tiny_model(), rows), teacher_forced_logits(served, rows), strict=True
    ):
        torch.testing.assert_close(theirs, log_p(ours), atol=1e-5, rtol=0)


@pytest.mark.parametrize("names", [True, False])
def test_of_a_server_that_keeps_most_to_itself_the_tokens_that_came_back_for_any_branch_are_known(
    server, tmp_path, names
):
    server.most, server.names = 20, names
    served, local = load_served(server.served(tmp_path)), the_tiny_model()
    assert served.most_likely == 20
    ids = local.arbitrary_tokens(2, 6)
    theirs, ours = served.plain_logits(ids), log_p(local.plain_logits(ids))
    seen = torch.zeros_like(ours, dtype=torch.bool).scatter(-1, ours.topk(20).indices, True)
    # The token that was drawn came back too, and is not one of them.
    assert torch.equal(theirs > -torch.inf, seen.any(0).expand_as(seen) if names else seen)
    known = theirs > -torch.inf
    torch.testing.assert_close(theirs[known], ours[known], atol=1e-5, rtol=0)
    run = cc.generate(served, "She said that", cc.CoftPolicy(), SPANS, max_new_tokens=2)
    assert {step.bounds.seen for step in run.steps} == {20}
    assert load_served(server.served(tmp_path, most_likely=7)).most_likely == 7
    with pytest.raises(ModelLoadError, match="served:lab"):
        load_served(server.served(tmp_path, most_likely=21))


def test_what_passes_is_tried_again(server, tmp_path):
    served = load_served(server.served(tmp_path))
    server.requests.clear()
    server.faults.extend([lambda right: 503, lambda right: 500])
    assert written(served, 1)[0].token_id == written(the_tiny_model(), 1)[0].token_id
    assert len(server.requests) == 3
    server.faults.extend(repeat(lambda right: 500, ATTEMPTS))
    with pytest.raises(EngineError, match="has failed"):
        written(served, 1)


def edited(change):
    """A fault that changes the log-probabilities of the first prompt."""

    def fault(right):
        logprobs = right["choices"][-1]["logprobs"]
        logprobs["top_logprobs"] = [change(logprobs["top_logprobs"][0])]
        return right

    return fault


WRONG = {
    "refused": lambda right: 400,
    "no such address": lambda right: 404,
    "no JSON": lambda right: "<html>",
    "another form": lambda right: {"text": "hello"},
    "a list": lambda right: [1, 2],
    "fewer prompts": lambda right: {"choices": right["choices"][:1]},
    "no log-probabilities": edited(lambda top: None),
    "fewer tokens": edited(lambda top: dict(list(top.items())[:9])),
    "tokens as text": edited(lambda top: {f"t{i}": value for i, value in enumerate(top.values())}),
    "other tokens": edited(lambda top: {f"token_id:{i + 1}": value for i, value in enumerate(top.values())}),
    "null": edited(lambda top: dict.fromkeys(top)),
    "NaN": edited(lambda top: {**top, "token_id:5": math.nan}),
    "nothing likely": edited(lambda top: dict.fromkeys(top, -math.inf)),
    "infinite": edited(lambda top: {**top, "token_id:5": math.inf}),
    "logits": edited(lambda top: {name: value + 9 for name, value in top.items()}),
    "tempered": edited(lambda top: {name: 2 * value for name, value in top.items()}),
}


@pytest.mark.parametrize("fault", WRONG.values(), ids=WRONG)
def test_a_wrong_answer_is_one_sentence_and_the_chain_goes_on_afterwards(server, tmp_path, fault):
    served = load_served(server.served(tmp_path))
    rollout = cc.Rollout(cc.plan(served, TEXT, POLICY, spans=SPANS, seed=3))
    rollout.step()
    server.faults.append(fault)
    with pytest.raises(EngineError) as told:
        rollout.step()
    assert str(told.value).count("served:lab") == 1
    assert KEY not in str(told.value)
    steps = [rollout.step() for _ in range(3)]
    assert [step.token_id for step in steps] == [step.token_id for step in written(the_tiny_model())[1:4]]


def test_what_a_model_rules_out_is_unlikely_and_not_impossible(server, tmp_path):
    served = load_served(server.served(tmp_path))
    server.faults.append(edited(lambda top: {**top, next(iter(top)): -math.inf}))
    assert served.module.next_tokens([[1, 2]]).isfinite().all()


def test_a_server_that_is_away_is_one_sentence_at_load_and_later(server, tmp_path):
    model = server.served(tmp_path)
    elsewhere = model.model_copy(update={"url": f"http://127.0.0.1:{LocalServer(the_tiny_model()).port}"})
    with pytest.raises(ModelLoadError, match="'served:lab' does not answer"):
        load_served(elsewhere)
    away = LocalServer(the_tiny_model())
    with away.running():
        served = load_served(away.served(tmp_path))
        rollout = cc.Rollout(cc.plan(served, TEXT, POLICY, spans=SPANS, seed=3))
        rollout.step()
    with pytest.raises(EngineError, match="does not answer"):
        rollout.step()
    with away.running():
        again = [rollout.step().token_id for _ in range(3)]
    assert again == [step.token_id for step in written(the_tiny_model())[1:4]]


def test_whoever_waits_for_a_server_may_give_up(server, tmp_path):
    served, release = load_served(server.served(tmp_path)), Event()
    server.faults.append(lambda right: release.wait() and right)

    class GivenUpError(Exception):
        pass

    def check():
        raise GivenUpError

    with pytest.raises(GivenUpError), checking(check):
        written(served, 1)
    release.set()
    assert written(served, 1)[0].token_id == written(the_tiny_model(), 1)[0].token_id


def test_a_request_that_is_not_answered_in_time_is_sent_again(server, tmp_path):
    served, release = load_served(server.served(tmp_path, timeout=1.0)), Event()
    server.faults.append(lambda right: release.wait() and right)
    server.requests.clear()
    assert written(served, 1)[0].token_id == written(the_tiny_model(), 1)[0].token_id
    assert len(server.requests) == 2
    release.set()


def test_no_more_requests_are_sent_at_a_time_than_the_setting_says(server, tmp_path):
    served = load_served(server.served(tmp_path, concurrency=2))
    together, at_once = Barrier(3), []

    def fault(right):
        # With a third one the barrier would open.
        try:
            together.wait(0.2)
            at_once.append(3)
        except BrokenBarrierError:
            at_once.append(2)
        return right

    server.faults.extend(repeat(fault, 6))
    served.module.next_tokens([[1, 2]] * 96)
    assert at_once == [2] * 6


def test_a_tokenizer_that_is_not_the_servers_is_refused_with_an_example(server, tmp_path):
    right = server.answer
    server.answer = lambda path, body: {"tokens": [1, 2]} if path == "/tokenize" else right(path, body)
    with pytest.raises(ModelLoadError, match="different tokens of 'The nurse"):
        load_served(server.served(tmp_path))


def test_where_the_server_does_not_say_how_it_makes_tokens_that_is_said(server, tmp_path):
    assert load_served(server.served(tmp_path)).module.checked
    server.tokenizes = False
    unchecked = load_served(server.served(tmp_path)).module
    assert not unchecked.checked
    assert "was not compared" in unchecked.note


def test_the_digest_is_of_what_the_server_says_of_its_model_and_not_of_when_it_was_started(server, tmp_path):
    first = load_served(server.served(tmp_path))
    server.listed["created"] = 17
    assert load_served(server.served(tmp_path)).weights_digest == first.weights_digest
    server.listed["root"] = "/models/other"
    assert load_served(server.served(tmp_path)).weights_digest != first.weights_digest
    assert not weights_seen(first.weights_digest)
    assert weights_seen(the_tiny_model().weights_digest)
    assert first.revision == "vLLM 1.2.3"


def test_a_model_that_the_server_does_not_have_and_a_wrong_or_missing_key_are_refused(server, tmp_path, monkeypatch):
    with pytest.raises(ModelLoadError, match="no model 'other'; it has: lab"):
        load_served(server.served(tmp_path, model="other"))
    monkeypatch.setenv(KEY_ENV, "sk-wrong")
    with pytest.raises(ModelLoadError, match="401") as told:
        load_served(server.served(tmp_path))
    assert "sk-wrong" not in str(told.value), "the server repeats it"
    monkeypatch.delenv(KEY_ENV)
    with pytest.raises(ModelLoadError, match=KEY_ENV):
        load_served(server.served(tmp_path))


def test_a_chain_ends_where_the_context_of_the_server_or_of_the_setting_does(server, tmp_path):
    served = load_served(server.served(tmp_path, context_length=32))
    run = cc.generate(served, TEXT, POLICY, spans=SPANS, max_new_tokens=64, seed=3)
    assert run.finished == "context"
    assert max(len(prompt) for request in server.requests for prompt in request["prompt"]) < 32


@pytest.mark.parametrize(
    "wrong",
    [{"url": "ftp://x"}, {"url": "http://me:key@x"}, {"url": "http://x?key=1"}, {"name": "a b"}, {"kind": "other"}],
)
def test_addresses_with_keys_in_them_and_other_wrong_values_are_refused(wrong):
    right = {"name": "lab", "url": "http://x:1", "kind": "vllm", "tokenizer": "demo"}
    assert ServedModel(**right).title == "served:lab"
    with pytest.raises(ValueError, match=next(iter(wrong))):
        ServedModel(**{**right, **wrong})
