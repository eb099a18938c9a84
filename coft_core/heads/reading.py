"""A stored step of which only the head was kept, read again."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from coft_core.errors import StoredLogitsError
from coft_core.heads.draw import drawn, likeliest, pool_of
from coft_core.heads.numbers import Criterion, Head, Members, divergence, head_of, members, set_mass, set_size
from coft_core.informative import stated
from coft_core.keeping import fusion_weight
from coft_core.policies.base import Policy, Views
from coft_core.reread_types import Bounds, RereadFamily, RereadStep
from coft_core.sampling import Sampling
from coft_core.steps import TextOf, difference, effective_state
from coft_core.stored import StoredLogits
from coft_core.types import Step


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What reading a step again needs besides its logits.

    Attributes:
        policy: The policy with which it is read.
        uniform: The step's keyed draw.
        greedy: Whether the likeliest token is taken instead.
        mismatched: Whether the calibration belongs to another policy and is used knowingly.
        text_of: Gives tokens' texts.
    """

    policy: Policy
    uniform: float
    greedy: bool
    mismatched: bool
    text_of: TextOf


def read_head(step: Step, stored: StoredLogits, circumstances: Circumstances) -> RereadStep:
    """Read a step again from its head.

    Args:
        step: The step.
        stored: Its logits, of mode ``"head"``.
        circumstances: With what.

    Raises:
        StoredLogitsError: The head was measured at another temperature, or the policy fuses no branches.
    """
    policy = circumstances.policy
    head, views = _head(step, stored, policy)
    lam = _weight(policy)
    calibrated = views.certified is not None
    found = members(head, head.criteria) if calibrated else _nothing(head)
    fallback = _is_empty(found) if calibrated else False
    chosen = _chosen(head, found if calibrated else _everything(head), fallback, circumstances, stored.vocabulary_size)
    own = head.place(step.token_id)
    size, mass = set_size(found), set_mass(head, found)
    # Whether the set is too wide to say anything can hang on tokens that were not kept, as its members can.
    state = stated(views.state, views.log_tau, size.low, mass.low)
    widest = stated(views.state, views.log_tau, size.high, mass.high)
    families = tuple(
        RereadFamily(
            family=view.family,
            log_tau=view.log_tau,
            state=effective_state(view.state, circumstances.mismatched),
            in_set=_known(members(head, (criterion,)), own) if calibrated else False,
            margin=_margin(head, criterion, own),
        )
        for view, criterion in zip(views.families, head.criteria, strict=bool(views.families))
    )
    return RereadStep(
        index=step.index,
        token_id=step.token_id,
        token=step.token,
        mode=stored.mode,
        log_p_fused=_log_p(head, own),
        log_tau=views.log_tau,
        state=effective_state(state, circumstances.mismatched),
        in_set=_known(found, own),
        set_size=size,
        certified_mass=mass,
        margin=_smallest([_margin(head, c, own) for c in head.criteria]),
        kl_fused_masked=divergence(head, lam),
        fallback=fallback,
        policy_token_id=chosen,
        policy_token=None if chosen is None else circumstances.text_of(chosen),
        changed=None if chosen is None else chosen != step.policy_token_id,
        families=families,
        width_open=state != widest,
    )


def _head(step: Step, stored: StoredLogits, policy: Policy) -> tuple[Head, Views]:
    if stored.temperature != policy.sampling.temperature:
        raise StoredLogitsError(
            f"Step {step.index + 1} keeps the head of its distributions at temperature {stored.temperature:g}; read "
            f"it at that temperature, not at {policy.sampling.temperature:g}."
        )
    with torch.inference_mode():
        views = policy.views(stored.tensor()[None], step.index, stored.branches)
    return head_of(stored, views, _weight(policy)), views


def _weight(policy: Policy) -> float:
    lam = fusion_weight(policy)
    if lam is None:
        raise StoredLogitsError(
            f"The policy {policy.title} does more than fuse branches, so the head of a step is not enough to read it."
        )
    return lam


def _everything(head: Head) -> Members:
    return members(head, ())


def _nothing(head: Head) -> Members:
    none = np.zeros_like(head.ids, dtype=bool)
    return Members(none, none, Bounds.at(0))


def _is_empty(found: Members) -> bool | None:
    if found.sure.any() or found.tail.low > 0:
        return False
    return None if found.maybe.any() or found.tail.high > 0 else True


def _known(found: Members, place: int) -> bool | None:
    return None if found.maybe[place] else bool(found.sure[place])


def _chosen(
    head: Head, found: Members, fallback: bool | None, circumstances: Circumstances, vocabulary: int
) -> int | None:
    if fallback is None:
        return None
    if fallback:
        place = likeliest(pool_of(head, _everything(head)))
    elif circumstances.greedy:
        place = likeliest(pool_of(head, found))
    else:
        sampling: Sampling = circumstances.policy.sampling
        place = drawn(pool_of(head, found), sampling, circumstances.uniform, vocabulary)
    return None if place is None else int(head.ids[place])


def _log_p(head: Head, place: int) -> Bounds:
    return Bounds(float(head.log_p_low[place]), float(head.log_p_high[place]))


def _margin(head: Head, criterion: Criterion, place: int) -> Bounds:
    edges = (float(bound[place]) for bound in criterion.support(head))
    return Bounds(*(difference(edge, criterion.log_tau) for edge in edges))


def _smallest(margins: Sequence[Bounds]) -> Bounds:
    if not margins:
        return Bounds.at(math.inf)
    return Bounds(min(margin.low for margin in margins), min(margin.high for margin in margins))
