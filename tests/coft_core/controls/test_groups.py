"""Controls of exchanged attributes: words for one group, and wordings of one prompt."""

from itertools import combinations

import pytest

from coft_core.controls.groups import Group, group_of, members, paraphrased, reading_of, shipped_groups, wordings
from coft_core.errors import InvalidInputError
from coft_core.text.vocabulary import lexicon_words
from coft_core.types import Span

PROMPT = "An elderly cook did not leave. A few days later"
SPANS = (Span(3, 10, "age"),)


def test_every_shipped_group_has_eight_words_that_no_other_group_has_in_the_same_use():
    for group in shipped_groups():
        assert len(set(group.words)) == len(group.words) >= 8, group.name
        assert "slur" not in map(lexicon_words().kind, group.words), group.name
    for one, other in combinations(shipped_groups(), 2):
        if one.name != other.name and ("any" in (one.reading, other.reading) or one.reading == other.reading):
            assert [word for word in one.words if other.has(word)] == [], (one.name, other.name)


@pytest.mark.parametrize(
    ("words", "reading", "name"),
    [
        (("elderly",), "adjective", "older people"),
        (("Pensioners",), "noun", "older people"),
        (("Old", "aged"), "adjective", "older people"),
        (("elderly", "young"), "adjective", "elderly, young"),
        (("Muslims",), "noun", "Muslims"),
        (("Emily",), "noun", "names of white women"),
        (("Olivia",), "noun", "women's names"),
        (("tall",), "adjective", "tall"),
    ],
)
def test_words_are_found_in_the_group_that_has_all_of_them_in_their_use(words, reading, name):
    assert group_of(words, reading).name == name


def test_a_given_list_takes_the_place_of_the_shipped_one_with_its_name_and_knows_words_of_its_own():
    given = (Group("older people", ("old", "ancient")), Group("tall people", ("tall", "lanky")))
    assert group_of(["elderly"], "adjective", given) is given[0]
    assert group_of(["Tall"], "adjective", given) is given[1]


def test_compared_words_come_first_and_others_depend_on_the_prompt_only():
    group = Group("women's names", tuple(f"N{number}" for number in range(50)))
    chosen = members(group, ("n7",), 9, PROMPT)
    assert chosen[0] == "n7"
    assert len(set(chosen)) == 9
    assert "N7" not in chosen
    assert chosen == members(group, ("n7",), 9, PROMPT) != members(group, ("n7",), 9, "Another prompt")
    assert members(group, ("a", "b"), 1, PROMPT) == ("a", "b")


def test_a_marked_word_is_an_adjective_or_a_noun():
    assert reading_of(PROMPT, SPANS[0], SPANS) == "adjective"
    assert reading_of("The elderly left", Span(4, 11, "age"), ()) == "noun"


def test_wordings_keep_the_marked_words_and_change_something_else():
    made = wordings(PROMPT, SPANS, 39)
    assert len({one.text for one in made.values()} | {PROMPT}) == len(made) + 1 >= 6
    assert made["a few → some"].text == "An elderly cook did not leave. Some days later"
    assert made["did not → didn't"].text == "An elderly cook didn't leave. A few days later"
    for one in made.values():
        assert [one.text[span.start : span.end] for span in one.spans] == ["elderly"]
    assert len(wordings(PROMPT, SPANS, 3)) == 3
    assert "a few → some" not in wordings(PROMPT, (Span(31, 36, "other"),), 39)


def test_a_conversation_is_reworded_within_the_users_turns():
    text = "⟦system⟧\nBe brief.\n⟦user⟧\nHe left."
    made = wordings(text, (Span(26, 28, "gender"),), 39)
    assert len(made) >= 5
    for one in made.values():
        assert one.text.startswith("⟦system⟧\nBe brief.\n⟦user⟧\n")
        assert one.text[one.spans[0].start :].startswith("He left.")


def test_a_paraphrase_has_the_spans_where_it_has_their_words_one_after_the_other():
    text, spans = "She said she left", (Span(9, 12, "gender"), Span(0, 3, "gender"))
    found = paraphrased(text, spans, "What she said: she left")
    assert [(span.start, span.end) for span in found] == [(15, 18), (5, 8)]
    with pytest.raises(InvalidInputError, match="lacks the marked word “elderly”"):
        paraphrased(PROMPT, SPANS, "An elder cook left")
