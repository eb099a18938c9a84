"""A step's fusion, certification, choice and diagnostics as one pure function of tensors, captured or compiled.

Eagerly these are some hundred small operations. For the policies whose distribution depends on nothing but the step's
logits and thresholds they are one function of the logits, the draws and the forced tokens; everything else about it is
fixed when it is prepared. Thresholds are fixed with it: there are as many functions as a calibration has thresholds.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from threading import Lock
from typing import Any

import numpy as np
import torch
from torch import Tensor

from coft_core.engine.compiled import Progress, path_of, prepare
from coft_core.engine.compiled_function import CapturedFunction, CompiledFunction, first_line
from coft_core.engine.model import LanguageModel
from coft_core.engine.packed import weights_text
from coft_core.keeping import Keeper
from coft_core.policies.base import Policy, Views
from coft_core.policies.coft import CoftPolicy
from coft_core.policies.factorized import PREFIX, FactorizedCoftPolicy
from coft_core.policies.vanilla import VanillaPolicy
from coft_core.sampling import choose
from coft_core.steps import pack_step

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
        rows: What :func:`coft_core.steps.pack_step` packed, one list a chain.
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
