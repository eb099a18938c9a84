"""English third-person pronouns and the verbs that agree with them: which form stands where, and what replaces it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from coft_core.rewording.word_lists import words as word_set
from coft_core.types import Span

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

_ALSO_READ: dict[str, tuple[PronounSet, Role]] = {"themself": ("they", "reflexive")}
_EITHER = {"s/he": "subject", "(s)he": "subject"}

_WORD = re.compile(
    r"\(s\)he\b|(?<![\w/])s/he\b|(?<![\w'’])(?:"
    + "|".join(sorted({form for forms in FORMS.values() for form in forms.values()} | set(_ALSO_READ), key=len)[::-1])
    + r")(?!\w)",
    re.IGNORECASE,
)
_NEXT_WORD = re.compile(r"[^\S\n]+[\"“‘(]?([^\W_][\w'’-]*)")
_LAST_WORD = re.compile(r"(\w+)\W*\Z")
_PAIR = re.compile(r"\s*/\s*|\s+or\s+", re.IGNORECASE)


_NO_NOUN = word_set(
    """
    a an the this that these those some any no each every i you he she it we they who whom whose which what when where
    why how and or but nor so because since if unless until while although though than as to for from with without by
    at in on into onto of off about after before over under between through during against among around behind beside
    up down out away back here there now then again today tonight tomorrow yesterday too also not is are was were be
    been am has have had does do did will would can could shall should may might must yet once alone instead either
    """
)
"""Words before which "her" is an object and "his" stands alone: no noun follows that they could possess."""
_BEFORE_BARE_VERB = word_set(
    "let lets made make makes help helps helped see sees saw seen hear hears heard watch watches watched feel felt "
    "have had"
)


@dataclass(frozen=True, slots=True)
class Pronoun:
    """One pronoun of a text.

    Attributes:
        start: First character.
        end: One past the last.
        sets: The sets that it belongs to: one, or both of ``she`` and ``he`` for forms such as "he/she" and "s/he".
        role: Its role.
        sure: Whether the role is beyond doubt.
    """

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
    found: list[Pronoun] = []
    for single in _singles(text):
        last = found[-1] if found else None
        both = (
            None if last is None or _PAIR.fullmatch(text, last.end, single.start) is None else _both(text, last, single)
        )
        if both is None:
            found.append(single)
        else:
            found[-1] = both
    return tuple(found)


def is_pronoun(span: Span, pronouns: Sequence[Pronoun]) -> bool:
    """Whether a span is a pronoun and nothing else."""
    return any(item.start <= span.start and span.end <= item.end for item in pronouns)


def form_of(wanted: PronounSet, role: Role, replaced: str) -> str:
    """The form of a set in a role, in the letter case of the word that it replaces."""
    form = FORMS[wanted][role]
    letters = [char for char in replaced if char.isalpha()]
    if len(letters) > 1 and all(char.isupper() for char in letters):
        return form.upper()
    return form.capitalize() if letters and letters[0].isupper() else form


def _singles(text: str) -> Iterator[Pronoun]:
    for match in _WORD.finditer(text):
        word = match.group().lower()
        if word in _EITHER:
            yield Pronoun(match.start(), match.end(), frozenset(("she", "he")), "subject")
            continue
        if word in _ALSO_READ:
            known, role = _ALSO_READ[word]
            yield Pronoun(match.start(), match.end(), frozenset((known,)), role)
            continue
        own = next(name for name in PRONOUN_SETS if word in FORMS[name].values())
        roles = [role for role in ROLES if FORMS[own][role] == word]
        role, sure = (roles[0], True) if len(roles) == 1 else _judged(text, match.start(), match.end(), roles)
        yield Pronoun(match.start(), match.end(), frozenset((own,)), role, sure)


def _judged(text: str, start: int, end: int, roles: list[Role]) -> tuple[Role, bool]:
    """Whether "her" or "his" belongs to a noun that follows, and whether that is beyond doubt."""
    alone = next(role for role in roles if role != "possessive")
    after = _NEXT_WORD.match(text, end)
    if after is None:
        return alone, True
    word = after.group(1).lower()
    if word in _NO_NOUN:
        return alone, True
    if alone == "possessive_pronoun":
        return "possessive", True
    before = _LAST_WORD.search(text[:start])
    doubtful = word.endswith("ly") or (before is not None and before.group(1).lower() in _BEFORE_BARE_VERB)
    return "possessive", not doubtful


def _both(text: str, first: Pronoun, second: Pronoun) -> Pronoun | None:
    """Two pronouns as one, if both can have one role and they mean "she" or "he", whichever fits."""
    if first.sets == second.sets or "they" in first.sets | second.sets:
        return None
    words = [text[part.start : part.end].lower() for part in (first, second)]
    shared = [role for role in ROLES if all(word in (FORMS["she"][role], FORMS["he"][role]) for word in words)]
    return Pronoun(first.start, second.end, first.sets | second.sets, shared[0]) if shared else None
