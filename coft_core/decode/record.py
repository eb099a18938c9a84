"""What an audit shows and keeps of a step: packed on the device, unpacked on the host."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from coft_core.conformal.informative import certifies, stated
from coft_core.errors import CoftError
from coft_core.policies.base import Ends, FamilyView, Policy, Views
from coft_core.policies.certify import size_range, step_figures, total_variation_bound
from coft_core.policies.sampling import Choice
from coft_core.stored_logits import DTYPES, StoredLogits
from coft_core.types import VIEWS, Bounds, Candidate, CertificateState, Diagnostics, FamilyStep, Step, widest_set

FULL_BYTES = 512 * 1024
"""Logits of a step that take more bytes than this, before compression, are not kept."""


CANDIDATE_ROWS = 24
"""Rows of the candidate table: the likeliest tokens by their largest probability in any view."""

TextOf = Callable[[int], str]
"""A token's text as it continues a sentence, by its id."""

SCALARS = (
    "fallback",
    "set_size_low",
    "set_size_high",
    "broken",
    "set_size",
    "certified_mass",
    "entropy_factual",
    "entropy_masked",
    "entropy_fused",
    "kl",
    "tv",
    "kl_factual",
    "tv_factual",
    "sensitivity",
)
BOUNDED = ("seen", "slack_factual", "slack_masked", "slack_fused", "undecided", "exact")
"""Further scalars of steps of which only the most likely tokens are known."""


def pack_step(views: Views, choice: Choice, emitted: Tensor, noise: float = 0.0) -> Tensor:
    """Gather all that an audit shows of steps with emitted tokens ``(G,)`` into one tensor on the logits' device.

    It is ``(G, len(SCALARS) + F + columns * K)`` for F families (none with one masked branch) and K candidates: the
    scalars, the emitted token's log-probability in each family's branch, then the candidates' token ids, their
    membership, the three log-probabilities and, with families, which of them refuse each, as the bits of a number. The
    last two candidates are the chosen and the emitted token. float32 holds token ids below 2**24 exactly. Where only
    the most likely tokens are known, :data:`BOUNDED` follow the scalars, and the bits name the views without a token.
    """
    log_p = torch.stack([views.log_p_factual, views.log_p_masked, views.log_p_fused])  # (3, G, V)
    needed = torch.stack([choice.token_ids, emitted], dim=-1)  # (G, 2)
    ends, likelihood = views.ends, log_p.amax(0)  # (G, V)
    if ends is not None:
        likelihood = likelihood.masked_fill(ends.missing[:2].all(0), -torch.inf)
    likeliest = likelihood.topk(min(CANDIDATE_ROWS, log_p.shape[-1]), dim=-1).indices  # (G, K - 2)
    ids, written = torch.cat([likeliest, needed], dim=-1), needed[:, 1:]  # (G, K), (G, 1)
    factual, masked = views.logits_factual.gather(-1, written), views.logits_masked.gather(-1, written)  # (G, 1) each
    # A token that both branches forbid is no more sensitive than any other, and -inf - -inf would be NaN.
    sensitivity = (factual - masked).masked_fill(factual == masked, 0.0)  # (G, 1)
    if ends is not None:
        absent = ends.missing[:2].gather(-1, written.expand(2, -1, -1))  # (2, G, 1)
        sensitivity = sensitivity.where(~absent[0], sensitivity.clamp_max(0))
        sensitivity = sensitivity.where(~absent[1], sensitivity.clamp_min(0))
    parts = [
        choice.fallback[:, None],  # (G, 1)
        _sizes(views, noise),  # (G, 2)
        step_figures(log_p, views.certified) if ends is None else ends.figures,  # (G, 10)
        sensitivity,
        *([] if ends is None else _bounded(ends, choice)),  # (G, 6)
        *(view.log_p.gather(-1, written) for view in views.families),  # (G, 1) each
        ids,
        torch.zeros_like(ids) if views.certified is None else views.certified.gather(-1, ids),  # (G, K)
        log_p.gather(-1, ids.expand(3, -1, -1)).transpose(0, 1).flatten(1),  # (G, 3 K)
    ]
    if views.families:
        parts.append(_refusals(views.families, ids))
    if ends is not None:
        missing = ends.missing.gather(-1, ids.expand(3, -1, -1)).double()  # (3, G, K)
        parts.append((missing * (2.0 ** torch.arange(3, device=ids.device))[:, None, None]).sum(0))
    return torch.cat([part.float() for part in parts], dim=-1)


def _sizes(views: Views, noise: float) -> Tensor:
    if views.ends is not None:
        return views.ends.sizes
    if views.margins is None:
        return torch.zeros(len(views.log_p_fused), 2, device=views.log_p_fused.device)
    return size_range(views.margins, noise)


def _bounded(ends: Ends, choice: Choice) -> list[Tensor]:
    exact = torch.zeros_like(ends.exact) if choice.exact is None else choice.exact
    return [ends.seen[:, None], ends.slack, ends.undecided[:, None], exact[:, None]]


def unpack_step(
    packed: list[float],
    text_of: TextOf,
    views: Views,
    *,
    index: int,
    forced: bool,
    mismatched: bool,
    vocabulary: int,
    noise: float,
    logits: StoredLogits | None = None,
) -> Step:
    """Build the step at a position from one row of :func:`pack_step`, already on the host."""
    names = SCALARS if views.ends is None else SCALARS + BOUNDED
    scalar = dict(zip(names, packed, strict=False))
    if scalar["broken"]:
        raise CoftError(f"The model returned NaN at step {index + 1}; load it in float32, or check its weights.")
    log_tau, set_size, mass = views.log_tau, int(scalar["set_size"]), min(scalar["certified_mass"], 1.0)
    rest = packed[len(names) :]
    *candidates, policys, row = _table(rest[len(views.families) :], text_of, views)
    pairs = zip(views.families, rest, strict=False)
    families = tuple(_family_step(view, row, log_p, mismatched) for view, log_p in pairs)
    listed = {candidate.token_id: candidate for candidate in (*candidates, policys, row)}.values()
    bounds = None
    if views.ends is not None:
        slack = (scalar["slack_factual"], scalar["slack_masked"], scalar["slack_fused"])
        bounds = Bounds(int(scalar["seen"]), slack, int(scalar["undecided"]), bool(scalar["exact"]))
        candidates = [one for one in candidates if not {"factual", "masked"} <= {*one.at_most}]
    widest = widest_set(set_size, mass, bounds)
    state = effective_state(stated(views.state, log_tau, *widest, vocabulary), mismatched)
    return Step(
        index=index,
        token_id=row.token_id,
        token=row.token,
        log_p_factual=row.log_p_factual,
        log_p_masked=row.log_p_masked,
        log_p_fused=row.log_p_fused,
        log_tau=log_tau,
        certified=row.certified and certifies(state),
        set_size=set_size,
        certified_mass=mass,
        fallback=bool(scalar["fallback"]),
        forced=forced,
        policy_token_id=policys.token_id,
        policy_token=policys.token,
        state=state,
        candidates=tuple(sorted(listed, key=lambda c: (-c.log_p_factual, c.token_id))),
        diagnostics=_diagnostics(scalar, row, views, state, families, bounds),
        families=families,
        certified_in=views.certified_in,
        set_size_low=None if views.margins is None else int(scalar["set_size_low"]),
        set_size_high=None if views.margins is None else int(scalar["set_size_high"]),
        noise=None if views.margins is None else noise,
        bounds=bounds,
        logits=logits,
    )


def _refusals(families: tuple[FamilyView, ...], ids: Tensor) -> Tensor:
    """Bit f is set where family f does not certify the token, ``(G, K)``."""
    bits = torch.zeros(ids.shape, dtype=torch.float64, device=ids.device)
    for index, view in enumerate(families):
        if view.certified is not None:
            bits += (~view.certified.gather(-1, ids)).double() * 2.0**index
    return bits


def _table(values: list[float], text_of: TextOf, views: Views) -> list[Candidate]:
    """The candidates from their columns, the chosen and the emitted token last."""
    named = VIEWS if views.ends is not None else tuple(view.family for view in views.families)
    count = len(values) // (6 if named else 5)
    ids, members, factual, masked, fused, *marks = (
        values[start : start + count] for start in range(0, len(values), count)
    )
    tokens = [int(number) for number in ids]
    none: list[tuple[str, ...]] = [()] * count
    marked = none
    if named:
        bits = [(1 << index, name) for index, name in enumerate(named)]
        marked = [tuple(name for bit, name in bits if int(number) & bit) for number in marks[0]]
    refused, at_most = (marked, none) if views.ends is None else (none, marked)
    members = map(bool, members)
    columns = zip(tokens, map(text_of, tokens), factual, masked, fused, members, refused, at_most, strict=True)
    return [Candidate(*column) for column in columns]


def effective_state(state: CertificateState, mismatched: bool) -> CertificateState:
    """What a threshold may be said to rest on when its calibration may belong to another policy."""
    return "mismatch" if mismatched and state != "none" else state


def _family_step(view: FamilyView, row: Candidate, log_p_masked: float, mismatched: bool) -> FamilyStep:
    state = effective_state(view.state, mismatched)
    return FamilyStep(
        family=view.family,
        log_p_masked=log_p_masked,
        log_joint=min(row.log_p_fused, log_p_masked),
        log_tau=view.log_tau,
        certified=view.family not in row.refused_by and state not in ("mismatch", "none"),
        state=state,
    )


def _diagnostics(
    scalar: dict[str, float],
    row: Candidate,
    views: Views,
    state: CertificateState,
    families: tuple[FamilyStep, ...],
    bounds: Bounds | None,
) -> Diagnostics:
    log_tau, support = views.log_tau, row.log_support(views.certified_in)
    margins = [difference(f.log_joint, f.log_tau) for f in families] or [difference(support, log_tau)]
    # Without a threshold there is no bound, and a tensor of one number costs more than the rest of this function. The
    # bound needs a set with mass tau in the fused and the masked reading, which the factual one alone cannot give it,
    # and a divergence, of which bounded steps only know the least.
    bound = math.inf
    if state != "none" and log_tau > -math.inf and views.certified_in == "both" and bounds is None:
        bound = float(total_variation_bound(torch.tensor(scalar["kl"], dtype=torch.float64), log_tau))
    return Diagnostics(
        entropy_factual=scalar["entropy_factual"],
        entropy_masked=scalar["entropy_masked"],
        entropy_fused=scalar["entropy_fused"],
        kl_fused_masked=scalar["kl"],
        tv_on_set=None if math.isnan(scalar["tv"]) else scalar["tv"],
        tv_bound=bound if math.isfinite(bound) else None,
        sensitivity=scalar["sensitivity"],
        log_ratio=bounds.log_ratio(row) if bounds else difference(row.log_p_factual, row.log_p_masked),
        margin=min(margins),
        kl_fused_factual=scalar["kl_factual"],
        tv_fused_factual=scalar["tv_factual"],
    )


def difference(a: float, b: float) -> float:
    """``a - b`` where two equal infinities differ by nothing."""
    return 0.0 if a == b else a - b


@dataclass(frozen=True, slots=True)
class Keeper:
    """How the logits of one step are laid out."""

    branches: tuple[str, ...]
    vocabulary_size: int
    dtype: str
    temperature: float

    @classmethod
    def of(cls, policy: Policy, branches: tuple[str, ...], logits: Tensor) -> Keeper:
        """The layout for steps with logits ``(B, V)``."""
        name = str(logits.dtype).removeprefix("torch.")
        # Policies read float64 logits as float32, so nothing that decides is lost.
        dtype = name if name in DTYPES else "float32"
        return cls(branches, int(logits.shape[-1]), dtype, policy.sampling.temperature)

    @property
    def size(self) -> int:
        """Bytes of a step's logits before they are compressed."""
        return len(self.branches) * self.vocabulary_size * DTYPES[self.dtype][0].itemsize

    def pack(self, logits: Tensor) -> Tensor:
        """Lay the logits out as bytes on their device."""
        return logits.to(DTYPES[self.dtype][0]).flatten(-2).contiguous().view(torch.uint8)

    def unpack(self, data: bytes) -> StoredLogits:
        """The logits from the bytes of :meth:`pack`, on the host."""
        width = DTYPES[self.dtype][0].itemsize
        values = np.frombuffer(data, dtype=f"=u{width}").astype(f"<u{width}").tobytes()
        return StoredLogits(self.branches, self.vocabulary_size, self.temperature, self.dtype, values)
