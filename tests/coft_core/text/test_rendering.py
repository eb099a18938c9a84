"""Conversations and chat templates: what a model reads of a text, when, and what fingerprints hold of it."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest

import coft_core as cc
from coft_core.calibrate.task import framed_examples
from coft_core.decode.plan import plan
from coft_core.errors import CalibrationMismatch, InvalidInputError
from coft_core.fingerprint import Fingerprint
from coft_core.model.fake import byte_tokenizer, tiny_model
from coft_core.policies.coft import CoftPolicy
from coft_core.policies.safety_template import SafetyTemplatePolicy
from coft_core.policies.vanilla import VanillaPolicy
from coft_core.text.detection import default_detector
from coft_core.text.masking import mask_prompt
from coft_core.text.placing import LOST, NOWHERE, copies_of
from coft_core.text.rendering import (
    Copy,
    Rendering,
    moment_of,
    parse_moment,
    read_text,
    render,
    rendering_label,
    thinking_switch,
)
from coft_core.text.thinking import ThinkingMarks, begun, parts, thinking_marks
from coft_core.text.turns import Frame, Turn, conversation_text, frame_of, framed, said_turns, turns_of
from coft_core.types import OWN, Example, Span
from tests.conftest import TOY_FINGERPRINT

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


TURN = "{% for message in messages %}[{{ message['content'] }}]{% endfor %}"
DATED = "{{ strftime_now('%d %b %Y') }}" + TURN
RANDOM = "{{ range(10000, 99999)|random }}" + TURN
MONDAY, TUESDAY = "2026-03-02", "2026-03-03"
EXAMPLES = [Example(f"he ran {i}", f"home {i}", spans=(cc.Span(0, 2, "gender"),)) for i in range(12)]


def day(text: str) -> datetime:
    moment = parse_moment(text)
    assert moment is not None
    return moment


@pytest.mark.parametrize("written", [
    "\n{{ strftime_now('%A, %-d %B %Y') }}\n",
    "{% set today = strftime_now('%Y-%m-%d') %}{{ today.split('-')[2]|int - 1 }}",
    "{% if strftime_now is defined %}{{ strftime_now('100 %% on %x at %H:%M:%S.%f') }}{% endif %}",
    "{% macro day() %}{{ strftime_now('%j') }}{% endmacro %}{{ day() }}",
])  # fmt: skip
def test_as_of_now_the_text_is_what_the_tokenizer_itself_renders(written: str, monkeypatch: pytest.MonkeyPatch):
    moment = datetime(2026, 3, 2, 9, 30, 15, 250)

    class Frozen(datetime):
        @classmethod
        def now(cls, tz: object = None) -> datetime:
            return moment

    monkeypatch.setattr("transformers.utils.chat_template_utils.datetime", Frozen)
    tokenizer = byte_tokenizer(written + TURN)
    own = tokenizer.apply_chat_template([{"role": "user", "content": "he"}], tokenize=False, add_generation_prompt=True)
    assert render(tokenizer, "he", moment) == own


def test_a_label_names_the_coarsest_moment_at_which_the_rendering_is_the_same():
    for printed, named in (
        ("%d %b %Y", "2026-03-02"), ("%B %Y", "2026-03-01"), ("%Y", "2026-01-01"),
        ("%d.%m.%Y %H:%M", "2026-03-02T09:30"), ("%d.%m.%Y %X", "2026-03-02T09:30:15"),
    ):  # fmt: skip
        tokenizer = byte_tokenizer(f"{{{{ strftime_now('{printed}') }}}}{TURN}")
        label = rendering_label(tokenizer, datetime(2026, 3, 2, 9, 30, 15))
        at = moment_of(label)
        assert at is not None
        assert named in (at, at.removesuffix(":00"))
        assert rendering_label(tokenizer, parse_moment(at)) == label


def test_a_template_that_does_not_print_the_date_has_one_label_on_all_days():
    for template in (TURN, "{# strftime_now #}" + TURN, "{% if false %}{{ strftime_now('%d') }}{% endif %}" + TURN):
        tokenizer = byte_tokenizer(template)
        labels = {rendering_label(tokenizer, day(when)) for when in (MONDAY, TUESDAY, "2031-12-31T23:59")}
        assert len(labels) == 1
        assert moment_of(labels.pop()) is None


def test_fingerprints_name_the_rendering_and_older_ones_fit_where_it_is_the_same():
    model = tiny_model(chat_template=DATED)
    first, second = (cc.VanillaPolicy().fingerprint(model.dated(when), "d") for when in (MONDAY, TUESDAY))
    assert [name for name, _, _ in first.differences(second)] == ["rendering"]
    special = tiny_model(chat_template="{{ eos_token }}" + TURN)
    before = cc.VanillaPolicy().fingerprint(special, "d")
    special.tokenizer.eos_token = "e"
    assert "rendering" in [name for name, _, _ in before.differences(cc.VanillaPolicy().fingerprint(special, "d"))]
    own = cc.VanillaPolicy().fingerprint(tiny_model(), "d")
    assert own.rendering == ""
    assert "rendering" not in own.to_dict()
    assert "rendering" not in TOY_FINGERPRINT.to_dict()
    assert TOY_FINGERPRINT.digest.startswith("fdff6edd9664")
    assert Fingerprint.from_dict(TOY_FINGERPRINT.to_dict()) == TOY_FINGERPRINT
    for template, fields in ((TURN, []), (DATED, ["rendering"])):
        now = cc.VanillaPolicy().fingerprint(tiny_model(chat_template=template), "d")
        assert [name for name, _, _ in replace(now, rendering="").differences(now)] == fields


def test_a_calibration_of_another_day_is_refused_by_name_and_serves_as_of_its_own_day(tmp_path: Path):
    model = tiny_model(chat_template=DATED)
    calibration = cc.calibrate(model.dated(MONDAY), EXAMPLES, alpha=0.5)
    policy = cc.CoftPolicy(calibration=calibration)
    with pytest.raises(CalibrationMismatch, match=rf"rendering.*as of {MONDAY}.*as of {TUESDAY}.*as it was") as raised:
        cc.plan(model.dated(TUESDAY), "he ran", policy)
    assert raised.value.fields == ("rendering",)
    assert cc.plan(model.dated(MONDAY), "he ran", policy).certificate.text == "certified"
    calibration.save(tmp_path / "calibration.zip")
    assert moment_of(cc.Calibration.load(tmp_path / "calibration.zip").fingerprint.rendering) == MONDAY


def test_all_prompts_of_one_calibration_are_rendered_at_one_moment(monkeypatch: pytest.MonkeyPatch):
    seen: set[datetime | None] = set()
    model = tiny_model(chat_template=DATED)

    def noted(tokenizer: object, text: str, rendering: Rendering) -> tuple[str, tuple[Copy, ...]]:
        seen.add(rendering.moment)
        return read_text(tokenizer, text, rendering)

    monkeypatch.setattr("coft_core.text.placing.read_text", noted)
    cc.calibrate(model, EXAMPLES, alpha=0.5)
    assert len(seen) == 1
    assert None not in seen


def test_a_template_that_draws_at_random_cannot_be_calibrated_and_is_told():
    model = tiny_model(chat_template=RANDOM)
    for source in ("reference", "rollout"):
        with pytest.raises(InvalidInputError, match="another way each time"):
            cc.calibrate(model, EXAMPLES, alpha=0.5, source=source)
    assert any("another way each time" in warning for warning in cc.plan(model, "he", cc.VanillaPolicy()).warnings)
    assert any(
        f"as of {MONDAY}" in warning
        for warning in cc.plan(tiny_model(chat_template=DATED).dated(MONDAY), "he", cc.VanillaPolicy()).warnings
    )


@pytest.mark.parametrize("template", [DATED, RANDOM])
def test_what_a_plan_rendered_is_given_again_whatever_the_template_says_now(template: str):
    model = tiny_model(chat_template=template)
    policy = SafetyTemplatePolicy()
    first = cc.plan(model, "he ran", policy)
    stored = Rendering.from_dict(first.model.prompting.to_dict())
    assert stored.kept
    assert "he ran" in stored.kept
    again = cc.plan(model.rendered_as(stored), "he ran", policy)
    assert again.prompt.factual_ids == first.prompt.factual_ids
    assert again.policy.branches(again.prompt) == first.policy.branches(first.prompt)
    assert cc.plan(model, "she ran", policy).model.prompting.kept.keys().isdisjoint({"he ran"})


def test_a_model_with_a_template_can_be_prompted_without_it():
    model = tiny_model(chat_template=DATED)
    plain = model.formatted("plain")
    assert plain.module is model.module
    ids = cc.plan(plain, "he", cc.VanillaPolicy()).prompt.factual_ids
    assert ids == tuple(model.tokenizer("he")["input_ids"])
    differences = cc.VanillaPolicy().fingerprint(model, "d").differences(cc.VanillaPolicy().fingerprint(plain, "d"))
    assert [name for name, _, _ in differences] == ["chat_template", "rendering"]
    assert plain.formatted("chat").chat
    assert model.formatted("auto") is model
    with pytest.raises(InvalidInputError, match="no chat template"):
        tiny_model().formatted("chat")
    with pytest.raises(InvalidInputError, match="no prompt format"):
        model.formatted("loud")


def test_dates_of_templates_are_days_and_templates_that_refuse_a_message_are_told():
    with pytest.raises(InvalidInputError, match="give a day such as"):
        tiny_model(chat_template=DATED).dated("yesterday")
    with pytest.raises(InvalidInputError, match="cannot be understood"):
        Rendering.from_dict({"chat": True, "at": None, "texts": [{"text": "he"}]})
    tokenizer = byte_tokenizer("{{ raise_exception('a system message must come first') }}")
    with pytest.raises(InvalidInputError, match=r"a system message must come first.*plain prompt format"):
        cc.mask_prompt(tokenizer, "he", [], chat=True)
    tokenizer = byte_tokenizer(DATED)
    assert render(tokenizer, "he", day(MONDAY)) == "02 Mar 2026[he]"
    assert read_text(tokenizer, "he", Rendering(True, day(TUESDAY))) == ("03 Mar 2026[he]", (Copy(12, 14),))


@pytest.mark.parametrize(
    ("offsets", "copies"),
    [
        ([(0, 3), (3, 6)], (0, 0)),
        ([(0, 3), (3, 6), NOWHERE, (0, 3), (3, 6)], (0, 0, 0, 1, 1)),
        # A text of one token starts over only behind tokens of the template.
        ([(0, 3), NOWHERE, (0, 3)], (0, 0, 1)),
        ([(0, 3), (0, 3)], (0, 0)),
        ([(0, 3), LOST, (0, 3)], (0, 0, 0)),
    ],
)
def test_a_text_that_a_template_prints_again_is_another_copy(offsets, copies):
    assert copies_of(offsets) == copies
