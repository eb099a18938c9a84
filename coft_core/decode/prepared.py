"""From one step's tensors to a :class:`Step`, with a single device-to-host transfer."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from threading import Lock
from typing import Any

import numpy as np
import torch
from torch import Tensor

from coft_core.conformal.informative import certifies, stated
from coft_core.decode.keep import Keeper
from coft_core.errors import CoftError
from coft_core.model.compiled import Progress, path_of, prepare
from coft_core.model.functions import CapturedFunction, CompiledFunction, first_line
from coft_core.model.language_model import LanguageModel
from coft_core.model.packed import weights_text
from coft_core.policies.base import FamilyView, Policy, Views
from coft_core.policies.certify import size_range, step_figures, total_variation_bound
from coft_core.policies.coft import CoftPolicy
from coft_core.policies.factorized import PREFIX, FactorizedCoftPolicy
from coft_core.policies.sampling import Choice, choose
from coft_core.policies.vanilla import VanillaPolicy
from coft_core.types import Candidate, CertificateState, Diagnostics, FamilyStep, Step

CANDIDATE_ROWS = 24
"""Rows of the candidate table: the likeliest tokens by their largest probability in any view."""

TextOf = Callable[[int], str]
"""A token's text as it continues a sentence, by its id."""

SCALARS = (
    "emitted",
    "chosen",
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


@dataclass(frozen=True, slots=True)
class StepContext:
    """What a step is, besides its numbers: position, whether a person forced it, and what its threshold rests on.

    ``noise`` is the bound with which its set size became a range, nats.
    """

    index: int
    forced: bool
    mismatched: bool
    noise: float = 0.0


def pack_step(views: Views, choice: Choice, emitted: Tensor, noise: float = 0.0) -> Tensor:
    """Gather all that an audit shows of a step into one tensor on the logits' device.

    Args:
        views: The step's views, ``(G, V)`` each.
        choice: What the policy chose.
        emitted: Tokens that are appended, ``(G,)``.
        noise: Nats by which log-probabilities may differ between ways of running the model.

    Returns:
        ``(G, len(SCALARS) + F + columns * rows)`` float64 for F families (none with one masked branch): the scalars,
        the emitted token's log-probability in each family's branch, then per row token id, the three
        log-probabilities, membership and, with families, which of them refuse the token, as the bits of a number.
        Float64 holds token ids and float32 values exactly.
    """
    log_p = torch.stack([views.log_p_factual, views.log_p_masked, views.log_p_fused])  # (3, G, V)
    own = [view.gather(-1, emitted[:, None])[:, 0] for view in (views.logits_factual, views.logits_masked)]  # (G,) each
    # A token that both branches forbid is no more sensitive than any other, and -inf - -inf would be NaN.
    gap = torch.where(own[0] == own[1], 0.0, own[0] - own[1])  # (G,)
    further = [gap, *(view.log_p.gather(-1, emitted[:, None])[:, 0] for view in views.families)]
    head = [
        torch.stack([emitted, choice.token_ids, choice.fallback], dim=-1),  # (G, 3)
        _sizes(views, noise),  # (G, 2)
        step_figures(log_p, views.certified),  # (G, 10)
        torch.stack(further, dim=-1),  # (G, 1 + F)
    ]
    table = _candidate_rows(views, log_p, torch.stack([choice.token_ids, emitted], dim=-1))  # (G, K, 5 or 6)
    return torch.cat([*(part.double() for part in head), table.flatten(1)], dim=-1)


def unpack_step(packed: list[float], text_of: TextOf, views: Views, context: StepContext) -> Step:
    """Build the step from one row of :func:`pack_step`, already on the host.

    Args:
        packed: The row.
        text_of: Gives the tokens' texts.
        views: The step's views, for thresholds and families; none of their tensors is read.
        context: Position and circumstances of the step.

    Raises:
        CoftError: The model returned NaN.
    """
    scalar = dict(zip(SCALARS, packed, strict=False))
    if scalar["broken"]:
        raise CoftError(
            f"The model returned NaN at step {context.index + 1}; load it in float32, or check its weights."
        )
    emitted, chosen = int(scalar["emitted"]), int(scalar["chosen"])
    log_tau, set_size, mass = views.log_tau, int(scalar["set_size"]), min(scalar["certified_mass"], 1.0)
    state = effective_state(stated(views.state, log_tau, set_size, mass), context.mismatched)
    rest = packed[len(SCALARS) :]
    table = _table(rest[len(views.families) :], text_of, tuple(view.family for view in views.families))
    own = table[emitted]
    families = tuple(_family_step(view, own, log_p, context) for view, log_p in zip(views.families, rest, strict=False))
    candidates = sorted(table.values(), key=lambda c: (-c.log_p_factual, c.token_id))
    return Step(
        index=context.index,
        token_id=emitted,
        token=own.token,
        log_p_factual=own.log_p_factual,
        log_p_masked=own.log_p_masked,
        log_p_fused=own.log_p_fused,
        log_tau=log_tau,
        certified=own.certified and certifies(state),
        set_size=set_size,
        certified_mass=mass,
        fallback=bool(scalar["fallback"]),
        forced=context.forced,
        policy_token_id=chosen,
        policy_token=text_of(chosen),
        state=state,
        candidates=tuple(candidates),
        diagnostics=_diagnostics(scalar, own, views, state, families),
        families=families,
        certified_in=views.certified_in,
        **({} if views.margins is None else _range(scalar, context.noise)),
    )


def _sizes(views: Views, noise: float) -> Tensor:
    """Between which sizes the certified set lies, ``(G, 2)``; zeros where there is none."""
    if views.margins is None:
        return torch.zeros(len(views.log_p_fused), 2, device=views.log_p_fused.device)
    return size_range(views.margins, noise)


def _candidate_rows(views: Views, log_p: Tensor, needed: Tensor) -> Tensor:
    """The candidate table, ``(G, K, 5)`` or, with families, ``(G, K, 6)``; ``needed`` tokens ``(G, 2)`` come last."""
    best = log_p.amax(0)  # (G, V)
    ids = torch.cat([best.topk(min(CANDIDATE_ROWS, best.shape[-1]), dim=-1).indices, needed], dim=-1)  # (G, K)
    columns = [ids, *log_p.gather(-1, ids.expand(3, -1, -1))]  # (G, K) each
    columns.append(torch.zeros_like(ids) if views.certified is None else views.certified.gather(-1, ids))
    if views.families:
        columns.append(_refusals(views.families, ids))
    return torch.stack([column.double() for column in columns], dim=-1)


def _refusals(families: tuple[FamilyView, ...], ids: Tensor) -> Tensor:
    """Bit f is set where family f does not certify the token, ``(G, K)``."""
    bits = torch.zeros(ids.shape, dtype=torch.float64, device=ids.device)
    for index, view in enumerate(families):
        if view.certified is not None:
            bits += (~view.certified.gather(-1, ids)).double() * 2.0**index
    return bits


def _range(scalar: dict[str, float], noise: float) -> dict[str, Any]:
    return {
        "set_size_low": int(scalar["set_size_low"]),
        "set_size_high": int(scalar["set_size_high"]),
        "noise": noise,
    }


def _table(values: list[float], text_of: TextOf, families: tuple[str, ...]) -> dict[int, Candidate]:
    rows: dict[int, Candidate] = {}
    width = 6 if families else 5
    for start in range(0, len(values), width):
        token_id = int(values[start])
        if token_id not in rows:
            factual, masked, fused, member = values[start + 1 : start + 5]
            bits = int(values[start + 5]) if families else 0
            refused_by = tuple(name for index, name in enumerate(families) if bits >> index & 1)
            rows[token_id] = Candidate(token_id, text_of(token_id), factual, masked, fused, bool(member), refused_by)
    return rows


def effective_state(state: CertificateState, mismatched: bool) -> CertificateState:
    """What a threshold may be said to rest on when its calibration may belong to another policy."""
    return "mismatch" if mismatched and state != "none" else state


def _family_step(view: FamilyView, own: Candidate, log_p_masked: float, context: StepContext) -> FamilyStep:
    state = effective_state(view.state, context.mismatched)
    return FamilyStep(
        family=view.family,
        log_p_masked=log_p_masked,
        log_joint=min(own.log_p_fused, log_p_masked),
        log_tau=view.log_tau,
        certified=view.family not in own.refused_by and state not in ("mismatch", "none"),
        state=state,
    )


def _diagnostics(
    scalar: dict[str, float],
    own: Candidate,
    views: Views,
    state: CertificateState,
    families: tuple[FamilyStep, ...],
) -> Diagnostics:
    log_tau, support = views.log_tau, own.log_support(views.certified_in)
    margins = [difference(f.log_joint, f.log_tau) for f in families] or [difference(support, log_tau)]
    # Without a threshold there is no bound, and a tensor of one number costs more than the rest of this function. The
    # bound needs a set with mass tau in the fused and the masked reading, which the factual one alone cannot give it.
    informative = state != "none" and log_tau > -math.inf and views.certified_in == "both"
    bound = (
        float(total_variation_bound(torch.tensor(scalar["kl"], dtype=torch.float64), log_tau))
        if informative
        else math.inf
    )
    return Diagnostics(
        entropy_factual=scalar["entropy_factual"],
        entropy_masked=scalar["entropy_masked"],
        entropy_fused=scalar["entropy_fused"],
        kl_fused_masked=scalar["kl"],
        tv_on_set=None if math.isnan(scalar["tv"]) else scalar["tv"],
        tv_bound=bound if math.isfinite(bound) else None,
        sensitivity=scalar["sensitivity"],
        log_ratio=difference(own.log_p_factual, own.log_p_masked),
        margin=min(margins),
        kl_fused_factual=scalar["kl_factual"],
        tv_fused_factual=scalar["tv_factual"],
    )


def difference(a: float, b: float) -> float:
    """``a - b`` where two equal infinities differ by nothing."""
    return 0.0 if a == b else a - b


CUDA_GRAPH = "CUDA graph"
MOST_FUNCTIONS = 48
"""Functions that are held; the one unused for longest goes first."""

_KEPT_AS = "prepared steps"


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What a prepared step depends on besides its tensors.

    Attributes:
        policy: The policy.
        step: Position of the step, for its thresholds.
        branches: Names of the branches.
        greedy: Take the likeliest token.
        keeper: How the logits are kept; None where they are not.
        noise: Nats by which log-probabilities may differ between ways of running the model.
    """

    policy: Policy
    step: int
    branches: tuple[str, ...]
    greedy: bool
    keeper: Keeper | None = None
    noise: float = 0.0

    @property
    def key(self) -> tuple[object, ...]:
        """Equal where the function is the same."""
        policy = self.policy
        lam = policy.lam if isinstance(policy, CoftPolicy | FactorizedCoftPolicy) else None
        thresholds = _thresholds(policy, self.step, self.branches)
        return (type(policy), lam, policy.sampling, thresholds, self.branches, self.greedy, self.keeper, self.noise)


@dataclass(frozen=True, slots=True)
class Numbers:
    """All that a step says, on the host.

    Attributes:
        views: The step's views, for thresholds and families; their tensors are not to be read.
        rows: What :func:`coft_core.decode.prepared.pack_step` packed, one list a chain.
        kept: The kept logits, one run of bytes a chain; empty where they are not kept.
    """

    views: Views
    rows: list[list[float]]
    kept: tuple[bytes, ...] = ()


def step_tensors(
    circumstances: Circumstances, logits: Tensor, draws: Tensor, forced: Tensor | None, views: Views
) -> tuple[Tensor, Tensor | None]:
    """Choose and pack.

    Args:
        circumstances: What else it depends on.
        logits: ``(G, B, V)``.
        draws: ``(G,)`` float64.
        forced: Tokens to write whatever is chosen, ``(G,)``, negative for none; None where there is none at all.
        views: What the policy says of the logits.

    Returns:
        The packed rows, ``(G, N)`` float64, and the kept logits as bytes, ``(G, M)``.
    """
    sampling = circumstances.policy.sampling
    choice = choose(views.log_p_fused, views.certified, sampling, draws, circumstances.greedy)
    emitted = choice.token_ids if forced is None else torch.where(forced < 0, choice.token_ids, forced)
    packed = pack_step(views, choice, emitted, circumstances.noise)
    if circumstances.keeper is None:
        return packed, None
    return packed, circumstances.keeper.pack(logits, torch.stack([emitted, choice.token_ids], dim=-1))


class PreparedSteps:
    """The functions of one model, made when they are first needed."""

    def __init__(self, backend: str) -> None:
        """Make none yet.

        Args:
            backend: :data:`CUDA_GRAPH`, or a backend of ``torch.compile``.
        """
        self.backend = backend
        self.failure = ""
        self._made: OrderedDict[tuple[object, ...], tuple[Views, int, Callable[..., Tensor]]] = OrderedDict()
        self._pool: Any = None
        self._lock = Lock()

    def numbers(
        self, circumstances: Circumstances, logits: Tensor, draws: Tensor, forced: int | None
    ) -> Numbers | None:
        """A step's numbers; None where this policy's step is not one function, or none could be made.

        Args:
            circumstances: What it depends on besides.
            logits: ``(G, B, V)``.
            draws: ``(G,)`` float64.
            forced: A token to write whatever is chosen.
        """
        if self.failure or type(circumstances.policy) not in (CoftPolicy, FactorizedCoftPolicy, VanillaPolicy):
            return None
        tokens = torch.full(draws.shape, -1 if forced is None else forced, device=logits.device)  # (G,)
        key = (*circumstances.key, logits.shape, logits.dtype)
        with self._lock:
            try:
                made = self._made.get(key) or self._make(circumstances, logits, draws, tokens)
            except RuntimeError as error:
                # What a device cannot capture is known only by trying; the eager operations are always there.
                self.failure = first_line(error)
                return None
            self._made[key] = made
            self._made.move_to_end(key)
            while len(self._made) > MOST_FUNCTIONS:
                self._made.popitem(last=False)
        views, width, run = made
        data = run(logits, draws, tokens).numpy().tobytes()
        count = width * len(draws)
        rows = np.frombuffer(data, count=count).reshape(len(draws), width).tolist()
        if circumstances.keeper is None:
            return Numbers(views, rows)
        kept = np.frombuffer(data, dtype=np.uint8, offset=8 * count).reshape(len(draws), -1)  # (G, M)
        return Numbers(views, rows, tuple(own.tobytes() for own in kept))

    def _make(
        self, circumstances: Circumstances, logits: Tensor, draws: Tensor, forced: Tensor
    ) -> tuple[Views, int, Callable[..., Tensor]]:
        def whole(logits: Tensor, draws: Tensor, forced: Tensor) -> Tensor:
            views = circumstances.policy.views(logits, circumstances.step, circumstances.branches)
            packed, kept = step_tensors(circumstances, logits, draws, forced, views)
            data = packed.flatten().view(torch.uint8)
            return data if kept is None else torch.cat([data, kept.flatten()])

        run: Callable[..., Tensor]
        if self.backend == CUDA_GRAPH:
            captured = CapturedFunction(whole, (logits, draws, forced), self._pool)
            self._pool, run = captured.pool, captured
        else:
            run = CompiledFunction(whole, (logits, draws, forced), self.backend)
        with torch.inference_mode():
            views = circumstances.policy.views(logits, circumstances.step, circumstances.branches)
            packed, _ = step_tensors(circumstances, logits, draws, forced, views)
        return _without_tensors(views), packed.shape[-1], run


def prepare_model(model: LanguageModel, progress: Progress | None = None) -> str:
    """Make the fastest ways to decode with a model that give its eager results, and use them from then on.

    Args:
        model: The model.
        progress: Told how much is done, 0 to 1, and what is being done.

    Returns:
        The way in words, as :func:`path_text` gives it.
    """
    if prepare(model, progress).name == CUDA_GRAPH:
        prepare_steps(model)
    return path_text(model)


def path_text(model: LanguageModel) -> str:
    """How a model's steps run: ``"CUDA graph"``, ``"traced"`` or ``"eager: <why>"``, and on a CPU its weights' form."""
    prepared, text = prepared_steps(model), path_of(model).text
    if weights := weights_text(model):
        text += f"; {weights}"
    return f"{text}, its diagnostics eager: {prepared.failure}" if prepared and prepared.failure else text


def prepare_steps(model: LanguageModel, backend: str = CUDA_GRAPH) -> PreparedSteps:
    """Have the steps of a model run as one function each from now on."""
    prepared = model.findings[_KEPT_AS] = PreparedSteps(backend)
    return prepared


def prepared_steps(model: LanguageModel) -> PreparedSteps | None:
    """The functions of a model; None where its steps run eagerly."""
    found: PreparedSteps | None = model.findings.get(_KEPT_AS)
    return found


def _thresholds(policy: Policy, step: int, branches: tuple[str, ...]) -> object:
    if isinstance(policy, CoftPolicy):
        return (policy.calibration is None, policy.threshold(step))
    if isinstance(policy, FactorizedCoftPolicy) and policy.calibration is not None:
        return tuple(policy.calibration.threshold(name.removeprefix(PREFIX), step) for name in branches[1:])
    return None


def _without_tensors(views: Views) -> Views:
    """Views of which only numbers and names are left."""
    nothing = torch.empty(0)
    families = tuple(replace(view, log_p=nothing, certified=None) for view in views.families)
    tensors: dict[str, Any] = {
        item.name: nothing for item in fields(Views) if isinstance(getattr(views, item.name), Tensor)
    }
    return replace(views, **tensors, families=families)
