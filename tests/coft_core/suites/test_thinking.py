"""Suites read answers without the thinking before them; thinking that never ends is no answer, and says so."""

import pytest

from coft_core.policies.coft import CoftPolicy
from coft_core.suites.base import Choices, Unread, Writing
from coft_core.suites.reading import Reader
from coft_core.text.thinking import ChainThinking, ThinkingMarks, thinking_marks
from tests.reciting import THINKS_ON, reciting_model

MARKS = ThinkingMarks("<think>", "</think>")


def read(ask, text="<think>hm</think>42.", thinking="auto", marks=MARKS):
    model = reciting_model(text)
    assert thinking_marks(model.tokenizer) == MARKS
    model = model.formatted("chat")
    (row,) = Reader(model, marks=marks).read([ask], [CoftPolicy(lam=0.6)], [0])
    return row[0]


def test_thinking_is_no_part_of_an_answer_and_no_stop_ends_it():
    answer = read(Writing("Is she?", 20, greedy=True))
    assert (answer.text, answer.thinking, answer.finished) == ("42.", "hm", "end")
    assert answer.tokens == len("hm42.") + 3  # both marks, and the end
    answer = read(Writing("Is she?", 20, stops=("m", "."), greedy=True))
    assert (answer.text, answer.thinking, answer.finished) == ("42", "hm", "stop")
    assert read(Writing("Is she?", 20, stops=("m",), greedy=True), marks=None).text == "<think>h"
    answer = read(Writing("Is she?", 12, greedy=True), THINKS_ON)
    assert answer == Unread("The thinking did not end within 12 tokens, so there is no answer.", "hmb" * 3 + "hm")
    given = Choices("Is she?", ("<think>hm</think>42.", "42."))
    assert read(given) == read(given, marks=None)


@pytest.mark.parametrize(("tokens", "inside", "thinking", "answer", "ended"), [
    (["<thi", "nk>so", " on</th", "ink>\n\n", "Yes", "."], False, "so on", "Yes.", True),
    (["so", "</think>", " Yes"], True, "so", "Yes", True), (["so", " on"], True, "so on", "", False),
    ([" Yes", " <b>"], False, "", " Yes <b>", True),
    (["A", "<think>", "b", "</think>", "C", "<think>", "d"], False, "bd", "AC", False),
])  # fmt: skip
def test_marks_that_tokens_cut_are_neither_thinking_nor_answer(tokens, inside, thinking, answer, ended):
    def text_of(ids):
        return "".join(tokens[number] for number in ids)

    divided = ChainThinking(MARKS, inside).divided(range(len(tokens)), tokens, text_of)
    assert (divided.thinking, divided.answer, divided.ended) == (thinking, answer, ended)
