"""Reading an audit at another lambda or alpha from the logits that it kept, without the model."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np
import torch

from coft_core.conformal.calibration import Calibration
from coft_core.conformal.informative import certifies, stated
from coft_core.decode.head_draw import drawn, likeliest, pool_of
from coft_core.decode.heads import (
    Bounds,
    Criterion,
    Head,
    Members,
    divergence,
    head_of,
    members_of,
    set_mass,
    set_size,
)
from coft_core.decode.loop import ROOT_PATH, path_at
from coft_core.decode.record import StepContext, TextOf, difference, effective_state, pack_step, unpack_step
from coft_core.errors import InvalidInputError, StoredLogitsError
from coft_core.fingerprint import Fingerprint
from coft_core.policies.base import Policy, Views
from coft_core.policies.sampling import choose, keyed_uniform
from coft_core.stored_logits import Mode, StoredLogits
from coft_core.types import CertificateState, Step

HANGS = (
    "Whether this token is certified hangs on tokens whose logits were not kept; only the model itself can tell at "
    "this lambda and alpha."
)

MOST_NUMBERS = 2**22
"""Logits that are read together: 256 steps at a vocabulary of 8,192, so that memory does not grow with the chain."""

Kept = tuple[Step, StoredLogits]
"""A step and the logits that were kept of it."""


@dataclass(frozen=True, slots=True)
class RereadFamily:
    """One attribute family's part of a step read again (factorized masks).

    Attributes:
        family: The family.
        log_tau: Its log-threshold.
        state: What the threshold rests on.
        in_set: Whether the emitted token lies in its certified set; None if that hangs on tokens that were not kept.
        margin: Joint support of the emitted token in that family's branch minus ``log_tau``.
    """

    family: str
    log_tau: float
    state: CertificateState
    in_set: bool | None
    margin: Bounds


@dataclass(frozen=True, slots=True)
class RereadStep:
    """One stored step as it reads at another lambda or alpha, its prefix and its draw as they were.

    Attributes:
        index: Position in the continuation, 0-based.
        token_id: The emitted token, as stored.
        token: Its text.
        mode: ``"full"`` when every logit was kept and all numbers are exact, else ``"head"``.
        log_p_fused: Log-probability of the emitted token after fusion.
        log_tau: Log-threshold of the step; ``-inf`` when it certifies everything.
        state: What the threshold rests on.
        in_set: Whether the emitted token lies in the certified set; None if that hangs on tokens that were not kept.
        set_size: Number of tokens in the certified set.
        certified_mass: Fused probability of the certified set.
        margin: Support of the emitted token, in the readings that certify it, minus ``log_tau``; with families, of the
            one nearest to refusing.
        kl_fused_masked: ``KL(fused || masked)``.
        fallback: Whether the set is empty, so that the likeliest fused token is emitted; None if that is not known.
        policy_token_id: The token that the policy chooses at this step after the same prefix with the same draw; None
            if that hangs on tokens that were not kept.
        policy_token: Its text; None where the token is not known.
        changed: Whether that is another token than the policy chose when the step was made (for a forced step: than
            it would have chosen then); None if it is not known.
        families: With factorized masks, each family's part.
        width_open: Whether it hangs on tokens that were not kept if the set is too wide to say anything.
        step: The whole step as decoding would have given it, candidates and diagnostics included; None where only the
            head was kept.
    """

    index: int
    token_id: int
    token: str
    mode: Mode
    log_p_fused: Bounds
    log_tau: float
    state: CertificateState
    in_set: bool | None
    set_size: Bounds
    certified_mass: Bounds
    margin: Bounds
    kl_fused_masked: Bounds
    fallback: bool | None
    policy_token_id: int | None
    policy_token: str | None
    changed: bool | None
    families: tuple[RereadFamily, ...] = ()
    width_open: bool = False
    step: Step | None = None

    @property
    def certified(self) -> bool | None:
        """Whether the emitted token is certified: in the set of a calibration that fits; None if that is not known."""
        if not certifies(self.state) or self.in_set is False:
            return False
        return None if self.width_open else self.in_set

    @property
    def hangs_on_tail(self) -> bool:
        """Whether the emitted token's status hangs on tokens that were not kept."""
        return self.certified is None

    @property
    def note(self) -> str:
        """A sentence that must be shown with the step; empty when there is nothing to add."""
        return HANGS if self.hangs_on_tail else ""


@dataclass(frozen=True, slots=True)
class Reader:
    """With what the steps of a chain are read again."""

    policy: Policy
    seed: int
    path: str
    greedy: bool
    mismatched: bool
    text_of: TextOf

    def uniform(self, step: Step) -> float:
        """A step's keyed draw."""
        return keyed_uniform(self.seed, path_at(self.path, step.index), step.index)


def reread(
    steps: Sequence[Step],
    policy: Policy,
    *,
    lam: float | None = None,
    alpha: float | None = None,
    calibration: Calibration | None = None,
    seed: int = 0,
    path: str = ROOT_PATH,
    greedy: bool = False,
    fingerprint: Fingerprint | None = None,
    text_of: TextOf | None = None,
) -> tuple[RereadStep, ...]:
    """What each stored step would have said at another lambda, alpha or calibration, its prefix being as it was.

    Where all logits were kept, a step goes through the very computation of decoding. Where only heads were, every
    number comes with rigorous bounds, and what hangs on the rest of the vocabulary is None. The masks stay as they
    were.

    Args:
        steps: Steps decoded with ``keep_logits=True``.
        policy: The policy to read with, for example the one that decoded them; where only heads were kept, its
            temperature must be theirs.
        lam: Another fusion weight; None keeps the policy's.
        alpha: Another risk level, read off the calibration; None keeps the calibration's.
        calibration: Another calibration; None keeps the policy's. It must belong to the lambda, the temperature and
            the sampling controls in use, unless the policy says ``accept_mismatch``.
        seed: Seed of the chain's draws.
        path: Path of the branch whose chain it is.
        greedy: Whether the chain was decoded greedily.
        fingerprint: Fingerprint of the policy that decoded the steps, against which the calibration is checked; None
            takes that of the policy's own calibration.
        text_of: Gives the text of a token; None knows the texts stored with the steps, and shows other tokens by
            their number.

    Returns:
        One reading a step. Forced steps stay forced; ``changed`` compares what the policy chooses then and now.

    Raises:
        StoredLogitsError: A step was stored without its logits, or they do not serve for this policy.
        InvalidInputError: A parameter is outside its range, or there is no calibration to read alpha off.
        CalibrationMismatch: The calibration belongs to another policy.
    """
    changed = policy.changed(lam, alpha, calibration)
    mismatched = _is_mismatched(steps, policy, changed, fingerprint)
    reader = Reader(changed, seed, path, greedy, mismatched, text_of or _stored_texts(steps))
    readings: list[RereadStep] = []
    for together in _batches([_readable(step, changed) for step in steps], changed):
        readings += read_full(together, reader) if together[0][1].mode == "full" else [read_head(*together[0], reader)]
    return tuple(readings)


def _readable(step: Step, policy: Policy) -> Kept:
    """A step and its logits."""
    if step.logits is None:
        raise StoredLogitsError(
            f"Step {step.index + 1} was stored without its logits, so it cannot be read again; decode it with "
            "keep_logits."
        )
    if not policy.reads(step.logits.branches):
        raise StoredLogitsError(
            f"These steps keep the logits of the branches {', '.join(step.logits.branches)}, which the policy "
            f"{policy.title} does not read; choose a policy with the same masks."
        )
    return step, step.logits


def _batches(kept: Sequence[Kept], policy: Policy) -> Iterator[list[Kept]]:
    """Neighbouring steps that one computation reads, each at its own threshold; a step alone where there is none."""
    if not policy.reads_rowwise:
        yield from ([one] for one in kept)
        return

    def alike(one: Kept) -> Hashable:
        step, stored = one
        return (stored.branches, stored.vocabulary_size, stored.temperature, step.noise or 0.0, stored.mode)

    for _, run in groupby(kept, alike):
        together = list(run)
        stored = together[0][1]
        size = max(1, MOST_NUMBERS // (2 * stored.vocabulary_size)) if stored.mode == "full" else 1
        for begin in range(0, len(together), size):
            yield together[begin : begin + size]


def read_full(kept: Sequence[Kept], reader: Reader) -> list[RereadStep]:
    """Read steps again of which every logit was kept: the computation of decoding, on the stored logits.

    Where they are several, they have the same branches and the same bound of their noise, and the policy reads them
    row by row.
    """
    policy, (first, stored) = reader.policy, kept[0]
    steps = [step for step, _ in kept]
    with torch.inference_mode():
        logits = torch.stack([logits.tensor() for _, logits in kept])  # (G, B, V)
        if policy.reads_rowwise:
            # Log-probabilities are float32, and a number is compared with them in their type.
            log_tau = torch.tensor([policy.threshold(step.index)[0] for step in steps], dtype=torch.float32)  # (G,)
            views = policy.views_at(logits, log_tau[:, None])
        else:
            views = policy.views(logits, first.index, stored.branches)
        draws = torch.tensor([reader.uniform(step) for step in steps], dtype=torch.float64)  # (G,)
        choice = choose(views.log_p_fused, views.certified, policy.sampling, draws, reader.greedy)
        # The steps' own bound, at the temperature with which they are read.
        noise = (first.noise or 0.0) * max(1.0, stored.temperature / policy.sampling.temperature)
        packed = pack_step(views, choice, torch.tensor([step.token_id for step in steps]), noise).tolist()
    readings = []
    for step, row in zip(steps, packed, strict=True):
        if policy.reads_rowwise:
            threshold, state = policy.threshold(step.index)
            views = replace(views, log_tau=threshold, state=state)
        readings.append(_reading(step, stored, row, views, noise, reader))
    return readings


def _reading(
    step: Step, stored: StoredLogits, packed: list[float], views: Views, noise: float, reader: Reader
) -> RereadStep:
    """A step's reading from its row of numbers."""
    context = StepContext(step.index, step.forced, reader.mismatched, stored.vocabulary_size, noise)
    read = unpack_step(packed, reader.text_of, views, context)
    if step.noise is None:
        # Without a bound nothing can be said of what lies within it.
        read = replace(read, set_size_low=None, set_size_high=None, noise=None)
    row = next(candidate for candidate in read.candidates if candidate.token_id == step.token_id)
    families = tuple(
        RereadFamily(
            family=part.family,
            log_tau=part.log_tau,
            state=part.state,
            in_set=part.state != "none" and part.family not in row.refused_by,
            margin=Bounds.at(difference(part.log_joint, part.log_tau)),
        )
        for part in read.families
    )
    return RereadStep(
        index=read.index,
        token_id=read.token_id,
        token=step.token,
        mode=stored.mode,
        log_p_fused=Bounds.at(read.log_p_fused),
        log_tau=read.log_tau,
        state=read.state,
        in_set=row.certified,
        set_size=Bounds.at(read.set_size),
        certified_mass=Bounds.at(read.certified_mass),
        margin=Bounds.at(read.diagnostics.margin),
        kl_fused_masked=Bounds.at(read.diagnostics.kl_fused_masked),
        fallback=read.fallback,
        policy_token_id=read.policy_token_id,
        policy_token=read.policy_token,
        changed=read.policy_token_id != step.policy_token_id,
        families=families,
        step=read,
    )


def read_head(step: Step, stored: StoredLogits, reader: Reader) -> RereadStep:
    """Read a step again from its head."""
    head, views, lam = _head(step, stored, reader.policy)
    calibrated = views.certified is not None
    certified = members_of(head, head.criteria) if calibrated else _nothing(head)
    fallback = _is_empty(certified) if calibrated else False
    allowed = certified if calibrated else members_of(head, ())
    chosen = _chosen(step, head, allowed, fallback, reader, stored.vocabulary_size)
    place = head.place(step.token_id)
    size, mass = set_size(certified), set_mass(head, certified)
    # Whether the set is too wide to say anything can hang on tokens that were not kept, as its members can.
    state = stated(views.state, views.log_tau, size.low, mass.low, stored.vocabulary_size)
    widest = stated(views.state, views.log_tau, size.high, mass.high, stored.vocabulary_size)
    families = tuple(
        RereadFamily(
            family=view.family,
            log_tau=view.log_tau,
            state=effective_state(view.state, reader.mismatched),
            in_set=_known(members_of(head, (criterion,)), place) if calibrated else False,
            margin=_margin(head, criterion, place),
        )
        for view, criterion in zip(views.families, head.criteria, strict=bool(views.families))
    )
    return RereadStep(
        index=step.index,
        token_id=step.token_id,
        token=step.token,
        mode=stored.mode,
        log_p_fused=Bounds(float(head.log_p_low[place]), float(head.log_p_high[place])),
        log_tau=views.log_tau,
        state=effective_state(state, reader.mismatched),
        in_set=_known(certified, place),
        set_size=size,
        certified_mass=mass,
        margin=_smallest([_margin(head, criterion, place) for criterion in head.criteria]),
        kl_fused_masked=divergence(head, lam),
        fallback=fallback,
        policy_token_id=chosen,
        policy_token=None if chosen is None else reader.text_of(chosen),
        changed=None if chosen is None else chosen != step.policy_token_id,
        families=families,
        width_open=state != widest,
    )


def _head(step: Step, stored: StoredLogits, policy: Policy) -> tuple[Head, Views, float]:
    """The head, what the policy makes of it, and the lambda with which it fuses."""
    if stored.temperature != policy.sampling.temperature:
        raise StoredLogitsError(
            f"Step {step.index + 1} keeps the head of its distributions at temperature {stored.temperature:g}; read "
            f"it at that temperature, not at {policy.sampling.temperature:g}."
        )
    with torch.inference_mode():
        views = policy.views(stored.tensor()[None], step.index, stored.branches)
    if policy.fusion_weight is None:
        raise StoredLogitsError(
            f"The policy {policy.title} does more than fuse branches, so the head of a step is not enough to read it."
        )
    return head_of(stored, views, policy.fusion_weight), views, policy.fusion_weight


def _nothing(head: Head) -> Members:
    none = np.zeros_like(head.ids, dtype=bool)
    return Members(none, none, Bounds.at(0))


def _is_empty(members: Members) -> bool | None:
    if members.sure.any() or members.tail.low > 0:
        return False
    return None if members.maybe.any() or members.tail.high > 0 else True


def _known(members: Members, place: int) -> bool | None:
    return None if members.maybe[place] else bool(members.sure[place])


def _chosen(
    step: Step, head: Head, allowed: Members, fallback: bool | None, reader: Reader, vocabulary: int
) -> int | None:
    """The token that the policy surely chooses; None where that hangs on the tail."""
    if fallback is None:
        return None
    if fallback:
        place = likeliest(pool_of(head, members_of(head, ())))
    elif reader.greedy:
        place = likeliest(pool_of(head, allowed))
    else:
        place = drawn(pool_of(head, allowed), reader.policy.sampling, reader.uniform(step), vocabulary)
    return None if place is None else int(head.ids[place])


def _margin(head: Head, criterion: Criterion, place: int) -> Bounds:
    edges = (float(bound[place]) for bound in criterion.support(head))
    return Bounds(*(difference(edge, criterion.log_tau) for edge in edges))


def _smallest(margins: Sequence[Bounds]) -> Bounds:
    if not margins:
        return Bounds.at(math.inf)
    return Bounds(min(margin.low for margin in margins), min(margin.high for margin in margins))


def _is_mismatched(steps: Sequence[Step], policy: Policy, changed: Policy, fingerprint: Fingerprint | None) -> bool:
    """Whether thresholds of another policy are used knowingly; raises where they are used unawares."""
    if changed.applied is None or changed.fusion_weight is None:
        return False
    decoded = fingerprint or (policy.applied.fingerprint if policy.applied else None)
    if decoded is None:
        raise InvalidInputError(
            "These steps were decoded without a calibration, so it is not known which one fits them; pass the "
            "fingerprint of the policy that decoded them."
        )
    sampling = changed.sampling
    used = replace(
        decoded,
        lam=float(changed.fusion_weight),
        temperature=float(sampling.temperature),
        top_p=float(sampling.top_p),
        top_k=int(sampling.top_k),
        estimator=changed.applied.estimator,
        source=changed.applied.source,
    )
    # Steps that were decoded under another policy's calibration stay so unless a fingerprint says what they were.
    return changed.claim(used).mismatched or (fingerprint is None and any(step.state == "mismatch" for step in steps))


def _stored_texts(steps: Sequence[Step]) -> TextOf:
    known = {row.token_id: row.token for step in steps for row in step.candidates}
    for step in steps:
        known |= {step.token_id: step.token, step.policy_token_id: step.policy_token}
    return lambda token_id: known.get(token_id, f"<token {token_id}>")
