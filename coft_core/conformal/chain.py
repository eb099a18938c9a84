"""What may be claimed of a whole chain so far: the sequence certificate, and the union bound beside it.

A chain is judged by the sets at its own threshold, far below those of its steps: where such a set lets too much through
(:mod:`coft_core.conformal.informative`), nothing is shown of its step, and so nothing of the whole chain.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from coft_core.conformal.calibration import Calibration
from coft_core.conformal.informative import is_wide
from coft_core.conformal.sequence import SequenceThreshold, UnionBound, union_bound, why_silent
from coft_core.errors import InvalidInputError
from coft_core.types import CertifiedIn, Step


@dataclass(frozen=True, slots=True)
class ChainCertificate:
    """Both certificates for a chain so far.

    Attributes:
        log_support: Least support of its tokens in the readings that certify them, in nats.
        weakest: Step of that token, 0-based.
        sequence_certified: Whether every token reaches the threshold for whole chains; None where that says nothing.
        union_certified: Whether every token is certified at its own step; None where a step's threshold says nothing.
        reason: Why one of them says nothing; empty otherwise.
        informative_steps: Steps at which the set at the threshold for whole chains says something; None if unknown.
    """

    steps: int
    log_support: float
    weakest: int
    sequence: SequenceThreshold
    sequence_certified: bool | None
    union: UnionBound
    union_certified: bool | None
    reason: str = ""
    certified_in: CertifiedIn = "both"
    informative_steps: int | None = None

    @property
    def sentence(self) -> str:
        """What holds, in words."""
        level = f"{1 - self.sequence.alpha:.3g}"
        says = {
            True: f"as a chain, every token reaches the threshold that all true tokens reach with probability {level}",
            False: f"as a chain, step {self.weakest + 1} misses the threshold that all true tokens reach with "
            f"probability {level}",
            None: "as a chain, nothing is certified",
        }[self.sequence_certified]
        union = {
            True: f"step by step, every token is certified; together the bound is {self.union.level:.3g}",
            False: "step by step, a token is not certified",
            None: "step by step, no bound can be given",
        }[self.union_certified]
        sentences = [f"{says[0].upper()}{says[1:]}; {union}.", self.reason]
        if self.certified_in == "factual":
            sentences.append("This is about the factual reading alone, and says nothing of the masked one.")
        return " ".join(sentence for sentence in sentences if sentence)


def certify_chain(
    calibration: Calibration, steps: Sequence[Step], finished: str | None = None, vocabulary: int | None = None
) -> ChainCertificate:
    """Certify a chain from its steps, in the readings by which the steps are certified.

    Args:
        calibration: The calibration that the chain was decoded with.
        steps: The chain so far, from its first step; an :class:`InvalidInputError` if there is none.
        finished: How the chain ended, as :attr:`coft_core.types.Run.finished` says it; None if it can still go on.
        vocabulary: ``model.vocabulary_size``; without it no chain is certified as a whole.
    """
    certified_in: CertifiedIn = steps[0].certified_in if steps else "both"
    found = certify_supports(calibration, [step.least_support for step in steps], certified_in, finished)
    if any(step.state in ("mismatch", "none") for step in steps):
        reason = "The chain was decoded without this calibration or under another policy."
        return replace(found, sequence_certified=None, union_certified=None, reason=reason)
    if found.union_certified and not all(step.certified for step in steps):
        found = replace(found, union_certified=False)
        if all(step.certified or step.state == "uninformative" for step in steps):
            found = replace(found, union_certified=None, reason=found.reason or WEAK_STEP)
    if not found.sequence_certified:
        return found
    if vocabulary is None:
        return replace(found, sequence_certified=None, reason=UNKNOWN_VOCABULARY)
    informative = sum(not _is_wide_at(step, found.sequence.log_tau, vocabulary) for step in steps)
    found = replace(found, informative_steps=informative)
    if informative == len(steps):
        return found
    reason = (
        f"Every token reaches the threshold of whole chains, {found.sequence.tau:.1g}, but only at {informative} of "
        f"{len(steps)} steps is the set at that threshold shown to be small enough to say anything."
    )
    return replace(found, sequence_certified=None, reason=reason)


WEAK_STEP = "At a step the threshold is too weak to say anything."
UNKNOWN_VOCABULARY = (
    "It is not known how many tokens the vocabulary has, so that the sets at the threshold of whole chains cannot be "
    "compared with it."
)


def _is_wide_at(step: Step, log_tau: float, vocabulary: int) -> bool:
    """Whether the set at another threshold may let too much through.

    Each token that is not listed has at least ``tau`` of the probability that is left, which bounds their number.
    """
    tau = math.exp(log_tau)
    slack = 0.0 if step.bounds is None else max(step.bounds.slack)
    inside = sum(row.log_support(step.certified_in) + slack >= log_tau for row in step.candidates)
    outside = [row for row in step.candidates if row.log_support(step.certified_in) + slack < log_tau]
    if step.certified_in == "factual":
        left = 1 - math.fsum(math.exp(row.log_p_factual) for row in step.candidates if "factual" not in row.at_most)
        return is_wide(inside + max(left, 0.0) / tau, 1.0, vocabulary)
    refused = [row for row in step.candidates if not row.certified]
    between = sum(row.log_joint + slack >= log_tau for row in refused)
    # An upper bound says nothing of where the rest of the probability is.
    rest, far = (
        math.fsum(math.exp(row.log_p_fused) for row in rows if "fused" not in row.at_most)
        for rows in (refused, outside)
    )
    left, mass = 1 - step.certified_mass - rest, 1 - far
    return is_wide(step.set_size + between + max(left, 0.0) / tau, mass, vocabulary)


def certify_supports(
    calibration: Calibration,
    log_supports: Sequence[float],
    certified_in: CertifiedIn = "both",
    finished: str | None = None,
) -> ChainCertificate:
    """Certify a chain from the support of its tokens."""
    supports = np.array(log_supports, dtype=np.float64)  # (T,)
    if not supports.size or np.isnan(supports).any():
        raise InvalidInputError("The chain has no steps, or one without a number; take at least one step.")
    weakest = int(np.argmin(supports))
    # A chain with all the steps that it was given is one of that horizon, which was named before it was written.
    part = calibration.joint
    sequence = part.sequence(horizon=supports.size if finished == "length" else None)
    level = part.shift.level(part.exact_alpha)
    union = union_bound(level, supports.size, part.positions, part.values)
    bins = [part.bin(step) for step in range(supports.size)]
    reason = why_silent(sequence, supports.size, finished)
    known = not reason
    calibrated = all(entry.state == "calibrated" for entry in bins)
    if not calibrated and not reason:
        reason = "A step has no calibrated threshold of its own."
    passes = all(m >= entry.log_tau for m, entry in zip(supports.tolist(), bins, strict=True))
    return ChainCertificate(
        steps=int(supports.size),
        log_support=float(supports[weakest]),
        weakest=weakest,
        sequence=sequence,
        sequence_certified=bool(supports[weakest] >= sequence.log_tau) if known else None,
        union=union,
        union_certified=passes if calibrated else None,
        reason=reason,
        certified_in=certified_in,
    )
