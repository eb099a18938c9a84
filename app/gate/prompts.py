"""Claims on the prompts of a file: contexts are read in a random order until every claim is decided."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

from app.gate.file import Asked, Claim, Outcome
from app.gate.judge import Item, Judge, Seen
from app.shared.answers import answered, phrases
from app.shared.errors import ServiceError
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


@dataclass(frozen=True, slots=True)
class Setting:
    """What rows are read with."""

    model: LanguageModel
    policy: Policy
    detector: SpanDetector
    words: NeutralWords | None
    room: Room


class PromptClaims:
    """The claims on the file's prompts, with what was read of them."""

    def __init__(self, asked: Asked, rows: Sequence[PromptRow], setting: Setting, before: Sequence[Item]) -> None:
        self._asked, self._rows, self._setting = asked, rows, setting
        claims = [claim for claim in asked.claims if not claim.suite]
        _require(asked, claims, rows, setting, before)
        self._judges = [Judge(claim, asked.file.risk / len(asked.claims), _groups(rows), before) for claim in claims]
        self._seen = Seen()
        self._batches = list(_batches(_shuffled(rows, asked.file.seed), asked.file.budget.prompts))
        self.most, self.done = sum(map(len, self._batches)), 0
        self.judged = [judge.look(self._seen) for judge in self._judges]

    @property
    def items(self) -> list[Item]:
        """What was seen of each row."""
        return self._seen.items

    @property
    def left_out(self) -> list[tuple[str, str]]:
        """Rows that could not be used."""
        return [(f"line {line}", why) for line, why in self._seen.left_out]

    def read(self) -> None:
        """Read some more contexts, and look again."""
        batch = self._batches.pop(0)
        _read(self._asked, batch, self._setting, self._seen)
        self.done += len(batch)
        self.judged = [judge.look(self._seen, ended=self.done == len(self._rows)) for judge in self._judges]


def _groups(rows: Sequence[PromptRow]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(row.example.group for row in rows if row.example.group))


def _require(
    asked: Asked, claims: Sequence[Claim], rows: Sequence[PromptRow], setting: Setting, before: Sequence[Item]
) -> None:
    """Refuse claims that these prompts can never decide."""
    groups = _groups(rows)
    for claim in claims:
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
    needed = {claim.outcome for claim in asked.claims if not claim.suite} - {""}
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
