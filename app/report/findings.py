"""What an audit found: the tokens that differ most between shown and masked, with the text around them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain as joined

from app.report.tables import SessionData
from app.report.words import printable_token
from app.shared.audits import SENSITIVE
from coft_core.effects import effect_sentence, factor_of, masked_words, named, visible
from coft_core.messages import Catalogue
from coft_core.types import Step
from db.audits import BranchRecord

MOST_TOKENS = 6
"""Tokens that a finding lists."""
AROUND = 44
"""Characters of the text on either side of a token."""


@dataclass(frozen=True, slots=True)
class DependentToken:
    """A written token, and how much likelier it is with the marked words shown than with them masked."""

    session_id: int
    branch: str
    words: tuple[str, ...]
    step: int
    token: str
    before: str
    after: str
    factual: float
    masked: float
    log_ratio: float
    forced: bool

    @property
    def sensitive(self) -> bool:
        """Whether it counts as depending on the words."""
        return abs(self.log_ratio) >= SENSITIVE

    @property
    def factor(self) -> float:
        """How many times likelier or less likely it is."""
        return factor_of(self.log_ratio)


@dataclass(frozen=True, slots=True)
class Finding:
    """How far the written tokens differ between the two readings."""

    tokens: int
    sensitive: int
    strongest: tuple[DependentToken, ...]

    @property
    def listed(self) -> tuple[DependentToken, ...]:
        """Those that depend on the words."""
        return tuple(token for token in self.strongest if token.sensitive)


def finding_of(data: SessionData) -> Finding:
    """What a session found, over all its branches."""
    own = [(branch, step) for branch in data.branches for step in data.chains[branch.id][branch.fork_step or 0 :]]
    strongest = sorted(own, key=lambda item: -abs(item[1].diagnostics.log_ratio))[:MOST_TOKENS]
    return Finding(
        tokens=len(own),
        sensitive=sum(abs(step.diagnostics.log_ratio) >= SENSITIVE for _, step in own),
        strongest=tuple(_dependent(data, branch, step) for branch, step in strongest),
    )


def together(findings: Sequence[Finding]) -> Finding:
    """The findings of several sessions as one."""
    strongest = sorted(joined.from_iterable(each.strongest for each in findings), key=lambda item: -abs(item.log_ratio))
    return Finding(
        tokens=sum(each.tokens for each in findings),
        sensitive=sum(each.sensitive for each in findings),
        strongest=tuple(strongest[:MOST_TOKENS]),
    )


def _dependent(data: SessionData, branch: BranchRecord, step: Step) -> DependentToken:
    chain = data.chains[branch.id]
    before = data.record.prompt + "".join(each.token for each in chain[: step.index])
    after = "".join(each.token for each in chain[step.index + 1 :])
    return DependentToken(
        session_id=data.record.id,
        branch="" if len(data.branches) == 1 else printable_token(branch.name) if branch.name else branch.path,
        words=masked_words(data.record.prompt, data.record.spans),
        step=step.index + 1,
        token=printable_token(step.token),
        before=_ending(before) + (" " if step.token.startswith(" ") else ""),
        after=_beginning(after),
        factual=math.exp(step.log_p_factual),
        masked=math.exp(step.log_p_masked),
        log_ratio=step.diagnostics.log_ratio,
        forced=step.forced,
    )


def _ending(text: str) -> str:
    """The last words of a text that fit."""
    line = _in_line(text)
    if len(line) <= AROUND:
        return line
    cut = line[-AROUND:]
    return f"\N{HORIZONTAL ELLIPSIS}{cut[cut.find(' ') + 1 :]}"


def _beginning(text: str) -> str:
    """The first words of a text that fit."""
    line = _in_line(text)
    if len(line) <= AROUND:
        return line
    cut = line[:AROUND]
    return f"{cut[: cut.rfind(' ')] if ' ' in cut.strip() else cut}\N{HORIZONTAL ELLIPSIS}"


def _in_line(text: str) -> str:
    """A text in one line; a line's end reads as a blank."""
    return visible("".join(" " if char.isspace() else char for char in text))


def lead(finding: Finding, say: Catalogue) -> str:
    """The finding in one sentence that begins with how far the two readings of the prompt differ."""
    if not finding.strongest:
        return say.say("finding.empty")
    first = finding.strongest[0]
    token, step = say.quoted(first.token), say.whole(first.step)
    shown, masked = say.probability(first.factual), say.probability(first.masked)
    if first.sensitive or not first.words:
        place = say.say("finding.place", token=token, step=step)
        return effect_sentence(first.log_ratio, first.words, shown, masked, say, place)
    return say.counted(
        "finding.none", finding.tokens, limit=say.number(math.exp(SENSITIVE)), words=named(first.words, say),
        token=token, step=step, shown=shown, masked=masked, factor=say.factor(first.factor),
    )  # fmt: skip


def counts(finding: Finding, say: Catalogue) -> str:
    """How many tokens depend on the masked words; empty where there is nothing to count."""
    if not finding.listed:
        return ""
    limit, tokens = say.number(math.exp(SENSITIVE)), say.whole(finding.tokens)
    return say.counted("finding.counts", finding.sensitive, tokens=tokens, limit=limit)


def effect(token: DependentToken, say: Catalogue) -> str:
    """How one token differs between the two readings, for a column."""
    return say.say("finding.likelier" if token.log_ratio > 0 else "finding.unlikelier", factor=say.factor(token.factor))


def row_of(token: DependentToken, say: Catalogue) -> dict[str, str]:
    """A token as a row of the table of the strongest."""
    return {
        "session": say.whole(token.session_id),
        "step": f"{say.whole(token.step)}{f' ({token.branch})' if token.branch else ''}",
        "before": token.before,
        "token": token.token,
        "after": token.after,
        "shown": say.probability(token.factual),
        "masked": say.probability(token.masked),
        "effect": effect(token, say),
        "forced": say.say("page.forced") if token.forced else "",
    }
