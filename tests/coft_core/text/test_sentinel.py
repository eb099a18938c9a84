"""The sentinel: found by its id in every kind of vocabulary, never a token with a meaning of its own."""

import pytest
from tokenizers import processors

import coft_core as cc
from coft_core.errors import SentinelError
from coft_core.model.fake import byte_tokenizer
from coft_core.text.sentinel import RESERVED, require_sentinel, resolve_sentinel, sentinel_sentence
from tests.coft_core.demo import demo_model
from tests.vocabularies import LETTERS, byte_level, characters, sentencepiece, unigram, words_alone

SPACE_AND_UNDERSCORE = [("\u0120", "_")]
MADE = {
    "Llama 2 without a piece with a space": (sentencepiece(), "_", "neutral"),
    "Llama 2 with a piece with a space": (sentencepiece(("\u2581_", "_")), " _", "neutral"),
    "Llama 2 with a dash alone": (sentencepiece(("-",)), "-", "neutral"),
    "Unigram with a piece with a space": (unigram(("\u2581", "\u2581_")), " _", "neutral"),
    "Unigram with a space alone": (unigram(("\u2581", "\u2581he")), "\u2581", "space"),
    "Unigram without any": (unigram(("\u2581he",)), "<unk>", "unknown"),
    "characters with an underscore": (characters(LETTERS + " _"), "_", "neutral"),
    "characters with a space": (characters(LETTERS + " "), " ", "space"),
    "characters alone": (characters(LETTERS), "<unk>", "unknown"),
    "bytes in pieces": (sentencepiece(()), "_", "neutral"),
    "byte-level": (byte_level(), "_", "neutral"),
    "byte-level as GPT-2": (byte_level(merged=SPACE_AND_UNDERSCORE), " _", "neutral"),
    "byte-level with reserved tokens": (
        byte_level(["<|eot|>", "<|reserved_special_token_0|>", "<|reserved_special_token_1|>"]),
        "<|reserved_special_token_0|>",
        "keeps free",
    ),
    "byte-level with a mask token": (byte_level(["<unused0>", "<m>"], mask="<m>"), "<m>", "mask token"),
    "byte-level with an unnamed mask token": (byte_level(["<unused0>", "[MASK]"]), "[MASK]", "mask token"),
}


@pytest.mark.parametrize(("tokenizer", "text", "reason"), MADE.values(), ids=MADE.keys())
def test_every_kind_of_vocabulary_has_a_sentinel_that_its_name_leads_back_to(tokenizer, text, reason):
    found = require_sentinel(tokenizer)
    assert (found.text, reason in found.reason) == (text, True)
    assert found.token_id not in (tokenizer.eos_token_id, tokenizer.bos_token_id, tokenizer.pad_token_id)
    assert require_sentinel(tokenizer, found.text).token_id == found.token_id
    spans = [cc.Span(4, 6, "gender")] if " " in tokenizer.decode(tokenizer.encode("and he")) else [cc.Span(0, 1, "age")]
    masked = cc.mask_prompt(tokenizer, "and he", spans)
    assert [masked.masked_ids[i] for i in masked.positions] == [found.token_id] * len(masked.positions)
    assert masked.positions
    assert masked.sentinel_reason == found.reason
    assert masked.text != "and he"


def test_sentinels_are_found_by_their_names_and_free_of_the_chat_template():
    tokenizer = sentencepiece(("\u2581_", "_"))
    piece = tokenizer.convert_tokens_to_ids("\u2581_")
    assert [require_sentinel(tokenizer, name).token_id for name in (" _", "\u2581_")] == [piece, piece]
    assert require_sentinel(sentencepiece(), "_").token_id == sentencepiece().convert_tokens_to_ids("_")
    assert require_sentinel(sentencepiece(()), "_").token_id == sentencepiece().convert_tokens_to_ids("<0x5F>")
    tokenizer = byte_level(merged=[("\u00c3", "\u00a9")])
    single = require_sentinel(tokenizer, "\u00e9").token_id
    begins = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", tokenizer.bos_token_id)])
    tokenizer.backend_tokenizer.post_processor = begins
    assert tokenizer.encode("\u00e9") == [tokenizer.bos_token_id, single]
    assert require_sentinel(tokenizer, "\u00e9").token_id == single
    tokenizer = byte_level(["<SPECIAL_10>", "<SPECIAL_11>"])
    tokenizer.chat_template = "<SPECIAL_10>{{ messages[0].content }}"
    assert require_sentinel(tokenizer).text == "<SPECIAL_11>"


def test_names_that_vocabularies_give_to_free_tokens_are_known():
    for name in (
        "<|reserved_special_token_3|>", "<|reserved_200017|>", "<unused7>", "[unused1]", "<extra_id_0>", "<|extra_4|>",
        "<|placeholder1|>", "<|dummy_0|>", "[control_8]", "<SPECIAL_20>",
    ):  # fmt: skip
        assert RESERVED.fullmatch(name)


def test_names_of_tokens_with_a_meaning_are_not_taken_for_free_ones():
    for name in ("<|im_end|>", "<|eot_id|>", "</s>", "<s>", "<pad>", "<|endoftext|>", "[INST]", "[SEP]"):
        assert not RESERVED.fullmatch(name)


def test_a_token_that_ends_begins_or_pads_is_neither_chosen_nor_taken_by_name():
    for role in ("pad_token", "bos_token", "eos_token"):
        tokenizer = byte_level(["<unused0>", "<unused1>"])
        setattr(tokenizer, role, "<unused0>")
        assert require_sentinel(tokenizer).text == "<unused1>"
        with pytest.raises(SentinelError, match="meaning of its own"):
            resolve_sentinel(tokenizer, "<unused0>")


def test_vocabularies_without_a_sentinel_are_refused_only_where_it_is_needed():
    tokenizer = byte_level(["<end>"], mask="<end>")
    tokenizer.eos_token = "<end>"
    assert require_sentinel(tokenizer).text == "_"
    tokenizer = words_alone()
    assert resolve_sentinel(tokenizer) is None
    with pytest.raises(SentinelError, match="no token that could stand for a masked one"):
        cc.mask_prompt(tokenizer, "then he ran", [cc.Span(5, 7, "gender")])
    plain = cc.mask_prompt(tokenizer, "then he ran", [cc.Span(5, 7, "gender", kept=True)])
    assert (plain.sentinel, plain.sentinel_id, plain.positions, plain.warnings) == ("", None, (), ())
    watched = cc.mask_prompt(tokenizer, "then he ran", [cc.Span(5, 7, "gender")], required=False)
    assert watched.positions == ()
    assert "the marked words are not masked" in watched.warnings[0]
    masked = cc.mask_prompt(words_alone(), "then he ran", [cc.Span(5, 7, "gender")], sentinel="home")
    assert masked.text == "then home ran"
    tokenizer = characters(LETTERS + " ")
    masked = cc.mask_prompt(tokenizer, "and he", [cc.Span(4, 6, "gender")])
    assert masked.text == "and \u2423\u2423"
    assert sentinel_sentence(masked.sentinel, masked.sentinel_reason).startswith("“\u2423” stands")


def test_the_embedded_model_and_the_byte_vocabulary_keep_their_mask_token():
    tokenizer = demo_model().tokenizer
    found = require_sentinel(tokenizer)
    assert (found.text, found.token_id, found.reason) == ("<mask>", 2, "the tokenizer's mask token")
    assert require_sentinel(byte_tokenizer()).text == "<mask>"
