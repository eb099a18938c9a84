"""The masking operator: aligned, idempotent, length-preserving, and only where it should be."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import coft_core as cc
from coft_core.errors import InvalidInputError, SentinelError
from coft_core.model.fake import byte_tokenizer, tiny_model, word_tokenizer
from coft_core.text.masking import continuation_ids, joined

TOKENIZER = byte_tokenizer()
TEMPLATE = (
    "{% for message in messages %}<{{ message.role }}> {{ message.content | trim }} </end>{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)


@st.composite
def texts_with_spans(draw):
    text = draw(texts)
    spans = []
    for _ in range(draw(st.integers(0, 4)) if text else 0):
        start = draw(st.integers(0, len(text) - 1))
        end = draw(st.integers(start + 1, len(text)))
        spans.append(cc.Span(start, end, "gender", kept=draw(st.booleans()), suggested=draw(st.booleans())))
    return text, spans


@given(texts_with_spans())
@settings(max_examples=80, deadline=None)
def test_masking_preserves_length_and_touches_only_tokens_that_overlap_a_span(example):
    text, spans = example
    masked = cc.mask_prompt(TOKENIZER, text, spans)
    offsets = TOKENIZER(text, return_offsets_mapping=True)["offset_mapping"]
    assert len(masked.masked_ids) == len(masked.factual_ids) == len(offsets)
    kept = {c for s in spans if s.kept for c in range(s.start, s.end)}
    sensitive = {c for s in spans if s.masked for c in range(s.start, s.end)} - kept
    for i, (start, end) in enumerate(offsets):
        characters = set(range(start, end))
        expected = bool(characters & sensitive) and not characters & kept
        assert (masked.masked_ids[i] == masked.sentinel_id) == expected
        assert expected or masked.masked_ids[i] == masked.factual_ids[i]


@given(texts_with_spans())
@settings(max_examples=100, deadline=None)
def test_masking_is_idempotent(example):
    text, spans = example
    masked = cc.mask_prompt(TOKENIZER, text, spans)
    twice = cc.mask_prompt(TOKENIZER, text, [*masked.spans, *masked.spans])
    assert twice.masked_ids == masked.masked_ids
    assert twice.spans == masked.spans


def test_the_papers_example_masks_the_pronoun_and_shows_it_with_its_white_space():
    text = "The nurse finished rounds and then he prepared the reports"
    masked = cc.mask_prompt(TOKENIZER, text, [cc.Span(35, 37, "gender")])
    assert masked.text == text[:35] + "<mask><mask>" + text[37:]
    assert masked.positions == (35, 36)
    assert masked.families == ("gender", "gender")
    tokenizer = word_tokenizer(("then", " he", " left"))
    masked = cc.mask_prompt(tokenizer, "then he left", [cc.Span(5, 7, "gender")])
    assert masked.text == "then <mask> left"
    assert len(masked.positions) == 1
    assert cc.mask_prompt(TOKENIZER, "nothing here", []).positions == ()
    with pytest.raises(InvalidInputError):
        cc.mask_prompt(TOKENIZER, "short", [cc.Span(2, 99, "gender")])


def test_only_a_single_token_can_be_the_sentinel():
    with pytest.raises(SentinelError, match="'person'"):
        cc.mask_prompt(TOKENIZER, "he", [cc.Span(0, 2, "gender")], sentinel="person")
    masked = cc.mask_prompt(TOKENIZER, "he ran", [cc.Span(0, 2, "gender")], sentinel="_")
    assert masked.text == "__ ran"


def test_a_soft_mask_puts_the_hint_first_and_pads_with_the_sentinel():
    text = "my grandmother ran"
    masked = cc.mask_prompt(TOKENIZER, text, [cc.Span(3, 14, "family")], mode="soft", hint="one")
    hint = TOKENIZER.encode(" one", add_special_tokens=False)
    own = [masked.masked_ids[i] for i in masked.positions]
    assert own == hint + [masked.sentinel_id] * (11 - len(hint))
    cut = cc.mask_prompt(TOKENIZER, "he ran", [cc.Span(0, 2, "gender")], mode="soft", hint="one")
    assert [cut.masked_ids[i] for i in cut.positions] == hint[:2]
    assert cut.mode == "soft: one"


def test_only_the_reviewers_text_is_masked_inside_a_chat_template_that_leaves_it_as_it_is():
    tokenizer = byte_tokenizer(TEMPLATE)
    text = "  user he assistant"
    masked = cc.mask_prompt(tokenizer, text, [cc.Span(7, 9, "gender")], chat=True)
    read = tokenizer.decode(masked.masked_ids)
    assert read == "<user> user <mask><mask> assistant </end><assistant>"
    assert len(masked.factual_ids) == len(masked.masked_ids)
    assert masked.text == "  user <mask><mask> assistant"
    tokenizer = byte_tokenizer("{{ messages[0].content | upper }}")
    with pytest.raises(InvalidInputError, match="chat template"):
        cc.mask_prompt(tokenizer, "he", [cc.Span(0, 2, "gender")], chat=True)


def test_a_continuation_is_tokenized_as_the_model_would_have_written_it():
    model = tiny_model()
    prompt = cc.mask_prompt(model.tokenizer, "The nurse", [])
    ids = continuation_ids(model, prompt, " said")
    whole = model.tokenizer.encode("The nurse said")
    assert [*prompt.factual_ids, *ids] == whole
    with pytest.raises(InvalidInputError, match="empty"):
        continuation_ids(model, prompt, "")


def test_a_missing_space_is_supplied_only_where_words_would_run_together():
    for prompt, reference, expected in (
        ("a", "b", " b"), ("a ", "b", "b"), ("a", " b", " b"), ("a", ", b", ", b"), ("a", '"b"', ' "b"'),
    ):  # fmt: skip
        assert joined(prompt, reference) == expected
