"""Prompts that are given as tokens: the same tokens, placed in their text."""

import pytest

import coft_core as cc
from coft_core.errors import InvalidInputError
from coft_core.model.fake import byte_tokenizer, tiny_model
from coft_core.text.given import prompt_of_ids, prompt_of_text
from coft_core.text.masking import mask_prompt
from coft_core.text.rendering import Rendering
from tests.coft_core.demo import demo_model

TEMPLATE = "<eos>{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}[assistant]"


def test_tokens_come_back_with_their_text_and_places_whole_or_in_part():
    tokenizer = byte_tokenizer()
    ids = tokenizer("the old man")["input_ids"]
    prompt = prompt_of_ids(tokenizer, ids)
    assert (prompt.text, prompt.ids) == ("the old man", tuple(ids))
    assert [prompt.text[a:b] for a, b in prompt.offsets] == list("the old man")
    model = demo_model()
    whole = model.tokenizer(" woman", add_special_tokens=False)["input_ids"]
    letters = [model.tokenizer(letter, add_special_tokens=False)["input_ids"][-1] for letter in "woman"]
    assert prompt_of_ids(model.tokenizer, whole).ids == tuple(whole)
    with pytest.raises(InvalidInputError, match="cannot be placed"):
        prompt_of_ids(model.tokenizer, letters)
    prompt = prompt_of_text(byte_tokenizer(), "the old man", special=True)
    part = prompt.part(4, 7)
    assert (part.text, part.offsets) == ("old", ((0, 1), (1, 2), (2, 3)))
    assert part.ids == prompt.ids[4:7]


def test_a_rendered_conversation_is_read_as_it_stands_and_masked_in_every_turn():
    model = tiny_model(chat_template=TEMPLATE)
    turns = [{"role": "user", "content": "an old man"}, {"role": "assistant", "content": "he left"}]
    text = model.tokenizer.apply_chat_template(turns, tokenize=False)
    prompt = prompt_of_text(model.tokenizer, text, special=False)
    assert prompt.ids[0] == model.tokenizer.eos_token_id
    assert prompt_of_ids(model.tokenizer, prompt.ids) == prompt
    spans = [cc.Span(text.index(word), text.index(word) + len(word), "gender") for word in ("man", "he left")]
    rendering = Rendering(True, kept={text: prompt.tokens}, as_it_stands=True)
    masked = mask_prompt(model.tokenizer, text, spans, chat=rendering)
    assert masked.factual_ids == prompt.ids
    assert "".join(text[a:b] for a, b in (masked.offsets[i] for i in masked.positions)) == "manhe left"


def test_a_rendering_that_reads_texts_as_they_stand_is_stored_as_such():
    rendering = Rendering(True, kept={"a": ((1,), ((0, 1),))}, as_it_stands=True)
    assert Rendering.from_dict(rendering.to_dict()) == rendering
    assert "as_it_stands" not in Rendering(True).to_dict()
