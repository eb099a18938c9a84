"""Runs a check: contexts are read in a random order until every claim is decided or the budget is spent.

Intervals are confidence sequences (:mod:`coft_core.conformal.betting`), so that stopping as soon as a claim is decided
costs nothing: all verdicts together are wrong with at most the file's risk. A context is one observation, whatever
number of rows it has, since its rows hang together.
"""

from __future__ import annotations

import math
import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations, permutations
from statistics import fmean
from typing import Literal

from app.gate.file import Asked, Claim, Outcome
from app.shared.answers import answered, phrases
from app.shared.errors import ServiceError
from coft_core.conformal.betting import interval_now
from coft_core.controls.measure import controls_of
from coft_core.controls.words import NeutralWords
from coft_core.decode.loop import score
from coft_core.decode.plan import plan
from coft_core.model.forced import Room
from coft_core.model.language_model import LanguageModel
from coft_core.policies.base import Policy
from coft_core.suites.base import Answer, Ask, Choices, Scored, Writing, Written
from coft_core.suites.reading import Reader
from coft_core.text.detection import SpanDetector
from db.prompt_sets import PromptRow

ROWS = 16
"""Rows that are read between two looks, at least."""
STEP = 1 / 256
"""Observations are rounded to multiples of this, which bounds what an interval costs; intervals are that much wider."""

Verdict = Literal["pass", "fail", "undecided"]
Means = dict[str, dict[str, float]]
"""The mean of each group by context."""
Told = Callable[[float, str], None]


@dataclass(frozen=True, slots=True)
class Item:
    """What was seen of one row."""

    line: int
    context: str
    group: str
    outcome: str
    value: float


@dataclass(frozen=True, slots=True)
class Judged:
    """A claim with its verdict, and the interval that it rests on."""

    claim: Claim
    verdict: Verdict
    low: float
    high: float
    estimate: float | None
    observations: int


@dataclass(frozen=True, slots=True)
class Change:
    """How the rate of a group has changed, over contexts that both checks read.

    ``low`` and ``high`` are a 95 % bootstrap interval over contexts. ``p_value`` is that of McNemar's exact test, where
    outcomes are yes or no.
    """

    outcome: str
    group: str
    contexts: int
    change: float
    low: float
    high: float
    p_value: float | None


@dataclass(frozen=True, slots=True)
class Checked:
    """What a check found.

    Attributes:
        prompts: Rows that were read.
        unread: Rows of the file that were not.
        left_out: Rows that could not be used, by line, with the reason.
    """

    asked: Asked
    model: str
    weights_digest: str
    prompts_digest: str
    judged: tuple[Judged, ...]
    prompts: int
    unread: int
    seconds: float
    items: tuple[Item, ...]
    left_out: tuple[tuple[int, str], ...] = ()
    changes: tuple[Change, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """That of the whole: one failure fails it, and undecided is never a pass."""
        verdicts = {one.verdict for one in self.judged}
        return "fail" if "fail" in verdicts else "undecided" if "undecided" in verdicts else "pass"


@dataclass(frozen=True, slots=True)
class Setting:
    """What rows are read with."""

    model: LanguageModel
    policy: Policy
    detector: SpanDetector
    words: NeutralWords | None
    room: Room


@dataclass(slots=True)
class Seen:
    """What was seen so far."""

    items: list[Item] = field(default_factory=list)
    evidence: list[float] = field(default_factory=list)
    covered: list[float] = field(default_factory=list)
    left_out: list[tuple[int, str]] = field(default_factory=list)

    def means(self, outcome: str) -> Means:
        """The means of an outcome."""
        return means_of(self.items, outcome)


def means_of(items: Iterable[Item], outcome: str) -> Means:
    """The mean of each group by context."""
    values: defaultdict[str, defaultdict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for item in items:
        if item.outcome == outcome:
            values[item.context][item.group].append(item.value)
    return {context: {group: fmean(own) for group, own in by.items()} for context, by in values.items()}


def run_check(
    asked: Asked,
    rows: Sequence[PromptRow],
    setting: Setting,
    told: Told,
    digest: str = "",
    before: Sequence[Item] = (),
    clock: Callable[[], float] = time.monotonic,
) -> Checked:
    """Read contexts until every claim is decided, or the budget or the file is at its end."""
    began, file = clock(), asked.file
    _require(asked, rows, setting, before)
    queue, seen, done = _shuffled(rows, file.seed), Seen(), 0
    judged = [Judge(claim, file.risk / len(asked.claims), _groups(rows), before) for claim in asked.claims]
    found = [judge.look(seen) for judge in judged]
    for batch in _batches(queue, file.budget.prompts):
        if all(one.verdict != "undecided" for one in found) or clock() - began >= file.budget.seconds:
            break
        _read(asked, batch, setting, seen)
        done += len(batch)
        found = [judge.look(seen) for judge in judged]
        told(min(1.0, done / min(len(rows), file.budget.prompts)), _so_far(found, done))
    if done == len(rows):
        found = [judge.look(seen, ended=True) for judge in judged]
    return Checked(
        asked=asked,
        model=setting.model.name,
        weights_digest=setting.model.weights_digest,
        prompts_digest=digest,
        judged=tuple(found),
        prompts=done,
        unread=len(rows) - done,
        seconds=clock() - began,
        items=tuple(seen.items),
        left_out=tuple(seen.left_out),
    )


def _so_far(found: Sequence[Judged], done: int) -> str:
    decided = sum(one.verdict != "undecided" for one in found)
    return f"{done} prompts, {decided} of {len(found)} claims decided"


def _groups(rows: Sequence[PromptRow]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(row.example.group for row in rows if row.example.group))


def _require(asked: Asked, rows: Sequence[PromptRow], setting: Setting, before: Sequence[Item]) -> None:
    """Refuse claims that these prompts can never decide."""
    groups = _groups(rows)
    for claim in asked.claims:
        where = f"{asked.path.name}, line {claim.line}"
        if claim.measure == "regression" and not any(item.outcome == claim.outcome for item in before):
            raise ServiceError(f"{where}: regression compares with an earlier check; give its JSON with --baseline.")
        if claim.measure in ("gap", "impact_ratio", "regression") and len(groups) < 2:
            raise ServiceError(f"{where}: the prompts name fewer than two groups; give a column “group”.")
        if missing := [group for group in claim.groups if group not in groups]:
            raise ServiceError(f"{where}: no prompt is of group {missing[0]!r}; the groups are {', '.join(groups)}.")
        if claim.measure == "coverage" and setting.policy.applied is None:
            raise ServiceError(f"{where}: coverage needs a calibration; give method: coft,calibration=FILE.")
        if claim.measure == "coverage" and not any(row.example.reference for row in rows):
            raise ServiceError(f"{where}: coverage needs real continuations; give a column “reference”.")


def _shuffled(rows: Sequence[PromptRow], seed: int) -> list[list[PromptRow]]:
    """The contexts in a random order; a row without one is its own."""
    by_context: defaultdict[str, list[PromptRow]] = defaultdict(list)
    for row in rows:
        by_context[_context(row)].append(row)
    contexts = list(by_context.values())
    random.Random(seed).shuffle(contexts)
    return contexts


def _context(row: PromptRow) -> str:
    return f"line {row.line}" if row.example.context is None else row.example.context


def _batches(contexts: Sequence[Sequence[PromptRow]], most: int) -> Iterator[list[PromptRow]]:
    """Whole contexts of some rows together, up to a number of rows in all."""
    batch: list[PromptRow] = []
    taken = 0
    for context in contexts:
        if taken + len(context) > most:
            break
        batch, taken = [*batch, *context], taken + len(context)
        if len(batch) >= ROWS:
            yield batch
            batch = []
    if batch:
        yield batch


def _read(asked: Asked, rows: Sequence[PromptRow], setting: Setting, seen: Seen) -> None:
    measures = {claim.measure for claim in asked.claims}
    needed = {claim.outcome for claim in asked.claims} - {""}
    for name in sorted(needed):
        _read_outcome(asked, name, [row for row in rows if row.example.group], setting, seen)
    if "strongest_effect.p" in measures:
        for own in {_context(row): row for row in reversed(rows)}.values():
            _read_effect(own, setting, seen)
    if "coverage" in measures:
        covered: defaultdict[str, list[float]] = defaultdict(list)
        for row in rows:
            if (reference := row.example.reference) is not None:
                steps = score(
                    setting.model, row.example.prompt, reference, setting.policy, row.example.spans, setting.detector
                )
                covered[_context(row)].append(fmean(step.certified for step in steps))
        seen.covered += [fmean(own) for own in covered.values()]


def _read_outcome(asked: Asked, name: str, rows: Sequence[PromptRow], setting: Setting, seen: Seen) -> None:
    outcome, reader = asked.file.outcomes[name], Reader(setting.model, detector=setting.detector, room=setting.room)
    asks = [_ask(outcome, row) for row in rows]
    (answers,) = reader.read(asks, [setting.policy], [_seed(asked, row) for row in rows])
    for row, answer in zip(rows, answers, strict=True):
        value = _value(outcome, answer, row)
        if isinstance(value, str):
            seen.left_out.append((row.line, value))
        else:
            seen.items.append(Item(row.line, _context(row), row.example.group or "", name, value))


def _ask(outcome: Outcome, row: PromptRow) -> Ask:
    if outcome.other:
        return Choices(row.example.prompt, (*outcome.selected, *outcome.other), row.example.spans)
    return Writing(row.example.prompt, outcome.tokens, spans=row.example.spans)


def _seed(asked: Asked, row: PromptRow) -> int:
    # Rows of a context share their draws, as twins do.
    return random.Random(f"{asked.file.seed} {_context(row)}").getrandbits(31)


def _value(outcome: Outcome, answer: Answer, row: PromptRow) -> float | str:
    """The probability of being selected, or whether the text says so; a sentence where nothing can be said."""
    if isinstance(answer, Scored):
        log_p = [likelihood.of("floor") for likelihood in answer.likelihoods]
        most = max(log_p)
        weights = [math.exp(value - most) for value in log_p]
        return sum(weights[: len(outcome.selected)]) / sum(weights)
    if isinstance(answer, Written):
        return float(bool(answered(answer.text, phrases(outcome.selected), None, f"line {row.line}")))
    return answer.reason


def _read_effect(row: PromptRow, setting: Setting, seen: Seen) -> None:
    """The evidence of one prompt that its marked words do more than comparable words."""
    planned = plan(setting.model, row.example.prompt, setting.policy, row.example.spans, detector=setting.detector)
    if not planned.prompt.spans:
        seen.left_out.append((row.line, "No word is marked, so there is nothing to compare."))
        return
    # Evidence is that of the first step, which does not depend on what is written there.
    found = controls_of(planned, [0], others=0, words=setting.words, room=setting.room)
    if found.evidence is None:
        seen.left_out.append((row.line, "No neutral word fits in place of its marked words."))
    else:
        seen.evidence.append(found.evidence)


class Judge:
    """Looks at one claim again and again; what one look has excluded stays excluded."""

    def __init__(self, claim: Claim, alpha: float, groups: Sequence[str], before: Sequence[Item] = ()) -> None:
        self._claim, self._alpha, self._before = claim, alpha, means_of(before, claim.outcome)
        self._groups = claim.groups or tuple(groups)
        self._low, self._high = -math.inf, math.inf

    def look(self, seen: Seen, ended: bool = False) -> Judged:
        """The verdict by what was seen so far; ``ended`` says that nothing more will be."""
        if self._claim.measure == "strongest_effect.p":
            return self._of_evidence(seen.evidence, ended)
        if self._claim.measure == "coverage":
            low, high, estimate, count = _mean(seen.covered, self._alpha)
        else:
            means = seen.means(self._claim.outcome)
            if self._claim.measure == "regression":
                low, high, estimate, count = _grown(means, self._before, self._groups, self._alpha)
            else:
                measure = {"gap": _gap, "impact_ratio": _ratio, "rate": _rate}[self._claim.measure]
                low, high, estimate, count = measure(means, self._groups, self._alpha)
        self._low, self._high = max(self._low, low), min(self._high, high)
        return Judged(self._claim, self._claim.judged(self._low, self._high), self._low, self._high, estimate, count)

    def _of_evidence(self, evidence: Sequence[float], ended: bool) -> Judged:
        """A p-value that may be looked at whenever one likes: one over the most evidence that there ever was."""
        product = most = 1.0
        for value in evidence:
            product *= value
            most = max(most, product)
        p_value = 1 / most
        # More prompts can only lower it, so that a claim that it is large holds at the end of the file only.
        low = p_value if ended else 0.0
        return Judged(self._claim, self._claim.judged(low, p_value), low, p_value, p_value, len(evidence))


Found = tuple[float, float, float | None, int]
"""Both ends of a measure, its estimate, and the number of observations."""


def _mean(values: Sequence[float], alpha: float, least: float = 0.0, most: float = 1.0) -> Found:
    """The mean of values between two ends."""
    if not values:
        return least, most, None, 0
    width = most - least
    scaled = [round((value - least) / width / STEP) * STEP for value in values]
    low, high = (least + width * end for end in interval_now(scaled, alpha))
    return max(least, low - width * STEP / 2), min(most, high + width * STEP / 2), fmean(values), len(values)


def _gap(means: Means, groups: Sequence[str], alpha: float) -> Found:
    """The largest difference between the rates of two groups."""
    pairs = list(combinations(groups, 2))
    found = [_difference(means, *pair, alpha / len(pairs)) for pair in pairs]
    low = max(0.0, *(max(low, -high) for low, high, _, _ in found))
    high = max(max(abs(low), abs(high)) for low, high, _, _ in found)
    estimates = [abs(estimate) for _, _, estimate, _ in found if estimate is not None]
    return low, high, max(estimates, default=None), min(count for *_, count in found)


def _difference(means: Means, first: str, second: str, alpha: float) -> Found:
    """Difference of two groups' rates: within contexts where both are in one, else of the groups' own means."""
    paired = [own[first] - own[second] for own in means.values() if first in own and second in own]
    if paired:
        return _mean(paired, alpha, least=-1.0)
    (low, high, one, count), (other_low, other_high, other, others) = (
        _rate(means, (group,), alpha / 2) for group in (first, second)
    )
    estimate = None if one is None or other is None else one - other
    return low - other_high, high - other_low, estimate, min(count, others)


def _grown(means: Means, before: Means, groups: Sequence[str], alpha: float) -> Found:
    """By how much the largest difference between two groups has grown since.

    The change is estimated within contexts that both checks read; the earlier difference is taken as it was measured.
    Where a difference turned round, what it lost first does not count.
    """
    pairs = list(combinations(groups, 2))
    found: list[Found] = []
    for pair in pairs:
        old, new = (
            {context: own[pair[0]] - own[pair[1]] for context, own in each.items() if own.keys() >= {*pair}}
            for each in (before, means)
        )
        changes, measured = (
            [new[context] - old[context] for context in new if context in old],
            fmean(old.values() or [0]),
        )
        low, high, change, count = _mean(changes, alpha / len(pairs), -2.0, 2.0)
        up, down = 2 * min(measured, 0.0), -2 * max(measured, 0.0)
        grown = None if change is None else max(change + up, down - change)
        found.append((max(low + up, down - high), max(high + up, down - low), grown, count))
    low, high = max(low for low, *_ in found), max(high for _, high, *_ in found)
    estimates = [estimate for _, _, estimate, _ in found if estimate is not None]
    return low, high, max(estimates, default=None), min(count for *_, count in found)


def _rate(means: Means, groups: Sequence[str], alpha: float) -> Found:
    return _mean([own[groups[0]] for own in means.values() if groups[0] in own], alpha)


def _ratio(means: Means, groups: Sequence[str], alpha: float) -> Found:
    """The lowest rate of a group over the highest one."""
    rates = {group: _rate(means, (group,), alpha / len(groups)) for group in groups}
    # The true highest group is not known: the ratio is at least the worst that any pair may have.
    low = min(min(1.0, rates[a][0] / max(rates[b][1], 1e-9)) for a, b in permutations(groups, 2))
    most = min(1.0, min(high for _, high, _, _ in rates.values()) / max(max(low for low, *_ in rates.values()), 1e-9))
    estimates = [estimate for _, _, estimate, _ in rates.values() if estimate is not None]
    known = len(estimates) == len(groups) and max(estimates) > 0
    return low, most, min(estimates) / max(estimates) if known else None, min(count for *_, count in rates.values())
