"""Conversations: their text, their turns through a chat template, what is masked, and what fingerprints hold."""

import pytest

import coft_core as cc
from coft_core.calibrate.task import framed_examples
from coft_core.decode.plan import plan
from coft_core.errors import CalibrationMismatch, InvalidInputError
from coft_core.model.fake import byte_tokenizer, tiny_model
from coft_core.policies.coft import CoftPolicy
from coft_core.policies.vanilla import VanillaPolicy
from coft_core.text.detection import default_detector
from coft_core.text.masking import mask_prompt
from coft_core.text.rendering import Rendering, thinking_switch
from coft_core.text.thinking import ThinkingMarks, begun, parts, thinking_marks
from coft_core.text.turns import Frame, Turn, conversation_text, frame_of, framed, said_turns, turns_of
from coft_core.types import OWN, Example, Span

THINKS = (
    "{%- if messages[0].role == 'system' %}{{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}"
    "{%- endif %}{%- for message in messages %}{%- set content = message.content %}"
    "{%- if message.role == 'user' %}{{- '<|im_start|>user\\n' + content + '<|im_end|>\\n' }}"
    "{%- elif message.role == 'assistant' %}"
    "{%- if '</think>' in content %}{%- set content = content.split('</think>')[-1].lstrip('\\n') %}{%- endif %}"
    "{{- '<|im_start|>assistant\\n' + content + '<|im_end|>\\n' }}{%- endif %}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}"
    "{%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}"
    "{%- endif %}"
)
"""A template in the manner of models that think, written for this test."""

TURNS = (
    Turn("system", "You advise women."), Turn("user", "Is she a risk?"), Turn("assistant", "Perhaps."),
    Turn("user", " Say more about her. "), Turn("assistant", "The answer is"),
)  # fmt: skip
TEXT = conversation_text(TURNS)


def rendered(text, chat=True, thinking="auto"):
    tokenizer = byte_tokenizer(THINKS)
    prompt = mask_prompt(tokenizer, text, cc.detect_spans(text), chat=Rendering(chat, frame=Frame(thinking=thinking)))
    return tuple(tokenizer.decode(ids) for ids in (prompt.factual_ids, prompt.masked_ids))


def test_turns_come_back_from_their_text_letter_by_letter():
    for contents in (("a", "b"), ("", "\n\nx\n"), ("⟦ user ⟧", "⟦user⟧ in a line"), ("é\U0001f600", " ")):
        turns = [Turn(role, content) for role, content in zip(("user", "assistant"), contents, strict=True)]
        text = conversation_text(turns)
        back = turns_of(text)
        assert [(turn.role, turn.content) for turn in back] == [(turn.role, turn.content) for turn in turns]
        assert all(text[turn.start : turn.end] == turn.content for turn in back)


def test_turns_reach_the_model_through_its_template_or_as_paragraphs_and_are_masked_alike():
    factual, masked = rendered(TEXT)
    expected = (
        "<|im_start|>system\nYou advise {}.<|im_end|>\n<|im_start|>user\nIs {} a risk?<|im_end|>\n"
        "<|im_start|>assistant\nPerhaps.<|im_end|>\n<|im_start|>user\n Say more about {}. <|im_end|>\n"
        "<|im_start|>assistant\nThe answer is"
    )
    assert factual == expected.format("women", "she", "her")
    assert masked == expected.format("<mask>" * 5, "<mask>" * 3, "<mask>" * 3)
    factual, masked = rendered(TEXT, chat=False)
    assert factual == "\n\n".join(turn.content for turn in TURNS)
    assert masked == factual.replace("women", "<mask>" * 5).replace("she", "<mask>" * 3).replace("her", "<mask>" * 3)


def test_thinking_is_switched_where_the_template_knows_of_it_and_said_where_not():
    assert rendered("Hello", thinking="off")[0].endswith("<think>\n\n</think>\n\n")
    assert rendered("Hello", thinking="on") == rendered("Hello")
    assert thinking_switch(THINKS) == "enable_thinking"
    silent = tiny_model(chat_template="{% for m in messages %}{{ m.content }}{% endfor %}").framed(
        Frame(thinking="off")
    )
    assert "changes nothing" in " ".join(plan(silent, "Is she well?", VanillaPolicy()).warnings)
    assert plan(silent, "Is she well?", VanillaPolicy()).model.thinking == ""


def test_what_is_no_conversation_is_refused_in_a_sentence():
    for turns, told in (
        ([("user", "a"), ("user", "b")], "take turns"), ([("system", "a")], "at least one message"),
        ([("user", ""), ("assistant", "b"), ("user", "c")], "is empty"), ([("user", "a"), ("system", "b")], "middle"),
    ):  # fmt: skip
        with pytest.raises(InvalidInputError, match=told):
            said_turns(conversation_text(Turn(*turn) for turn in turns))


def test_turns_that_a_template_cuts_and_spans_over_their_borders_are_refused():
    text = conversation_text([Turn("user", "Is she?"), Turn("assistant", "<think>x</think>Yes"), Turn("user", "Why?")])
    with pytest.raises(InvalidInputError, match="without their thinking"):
        rendered(text)
    with pytest.raises(InvalidInputError, match="words of one turn"):
        mask_prompt(byte_tokenizer(THINKS), TEXT, [Span(20, 50, "gender")], chat=True)


def test_frames_add_what_a_prompt_lacks_and_renderings_keep_theirs():
    frame = Frame("For women.", "She")
    text, spans = framed("Is her loan safe?", (Span(3, 6, "gender"),), frame, cc.detect_spans)
    assert [turn.content for turn in turns_of(text)] == ["For women.", "Is her loan safe?", "She"]
    assert [text[span.start : span.end] for span in spans] == ["women", "her", "She"]
    assert framed(text, spans, frame, cc.detect_spans) == (text, spans)
    assert framed(TEXT, None, frame, cc.detect_spans) == (TEXT, None)
    frame = frame_of(TEXT, "on")
    assert Rendering.from_dict(Rendering(True, frame=frame).to_dict()).frame == frame
    assert "frame" not in Rendering(True).to_dict()
    model = tiny_model(chat_template=THINKS, context_length=512)
    planned = plan(model, TEXT, cc.CafiePolicy(most=1) if hasattr(cc, "CafiePolicy") else VanillaPolicy())
    texts = [model.tokenizer.decode(branch.input_ids) for branch in planned.policy.branches(planned.prompt)]
    assert all(text.count("<|im_start|>") == len(TURNS) for text in texts)


def test_only_what_is_asked_for_enters_the_fingerprint():
    model, version = tiny_model(chat_template=THINKS), default_detector().version
    plain = plan(model, "Is she well?", VanillaPolicy()).model
    assert not {"system", "prefill", "turns", "thinking"} & set(CoftPolicy().fingerprint(plain, version).to_dict())
    told = plan(model.framed(Frame(thinking="off")), TEXT, VanillaPolicy()).model
    used = CoftPolicy().fingerprint(told, version).to_dict()
    assert (used["prefill"], used["turns"], used["thinking"], len(used["system"])) == (
        "The answer is", "several", "off", 64,
    )  # fmt: skip


def test_a_calibration_of_one_system_prompt_serves_no_other_and_one_of_many_serves_all():
    model, detector = tiny_model(chat_template=THINKS), default_detector()

    def fingerprint(system, *prompts):
        examples = [Example(prompt, "yes") for prompt in prompts]
        return CoftPolicy().fingerprint(
            framed_examples(model.framed(Frame(system)), examples, detector)[0], detector.version
        )

    one, other = fingerprint("Be kind.", "Is she?", "Is he?"), fingerprint("Be brief.", "Is she?")
    with pytest.raises(CalibrationMismatch, match="system"):
        one.require_equal(other)
    many = fingerprint("Be kind.", "Is she?", TEXT)
    assert (many.system, many.turns) == (OWN, OWN)
    many.require_equal(other)
    with pytest.raises(CalibrationMismatch):
        other.require_equal(many)


def test_thinking_is_told_from_the_answer_across_tokens_that_cut_the_marks():
    marks = thinking_marks(byte_tokenizer(THINKS))
    assert marks == ThinkingMarks("<think>", "</think>")
    tokens = ["<thi", "nk>", "hm", "</th", "ink>", " Yes", "."]
    assert parts(tokens, marks, inside=False) == ("thinking",) * 5 + ("answer",) * 2
    assert parts(["so", "</think>", "Yes"], marks, inside=True) == ("thinking", "thinking", "answer")
    assert parts(["so", "on"], marks, inside=True) == ("thinking",) * 2
    assert parts(tokens, None, inside=False) == ("answer",) * 7
    assert begun("…<think>\n", marks)
    assert not begun("<think>\n\n</think>\n\n", marks)
