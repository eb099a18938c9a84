"""Reading an audit at another lambda or alpha from logits that it kept, or that the model gives again."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import torch

from coft_core.conformal.calibration import Calibration
from coft_core.decode.loop import ROOT_PATH, path_at
from coft_core.decode.plan import Plan
from coft_core.decode.record import Keeper, TextOf, pack_step, unpack_step
from coft_core.errors import InvalidInputError, StoredLogitsError
from coft_core.fingerprint import Fingerprint
from coft_core.model.forced import ForcedItem, ForcedScorer
from coft_core.policies.base import Policy
from coft_core.policies.bounds import bounded_views, choose_by
from coft_core.policies.sampling import keyed_uniform
from coft_core.stored_logits import StoredLogits
from coft_core.types import Step

MOST_NUMBERS = 2**22
"""Logits that are read together: 256 steps at a vocabulary of 8,192, so that memory does not grow with the chain."""

Kept = tuple[Step, StoredLogits]
"""A step and its logits."""


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
) -> tuple[Step, ...]:
    """What each step would have said at another lambda, alpha or calibration, its prefix being as it was.

    A step goes through the very computation of decoding, on its logits. The masks stay as they were.

    Args:
        steps: Steps decoded with ``keep_logits=True``, or from :func:`with_logits`.
        policy: The policy to read with, for example the one that decoded them.
        lam: Another fusion weight; None keeps the policy's.
        alpha: Another risk level, read off the calibration; None keeps the calibration's.
        calibration: Another calibration, which must belong to the lambda, the temperature and the sampling controls in
            use, unless the policy says ``accept_mismatch``; None keeps the policy's.
        seed: Seed of the chain's draws; as ``path`` and ``greedy``, as it was when it was decoded.
        path: Path of the branch whose chain it is.
        greedy: Whether the chain was decoded greedily.
        fingerprint: That of the policy that decoded the steps, where its own calibration does not say it.
        text_of: Gives the text of a token; None knows the texts stored with the steps.

    Returns:
        Each step as it reads now, with the token that was written; ``policy_token_id`` is the one that the policy
        chooses now, after the same prefix with the same draw.

    Raises:
        StoredLogitsError: A step has no logits, or the policy does not read them.
        InvalidInputError: A parameter is outside its range, or there is no calibration to read alpha off.
        CalibrationMismatch: The calibration belongs to another policy.
    """
    changed = policy.changed(lam, alpha, calibration)
    mismatched = _is_mismatched(steps, policy, changed, fingerprint)
    reader = Reader(changed, seed, path, greedy, mismatched, text_of or _stored_texts(steps))
    batches = _batches([_readable(step, changed) for step in steps], changed)
    return tuple(reading for together in batches for reading in read(together, reader))


@torch.inference_mode()
def with_logits(prepared: Plan, steps: Sequence[Step]) -> Iterator[list[Step]]:
    """The steps of a chain with the logits that the model gives for them now, a piece of the chain at a time."""
    branches = prepared.policy.branches(prepared.prompt)
    prompts = tuple(tuple(branch.input_ids) for branch in branches)
    chain = ForcedItem(prompts, tuple(step.token_id for step in steps))
    for places, logits in ForcedScorer(prepared.model).logits([chain]):
        keeper = Keeper.of(prepared.policy, tuple(branch.name for branch in branches), logits[0])
        rows = keeper.pack(logits).cpu().numpy()
        yield [
            replace(steps[place], logits=keeper.unpack(row.tobytes()))
            for place, row in zip(places.tolist(), rows, strict=True)
        ]


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
        return (
            stored.branches,
            stored.vocabulary_size,
            stored.temperature,
            step.noise or 0.0,
            step.bounds and step.bounds.seen,
        )

    for _, run in groupby(kept, alike):
        together = list(run)
        stored = together[0][1]
        size = max(1, MOST_NUMBERS // (2 * stored.vocabulary_size))
        for begin in range(0, len(together), size):
            yield together[begin : begin + size]


def read(kept: Sequence[Kept], reader: Reader) -> list[Step]:
    """Read steps again, several only where they are alike and the policy reads them row by row."""
    policy, (first, stored) = reader.policy, kept[0]
    steps = [step for step, _ in kept]
    with torch.inference_mode():
        logits = torch.stack([logits.tensor() for _, logits in kept])  # (G, B, V)
        # The steps' own bound, at the temperature with which they are read.
        noise = (first.noise or 0.0) * max(1.0, stored.temperature / policy.sampling.temperature)
        if policy.reads_rowwise:
            # Log-probabilities are float32, and a number is compared with them in their type.
            log_tau = torch.tensor([policy.threshold(step.index)[0] for step in steps], dtype=torch.float32)  # (G,)
            views = (
                policy.views_at(logits, log_tau[:, None])
                if first.bounds is None
                else bounded_views(policy, logits, log_tau[:, None], noise=noise, count=first.bounds.seen)
            )
        else:
            views = policy.views(logits, first.index, stored.branches)
        draws = torch.tensor([reader.uniform(step) for step in steps], dtype=torch.float64)  # (G,)
        choice = choose_by(views, policy.sampling, draws, reader.greedy)
        packed = pack_step(views, choice, torch.tensor([step.token_id for step in steps]), noise).tolist()
    readings = []
    for step, row in zip(steps, packed, strict=True):
        if policy.reads_rowwise:
            threshold, state = policy.threshold(step.index)
            views = replace(views, log_tau=threshold, state=state)
        vocabulary = stored.vocabulary_size
        known = {"index": step.index, "forced": step.forced, "mismatched": reader.mismatched, "vocabulary": vocabulary}
        now = replace(unpack_step(row, reader.text_of, views, **known, noise=noise), token=step.token)
        # Without a bound nothing can be said of what lies within it.
        readings.append(
            now if step.noise is not None else replace(now, set_size_low=None, set_size_high=None, noise=None)
        )
    return readings


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
