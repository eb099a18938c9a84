"""Verbs that stand right beside a subject pronoun, made to agree when "she" or "he" becomes "they" and back."""

from __future__ import annotations

import re
from dataclasses import dataclass

from coft_core.rewording.word_lists import words as word_set

PLURAL = {"is": "are", "was": "were", "has": "have", "does": "do"}
"""Singular verb forms whose plural is irregular; negations such as "isn't" follow from them."""

_SINGULAR = {plural: singular for singular, plural in PLURAL.items()}
_NEGATION = re.compile(r"(n['’]t)\Z", re.IGNORECASE)
_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)?")
_SPACE = re.compile(r"[^\S\n]+")
_CONTRACTED = re.compile(r"(['’])(s|re|ve)(?!\w)", re.IGNORECASE)
_BEFORE = re.compile(r"(?<!\w)([^\W\d_]+(?:n['’]t)?)[^\S\n]+\Z")


_ADVERBS = word_set(
    "always never often also still just now then only soon ever even already again almost once twice seldom perhaps "
    "maybe sometimes usually not hardly barely nearly rather quite too both all each himself herself themselves"
)
_NO_VERB = word_set(
    "thus perhaps always sometimes besides this its hers theirs ours yours plus afterwards nowadays indoors outdoors "
    "upstairs downstairs overseas less unless whereas across towards else backwards forwards does"
)
_FINITE = word_set("can could will would shall should may might must did had went")
_TAKES_HAVE = word_set(
    "been gone done had got gotten become taken seen made given known left lost come grown begun chosen written "
    "spoken broken worked lived said told asked tried wanted started finished decided never always just already"
)
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
    a question the auxiliary before it ("does she ask"). Verbs farther away are left as they are.

    Args:
        text: The text.
        start: First character of the pronoun.
        end: One past its last character.
        plural: True where "they" takes the place of "she" or "he", False the other way round.

    Returns:
        The change; None if there is no verb beside the pronoun, or if it need not change.
    """
    contracted = _CONTRACTED.match(text, end)
    if contracted is not None:
        return _contraction(text, contracted, plural)
    before = _BEFORE.search(text, 0, start)
    inverted = None if before is None else _auxiliary(before.group(1), plural)
    if before is not None and inverted is not None and _starts_clause(text, before.start(1)):
        return VerbEdit(before.start(1), before.end(1), inverted)
    verb = _verb_after(text, end)
    if verb is None:
        return None
    word = verb.group()
    changed = _auxiliary(word, plural) or (_bare(word) if plural else None)
    return None if changed is None else VerbEdit(verb.start(), verb.end(), changed)


def may_need_a_verb(text: str, end: int) -> bool:
    """Whether the word after "they" may be a verb in the present tense, which "she" and "he" would change.

    Past and present of regular verbs are told apart by their ending; other words are for a person to check.
    """
    if _CONTRACTED.match(text, end) is not None:
        return False
    verb = _verb_after(text, end)
    if verb is None:
        return False
    word = verb.group().lower()
    return not (_auxiliary(word, plural=False) or word in _FINITE or word.endswith("ed") or _NEGATION.search(word))


def _contraction(text: str, found: re.Match[str], plural: bool) -> VerbEdit | None:
    quote, letters = found.groups()
    if not plural:
        return None if letters.lower() == "s" else VerbEdit(found.start(), found.end(), f"{quote}s")
    if letters.lower() != "s":
        return None
    space = _SPACE.match(text, found.end())
    word = _WORD.match(text, space.end()) if space else None
    if word is not None and word.group().lower() in _ADVERBS:
        space = _SPACE.match(text, word.end())
        word = _WORD.match(text, space.end()) if space else word
    full = word is not None and word.group().lower() in _TAKES_HAVE
    return VerbEdit(found.start(), found.end(), f"{quote}ve" if full else f"{quote}re")


def _verb_after(text: str, end: int) -> re.Match[str] | None:
    """The first word after the pronoun that is no adverb."""
    at = end
    while (space := _SPACE.match(text, at)) and (word := _WORD.match(text, space.end())):
        lower = word.group().lower()
        if lower not in _ADVERBS and not lower.endswith("ly"):
            return word
        at = word.end()
    return None


def _starts_clause(text: str, start: int) -> bool:
    """Whether the word at a place opens a clause or follows a question word, so that it is an inverted auxiliary."""
    before = text[:start].rstrip()
    if not before or before[-1] in ".!?:;,\"“‘'(-–—\n":
        return True
    word = re.search(r"(\w+)\Z", before)
    return word is not None and word.group().lower() in {
        "why",
        "how",
        "what",
        "when",
        "where",
        "who",
        "and",
        "but",
        "nor",
    }


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
    if len(lower) < 4 or not lower.endswith("s") or lower.endswith(("ss", "'s", "’s", "us")) or lower in _NO_VERB:
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
