"""How a word stands in its sentence: before a noun, after a verb of being, or as a noun itself."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from coft_core.rewording.vocabulary import LexiconWords
from coft_core.rewording.word_lists import words as word_set
from coft_core.types import Span

Standing = Literal["attributive", "predicative", "noun"]

_WORD = re.compile(r"[^\W\d_][\w'’-]*")
_NEXT = re.compile(r"[^\S\n]+([^\W\d_][\w'’-]*)")
_NO_NOUN_ENDING = re.compile(r"(?:ly|ed|n['’]t)\Z")
_NOUNS_IN_LY = word_set("family ally assembly supply reply bully belly")
_COMPOUND_AFTER = re.compile(r"[-‑]\w")
_COMPOUND_BEFORE = re.compile(r"\w[-‑]\Z")
_ALSO_ADJECTIVES = word_set("male female adult teen")
"""Words for people that also stand before nouns."""
_JOINED = re.compile(r"(?:,|[^\S\n]+and)[^\S\n]+")
_BEFORE = re.compile(r"([\w'’-]+)[^\S\n]+\Z")


_NO_NOUN = word_set(
    """
    a an the this that these those my your his her its our their and or but nor so because since if unless until while
    although though than as to for from with without by at in on into onto of off about after before over under between
    through during against among around behind beside up down out who whom whose which what when where why how i you he
    she it we they not is are was were be been being am has have had does do did will would can could shall should may
    might must said says say asked asks told tells went goes came comes saw sees got gets made makes took takes gave
    gives knew knows thought thinks felt feels left leaves lives works worked wanted wants needed needs tried tries
    walked walks looked looks stood stands sat sits began begins became becomes bought buys paid pays wrote writes read
    reads ran runs met meets won wins lost loses never always often also still just now then already too here there
    yesterday today tomorrow again found kept held brought heard let meant put rose sent set showed slept spent spoke
    stole taught threw understood woke wore drove drank ate fell fought flew forgot grew hit hurt laid led sold quit cut
    caught chose drew broke built sang shook swam swore tore
    """
)
"""Words that are no noun: before them a word that could be an adjective is a noun itself."""
_BEING = word_set(
    "is are was were be been being am 's 're 'm isn't aren't wasn't weren't become becomes became seem seems seemed "
    "look looks looked feel feels felt remain remains remained turned grew"
)
_BETWEEN = word_set("very not never still also so too quite rather just now always both openly really currently")
_SUBJECTS = word_set("i you he she it we they")
_INTENSIFIED = re.compile(r"(?<!\w)(?:(?:very|so|too|quite|rather|really|extremely|fairly)[^\S\n]+)+\Z", re.IGNORECASE)
_CONTRACTED = re.compile(r"['’](?:s|re|m)\Z")
_DETERMINERS = word_set(
    "a an the this that these those my your his her its our their no any each every either neither some one another "
    "what which whose"
)
_NUMBERS = word_set("two three four five six seven eight nine ten several many few most all both more")
_OWNERS = word_set("a an the my your his her its our their")
_ALONE_AFTER = word_set(
    "to for from with without by at in on into onto of off about after before over under between through during among "
    "against around behind beside and or but nor as than like is are was were be been being am become becomes who"
)


def standing(text: str, span: Span, spans: Sequence[Span], words: LexiconWords) -> Standing:
    """How the words of a span stand, judged by the words beside them; no parser is asked.

    Args:
        text: The text.
        span: The span.
        spans: All spans; what is marked beside it is read as a noun or another adjective.
        words: Knows plurals and words for people.
    """
    own = text[span.start : span.end]
    if words.is_plural(own) or (words.is_person(own) and own.lower() not in _ALSO_ADJECTIVES):
        return "noun"
    after = _NEXT.match(text, span.end)
    if after is not None:
        word = after.group(1)
        marked = any(other.start == after.start(1) and other != span for other in spans)
        lower = word.lower()
        is_noun = lower in _NOUNS_IN_LY or not (lower in _NO_NOUN or _NO_NOUN_ENDING.search(lower))
        if words.is_person(word) or (is_noun and not word.istitle()) or (marked and lower not in _NO_NOUN):
            return "attributive"
    if has_determiner(text, span.start) and joined_end(text, span.end) is not None:
        return "attributive"
    before, start = _before_adverbs(text, span.start)
    if before in _SUBJECTS:  # a question: "is he blind"
        before, _ = _before_adverbs(text, start)
    return "predicative" if before in _BEING or _CONTRACTED.search(before) else "noun"


def joined_end(text: str, end: int) -> int | None:
    """Where the next adjective begins, if one is joined to a word: "old and tired teacher", "old, tired teacher".

    Args:
        text: The text.
        end: One past the word.
    """
    found = _JOINED.match(text, end)
    if found is None:
        return None
    adjective = _WORD.match(text, found.end())
    noun = None if adjective is None else _NEXT.match(text, adjective.end())
    if adjective is None or noun is None:
        return None
    words = {adjective.group().lower(), noun.group(1).lower()}
    return None if words & (_NO_NOUN | _DETERMINERS | _NUMBERS) else found.end()


def is_compound_part(text: str, span: Span) -> bool:
    """Whether a hyphen joins a span to another word, as in "child-like", and so changes what it means."""
    return _COMPOUND_AFTER.match(text, span.end) is not None or _COMPOUND_BEFORE.search(text, 0, span.start) is not None


def previous_word(text: str, start: int) -> str | None:
    """The word before a place in lower case, if nothing but white space lies between."""
    found = _BEFORE.search(text, 0, start)
    return None if found is None else found.group(1).lower().replace("’", "'")


def has_determiner(text: str, start: int) -> bool:
    """Whether a determiner or a possessive stands right before a place."""
    word = previous_word(text, start)
    return word is not None and (word in _DETERMINERS or word.endswith(("'s", "s'")))


def is_determined(text: str, start: int) -> bool:
    """Whether a noun at a place has a determiner, also with an adjective between: "the worst illness"."""
    if has_determiner(text, start):
        return True
    found = _BEFORE.search(text, 0, start)
    if found is None or found.group(1).lower() in _NO_NOUN:
        return False
    return has_determiner(text, found.start())


def has_owner(text: str, start: int) -> bool:
    """Whether an article, a possessive pronoun or a possessive stands right before a place."""
    word = previous_word(text, start)
    return word is not None and (word in _OWNERS or word.endswith(("'s", "s'")))


def begins_phrase(text: str, start: int) -> bool:
    """Whether a noun at a place has nothing before it that belongs to it: it follows a preposition, or no word."""
    word = previous_word(text, start)
    return word is None or word in _ALONE_AFTER


def intensified_start(text: str, start: int) -> int:
    """Where the words before an adjective begin that only say how much: "very old"."""
    found = _INTENSIFIED.search(text, 0, start)
    return start if found is None else found.start()


def _before_adverbs(text: str, start: int) -> tuple[str, int]:
    """The word before a place and before the adverbs there, in lower case, and where it begins; empty without one."""
    at = start
    while found := _BEFORE.search(text, 0, at):
        word = found.group(1).lower().replace("’", "'")
        if word not in _BETWEEN and not word.endswith("ly"):
            return word, found.start()
        at = found.start()
    return "", at
