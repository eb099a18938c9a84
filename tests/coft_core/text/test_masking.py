"""Only tokens of a masked span are masked, whatever a tokenizer or a template does, and by a token that is free."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import normalizers, processors

import coft_core as cc
from app.audit.live import forced_token
from app.prompts.sets import parse_prompt_set
from app.shared.errors import ServiceError
from app.tune.sets import read_tuning_set
from coft_core.decode.plan import plan
from coft_core.errors import InvalidInputError, SentinelError
from coft_core.model.fake import byte_tokenizer, tiny_model, word_tokenizer
from coft_core.policies.sdd import SddPolicy
from coft_core.text.given import prompt_of_ids, prompt_of_text
from coft_core.text.masking import continuation_ids, mask_families, mask_prompt, show_span
from coft_core.text.rendering import Rendering
from coft_core.text.sentinel import RESERVED, require_sentinel, resolve_sentinel, sentinel_sentence
from coft_core.text.tokens import encodable, surrogate_problem
from tests.coft_core.demo import demo_model
from tests.vocabularies import LETTERS, byte_level, characters, random_model, sentencepiece, unigram, words_alone

TOKENIZER = byte_tokenizer()
TEMPLATE = (
    "{% for message in messages %}<{{ message.role }}> {{ message.content | trim }} </end>{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
any_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)


@st.composite
def texts_with_spans(draw):
    text = draw(any_text)
    spans = []
    for _ in range(draw(st.integers(0, 4)) if text else 0):
        start = draw(st.integers(0, len(text) - 1))
        end = draw(st.integers(start + 1, len(text)))
        spans.append(cc.Span(start, end, "gender", kept=draw(st.booleans()), suggested=draw(st.booleans())))
    return text, spans


@given(texts_with_spans())
@settings(max_examples=80, deadline=None)
def test_masking_preserves_length_is_idempotent_and_touches_only_tokens_that_overlap_a_span(example):
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
    twice = cc.mask_prompt(TOKENIZER, text, [*masked.spans, *masked.spans])
    assert (twice.masked_ids, twice.spans) == (masked.masked_ids, masked.spans)


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


CONVERSATION = "<eos>{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}[assistant]"


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
    model = tiny_model(chat_template=CONVERSATION)
    turns = [{"role": "user", "content": "an old man"}, {"role": "assistant", "content": "he left"}]
    text = model.tokenizer.apply_chat_template(turns, tokenize=False)
    prompt = prompt_of_text(model.tokenizer, text, special=False)
    assert prompt.ids[0] == model.tokenizer.eos_token_id
    assert prompt_of_ids(model.tokenizer, prompt.ids) == prompt
    spans = [cc.Span(text.index(word), text.index(word) + len(word), "gender") for word in ("man", "he left")]
    rendering = Rendering(True, kept={text: prompt.tokens}, as_it_stands=True)
    assert Rendering.from_dict(rendering.to_dict()) == rendering
    masked = mask_prompt(model.tokenizer, text, spans, chat=rendering)
    assert masked.factual_ids == prompt.ids
    assert "".join(text[a:b] for a, b in (masked.offsets[i] for i in masked.positions)) == "manhe left"


SPACE_AND_UNDERSCORE = [("\u0120", "_")]
VOCABULARIES = {
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


@pytest.mark.parametrize(("tokenizer", "text", "reason"), VOCABULARIES.values(), ids=VOCABULARIES.keys())
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


HALF = "\ud83d"
BAD = f"He said {HALF} so"
PROBLEM = (
    "holds half of a character (U+D83D, a lone surrogate) at character 9, which no model can read; delete it or type "
    "it again"
)


@pytest.fixture(scope="module")
def tiny() -> cc.LanguageModel:
    return tiny_model()


def test_every_half_is_found_at_its_place() -> None:
    for text in ("", "plain", "\U0001f600 whole", "a\x00b", "e\u0301", "\ufffd"):
        assert (surrogate_problem(text), encodable(text)) == ("", text)
    for code in (0xD800, 0xDBFF, 0xDC00, 0xDFFF, 0xDCE9):
        half = chr(code)
        assert surrogate_problem(f"ab{half}cd{half}").startswith(f"holds half of a character (U+{code:04X}, ")
        assert "at character 3," in surrogate_problem(f"ab{half}cd{half}")
        assert encodable(f"ab{half}") == "ab\ufffd"


def test_prompts_examples_and_other_texts_are_refused_by_name_before_any_model_reads_them(
    tiny: cc.LanguageModel,
) -> None:
    for use in (
        lambda: cc.generate(tiny, BAD, cc.CoftPolicy(), max_new_tokens=1),
        lambda: cc.plan(tiny, BAD, cc.VanillaPolicy(), ()),
        lambda: cc.score(tiny, BAD, " x", cc.VanillaPolicy(), ()),
    ):
        with pytest.raises(InvalidInputError) as refused:
            use()
        assert str(refused.value) == f"A text that the model is to read {PROBLEM}."
    good = cc.Example("He went", " home", spans=())
    for example in (cc.Example(BAD, " x", spans=()), cc.Example("He said", f" {HALF}", spans=())):
        with pytest.raises(InvalidInputError, match=r"Example 2: .* holds half of a character \(U\+D83D"):
            cc.calibrate(tiny, [good, example])
    tokenizer = tiny.tokenizer
    with pytest.raises(InvalidInputError, match="The continuation holds half"):
        cc.score(tiny, "He said", HALF, cc.VanillaPolicy(), ())
    with pytest.raises(InvalidInputError, match="The hint of the soft mask holds half"):
        mask_prompt(tokenizer, "He said", [cc.Span(0, 2, "gender")], mode="soft", hint=HALF)
    with pytest.raises(SentinelError, match="not exactly one token"):
        resolve_sentinel(tokenizer, HALF)
    with pytest.raises(InvalidInputError, match="The token to force holds half"):
        forced_token(tiny, HALF)
    with pytest.raises(InvalidInputError, match="A text that the model is to read holds half"):
        cc.plan(tiny, "He said", SddPolicy(descriptions=(HALF,)), ())


def test_an_uploaded_row_is_refused_with_its_line_and_column(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    for field in ("prompt", "reference", "group", "context"):
        path.write_text(json.dumps({"prompt": "He", "reference": "was", field: BAD}), "utf-8")
        (error,) = parse_prompt_set(path, "rows.jsonl", 10_000).errors
        assert (error.line, error.column, error.message) == (1, field, PROBLEM)
    for field in ("prompt", "answer", "pair"):
        path.write_text(json.dumps({"prompt": "He was", "answer": "x", field: BAD}), "utf-8")
        with pytest.raises(ServiceError, match=f"rows.jsonl, line 1: {field} holds half of a character"):
            read_tuning_set(path)
