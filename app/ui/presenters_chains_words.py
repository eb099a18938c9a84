"""Chains beside each other in words: their names, what each was decoded with, where they part, and why."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence

from app.services.policy_words import info_of, parameters_line, policy_name
from app.services.views import BranchView, Candidate, Step
from app.services.views.comparisons import ChainSummary, ComparedRow, Comparison, PairComparison
from app.ui.presenters_format import count, level, plural, probability, quoted, shown_token

LAYOUTS = {"joint": "one mask for all families", "factorized": "one mask for each family"}

PARTS: tuple[Callable[[ChainSummary], str], ...] = (
    lambda chain: f"λ {chain.settings.lam:.2f}" if info_of(chain.policy).fuses else "",
    lambda chain: f"α {level(chain.settings.alpha)}" if chain.calibration else "",
    lambda chain: parameters_line(chain.settings),
    lambda chain: chain.calibration.name if chain.calibration else "no calibration",
    lambda chain: LAYOUTS.get(chain.settings.mask_layout, chain.settings.mask_layout),
    lambda chain: f"seed {chain.settings.seed}",
    lambda chain: branch_name(_branch(chain)),
    lambda chain: f"session {chain.session_id}",
    lambda chain: f"branch {chain.branch_id}",
)
"""What chains can be told apart by, the plainest first."""


def chain_names(chains: Sequence[ChainSummary]) -> list[str]:
    """A short name of each chain that no other one has: its policy, and what else is needed to tell them apart."""
    if len({chain.session_id for chain in chains}) == 1:
        branches = [branch_name(_branch(chain)) for chain in chains]
        return [
            name if branches.count(name) == 1 else f"{name} ({chain.branch_id})"
            for name, chain in zip(branches, chains, strict=True)
        ]
    told: list[list[str]] = [[] for _ in chains]
    for part in PARTS:
        names = [_name(chain, words) for chain, words in zip(chains, told, strict=True)]
        times = Counter(names)
        for name in [name for name, number in times.items() if number > 1]:
            alike = [place for place, own in enumerate(names) if own == name]
            words = {place: part(chains[place]) for place in alike}
            if len(set(words.values())) > 1:
                for place in alike:
                    told[place] += [words[place]] if words[place] else []
    return [_name(chain, words) for chain, words in zip(chains, told, strict=True)]


def branch_name(branch: BranchView) -> str:
    """A branch's name, after the step at which it departs."""
    step = "" if branch.fork_step is None else f"{count(branch.fork_step + 1)} "
    return f"{step}{shown_token(branch.name)}"


def _branch(chain: ChainSummary) -> BranchView:
    return next(branch for branch in chain.branches if branch.id == chain.branch_id)


def _name(chain: ChainSummary, words: Sequence[str]) -> str:
    return f"{policy_name(chain.policy)} ({', '.join(words)})" if words else policy_name(chain.policy)


def settings_line(chain: ChainSummary) -> str:
    """What a chain was decoded with, in one line."""
    info, settings = info_of(chain.policy), chain.settings
    own = parameters_line(settings)
    if not info.fuses and not info.certifies:
        return own or info.about
    parts = [f"λ {settings.lam:.2f}"] if info.fuses else []
    parts += [own] if own else []
    if info.certifies and chain.calibration is not None:
        parts += [f"α {level(settings.alpha)}", f"calibrated, {plural(chain.calibration.contexts, 'context')}"]
        parts += [f"group {settings.group}"] if settings.group else []
    elif info.certifies:
        parts.append("no calibration")
    if settings.mask_layout != info.layouts[0]:
        parts.append(LAYOUTS.get(settings.mask_layout, settings.mask_layout))
    return ", ".join(parts)


def claim(certificate: str) -> tuple[str, str]:
    """A certificate's badge and its words, without what a mismatch differs in."""
    state = "calibrated" if certificate == "certified" else "uninformative"
    return state, certificate.partition(" (")[0]


def parting(comparison: Comparison, names: Sequence[str]) -> list[str]:
    """Where each chain leaves the first, one sentence a chain."""
    first = comparison.chains[0]
    return [_parting(first, comparison.chains[pair.other], names[0], names[pair.other], pair)
            for pair in comparison.pairs]  # fmt: skip


def _parting(first: ChainSummary, other: ChainSummary, a: str, b: str, pair: PairComparison) -> str:
    at = pair.first_divergence
    if at is None:
        tokens = plural(pair.same, "token")
        return f"{a} and {b} write the same {tokens}." if pair.same else f"{a} and {b} have written nothing yet."
    words = f"{_writes(first, at, a)}, {_writes(other, at, b)}"
    where = "at the first token" if at == 0 else f"at token {count(at + 1)}, after {plural(at, 'equal one')}"
    changes = [f"{count(n)} {word}" for n, word in (
        (pair.changed, "changed"), (pair.removed, "left out"), (pair.added, "added")) if n]  # fmt: skip
    return f"{a} and {b} part {where}: {words}. In all {_and(changes)}; {plural(pair.same, 'token')} shared."


def _writes(chain: ChainSummary, at: int, name: str) -> str:
    return f"{name} writes {quoted(chain.steps[at].token)}" if at < len(chain.steps) else f"{name} has no more"


def _and(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def row_sentences(comparison: Comparison, names: Sequence[str]) -> list[str]:
    """A sentence for each aligned row: what the columns write there, and why at the first row that differs."""
    first = next((number for number, row in enumerate(comparison.rows) if not row.same), None)
    found = []
    for number, row in enumerate(comparison.rows):
        if number == first and len({chain.prompt for chain in comparison.chains}) == 1:
            found.append(_first_difference(comparison, names, number))
        else:
            found.append(_row_sentence(comparison, names, row, first is not None and number >= first))
    return found


def _row_sentence(comparison: Comparison, names: Sequence[str], row: ComparedRow, parted: bool) -> str:
    steps = [None if at is None else chain.steps[at] for at, chain in zip(row.steps, comparison.chains, strict=True)]
    if row.same and steps[0] is not None:
        return f"All write {quoted(steps[0].token)}." + (" Their texts differ before it." if parted else "")
    said = [f"{name} writes {quoted(step.token)}" if step else f"{name} has no token here"
            for name, step in zip(names, steps, strict=True)]  # fmt: skip
    return f"{_and(said)}. What stands before differs already, so the probabilities belong to different texts."


def _first_difference(comparison: Comparison, names: Sequence[str], at: int) -> str:
    """Where texts part all have the same text before, so that their next tokens can be held against each other."""
    said = [_writes(chain, at, name) for chain, name in zip(comparison.chains, names, strict=True)]
    steps = [chain.steps[at] if at < len(chain.steps) else None for chain in comparison.chains]
    own = steps[0]
    if own is None:
        return f"{_and(said)}."
    reasons = [_reason(own, step, name) for name, step in zip(names[1:], steps[1:], strict=True) if step]
    return " ".join([f"After the same text {_and(said)}.", *(reason for reason in reasons if reason)])


def _reason(first: Step, other: Step, name: str) -> str:
    """Why a chain did not write the first one's token, as far as its stored candidates tell."""
    if other.token_id == first.token_id:
        return ""
    if other.forced:
        return f"In {name} it was forced by a reviewer."
    wanted = next((item for item in other.candidates if item.token_id == first.token_id), None)
    if wanted is None:
        return ""
    seen, masked = (probability(math.exp(value)) for value in (wanted.log_p_factual, wanted.log_p_masked))
    token = quoted(first.token)
    if _refused(other, wanted):
        tau = probability(math.exp(other.log_tau), 3)
        below = f"and {masked} with the attribute masked, under the threshold {tau}"
        return f"{token} has {seen}, {below}: {name} leaves it out."
    fused, taken = (probability(math.exp(value)) for value in (wanted.log_p_fused, other.log_p_fused))
    return (
        f"In {name}, {token} has {fused} and {quoted(other.token)} has {taken}; with the attribute masked "
        f"{token} goes from {seen} to {masked}."
    )


def _refused(step: Step, candidate: Candidate) -> bool:
    return step.state in ("calibrated", "inherited") and not step.fallback and not candidate.certified


def peak(chain: ChainSummary, name: str) -> str:
    """The most sensitive token of a chain; empty without tokens."""
    if not chain.steps:
        return ""
    step = max(chain.steps, key=lambda item: abs(item.diagnostics.log_ratio))
    ratio = step.diagnostics.log_ratio
    factor = math.exp(min(abs(ratio), 20.0))
    direction = "likelier" if ratio > 0 else "less likely"
    return f"{name} peaks at “{shown_token(step.token)}”, {factor:.1f} times {direction} with the attribute visible."
