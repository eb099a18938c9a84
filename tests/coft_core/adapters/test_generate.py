"""Policies inside transformers' ``generate``: the same tokens, streamers, criteria, outputs, and what is refused."""

import math
from dataclasses import replace

import pytest
import torch
from transformers import AutoModelForCausalLM, LogitsProcessor, LogitsProcessorList, StoppingCriteriaList
from transformers.generation.streamers import BaseStreamer

import coft_core as cc
from coft_core.assets import assets_path
from coft_core.errors import CalibrationMismatch, InvalidInputError
from coft_core.model.fake import tiny_model
from coft_core.types import Certificate
from tests.coft_core.demo import demo_model
from tests.coft_core.levels import fitting, flat
from tests.conftest import PlainDetector

TEXTS = [
    f"{opening} {person} {place} said that"
    for opening in ("The", "Yesterday the")
    for person in ("old woman", "young man", "Muslim nurse", "French engineer", "pregnant clerk")
    for place in ("at the desk", "in the office", "on the phone", "near the door", "from the bank")
]
LENGTH = 8


@pytest.fixture(scope="module")
def demo():
    return demo_model()


@pytest.fixture(scope="module")
def tiny():
    return tiny_model()


def inputs(model, texts):
    """Prompts padded on the left, as generate takes them."""
    rows = [model.tokenizer(text)["input_ids"] for text in texts]
    width = max(map(len, rows))
    ids = torch.tensor([[0] * (width - len(row)) + row for row in rows])
    mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows])
    return {"input_ids": ids, "attention_mask": mask, "pad_token_id": 0}


def written(sequence, model, text):
    """The tokens behind a prompt of one row, up to the end token."""
    tokens = sequence.tolist()[len(model.tokenizer(text)["input_ids"]) :]
    ends = [place for place, token in enumerate(tokens) if token in model.end_token_ids]
    return tokens[: ends[0] + 1] if ends else tokens


def test_a_batch_of_prompts_of_unlike_lengths_gets_the_tokens_of_each_alone(demo):
    texts = [TEXTS[0], TEXTS[-1] + " the very", "The woman"]
    policy = cc.CoftPolicy(lam=0.5)
    found = demo.module.generate(
        **inputs(demo, texts), max_new_tokens=LENGTH, do_sample=True, return_dict_in_generate=True,
        custom_generate=cc.generate_with(policy, model=demo, seed=3),
    )  # fmt: skip
    for place, (text, run) in enumerate(zip(texts, found.runs, strict=True)):
        own = cc.generate(demo, text, policy, max_new_tokens=LENGTH, seed=3 + place)
        assert [step.token_id for step in run.steps] == [step.token_id for step in own.steps]
        assert run.certificate == own.certificate


def test_a_module_that_transformers_loaded_needs_nothing_but_a_policy(demo):
    module = AutoModelForCausalLM.from_pretrained(str(assets_path("models", "demo")))
    policy = cc.CoftPolicy(lam=0.6)
    given = torch.tensor([demo.tokenizer(TEXTS[0])["input_ids"]])
    (row,) = module.generate(given, max_new_tokens=LENGTH, custom_generate=cc.generate_with(policy))
    own = cc.generate(demo, TEXTS[0], policy, max_new_tokens=LENGTH, greedy=True)
    assert written(row, demo, TEXTS[0]) == [step.token_id for step in own.steps]


class Streamed(BaseStreamer):
    """Keeps what it is given."""

    def __init__(self):
        self.tokens, self.ended = [], 0

    def put(self, value):
        self.tokens += value.flatten().tolist()

    def end(self):
        self.ended += 1


def test_a_streamer_gets_the_prompt_and_every_token_and_the_end(demo):
    streamer = Streamed()
    given = torch.tensor([demo.tokenizer(TEXTS[1])["input_ids"]])
    (row,) = demo.module.generate(
        given, max_new_tokens=5, streamer=streamer, custom_generate=cc.generate_with(cc.CoftPolicy(lam=0.6), model=demo)
    )
    assert streamer.tokens == row.tolist()
    assert streamer.ended == 1


def test_a_stopping_criterion_ends_its_row_alone(demo):
    seen = []

    def third(input_ids, scores, **_):
        seen.append((tuple(input_ids.shape), len(scores)))
        return torch.tensor([row == 0 and input_ids.shape[1] >= width + 3 for row in range(len(input_ids))])

    given = inputs(demo, TEXTS[:2])
    width = given["input_ids"].shape[1]
    found = demo.module.generate(
        **given, max_new_tokens=6, stopping_criteria=StoppingCriteriaList([third]), return_dict_in_generate=True,
        output_scores=True, custom_generate=cc.generate_with(cc.CoftPolicy(lam=0.6), model=demo),
    )  # fmt: skip
    assert len(found.runs[0].steps) == 3
    assert found.runs[0].finished == "stop"
    assert seen[0] == ((2, width + 1), 1)
    assert found.sequences[0, width + 3 :].tolist() == [0] * (found.sequences.shape[1] - width - 3)


def test_scores_are_what_the_tokens_were_drawn_from_and_logits_the_models_own(demo):
    text = TEXTS[2]
    given = torch.tensor([demo.tokenizer(text)["input_ids"]])
    found = demo.module.generate(
        given, max_new_tokens=4, return_dict_in_generate=True, output_scores=True, output_logits=True,
        custom_generate=cc.generate_with(cc.CoftPolicy(lam=0.6), model=demo),
    )  # fmt: skip
    (run,) = found.runs
    assert len(found.scores) == len(found.logits) == len(run.steps)
    for step, scores, logits in zip(run.steps, found.scores, found.logits, strict=True):
        assert float(scores[0, step.token_id]) == pytest.approx(step.log_p_fused, abs=1e-5)
        assert int(scores[0].argmax()) == step.token_id
        assert float(logits[0].log_softmax(-1)[step.token_id]) == pytest.approx(step.log_p_factual, abs=1e-5)
    plain = demo.plain_logits(found.sequences[:, :-1])[0, -len(run.steps) :]
    assert torch.allclose(torch.cat(found.logits), plain, atol=1e-3)


def test_a_calibration_certifies_and_one_of_another_policy_is_refused(tiny):
    policy = cc.CoftPolicy(lam=0.6)
    applied = replace(policy, calibration=fitting(policy, tiny, flat(math.log(0.02), 99, 8)))
    given = torch.tensor([tiny.tokenizer("the old man said")["input_ids"]])
    asked = {"max_new_tokens": 8, "return_dict_in_generate": True, "output_scores": True}
    loop = cc.generate_with(applied, model=tiny, spans=[[cc.Span(4, 11, "age")]], detector=PlainDetector())
    found = tiny.module.generate(given, **asked, custom_generate=loop)
    (run,) = found.runs
    assert Certificate.read(run.certificate).certified
    for step, scores in zip(run.steps, found.scores, strict=True):
        assert int(torch.isfinite(scores[0]).sum()) == (step.set_size or scores.shape[-1])
    other = replace(applied, lam=0.3)
    with pytest.raises(CalibrationMismatch, match="lam"):
        tiny.module.generate(
            given, **asked, custom_generate=cc.generate_with(other, model=tiny, detector=PlainDetector())
        )


class Forbids(LogitsProcessor):
    """Forbids a token."""

    def __call__(self, input_ids, scores):
        scores[:, 3] = -float("inf")
        return scores


def test_what_a_policy_does_not_do_and_a_module_without_a_name_are_refused(tiny):
    for asked, sentence in (
        ({"logits_processor": LogitsProcessorList([Forbids()])}, "Forbids would change it"),
        ({"repetition_penalty": 1.3}, "RepetitionPenalty"),
        ({"num_beams": 3}, "num_beams"),
        ({"return_dict_in_generate": True, "output_attentions": True}, "Attentions"),
    ):
        given = torch.tensor([tiny.tokenizer("the old man")["input_ids"]])
        with pytest.raises(InvalidInputError, match=sentence):
            tiny.module.generate(
                given, max_new_tokens=2, custom_generate=cc.generate_with(cc.CoftPolicy(), model=tiny), **asked
            )
    given = torch.tensor([tiny.tokenizer("the old man")["input_ids"]])
    with pytest.raises(InvalidInputError, match=r"tokenizer=\.\.\."):
        tiny.module.generate(given, max_new_tokens=2, custom_generate=cc.generate_with(cc.CoftPolicy()))
    loop = cc.generate_with(cc.CoftPolicy(), tokenizer=tiny.tokenizer)
    assert tiny.module.generate(given, max_new_tokens=2, custom_generate=loop).shape[1] == given.shape[1] + 2
