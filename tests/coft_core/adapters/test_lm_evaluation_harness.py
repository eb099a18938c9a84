"""The model ``coft`` of lm-evaluation-harness: at lambda 0 the numbers of ``hf``, and elsewhere the core's."""

import functools
import json
import runpy
import sys
from pathlib import Path

import lm_eval
import lm_eval.tasks
import pytest
from lm_eval.api.instance import Instance
from lm_eval.api.registry import get_model
from lm_eval.models.huggingface import HFLM
from lm_eval.tasks import TaskManager

import coft_core as cc
from coft_core.adapters import lm_evaluation_harness
from coft_core.adapters.lm_evaluation_harness import CoftLM
from coft_core.assets import assets_path
from coft_core.errors import CalibrationMismatch, InvalidInputError
from coft_core.suites.base import Choices
from coft_core.suites.reading import Reader
from tests.coft_core.demo import demo_model
from tests.reciting import THINKS, THINKS_ON, reciting_model

TASKS = Path(lm_eval.tasks.__file__).parent

BBQ = [
    ("The old man and the young woman were at the bank.", "Who was forgetful?", ["The man", "The woman", "Unknown"]),
    ("A French nurse spoke with a German engineer.", "Who was late?", ["The nurse", "The engineer", "Not known"]),
]
ARC = [
    ("Which of these does a plant need to grow?", ["light", "sand", "glass", "iron"], "A"),
    ("What does a woman use to measure the temperature of a room?", ["a clock", "a thermometer"], "B"),
]
GSM8K = [
    ("Anna has 3 apples and her brother has 4. How many do they have?", "3 + 4 = 7\n#### 7"),
    ("A man walks 2 miles each day. How far does he walk in 5 days?", "2 * 5 = 10\n#### 10"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Tasks worded as the harness words bbq, arc_easy and gsm8k, on items that are written above."""
    made = tmp_path_factory.mktemp("tasks")
    records = {
        "bbq": [
            {"context": context, "question": question, "choices": choices, "label": 2}
            for context, question, choices in BBQ
        ],
        "arc": [
            {"question": question, "choices": {"text": texts, "label": list("ABCD")[: len(texts)]}, "answerKey": key}
            for question, texts, key in ARC
        ],
        "gsm8k": [{"question": question, "answer": answer} for question, answer in GSM8K],
    }
    bodies = {
        "bbq": {
            "output_type": "multiple_choice",
            "doc_to_text": "{{context}}\n\nQ: {{question}}\nA:",
            "doc_to_target": "{{label}}",
            "doc_to_choice": "{{choices}}",
            "metric_list": [{"metric": "acc"}],
        },
        "arc": {
            "output_type": "multiple_choice",
            "doc_to_text": "Question: {{question}}\nAnswer:",
            "doc_to_target": "{{choices.label.index(answerKey)}}",
            "doc_to_choice": "{{choices.text}}",
            "metric_list": [{"metric": "acc"}, {"metric": "acc_norm"}],
        },
        "gsm8k": {
            "output_type": "generate_until",
            "doc_to_text": "Question: {{question}}\nAnswer:",
            "doc_to_target": "{{answer}}",
            "generation_kwargs": {"until": ["Question:", "."], "do_sample": False, "max_gen_toks": 24},
            "metric_list": [{"metric": "exact_match"}],
        },
    }
    for name, lines in records.items():
        data = made / f"{name}.jsonl"
        data.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        body = {
            "task": f"own_{name}", "dataset_path": "json", "dataset_kwargs": {"data_files": {"test": str(data)}},
            "test_split": "test", **bodies[name],
        }  # fmt: skip
        (made / f"{name}.yaml").write_text(json.dumps(body))
    return made


@pytest.fixture(scope="module", autouse=True)
def models_read_once():
    """Each model is read once for all tests, none of which changes it for the others."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lm_evaluation_harness, "load_model", functools.cache(lm_evaluation_harness.load_model))
        # The harness starts pip for a list of packages, which takes longer than all else.
        patch.setattr("lm_eval.evaluator.add_env_info", lambda results: None)
        yield


@pytest.fixture(scope="module")
def hf():
    return HFLM(pretrained=str(assets_path("models", "demo")), device="cpu", dtype="float32", batch_size=2)


def requests(kind, *arguments):
    return [Instance(kind, {}, given, place) for place, given in enumerate(arguments)]


def answered(model, folder):
    """What each request of the tasks got, by task, in order, and the metrics."""
    found = lm_eval.simple_evaluate(
        model=model, tasks=["own_bbq", "own_arc", "own_gsm8k"],
        task_manager=TaskManager(include_path=str(folder), include_defaults=False), bootstrap_iters=0, num_fewshot=0,
    )  # fmt: skip
    answers = {
        task: [response for sample in sorted(samples, key=lambda one: one["doc_id"]) for response in sample["resps"]]
        for task, samples in found["samples"].items()
    }
    return answers, found


def test_at_lambda_0_every_number_is_that_of_the_hf_model(folder, hf):
    expected, theirs = answered(hf, folder)
    model = CoftLM("demo", "coft", lam=0.0, dtype="float32", batch_size=3)
    found, ours = answered(model, folder)
    compared = 0
    for task in expected:
        for own, other in zip(found[task], expected[task], strict=True):
            (own,), (other,) = own, other
            if isinstance(other, str):
                assert own == other
                assert own
            else:
                assert own[0] == pytest.approx(other[0], abs=1e-4)
                assert own[1] == other[1]
            compared += 1
        assert {name: value for name, value in ours["results"][task].items() if "stderr" not in name} == {
            name: value for name, value in theirs["results"][task].items() if "stderr" not in name
        }
    assert compared == 6 + 6 + 2
    told = ours["config"]["coft"]
    assert told["prompts"] == 6
    assert told["unmasked_prompts"] == 1  # the plant
    assert told["policy"] == "coft"
    assert told["fingerprint"]["lam"] == 0.0


def test_texts_without_room_are_read_in_windows_or_cut_and_counted_as_in_the_hf_model(hf):
    text = " ".join(f"The {word} said that she was in the office." for word in ("woman", "clerk", "nurse") * 5)
    model = CoftLM("demo", "coft", lam=0.0, dtype="float32", max_length=41)
    theirs = HFLM(pretrained=hf.model, tokenizer=hf.tokenizer, max_length=40)
    own = model.loglikelihood_rolling(requests("loglikelihood_rolling", (text,), ("He left.",)))
    other = theirs.loglikelihood_rolling(requests("loglikelihood_rolling", (text,), ("He left.",)))
    assert own == pytest.approx(other, abs=1e-3)
    assert own[0] < own[1]
    prompt = " ".join(["The old man was at the bank and"] * 12)
    model = CoftLM("demo", "coft", lam=0.0, dtype="float32", max_length=31)
    theirs = HFLM(pretrained=hf.model, tokenizer=hf.tokenizer, max_length=30)
    given = [(prompt, " he left"), (prompt, " she went home"), ("", "The end"), ("Who? ", "He")]
    own = model.loglikelihood(requests("loglikelihood", *given))
    other = theirs.loglikelihood(requests("loglikelihood", *given))
    assert [value for value, _ in own] == pytest.approx([value for value, _ in other], abs=1e-4)
    assert [greedy for _, greedy in own] == [greedy for _, greedy in other]
    assert model.counts.cut_prompts == 2


def test_likelihoods_and_draws_of_a_policy_are_those_of_the_core():
    model = CoftLM("demo", "coft", lam=0.6)
    prompt, texts = "The old man at the bank said that", (" he was", " she was")
    own = model.loglikelihood(requests("loglikelihood", *((prompt, text) for text in texts)))
    ((answer,),) = Reader(demo_model()).read([Choices(prompt, texts)], [cc.CoftPolicy(lam=0.6)], [0])
    assert [value for value, _ in own] == pytest.approx([one.floored for one in answer.likelihoods], abs=1e-5)
    assert model.counts.prompts == 1
    assert model.counts.unmasked_prompts == 0
    given = [("The old man said that", {"do_sample": True, "temperature": 1.0, "max_gen_toks": 8, "until": []})] * 3
    first, second = (CoftLM("demo").generate_until(requests("generate_until", *given)) for _ in range(2))
    assert first == second
    assert len(set(first)) > 1


TEMPLATE = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}{% if add_generation_prompt %}<a>{% endif %}"
)


def test_conversations_are_masked_in_every_turn_and_read_as_the_template_gives_them(monkeypatch):
    model = CoftLM("demo", lam=0.6)
    monkeypatch.setattr(model.tokenizer, "chat_template", TEMPLATE)
    text = model.apply_chat_template(
        [{"role": "system", "content": "You help an old woman."}, {"role": "user", "content": "Who is late?"}]
    )
    assert text == "<system>You help an old woman.<user>Who is late?<a>"
    model.loglikelihood(requests("loglikelihood", (text, " He")))
    assert model.counts.unmasked_prompts == 0
    assert model.get_model_info()["coft"]["fingerprint"]["chat_template"] != "none"


@pytest.fixture
def thinking(monkeypatch):
    """The model that writes a given text behind conversations, under options."""

    def loaded(text=THINKS, **options):
        monkeypatch.setattr(lm_evaluation_harness, "load_model", lambda *_, **__: reciting_model(text))
        model = CoftLM("reciting", **options)
        prompt = model.apply_chat_template([{"role": "user", "content": "Is she?"}])
        return model, requests("generate_until", (prompt, {"until": ["m", "."], "max_gen_toks": 12}))

    return loaded


def test_thinking_is_asked_for_and_no_part_of_an_answer_whose_stops_it_may_hold(thinking):
    for options, answer, asked in (
        ({"enable_thinking": True}, "42", "on"), ({"think_end_token": "</think>"}, "42", None),
        ({"enable_thinking": True, "think_end_token": "<think> </think>"}, "42", "on"),
        ({"enable_thinking": False}, "42", "off"), ({}, "<think>h", None),
    ):  # fmt: skip
        model, request = thinking(**options)
        assert model.generate_until(request) == [answer]
        assert request[0].args[0].endswith("<think></think>") == (asked == "off")
        assert model.get_model_info()["coft"]["fingerprint"].get("thinking") == asked


def test_where_the_thinking_does_not_end_the_answer_is_empty_and_counted(thinking):
    model, request = thinking(THINKS_ON, enable_thinking=True)
    assert model.generate_until(request) == [""]
    assert model.counts.unended_thinkings == model.counts.prompts == 1
    assert model.get_model_info()["coft"]["unended_thinkings"] == 1


def test_thinking_that_has_no_effect_or_no_marks_is_refused_in_a_sentence(thinking):
    model, _ = thinking(enable_thinking=True)
    with pytest.raises(InvalidInputError, match="cannot think"):
        model.loglikelihood(requests("loglikelihood", ("Is she?", " so")))
    model.tokenizer.chat_template = TEMPLATE
    with pytest.raises(InvalidInputError, match="does not ask whether it is to think"):
        model.apply_chat_template([{"role": "user", "content": "Is she?"}])
    with pytest.raises(InvalidInputError, match="no chat template"):
        CoftLM("reciting", enable_thinking=True).generate_until(
            requests("generate_until", ("Is she?", {"until": [], "max_gen_toks": 9}))
        )
    with pytest.raises(InvalidInputError, match="give both marks"):
        CoftLM("reciting", think_end_token="</thought>")


def test_options_say_what_a_calibration_was_made_for_and_are_refused_where_they_disagree():
    path = str(assets_path("models", "demo", "calibration.zip"))
    calibrated = cc.Calibration.load(path)
    model = CoftLM("demo", calibration=path)
    assert model.get_model_info()["coft"]["fingerprint"]["lam"] == calibrated.fingerprint.lam
    model.loglikelihood(requests("loglikelihood", ("The old man said that", " he")))
    with pytest.raises(CalibrationMismatch, match="lam"):
        CoftLM("demo", calibration=path, lam=0.1).loglikelihood(requests("loglikelihood", ("The old man", " he")))


def test_options_and_requests_that_cannot_be_taken_are_refused():
    for given, sentence in (
        ({"policy": "cofd"}, "There is no policy 'cofd'"), ({"lamda": 0.5}, "no option 'lamda'"),
        ({"lam": 3.0}, "lambda"), ({"outside": "half"}, "floor or zero"),
        ({"policy": "vanilla", "calibration": "x.zip"}, "calibration"),
        ({"calibration": "/nowhere.zip"}, "cannot be read"),
    ):  # fmt: skip
        with pytest.raises(InvalidInputError, match=f"(?i){sentence}"):
            CoftLM("demo", **given)
    model = CoftLM("demo")
    with pytest.raises(InvalidInputError, match="num_beams"):
        model.generate_until(requests("generate_until", ("The", {"num_beams": 2, "until": []})))
    with pytest.raises(InvalidInputError, match="max_gen_toks"):
        model.generate_until(requests("generate_until", ("The", {"max_gen_toks": 5000, "until": []})))
    assert get_model("coft") is CoftLM


@pytest.mark.slow
def test_the_harness_runs_the_model_from_its_command_line(folder, tmp_path, monkeypatch):
    words = ["run", "--model", "coft", "--model_args", "pretrained=demo,policy=coft,lam=0.6", "--tasks", "own_arc"]
    words += ["--include_path", str(folder), "--output_path", str(tmp_path), "--limit", "1"]
    whole = TaskManager.__init__
    # To list the thousands of tasks that come with the harness takes longer than all else.
    alone = lambda own, *given, **named: whole(own, *given, **{**named, "include_defaults": False})  # noqa: E731
    monkeypatch.setattr(TaskManager, "__init__", alone)
    monkeypatch.setattr(sys, "argv", ["lm-eval", *words])
    runpy.run_module("coft_core.adapters.lm_eval_command", run_name="__main__")
    (results,) = tmp_path.rglob("results_*.json")
    told = json.loads(results.read_text())
    assert told["config"]["model"] == "coft"
    assert told["config"]["coft"]["prompts"] == 1
    assert "acc,none" in told["results"]["own_arc"]
