"""What controls found: effects of marked words beside those of comparable words, and what they say together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import TypeAdapter

from coft_core.controls.statistics import e_value, rank_of, step_down

LEVEL = 0.05
"""p-values up to this support a finding."""


@dataclass(frozen=True, slots=True)
class Effects:
    """What a word does at each step; see :mod:`coft_core.controls.measure`."""

    word: str
    effects: tuple[float, ...]
    log_ratios: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class FamilyRank:
    """A family's marked words in a summary of many texts.

    Attributes:
        family: The family.
        by: What decides: ``"neutral"`` words, ``"names"``, the prompt's ``"others"``, or nothing.
        rank: Their rank at the first step, 1 for the largest effect of so many ``rows``.
        rows: The controls that decide, and the marked words.
        effect: Their strongest effect in the text.
        p_value: Its p-value, corrected over all steps.
    """

    family: str
    by: str
    rank: int
    rows: int
    effect: float
    p_value: float

    @property
    def exchangeable(self) -> bool:
        """Whether it is compared with words that could be in its place, so that by chance all ranks are as likely."""
        return self.by in ("neutral", "names")


@dataclass(frozen=True, slots=True)
class FamilyControls:
    """The marked words of one family beside their controls.

    Attributes:
        marked: What the family's words do together.
        fits: What takes the words' place: ``"neutral"`` words, other ``"names"`` of the same group, or nothing.
        neutral: What those words do there.
        others: What the prompt's other words do, each masked by itself.
        p_values: For each step, corrected over all steps; 1 where there is no control.
        ranges: For the tokens watched at each step, the smallest and the largest probability with those words.
    """

    family: str
    marked: Effects
    fits: str
    neutral: tuple[Effects, ...]
    others: tuple[Effects, ...]
    p_values: tuple[float, ...] = ()
    ranges: tuple[tuple[tuple[float, float], ...], ...] = ()

    @property
    def deciding(self) -> tuple[Effects, ...]:
        """The controls that decide: comparable words, and the prompt's other words only where there are none."""
        return self.neutral or self.others

    def effects(self, controls: Sequence[Effects], steps: int | None = None) -> list[tuple[float, ...]]:
        """The table of effects with these controls at the first steps, or at all; the marked words are in row 0."""
        return [row.effects[:steps] for row in (self.marked, *controls)]

    def computed(self) -> tuple[float, ...]:
        """The p-values of the effects."""
        if not self.deciding:
            return (1.0,) * len(self.marked.effects)
        return tuple(step_down(self.effects(self.deciding)))

    @property
    def rank(self) -> int:
        """The rank of the effect at the first step among the deciding controls', 1 for the largest.

        What was written later was written with the marked word, so that only the first step treats all words alike.
        """
        return rank_of(self.effects(self.deciding, 1))

    @property
    def ranked(self) -> FamilyRank:
        """The rank, and the strongest effect."""
        by, rows = self.fits if self.neutral else "others" if self.others else "", len(self.deciding) + 1
        return FamilyRank(self.family, by, self.rank, rows, max(self.marked.effects), min(self.p_values))

    @property
    def rank_elsewhere(self) -> int:
        """The rank of the effect at the first step among those of the prompt's other words."""
        return rank_of(self.effects(self.others, 1))


@dataclass(frozen=True, slots=True)
class Controls:
    """The controls of a text, by family.

    Attributes:
        key: Digest of the model and the prompt with its masked words: the same prompt counts once as evidence.
        evidence: See :meth:`computed`.
    """

    families: tuple[FamilyControls, ...]
    key: str = ""
    evidence: float | None = None

    def to_json(self) -> bytes:
        """As it is stored."""
        return TypeAdapter(Controls).dump_json(self)

    @classmethod
    def from_json(cls, data: bytes) -> Controls:
        """What :meth:`to_json` gave."""
        return TypeAdapter(Controls).validate_json(data)

    def computed(self) -> float | None:
        """An e-value for "no marked word does more than comparable words", the mean over the families that have any.

        Like :attr:`FamilyControls.rank` it is that of the first step, so that another draw of the text changes nothing.
        None where no family has comparable words, since other words of the prompt are not exchangeable with it.
        """
        values = [
            e_value(family.effects(family.neutral, 1), f"{self.key}|{family.family}")
            for family in self.families
            if family.neutral
        ]
        return sum(values) / len(values) if values else None

    @property
    def steps(self) -> int:
        """Steps of the text that have controls."""
        return len(self.families[0].marked.effects) if self.families else 0

    def strongest(self, step: int) -> FamilyControls | None:
        """The family with the smallest p-value at a step, of those the one with the largest effect."""
        if not 0 <= step < self.steps:
            return None
        return min(self.families, key=lambda family: (family.p_values[step], -family.marked.effects[step]))

    def p_value(self, step: int) -> float:
        """The smallest p-value of a step, corrected for the number of families too."""
        return min(1.0, len(self.families) * min(family.p_values[step] for family in self.families))

    def supports(self, step: int) -> bool:
        """Whether a step's effect is larger than chance among comparable words would explain."""
        return 0 <= step < self.steps and self.p_value(step) <= LEVEL


@dataclass(frozen=True, slots=True)
class Evidence:
    """Evidence of so many prompts that marked words do more than comparable words: the product of their e-values.

    Where they do not, at most one search in ``product`` ever reaches it, however its prompts were chosen and whenever
    it stops (Ville's inequality). It assumes that, before the model reads them, nothing tells the neutral words from
    the marked one, and that each prompt counts once.
    """

    prompts: int
    product: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Evidence:
        """The evidence of e-values."""
        # Beyond this nobody reads digits, and the product of very many would overflow.
        return cls(len(values), math.exp(min(sum(map(math.log, values)), 700.0)))
