"""Masked tokens are all that hold a character of a masked span, whatever a tokenizer or a template does with it."""

import pytest
from tokenizers import normalizers

import coft_core as cc
from coft_core.decode.plan import plan
from coft_core.errors import InvalidInputError
from coft_core.model.fake import byte_tokenizer, word_tokenizer
from coft_core.text.masking import mask_families, show_span
from tests.vocabularies import LETTERS, byte_level, characters, random_model, sentencepiece

TWICE = "Title: {{ messages[0].content }}\n<user>{{ messages[0].content | trim }}</user>"
RANDOM = "{{ range(10000, 99999)|random }}[{{ messages[0].content | trim }}]"
BEGINNING = "Title: {{ messages[0].content[:6] }}\n<user>{{ messages[0].content }}</user>"


class Misplacing:
    """A tokenizer that gives some tokens other places than they have."""

    def __init__(self, tokenizer, places):
        self._tokenizer, self._places = tokenizer, places

    def __call__(self, *arguments, **options):
        encoded = self._tokenizer(*arguments, **options)
        for index, place in self._places.items():
            encoded["offset_mapping"][index] = place
        return encoded

    def __getattr__(self, name):
        return getattr(self._tokenizer, name)


def masked_words(prompt, tokenizer):
    """What is left of the masked prompt without the sentinel."""
    return tokenizer.decode([token for token in prompt.masked_ids if token != prompt.sentinel_id])


def test_a_token_shared_by_a_masked_and_a_kept_word_is_masked_and_told_and_no_other():
    tokenizer = word_tokenizer(("then", " herself", " ran"))
    spans = [cc.Span(5, 8, "gender"), cc.Span(8, 12, "other", "user", kept=True)]
    masked = cc.mask_prompt(tokenizer, "then herself ran", spans)
    assert masked.text == "then <mask> ran"
    (warning,) = masked.warnings
    assert "“self” is kept, but shares a token with “her”, which is masked" in warning
    tokenizer = word_tokenizer(("then", " her", " ran"))
    spans = [cc.Span(5, 8, "gender"), cc.Span(9, 12, "other", kept=True)]
    masked = cc.mask_prompt(tokenizer, "then her ran", spans)
    assert (masked.text, masked.warnings) == ("then <mask> ran", ())
    model = random_model(byte_level(["<m>"], "<m>", [("h", "e"), ("he", "r"), ("her", "s")]))
    spans = [cc.Span(4, 7, "gender"), cc.Span(7, 8, "other", kept=True)]
    prepared = plan(model, "and hers", cc.VanillaPolicy(), spans)
    assert "“s” is kept" in prepared.warnings[0]


@pytest.mark.parametrize("place", [(7, 7), (6, 6)])
def test_a_token_with_an_empty_place_at_or_in_a_masked_span_is_masked(place):
    text = "then he ran"
    tokenizer = Misplacing(byte_tokenizer(), {6: place})
    masked = cc.mask_prompt(tokenizer, text, [cc.Span(5, 7, "gender")])
    assert masked.masked_ids[5] == masked.masked_ids[6] == masked.sentinel_id
    assert masked.text == "then <mask><mask> ran"
    assert mask_families(masked, ("gender",)) == masked.masked_ids
    assert show_span(masked, masked.spans[0]) == masked.factual_ids


def test_spans_whose_tokens_have_no_place_or_lost_theirs_are_refused():
    tokenizer = Misplacing(byte_tokenizer(), {0: (0, 0), 10: (10, 10)})
    masked = cc.mask_prompt(tokenizer, "then he ran", [cc.Span(5, 7, "gender")])
    assert masked.positions == (5, 6)
    tokenizer = Misplacing(byte_tokenizer(), {5: (0, 0), 6: (0, 0)})
    with pytest.raises(InvalidInputError, match=r"“he” .characters 6 to 7. cannot be masked safely"):
        cc.mask_prompt(tokenizer, "then he ran", [cc.Span(5, 7, "gender")])
    assert cc.mask_prompt(tokenizer, "then he ran", []).positions == ()
    tokenizer = characters(LETTERS + " ", unknown=False)
    with pytest.raises(InvalidInputError, match=r"“he” .* cannot be masked safely"):
        cc.mask_prompt(tokenizer, "##he ran", [cc.Span(2, 4, "gender")])
    assert cc.mask_prompt(tokenizer, "he ran", [cc.Span(0, 2, "gender")]).positions == (0, 1)


def test_characters_that_are_joined_or_never_read_are_no_reason_to_refuse():
    for text in ("Jose\u0301 ran", "\u1112\u1161\u11ab ran", "\uff76\uff9e ran", "Jo\u200bse ran"):
        tokenizer = byte_level(["<m>"], "<m>")
        tokenizer.backend_tokenizer.normalizer = normalizers.NFKC()
        masked = cc.mask_prompt(tokenizer, text, [cc.Span(0, len(text) - 4, "name")])
        assert masked_words(masked, tokenizer) == " ran"


def test_white_space_that_a_tokenizer_trims_from_its_places_is_masked_with_its_span_alone():
    tokenizer = byte_level(["<m>"], "<m>", trim=True)
    text = "a she  \nand he"
    masked = cc.mask_prompt(tokenizer, text, [cc.Span(2, 11, "gender")])
    assert masked_words(masked, tokenizer) == "a  he"
    before = cc.mask_prompt(tokenizer, text, [cc.Span(2, 5, "gender")])
    assert masked_words(before, tokenizer) == "a   \nand he"


@pytest.mark.parametrize("text", ["he \u5317 ran", "he \u00e9\u0301 ran"])
def test_every_byte_of_a_masked_character_is_masked(text):
    tokenizer = sentencepiece()
    masked = cc.mask_prompt(tokenizer, text, [cc.Span(3, len(text) - 4, "race")])
    assert masked_words(masked, tokenizer).replace("<s>", "").strip() == "he  ran"


def test_templates_that_print_a_message_in_several_copies_have_each_masked_with_its_hint():
    tokenizer = byte_tokenizer(TWICE)
    text = " then he ran "
    masked = cc.mask_prompt(tokenizer, text, [cc.Span(6, 8, "gender")], chat=True)
    read = tokenizer.decode(masked.masked_ids)
    assert read == "Title:  then <mask><mask> ran \n<user>then <mask><mask> ran</user>"
    assert masked.text == " then <mask><mask> ran "
    assert len(masked.positions) == 4
    assert masked.warnings == (
        "This model's chat template prints your text 2 times; every copy of it is masked, and the first one is shown.",
    )
    assert mask_families(masked, ("gender",)) == masked.masked_ids
    assert show_span(masked, masked.spans[0]) == masked.factual_ids
    tokenizer = byte_tokenizer(TWICE)
    span = cc.Span(0, 4, "gender")
    masked = cc.mask_prompt(tokenizer, "she! ran", [span], mode="soft", hint="it", chat=True)
    assert tokenizer.decode(masked.masked_ids) == "Title:  it<mask> ran\n<user> it<mask> ran</user>"
    assert masked.text == "it<mask> ran"
    with pytest.raises(InvalidInputError, match="does more with the message than print it"):
        cc.mask_prompt(byte_tokenizer(BEGINNING), "then he ran", [cc.Span(5, 7, "gender")], chat=True)


def test_a_template_that_renders_each_time_otherwise_is_masked_where_the_message_stands_or_refused():
    text = " then he ran "
    tokenizer = byte_tokenizer(RANDOM + RANDOM)
    masked = cc.mask_prompt(tokenizer, text, [cc.Span(6, 8, "gender")], chat=True)
    assert len(masked.positions) == 4
    assert tokenizer.decode(masked.masked_ids).count("[then <mask><mask> ran]") == 2
    assert masked.text == " then <mask><mask> ran "
    with pytest.raises(InvalidInputError, match="does more with the message than print it"):
        cc.mask_prompt(byte_tokenizer(RANDOM + BEGINNING), text, [cc.Span(6, 8, "gender")], chat=True)


def test_copies_that_share_a_token_are_refused_where_something_is_masked():
    tokenizer = byte_level(["<m>"], "<m>", [("n", "h")])
    tokenizer.chat_template = "{{ messages[0].content }}{{ messages[0].content }}"
    with pytest.raises(InvalidInputError, match="two copies of the text"):
        cc.mask_prompt(tokenizer, "he ran", [cc.Span(0, 2, "gender")], chat=True)
    assert cc.mask_prompt(tokenizer, "he ran", [], chat=True).positions == ()
