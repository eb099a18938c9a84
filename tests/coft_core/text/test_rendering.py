"""Chat templates that are no function of the text: rendered as of one moment, kept, and named in fingerprints."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest

import coft_core as cc
from coft_core.errors import CalibrationMismatch, InvalidInputError
from coft_core.fingerprint import Fingerprint
from coft_core.model.fake import byte_tokenizer, tiny_model
from coft_core.policies.safety_template import SafetyTemplatePolicy
from coft_core.text.rendering import Copy, Rendering, moment_of, parse_moment, read_text, render, rendering_label
from coft_core.types import Example
from tests.conftest import TOY_FINGERPRINT

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


def test_a_calibration_serves_on_all_days_where_the_template_prints_no_date():
    model = tiny_model(chat_template=TURN)
    policy = cc.CoftPolicy(calibration=cc.calibrate(model.dated(MONDAY), EXAMPLES, alpha=0.5))
    assert cc.plan(model.dated(TUESDAY), "he ran", policy).certificate.text == "certified"


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


def test_plans_keep_what_they_render_apart_from_each_other():
    model = tiny_model(chat_template=DATED).dated(MONDAY)
    plans = [cc.plan(model, text, cc.VanillaPolicy()) for text in ("he", "she")]
    assert [list(plan.model.prompting.kept or {}) for plan in plans] == [["he"], ["she"]]
    assert not model.prompting.kept


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
