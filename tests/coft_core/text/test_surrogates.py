"""Half a character in a text is refused in one sentence, wherever texts come in."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import coft_core as cc
from app.audit.live import forced_token
from app.shared.errors import ServiceError
from app.shared.prompt_sets import parse_prompt_set
from app.tune.sets import read_tuning_set
from coft_core.errors import InvalidInputError, SentinelError
from coft_core.model.fake import tiny_model
from coft_core.policies.sdd import SddPolicy
from coft_core.text.masking import mask_prompt
from coft_core.text.sentinel import resolve_sentinel
from coft_core.text.tokens import encodable, require_encodable, surrogate_problem

HALF = "\ud83d"
BAD = f"He said {HALF} so"
PROBLEM = (
    "holds half of a character (U+D83D, a lone surrogate) at character 9, which no model can read; delete it or type "
    "it again"
)


@pytest.fixture(scope="module")
def model() -> cc.LanguageModel:
    return tiny_model()


def test_whole_characters_are_no_problem() -> None:
    for text in ("", "plain", "\U0001f600 whole", "a\x00b", "e\u0301", "\ufffd"):
        assert surrogate_problem(text) == ""
        assert encodable(text) == text
        require_encodable(text)
        text.encode()


def test_every_half_is_found_at_its_place() -> None:
    for code in (0xD800, 0xDBFF, 0xDC00, 0xDFFF, 0xDCE9):
        half = chr(code)
        assert surrogate_problem(f"ab{half}cd{half}").startswith(f"holds half of a character (U+{code:04X}, ")
        assert "at character 3," in surrogate_problem(f"ab{half}cd{half}")
        assert encodable(f"ab{half}") == "ab\ufffd"


def test_prompts_examples_and_other_texts_are_refused_by_name_before_any_model_reads_them(
    model: cc.LanguageModel,
) -> None:
    for use in (
        lambda: cc.generate(model, BAD, cc.CoftPolicy(), max_new_tokens=1),
        lambda: cc.plan(model, BAD, cc.VanillaPolicy(), ()),
        lambda: cc.score(model, BAD, " x", cc.VanillaPolicy(), ()),
    ):
        with pytest.raises(InvalidInputError) as refused:
            use()
        assert str(refused.value) == f"A text that the model is to read {PROBLEM}."
    good = cc.Example("He went", " home", spans=())
    for example in (cc.Example(BAD, " x", spans=()), cc.Example("He said", f" {HALF}", spans=())):
        with pytest.raises(InvalidInputError, match=r"Example 2: .* holds half of a character \(U\+D83D"):
            cc.calibrate(model, [good, example])
    tokenizer = model.tokenizer
    with pytest.raises(InvalidInputError, match="The continuation holds half"):
        cc.score(model, "He said", HALF, cc.VanillaPolicy(), ())
    with pytest.raises(InvalidInputError, match="The hint of the soft mask holds half"):
        mask_prompt(tokenizer, "He said", [cc.Span(0, 2, "gender")], mode="soft", hint=HALF)
    with pytest.raises(SentinelError, match="not exactly one token"):
        resolve_sentinel(tokenizer, HALF)
    with pytest.raises(InvalidInputError, match="The token to force holds half"):
        forced_token(model, HALF)
    with pytest.raises(InvalidInputError, match="A text that the model is to read holds half"):
        cc.plan(model, "He said", SddPolicy(descriptions=(HALF,)), ())


def written(folder: Path, row: dict[str, object]) -> Path:
    path = folder / "rows.jsonl"
    path.write_text(f"{json.dumps(row)}\n", "utf-8")
    assert "\\ud83d" in path.read_text("utf-8")
    return path


@pytest.mark.parametrize("field", ["prompt", "reference", "group", "context"])
def test_an_uploaded_row_is_refused_with_its_line_and_column(tmp_path: Path, field: str) -> None:
    found = parse_prompt_set(written(tmp_path, {"prompt": "He", "reference": "was", field: BAD}), "rows.jsonl", 10_000)
    ((line, column, message),) = [(own.line, own.column, own.message) for own in found.errors]
    assert (line, column, message) == (1, field, PROBLEM)


@pytest.mark.parametrize("field", ["prompt", "answer", "pair"])
def test_a_row_to_tune_on_is_refused_with_its_line_and_column(tmp_path: Path, field: str) -> None:
    path = written(tmp_path, {"prompt": "He was", "answer": "x", field: BAD})
    with pytest.raises(ServiceError, match=f"rows.jsonl, line 1: {field} holds half of a character"):
        read_tuning_set(path)
