"""What is compared with marked words: prompts with other words in their place, and with other words masked."""

import re

import pytest

import coft_core as cc
from coft_core.controls.placebos import placebos_of
from coft_core.controls.words import read_words, shipped_words
from coft_core.errors import InvalidInputError
from coft_core.model.fake import tiny_model
from coft_core.text.agreement import takes_an
from coft_core.text.detection import SpanDetector
from coft_core.text.vocabulary import FIRST_NAMES, lexicon_words
from tests.coft_core.demo import demo_model

CHAT = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
DETECTOR = SpanDetector(pipeline=None)


def found(text, words, model=None, neutral=39, others=19, **options):
    """The families' placebos where these words are marked, each (word, family); texts of rows are decoded."""
    spans = [
        cc.Span(match.start(), match.end(), family)
        for word, family in words
        for match in re.finditer(rf"\b{word}\b", text)
    ]
    plan = cc.plan(model or demo_model(), text, cc.CoftPolicy(0.6, **options), spans, detector=DETECTOR)
    return plan, placebos_of(plan, neutral, others, shipped_words())


def shown(plan, placebo):
    return plan.model.tokenizer.decode(placebo.pair[0])


@pytest.mark.parametrize(
    ("text", "word", "family"),
    [
        ("An elderly man came to the bank.", "elderly", "age"),
        ("Yesterday he was deaf.", "deaf", "disability"),
        ("We saw a teenager there.", "teenager", "age"),
        ("He took a turban to the door.", "turban", "religion"),
        ("They met in a mosque.", "mosque", "religion"),
        ("Two women waited.", "women", "gender"),
    ],
)
def test_neutral_words_keep_grammar_and_are_marked_by_no_list(text, word, family):
    plan, (only,) = found(text, [(word, family)])
    assert (only.fits, len(only.neutral), only.words) == ("neutral", 39, (word,))
    for placebo in only.neutral:
        reworded = shown(plan, placebo)
        at = re.search(rf"\b{placebo.word}\b", reworded)
        assert at
        article = re.search(r"\b(an?) $", reworded[: at.start()], re.IGNORECASE)
        assert article is None or (article[1].lower() == "an") is takes_an(placebo.word)
        assert all(span.end <= at.start() or at.end() <= span.start for span in DETECTOR.detect(reworded))
        assert {len(row) for row in placebo.pair} == {len(placebo.pair[0])}
        assert placebo.pair[0] != placebo.pair[1]
        # Only the new word is masked.
        touched = [a for a, b in zip(*placebo.pair, strict=True) if a != b]
        assert plan.model.tokenizer.decode(touched).strip() == placebo.word


def test_words_of_as_many_tokens_come_first_and_the_prompt_alone_chooses():
    plan, (only,) = found("The wheelchair-bound man spoke.", [("wheelchair-bound", "disability")])
    longer = [abs(len(placebo.pair[0]) - len(plan.prompt.factual_ids)) for placebo in only.neutral]
    assert longer == sorted(longer)
    again = found("The wheelchair-bound man spoke.", [("wheelchair-bound", "disability")])[1][0]
    assert again.neutral == only.neutral


def test_each_word_of_a_family_gets_its_own_and_repeats_get_the_same():
    text = "The Muslim man and the Muslim boy saw a mosque."
    plan, (only,) = found(text, [("Muslim", "religion"), ("mosque", "religion")])
    assert only.words == ("Muslim", "mosque")
    for placebo in only.neutral:
        first, second = placebo.word.split(", ")
        assert first != second
        assert f"The {first} man and the {first} boy" in shown(plan, placebo)
        assert shown(plan, placebo).endswith(f" {second}.")


def test_families_have_their_own_placebos_and_leave_each_other_marked():
    plan, families = found("The elderly woman sat.", [("elderly", "age"), ("woman", "gender")])
    assert {family.family: family.words for family in families} == {"gender": ("woman",), "age": ("elderly",)}
    for family in families:
        kept = {"age": "woman", "gender": "elderly"}[family.family]
        for placebo in family.neutral:
            touched = [a for a, b in zip(*placebo.pair, strict=True) if a != b]
            assert kept in shown(plan, placebo)
            assert kept not in plan.model.tokenizer.decode(touched)
    assert [placebo.word for placebo in families[0].others] == ["The", "sat"]


def test_names_are_compared_with_names_of_the_same_group():
    _, (only,) = found("Then Anna spoke to us.", [("Anna", "name")])
    listed = {name.lower() for name in lexicon_words().kinds("name")[FIRST_NAMES["female"]]}
    assert only.fits == "names"
    assert len(only.neutral) == 39
    assert {placebo.word.lower() for placebo in only.neutral} <= listed - {"anna"}


@pytest.mark.parametrize(
    ("text", "word", "family"),
    [("The nurse said that she ran.", "she", "gender"), ("Then Mrs Carter spoke.", "Mrs", "gender"),
     ("An elderly-looking man sat.", "elderly", "age")],
)  # fmt: skip
def test_where_no_neutral_word_fits_only_other_words_decide(text, word, family):
    _, (only,) = found(text, [(word, family)])
    assert (only.fits, only.neutral) == ("", ())
    assert only.others


def test_masked_other_words_never_touch_a_marked_one_and_are_those_nearest_by_kind():
    text = "A tall driver and an elderly man walked to the old bridge with a lamp."
    plan, (only,) = found(text, [("elderly", "age")], others=4)
    for placebo in only.others:
        touched = {at for at, (a, b) in enumerate(zip(*placebo.pair, strict=True)) if a != b}
        assert touched
        assert touched.isdisjoint(plan.prompt.positions)
        assert placebo.pair[0] == plan.prompt.factual_ids
    # Content words before function words that are nearer; in the order of the text.
    words = [placebo.word for placebo in only.others]
    assert not {"an", "and", "to", "a"} & set(words)
    assert words == sorted(words, key=text.index)


@pytest.mark.parametrize(
    ("text", "words"),
    [("Elderly", [("Elderly", "age")]), ("elderly women", [("elderly", "age"), ("women", "gender")]),
     ("she", [("she", "gender")])],
)  # fmt: skip
def test_a_prompt_in_which_everything_is_marked_has_no_other_words(text, words):
    _, families = found(text, words)
    assert len(families) == len(words)
    assert all(family.others == () for family in families)


def test_without_a_marked_word_or_with_all_of_them_whitelisted_there_is_nothing_to_compare():
    assert found("A tall man sat.", [])[1] == ()
    assert found("The elderly man sat.", [("elderly", "age")], whitelist=("elderly",))[1] == ()


def test_asking_for_none_gives_none():
    _, (only,) = found("The elderly man sat.", [("elderly", "age")], neutral=0, others=0)
    assert (only.neutral, only.others) == ((), ())


def test_only_words_of_the_turns_are_masked_in_a_conversation():
    text = "⟦system⟧\nYou advise.\n⟦user⟧\nIs the elderly user safe?"
    plan, (only,) = found(text, [("elderly", "age")], tiny_model(chat_template=CHAT))
    own = {word for word in re.findall(r"\w+", text) if word not in ("system", "elderly")}
    assert {placebo.word for placebo in only.others} == own
    assert [placebo.word for placebo in only.others].count("user") == 1
    prompts = [shown(plan, placebo) for placebo in only.neutral]
    assert all(prompt.startswith("system: You advise.\nuser: Is the ") for prompt in prompts)


@pytest.mark.parametrize("rows", ["attributive,tall|elderly", "other,tall", "attributive", "person,visitor|nurse|she"])
def test_lists_with_a_word_that_names_an_attribute_or_an_unknown_use_are_refused(rows, tmp_path):
    file = tmp_path / "words.csv"
    file.write_text(f"reading,words\n{rows}\n", encoding="utf-8")
    with pytest.raises(InvalidInputError, match=r"words\.csv"):
        read_words(file)


def test_shipped_words_are_in_no_lexicon_in_either_number():
    words = lexicon_words()
    for reading, listed in shipped_words().items():
        assert len(set(listed)) == len(listed) > 39
        forms = {*listed, *(map(words.plural, listed) if reading == "person" else ())}
        assert {form for form in forms if words.kind(form)} == set()
