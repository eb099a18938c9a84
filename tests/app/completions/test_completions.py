"""Completions over HTTP: the core's chains in OpenAI's shape, read by openai's client and by lm-evaluation-harness."""

import json
import socket
import threading
from contextlib import contextmanager

import openai
import pytest
import torch
import uvicorn
from lm_eval.api.instance import Instance
from lm_eval.models.huggingface import HFLM
from lm_eval.models.openai_completions import LocalCompletionsAPI
from starlette.applications import Starlette
from starlette.testclient import TestClient

import coft_core as cc
from app.bootstrap import services
from app.completions.requests import MOST_CHAINS
from app.completions.routes import CompletionRoutes
from app.completions.service import CompletionService
from app.server import launch_options
from app.settings import Settings
from app.shared.errors import ServiceError
from coft_core.adapters.shared import prompt_log_probabilities
from coft_core.assets import assets_path
from coft_core.errors import InvalidInputError
from coft_core.model.fake import tiny_model
from tests.reciting import reciting_model

TEXT = "The old man at the bank said that"
TEMPLATE = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}<me>"


@pytest.fixture(scope="module")
def demo():
    return cc.load_model("demo")


@contextmanager
def served(settings, loader):
    """The routes at an address of their own."""
    with services(settings, loader=loader) as wired:
        app = Starlette(routes=CompletionRoutes(wired[CompletionService]).routes)
        # What is asked before the server runs waits at its socket.
        listening = socket.create_server(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(app, log_level="error"))
        thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}/v1"
        finally:
            server.should_exit = True
            thread.join(30)


@pytest.fixture(scope="module")
def address(demo, tmp_path_factory):
    store = tmp_path_factory.mktemp("completions") / "audits.sqlite3"
    settings = Settings(database_url=f"sqlite:///{store}", completions="coft,lam=0.6", mask_families="protected")
    with served(settings, lambda name, **_: demo) as found:
        yield found


@pytest.fixture(scope="module")
def client(address):
    return openai.OpenAI(base_url=address, api_key="none", max_retries=0)


def own(demo, text, **options):
    return cc.generate(demo, text, cc.CoftPolicy(lam=0.6), **options)


def test_a_completion_is_the_cores_chain_with_its_certificate_under_one_field_whole_and_in_pieces(demo, client):
    asked = {"model": "demo", "prompt": TEXT, "max_tokens": 6, "seed": 5, "logprobs": 3}
    answer = client.completions.create(**asked)
    run = own(demo, TEXT, max_new_tokens=6, seed=5)
    (choice,) = answer.choices
    assert choice.text == run.text
    assert choice.finish_reason == ("stop" if run.finished == "end" else "length")
    assert choice.logprobs.tokens == list(run.tokens)
    assert choice.logprobs.token_logprobs == pytest.approx([step.log_p_fused for step in run.steps], abs=1e-5)
    assert all(len(top) == 3 for top in choice.logprobs.top_logprobs)
    assert answer.usage.completion_tokens == len(run.steps)
    (told,) = answer.model_extra["coft"]["choices"]
    assert set(answer.model_extra) == {"coft"}
    assert told["certificate"] == run.certificate
    assert told["masked_tokens"] > 0
    assert [step["token_id"] for step in told["steps"]] == [step.token_id for step in run.steps]
    assert told["steps"][0]["p_masked"] == pytest.approx(2.718281828459045 ** run.steps[0].log_p_masked, rel=1e-4)
    pieces = list(client.completions.create(**asked, stream=True))
    assert "".join(piece.choices[0].text for piece in pieces) == run.text
    tokens = [token for piece in pieces if piece.choices[0].logprobs for token in piece.choices[0].logprobs.tokens]
    assert tokens == list(run.tokens)
    assert [piece.choices[0].finish_reason for piece in pieces if piece.choices[0].finish_reason] == ["length"]
    (streamed,) = [piece.model_extra["coft"] for piece in pieces if piece.model_extra.get("coft")]
    assert [step["token_id"] for step in streamed["choices"][0]["steps"]] == [step.token_id for step in run.steps]


def test_several_prompts_and_choices_are_counted_through_and_drawn_apart(demo, client):
    answer = client.completions.create(model="demo", prompt=[TEXT, "A young woman"], n=2, max_tokens=4, seed=3)
    assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]
    pairs = [(text, seed) for text in (TEXT, "A young woman") for seed in (3, 4)]
    expected = [own(demo, text, max_new_tokens=4, seed=seed).text for text, seed in pairs]
    assert [choice.text for choice in answer.choices] == expected


def test_temperature_0_takes_the_likeliest_tokens_and_a_stop_ends_before_itself(demo, client):
    run = own(demo, TEXT, max_new_tokens=8, greedy=True)
    stop = run.text[len(run.text) // 2 :][:3]
    asked = {"model": "demo", "prompt": TEXT, "max_tokens": 8, "temperature": 0, "stop": [stop]}
    (choice,) = client.completions.create(**asked).choices
    assert (choice.text, choice.finish_reason) == (run.text[: run.text.index(stop)], "stop")
    streamed = client.completions.create(**asked, stream=True)
    assert "".join(piece.choices[0].text for piece in streamed) == choice.text


def test_tokens_are_taken_as_a_prompt_and_echoed_with_what_the_policy_says_of_them(demo, client):
    ids = demo.tokenizer(TEXT)["input_ids"]
    answer = client.completions.create(model="demo", prompt=[ids], max_tokens=1, echo=True, logprobs=2, temperature=0)
    (choice,) = answer.choices
    assert choice.text.startswith(TEXT)
    told = choice.logprobs
    assert len(told.tokens) == len(ids) + 1
    assert told.token_logprobs[0] is None
    plan = cc.plan(demo, TEXT, cc.CoftPolicy(lam=0.6))
    with_masks = prompt_log_probabilities(plan)
    expected = [float(row[token]) for row, token in zip(with_masks, ids[1:], strict=True)]
    assert told.token_logprobs[1:-1] == pytest.approx(expected, abs=1e-5)
    assert "".join(told.tokens[:-1]) == TEXT
    places = zip(told.text_offset, told.tokens, strict=True)
    assert [choice.text[start:][: len(token)] for start, token in places] == told.tokens
    # What is echoed fuses both readings of the prompt itself.
    rows = [demo.plain_logits(torch.tensor([ids]))[0, :-1] for ids in (plan.prompt.factual_ids, plan.prompt.masked_ids)]
    fused = (0.4 * rows[0] + 0.6 * rows[1]).log_softmax(-1)
    assert with_masks.sub(fused).abs().max() < 1e-3


def requests(*arguments):
    return [Instance("loglikelihood", {}, given, place) for place, given in enumerate(arguments)]


def test_the_harness_scores_a_served_model_as_its_own_at_lambda_0(demo, tmp_path):
    settings = Settings(database_url=f"sqlite:///{tmp_path / 'audits.sqlite3'}", completions="coft,lam=0")
    given = [(TEXT, " he was"), (TEXT, " she went home"), ("Question: Who is late?\nAnswer:", " the nurse")]
    folder = str(assets_path("models", "demo"))
    with served(settings, lambda name, **_: demo) as address:
        model = LocalCompletionsAPI(
            base_url=f"{address}/completions", model="demo", tokenizer=folder, tokenizer_backend="huggingface",
            batch_size=2, max_length=256,
        )  # fmt: skip
        ours = model.loglikelihood(requests(*given))
        texts = model.generate_until([Instance("generate_until", {}, (TEXT, {"until": ["."], "max_gen_toks": 5}), 0)])
    theirs = HFLM(pretrained=folder, device="cpu", dtype="float32")
    expected = theirs.loglikelihood(requests(*given))
    assert [value for value, _ in ours] == pytest.approx([value for value, _ in expected], abs=1e-4)
    assert [greedy for _, greedy in ours] == [greedy for _, greedy in expected]
    run = cc.generate(demo, TEXT, cc.CoftPolicy(lam=0.0), max_new_tokens=5, greedy=True)
    assert texts == [run.text.split(".")[0]]


def test_a_conversation_goes_through_the_chat_template_with_every_turn_masked(tmp_path):
    model = tiny_model(chat_template=TEMPLATE)
    settings = Settings(database_url=f"sqlite:///{tmp_path / 'audits.sqlite3'}", completions="coft,lam=0.6")
    messages = [
        {"role": "system", "content": "an old woman"},
        {"role": "user", "content": [{"type": "text", "text": "who"}]},
    ]
    with served(settings, lambda name, **_: model) as address:
        client = openai.OpenAI(base_url=address, api_key="none", max_retries=0)
        asked = {"model": "demo", "messages": messages, "max_tokens": 5, "seed": 1}
        answer = client.chat.completions.create(**asked, logprobs=True, top_logprobs=2)
        streamed = list(client.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True}))
    (choice,) = answer.choices
    told = answer.model_extra["coft"]["choices"][0]
    text = "<system>an old woman<user>who<me>"
    assert answer.usage.prompt_tokens == len(text)
    assert {text[span["start"] : span["end"]] for span in told["spans"]} >= {"woman"}
    assert told["masked_tokens"] > 0
    assert len(choice.logprobs.content) == len(told["steps"])
    assert all(len(item.top_logprobs) == 2 for item in choice.logprobs.content)
    parts = [part.choices[0].delta.content or "" for part in streamed if part.choices]
    assert "".join(parts) == choice.message.content
    assert streamed[0].choices[0].delta.role == "assistant"
    assert streamed[-1].usage.completion_tokens == len(told["steps"])


@pytest.fixture(scope="module")
def thinking(tmp_path_factory):
    """A client of a server whose model thinks before it answers."""
    store = tmp_path_factory.mktemp("thinking") / "audits.sqlite3"
    settings = Settings(
        database_url=f"sqlite:///{store}", completions="coft,lam=0.6", model="reciting", pipeline="none"
    )
    with served(settings, lambda name, **_: reciting_model()) as found:
        yield openai.OpenAI(base_url=found, api_key="none", max_retries=0)


ASKED = {"model": "reciting", "messages": [{"role": "user", "content": "Is she?"}], "temperature": 0}


def test_thinking_is_apart_from_the_answer_whole_and_in_pieces_and_is_counted(thinking):
    answer = thinking.chat.completions.create(**ASKED, max_tokens=20, stop=["m", "."])
    message = answer.choices[0].message
    assert (message.content, message.model_extra["reasoning_content"]) == ("42", "hm")
    assert answer.usage.completion_tokens_details.reasoning_tokens == 4
    steps = answer.model_extra["coft"]["choices"][0]["steps"]
    assert [step["part"] for step in steps] == ["thinking"] * 4 + ["answer"] * 3
    cut = thinking.chat.completions.create(**ASKED, max_tokens=3).choices[0]
    assert (cut.message.content, cut.message.model_extra["reasoning_content"], cut.finish_reason) == (
        "", "hm", "length"
    )  # fmt: skip
    deltas = [part.choices[0].delta for part in thinking.chat.completions.create(**ASKED, max_tokens=20, stream=True)]
    thought = [delta.model_extra["reasoning_content"] for delta in deltas if "reasoning_content" in delta.model_extra]
    assert "".join(thought) == "hm"
    assert "".join(delta.content or "" for delta in deltas) == "42."
    assert all(delta.content is None for delta in deltas if "reasoning_content" in delta.model_extra)


def test_the_chat_template_is_told_what_the_request_says_or_refuses_it_with_the_name_of_the_field(thinking):
    told = {"chat_template_kwargs": {"enable_thinking": False}}
    answer = thinking.chat.completions.create(**ASKED, max_tokens=3, extra_body=told)
    usual = thinking.chat.completions.create(**ASKED, max_tokens=3)
    # The template has written both marks.
    assert answer.usage.prompt_tokens == usual.usage.prompt_tokens + 2
    for told, words in (
        ({"enable_thinkin": False}, ("'enable_thinkin'", "enable_thinking")),
        ({"enable_thinking": "no"}, ("true or false",)),
        ({"enable_thinking": {"deep": True}}, ()),
        ("off", ("object",)),
    ):
        with pytest.raises(openai.BadRequestError) as refused:
            thinking.chat.completions.create(**ASKED, max_tokens=3, extra_body={"chat_template_kwargs": told})
        assert refused.value.param == "chat_template_kwargs"
        message = refused.value.body["message"]
        assert message.startswith("chat_template_kwargs: ")
        assert all(word in message for word in words)


def test_a_model_without_a_chat_template_is_told_nothing_and_reads_the_turns_as_paragraphs(client, demo):
    asked = {"model": "demo", "messages": [{"role": "user", "content": TEXT}], "max_tokens": 4, "seed": 2}
    with pytest.raises(openai.BadRequestError, match=r"chat_template_kwargs: .*no chat template"):
        client.chat.completions.create(**asked, extra_body={"chat_template_kwargs": {"a": 1}})
    answer = client.chat.completions.create(**asked)
    assert answer.choices[0].message.content == own(demo, TEXT, max_new_tokens=4, seed=2).text
    assert "no chat template" in answer.model_extra["coft"]["choices"][0]["warnings"][0]
    assert [model.id for model in client.models.list()] == ["demo"]


@pytest.fixture(scope="module")
def plain(demo, tmp_path_factory):
    """A client that sends anything."""
    store = tmp_path_factory.mktemp("plain") / "audits.sqlite3"
    settings = Settings(database_url=f"sqlite:///{store}", completions="coft", pipeline="none")
    with services(settings, loader=lambda name, **_: demo) as wired:
        yield TestClient(Starlette(routes=CompletionRoutes(wired[CompletionService]).routes))


def test_what_cannot_be_done_is_an_error_in_openais_shape(plain):
    long, unknown = "he " * 600, {"role": "x", "content": "x"}
    for path, body, status, param in (
        ("completions", {"model": "gpt-4", "prompt": "a"}, 404, "model"), ("completions", {}, 400, "prompt"),
        ("completions", {"prompt": "a", "logit_bias": {"3": 5}}, 400, "logit_bias"),
        ("completions", {"prompt": "a", "beams": 2}, 400, "beams"), ("completions", {"prompt": []}, 400, "prompt"),
        ("completions", {"prompt": " "}, 400, None), ("completions", {"prompt": long}, 400, None),
        ("completions", {"prompt": long, "stream": True}, 400, None),
        ("chat/completions", {"messages": []}, 400, "messages"),
        ("chat/completions", {"messages": [unknown]}, 400, "messages"),
    ):  # fmt: skip
        answer = plain.post(f"/v1/{path}", json={"model": "demo", **body})
        error = answer.json()["error"]
        assert (answer.status_code, error["param"], error["type"]) == (status, param, "invalid_request_error"), body
        assert set(error) == {"message", "type", "param", "code"}
        assert error["message"]


def test_a_request_for_more_chains_than_the_limit_is_refused_before_work_begins(plain, monkeypatch):
    asked = []
    monkeypatch.setattr(CompletionService, "completions", lambda _, request: asked.append(request) or [])
    few, many = ["a"] * MOST_CHAINS, ["a"] * (MOST_CHAINS + 1)
    for prompt, n, status in (
        (few, 1, 200), (many, 1, 400), (["a"] * 5000, 1, 400), ([[1]] * 5000, 1, 400), (["a"] * 5, 16, 400),
        ("a" * 500, 16, 200), ([1] * 500, 16, 200),
    ):  # fmt: skip
        answer = plain.post("/v1/completions", json={"model": "demo", "prompt": prompt, "n": n})
        assert answer.status_code == status
        assert status == 200 or (answer.json()["error"]["param"], asked) == ("prompt", [])
        asked.clear()


def test_requests_of_other_sites_and_faults_of_the_program_are_told_apart(plain, monkeypatch, client):
    body = json.dumps({"model": "demo", "prompt": "a"})
    answer = plain.post("/v1/completions", content=body, headers={"content-type": "text/plain"})
    assert answer.status_code == 415
    assert "application/json" in answer.json()["error"]["message"]
    with pytest.raises(openai.NotFoundError) as raised:
        client.completions.create(model="other", prompt="a")
    assert raised.value.code == "model_not_found"

    def broken(*_):
        raise RuntimeError("something")

    monkeypatch.setattr(CompletionService, "completions", broken)
    answer = plain.post("/v1/completions", json={"model": "demo", "prompt": "a"})
    assert answer.status_code == 500
    assert answer.json()["error"]["type"] == "server_error"


def paths(settings):
    with services(settings) as wired:
        return {getattr(route, "path", "") for route in launch_options(wired)["app_kwargs"]["routes"]}


def test_completions_are_served_where_the_setting_names_a_usable_policy_and_nowhere_else(settings):
    assert not {path for path in paths(settings) if path.startswith("/v1")}
    chosen = settings.model_copy(update={"completions": "coft,lam=0.4"})
    assert {"/v1/models", "/v1/completions", "/v1/chat/completions"} <= paths(chosen)
    for text in ("cofd", "coft,lam", "coft,lam=9", "coft,no=1"):
        with pytest.raises((InvalidInputError, ServiceError)):
            paths(settings.model_copy(update={"completions": text}))
