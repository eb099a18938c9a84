"""What an audit found: the tokens that differ most between shown and masked, with the text around them."""

from __future__ import annotations

import math
from dataclasses import dataclass

from app.report.tables import SessionData
from app.report.words import printable_token
from app.shared.audits import SENSITIVE
from coft_core.controls.result import Controls
from coft_core.effects import effect_sentence, factor_of, masked_words, named, visible
from coft_core.messages import Catalogue
from coft_core.types import Step
from db.audits import BranchRecord

MOST_TOKENS = 6
"""Tokens that a finding lists."""
AROUND = 44
"""Characters of the text on either side of a token."""


@dataclass(frozen=True, slots=True)
class WrittenToken:
    """A token that was written in a session, by its step."""

    data: SessionData
    branch: BranchRecord
    step: Step

    @property
    def log_ratio(self) -> float:
        """How much likelier it is with the marked words shown than with them masked."""
        return self.step.diagnostics.log_ratio

    @property
    def sensitive(self) -> bool:
        """Whether it counts as depending on the words."""
        return abs(self.log_ratio) >= SENSITIVE

    @property
    def words(self) -> tuple[str, ...]:
        """The marked words."""
        return masked_words(self.data.record.prompt, self.data.record.spans)

    @property
    def controls(self) -> Controls | None:
        """The controls of its branch, where its step has any."""
        found = self.data.controls.get(self.branch.id)
        return found if found is not None and self.step.index < found.steps else None


@dataclass(frozen=True, slots=True)
class Finding:
    """How far the written tokens differ between the two readings."""

    tokens: int
    sensitive: int
    strongest: tuple[WrittenToken, ...]

    @property
    def listed(self) -> tuple[WrittenToken, ...]:
        """Those that depend on the words."""
        return tuple(token for token in self.strongest if token.sensitive)


def finding_of(*sessions: SessionData) -> Finding:
    """What sessions found, over all their branches."""
    own = [
        WrittenToken(data, branch, step)
        for data in sessions
        for branch in data.branches
        for step in data.chains[branch.id][branch.fork_step or 0 :]
    ]
    strongest = sorted(own, key=lambda token: -abs(token.log_ratio))[:MOST_TOKENS]
    return Finding(len(own), sum(token.sensitive for token in own), tuple(strongest))


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
    token, step = say.quoted(printable_token(first.step.token)), say.whole(first.step.index + 1)
    shown, masked = _probabilities(first, say)
    if first.sensitive or not first.words:
        place = say.say("finding.place", token=token, step=step)
        return effect_sentence(first.log_ratio, first.words, shown, masked, say, place)
    return say.counted(
        "finding.none", finding.tokens, limit=say.number(math.exp(SENSITIVE)), words=named(first.words, say),
        token=token, step=step, shown=shown, masked=masked, factor=say.factor(factor_of(first.log_ratio)),
    )  # fmt: skip


def beside(finding: Finding, say: Catalogue) -> str:
    """What the controls of the strongest token say, in one sentence; that there are none where nothing was compared."""
    first = finding.strongest[0] if finding.strongest else None
    if first is None or not first.words:
        return ""
    controls, step = first.controls, first.step.index
    family = None if controls is None else controls.strongest(step)
    if controls is None or family is None or not family.deciding:
        return say.say("controls.no_control")
    words = say.quoted(visible(family.marked.word))
    said = {"words": words, "p": say.probability(controls.p_value(step)), "controls": say.whole(len(family.deciding))}
    kind = family.fits if family.neutral else "others"
    holds = "controls.supported" if controls.supports(step) else "controls.unsupported"
    return f"{say.say(f'controls.{kind}', **said)} {say.say(holds, **said)}"


def _probabilities(token: WrittenToken, say: Catalogue) -> tuple[str, str]:
    """With the words shown, and with them masked."""
    step = token.step
    return say.probability(math.exp(step.log_p_factual)), say.probability(math.exp(step.log_p_masked))


def counts(finding: Finding, say: Catalogue) -> str:
    """How many tokens depend on the masked words; empty where there is nothing to count."""
    if not finding.listed:
        return ""
    limit, tokens = say.number(math.exp(SENSITIVE)), say.whole(finding.tokens)
    return say.counted("finding.counts", finding.sensitive, tokens=tokens, limit=limit)


def row_of(token: WrittenToken, say: Catalogue) -> dict[str, str]:
    """A token as a row of the table of the strongest."""
    data, branch, step = token.data, token.branch, token.step
    chain, place = data.chains[branch.id], say.whole(step.index + 1)
    before = data.record.prompt + "".join(each.token for each in chain[: step.index])
    shown, masked = _probabilities(token, say)
    if len(data.branches) > 1:
        place += f" ({printable_token(branch.name) if branch.name else branch.path})"
    likelier = "finding.likelier" if token.log_ratio > 0 else "finding.unlikelier"
    return {
        "session": say.whole(data.record.id),
        "step": place,
        "before": _ending(before) + (" " if step.token.startswith(" ") else ""),
        "token": printable_token(step.token),
        "after": _beginning("".join(each.token for each in chain[step.index + 1 :])),
        "shown": shown,
        "masked": masked,
        "effect": say.say(likelier, factor=say.factor(factor_of(token.log_ratio))),
        "p": "" if token.controls is None else say.probability(token.controls.p_value(step.index)),
        "forced": say.say("page.forced") if step.forced else "",
    }
