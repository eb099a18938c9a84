"""Agreement in English sentences, told by the words beside a place: articles, verbs, pronouns, and how a word stands.

No parser is asked, so that a rewording depends on nothing but the rules and word lists here.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from coft_core.text.vocabulary import LexiconWords, grammar_lists
from coft_core.types import Span

_LISTS = grammar_lists()
"""Small words by what they tell of the words beside them: before ``no_noun_after_her``, "her" is an object."""

_SILENT_H = ("hour", "honest", "honor", "honour", "heir")
_YOU_OR_ONE = re.compile(
    r"eu|ew|one(?![a-mo-z])|once|oui|u(?:k|f|gand|yg|biq|ni(?![nm]|den)|s[aeiu]|t[aeio]|r[aiou]|vul)(?!ber)"
)
"""Words that are written with a vowel first and spoken with a consonant: European, one-armed, university, user."""
_VOWEL_LETTERS = frozenset("AEFHILMNORSX")
_SPOKEN_AS_WORDS = frozenset(("NASA", "NATO", "FIFA", "HUD", "LASER", "RADAR", "SARS", "SIM", "SWAT", "FEMA", "MENSA"))
_START = re.compile(r"[\W_]*([^\W_]+)")


def takes_an(phrase: str) -> bool | None:
    """Whether a phrase takes "an"; None where it begins with no letter or digit.

    Numbers and abbreviations go by how they are spoken: an 8-year-old, an HIV-positive man, a UN worker.
    """
    start = _START.match(phrase)
    if start is None:
        return None
    word = start.group(1)
    digits = re.match(r"\d+", word)
    if digits is not None:
        return _number_takes_an(digits.group())
    plain = "".join(c for c in unicodedata.normalize("NFKD", word) if not unicodedata.combining(c))
    if len(plain) == 1 or (plain.isupper() and plain not in _SPOKEN_AS_WORDS and _is_spelled_out(plain)):
        return plain[0].upper() in _VOWEL_LETTERS
    lower = plain.lower()
    if lower.startswith(_SILENT_H):
        return True
    return lower[:1] in "aeiou" and _YOU_OR_ONE.match(lower) is None


def _number_takes_an(digits: str) -> bool:
    """Eight, eleven, eighteen and the eighties, as the number's first group of three digits is spoken."""
    leading = digits[: (len(digits) - 1) % 3 + 1]
    return leading.startswith("8") or leading in ("11", "18")


def _is_spelled_out(word: str) -> bool:
    """Whether capitals are read letter by letter: short ones are, longer ones only without a vowel to speak them by."""
    return len(word) <= 4 or not any(letter in "AEIOU" for letter in word[1:])


PLURAL = {"is": "are", "was": "were", "has": "have", "does": "do"}
"""Singular verb forms whose plural is irregular; negations such as "isn't" follow from them."""

_SINGULAR = {plural: singular for singular, plural in PLURAL.items()}
_NEGATION = re.compile(r"(n['’]t)\Z", re.IGNORECASE)
_VERB_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)?")
_SPACE = re.compile(r"[^\S\n]+")
_CONTRACTED_VERBS = re.compile(r"(['’])(s|re|ve)(?!\w)", re.IGNORECASE)
_BEFORE_VERB = re.compile(r"(?<!\w)([^\W\d_]+(?:n['’]t)?)[^\S\n]+\Z")


_IRREGULAR = {"dies": "die", "lies": "lie", "ties": "tie", "vies": "vie", "focuses": "focus", "biases": "bias"}
_KEEPS_E = re.compile(r"(?:aches|caches|axes|shoes|toes|[^sz]zes|[^s]ses)\Z")
_DROPS_ES = re.compile(r"(?:sses|shes|ches|xes|zzes|oes)\Z")


@dataclass(frozen=True, slots=True)
class VerbEdit:
    """A verb's characters and what they become."""

    start: int
    end: int
    text: str


def agreeing_edit(text: str, start: int, end: int, plural: bool) -> VerbEdit | None:
    """How the verb beside a subject pronoun changes with the pronoun's number.

    The verb is the contraction at the pronoun ("she's"), the word after it, adverbs left out ("she often asks"), or in
    a question the auxiliary before it ("does she ask"). Verbs farther away are left as they are. ``plural`` says that
    "they" takes the place of "she" or "he", and not the other way round.
    """
    if contracted := _CONTRACTED_VERBS.match(text, end):
        return _contraction(text, contracted, plural)
    before = _BEFORE_VERB.search(text, 0, start)
    inverted = _auxiliary(before.group(1), plural) if before else None
    if before and inverted and _starts_clause(text, before.start(1)):
        return VerbEdit(before.start(1), before.end(1), inverted)
    verb = _verb_after(text, end)
    changed = (_auxiliary(verb.group(), plural) or (_bare(verb.group()) if plural else None)) if verb else None
    return VerbEdit(verb.start(), verb.end(), changed) if verb and changed else None


def may_need_a_verb(text: str, end: int) -> bool:
    """Whether the word after "they" may be a verb in the present tense, which "she" and "he" would change.

    Past and present of regular verbs are told apart by their ending; other words are for a person to check.
    """
    verb = _verb_after(text, end)
    if verb is None or _CONTRACTED_VERBS.match(text, end):
        return False
    word = verb.group().lower()
    return not (
        _auxiliary(word, plural=False) or word in _LISTS["finite"] or word.endswith("ed") or _NEGATION.search(word)
    )


def _contraction(text: str, contracted: re.Match[str], plural: bool) -> VerbEdit | None:
    quote, letters = contracted.groups()
    if plural is not (letters.lower() == "s"):
        return None
    if not plural:
        return VerbEdit(contracted.start(), contracted.end(), f"{quote}s")
    space = _SPACE.match(text, contracted.end())
    word = _VERB_WORD.match(text, space.end()) if space else None
    if word is not None and word.group().lower() in _LISTS["adverbs"]:
        space = _SPACE.match(text, word.end())
        word = _VERB_WORD.match(text, space.end()) if space else word
    full = word is not None and word.group().lower() in _LISTS["takes_have"]
    return VerbEdit(contracted.start(), contracted.end(), f"{quote}ve" if full else f"{quote}re")


def _verb_after(text: str, end: int) -> re.Match[str] | None:
    """The first word after the pronoun that is no adverb."""
    at = end
    while (space := _SPACE.match(text, at)) and (word := _VERB_WORD.match(text, space.end())):
        lower = word.group().lower()
        if lower not in _LISTS["adverbs"] and not lower.endswith("ly"):
            return word
        at = word.end()
    return None


def _starts_clause(text: str, start: int) -> bool:
    """Whether the word at a place opens a clause or follows a question word, so that it is an inverted auxiliary."""
    before = text[:start].rstrip()
    if not before or before[-1] in ".!?:;,\"“‘'(-–—\n":
        return True
    word = re.search(r"(\w+)\Z", before)
    return word is not None and word.group().lower() in _LISTS["before_inversion"]


def _auxiliary(word: str, plural: bool) -> str | None:
    """The other number of a form of "be", "have" or "do", also negated, in the same letter case."""
    negation = _NEGATION.search(word)
    stem = word[: negation.start()] if negation else word
    other = (PLURAL if plural else _SINGULAR).get(stem.lower())
    if other is None:
        return None
    return _cased(other, stem) + (negation.group() if negation else "")


def _bare(word: str) -> str | None:
    """A verb in the third person singular without its ending; None for what does not look like one."""
    lower = word.lower()
    if (
        len(lower) < 4
        or not lower.endswith("s")
        or lower.endswith(("ss", "'s", "’s", "us"))
        or lower in _LISTS["no_verb"]
    ):
        return None
    if lower in _IRREGULAR:
        return _cased(_IRREGULAR[lower], word)
    if lower.endswith("ies"):
        return _cased(lower[:-3] + "y", word)
    if _DROPS_ES.search(lower) and not _KEEPS_E.search(lower):
        return _cased(lower[:-2], word)
    return _cased(lower[:-1], word)


def _cased(form: str, like: str) -> str:
    if len(like) > 1 and like.isupper():
        return form.upper()
    return form.capitalize() if like[:1].isupper() else form


PronounSet = Literal["she", "he", "they"]
Role = Literal["subject", "object", "possessive", "possessive_pronoun", "reflexive"]

PRONOUN_SETS: tuple[PronounSet, ...] = ("she", "he", "they")
ROLES: tuple[Role, ...] = ("subject", "object", "possessive", "possessive_pronoun", "reflexive")

FORMS: dict[PronounSet, dict[Role, str]] = {
    "she": dict(zip(ROLES, ("she", "her", "her", "hers", "herself"), strict=True)),
    "he": dict(zip(ROLES, ("he", "him", "his", "his", "himself"), strict=True)),
    "they": dict(zip(ROLES, ("they", "them", "their", "theirs", "themselves"), strict=True)),
}
"""Each set's form in each role: "her book" is possessive, "the book is hers" a possessive pronoun."""

_EITHER: tuple[frozenset[PronounSet], Role] = (frozenset(("she", "he")), "subject")
_ALSO_READ: dict[str, tuple[frozenset[PronounSet], Role]] = {
    "themself": (frozenset(("they",)), "reflexive"),
    "s/he": _EITHER,
    "(s)he": _EITHER,
}

_PRONOUN_WORD = re.compile(
    r"\(s\)he\b|(?<![\w/])s/he\b|(?<![\w'’])(?:"
    + "|".join(sorted({form for forms in FORMS.values() for form in forms.values()} | {"themself"}, key=len)[::-1])
    + r")(?!\w)",
    re.IGNORECASE,
)
_NEXT_WORD = re.compile(r"[^\S\n]+[\"“‘(]?([^\W_][\w'’-]*)")
_LAST_WORD = re.compile(r"(\w+)\W*\Z")
_PAIR = re.compile(r"\s*/\s*|\s+or\s+", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Pronoun:
    """One pronoun of a text."""

    start: int
    end: int
    sets: frozenset[PronounSet]
    role: Role
    sure: bool = True

    def meets(self, span: Span) -> bool:
        """Whether it shares a character with a span."""
        return self.start < span.end and span.start < self.end


def find_pronouns(text: str) -> tuple[Pronoun, ...]:
    """The third-person pronouns of a text in reading order; pairs such as "he or she" are one."""
    pronouns: list[Pronoun] = []
    for single in _singles(text):
        paired = pronouns and _PAIR.fullmatch(text, pronouns[-1].end, single.start)
        if paired and (both := _both(text, pronouns[-1], single)):
            pronouns[-1] = both
        else:
            pronouns.append(single)
    return tuple(pronouns)


def is_pronoun(span: Span, pronouns: Sequence[Pronoun]) -> bool:
    """Whether a span is a pronoun and nothing else."""
    return any(item.start <= span.start and span.end <= item.end for item in pronouns)


def form_of(wanted: PronounSet, role: Role, replaced: str) -> str:
    """The form of a set in a role, in the letter case of the word that it replaces."""
    return _cased(FORMS[wanted][role], "".join(filter(str.isalpha, replaced)))


def _singles(text: str) -> Iterator[Pronoun]:
    for match in _PRONOUN_WORD.finditer(text):
        word = match.group().lower()
        if word in _ALSO_READ:
            yield Pronoun(match.start(), match.end(), *_ALSO_READ[word])
            continue
        named = next(name for name in PRONOUN_SETS if word in FORMS[name].values())
        roles = [role for role in ROLES if FORMS[named][role] == word]
        role, sure = (roles[0], True) if len(roles) == 1 else _judged(text, match.start(), match.end(), roles)
        yield Pronoun(match.start(), match.end(), frozenset((named,)), role, sure)


def _judged(text: str, start: int, end: int, roles: list[Role]) -> tuple[Role, bool]:
    """Whether "her" or "his" belongs to a noun that follows, and whether that is beyond doubt."""
    alone = next(role for role in roles if role != "possessive")
    after = _NEXT_WORD.match(text, end)
    word = after.group(1).lower() if after else ""
    if not word or word in _LISTS["no_noun_after_her"]:
        return alone, True
    if alone == "possessive_pronoun":
        return "possessive", True
    before = _LAST_WORD.search(text[:start])
    doubtful = word.endswith("ly") or (before is not None and before.group(1).lower() in _LISTS["before_bare_verb"])
    return "possessive", not doubtful


def _both(text: str, first: Pronoun, second: Pronoun) -> Pronoun | None:
    """Two pronouns as one, if both can have one role and they mean "she" or "he", whichever fits."""
    if first.sets == second.sets or "they" in first.sets | second.sets:
        return None
    words = [text[part.start : part.end].lower() for part in (first, second)]
    shared = [role for role in ROLES if all(word in (FORMS["she"][role], FORMS["he"][role]) for word in words)]
    return Pronoun(first.start, second.end, first.sets | second.sets, shared[0]) if shared else None


Standing = Literal["attributive", "predicative", "noun"]

_WORD = re.compile(r"[^\W\d_][\w'’-]*")
_NEXT = re.compile(r"[^\S\n]+([^\W\d_][\w'’-]*)")
_NO_NOUN_ENDING = re.compile(r"(?:ly|ed|n['’]t)\Z")
_COMPOUND_AFTER = re.compile(r"[-‑]\w")
_COMPOUND_BEFORE = re.compile(r"\w[-‑]\Z")
_JOINED = re.compile(r"(?:,|[^\S\n]+and)[^\S\n]+")
_BEFORE = re.compile(r"([\w'’-]+)[^\S\n]+\Z")


_INTENSIFIED = re.compile(r"(?<!\w)(?:(?:very|so|too|quite|rather|really|extremely|fairly)[^\S\n]+)+\Z", re.IGNORECASE)
_CONTRACTED = re.compile(r"['’](?:s|re|m)\Z")
_BEFORE_SURNAME = re.compile(r"(?<!\w)(?:Mr|Mrs|Ms|Miss|Mx|Dr|Prof)\.?[^\S\n]+\Z")


def standing(text: str, span: Span, spans: Sequence[Span], words: LexiconWords) -> Standing:
    """How the words of a span stand, judged by the words beside them; what is marked there is noun or adjective."""
    phrase = text[span.start : span.end]
    if words.is_plural(phrase) or (words.is_person(phrase) and phrase.lower() not in _LISTS["also_adjectives"]):
        return "noun"
    after = _NEXT.match(text, span.end)
    if after is not None:
        word = after.group(1)
        marked = any(other.start == after.start(1) and other != span for other in spans)
        lower = word.lower()
        is_noun = lower in _LISTS["nouns_in_ly"] or not (lower in _LISTS["no_noun"] or _NO_NOUN_ENDING.search(lower))
        if words.is_person(word) or (is_noun and not word.istitle()) or (marked and lower not in _LISTS["no_noun"]):
            return "attributive"
    if has_determiner(text, span.start) and joined_end(text, span.end) is not None:
        return "attributive"
    before, start = _before_adverbs(text, span.start)
    if before in _LISTS["subjects"]:  # a question: "is he blind"
        before, _ = _before_adverbs(text, start)
    return "predicative" if before in _LISTS["being"] or _CONTRACTED.search(before) else "noun"


def joined_end(text: str, end: int) -> int | None:
    """Where the next adjective begins, if one is joined to a word: "old and tired teacher", "old, tired teacher"."""
    joined = _JOINED.match(text, end)
    adjective = joined and _WORD.match(text, joined.end())
    noun = adjective and _NEXT.match(text, adjective.end())
    if not (joined and adjective and noun):
        return None
    words = {adjective.group().lower(), noun.group(1).lower()}
    return None if words & (_LISTS["no_noun"] | _LISTS["determiners"] | _LISTS["numbers"]) else joined.end()


def is_compound_part(text: str, span: Span) -> bool:
    """Whether a hyphen joins a span to another word, as in "child-like", and so changes what it means."""
    return _COMPOUND_AFTER.match(text, span.end) is not None or _COMPOUND_BEFORE.search(text, 0, span.start) is not None


def previous_word(text: str, start: int) -> str | None:
    """The word before a place in lower case, if nothing but white space lies between."""
    before = _BEFORE.search(text, 0, start)
    return None if before is None else before.group(1).lower().replace("’", "'")


def has_determiner(text: str, start: int) -> bool:
    """Whether a determiner or a possessive stands right before a place."""
    word = previous_word(text, start)
    return word is not None and (word in _LISTS["determiners"] or word.endswith(("'s", "s'")))


def is_determined(text: str, start: int) -> bool:
    """Whether a noun at a place has a determiner, also with an adjective between: "the worst illness"."""
    if has_determiner(text, start):
        return True
    before = _BEFORE.search(text, 0, start)
    if before is None or before.group(1).lower() in _LISTS["no_noun"]:
        return False
    return has_determiner(text, before.start())


def has_owner(text: str, start: int) -> bool:
    """Whether an article, a possessive pronoun or a possessive stands right before a place."""
    word = previous_word(text, start)
    return word is not None and (word in _LISTS["owners"] or word.endswith(("'s", "s'")))


def is_surname(text: str, span: Span) -> bool:
    """Whether a name follows a title that goes with surnames: "Mr Carter"."""
    return _BEFORE_SURNAME.search(text, 0, span.start) is not None


def begins_phrase(text: str, start: int) -> bool:
    """Whether a noun at a place has nothing before it that belongs to it: it follows a preposition, or no word."""
    word = previous_word(text, start)
    return word is None or word in _LISTS["alone_after"]


def intensified_start(text: str, start: int) -> int:
    """Where the words before an adjective begin that only say how much: "very old"."""
    intensifiers = _INTENSIFIED.search(text, 0, start)
    return start if intensifiers is None else intensifiers.start()


def _before_adverbs(text: str, start: int) -> tuple[str, int]:
    """The word before a place and before the adverbs there, in lower case, and where it begins; empty without one."""
    at = start
    while before := _BEFORE.search(text, 0, at):
        word = before.group(1).lower().replace("’", "'")
        if word not in _LISTS["between"] and not word.endswith("ly"):
            return word, before.start()
        at = before.start()
    return "", at
