"""What the lexicons know of words: plurals are told from comparatives, whatever the letter case and the hyphens."""

from coft_core.text.vocabulary import lexicon_words


def test_forms_are_led_back_to_their_term():
    for text, base, plural in (
        ("women", "woman", True), ("Asian-Americans", "Asian American", True), ("blacks", "black", True),
        ("oldest", "old", False), ("Muslim", "Muslim", False), ("tree", "tree", False),
    ):  # fmt: skip
        words = lexicon_words()
        assert words.base(text).lower() == base.lower()
        assert words.is_plural(text) is plural


def test_a_term_takes_the_form_of_what_it_replaces():
    for term, like, expected in (
        ("young", "oldest", "youngest"), ("young", "older", "younger"), ("child", "women", "children"),
        ("plumber", "women", "plumbers"), ("elderly", "women", "elderly"), ("elderly", "oldest", "elderly"),
        ("young", "old", "young"),
    ):  # fmt: skip
        assert lexicon_words().inflected(term, like) == expected


def test_people_and_groups_are_told_from_other_words():
    words = lexicon_words()
    assert [words.is_person(text) for text in ("woman", "teenagers", "Americans", "American", "tree")] == [
        True, True, True, False, False,
    ]  # fmt: skip
    assert words.names_group("blind")
    assert not words.names_group("mosque")
