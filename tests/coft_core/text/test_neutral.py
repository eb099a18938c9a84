"""Neutral rewriting: nothing sensitive stays unnoticed, and the sentence still reads."""

import pytest

from coft_core.text.neutral import neutral_text
from tests.coft_core.text.test_counterfactuals import marked


def rewritten(written):
    return neutral_text(*marked(written)).text


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("The nurse said that [she|gender] was late.", "The nurse said that they were late."),
        ("A [saleswoman|gender] and two [salesmen|gender]", "A salesperson and two salespeople"),
        ("An [actress|gender]; the [women|gender]", "An actor; the people"),
        ("The [Muslim|religion] [man|gender] left", "The person left"),
        ("[Muslim|religion] [women|gender] left", "People left"),
        ("[Elderly|age] drivers left", "Drivers left"),
        ("An [old|age] tree", "A tree"),
        ("A very [old|age] teacher", "A teacher"),
        ("An [old|age] and tired teacher", "A tired teacher"),
        ("The [Muslim|religion] said so", "The person said so"),
        (
            "a [Muslim|religion], two [Muslims|religion] and the [blind|disability]",
            "a person, two people and the people",
        ),
        ("Is [he|gender] [Black|race]?", "Are they of a certain ethnicity?"),
        ("Our cook is very [old|age].", "Our cook is of a certain age."),
        ("A cook [aged 65|age] left", "A cook of a certain age left"),
        ("a [65-year-old|age] cook; a [65-year-old|age]", "a cook; a person"),
        ("They moved to [Mexico|nationality]", "They moved to a country"),
        ("my [mosque|religion] and [Islam|religion]", "my place of worship and a religion"),
        ("a [mentally ill person|disability]; [poor people|socioeconomic]", "a person; people"),
        ("the worst [disability|disability]", "the worst health condition"),
        ("due to [dyslexia|disability]", "due to a health condition"),
        ("A cook [in a wheelchair|disability]", "A cook in a certain state of health"),
        ("THE [OLD|age] [MAN|gender]", "THE PERSON"),
    ],
)
def test_a_masked_word_gives_way_to_what_does_not_say_which(written, expected):
    assert rewritten(written) == expected


def test_names_become_persons_or_follow_a_gender_unless_they_are_kept_visible():
    assert rewritten("[Mrs.|gender] [Ann|name] Smith met [Ann|name]'s aunt.") == "The person met the person's aunt."
    assert rewritten("[Ann|name] Lee met [Bob|name]. [Lee|name] left.") == "Person A met person B. Person A left."
    assert rewritten("[John|name|suggested] said [he|gender] is ill") == "The person said they are ill"
    assert rewritten("[John|name|suggested] is a [Hindu|religion]") == "John is a person"
    text, spans = marked("[He|gender|kept] met a [Hindu|religion|kept] and [Ann|name|kept]")
    assert neutral_text(text, spans).text == text


def test_words_without_a_neutral_one_and_what_can_no_longer_be_told_apart_are_named():
    made = neutral_text(*marked("a [nurse|other] in her [sixties|age], [child|age]-like since [childhood|age]"))
    assert made.text == "a nurse in her sixties, child-like since childhood"
    assert made.left == ("nurse", "sixties", "child", "childhood")
    made = neutral_text(
        *marked("The [Greek|nationality] cook and the [Turkish|nationality] cook; [she|gender] and [he|gender]")
    )
    assert made.text == "The cook and the cook; they and they"
    assert made.merged == (("greek", "turkish"), ("she", "he"))
    written = "[She|gender] and a [Black|race] [man|gender]"
    once = rewritten(written)
    assert neutral_text(once, ()).text == once
