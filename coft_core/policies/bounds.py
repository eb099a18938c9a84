"""A step of which the engine returned only the most likely tokens: every number between two ends that are certain.

A token that a branch did not return has at most the probability of the least likely one of those that it did return as
the most likely, and at most what is left over. At another temperature, and where branches are fused, the sum that
divides all weights lies between two ends too: what is known of it, and that with the most that the rest can add
(Hölder's inequality for the mass of a product, convexity for the powers). Figures put all tokens that are not known
into one, which never raises a divergence.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.special import entr, xlogy

from coft_core.policies.base import Ends, Policy, Views
from coft_core.policies.sampling import Choice, choose
from coft_core.types import CertificateState, Sampling

ROUNDING = 1e-6
"""By how much probabilities that add up to one may miss it, and log-probabilities each other, through float32."""


@dataclass(frozen=True, slots=True)
class _Returned:
    """What came back of one branch at temperature 1, ``(G, V)``: ``-inf`` for what did not.

    ``left`` is the most probability that is left over, and ``most`` the largest logarithm of one token of it; both
    ``(G, 1)``.
    """

    log_p: Tensor
    seen: Tensor
    left: Tensor
    most: Tensor

    @classmethod
    def of(cls, logits: Tensor, count: int | None) -> _Returned:
        log_p = logits.double()  # (G, V)
        seen = log_p > -torch.inf
        # What is returned may add up to more than one; then all of it is off by about as much.
        left = (1 - log_p.exp().sum(-1, keepdim=True)).abs() + ROUNDING  # (G, 1)
        left = left.masked_fill(seen.all(-1, keepdim=True), 0)
        # Others than the most likely ones may be there too, which were asked for by name.
        least = log_p.masked_fill(~seen, torch.inf).amin(-1, keepdim=True)  # (G, 1)
        if count is not None:
            least = torch.maximum(least, log_p.topk(min(count, log_p.shape[-1])).values[..., -1:])
        return cls(log_p, seen, left, torch.minimum(least, left.log()))

    @property
    def high(self) -> Tensor:
        """The largest log-probability of each token, ``(G, V)``."""
        return torch.where(self.seen, self.log_p, self.most)


@dataclass(frozen=True, slots=True)
class _Range:
    """The ends of log-probabilities, ``(G, V)``; the lower one is ``-inf`` where a token is not known."""

    low: Tensor
    high: Tensor
    known: Tensor

    @property
    def mass(self) -> tuple[Tensor, Tensor]:
        """The ends of the probability of all known tokens, ``(G,)`` each."""
        return self.mass_of(self.known)

    def mass_of(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """The same for some of them."""
        low, high = ((end.exp() * tokens).sum(-1) for end in (self.low, self.high))
        return low.clamp_max(1), high.clamp_max(1)

    @property
    def slack(self) -> Tensor:
        """By how much a known token's log-probability may exceed its lower end, ``(G,)``."""
        return (self.high - self.low).masked_fill(~self.known, 0).amax(-1)

    def shares(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Probabilities among some known tokens and their logarithms, which are 0 elsewhere; ``(G, V)`` each."""
        log_p = torch.log_softmax(self.low.masked_fill(~tokens, -torch.inf), dim=-1)
        return log_p.exp().masked_fill(~tokens, 0), log_p.masked_fill(~tokens, 0)


def _fused(one: _Returned, other: _Returned, lam: float, temperature: float) -> _Range:
    """The normalised product of two branches: known where both returned the token."""
    power = 1 / temperature
    known = one.seen & other.seen  # (G, V)
    weights = ((1 - lam) * one.high + lam * other.high) * power  # (G, V), at most
    least = torch.logsumexp(weights.masked_fill(~known, -torch.inf), -1, keepdim=True)  # (G, 1)
    rest = sum(
        _most(one, other, lam, power, weights, tokens)
        for tokens in (one.seen & ~other.seen, other.seen & ~one.seen, ~one.seen & ~other.seen)
    )
    most = torch.logaddexp(least, torch.as_tensor(rest).log())  # (G, 1)
    # A token's own weight is a part of the sum that divides it.
    high = weights - torch.where(known, least, torch.logaddexp(least, weights))
    return _Range((weights - most).masked_fill(~known, -torch.inf), high, known)


def _most(one: _Returned, other: _Returned, lam: float, power: float, weights: Tensor, tokens: Tensor) -> Tensor:
    """The most that the weights of some tokens add up to, ``(G, 1)``; at most one of the branches returned these."""
    masses = []
    for branch in (one, other):
        mass = (branch.high.exp() * tokens).sum(-1, keepdim=True)  # (G, 1)
        masses.append(torch.where((tokens & branch.seen).any(-1, keepdim=True), mass, mass.minimum(branch.left)))
    mass = masses[0] ** (1 - lam) * masses[1] ** lam
    if power < 1:
        together = tokens.sum(-1, keepdim=True) ** (1 - power) * mass**power
    else:
        largest = weights.masked_fill(~tokens, -torch.inf).amax(-1, keepdim=True).exp()  # (G, 1)
        together = mass * largest ** (1 - 1 / power)
    return together.minimum((weights.exp() * tokens).sum(-1, keepdim=True))


def _branch(branch: _Returned, temperature: float) -> _Range:
    """One branch at a temperature."""
    if temperature == 1:
        return _Range(branch.log_p, branch.high, branch.seen)
    tempered = _fused(branch, branch, 0.5, temperature)
    power, count = 1 / temperature, (~branch.seen).sum(-1, keepdim=True).clamp_min(1)  # (G, 1)
    left = (branch.left - 2 * ROUNDING).clamp_min(0)
    # What is left adds least where it is even (below temperature 1), or lies on as few tokens as can be.
    least = count * (left / count) ** power if power > 1 else left * branch.most.exp().clamp_min(1e-30) ** (power - 1)
    known = torch.logsumexp((branch.log_p * power), -1, keepdim=True)
    known = torch.logaddexp(known, least.log())
    return _Range(tempered.low, torch.minimum(tempered.high, branch.high * power - known), branch.seen)


def branch_ends(logits: Tensor, temperature: float, count: int) -> tuple[Tensor, Tensor]:
    """The ends of the log-probabilities of rows ``(..., V)`` by their most likely tokens, whatever else came back."""
    values, places = logits.topk(min(count, logits.shape[-1]))
    own = torch.full_like(logits, -torch.inf).scatter_(-1, places, values)
    found = _branch(_Returned.of(own, None), temperature)
    return found.low, found.high


def least_support(logits: Tensor, tokens: Tensor, lams: Sequence[float], temperature: float, count: int) -> Tensor:
    """The least joint support of one token a position, ``(n, L, 1)``, of logits ``(n, 2, V)`` and tokens ``(n,)``.

    It is a score like the support itself: thresholds read off it hold for sets of what is certain to reach them.
    """
    found = []
    for lam in lams:
        _, (_, masked, fused) = _ranges(logits, lam, temperature, count)
        found.append(torch.minimum(masked.low, fused.low).gather(-1, tokens[:, None]))  # (n, 1)
    return torch.stack(found, dim=1)


def _ranges(
    logits: Tensor, lam: float, temperature: float, count: int | None
) -> tuple[tuple[_Returned, _Returned], tuple[_Range, _Range, _Range]]:
    """What came back of logits ``(G, B, V)``, and the factual, the masked and the fused view."""
    one, other = (_Returned.of(logits[:, branch], count) for branch in (0, -1))
    factual, masked = _branch(one, temperature), _branch(other, temperature)
    end_points = {0.0: factual, 1.0: masked}
    fused = end_points[lam] if lam in end_points else _fused(one, other, lam, temperature)
    return (one, other), (factual, masked, fused)


def bounded_views(
    policy: Policy,
    logits: Tensor,
    log_tau: float | Tensor,
    state: CertificateState = "none",
    noise: float = 0.0,
    count: int | None = None,
) -> Views:
    """What a policy that fuses at most two branches says of logits ``(G, B, V)`` of which most are missing.

    Log-probabilities are the lower ends of what is known, and the upper ends of everything else. The certified set is
    what is certain to be in it; thresholds are one number or ``(G, 1)``. So many tokens of each branch came back as its
    most likely ones; None says that all that came back are.
    """
    returned, ranges = _ranges(logits, policy.fusion_weight or 0.0, policy.sampling.temperature, count)
    factual, masked, fused = ranges
    certified = margins = None
    sizes = undecided = torch.zeros(len(logits), 2, device=logits.device)
    if policy.applied is not None:
        deciding = (factual,) if policy.certified_in == "factual" else (masked, fused)
        tau = torch.as_tensor(log_tau, dtype=torch.float64, device=logits.device)
        low, high = (torch.stack([getattr(view, end) for view in deciding]).amin(0) for end in ("low", "high"))
        low = low.float().double()  # as it is stored
        margins, certified = low - tau, low >= tau + ROUNDING  # (G, V) each
        sizes, undecided = (_sizes(deciding[0], low, high, tau, within) for within in (max(noise, ROUNDING), ROUNDING))
    stated = [torch.where(view.known, view.low, view.high).float() for view in ranges]  # 3 of (G, V)
    return Views(
        logits_factual=returned[0].high.float(),
        logits_masked=returned[1].high.float(),
        log_p_factual=stated[0],
        log_p_masked=stated[1],
        log_p_fused=stated[2],
        certified=certified,
        log_tau=math.nan if isinstance(log_tau, Tensor) else log_tau,
        state=state,
        certified_in=policy.certified_in,
        margins=margins,
        ends=_ends(policy.sampling, ranges, certified, sizes, undecided[:, 1] - undecided[:, 0], count),
    )


def _sizes(deciding: _Range, low: Tensor, high: Tensor, log_tau: Tensor, within: float) -> Tensor:
    """Sizes ``(G, 2)`` between which a certified set lies, of supports ``(G, V)`` between two ends."""
    certain, possible = low >= log_tau + within, high >= log_tau - within
    # Tokens that their branch did not return share what it has left, which is enough for so many.
    left = (1 - deciding.mass[0] + ROUNDING)[:, None] / (log_tau - within).exp()  # (G, 1)
    hidden = (possible & ~deciding.known).sum(-1).minimum(left.floor()[:, 0])
    return torch.stack([certain.sum(-1), (possible & deciding.known).sum(-1) + hidden], dim=-1)


def _ends(
    sampling: Sampling,
    ranges: tuple[_Range, _Range, _Range],
    certified: Tensor | None,
    sizes: Tensor,
    undecided: Tensor,
    count: int | None,
) -> Ends:
    factual, masked, fused = ranges
    returned = factual.known | masked.known  # (G, V)
    # Where the branches returned no token in common, nothing is known of the fused one but its upper ends.
    common = fused.known.any(-1, keepdim=True)  # (G, 1)
    log_p = torch.where(common, fused.low, fused.high.masked_fill(~returned, -torch.inf))
    others = fused.high.masked_fill(fused.known, -torch.inf).amax(-1, keepdim=True)  # (G, 1)
    ahead = (fused.low > others).sum(-1)  # (G,)
    if certified is None:
        allowed, left = None, 1 - fused.mass[0]  # (G,)
        # Where the nucleus is known, the rest has no other part in the draw than its own probability.
        nucleus = (fused.slack == 0) & (left <= 1 - sampling.top_p - ROUNDING)
        even = (left.clamp_min(0) / (~fused.known).sum(-1).clamp_min(1)).log()  # (G,)
        log_p = torch.where(nucleus[:, None] & ~fused.known, even[:, None], log_p)
        exact = ahead >= sampling.top_k if sampling.top_k else nucleus
    else:
        allowed = certified & fused.known
        exact = ~(certified & ~fused.known).any(-1)
    return Ends(
        log_p=log_p.float(),
        allowed=allowed,
        missing=torch.stack([~view.known for view in ranges]),
        sizes=sizes,
        figures=_figures(ranges, certified),
        seen=torch.minimum(factual.known.sum(-1), masked.known.sum(-1)).clamp_max(count or returned.shape[-1]),
        slack=torch.stack([view.slack for view in ranges], dim=-1),
        undecided=undecided,
        exact=exact & (undecided == 0),
        best=(ahead > 0) & (undecided == 0),
    )


def choose_by(views: Views, sampling: Sampling, uniform: Tensor, greedy: bool = False) -> Choice:
    """Choose one token a row by views; see :func:`coft_core.policies.sampling.choose`."""
    ends = views.ends
    if ends is None:
        return choose(views.log_p_fused, views.certified, sampling, uniform, greedy)
    choice = choose(ends.log_p, ends.allowed, sampling, uniform, greedy)
    likeliest = choice.fallback | (greedy and ends.allowed is None)
    return replace(choice, exact=torch.where(likeliest, ends.best, ends.exact))


def _figures(ranges: tuple[_Range, _Range, _Range], certified: Tensor | None) -> Tensor:
    """What :func:`coft_core.policies.certify.step_figures` gives, each at least; on the set, of its known part."""
    factual, masked, fused = ranges
    broken = torch.stack([view.high.isnan().any(-1) for view in ranges]).any(0).double()  # (G,)
    size = mass = torch.zeros_like(broken)
    on_set = torch.full_like(broken, torch.nan)
    if certified is not None:
        size, certified = certified.sum(-1).double(), certified & fused.known
        mass, _ = fused.mass_of(certified)
        (one, _), (other, _) = fused.shares(certified), masked.shares(certified)
        on_set = (0.5 * (one - other).abs().sum(-1)).masked_fill(size == 0, torch.nan)
    moved = torch.maximum(_gained(fused, factual), _gained(factual, fused))
    figures = [broken, size, mass, *map(_entropy, ranges), _divergence(fused, masked), on_set]
    return torch.stack([*figures, _divergence(fused, factual), moved], dim=-1)


def _entropy(view: _Range) -> Tensor:
    """The least entropy ``(G,)``, all that is not known being one token; it is concave in the mass of the rest."""
    p, log_p = view.shares(view.known)
    within = -(p * log_p).sum(-1)
    return torch.stack([mass * within + entr(mass) + entr(1 - mass) for mass in view.mass]).amin(0)


def _divergence(one: _Range, other: _Range) -> Tensor:
    """The least ``KL(one || other)``, ``(G,)``, all tokens that are not known in both being one.

    With the masses ``a`` and ``b`` of the others it is ``a`` times the divergence among these, plus that of ``a`` and
    ``b`` as two coins. It is convex in both, and the best ``a`` for any ``b`` is below it.
    """
    known = one.known & other.known  # (G, V)
    (p, log_p), (_, log_q) = one.shares(known), other.shares(known)
    within = (p * (log_p - log_q)).sum(-1).clamp_min(0)
    (least, most), (low, high) = (
        [mass.clamp(ROUNDING, 1 - ROUNDING) for mass in view.mass_of(known)] for view in (one, other)
    )
    b = least.clamp(low, high)
    a = torch.sigmoid(torch.logit(b) - within).clamp(least, most)
    return (a * within + xlogy(a, a / b) + xlogy(1 - a, (1 - a) / (1 - b))).clamp_min(0)


def _gained(one: _Range, other: _Range) -> Tensor:
    """The least that the probabilities of one are above those of another, ``(G,)``, which is at most their TV."""
    return (one.low.exp() - other.high.exp()).clamp_min(0).sum(-1)
