"""Whether the marked words of a batch matter more than comparable words, over all its prompts, and how that is said."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from operator import attrgetter

from app.prompts.rows import BatchRowView
from app.shared.files import to_csv
from app.shared.format import count, listed, named, p_text, plural
from coft_core.controls.result import LEVEL, FamilyRank
from coft_core.controls.statistics import rank_sum_p

NOT_MARKED = "no word is marked"
NOTHING_LIKE = "nothing in the prompt is comparable"
REPEATED = "an earlier line has the same prompt"
NOT_COMPARED = "the words are not compared yet"

rank_sum_of = lru_cache(maxsize=64)(rank_sum_p)
"""Pages ask again and again for that of a batch with thousands of prompts."""


@dataclass(frozen=True, slots=True)
class FamilySum:
    """The ranks of a family's marked words among comparable words at the first step, summed over prompts.

    ``expected`` is the sum's mean by chance; ``p_value`` the chance of a sum as small.
    """

    family: str
    prompts: int
    rank_sum: int
    expected: float
    p_value: float


@dataclass(frozen=True, slots=True)
class BatchControls:
    """What the controls of a batch's finished rows say together.

    Attributes:
        asked: Comparable words asked for; with 0 nothing is compared.
        prompts: Prompts with comparable words.
        p_value: The smallest of the families', corrected for their number; None without any.
        flagged: Prompts of these whose strongest effect has a p-value of at most 0.05, corrected over the text.
        families: Rank sums by family of marked words.
        others: Prompts in which nothing but other words of the prompt can be compared, which is in no rank sum.
        others_first: How many of these have the marked words before all of them at the first step.
        without: Why prompts have no control, with their lines.
    """

    asked: int
    prompts: int
    p_value: float | None
    flagged: int
    families: tuple[FamilySum, ...]
    others: int
    others_first: int
    without: Mapping[str, tuple[int, ...]]


def batch_controls(rows: Iterable[BatchRowView], asked: int) -> BatchControls:
    """Sum up the ranks of finished rows; each prompt counts once."""
    finished = sorted((row for row in rows if row.state == "finished"), key=attrgetter("line"))
    judged: list[BatchRowView] = []
    others: list[FamilyRank] = []
    without: defaultdict[str, list[int]] = defaultdict(list)
    seen: set[str] = set()
    for row in finished if asked else ():
        ranks = row.ranks or ()
        if row.ranks is None:
            without[NOT_COMPARED].append(row.line)
        elif row.prompt in seen:
            without[REPEATED].append(row.line)
        elif any(rank.exchangeable for rank in ranks):
            judged.append(row)
        elif elsewhere := [rank for rank in ranks if rank.by]:
            others.append(min(elsewhere, key=attrgetter("rank")))
        else:
            without[NOTHING_LIKE if ranks else NOT_MARKED].append(row.line)
        seen.add(row.prompt)
    families = _families(rank for row in judged for rank in row.ranks or () if rank.exchangeable)
    return BatchControls(
        asked=asked,
        prompts=len(judged),
        p_value=min(1.0, len(families) * min(each.p_value for each in families)) if families else None,
        flagged=sum((row.effect_p or 0.0) <= LEVEL for row in judged),
        families=families,
        others=len(others),
        others_first=sum(rank.rank == 1 for rank in others),
        without={why: tuple(lines) for why, lines in without.items()},
    )


def _families(ranks: Iterable[FamilyRank]) -> tuple[FamilySum, ...]:
    by_family: defaultdict[str, list[FamilyRank]] = defaultdict(list)
    for rank in ranks:
        by_family[rank.family].append(rank)
    return tuple(_summed(family, own) for family, own in sorted(by_family.items()))


def _summed(family: str, ranks: Sequence[FamilyRank]) -> FamilySum:
    # The order of prompts changes nothing, and equal questions are answered from memory.
    pairs = sorted((rank.rank, rank.rows) for rank in ranks)
    places, rows = zip(*pairs, strict=True)
    return FamilySum(family, len(ranks), sum(places), sum(count + 1 for count in rows) / 2, rank_sum_of(places, rows))


def controls_said(found: BatchControls) -> list[str]:
    """What the controls of all prompts say together, the answer first; empty before the first prompt is finished."""
    if not found.asked:
        return ["No control: the marked words of this batch are compared with nothing."]
    said = []
    if found.p_value is not None:
        clearly = "matter" if found.p_value <= LEVEL else "do not clearly matter"
        said += [
            f"Over {plural(found.prompts, 'prompt')} the marked words {clearly} more than comparable words at the "
            f"first token ({p_text(found.p_value)}).",
            f"In {count(found.flagged)} of {count(found.prompts)} the strongest effect in the text has a p-value of "
            "0.05 or less.",
        ]
    if len(found.families) > 1:
        sums = [f"{named([own.family])} {p_text(own.p_value)} in {count(own.prompts)}" for own in found.families]
        said.append(f"By family: {listed(sums)}. The p-value of all is corrected for these families.")
    if found.others:
        said.append(
            f"In {plural(found.others, 'prompt')} no comparable word fits. The marked words matter most among all "
            f"words of the prompt in {count(found.others_first)} of them."
        )
    if found.without:
        reasons = [f"{why} ({plural(len(lines), 'prompt')})" for why, lines in found.without.items()]
        said.append(f"No control: {listed(reasons)}.")
    return said


def controls_csv(found: BatchControls) -> str:
    """The sums as RFC 4180 text, one row a family and one for all."""
    columns = ("family", "prompts", "rank_sum", "expected", "p_value", "at_most_005", "controls")
    total = {"family": "all", "prompts": found.prompts, "p_value": found.p_value, "at_most_005": found.flagged}
    rows = [*map(asdict, found.families), total]
    return to_csv(columns, ({**dict.fromkeys(columns), **row, "controls": found.asked} for row in rows))
