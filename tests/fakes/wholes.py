"""Chains as a whole, masks by family and contributions of spans, made up."""

from __future__ import annotations

import math
from dataclasses import replace

from coft_core.conformal.bins import PositionBins
from coft_core.conformal.chain import ChainCertificate
from coft_core.conformal.sequence import ChainLengths, SequenceThreshold, union_bound, why_silent
from coft_core.decode.contributions import LeaveOneOut, SpanContribution
from coft_core.decode.cost import Overhead
from coft_core.types import Candidate, FamilyStep, Span, Step

SHIFTS = (0.72, 1.2, 0.95)
"""What masking each family in turn does to the masked probability."""

HORIZON = 40
CHAIN_TAU = 0.011


def with_families(step: Step, families: tuple[str, ...]) -> Step:
    """The same step as factorized masks would show it."""
    taus = [math.exp(step.log_tau) * (1.0 - 0.25 * (place % 3)) for place in range(len(families))]

    def joint(candidate: Candidate, place: int) -> float:
        return min(candidate.log_p_fused, candidate.log_p_masked + math.log(SHIFTS[place % 3]))

    def refusing(candidate: Candidate) -> tuple[str, ...]:
        return tuple(name for place, name in enumerate(families) if math.exp(joint(candidate, place)) < taus[place])

    applied = step.state != "none"
    rows = tuple(
        replace(row, refused_by=refusing(row) if applied else (), certified=applied and not refusing(row))
        for row in step.candidates
    )
    own = next(row for row in rows if row.token_id == step.token_id)
    parts = tuple(
        FamilyStep(
            name, own.log_p_masked + math.log(SHIFTS[place % 3]), joint(own, place),
            math.log(taus[place]) if taus[place] else -math.inf, name not in own.refused_by, step.state,
        )
        for place, name in enumerate(families)
    )  # fmt: skip
    return replace(
        step, candidates=rows, families=parts, certified=own.certified and step.state not in ("none", "mismatch"),
        log_tau=min(part.log_tau for part in parts), set_size=sum(row.certified for row in rows),
    )  # fmt: skip


def chain_of(steps: list[Step], alpha: float) -> ChainCertificate | None:
    """Both certificates of a chain."""
    if not steps or any(step.state == "none" for step in steps):
        return None
    supports = [min(step.log_p_fused, step.log_p_masked) for step in steps]
    weakest = supports.index(min(supports))
    lengths = ChainLengths(reached=301, ended=111, shortest=6, median=40, longest=HORIZON)
    sequence = SequenceThreshold(
        math.log(CHAIN_TAU), alpha, "calibrated", 412, 412, HORIZON, 41, 0.87, 0.93, lengths=lengths, needed=9
    )
    silent = why_silent(sequence, len(steps), "end")
    own = all(step.state == "calibrated" for step in steps)
    return ChainCertificate(
        steps=len(steps),
        log_support=supports[weakest],
        weakest=weakest,
        sequence=sequence,
        sequence_certified=supports[weakest] >= sequence.log_tau if not silent else None,
        union=union_bound(alpha, len(steps), PositionBins(8, 256, "even")),
        union_certified=all(step.certified for step in steps) if own else None,
        reason=silent or ("" if own else "A step has no calibrated threshold of its own."),
    )


def contributions_of(steps: list[Step], spans: tuple[Span, ...]) -> LeaveOneOut:
    """Shares of each step's log ratio that do not add up to it."""
    masked = [span for span in spans if span.masked]
    ratios = [step.diagnostics.log_ratio for step in steps]
    shares = [0.8, -0.35, 0.2, 0.1]
    parts = tuple(
        SpanContribution(
            span,
            tuple(1.1 * shares[place % 4] * ratio for ratio in ratios),
            tuple(shares[place % 4] * ratio for ratio in ratios),
        )
        for place, span in enumerate(masked)
    )
    return LeaveOneOut(
        tuple(range(len(steps))), tuple(step.token_id for step in steps), tuple(1.1 * r for r in ratios),
        tuple(ratios), parts,
    )  # fmt: skip


def overhead_of(branches: int) -> Overhead:
    """A cost that grows with the branches."""
    ratios = tuple(0.4 + 0.62 * branches + extra for extra in (-0.03, 0.0, 0.05))
    return Overhead(branches, 1, tuple(0.004 * ratio for ratio in ratios), ratios)
